"""What is left of files and folders when the process that replaces them dies in the middle."""

import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from trainables.files.atomic_files import DiskFull, add_files, is_unfinished, write_folder, write_text

pytestmark = pytest.mark.slow

NAMES = ["config.json", "model.safetensors", "tokenizer.json"]


def test_folder_is_never_a_part_of_the_old_or_the_new(tmp_path):
    """Dies before each thing that it asks of the system, in turn, until it comes through."""
    folder = tmp_path / "model"
    found = set()
    for step in count(1):
        write_folder(folder, lambda empty: _fill(empty, "old"))
        child = multiprocessing.get_context("fork").Process(target=_replace_and_die, args=(folder, step))
        child.start()
        child.join()
        found.add(_content(folder))
        if child.exitcode == 0:
            break
    assert found == {(), ("old",) * 3, ("new",) * 3}
    assert step > 20
    assert _content(folder) == ("new",) * 3


def _add(folder: Path) -> None:
    add_files(folder, lambda empty: _fill(empty, "new"))


WRITES = {
    "file": lambda folder: write_text(folder / "plan.json", "new"),
    "folder": lambda folder: write_folder(folder / "model", lambda empty: _fill(empty, "new")),
    "files": _add,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_next_write_removes_what_killed_ones_left_and_nothing_else(tmp_path, write):
    """A stopped process still writes: its file stays until the process is gone."""
    strangers = {".plan.json.swp", ".mode.1", "report.html"}
    for name in strangers:
        (tmp_path / name).touch()
    paused, killed = (_stopped_while_it_writes(tmp_path, write) for _ in range(2))
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    write(tmp_path)
    assert {path.name.split(".")[-1] for path in tmp_path.iterdir() if is_unfinished(path)} == {"1", str(paused)}
    os.kill(paused, signal.SIGKILL)
    os.waitpid(paused, 0)
    write(tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith(".")} == strangers - {"report.html"}


def _stopped_while_it_writes(folder: Path, write: Callable[[Path], None]) -> int:
    """The number of a process that has stopped before it puts what it wrote in its place."""
    if child := os.fork():
        os.waitpid(child, os.WUNTRACED)
        return child

    def hook(event: str, _: object) -> None:
        if event == "os.rename":
            os.kill(os.getpid(), signal.SIGSTOP)

    sys.addaudithook(hook)
    write(folder)
    os._exit(0)


def _replace_and_die(folder: Path, step: int) -> None:
    steps = count(1)

    def hook(event: str, _: object) -> None:
        if event.startswith(("os.", "open", "shutil.")) and next(steps) == step:
            os._exit(9)

    sys.addaudithook(hook)
    write_folder(folder, lambda empty: _fill(empty, "new"))
    os._exit(0)


def _fill(folder: Path, text: str) -> None:
    for name in NAMES:
        (folder / name).write_text(text)


def _content(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.read_text() for path in folder.iterdir())) if folder.exists() else ()


def test_full_disk_of_another_process_is_the_same_error():
    error = DiskFull("/data", "; free some space")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.place, again.errno) == (str(error), error.place, error.errno)
