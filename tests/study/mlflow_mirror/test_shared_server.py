"""One MLflow for all studies: a server on PostgreSQL: pytest tests/study/mlflow_mirror/test_shared_server.py"""

from __future__ import annotations

import subprocess
import sys
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


@pytest.mark.slow
@pytest.mark.skipif(lacking() is not None, reason=str(lacking()))
def test_several_studies_mirror_into_one_server_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("psycopg2", reason="psycopg2-binary is not installed")
    for name in NAMES:
        made_study(tmp_path / name)
    with postgresql() as database:
        store = {"MLFLOW_BACKEND_STORE_URI": database.uri, "PGPASSFILE": str(database.password_file)}
        server = Server(tmp_path, **store)
        server.start()
        try:
            mirror_all(tmp_path, server.uri)
            words = [word for process in psutil.process_iter() for word in command_line(process)]
            assert any(server.uri.rpartition(":")[2] == word for word in words)  # the server's port is among them
            assert not any(PASSWORD in word for word in words)
            for name in NAMES:
                runs = stored_runs(server.uri, name)
                assert len(runs) == TRIALS + 2  # of the study and of its arm
                trials = [run for key, run in runs.items() if key not in ("study", "palbert/rte")]
                assert [run.info.status for run in trials] == ["FINISHED"] * TRIALS
                assert [step for step, _, _ in curves(server.uri, runs[f"{3:016x}"])["epoch/score"]] == [1, 2]
            before = content(server.uri)
            assert main([str(tmp_path / NAMES[0]), "--tracking-uri", server.uri]) == 0
            assert content(server.uri) == before
        finally:
            server.kill()


def command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
