"""Launches whose terminal, readers or standard streams go away: pytest tests/study/terminal/test_lost_terminal.py"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers.launches import ONE_AT_A_TIME, WITHOUT_RAY
from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.trials import check_as_alone

from study import status
from study.facts.events import LaunchEnded, read_events

pytestmark = pytest.mark.slow
STUDY = ["--method", "albert", "--task", "rte", "--profile", "mini", "--samples", "1", "--seeds", "1", "--epochs", "2"]
DRIVERS = pytest.mark.parametrize(
    "driver",
    [WITHOUT_RAY, pytest.param(("--driver", "ray", *ONE_AT_A_TIME), marks=pytest.mark.long)],
    ids=["local", "ray"],
)


def command(folder: Path, driver: Sequence[str]) -> list[str]:
    where = ["--out", str(folder.parent), "--name", folder.name, "--tracking-uri", "none"]
    return [sys.executable, "-m", "study.launch", *STUDY, *driver, *where]


def ended(folder: Path) -> LaunchEnded:
    (event,) = (event for event in read_events(folder) if isinstance(event, LaunchEnded))
    return event


@DRIVERS
@pytest.mark.long
@pytest.mark.parametrize("lost", ["stdout", "stderr"])
def test_launch_goes_on_without_its_reader(tmp_path, capsys, driver, lost):
    """As in `study.launch ... | head -1`."""
    folder = tmp_path / "study"
    outputs = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, lost: subprocess.PIPE}
    with subprocess.Popen(command(folder, driver), cwd=ROOT, **outputs) as launcher:
        getattr(launcher, lost).close()
        assert launcher.wait(timeout=PATIENCE_SECONDS) == 0
    assert ended(folder).status == "complete"
    if lost == "stderr":  # nothing is printed on standard output before the end
        assert ended(folder).note == "the launch ran without stderr (Broken pipe)"
        assert status.main([str(folder)]) == 0
        assert (
            "no launch is running; the last launch ended with status complete: the launch ran without stderr"
            in capsys.readouterr().out
        )


@pytest.mark.long
@DRIVERS
def test_launch_goes_on_without_its_terminal(tmp_path, driver):
    """The terminal is closed in the first trial: SIGHUP to all of its processes, and no output is possible any more."""
    folder = tmp_path / "study"
    launcher, terminal = pty.fork()
    if launcher == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, command(folder, driver))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (folder / "events.jsonl").exists() or b"trial_started" not in (folder / "events.jsonl").read_bytes():
        assert time.monotonic() < deadline
        os.read(terminal, 10_000)
    os.close(terminal)
    _, how = os.waitpid(launcher, 0)
    assert os.waitstatus_to_exitcode(how) == 0
    assert ended(folder).status == "complete"
    assert "stderr (Input/output error)" in ended(folder).note
    check_as_alone(folder, tmp_path / "cache")


@pytest.mark.long
@DRIVERS
def test_launch_runs_with_closed_standard_streams(tmp_path, driver):
    folder = tmp_path / "study"
    shell = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command(folder, driver)]
    assert subprocess.run(shell, cwd=ROOT, timeout=PATIENCE_SECONDS).returncode == 0
    assert ended(folder).status == "complete"


def test_launch_that_a_bug_ends_says_so_in_the_journal(tmp_path):
    """A fault of ours too: whatever ends a launch but a kill is in its last event."""
    folder = tmp_path / "study"
    broken = "from study import launch; launch.Launch.drive = lambda self: [][1]; raise SystemExit(launch.main())"
    done = subprocess.run(
        [sys.executable, "-c", broken, *command(folder, WITHOUT_RAY)[3:]], cwd=ROOT, capture_output=True, text=True
    )
    assert "IndexError" in done.stderr
    assert (ended(folder).status, ended(folder).note) == ("interrupted", "list index out of range")
