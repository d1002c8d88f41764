"""One MLflow for all studies: a server on PostgreSQL: pytest tests/study/mlflow_mirror/test_shared_server.py"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil
import pytest
from helpers.journals import MadeJournal
from helpers.mlflow_server import Server
from helpers.mlflow_stores import content, curves, planned, stored_runs
from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.postgresql import PASSWORD, lacking, postgresql

from study.mirror import main

NAMES = ("first", "second", "third")
TRIALS = 12
Store = Callable[[], AbstractContextManager[dict[str, str]]]


def made_study(folder: Path) -> MadeJournal:
    journal = planned(folder)
    journal.begin()
    for number in range(TRIALS):
        journal.whole_trial(f"{number:016x}", [0.5, 0.4 + number / 100], trial=number)
    journal.end()
    return journal


def mirror_all(folder: Path, uri: str) -> None:
    """Mirrors the studies, all at the same time."""
    commands = [[sys.executable, "-m", "study.mirror", str(folder / name), "--tracking-uri", uri] for name in NAMES]
    mirrors = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for command in commands]
    for mirror in mirrors:
        output, _ = mirror.communicate(timeout=2 * PATIENCE_SECONDS)
        assert mirror.returncode == 0 and f"mirrored {TRIALS} trials" in output


@contextmanager
def sqlite_store() -> Iterator[dict[str, str]]:
    """What the server is told where it keeps its runs in a file: nothing more."""
    yield {}


@contextmanager
def postgresql_store() -> Iterator[dict[str, str]]:
    """What the server is told of a database that asks for a password."""
    with postgresql() as database:
        yield {"MLFLOW_BACKEND_STORE_URI": database.uri, "PGPASSFILE": str(database.password_file)}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "store",
    [
        sqlite_store,
        pytest.param(postgresql_store, marks=pytest.mark.skipif(lacking() is not None, reason=str(lacking()))),
    ],
    ids=["sqlite", "postgresql"],
)
def test_studies_mirror_into_one_server_at_once(tmp_path: Path, store: Store) -> None:
    for name in NAMES:
        made_study(tmp_path / name)
    with store() as environment:
        server = Server(tmp_path, **environment)
        server.start()
        try:
            mirror_all(tmp_path, server.uri)
            assert not any(PASSWORD in word for word in words_of_all_processes(server))
            for name in NAMES:
                runs = stored_runs(server.uri, name)
                assert len(runs) == TRIALS + 2  # of the study and of its arm
                trials = [run for key, run in runs.items() if key not in ("study", "palbert/rte")]
                assert [run.info.status for run in trials] == ["FINISHED"] * TRIALS
                assert [step for step, _, _ in curves(server.uri, runs[f"{3:016x}"])["epoch/score"]] == [1, 2]
            before = content(server.uri, NAMES[0])
            assert main([str(tmp_path / NAMES[0]), "--tracking-uri", server.uri]) == 0
            assert content(server.uri, NAMES[0]) == before
        finally:
            server.kill()


def words_of_all_processes(server: Server) -> list[str]:
    """Of all command lines on this machine, that of the server among them."""
    words = [word for process in psutil.process_iter() for word in command_line(process)]
    assert server.uri.rpartition(":")[2] in words
    return words


def command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
