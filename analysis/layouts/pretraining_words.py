"""What is said of a pretraining below tables: its arm, corpus, steps, tokens, cost and held-out scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from analysis.statistics.costs import PretrainingCost, pretraining_cost
from analysis.studies.joined import names_of
from analysis.studies.load import Study
from study.facts.plain_words import counted
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
    cost = pretraining_cost(study)
    if cost is None:
        return None
    records = [to_plain(own) for own in study.pretrained]
    return {"arm": to_plain(cost.arm), "cost": vars(cost.whole), "shared_by": cost.arms, "records": records}


def _sentence(study: Study, where: str) -> str:
    cost = pretraining_cost(study)
    if cost is None:
        backbones = ", ".join(dict.fromkeys(own.backbone for own in study.file.plan.arms))
        return f"Backbone of every row{where}: {backbones}, not pretrained here."
    arm = cost.arm
    done = [record for record in study.pretrained if record.status == "completed"]
    made = f"Backbone of every row{where}: {arm.backbone}, pretrained by {arm.name} on corpus {arm.corpus}"
    if not done:
        return f"{made}, which has not ended."
    held_out = f"held out, in no number here: {held_out_in_words(done[-1])}"
    return f"{made} ({sizes_in_words(arm, done[-1])}; {cost_in_words(cost)}; {held_out})."


def sizes_in_words(arm: Arm, record: Record) -> str:
    """Steps and tokens of a pretraining that has completed."""
    steps, tokens = record.metrics["steps"], record.metrics["tokens"]
    return f"{steps:,.0f} steps of {arm.fixed['batch_size']} examples, {tokens:,.0f} tokens"


def cost_in_words(cost: PretrainingCost) -> str:
    return f"{cost.whole.in_words()}, shared by {counted(cost.arms, 'arm')}"


def held_out_in_words(record: Record) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in held_out_scores(record).items())
