"""What the events of a trial must say by the plan and by the facts before them: its start, ASHA, its end."""

from __future__ import annotations

from analysis.verification.differences import differences, unlike
from study.decisions import asha
from study.decisions.progress import ArmProgress, PretrainingProgress, StudyProgress
from study.decisions.reopening import change_of
from study.decisions.specs import Provenance, build_record, code_of, expected_attestation
from study.facts.attestation import contradictions
from study.facts.events import (
    AshaDecided,
    EpochReported,
    LaunchBegan,
    StartChosen,
    TrialEnded,
    TrialReopened,
    TrialStarted,
)
from study.facts.study_facts import StudyFacts, TrialFacts
from study.plans.identity import PRETRAINING, search_seed
from study.plans.plan_file import PlanFile
from study.plans.resolved_plan import Arm
from trainables.schema import Configuration, to_plain


def start_faults(event: TrialStarted, progress: StudyProgress) -> list[str]:
    """What is wrong with a trial that is handed out for the first time.

    The plan may have been extended since: it has all seeds and samples that it had then, and perhaps more.
    """
    if event.key in progress.facts.trials:
        return [f"key is {event.key}, which was started before"]
    plan, arm = progress.plan, progress.arm(event.arm)
    identity = {"phase": event.phase, "config": event.config, "seed": event.seed, "start": event.start}
    expected = {
        "key": plan.trial_key(arm.arm, **identity),  # type: ignore[arg-type]
        "trial": len(arm.facts.phase(event.phase)),
        "start": arm.facts.start_key,
        "launch": progress.facts.launch_number,
    }
    rules = {"search": _search_faults, "confirm": _confirm_faults}
    if isinstance(arm, PretrainingProgress) or event.phase == "pretrain":
        return unlike(event, expected) + _pretraining_faults(event, arm)
    waits = progress.pretraining.missing if progress.pretraining else ""
    early = [f"a trial of {event.arm} before its backbone was there: {waits}"] * bool(waits)
    return unlike(event, expected) + early + rules[event.phase](event, arm)


def _pretraining_faults(event: TrialStarted, arm: ArmProgress) -> list[str]:
    """It is the first trial of its arm: a second one has the key of the first."""
    return unlike(event, {"phase": "pretrain", "config": arm.arm.fixed, "seed": arm.arm.seeds[0], "task": PRETRAINING})


def _search_faults(event: TrialStarted, arm: ArmProgress) -> list[str]:
    lines = unlike(event, {"seed": search_seed(arm.arm.name, len(arm.facts.search))})
    if not arm.search_trials_to_start:
        why = "its search was closed" if arm.is_search_closed else f"its plan has {arm.arm.samples}"
        lines.append(f"one search trial of {arm.arm.name} too many: {why}")
    return lines + _configuration_faults(event.config, arm.arm)


def _configuration_faults(config: Configuration, arm: Arm) -> list[str]:
    """Fixed fields are those of the arm's search trials, tuned ones are in the space."""
    fixed = {name: value for name, value in config.items() if name not in arm.space}
    lines = differences("config", fixed, dict(arm.searched({})))
    for name, allowed in arm.space.items():
        value, attributes = config.get(name), allowed.attributes
        choices, low, high = attributes.get("choices"), attributes.get("low"), attributes.get("high")
        if isinstance(choices, list):
            inside = value in choices
        else:
            assert isinstance(low, int | float) and isinstance(high, int | float)
            inside = isinstance(value, int | float) and low <= value <= high
        if not inside:
            lines.append(f"config {name} is {value!r}; should be {choices or f'{low} to {high}'}")
    return lines


def _confirm_faults(event: TrialStarted, arm: ArmProgress) -> list[str]:
    if arm.winner is None:
        return [f"a confirm trial of {arm.arm.name} before any of its search has completed"]
    going_on = [trial.key for trial in arm.facts.search if not trial.ended]
    lines = [f"a confirm trial of {arm.arm.name} while the search trials {', '.join(going_on)} go on"] * bool(going_on)
    present = {trial.seed for trial in arm.confirm_trials}
    seed = next((seed for seed in arm.arm.seeds if seed not in present), None)
    return lines + unlike(event, {"config": arm.winner.config, "seed": seed})


def choice_faults(event: StartChosen, progress: StudyProgress) -> list[str]:
    """What is wrong with the model that an arm is to start from."""
    arm = progress.arm(event.arm)
    if arm.arm.start_from is None:
        return [f"arm is {event.arm}, which starts from no other"]
    if arm.facts.start is not None:
        return [f"arm is {event.arm}, whose start was chosen before"]
    source = progress.arm(arm.arm.start_from)
    best = source.best_confirmed
    if best is None or source.facts.under_way:
        return [f"no trial of {source.arm.name} can be a start: not all of its trials have ended"]
    return unlike(event, {"key": best.key, "model": best.model})


def asha_faults(event: AshaDecided, trial: TrialFacts, progress: StudyProgress) -> list[str]:
    """What is wrong with a decision at a rung."""
    arm = progress.arm(trial.started.arm)
    stopping = progress.plan.protocol.early_stopping
    if stopping is None or trial.phase != "search" or trial.last is None:
        return [f"ASHA has nothing to decide about {trial.key}"]
    score = trial.last.report.row.selection_score
    lines = unlike(event, {"rung": trial.epochs})
    decision = asha.decide(
        arm.facts.rungs, trial.key, epoch=trial.epochs, score=score, epochs=arm.arm.epochs, stopping=stopping
    )
    if decision is None:
        return [*lines, f"there is nothing to decide after epoch {trial.epochs}"]
    return lines + unlike(event, {name: value for name, value in vars(decision).items() if name != "rung"})


def undecided_rungs(trial: TrialFacts, progress: StudyProgress) -> list[str]:
    """The rungs that the trial has passed without a decision of ASHA."""
    arm = progress.arm(trial.started.arm)
    stopping = progress.plan.protocol.early_stopping
    if stopping is None or trial.phase != "search" or trial.last is None:
        return []
    passed = trial.epochs - trial.last.report.row.finished
    return [
        f"ASHA did not decide about {trial.key} at rung {rung}"
        for rung in asha.rungs_of(arm.arm.epochs, stopping)
        if rung <= passed and trial.key not in arm.facts.rungs.get(rung, {})
    ]


def end_faults(event: TrialEnded, trial: TrialFacts, file: PlanFile, *, journal_head: str) -> list[str]:
    """What is wrong with a record, but for its provenance: see `provenance_faults`.

    `journal_head` is the chain of the line before.
    """
    record, last = event.record, trial.last
    if record.status == "completed" and not (last and last.report.row.finished):
        return [f"record status is completed; the last report, of epoch {trial.epochs}, is not the trial's last"]
    failure = event.failure
    if (failure.error if failure else None) != record.error:
        return [f"failure error is {failure and failure.error!r}; should be {record.error!r}, as in the record"]
    if failure and failure.cause not in ("method", "memory"):
        return [f"failure cause is {failure.cause}, which ends no trial"]
    has_predictions = trial.phase == "confirm" and record.status == "completed"
    try:
        expected = build_record(
            trial,
            study=record.study,  # the folder may have had another name
            protocol_hash=file.plan.protocol_hash,
            arm=file.plan.arm(trial.started.arm),
            error=record.error,
            predictions_digest=record.predictions_digest if has_predictions else None,
            provenance=Provenance(
                versions=record.versions, git_commit=record.git_commit, code_digest=record.code_digest
            ),
            journal_head=journal_head,
            ended=event.time,
        )
    except ValueError as error:
        return [str(error)]
    return differences("record", to_plain(record), to_plain(expected))


def reopening_faults(event: TrialReopened, progress: StudyProgress) -> list[str]:
    """What is wrong with a trial that is to run again."""
    record, launch = progress.facts.trials[event.key].record, progress.facts.last_launch
    if record is None or record.status != "failed" or launch is None:
        return [f"trial {event.key} has not failed"]
    change = change_of(record, Provenance.of(launch.began))
    if event.reason in ("asked", change):
        return []
    return [f"reason is {event.reason}; should be {change or 'asked'}, by what the record and the launch name"]


def provenance_faults(event: TrialEnded, trial: TrialFacts, facts: StudyFacts) -> list[str]:
    """Where the record does not name the code of the launches that trained it, or of the one in which it failed."""
    code = code_of(trial, facts.launches)
    if code is None and facts.last_launch is not None:
        code = Provenance.of(facts.last_launch.began).of_method(trial.started.method)
    expected = {name: getattr(code, name) for name in ("versions", "git_commit", "code_digest")} if code else {}
    return [f"record {line}, as in its launches" for line in unlike(event.record, expected)]


def attestation_faults(
    event: EpochReported, trial: TrialFacts, progress: StudyProgress, began: LaunchBegan
) -> list[str]:
    """Where a worker trained on something else than the plan says, or by other code than its launch."""
    attested = event.report.attested
    if attested is None:
        return ["report attested is null; should come with the first epoch"] * (trial.last is None)
    expected = expected_attestation(progress, trial, by=Provenance.of(began))
    return [f"report attested: {fault}" for fault in contradictions(attested, expected)]
