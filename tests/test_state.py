"""The searcher's and the schedulers' logic, without Ray: pytest tests/test_state.py"""

import dataclasses
from collections import Counter
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution
from simulation import Journal, Simulation, row

from study import profiles
from study.asha import Asha
from study.plan import Overrides, Plan, ResolvedPlan, resolve
from study.state import StudyState


def plan(**changes) -> Plan:
    mini = profiles.load("mini")
    twelve_points = dataclasses.replace(
        mini.random_start,
        grid=mini.random_start.grid | {"learning_rate": [n / 1000 for n in range(1, 13)]},
        fixed=mini.random_start.fixed | {"epochs": 9},
    )
    small = {"methods": ("albert", "palbert"), "tasks": ("rte", "cola"), "samples": 5, "seeds": 3, "sampler": "random"}
    return dataclasses.replace(mini, **({"random_start": twelve_points} | small | changes))


def resolved(**changes) -> ResolvedPlan:
    return resolve(plan(**changes))


def ended(simulation: Simulation) -> list[dict]:
    return [event["record"] for event in simulation.journal.of("trial_ended")]


def comparable(record: dict) -> dict:
    return {name: value for name, value in record.items() if name not in ("started", "ended")}


def test_every_arm_is_searched_then_confirmed_on_the_seeds():
    simulation = Simulation(resolved())
    simulation.launch()
    confirm = [record for record in ended(simulation) if record["phase"] == "confirm"]
    seeds = Counter((record["method"], record["task"], record["seed"]) for record in confirm)
    arms = [(method, task) for method in ("albert", "palbert") for task in ("rte", "cola")]
    assert seeds == Counter((*arm, seed) for arm in arms for seed in (42, 43, 44))


def test_confirm_trials_have_the_best_configuration_of_the_search():
    simulation = Simulation(resolved())
    state = simulation.launch()
    for arm in state.arms:
        records = [trial.record for trial in arm.phase("search")]
        completed = [record for record in records if record.status == "completed"]
        winner = max(completed, key=lambda record: (record.selection_score, -record.trial))
        assert {str(trial.start["config"]) for trial in arm.phase("confirm")} == {str(winner.config)}
        assert state.median(arm) == median(trial.record.score for trial in arm.phase("confirm"))


def test_confirm_trials_start_before_other_arms_have_been_searched():
    simulation = Simulation(resolved())
    simulation.launch()
    started = simulation.journal.of("trial_started")
    first_confirm = next(number for number, event in enumerate(started) if event["phase"] == "confirm")
    assert any(event["phase"] == "search" for event in started[first_confirm:])


def test_arms_with_long_trials_go_first():
    study = resolve(plan(methods=("electra-small",), tasks=("rte", "cola"), settings={"epochs": 3}))
    longer = dataclasses.replace(study.arms[1], fixed=study.arms[1].fixed | {"epochs": 9})
    simulation = Simulation(dataclasses.replace(study, arms=(study.arms[0], longer)))
    simulation.launch()
    assert simulation.journal.of("trial_started")[0]["task"] == "cola"


def test_confirm_trials_are_never_stopped():
    simulation = Simulation(resolved(samples=9))
    simulation.launch()
    records = Counter((record["phase"], record["status"]) for record in ended(simulation))
    assert records["search", "stopped"] > 0
    assert set(records) == {("search", "stopped"), ("search", "completed"), ("confirm", "completed")}


def test_asha_as_logged_equals_its_replay():
    simulation = Simulation(resolved(samples=9))
    simulation.launch()
    rungs = {}
    for event in simulation.journal.of("asha_decided"):
        asha = rungs.setdefault((event["method"], event["task"]), Asha(grace=1, factor=3, max_epochs=9))
        decision = asha.decide(event["key"], epoch=event["rung"], score=event["score"])
        assert vars(decision) == {name: event[name] for name in vars(decision)}
        asha.apply(event)


def test_the_same_plan_again_has_nothing_to_do():
    simulation = Simulation(resolved())
    simulation.launch()
    before = len(simulation.journal.events)
    assert simulation.launch().finished
    assert [event["event"] for event in simulation.journal.events[before:]] == ["launch_began"]


def test_more_samples_run_only_the_rest():
    simulation = Simulation(resolved(samples=4, tasks=("rte",), methods=("albert",)))
    simulation.launch()
    before = {record["key"] for record in ended(simulation)}
    simulation.resolved = resolved(samples=6, tasks=("rte",), methods=("albert",))
    simulation.launch()
    keys = [record["key"] for record in ended(simulation)]
    assert len(keys) == len(set(keys)) and before < set(keys)
    phases = Counter(record["phase"] for record in ended(simulation))
    assert phases["search"] == 6 and phases["confirm"] in (3, 6)  # 6 where a new sample won


def test_more_seeds_tasks_and_methods_extend():
    simulation = Simulation(resolved(tasks=("rte",), methods=("albert",)))
    simulation.launch()
    simulation.resolved = resolved(seeds=4)
    state = simulation.launch()
    assert {len(state.confirm_trials(arm)) for arm in state.arms} == {4}


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_no_configuration_is_drawn_twice(sampler):
    simulation = Simulation(resolved(sampler=sampler, samples=12))
    state = simulation.launch()
    for arm in state.arms:
        configurations = [str(trial.start["config"]) for trial in arm.phase("search")]
        assert len(configurations) == len(set(configurations))


def test_a_spent_space_ends_the_search_early():
    two_sizes = Overrides(space={"batch_size": CategoricalDistribution([16, 32])}, fixed={"learning_rate": 1e-3})
    simulation = Simulation(resolved(methods=("albert",), tasks=("rte",), samples=5, random_start=two_sizes))
    state = simulation.launch()
    assert len(state.arms[0].phase("search")) == 2
    assert len(state.confirm_trials(state.arms[0])) == 3
    again = StudyState("s", simulation.resolved, events=simulation.journal.events, append=dict, provenance={})
    assert again.finished and again.total_trials == 5


def test_a_configuration_that_leaves_nothing_to_tune_is_tried_once():
    everything = {"learning_rate": 1e-4, "batch_size": 32, "hidden_dropout": 0.0}
    changes = {"profile": "paper", "backbone": "mini-electra", "methods": ("electra-small",), "settings": everything}
    (arm, *_) = resolved(tasks=("rte",), samples=3, **changes).arms
    assert not arm.space.keys() & everything.keys() and len(arm.first) == len({str(point) for point in arm.first})


def test_an_event_that_lacks_a_field_is_named_by_its_line():
    simulation = Simulation(resolved())
    simulation.launch()
    events = [dict(event) for event in simulation.journal.events]
    del events[4]["key"]
    with pytest.raises(ValueError, match=r"^events.jsonl:5: not a whole \w+ event: KeyError\('key'\)$"):
        StudyState("s", simulation.resolved, events=events, append=dict, provenance={})


def test_a_failed_search_trial_does_not_hold_its_arm():
    study = resolved(methods=("albert",), tasks=("rte",), samples=2)
    journal = Journal()
    state = StudyState("s", study, events=[], append=journal.append, provenance={"versions": {}, "git_commit": None})
    first, second = state.next_trial(), state.next_trial()
    assert state.end(first.start["key"], error="boom").status == "failed"
    state.report(second.start["key"], row(second, second.start["config"]["epochs"]))
    state.end(second.start["key"])
    assert state.next_trial().start["config"] == second.start["config"]


def test_an_arm_whose_search_failed_is_not_confirmed():
    study = resolved(methods=("albert",), tasks=("rte",), samples=1)
    state = StudyState("s", study, events=[], append=Journal().append, provenance={"versions": {}, "git_commit": None})
    state.end(state.next_trial().start["key"], error="boom")
    assert state.next_trial() is None and state.finished


def test_a_trial_taken_back_is_handed_out_again():
    study = resolved(methods=("albert",), tasks=("rte",))
    state = StudyState("s", study, events=[], append=Journal().append, provenance={"versions": {}, "git_commit": None})
    trial = state.next_trial()
    assert state.retry(trial.start["key"], "node gone", counts=True) == 1
    assert state.retry(trial.start["key"], "preempted", counts=False) == 1
    assert state.next_trial() is trial


@settings(deadline=None, max_examples=30)
@given(
    gaps=st.lists(st.integers(1, 40), max_size=15),
    sampler=st.sampled_from(["tpe", "random", "grid"]),
    slots=st.integers(1, 5),
)
def test_a_study_killed_anywhere_loses_and_doubles_nothing(gaps, sampler, slots):
    study = resolved(sampler=sampler)
    simulation = Simulation(study, slots=slots)
    for gap in gaps:
        simulation.launch(kill_at=len(simulation.journal.events) + gap)
    assert simulation.launch() is not None
    records = ended(simulation)
    assert len({record["key"] for record in records}) == len(records) == 4 * (5 + 3)
    reported = Counter((event["key"], event["epoch"]) for event in simulation.journal.of("epoch_reported"))
    assert max(reported.values()) == 1


@settings(deadline=None, max_examples=30)
@given(gaps=st.lists(st.integers(1, 40), max_size=15), sampler=st.sampled_from(["tpe", "random", "grid"]))
def test_one_slot_killed_anywhere_equals_the_uninterrupted_study(gaps, sampler):
    study = resolved(sampler=sampler)
    uninterrupted, simulation = Simulation(study, slots=1), Simulation(study, slots=1)
    uninterrupted.launch()
    for gap in gaps:
        simulation.launch(kill_at=len(simulation.journal.events) + gap)
    simulation.launch()
    expected = {record["key"]: comparable(record) for record in ended(uninterrupted)}
    assert {record["key"]: comparable(record) for record in ended(simulation)} == expected
    assert [event["decision"] for event in simulation.journal.of("asha_decided")] == [
        event["decision"] for event in uninterrupted.journal.of("asha_decided")
    ]


def test_a_gpu_budget_ends_the_search_in_time_to_confirm():
    free = Simulation(resolved(samples=12), slots=2)
    free.launch()
    limited = Simulation(resolved(samples=12), slots=2)
    limited.max_gpu_hours = 0.6 * sum(record["gpu_seconds"] for record in ended(free)) / 3600
    state = limited.launch()
    assert sum(record["gpu_seconds"] for record in ended(limited)) <= 3600 * limited.max_gpu_hours
    assert 4 < sum(record["phase"] == "search" for record in ended(limited)) < 48
    assert {len(state.confirm_trials(arm)) for arm in state.arms if arm.winner} == {3}
    assert limited.journal.of("search_closed")


def test_a_larger_budget_goes_on_searching():
    simulation = Simulation(resolved(samples=6), slots=2, max_gpu_hours=100 / 3600)
    simulation.launch()
    before = len(ended(simulation))
    simulation.max_gpu_hours = None
    state = simulation.launch()
    assert len(ended(simulation)) > before
    assert {len(arm.phase("search")) for arm in state.arms} == {6}


def test_a_trial_gets_the_share_of_a_gpu_that_was_measured_on_its_batch_size():
    two_sizes = Overrides(grid={"batch_size": [16, 32], "learning_rate": [1e-3, 2e-3]})
    study = resolved(methods=("albert",), tasks=("rte",), sampler="grid", samples=4, random_start=two_sizes)
    state = StudyState("s", study, events=[], append=Journal().append, provenance={"versions": {}, "git_commit": None})
    trials = [state.next_trial() for _ in range(4)]
    sizes = [trial.start["config"]["batch_size"] for trial in trials]
    assert sorted(set(sizes)) == [16, 32] and state.gpu_share(trials[0]) == 1.0
    small, large = trials[sizes.index(16)], trials[sizes.index(32)]
    hungry = next(trial for trial, size in zip(trials, sizes, strict=True) if size == 32 and trial is not large)
    state.report(small.start["key"], row(small, 1) | {"gpu_share": 0.1})
    assert state.gpu_share(small) == pytest.approx(0.15) and state.gpu_share(large) == 1.0
    state.report(large.start["key"], row(large, 1) | {"gpu_share": 0.3})
    assert state.gpu_share(large) == pytest.approx(0.4)
    state.report(hungry.start["key"], row(hungry, 1) | {"gpu_share": 0.4})
    assert state.gpu_share(large) == pytest.approx(0.5)


def test_an_arm_starts_from_the_best_confirmed_model_of_another():
    study = resolved(methods=("albert",), tasks=("rte", "mnli"), start_from={"rte": "mnli"})
    simulation = Simulation(study)
    state = simulation.launch()
    started = simulation.journal.of("trial_started")
    tasks = [event["task"] for event in started]
    assert tasks == sorted(tasks, key=["mnli", "rte"].index)  # all of MNLI, then RTE
    confirmed = [trial.record for trial in state.confirm_trials(state.arm("albert", "mnli"))]
    best = max(confirmed, key=lambda record: record.score)
    assert {event.get("start_from") for event in started if event["task"] == "rte"} == {best.key}


def test_an_arm_whose_start_failed_is_not_waited_for():
    study = resolved(methods=("albert",), tasks=("rte", "mnli"), start_from={"rte": "mnli"}, samples=1)
    state = StudyState("s", study, events=[], append=Journal().append, provenance={"versions": {}, "git_commit": None})
    state.end(state.next_trial().start["key"], error="boom")
    assert state.next_trial() is None and state.finished


def test_a_start_that_is_not_studied_is_refused():
    with pytest.raises(ValueError, match="rte starts from the models of mnli; add --task mnli"):
        plan(tasks=("rte",), start_from={"rte": "mnli"})
