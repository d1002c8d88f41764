"""A limit on GPU time holds and serves every cell: pytest tests/study/decisions/test_budget.py"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest
from helpers.journals import MadeJournal, failure_of, report_of, reported, row_of
from helpers.simulation import Simulation, report, scheduler_of, unit
from msgspec.structs import replace

from study.decisions.progress import StudyProgress
from study.decisions.scheduler import Scheduler
from study.facts.events import ConfirmClosed, SearchClosed, TrialRestarted, TrialRetried, TrialStarted
from study.facts.study_facts import TrialFacts
from study.plans import profiles
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan
from trainables.data.tasks import TASKS

pytestmark = pytest.mark.slow

SLOTS = (1, 8, pytest.param(200, marks=pytest.mark.long))
SAMPLES, SEEDS = 12, 3
PASSED = 1.01  # a tenth of the dearest trial here
DEPENDENT = {"rte": "sst2"}


def plan_of(start_from: Mapping[str, str] = {}) -> ResolvedPlan:
    """Six arms, of whose trials the longest costs eighty times as much as the shortest."""
    small = {"methods": ("albert", "palbert"), "tasks": ("rte", "mrpc", "sst2"), "samples": SAMPLES, "seeds": SEEDS}
    plan = resolve(
        replace(profiles.load_profile("mini"), **small, epochs=9, sampler="random", start_from=dict(start_from))
    )
    return replace(plan, request=replace(plan.request, data="hub"))  # the real tasks' sizes


def cost(trial: TrialFacts) -> float:
    """Seconds of an epoch: by its examples, three times as many for one method, and by its configuration."""
    examples, is_long = TASKS[trial.arm.task].sizes["train"], trial.arm.method == "palbert"
    return examples / 100 * (3 if is_long else 1) * (0.9 + 0.2 * unit(sorted(trial.config.items())))


def simulated(max_gpu_hours: float | None, *, slots: int = 8, start_from: Mapping[str, str] = {}) -> Simulation:
    costs = {"epoch_seconds": cost, "epoch_gpu_seconds": cost}
    simulation = Simulation(plan_of(start_from), slots=slots, max_gpu_hours=max_gpu_hours, **costs)
    simulation.launch()
    return simulation


def used(simulation: Simulation) -> float:
    """GPU hours."""
    return sum(record.gpu_seconds for record in simulation.journal.records) / 3600


def cells(simulation: Simulation) -> dict[str, tuple[int, int]]:
    """Search and confirm trials of every arm."""
    return {arm.name: _numbers(simulation, arm.name) for arm in simulation.resolved.arms}


def _numbers(simulation: Simulation, name: str) -> tuple[int, int]:
    facts = simulation.journal.facts.arms[name]
    return len(facts.search), len(facts.confirm)


@cache
def unlimited() -> float:
    return used(simulated(None))


@cache
def least() -> float:
    """GPU hours of one full search trial and the confirm trials of every arm."""
    return sum(
        (1 + SEEDS) * record.gpu_seconds / 3600
        for record in simulated(None, slots=1).journal.records
        if (record.phase, record.trial) == ("search", 0)
    )


@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("part", [0.974, 0.7])
def test_a_limit_is_used_and_no_arm_starves(part, slots):
    limit = part * unlimited()
    assert limit > 1.1 * least()
    simulation = simulated(limit, slots=slots)
    assert 0.85 * limit < used(simulation) <= PASSED * limit
    assert all(search >= 1 and confirm == SEEDS for search, confirm in cells(simulation).values())


@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("part", [0.14, 0.02])
def test_gpu_limit_serves_cheap_cells_first(part, slots):
    limit = part * unlimited()
    simulation = simulated(limit, slots=slots)
    assert 0.3 * limit < used(simulation) <= PASSED * limit
    search, confirm = cells(simulation)["albert/rte"]
    assert search >= 1 and confirm == SEEDS


@pytest.mark.parametrize("slots", SLOTS)
def test_an_arm_that_waits_for_its_start_gets_its_part(slots):
    simulation = simulated(0.9 * unlimited(), slots=slots, start_from=DEPENDENT)
    assert used(simulation) <= PASSED * 0.9 * unlimited()
    assert all(search >= 1 and confirm == SEEDS for search, confirm in cells(simulation).values())


def test_one_trial_runs_until_costs_are_known():
    simulation = simulated(0.9 * unlimited(), slots=8)
    kinds = [event.__struct_config__.tag for event in simulation.journal.events]
    assert kinds[:4] == ["launch_began", "trial_started", "epoch_reported", "asha_decided"]
    (first, *_) = simulation.journal.of(TrialStarted)
    assert first.arm == "albert/rte"  # the shortest


def test_a_limit_of_nothing_runs_nothing():
    simulation = simulated(0.0)
    assert simulation.journal.records == [] and len(simulation.journal.of(SearchClosed)) == 1


def test_unpaid_cells_are_missing_until_limit_rises():
    simulation = simulated(0.14 * unlimited())
    before = dict(simulation.journal.facts.trials)
    closed = StudyProgress(simulation.resolved, simulation.journal.facts, max_gpu_hours=simulation.max_gpu_hours).closed
    assert {*closed.values()} == {simulation.max_gpu_hours}
    assert closed.keys() == {name for name, numbers in cells(simulation).items() if numbers != (SAMPLES, SEEDS)}
    simulation.max_gpu_hours = None
    scheduler = simulation.launch()
    assert scheduler.progress.closed == {}
    assert before.keys() < simulation.journal.facts.trials.keys()
    assert scheduler.progress.missing == {}
    assert all(numbers[0] == SAMPLES for numbers in cells(simulation).values())


def test_confirm_trials_that_nothing_is_left_for_are_not_started():
    """Confirm trials that cost ten times what the search has led to expect."""
    simulation = Simulation(plan_of(), slots=8, max_gpu_hours=0.7 * unlimited(), epoch_seconds=cost)
    simulation.epoch_gpu_seconds = lambda trial: cost(trial) * (10 if trial.phase == "confirm" else 1)
    scheduler = simulation.launch()
    closed = {name for event in simulation.journal.of(ConfirmClosed) for name in event.arms}
    assert closed and closed == scheduler.progress.missing.keys()
    assert all("confirm" in reason for reason in scheduler.progress.missing.values())
    assert scheduler.progress.is_finished


@pytest.mark.parametrize("gap", [7, 40])
def test_a_limit_holds_through_kills(gap):
    limit = 0.7 * unlimited()
    costs = {"epoch_seconds": cost, "epoch_gpu_seconds": cost}
    simulation = Simulation(plan_of(), slots=8, max_gpu_hours=limit, **costs)
    for _ in range(4):
        simulation.launch(kill_at=len(simulation.journal.events) + gap)
    simulation.launch()
    assert used(simulation) <= PASSED * limit
    assert all(search >= 1 and confirm == SEEDS for search, confirm in cells(simulation).values())


def test_seconds_of_a_restarted_trial_count_once():
    """The clock of a trial goes on when it begins again."""
    journal = MadeJournal()
    journal.begin()
    journal.start("k", arm="albert/rte")

    def train(epoch: int, seconds: float) -> None:
        report = report_of(row_of(epoch, 0.5), wall_seconds=seconds, gpu_seconds=seconds / 2)
        journal.append(reported(time=journal.now(), key="k", report=report))

    train(1, 3600)
    journal.append(TrialRestarted(time=journal.now(), key="k", reason="its method changed"))
    assert journal.facts.trials["k"].seconds == (3600, 1800)
    train(1, 4800)
    train(2, 6000)
    arm = journal.facts.arms["albert/rte"]
    assert (arm.wall_seconds, arm.gpu_seconds) == (6000, 3000)


def test_limit_holds_for_failed_trials_that_run_again():
    small = {"methods": ("albert",), "tasks": ("rte",), "samples": 8, "seeds": 2, "sampler": "random", "epochs": 4}
    plan = resolve(replace(profiles.load_profile("mini"), early_stopping=None, **small))
    journal, limit, failures = MadeJournal(), 44, 7

    def run(retry_failed: bool) -> Scheduler:
        scheduler = scheduler_of(plan, journal, max_gpu_hours=limit / 3600)
        scheduler.begin_launch(command="", host="", pid=0)
        scheduler.reopen_failed(retry_failed=retry_failed)
        while trial := scheduler.next_trial():
            is_failing = not retry_failed and trial.phase == "search" and trial.started.trial < failures
            for epoch in range(1, 4 + (not is_failing)):
                scheduler.report(trial.key, report(trial, epoch))
            failed = {"failure": failure_of("method"), "seconds": (3, 3)} if is_failing else {}
            scheduler.end(trial.key, **failed)
        return scheduler

    assert len(run(retry_failed=False).progress.failures) == failures
    scheduler = run(retry_failed=True)
    used = sum(arm.gpu_seconds + arm.lost_gpu_seconds for arm in scheduler.facts.arms.values())
    assert limit - 4 < used <= limit and 0 < len(scheduler.progress.failures) < failures


def test_limit_holds_if_trials_fail_in_their_first_epoch():
    scheduler = scheduler_of(plan_of(), MadeJournal(), max_gpu_hours=0.9)
    scheduler.begin_launch(command="", host="", pid=0)
    while trial := scheduler.next_trial():
        scheduler.end(trial.key, failure=failure_of("method"), seconds=(1800.0, 900.0))
    assert [record.gpu_seconds for record in scheduler.facts.records] == [900] * 4
    assert scheduler.progress.is_finished


def test_seconds_of_a_failed_attempt_count_once():
    """The next attempt continues the clock of the failed one."""
    journal = MadeJournal()
    journal.begin()
    journal.start("k")

    def train(epoch: int, seconds: float) -> None:
        report = report_of(row_of(epoch, 0.5), wall_seconds=seconds, gpu_seconds=seconds / 2)
        journal.append(reported(time=journal.now(), key="k", report=report))

    train(1, 100)
    spent = {"wall_seconds": 180, "gpu_seconds": 90}
    journal.append(TrialRetried(time=journal.now(), key="k", failure=failure_of("machine"), **spent))
    arm, trial = journal.facts.arms["palbert/rte"], journal.facts.trials["k"]
    assert (trial.seconds, arm.gpu_seconds, arm.lost_gpu_seconds) == ((180, 90), 50, 40)
    train(2, 300)
    assert (trial.seconds, arm.gpu_seconds, arm.lost_gpu_seconds) == ((300, 150), 110, 40)
    journal.finish("k")
    (record,) = journal.records
    assert (record.wall_seconds, record.gpu_seconds, arm.dearest) == (300, 150, 110)
