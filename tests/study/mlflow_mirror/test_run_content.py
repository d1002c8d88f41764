"""The runs that a store has of a study: pytest tests/study/mlflow_mirror/test_run_content.py"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from helpers.journals import MadeJournal, failure_of, row_of
from helpers.mlflow_stores import planned
from msgspec.structs import replace

from study.facts import lock
from study.facts.events import EpochReported, TrialEnded
from study.facts.plan_file import require_plan
from study.mirror import Mirror
from study.mlflow_mirror.run_content import StudyRuns
from trainables.configuration.ranges import Interval
from trainables.runs.trial import Losses

pytestmark = pytest.mark.slow


def runs_of(journal: MadeJournal) -> StudyRuns:
    mirrored = Mirror(journal.folder, uri="")
    mirrored.read()
    return StudyRuns("mine", require_plan(journal.folder).plan, mirrored.facts, mirrored.reports)


def test_runs_have_readable_names(journal: MadeJournal) -> None:
    runs = runs_of(journal)
    assert runs.study(files={}, note="").name == "mine"
    assert runs.arm("palbert/rte").name == "palbert / rte"
    assert runs.trial("b" * 16).name == "palbert / rte · search 1"


def test_failed_run_shows_its_traceback(journal: MadeJournal) -> None:
    failure = replace(failure_of("method", error=9999 * "x"), traceback="Traceback\n" + 300 * "  in build\n")
    journal.start("e" * 16, trial=3)
    journal.append(TrialEnded(time=journal.now(), key="e" * 16, status="failed", failure=failure))
    note = runs_of(journal).trial("e" * 16).tags["mlflow.note.content"]
    assert "\n\nxxx" in note and "\n  in build\n~~~\n\n" in note
    assert "\n\n~~~text\nTraceback\n" in note and len(note) < 8000  # of a tag, in MLflow 3


def test_description_says_what_a_trial_is_and_gave(journal: MadeJournal) -> None:
    notes = {letter: runs_of(journal).trial(letter * 16).tags["mlflow.note.content"] for letter in "bdf"}
    assert notes["b"].startswith("**palbert/rte**, search trial 1, seed ")
    assert ": stopped; score 40.0 at epoch 1 of 1, " in notes["b"]
    assert ": completed; score 80.0 at epoch 2 of 2, " in notes["d"]
    assert ": failed.\n\nloss is nan at step 3, learning rate 1.0\n\n" in notes["f"]
    assert all(note.endswith(" of study mine.") for note in notes.values())


def test_trial_cut_off_with_its_launch_is_interrupted(journal: MadeJournal) -> None:
    journal.start("e" * 16, trial=3)
    assert runs_of(journal).trial("e" * 16).status == "running"
    journal.end(status="interrupted")
    assert runs_of(journal).trial("e" * 16).status == "interrupted"
    journal.begin(launch=2)
    assert runs_of(journal).trial("e" * 16).status == "interrupted"
    journal.epoch("e" * 16, 1, 0.5)
    assert runs_of(journal).trial("e" * 16).status == "running"


def test_arm_without_a_completed_search_has_failed(tmp_path: Path) -> None:
    journal = planned(tmp_path / "mine")
    journal.begin()
    journal.start("a" * 16)
    journal.finish("a" * 16, error="loss is nan")
    journal.end()
    runs = runs_of(journal)
    assert (runs.arm("palbert/rte").status, runs.study(files={}, note="").status) == ("failed", "failed")


def test_unfinished_study_is_interrupted(tmp_path: Path) -> None:
    journal = planned(tmp_path / "mine", methods=("palbert", "pabee"))
    journal.begin()
    journal.whole_trial("a" * 16, [0.5])
    journal.end()  # as after a launch of some of the arms
    runs = runs_of(journal)
    assert (runs.arm("palbert/rte").status, runs.study(files={}, note="").status) == ("waiting", "interrupted")


def test_launch_without_its_process_is_over(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    journal = planned(tmp_path / "mine")
    journal.begin(pid=gone.pid)
    journal.start("e" * 16)
    assert runs_of(journal).trial("e" * 16).status == "interrupted"


def test_launch_whose_process_is_dead_but_not_reaped_is_over(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    while psutil.Process(dead.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    journal = planned(tmp_path / "mine")
    journal.begin(pid=dead.pid)
    journal.start("e" * 16)
    assert runs_of(journal).trial("e" * 16).status == "interrupted"
    assert lock._read_start_time(dead.pid) == ""  # so no lease is held by it
    dead.wait()


def test_epoch_reported_twice_counts_once(journal: MadeJournal) -> None:
    before = runs_of(journal).trial("a" * 16).points
    journal.epoch("a" * 16, 2, 0.7)
    assert runs_of(journal).trial("a" * 16).points == before


def test_parts_of_the_loss_are_curves_over_training_steps(journal: MadeJournal) -> None:
    from mlflow.utils.validation import _validate_metric_name

    means = {"loss": (0.8, 0.6), "k/l (β)": (0.2, None)}
    row = replace(row_of(2, 0.5), losses=Losses(steps=(50, 100), means=means))
    event = EpochReported(time=journal.now(), key="a" * 16, row=row, wall_seconds=1.0)
    runs = runs_of(journal)
    runs.reports["a" * 16][:] = [event]
    points = {(p.name, p.step): p.value for p in runs.trial("a" * 16).points if p.name.startswith("loss/")}
    assert points == {("loss/loss", 150): 0.8, ("loss/loss", 200): 0.6, ("loss/k_l _β_", 150): 0.2}
    for name, _ in points:
        _validate_metric_name(name)


def test_loss_without_parts_is_no_second_curve(journal: MadeJournal) -> None:
    row = replace(row_of(1, 0.5), losses=Losses(steps=(10,), means={"loss": (0.8,)}))
    event = EpochReported(time=journal.now(), key="a" * 16, row=row, wall_seconds=1.0)
    runs = runs_of(journal)
    runs.reports["a" * 16][:] = [event]
    assert not any(point.name.startswith("loss/") for point in runs.trial("a" * 16).points)


def test_complete_arm_shows_its_median_and_spread(journal: MadeJournal) -> None:
    points = {point.name: point.value for point in runs_of(journal).arm("palbert/rte").points}
    spread = {"mean_score": 0.7, "lowest_score": 0.6, "highest_score": 0.8, "score_deviation": 0.02**0.5}
    assert points == pytest.approx({"score": 0.7, **spread, "mean_layers": 9.5})


def test_searched_parameters_come_before_fixed_ones(journal: MadeJournal) -> None:
    runs = runs_of(journal)
    arm = runs.progress.arm("palbert/rte")
    arm.planned = replace(arm.planned, space={"batch_size": Interval(low=1, high=64)})
    first, *others, last = runs.trial("a" * 16).params
    assert (first, set(others), last) == ("batch_size", {"learning_rate", "epochs"}, "seed")
