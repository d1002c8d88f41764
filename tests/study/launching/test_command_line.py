"""The command that a launch records and prints: pytest tests/study/launching/test_command_line.py"""

import sys

import pytest

from study.launching.planned_study import command_line


@pytest.mark.parametrize("words", [["-m", "--task", "rte"], ["/usr/bin/glue-study", "launch", "--task", "rte"]])
def test_recorded_command_runs_as_module(monkeypatch, words):
    monkeypatch.setattr(sys, "argv", words)
    assert command_line() == "python -m study.launch --task rte"
