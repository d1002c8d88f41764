"""What is said of a pretraining below tables: its arm, corpus, steps, tokens, cost and held-out scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from analysis.statistics.costs import Compute
from analysis.studies.joined import names_of
from analysis.studies.load import Study
from study.facts.record import Record, held_out_scores
from study.plans.resolved_plan import Arm
from trainables.schema import to_plain


def pretraining_in_words(studies: Sequence[Study]) -> list[str]:
    """A sentence for every study that pretrains; beside such a one, a sentence for every study that does not."""
    if all(study.file.plan.pretraining is UNSET for study in studies):
        return []
    named = zip(names_of(studies), studies, strict=True)
    where = {name: f" of {name}" if len(studies) > 1 else "" for name in names_of(studies)}
    return [_sentence(study, where[name]) for name, study in named]


def pretraining_facts(study: Study) -> dict[str, Any] | None:
    """The same for a JSON file, with all numbers in full; None where nothing is pretrained."""
    arm = study.file.plan.pretraining
    if arm is UNSET:
        return None
    return {"arm": to_plain(arm), "cost": vars(_cost(study)), "records": [to_plain(own) for own in study.pretrained]}


def _sentence(study: Study, where: str) -> str:
    arm = study.file.plan.pretraining
    if arm is UNSET:
        backbones = ", ".join(dict.fromkeys(own.backbone for own in study.file.plan.arms))
        return f"Backbone of every row{where}: {backbones}, not pretrained here."
    done = [record for record in study.pretrained if record.status == "completed"]
    made = f"Backbone of every row{where}: {arm.backbone}, pretrained by {arm.name} on corpus {arm.corpus}"
    if not done:
        return f"{made}, which has not ended."
    arms = len(study.file.plan.arms)
    shared = f"{_cost(study).in_words()}, shared by {arms} arm{'s' if arms > 1 else ''}"
    return f"{made} ({_sizes(arm, done[-1])}; {shared}; held out, in no number here: {_scores(done[-1])})."


def _sizes(arm: Arm, record: Record) -> str:
    steps, tokens = record.metrics["steps"], record.metrics["tokens"]
    return f"{steps:,.0f} steps of {arm.fixed['batch_size']} examples, {tokens:,.0f} tokens"


def _scores(record: Record) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in held_out_scores(record).items())


def _cost(study: Study) -> Compute:
    """Of all that was tried, what failed too."""
    paid = [record for record in (*study.pretrained, *study.retried) if record.phase == "pretrain"]
    on_cpu = sum(record.wall_seconds for record in paid if record.gpu_seconds == 0)
    return Compute(gpu_seconds=sum(record.gpu_seconds for record in paid), cpu_seconds=on_cpu)
