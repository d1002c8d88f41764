"""The live view fits whatever terminal there is: pytest tests/study/launching/test_live_layout.py"""

import io
from collections.abc import Collection, Mapping
from functools import cache

import pytest
from helpers.simulation import Simulation, scheduler_of
from msgspec.structs import replace
from rich.console import Console
from rich.progress_bar import ProgressBar

from study.decisions.progress import StudyProgress
from study.drivers.messages import Steps
from study.launching.live_view import live_layout
from study.launching.screen import arms_table, name_trial
from study.plans import profiles
from study.plans.resolution import resolve
from study.terminal.output import show_waiting

METHODS = ("palbert", "palbert:expectation", "pabee", "electra-small")
TASKS = ("sst2", "cola", "rte", "mrpc")
TIME = "elapsed 1:02, about 12:10 left"


@cache
def progress_of(*, events: int, slots: int = 3, methods=METHODS) -> StudyProgress:
    """The progress of a study that was cut off after so many events; tests read it only."""
    plan = replace(profiles.load_profile("mini"), methods=methods, tasks=TASKS, samples=3, seeds=2)
    simulation = Simulation(resolve(plan), slots=slots)
    simulation.launch(kill_at=events)
    return scheduler_of(simulation.resolved, simulation.journal).progress


def lines_of(
    progress: StudyProgress,
    *,
    width: int,
    height: int,
    draining: bool = False,
    at_work: Collection[str] | None = None,
    awaited: str = "",
    steps: Mapping[str, Steps] | None = None,
) -> list[str]:
    """Of the view; all trials under way are running where nothing else is said."""
    at_work = progress.facts.under_way if at_work is None else at_work
    how = {"awaited": awaited, "waits_for": "a slot", "steps": steps or {}, "time_line": TIME, "draining": draining}
    output = io.StringIO()
    console = Console(file=output, width=width, height=height, highlight=False)
    console.print(live_layout(progress, at_work=at_work, **how, width=width, height=height))
    return output.getvalue().splitlines()


def test_the_step_of_an_epoch_stands_behind_the_epochs():
    progress = progress_of(events=30)
    key, trial = next(iter(progress.facts.under_way.items()))
    steps = {key: Steps(key=key, done=120, of=312, seconds=60.0)}
    lines = lines_of(progress, width=100, height=30, steps=steps)
    assert any(f"{trial.epochs}/" in line and ", step 120/312" in line for line in lines), lines


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 3, 40])
@pytest.mark.parametrize("events", [1, 30, 400])
@pytest.mark.parametrize(("width", "height"), [(70, 20), (200, 60), (80, 24), (60, 8), (70, 5)])
@pytest.mark.parametrize("awaited", ["", "workers are starting"])
@pytest.mark.parametrize("waiting", [0, 3])
def test_bar_and_time_left_always_fit(width, height, events, slots, waiting, awaited):
    progress = progress_of(events=events, slots=slots)
    at_work = list(progress.facts.under_way)[waiting:]
    lines = lines_of(progress, width=width, height=height, at_work=at_work, awaited=awaited)
    assert len(lines) <= height and max(map(len, lines)) <= width
    assert f"/{progress.total_trials} trials  {TIME}" in lines[0]


@pytest.mark.parametrize("events", [30, 120])
@pytest.mark.parametrize("width", [60, 70, 200])
def test_no_name_is_cut(width, events):
    progress = progress_of(events=events)
    names = {f"{arm.name}" for arm in progress.arms}
    lines = lines_of(progress, width=width, height=60)
    assert names <= {line.split()[0] for line in lines if line.strip()}


def test_running_trials_stand_above_arms():
    progress = progress_of(events=120)
    lines = lines_of(progress, width=100, height=40)
    header = next(number for number, line in enumerate(lines) if line.startswith("running"))
    arms = next(number for number, line in enumerate(lines) if line.startswith("arm "))
    running = progress.facts.under_way.values()
    assert arms - header - 1 == len(running) > 1
    trial = next(trial for trial in running if trial.last)
    (line,) = [line for line in lines[header:arms] if line.startswith(f"{trial.started.arm} {trial.phase} ")]
    epochs = progress.arm(trial.started.arm).planned.epochs
    assert f"{trial.epochs}/{epochs}" in line and f"{100 * trial.last.row.selection_score:.1f}" in line


def test_overflowing_arms_are_counted_running_ones_shown():
    progress = progress_of(events=120)
    lines = lines_of(progress, width=70, height=14)
    shown = {line.split()[0] for line in lines[6:-1]}
    running = {trial.started.arm for trial in progress.facts.under_way.values()}
    assert running <= shown
    assert (
        lines[-1]
        == f"and {len(progress.arms) - len(shown & {a.name for a in progress.arms})} more arms: "
        + (lines[-1].partition(": ")[2])
    )
    assert "complete" in lines[-1]


def test_waiting_trials_are_counted_apart():
    progress = progress_of(events=120)
    first, *waiting = progress.facts.under_way
    steps = {first: Steps(key=first, done=1, of=2, seconds=75.0 - progress.facts.trials[first].last.wall_seconds)}
    lines = lines_of(progress, width=100, height=40, at_work=[first], steps=steps)
    header = lines.index(next(line for line in lines if line.startswith("running")))
    assert lines[header + 1].startswith(name_trial(progress.facts.trials[first].started)) and lines[
        header + 1
    ].endswith("1:15")
    assert len(waiting) == 2 and lines[header + 2] == "2 trials wait for a slot"
    none_runs = lines_of(progress, width=100, height=40, at_work=[])
    assert none_runs[1] == "3 trials wait for a slot" and "running" not in " ".join(none_runs)


def test_state_before_first_trial_is_below_bar():
    lines = lines_of(progress_of(events=1), width=70, height=20, awaited="workers are starting")
    assert lines[1] == "workers are starting"


def test_trials_that_do_not_fit_are_counted():
    progress = progress_of(events=300, slots=40)
    number = len(progress.facts.under_way)
    assert number > 20
    lines = lines_of(progress, width=90, height=20)
    (more,) = [line for line in lines if line.endswith(" more trials")]
    shown = lines.index(more) - 2
    assert more == f"and {number - shown} more trials"


def test_trials_that_failed_are_neither_confirmed_nor_the_best():
    progress = progress_of(events=10_000, methods=("albert",))
    arm = progress.arms[0]
    assert len(arm.confirmed) == len(arm.confirm_trials) == 2
    *_, second, best = sorted(arm.facts.search, key=lambda trial: trial.best.row.selection_score)
    for trial in (arm.confirm_trials[0], best):
        trial.record = replace(trial.record, status="failed")
    cells = {column.header: next(iter(column.cells)) for column in arms_table([arm], width=200).columns}
    assert (cells["confirm"], cells["failed"]) == ("1/2", "2")
    assert cells["best search"] == f"{100 * second.best.row.selection_score:.1f}" != cells["median"]


def test_stopping_is_said():
    assert "saving and stopping, " in lines_of(progress_of(events=30), width=100, height=20, draining=True)[0]


def bar_of(progress: StudyProgress, steps: Mapping[str, Steps] | None = None) -> ProgressBar:
    how = {"at_work": (), "awaited": "", "waits_for": "a slot", "time_line": TIME, "draining": False}
    line = live_layout(progress, **how, steps=steps or {}, width=100, height=30).renderables[0]
    (bar,) = line.columns[0].cells
    return bar


def test_bar_moves_with_epochs_and_steps():
    progress = progress_of(events=30)
    trials = progress.under_way
    epochs = [trial.epochs / trial.config["epochs"] for trial in trials.values()]
    assert sum(epochs) > 0
    assert bar_of(progress).completed == pytest.approx(progress.ended_trials + sum(epochs))
    key, trial = next(iter(trials.items()))
    steps = {key: Steps(key=key, done=1, of=4, seconds=1.0)}
    moved = bar_of(progress, steps).completed - bar_of(progress).completed
    assert moved == pytest.approx(0.25 / trial.config["epochs"])


def test_arm_without_search_has_no_count_of_search_trials():
    plan = replace(profiles.load_profile("mini"), methods=("albert",), tasks=("rte",), samples=0, seeds=2)
    fixed = scheduler_of(resolve(plan), Simulation(resolve(plan)).journal).progress.arms
    searched = progress_of(events=30, methods=("albert",)).arms
    alone = [column.header for column in arms_table(fixed, width=200).columns]
    assert alone == ["arm", "failed", "under way", "confirm", "median"]
    mixed = arms_table([*fixed, *searched], width=200)
    counts = next([*column.cells] for column in mixed.columns if column.header == "search")
    assert counts[0] == "" and counts[1].endswith("/3")


def test_what_is_waited_for_is_said_where_there_is_a_terminal(monkeypatch):
    plain, output = io.StringIO(), io.StringIO()
    with show_waiting("Ray to start", output=plain) as no_more:
        no_more()
    assert plain.getvalue() == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, to rich
    with show_waiting("Ray to start", output=output) as no_more:
        no_more()
    assert "waiting for Ray to start" in output.getvalue()
