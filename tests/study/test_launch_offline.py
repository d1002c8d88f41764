"""A launch whose hub does not answer: pytest tests/study/test_launch_offline.py"""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.places import ROOT

pytestmark = pytest.mark.slow


def test_hub_is_asked_once_despite_other_cached_task(tmp_path: Path) -> None:
    (tmp_path / "datasets" / "nyu-mll___glue" / "cola").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as server:  # nobody accepts: whoever asks gets no answer
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        environment = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "study.launch", "--profile", "paper", "--task", "all", "--dry-run"]
        run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        server.settimeout(0)
        connections = []
        with suppress(BlockingIOError):
            while True:
                connections.append(server.accept()[0])
    for connection in connections:
        connection.close()
    assert run.returncode == 0 and "Retrying" not in run.stderr
    lines = [line for line in run.stdout.splitlines() if line.startswith("these were not checked")]
    assert lines == [
        "these were not checked, because the hub cannot be reached: hub, albert/albert-base-v2; a backbone must be of "
        "family albert, bert, deberta-v2, distilbert, electra, modernbert, mpnet, roberta, sharebert or xlm-roberta"
    ]
    assert len(connections) == 1
