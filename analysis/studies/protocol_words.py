"""The protocol of a study in words, for captions."""

from __future__ import annotations

import json

from analysis.studies.load import Study
from trainables.schema import to_plain

_SELECTION = {
    "dev": "stopped, selected and reported on the dev set",
    "holdout": "stopped and selected on a slice of train, dev read once for the reported number",
}


def is_mini(study: Study) -> bool:
    """Whether the numbers come from the generated tasks, which no published number can be held against."""
    return study.protocol.data == "mini"


def seeds_in_words(study: Study) -> str:
    seeds = study.seeds
    return f"{len(seeds)} seed{'s' if len(seeds) != 1 else ''} ({', '.join(map(str, seeds))})"


def protocol_in_words(studies: list[Study]) -> str:
    """One paragraph: what the numbers are, how they were selected, every other rule, and the hash."""
    rules = to_plain(studies[0].protocol)
    selection = rules.pop("selection", None)
    data = rules.pop("data", None)
    for name in ("aggregate", "metric"):
        rules.pop(name, None)
    if len({study.protocol_hash for study in studies}) > 1:
        rules.pop("settings", None)  # an ablation's: they differ from study to study and are named below its table
    others = ", ".join(f"{name} {_plain(value)}" for name, value in rules.items() if value not in (None, {}, []))
    sentences = [
        f"Protocol {', '.join(dict.fromkeys(study.protocol_hash for study in studies))}: data {data}",
        f"selection {selection} ({_SELECTION[selection]})" if selection in _SELECTION else f"selection {selection}",
        others,
    ]
    return "; ".join(filter(None, sentences)) + "."


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {_plain(item)}" for name, item in value.items()) + ")"
    return value if isinstance(value, str) else json.dumps(value)
