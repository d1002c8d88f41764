"""The mirror and a real server that comes and goes: pytest tests/study/mlflow_mirror/test_mirror_server.py"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.mlflow_server import Server, wait_until
from helpers.mlflow_stores import content, curves, planned, stored_runs
from helpers.places import PATIENCE_SECONDS, ROOT

from study.mirror import main


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.kill()


@pytest.mark.long
@pytest.mark.slow
def test_outage_delays_the_mirror_and_loses_nothing(tmp_path: Path, server: Server) -> None:
    server.start()
    journal = planned(tmp_path / "mine")
    journal.begin()
    journal.whole_trial("a" * 16, [0.5, 0.6])
    command = [sys.executable, "-m", "study.mirror", str(journal.folder), "--tracking-uri", server.uri, "--follow"]
    follower = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: is_mirrored(server.uri, "a" * 16))
    server.kill()
    journal.start("b" * 16, trial=1)
    for epoch in (1, 2, 3):
        journal.epoch("b" * 16, epoch, 0.1 * epoch)
        time.sleep(0.7)
    server.start()
    wait_until(lambda: is_mirrored(server.uri, "b" * 16))
    journal.finish("b" * 16)
    journal.whole_trial("c" * 16, [0.7, 0.5], phase="confirm")
    journal.whole_trial("d" * 16, [0.7, 0.5], phase="confirm", trial=1)
    journal.end()
    output, _ = follower.communicate(timeout=PATIENCE_SECONDS)
    assert follower.returncode == 0 and "mirrored 4 trials" in output
    runs = stored_runs(server.uri)
    assert {key: run.info.status for key, run in runs.items()} == dict.fromkeys(
        ["study", "palbert/rte", *(letter * 16 for letter in "abcd")], "FINISHED"
    )
    assert [step for step, _, _ in curves(server.uri, runs["b" * 16])["epoch/score"]] == [1, 2, 3]
    assert all(len(points) == 2 for name, points in curves(server.uri, runs["c" * 16]).items() if "/" in name)
    before = content(server.uri)
    assert main([str(journal.folder), "--tracking-uri", server.uri]) == 0
    assert content(server.uri) == before


def is_mirrored(uri: str, key: str) -> bool:
    from mlflow.exceptions import MlflowException

    try:
        return key in stored_runs(uri)
    except (AssertionError, MlflowException):
        return False
