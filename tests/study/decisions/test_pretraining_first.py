"""A pretraining that all arms start from: pytest tests/study/decisions/test_pretraining_first.py"""

from __future__ import annotations

import pytest
from helpers.journals import MadeJournal, failure_of
from helpers.simulation import NO_PROVENANCE, Simulation, scheduler_of
from msgspec.structs import replace

from study import profiles
from study.decisions.reopening import reopen_failed
from study.decisions.specs import expected_attestation, pretraining_spec, trial_spec
from study.facts.events import ConfirmClosed, EpochReported, TrialEnded, TrialStarted
from study.facts.study_facts import TrialFacts
from study.forecast.estimate import Measured, describe_estimate, estimate
from study.forecast.remaining_time import remaining_seconds
from study.plans.plan import Pretraining
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan

NAME = "albert-mlm/pretraining"
STEPS = {"steps": 1000, "steps_per_epoch": 300}  # four epochs, the last a short one


def resolved(**changes) -> ResolvedPlan:
    small = {"methods": ("albert", "pabee"), "tasks": ("rte",), "samples": 2, "seeds": 2, "sampler": "random"}
    asked = Pretraining(objective="albert-mlm", corpus="mini", settings=STEPS)
    return resolve(replace(profiles.load("mini"), **(small | {"pretraining": asked} | changes)))


def launched(**changes) -> Simulation:
    simulation = Simulation(resolved(**changes))
    assert simulation.launch().progress.is_finished
    return simulation


def phases(simulation: Simulation) -> list[str]:
    return [event.phase for event in simulation.journal.of(TrialStarted)]


def gpu_seconds_per_epoch(trial: TrialFacts) -> float:
    return 100.0 if trial.phase == "pretrain" else 1.0


def test_one_trial_is_pretrained_and_ends_before_any_other_begins():
    simulation = launched()
    assert phases(simulation)[0] == "pretrain" and phases(simulation).count("pretrain") == 1
    keys = [event.key for event in simulation.journal.events if isinstance(event, TrialStarted | TrialEnded)]
    assert keys[:2] == [simulation.resolved.pretraining_key] * 2
    assert len(simulation.journal.records) == 1 + 2 * (2 + 2)


def test_its_trial_runs_the_plans_steps_and_is_never_stopped():
    record = launched().journal.records[0]
    assert (record.arm, record.epochs, record.seed, record.status) == (NAME, 4, 42, "completed")
    assert record.config["steps"] == 1000 and record.data_fingerprint == resolved().pretraining.data_fingerprint


def test_trials_load_its_model_and_workers_must_find_its_content():
    simulation = launched()
    facts, plan = simulation.journal.facts, simulation.resolved
    progress = scheduler_of(plan, simulation.journal).progress
    pretrained = facts.trials[plan.pretraining_key]
    for trial in facts.arm("pabee/rte").trials:
        spec = trial_spec(plan, facts, trial)
        assert (spec.backbone, spec.tokenizer) == (f"/models/{pretrained.key}", None)
        expected = expected_attestation(progress, trial, by=NO_PROVENANCE)
        assert expected.backbone_fingerprint == f"sha256:{pretrained.key}"
        assert trial.record.backbone_fingerprint == pretrained.key
    assert pretraining_spec(plan, pretrained).objective == "albert-mlm"
    assert expected_attestation(progress, pretrained, by=NO_PROVENANCE).backbone_fingerprint.startswith("mini-albert@")


def test_a_start_from_another_arm_goes_on_beside_it():
    simulation = launched(methods=("albert",), tasks=("rte", "mnli"), start_from={"rte": "mnli"})
    starts = {event.task: event.start for event in simulation.journal.of(TrialStarted)}
    assert starts["rte"] is not None and starts["mnli"] is None and starts["pretraining"] is None


def test_where_it_failed_cells_are_missing_with_its_error_until_it_is_run_again():
    journal = MadeJournal()
    scheduler = scheduler_of(resolved(), journal)
    scheduler.begin_launch(command="", host="", pid=0)
    trial = scheduler.next_trial()
    assert scheduler.next_trial() is None
    scheduler.end(trial.key, failure=failure_of("method", error="loss is nan at step 3"))
    assert scheduler.next_trial() is None and scheduler.progress.is_finished
    reason = "pretraining failed: loss is nan at step 3"
    assert scheduler.progress.missing == {"albert/rte": reason, "pabee/rte": reason}
    assert [record.key for record in scheduler.progress.failures] == [trial.key]
    assert scheduler.progress.total_trials == scheduler.progress.ended_trials == 1
    reopen_failed(journal, scheduler.progress, NO_PROVENANCE, asked=True)
    assert not scheduler.progress.is_finished and scheduler.next_trial().key == trial.key


def test_a_study_that_is_killed_at_any_event_ends_as_undisturbed():
    whole = launched(methods=("albert",))
    expected = sorted((r.key, r.score) for r in whole.journal.records)
    for kill_at in range(2, len(whole.journal.events)):
        simulation = Simulation(whole.resolved)
        assert simulation.launch(kill_at=kill_at) is None
        assert simulation.launch().progress.is_finished
        assert sorted((r.key, r.score) for r in simulation.journal.records) == expected, kill_at


def test_a_pretraining_that_used_the_limit_up_leaves_nothing_to_start():
    simulation = Simulation(resolved(), max_gpu_hours=399 / 3600, epoch_gpu_seconds=gpu_seconds_per_epoch)
    assert simulation.launch().progress.is_finished
    assert phases(simulation) == ["pretrain"]


def test_what_is_left_after_it_goes_to_the_arms():
    """Its own epochs, of a hundred seconds, say nothing of what theirs cost."""
    simulation = Simulation(resolved(), max_gpu_hours=500 / 3600, epoch_gpu_seconds=gpu_seconds_per_epoch)
    assert simulation.launch().progress.is_finished
    assert phases(simulation).count("search") == 4 and phases(simulation).count("confirm") == 4


def test_without_any_time_it_does_not_start_and_a_larger_limit_opens_it():
    simulation = Simulation(resolved(), max_gpu_hours=0)
    scheduler = simulation.launch()
    assert scheduler.progress.is_finished and phases(simulation) == []
    assert [event.arms for event in simulation.journal.of(ConfirmClosed)] == [[NAME]]
    assert scheduler.progress.missing["albert/rte"] == "pretraining has no GPU time"
    simulation.max_gpu_hours = None
    simulation.launch()
    assert phases(simulation)[0] == "pretrain" and len(phases(simulation)) == 9


def test_its_epochs_say_nothing_of_how_long_the_arms_will_take():
    simulation = Simulation(resolved())
    assert simulation.launch(kill_at=5) is None
    assert len(simulation.journal.of(EpochReported)) == 3
    assert remaining_seconds(scheduler_of(simulation.resolved, simulation.journal).progress) is None


def test_a_forecast_counts_its_epochs_and_says_its_steps_and_examples():
    plan = resolved()
    first, *rest = estimate(plan, {NAME: Measured(2.0, 1_000, "probe")})
    assert (first.arm.name, first.epochs, first.slot_seconds, first.disk_bytes) == (NAME, 4, 8.0, 1_000)
    steps = "1000 steps of 32 examples of corpus mini, at most 4,096,000 tokens"
    assert describe_estimate(first).startswith(f"{NAME}   {steps}  0:0")
    assert [item.arm.name for item in rest] == [arm.name for arm in plan.arms]


@pytest.mark.parametrize(
    ("asked", "changes", "message"),
    [
        ({"objective": "mlmm"}, {}, "no objective named 'mlmm'; available: "),
        ({"corpus": "/nowhere"}, {}, "corpus '/nowhere' is not a folder; allowed: mini, mini-shuffled, hub:NAME, a "),
        ({"settings": {"stepps": 3}}, {}, "--pretrain-set stepps: mlm has no such field; it has adam_beta2, "),
        ({"settings": {"steps": 0}}, {}, "mlm: steps is 0; allowed: "),
        (
            {"objective": "albert-mlm"},
            {"backbone": "mini-bert"},
            "objective albert-mlm has no model of family 'bert'; ",
        ),
        (
            {"settings": {"max_length": 64}},
            {},
            "max_length of albert/rte is 128; mlm/pretraining gives its backbone 64 positions: ",
        ),
        (
            {"settings": {"max_length": 512}},
            {"backbone": "bert-small"},
            "max_length of mlm is 512; backbone 'bert-small' has 128 positions",
        ),
        ({}, {"backbone": "bert-small"}, "backbone 'bert-small' has no tokenizer; name one: "),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(asked, changes, message):
    pretraining = Pretraining(**({"objective": "mlm", "corpus": "mini"} | asked))
    with pytest.raises(ValueError) as refused:
        resolved(pretraining=pretraining, **changes)
    assert str(refused.value).startswith(message) and "\n" not in str(refused.value)
