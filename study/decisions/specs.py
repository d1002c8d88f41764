"""Derives from plan and journal how a trial is trained, and which code and data its worker must have."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from study.decisions.progress import StudyProgress
from study.facts.attestation import Attestation, Provenance, contradictions
from study.facts.study_facts import StudyFacts, TrialFacts
from study.plans.resolved_plan import Arm, ResolvedPlan
from trainables.data import glue
from trainables.encoders import backbones
from trainables.runs.trial import TrialSpec
from trainables.schema import Configuration


def trial_spec(plan: ResolvedPlan, facts: StudyFacts, trial: TrialFacts) -> TrialSpec:
    """Make the specification of a trial: everything on which its results depend."""
    started, start = trial.started, facts.arm(trial.started.arm).start
    is_confirm, arm = trial.phase == "confirm", plan.arm(started.arm)
    spec = specify_arm(plan, arm, trial.config, seed=started.seed, reads_dev=is_confirm)
    return replace(spec, post_hoc=UNSET if is_confirm else arm.post_hoc, start=start.model if start else None)


def specify_arm(
    plan: ResolvedPlan, arm: Arm, config: Configuration, *, seed: int, reads_dev: bool = False
) -> TrialSpec:
    """Make the specification of a trial that starts from the backbone; `reads_dev` adds dev scores under `holdout`."""
    tokenizer = arm.pinned_tokenizer
    return TrialSpec(
        method=arm.method,
        task=arm.task,
        own_task=plan.own_task(arm.task),
        config=config,
        seed=seed,
        data=glue.make_absolute(plan.asked.data),
        backbone=backbones.make_absolute(arm.pinned_backbone),
        tokenizer=tokenizer and backbones.make_absolute(tokenizer),
        selection=plan.asked.selection,
        select_by=plan.asked.select_by,
        report_dev=reads_dev or plan.asked.selection == "dev",
    )


def expected_attestation(progress: StudyProgress, trial: TrialFacts, *, by: Provenance) -> Attestation:
    """Collect the code and data that the trial's worker must have; `by` is the code of the launch.

    The digests of tokenised data and backbone files are those that the arm's first worker reported.
    """
    arm, facts = progress.plan.arm(trial.started.arm), progress.facts.arm(trial.started.arm)
    code = by.for_method(arm.method)
    return Attestation(
        data_fingerprint=arm.data_fingerprint,
        tokens_digest=facts.tokens_digests.get(trial.max_length),
        backbone_fingerprint=arm.backbone_fingerprint,
        backbone_digest=facts.backbone_digest,
        tokenizer_fingerprint=arm.tokenizer_fingerprint,
        code_digest=code.code_digest,
        versions=code.versions,
    )


def check_attested(progress: StudyProgress, key: str, attested: Attestation, *, host: str, by: Provenance) -> None:
    """Raise ValueError with all differences if the worker on `host` has other code or data than the plan."""
    trial = progress.facts.trials[key]
    if found := contradictions(attested, expected_attestation(progress, trial, by=by)):
        raise ValueError(
            f"trial {key} of {trial.started.arm} on {host} differs from the plan: {'; '.join(found)}; nothing was "
            "recorded; remove the difference and run the same command again"
        )
