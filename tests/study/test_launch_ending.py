"""What a launch shows once its trials are over: pytest tests/study/test_launch_ending.py"""

import subprocess
import sys

import pytest

from study.cluster import ray_cluster
from study.rebuild import analyse


@pytest.fixture
def report_that_fails(monkeypatch):
    command = [sys.executable, "-c", "import sys; print('no picture', file=sys.stderr); sys.exit(1)"]
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda _, **how: run(command, **how))


def test_a_terminal_is_shown_that_the_report_is_being_made(report_that_fails, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, to rich
    monkeypatch.setenv("TERM", "xterm")
    analyse(tmp_path)
    assert "waiting for tables and report" in capsys.readouterr().err


def test_what_a_report_that_fails_says_is_told(report_that_fails, tmp_path, capsys):
    assert not analyse(tmp_path)
    assert capsys.readouterr().err == "no picture\n"


def test_a_terminal_is_shown_that_ray_stops(monkeypatch, capsys):
    """Ray is not started."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    shown = []
    monkeypatch.setattr(ray_cluster, "_start", lambda: None)
    monkeypatch.setattr("ray.shutdown", lambda: shown.append(capsys.readouterr().err))
    with ray_cluster.ray_cluster(None):
        assert capsys.readouterr().err == ""
    assert "waiting for Ray to stop" in shown[0]
