"""The command that a launch runs at its end (--then): pytest tests/study/test_then.py"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.launched_studies import launch as launch_fully
from helpers.launched_studies import mini_plan
from helpers.launches import WITHOUT_RAY
from helpers.launches_here import launching_here
from helpers.messages import says
from helpers.places import PATIENCE_SECONDS, ROOT

from study import launch

WRITE = "import os, sys; open(sys.argv[1], 'a').write(' '.join(os.environ[n] for n in sys.argv[2:]) + chr(10))"
NAMES = ("STUDY_FOLDER", "STUDY_STATUS", "STUDY_FAILED_TRIALS")


def command(out: Path, *more: str) -> list[str]:
    small = ["--method", "albert", "--task", "rte", "--samples", "0", "--seeds", "1", "--epochs", "1"]
    where = ["--profile", "mini", *small, "--tracking-uri", "none", *WITHOUT_RAY, "--out", str(out), "--name", "a b;c"]
    return [*where, *more]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "status", "code"),
    [((), "complete", 0), pytest.param(("--max-minutes", "0.001"), "drained", 1, marks=pytest.mark.long)],
)
def test_command_gets_folder_and_status_once(tmp_path, more, status, code):
    then = f'{sys.executable} -c "{WRITE}" "{tmp_path}/a $(touch x) told" {" ".join(NAMES)}'
    asked = command(tmp_path, *more, "--then", then)
    if status == "complete":  # the one short test of a whole launch and its worker as processes of their own
        run = [sys.executable, "-m", "study.launch", *asked]
        done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        assert done.returncode == code, done.stderr
    else:
        with launching_here():
            assert launch.main(asked) == code
    (told,) = (tmp_path / "a $(touch x) told").read_text().splitlines()  # no shell has read the command
    assert told == f"{tmp_path / 'a b;c'} {status} 0"


@pytest.mark.long
def test_command_runs_after_a_finished_study_and_its_failure_is_told(tmp_path, capfd):
    folder = tmp_path / "s"
    launch_fully(folder, mini_plan(methods=("albert",), tasks=("rte",)))
    asked = ["--continue", str(folder), "--tracking-uri", "none", "--driver", "local"]
    assert launch.main([*asked, "--then", "sh -c 'echo ended: $STUDY_STATUS; exit 3' SECRET"]) == 0
    printed = capfd.readouterr()
    assert "ended: complete" in printed.out and "--then sh ended with status 3\n" in printed.err
    assert "SECRET" not in printed.out + printed.err


def test_refused_launch_runs_no_command(tmp_path, capsys):
    told = tmp_path / "told"
    asked = ["--profile", "mini", "--task", "rte", "--out", str(tmp_path / "runs")]
    assert launch.main([*asked, "--then", f"touch {told}", "--epochs", "0"]) == 2
    assert launch.main([*asked, "--then", f"touch {told}", "--dry-run"]) == 0
    assert f"when the launch has ended, it runs touch {told}" in capsys.readouterr().out and not told.exists()


@pytest.mark.parametrize(
    ("then", "parts"),
    [
        ("nosuchprogram SECRET", ["--then", "there is no program 'nosuchprogram'", "sh -c '...'"]),
        ("sh -c 'open SECRET", ["--then", "is not a command: No closing quotation"]),
    ],
)
def test_command_that_cannot_run_is_refused_at_the_start(then, parts, tmp_path, capsys):
    asked = ["--profile", "mini", "--task", "rte", "--out", str(tmp_path)]
    assert launch.main([*asked, "--then", then, "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert says(error, *parts) and "SECRET" not in error and error.count("\n") == 1, error
