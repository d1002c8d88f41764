"""What is left of files and folders when the process that replaces them dies in the middle."""

import multiprocessing
import os
import sys
from itertools import count
from pathlib import Path

import pytest

from trainables.atomic_files import write_folder

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
