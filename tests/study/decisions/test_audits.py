"""Stopped search trials that are trained to their end: pytest tests/study/decisions/test_audits.py"""

from __future__ import annotations

import pytest
from helpers.edited_studies import edit_events, has
from helpers.launched_studies import launch, mini_plan
from helpers.simulation import Simulation
from msgspec.structs import replace

from analysis.verify import verify
from study import launch as command
from study import profiles
from study.facts.events import TrialStarted
from study.facts.record import Record
from study.launch_plan import default_name
from study.plans.plan_file import with_earlier
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan


def resolved(**changes) -> ResolvedPlan:
    small = {"methods": ("albert",), "tasks": ("rte", "mrpc"), "samples": 12, "seeds": 2, "sampler": "random"}
    return resolve(replace(profiles.load("mini"), **(small | {"epochs": 9} | changes)))


def ended(simulation: Simulation, *phases: str) -> list[Record]:
    records = [record for record in simulation.journal.records if record.phase in phases]
    return sorted((replace(record, started="", ended="") for record in records), key=lambda record: record.key)


def launched(plan: ResolvedPlan) -> Simulation:
    simulation = Simulation(plan)
    simulation.launch()
    return simulation


def test_audited_trials_are_stopped_ones_trained_to_their_end():
    simulation = launched(resolved(audit_stopped=3))
    audits = ended(simulation, "audit")
    stopped = {(record.arm, record.seed, str(record.config)) for record in ended(simulation, "search")
               if record.status == "stopped"}  # fmt: skip
    assert len(audits) == 2 * 3
    assert {(record.arm, record.seed, str(record.config)) for record in audits} < stopped
    assert {(record.status, record.epochs) for record in audits} == {("completed", 9)}


def test_audits_change_no_other_trial():
    plain, with_audits = launched(resolved()), launched(resolved(audit_stopped=3))
    assert ended(with_audits, "search", "confirm") == ended(plain, "search", "confirm")


@pytest.mark.parametrize("starts", [{}, {"mrpc": "rte"}], ids=["alone", "one arm starts from the other"])
def test_an_audit_starts_only_where_a_slot_would_stand_idle(starts):
    simulation = Simulation(resolved(audit_stopped=3, start_from=starts), slots=1)
    simulation.launch()
    phases = [event.phase for event in simulation.journal.of(TrialStarted)]
    assert phases[-6:] == ["audit"] * 6 and "audit" not in phases[:-6]


@pytest.mark.parametrize("kill_at", [60, 120, 175, 190])
def test_a_study_that_is_killed_audits_the_same_trials(kill_at):
    simulation = Simulation(resolved(audit_stopped=3))
    assert simulation.launch(kill_at=kill_at) is None
    simulation.launch()
    assert len(ended(simulation, "audit")) == 6


def test_more_audits_extend_a_study():
    few, more = resolved(audit_stopped=1), resolved(audit_stopped=3)
    simulation = launched(few)
    before = ended(simulation, "audit")
    simulation.resolved = replace(more, asked=with_earlier(more.asked, few.asked))
    simulation.launch()
    assert {record.key for record in before} < {record.key for record in ended(simulation, "audit")}
    assert len(ended(simulation, "audit")) == 6


def test_audits_do_not_change_the_name_of_a_study():
    assert default_name(resolved(audit_stopped=3)) == default_name(resolved())


def test_audits_where_nothing_is_stopped_are_refused():
    with pytest.raises(ValueError, match="--audit-stopped is 3, but --early-stopping none stops no trial; allowed: 0"):
        resolved(audit_stopped=3, early_stopping=None)


def test_audits_beside_a_budget_are_refused(capsys, tmp_path):
    arguments = ["--audit-stopped", "3", "--max-gpu-hours", "1", "--dry-run", "--address", "auto"]
    assert command.main([*arguments, "--profile", "mini", "--out", str(tmp_path)]) == 2
    said = "--audit-stopped trains beyond what --max-gpu-hours plans for; allowed: one of the two\n"
    assert capsys.readouterr().err == f"study.launch: {said}"


def test_verify_knows_which_trial_an_audit_is_of(tmp_path):
    study = tmp_path / "s"
    launch(study, mini_plan(methods=("albert",), tasks=("rte",), audit_stopped=1))
    assert verify(study) == []
    number = sum(1 for line in (study / "events.jsonl").read_text().splitlines() if '"event":"trial_started"' in line)
    edit_events(study, TrialStarted, lambda plain: plain.update(seed=7), number=number - 1)
    assert has(verify(study), "seed is 7; should be")
