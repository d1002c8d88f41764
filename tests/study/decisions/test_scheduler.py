"""What runs next and what stops, without Ray: pytest tests/study/decisions/test_scheduler.py"""

from __future__ import annotations

from collections import Counter
from functools import cache
from statistics import median

import pytest
from helpers.journals import MadeJournal, failure_of, report_of, row_of
from helpers.simulation import Simulation, report, scheduler_of
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from study.decisions import asha
from study.decisions.scheduler import Scheduler, find_change
from study.facts.events import AshaDecided, EpochReported, LaunchBegan, SearchClosed, TrialStarted
from study.facts.provenance import Provenance
from study.facts.record import Record
from study.plans import profiles
from study.plans.plan import EarlyStopping
from study.plans.resolution import resolve
from study.plans.resolved_plan import Arm, ResolvedPlan

TWELVE_RATES = [n / 1000 for n in range(1, 13)]


def resolved(**changes) -> ResolvedPlan:
    """Two methods on two tasks, five samples and three seeds; a grid has twelve points."""
    small = {"methods": ("albert", "palbert"), "tasks": ("rte", "cola"), "samples": 5, "seeds": 3}
    plan = resolve(replace(profiles.load_profile("mini"), **(small | {"sampler": "random", "epochs": 9} | changes)))
    return with_grid(plan, learning_rate=TWELVE_RATES) if plan.request.sampler == "grid" else plan


def with_grid(plan: ResolvedPlan, **choices: list) -> ResolvedPlan:
    """The plan with arms that tune these fields alone, the first combinations of choices tried in order."""
    arms = tuple(_with_grid(arm, choices, samples=plan.request.samples) for arm in plan.arms)
    return replace(plan, arms=arms)


def _with_grid(arm: Arm, choices: dict[str, list], *, samples: int) -> Arm:
    fixed = {**arm.any_configuration, **{name: values[0] for name, values in choices.items()}}
    points = [{}]
    for name, values in choices.items():
        points = [{**point, name: value} for point in points for value in values]
    space = {name: tuple(values) for name, values in choices.items()}
    fixed = {name: value for name, value in fixed.items() if name not in choices}
    return replace(arm, space=space, fixed=fixed, first=tuple(points[:samples]), samples=min(samples, len(points)))


def ended(simulation: Simulation) -> list[Record]:
    return simulation.journal.records


def comparable(record: Record) -> Record:
    return replace(record, started="", ended="")


def fresh(plan: ResolvedPlan):
    """The scheduler of a study without any event."""
    return scheduler_of(plan, MadeJournal())


def test_every_arm_is_searched_then_confirmed_on_the_seeds():
    simulation = Simulation(resolved())
    simulation.launch()
    seeds = Counter((record.arm, record.seed) for record in ended(simulation) if record.phase == "confirm")
    arms = ["albert/rte", "albert/cola", "palbert/rte", "palbert/cola"]
    assert seeds == Counter((arm, seed) for arm in arms for seed in (42, 43, 44))


def test_confirm_trials_have_the_best_configuration_of_the_search():
    scheduler = Simulation(resolved()).launch()
    for arm in scheduler.progress.arms:
        completed = [trial.record for trial in arm.facts.search if trial.record.status == "completed"]
        winner = max(completed, key=lambda record: (record.selection_score, -record.trial))
        assert {str(trial.config) for trial in arm.facts.confirm} == {str(winner.config)}
        assert arm.median == median(trial.record.score for trial in arm.facts.confirm)


def test_confirm_trials_start_before_other_arms_have_been_searched():
    simulation = Simulation(resolved())
    simulation.launch()
    started = simulation.journal.of(TrialStarted)
    first_confirm = next(number for number, event in enumerate(started) if event.phase == "confirm")
    assert any(event.phase == "search" for event in started[first_confirm:])


def test_confirm_trials_fill_wait_for_search_trials():
    """So slots stand idle, and actors are let go, only where the last arm waits for its own."""
    simulation = Simulation(resolved(tasks=("rte", "cola", "mrpc"), methods=("albert",), samples=4, seeds=2))
    simulation.launch()
    phases = [(trial.arm.task, trial.phase) for trial in simulation.journal.facts.trials.values()]
    last_search = {task: len(phases) - phases[::-1].index((task, "search")) for task, _ in phases}
    first_confirm = {task: phases.index((task, "confirm")) for task, _ in phases}
    one, two, three = sorted(last_search, key=last_search.__getitem__)
    assert first_confirm[one] < last_search[three] <= first_confirm[two] < first_confirm[three]


def test_arms_with_long_trials_go_first():
    study = resolved(methods=("electra-small",), epochs=3)
    longer = replace(study.arms[1], fixed={**study.arms[1].fixed, "epochs": 9})
    simulation = Simulation(replace(study, arms=(study.arms[0], longer)))
    simulation.launch()
    assert simulation.journal.of(TrialStarted)[0].arm == "electra-small/cola"


def test_confirm_trials_are_never_stopped():
    simulation = Simulation(resolved(samples=9))
    simulation.launch()
    records = Counter((record.phase, record.status) for record in ended(simulation))
    assert records["search", "stopped"] > 0
    assert set(records) == {("search", "stopped"), ("search", "completed"), ("confirm", "completed")}


def test_asha_as_logged_equals_its_replay():
    simulation = Simulation(resolved(samples=9))
    simulation.launch()
    rungs, arm_of = {}, {event.key: event.arm for event in simulation.journal.of(TrialStarted)}
    stopping = EarlyStopping(grace=1, factor=3)
    decisions = simulation.journal.of(AshaDecided)
    for event in decisions:
        own, score = (
            rungs.setdefault(arm_of[event.key], {}),
            simulation.journal.facts.trials[event.key].scores[event.rung],
        )
        where = {"time": event.time, "epoch": event.rung, "score": score, "epochs": 9, "stopping": stopping}
        assert asha.decide(own, event.key, **where) == event
        own.setdefault(event.rung, {})[event.key] = score
    assert len(decisions) > 36


def test_the_same_plan_again_has_nothing_to_do():
    simulation = Simulation(resolved())
    simulation.launch()
    before = len(simulation.journal.events)
    assert simulation.launch().progress.is_finished
    assert [type(event) for event in simulation.journal.events[before:]] == [LaunchBegan]


def test_more_samples_run_only_the_rest():
    simulation = Simulation(resolved(samples=4, tasks=("rte",), methods=("albert",)))
    simulation.launch()
    before = {record.key for record in ended(simulation)}
    simulation.resolved = resolved(samples=6, tasks=("rte",), methods=("albert",))
    simulation.launch()
    keys = [record.key for record in ended(simulation)]
    assert len(keys) == len(set(keys)) and before < set(keys)
    phases = Counter(record.phase for record in ended(simulation))
    assert phases["search"] == 6 and phases["confirm"] in (3, 6)  # 6 where a new sample won


def test_more_seeds_tasks_and_methods_extend():
    simulation = Simulation(resolved(tasks=("rte",), methods=("albert",)))
    simulation.launch()
    simulation.resolved = resolved(seeds=4)
    scheduler = simulation.launch()
    assert {len(arm.confirm_trials) for arm in scheduler.progress.arms} == {4}


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_no_configuration_is_drawn_twice(sampler):
    scheduler = Simulation(resolved(sampler=sampler, samples=12)).launch()
    for arm in scheduler.progress.arms:
        configurations = [str(trial.config) for trial in arm.facts.search]
        assert len(configurations) == len(set(configurations)) == 12


def test_a_spent_space_ends_the_search_early():
    two_sizes = with_grid(resolved(methods=("albert",), tasks=("rte",)), batch_size=[16, 32])
    two_sizes = replace(two_sizes, arms=(replace(two_sizes.arms[0], samples=5, first=()),))
    simulation = Simulation(two_sizes)
    scheduler = simulation.launch()
    (arm,) = scheduler.progress.arms
    assert len(arm.facts.search) == 2 and len(arm.confirm_trials) == 3
    again = scheduler_of(two_sizes, simulation.journal)
    assert again.progress.is_finished and again.progress.total_trials == 5


def test_finite_space_is_exhausted_before_repeating():
    """A sampler that likes a few points goes on proposing them long before the others were tried."""
    fields = {"batch_size": [16, 32, 64, 128], "warmup_ratio": [0.0, 0.1, 0.2], "learning_rate": [1e-3, 2e-3, 3e-3]}
    plan = with_grid(resolved(methods=("albert",), tasks=("rte",)), **fields)
    plan = replace(plan, arms=(replace(plan.arms[0], samples=40, first=()),))
    simulation = Simulation(plan)
    simulation.launch()
    points = {tuple(record.config[name] for name in fields) for record in ended(simulation) if record.phase == "search"}
    assert len(points) == 36


def test_an_arm_that_tunes_nothing_is_confirmed_at_once():
    everything = {"learning_rate": 1e-3}
    study = resolved(methods=("electra-small",), tasks=("rte",), samples=3, settings=everything)
    (arm,) = study.arms
    assert not arm.space and arm.samples == 0
    simulation = Simulation(study)
    assert simulation.launch().progress.is_finished
    assert {(record.phase, record.seed) for record in ended(simulation)} == {("confirm", seed) for seed in (42, 43, 44)}
    assert {str(dict(record.config)) for record in ended(simulation)} == {str(dict(arm.fixed))}


def test_a_failed_search_trial_does_not_hold_its_arm():
    scheduler = fresh(resolved(methods=("albert",), tasks=("rte",), samples=2))
    scheduler.begin_launch(command="", host="", pid=0)
    first, second = scheduler.next_trial(), scheduler.next_trial()
    assert scheduler.end(first.key, failure=failure_of("method")).status == "failed"
    scheduler.report(second.key, report(second, second.config["epochs"]))
    scheduler.end(second.key)
    assert scheduler.next_trial().config == second.config


def test_scores_of_a_failed_trial_stop_no_later_trial():
    scheduler = fresh(resolved(methods=("albert",), tasks=("rte",)))
    scheduler.begin_launch(command="", host="", pid=0)
    first = scheduler.next_trial()
    assert scheduler.report(first.key, report_of(row_of(1, 0.9))) == "continue"
    scheduler.end(first.key, failure=failure_of("method", error="loss is nan"))
    second = scheduler.next_trial()
    assert scheduler.report(second.key, report_of(row_of(1, 0.5))) == "continue"
    third = scheduler.next_trial()
    assert scheduler.report(third.key, report_of(row_of(1, 0.4))) == "stop"


def test_an_arm_whose_search_failed_is_not_confirmed():
    scheduler = fresh(resolved(methods=("albert",), tasks=("rte",), samples=1))
    scheduler.begin_launch(command="", host="", pid=0)
    scheduler.end(scheduler.next_trial().key, failure=failure_of("method"))
    assert scheduler.next_trial() is None and scheduler.progress.is_finished


def test_a_trial_taken_back_is_handed_out_again():
    scheduler = fresh(resolved(methods=("albert",), tasks=("rte",)))
    scheduler.begin_launch(command="", host="", pid=0)
    trial = scheduler.next_trial()
    scheduler.retry(trial.key, failure_of("preemption"))
    assert scheduler.next_trial() is trial


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(
    gaps=st.lists(st.integers(1, 40), max_size=15),
    sampler=st.sampled_from(["tpe", "random", "grid"]),
    slots=st.integers(1, 5),
)
def test_a_study_killed_anywhere_loses_and_doubles_nothing(gaps, sampler, slots):
    simulation = Simulation(resolved(sampler=sampler), slots=slots)
    for gap in gaps:
        simulation.launch(kill_at=len(simulation.journal.events) + gap)
    assert simulation.launch() is not None
    records = ended(simulation)
    assert len({record.key for record in records}) == len(records) == 4 * (5 + 3)
    reported = Counter((event.key, event.row.epoch) for event in simulation.journal.of(EpochReported))
    assert max(reported.values()) == 1


@cache
def uninterrupted(*, sampler):
    """A whole study, one trial at a time."""
    simulation = Simulation(resolved(sampler=sampler), slots=1)
    simulation.launch()
    return simulation


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(gaps=st.lists(st.integers(1, 40), max_size=15), sampler=st.sampled_from(["tpe", "random", "grid"]))
def test_one_slot_killed_anywhere_equals_the_uninterrupted_study(gaps, sampler):
    whole, simulation = uninterrupted(sampler=sampler), Simulation(resolved(sampler=sampler), slots=1)
    for gap in gaps:
        simulation.launch(kill_at=len(simulation.journal.events) + gap)
    simulation.launch()
    expected = {record.key: comparable(record) for record in ended(whole)}
    assert {record.key: comparable(record) for record in ended(simulation)} == expected
    assert [event.decision for event in simulation.journal.of(AshaDecided)] == [
        event.decision for event in whole.journal.of(AshaDecided)
    ]


def test_a_gpu_budget_ends_the_search_in_time_to_confirm():
    free = Simulation(resolved(samples=12), slots=2)
    free.launch()
    limited = Simulation(resolved(samples=12), slots=2)
    limited.max_gpu_hours = 0.7 * sum(record.gpu_seconds for record in ended(free)) / 3600
    scheduler = limited.launch()
    assert sum(record.gpu_seconds for record in ended(limited)) <= 3600 * limited.max_gpu_hours
    assert 4 < sum(record.phase == "search" for record in ended(limited)) < 48
    assert {len(arm.confirm_trials) for arm in scheduler.progress.arms if arm.winner} == {3}
    assert limited.journal.of(SearchClosed)


def test_a_larger_budget_goes_on_searching():
    simulation = Simulation(resolved(samples=6), slots=2, max_gpu_hours=100 / 3600)
    simulation.launch()
    before = len(ended(simulation))
    simulation.max_gpu_hours = None
    scheduler = simulation.launch()
    assert len(ended(simulation)) > before
    assert {len(arm.facts.search) for arm in scheduler.progress.arms} == {6}


def test_code_that_returns_is_the_last_of_a_record():
    journal, codes = MadeJournal(), {}
    for letter in "ABA":
        code = Provenance(versions={"torch": letter}, git_commit=letter, code_digest=letter)
        scheduler = Scheduler(resolved(selection="dev"), journal, code)
        scheduler.begin_launch(command="", host="", pid=0)
        trial = scheduler.next_trial()
        scheduler.report(trial.key, report(trial, len(codes) + 1))
        codes[len(codes)] = code
    record = scheduler.end(trial.key)
    assert record.code_digest == "B, A" and find_change(record, codes[0]) is None
    assert find_change(record, codes[1]) == "code"


def test_a_record_names_the_code_of_every_launch_that_trained_it():
    plan = resolved(selection="dev")
    journal = MadeJournal()
    for number, version in enumerate(["2.12.0", "2.13.0"], start=1):
        code = Provenance(versions={"torch": version, "ray": "2.60"}, git_commit=f"c{number}", code_digest=f"d{number}")
        scheduler = Scheduler(plan, journal, code)
        scheduler.begin_launch(command="", host="", pid=0)
        trial = scheduler.next_trial()
        scheduler.report(trial.key, report(trial, number))
    trained_nothing = Provenance(versions={"torch": "9"}, git_commit="c9", code_digest="d9")
    later = Scheduler(plan, journal, trained_nothing)
    record = later.end(trial.key)
    assert (record.git_commit, record.code_digest) == ("c1, c2", "d1, d2")
    assert record.versions == {"torch": "2.12.0, 2.13.0", "ray": "2.60"}
