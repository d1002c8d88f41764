"""What a person sees while a study runs: pytest tests/study/launching/test_live_view.py"""

import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest
from helpers.journals import failure_of
from helpers.simulation import Simulation, report, scheduler_of
from msgspec.structs import replace

from study.drivers.messages import Steps
from study.facts.events import NodeLeftOut
from study.launching.forecast import remaining_seconds
from study.launching.live_view import LiveView
from study.launching.screen import blocked_exits
from study.plans import profiles
from study.plans.resolution import resolve
from study.terminal.output import show_waiting
from study.terminal.text import clock


@dataclass
class WorkersOf:
    """What a driver would say."""

    at_work: Collection[str] = ()
    awaited: str = ""
    steps: Mapping[str, Steps] = field(default_factory=dict)


def test_time_left_ignores_slots_of_left_out_nodes():
    plan = resolve(replace(profiles.load_profile("mini"), methods=("albert",), tasks=("rte",), samples=8))
    simulation = Simulation(plan)
    simulation.launch(kill_at=40)
    scheduler = scheduler_of(plan, simulation.journal)
    view = LiveView(scheduler, slots=lambda without: 4 - 3 * len(without), output=io.StringIO())
    left = remaining_seconds(scheduler.progress)
    assert left > 4 and f"about {clock(left / 4)} left" in view._time_line()
    failure = failure_of("node", node="a")
    where = {"node": failure.node, "host": failure.host, "error": failure.error}
    simulation.journal.facts.apply(NodeLeftOut(time="", trials=1, seconds=600, **where))
    assert f"about {clock(left)} left" in view._time_line()


def test_time_left_uses_no_more_slots_than_trials():
    plan = resolve(replace(profiles.load_profile("mini"), methods=("albert",), tasks=("rte",), samples=8))
    simulation = Simulation(plan)
    simulation.launch(kill_at=40)
    progress = (scheduler := scheduler_of(plan, simulation.journal)).progress
    view = LiveView(scheduler, slots=lambda without: 10_000, output=io.StringIO())
    assert f"about {clock(remaining_seconds(progress) / progress.trials_left)} left" in view._time_line()


def test_trials_that_are_equally_far_are_told_together():
    simulation = Simulation(
        resolve(replace(profiles.load_profile("mini"), methods=("albert",), tasks=("rte",), samples=8))
    )
    scheduler = scheduler_of(simulation.resolved, simulation.journal)
    scheduler.begin_launch(command="", host="", pid=0)
    view = LiveView(scheduler, slots=lambda without: 8, output=io.StringIO())
    view.update(WorkersOf(awaited="workers are starting"))
    assert view._describe_under_way() == "under way: workers are starting"
    first = scheduler.next_trial()
    view._at_work = {first.key}
    assert view._describe_under_way() == "under way: in its first epoch: albert/rte search 0"
    others = [scheduler.next_trial().key for _ in range(7)]
    scheduler.report(first.key, report(first, 1))
    view._at_work = {first.key, *others[:-1]}
    several = "in their first epoch: albert/rte search 1, albert/rte search 2, albert/rte search 3"
    waiting = "past epoch 1: albert/rte search 0; waiting for a slot: albert/rte search 7"
    assert view._describe_under_way() == f"under way: {several} and 3 more; {waiting}"


def test_an_exit_that_cannot_fire_is_reported_once_for_each_arm():
    simulation = Simulation(
        resolve(replace(profiles.load_profile("mini"), methods=("palbert",), tasks=("rte",), samples=2))
    )
    scheduler, output = scheduler_of(simulation.resolved, simulation.journal), io.StringIO()
    scheduler.begin_launch(command="", host="", pid=0)
    view = LiveView(scheduler, slots=lambda without: 2, output=output)
    for trial in (scheduler.next_trial(), scheduler.next_trial()):
        reported = report(trial, 1)
        scheduler.report(trial.key, replace(reported, row=replace(reported.row, metrics={"largest_cdf": 0.16})))
    view._print_notices()
    view._print_notices()
    assert output.getvalue().count("palbert/rte search 0, epoch 1: no example can exit early: ") == 1
    assert blocked_exits(scheduler.progress).keys() == {"palbert/rte"}


def test_the_time_left_moves_with_the_steps_of_the_first_epoch():
    simulation = Simulation(
        resolve(replace(profiles.load_profile("mini"), methods=("albert",), tasks=("rte",), samples=1))
    )
    scheduler = scheduler_of(simulation.resolved, simulation.journal)
    scheduler.begin_launch(command="", host="", pid=0)
    view = LiveView(scheduler, slots=lambda without: 1, output=io.StringIO())
    trial = scheduler.next_trial()
    epoch = [Steps(key=trial.key, done=done, of=100, seconds=2.0 * done) for done in (0, 25, 75)]
    assert remaining_seconds(scheduler.progress, {trial.key: epoch[0]}) is None
    left = [remaining_seconds(scheduler.progress, {trial.key: steps}) for steps in epoch[1:]]
    assert left[0] - left[1] == pytest.approx(100)  # half an epoch, of 200 s
    view.update(WorkersOf(at_work=[trial.key], steps={trial.key: epoch[1]}))
    assert view._describe_under_way() == "under way: in its first epoch: albert/rte search 0 (step 25/100)"
    assert f"about {clock(left[0])} left" in view._time_line()


def test_leftover_trials_wait_for_next_launch(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, to rich
    monkeypatch.setenv("TERM", "xterm")
    simulation = Simulation(
        resolve(replace(profiles.load_profile("mini"), methods=("albert",), tasks=("rte",), samples=2))
    )
    scheduler = scheduler_of(simulation.resolved, simulation.journal)
    scheduler.begin_launch(command="", host="", pid=0)
    output = io.StringIO()
    with LiveView(scheduler, slots=lambda without: 1, output=output) as view:
        view.update(WorkersOf(at_work=[scheduler.next_trial().key]))
        assert "running" in output.getvalue()
        shown = len(output.getvalue())
    assert "1 trial waits for the next launch" in output.getvalue()[shown:]


@pytest.mark.parametrize(("term", "is_live"), [("xterm", True), ("dumb", False)])
def test_dumb_terminal_gets_one_line_per_trial(term, is_live, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, to rich
    monkeypatch.setenv("TERM", term)
    plan = replace(profiles.load_profile("mini"), methods=("albert",), tasks=("rte",), samples=2, selection="dev")
    simulation = Simulation(resolve(plan))
    scheduler = scheduler_of(simulation.resolved, simulation.journal)
    output = io.StringIO()
    view = LiveView(scheduler, slots=lambda without: 1, output=output)
    scheduler.begin_launch(command="", host="", pid=0)
    with view:
        trial = scheduler.next_trial()
        scheduler.report(trial.key, report(trial, 1))
        scheduler.end(trial.key)
        view.update(WorkersOf())
    assert ("] albert/rte search 0: " in output.getvalue()) != is_live
    assert ("arm  " in output.getvalue()) == is_live


def test_what_is_waited_for_does_not_move_where_the_cursor_cannot(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    output = io.StringIO()
    with show_waiting("Ray to start", output=output):
        pass
    assert output.getvalue() == ""
