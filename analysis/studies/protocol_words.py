"""The protocol of a table in words, for titles and captions."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from analysis.studies.cells import Row, names_of, table_seeds
from analysis.studies.load import Study
from study.facts.plain_words import counted
from study.plans.plan import EarlyStopping

_SELECTION = {
    "dev": "stopped, selected and reported on the dev set",
    "holdout": "stopped and selected on a slice of train, dev read once for the reported number",
}


def seeds_in_words(studies: Sequence[Study], rows: Sequence[Row]) -> str:
    """The seeds of the table's protocol: the most that a cell has, where some have fewer."""
    seeds = table_seeds(studies)
    has_fewer = any(cell.state == "fewer seeds" for row in rows for cell in row.cells.values())
    return f"{'at most ' * has_fewer}{counted(len(seeds), 'seed')} ({', '.join(map(str, seeds))})"


def _asha_in_words(rule: EarlyStopping) -> str:
    return f"by ASHA (grace {rule.grace}, factor {rule.factor})"


def protocol_in_words(studies: Sequence[Study]) -> str:
    """One paragraph: how the numbers were selected, every other rule, the hash, and the data."""
    rules = studies[0].protocol
    stopping = rules.early_stopping
    asha = _asha_in_words(stopping) if stopping else "none"
    data = ", ".join(dict.fromkeys(study.file.plan.asked.data for study in studies))
    profile = ", ".join(dict.fromkeys(study.file.plan.asked.profile for study in studies))
    sentences = [
        f"Protocol {studies[0].protocol_hash}: selection {rules.selection} ({_SELECTION[rules.selection]})",
        f"sampler {rules.sampler}",
        f"early stopping of search trials {asha}",
        *_search_precision(rules.search_precision),
        f"profile {profile}",
        f"data {data}",
    ]
    return "; ".join(sentences) + "."


def _search_precision(precision: str | UnsetType) -> list[str]:
    if precision is UNSET:
        return []
    return [f"search trials in {precision}, the best configuration repeated in the precision that its method fixes"]


def setting_notes(studies: Sequence[Study]) -> list[str]:
    """A line for every study that was asked for other values than its methods' own."""
    notes = []
    for name, study in zip(names_of(studies), studies, strict=True):
        asked = study.file.plan.asked
        fields = {"epochs, at most": asked.epochs, "backbone": asked.backbone, "tokenizer": asked.tokenizer}
        told = [f"{field} {value}" for field, value in fields.items() if value is not None]
        told += [f"{field} {json.dumps(value)}" for field, value in asked.settings.items()]
        told += _of_pretraining(study)
        told += [f"{arm} starts from {source}" for arm, source in asked.start_from.items()]
        if told:
            notes.append(f"{name}: {', '.join(told)}")
    return notes


def _of_pretraining(study: Study) -> list[str]:
    """The fields that were set by hand when the backbone was pretrained here."""
    made = next((arm.pretraining for arm in study.file.plan.arms if arm.pretraining is not UNSET), None)
    fields = {} if made is None else made.settings
    return [f"pretraining with {field} {json.dumps(value)}" for field, value in fields.items()]
