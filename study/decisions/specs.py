"""What a trial is told, and what its record says: both follow from the plan and the facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from study.decisions.progress import StudyProgress
from study.facts.attestation import Attestation, agree_but_for_digests, contradictions
from study.facts.events import Failure, LaunchBegan
from study.facts.record import Record, Status
from study.facts.study_facts import LaunchFacts, StudyFacts, TrialFacts
from study.plans.identity import digest
from study.plans.resolved_plan import Arm, ResolvedPlan
from trainables import base_method
from trainables.data import glue
from trainables.encoders import backbones
from trainables.runs.trial import TrialSpec
from trainables.schema import Typed


class Provenance(Typed, frozen=True, kw_only=True):
    """What code a launch runs."""

    versions: Mapping[str, str]
    git_commit: str | None
    code_digest: str  # of the sources of the packages that make numbers
    included: Mapping[str, str] = {}  # method of an included folder -> digest of its files

    @classmethod
    def of(cls, launch: LaunchBegan) -> Provenance:
        return cls(
            versions=launch.versions,
            git_commit=launch.git_commit,
            code_digest=launch.code_digest,
            included=launch.included or {},
        )

    def of_method(self, method: str) -> Provenance:
        """What trains the method or the variant: the packages, with the files of an included one in the digest."""
        own = self.included.get(base_method(method))
        code = self.code_digest if own is None else digest([self.code_digest, own])
        return replace(self, code_digest=code, included={})


def code_of(trial: TrialFacts, launches: Mapping[int, LaunchFacts]) -> Provenance | None:
    """What of the code of every launch that trained the trial is its method's; None where none did.

    Where they differ, the last stands last: `2.12.0, 2.13.0`.
    """
    codes = [Provenance.of(launches[number].began).of_method(trial.started.method) for number in trial.trained_in]
    if not codes:
        return None
    names = dict.fromkeys(name for code in codes for name in code.versions)
    versions = {name: _joined(code.versions.get(name) for code in codes) for name in names}
    return Provenance(
        versions=versions,
        git_commit=_joined(code.git_commit for code in codes) or None,
        code_digest=_joined(code.code_digest for code in codes),
    )


def _joined(values: Iterable[str | None]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value is not None))


def trial_spec(plan: ResolvedPlan, facts: StudyFacts, trial: TrialFacts) -> TrialSpec:
    """All that the trial's numbers depend on."""
    started, made_of, arm = trial.started, plan.arm(trial.started.arm), facts.arm(trial.started.arm)
    tokenizer = made_of.pinned_tokenizer
    return TrialSpec(
        method=started.method,
        task=started.task,
        config=started.config,
        seed=started.seed,
        data=glue.seen_from_anywhere(plan.asked.data),
        backbone=backbones.seen_from_anywhere(made_of.pinned_backbone),
        tokenizer=tokenizer and backbones.seen_from_anywhere(tokenizer),
        selection=plan.asked.selection,
        report_dev=trial.phase == "confirm" or plan.asked.selection == "dev",
        start=arm.start.model if arm.start else None,
    )


def expected_attestation(progress: StudyProgress, trial: TrialFacts, *, by: Provenance) -> Attestation:
    """What a worker must find of the trial, `by` being what its launch runs. Digests are those of the arm's first."""
    arm, facts = progress.plan.arm(trial.started.arm), progress.facts.arm(trial.started.arm)
    code = by.of_method(trial.started.method)
    return Attestation(
        data_fingerprint=arm.data_fingerprint,
        tokens_digest=facts.tokens_digests.get(trial.max_length),
        backbone_fingerprint=arm.backbone_fingerprint,
        backbone_digest=facts.backbone_digest,
        tokenizer_fingerprint=arm.tokenizer_fingerprint,
        code_digest=code.code_digest,
        versions=code.versions,
    )


def build_record(
    trial: TrialFacts,
    *,
    study: str,
    protocol_hash: str,
    arm: Arm,
    error: str | None,
    predictions_digest: str | None,
    provenance: Provenance,
    ended: str,
) -> Record:
    """The record of a trial that is over now: failed if there is an error, stopped if ASHA said so.

    Its numbers are those of the outcome; of a trial that was stopped, those of its best epoch; of a failed one, none.
    """
    status: Status = "failed" if error else "stopped" if trial.stopped_at is not None else "completed"
    last = trial.last.report if trial.last else None
    outcome = last.outcome if last and status != "failed" else None
    best = trial.best.report.row if trial.best and status != "failed" else None
    chosen = outcome or best
    started = trial.started
    return Record(
        key=started.key,
        study=study,
        protocol_hash=protocol_hash,
        method=started.method,
        task=started.task,
        repeat=started.repeat,
        phase=started.phase,
        trial=started.trial,
        seed=started.seed,
        config=started.config,
        start=started.start,
        status=status,
        error=error,
        score=chosen.score if chosen else None,
        selection_score=chosen.selection_score if chosen else None,
        metrics=chosen.metrics if chosen else {},
        epoch=chosen.epoch if chosen else None,
        epochs=trial.epochs,
        num_layers=last.row.num_layers if last else None,
        num_parameters=outcome.num_parameters if outcome else None,
        mean_layers=chosen.mean_layers if chosen else None,
        train_examples=last.row.train_examples if last else 0,
        train_seconds=last.row.train_seconds if last else 0.0,
        eval_seconds=last.row.eval_seconds if last else 0.0,
        gpu_seconds=last.gpu_seconds if last else 0.0,
        wall_seconds=last.wall_seconds if last else 0.0,
        model=outcome.model if outcome else None,
        predictions_digest=predictions_digest,
        backbone_fingerprint=arm.backbone_fingerprint,
        tokenizer_fingerprint=arm.tokenizer_fingerprint,
        data_fingerprint=arm.data_fingerprint,
        data_differences=outcome.data_differences if outcome else None,
        latency=outcome.latency if outcome else None,
        tokens_digest=trial.attested.tokens_digest if trial.attested else None,
        backbone_digest=trial.attested.backbone_digest if trial.attested else None,
        versions=provenance.versions,
        git_commit=provenance.git_commit,
        code_digest=provenance.code_digest,
        host=last.host if last else "",
        device=last.device if last else "",
        started=started.time,
        ended=ended,
    )


def check_attested(progress: StudyProgress, key: str, attested: Attestation, *, host: str, by: Provenance) -> None:
    """Passes if a worker on this host trains what the plan says, with the code of this launch.

    Raises:
        ValueError: it does not; all that differs is named.
    """
    trial = progress.facts.trials[key]
    if found := contradictions(attested, expected_attestation(progress, trial, by=by)):
        raise ValueError(
            f"trial {key} of {trial.started.arm} on {host} is not what the plan says: {'; '.join(found)}; nothing "
            "of it was noted. Mend that, and the same command continues"
        )


def refusal(
    progress: StudyProgress,
    key: str,
    attested: Attestation,
    *,
    host: str,
    node: str | None,
    others: bool,
    by: Provenance,
) -> Failure:
    """The failure of a trial that a worker did not train, since its node has other code or data than the launch.

    `others`: whether there are nodes that may do better.

    Raises:
        ValueError: there are none, or nobody knows which node is in error.
    """
    expected = expected_attestation(progress, progress.facts.trials[key], by=by)
    if not others or agree_but_for_digests(attested, expected):
        check_attested(progress, key, attested, host=host, by=by)
    error = f"it has not what the plan says: {'; '.join(contradictions(attested, expected))}"
    return Failure(cause="node", error=error, traceback=None, host=host, node=node)
