"""Table of early exits that are guaranteed to harm at most a given share of answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.layouts.evidence import Evidence, make_table
from analysis.layouts.table import HUNDREDTHS, WHOLE, Column, Entry, Table
from analysis.statistics.guarantees import RISKS, Guarantee, guarantees
from trainables.models.safe_exits import CONFIDENCE


def _safe_layers(promise: str, risk: float) -> Callable[[Guarantee], Entry]:
    def entry(own: Guarantee) -> Entry:
        numbers = [HUNDREDTHS.text(float(np.median(layers))) for layers in own.layers[promise, risk]]
        is_shown = [bool((layers < own.num_layers).any()) for layers in own.layers[promise, risk]]
        texts = [number if shown else "none" for number, shown in zip(numbers, is_shown, strict=True)]
        return Entry(" / ".join(texts), dict(zip(("_with_labels", "_without"), numbers, strict=True)))

    return entry


GUARANTEES: list[Column[Guarantee]] = [
    Column("num_layers", "of", lambda own: WHOLE.entry(own.num_layers)),
    Column("examples", "examples", lambda own: WHOLE.entry(own.examples)),
    *(
        Column(f"{promise}_{100 * risk:.0f}", f"{100 * risk:.0f} %{words}", _safe_layers(promise, risk))
        for promise, words in (("confident", ""), ("expected", " on average"))
        for risk in RISKS
    ),
]


def guarantees_table(evidence: Evidence) -> Table | None:
    """Tabulate the mean layers of the earliest safe exit; None if no classification task has exit settings."""
    found = {f"{label}/{cell.task}, {own.rule}": own for label, cell in evidence.cells for own in guarantees(cell)}
    if not found:
        return None
    selected = any(study.protocol.selection == "dev" for study in evidence.studies)
    chosen = "the same dev set chose the epoch of each model, so the share lost on new examples may be a little larger"
    return make_table(
        evidence,
        "guarantees",
        title="Exits that are shown to be safe{data}, median over {seeds}",
        first_column="exit",
        columns=GUARANTEES,
        subjects=found.items(),
        unit="layers",
        caption=(
            "Mean layers under the earliest exit that is shown to lose at most this share of examples: "
            f"with {100 * CONFIDENCE:.0f} % confidence, or on average over draws of the dev set. The first number uses "
            "dev labels (lost: all layers are right, the exit is wrong). The second number does not (lost: the exit "
            "answers differently). None: no exit is shown to be safe. Each number is guaranteed by itself, not jointly."
        ),
        notes=[chosen] * selected,
        further={
            "guarantees": [
                {"row": name, "examples": own.examples, "num_layers": own.num_layers, "promise": promise, "risk": risk}
                | {"with_labels": layers[0].tolist(), "without_labels": layers[1].tolist()}
                for name, own in found.items()
                for (promise, risk), layers in own.layers.items()
            ]
        },
    )
