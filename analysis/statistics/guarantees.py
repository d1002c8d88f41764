"""Find safe exit settings. At a safe setting, few examples lose the right answer because they exit early.

The settings are chosen on stored dev predictions. `trainables.models.safe_exits` defines the bound on the share of
such examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.studies.cells import Cell
from analysis.studies.stored_predictions import Predictions, read_cell_predictions
from trainables.data.tasks import TASKS
from trainables.models.safe_exits import EvaluatedSettings, evaluate_settings, find_safe_setting

RISKS = (0.01, 0.02, 0.05)  # allowed shares of examples that lose the right answer


@dataclass(frozen=True)
class Guarantee:
    """Mean layers of a cell's models at the fastest safe setting of an exit rule, for each of `RISKS`."""

    rule: str
    num_layers: int
    examples: int  # number of dev examples
    layers: dict[float, np.ndarray]  # (2, seeds): with labels, then without; all layers if no setting is safe


def guarantees(cell: Cell) -> Iterator[Guarantee]:
    """Yield a guarantee for each exit rule of this package that has stored results for every seed.

    A regression task has no guarantees.

    Raises:
        ValueError: if a predictions file is damaged.
    """
    stored = [] if TASKS[cell.task].is_regression else read_cell_predictions(cell)
    for name in dict.fromkeys(name for predictions in stored for name in predictions.sweep_rule.tolist()):
        rules = [[rule for rule in own.sweep_rules if rule is not None and rule.name == name] for own in stored]
        if all(rules):
            pairs = zip(rules, stored, strict=True)
            yield _guarantee(name, [evaluate_settings(settings, own.outputs) for settings, own in pairs], stored)


def _guarantee(rule: str, evaluations: list[EvaluatedSettings], stored: list[Predictions]) -> Guarantee:
    num_layers = len(stored[0].layer_answers)

    def compute_layers(evaluated: EvaluatedSettings, labels: np.ndarray | None, risk: float) -> float:
        place = find_safe_setting(evaluated.lost(labels), risk)
        return num_layers if place is None else float(evaluated.mean_layers[place])

    pairs = list(zip(evaluations, stored, strict=True))
    layers = {
        risk: np.array(
            [
                [compute_layers(evaluated, predictions.labels, risk) for evaluated, predictions in pairs],
                [compute_layers(evaluated, None, risk) for evaluated in evaluations],
            ]
        )
        for risk in RISKS
    }
    return Guarantee(rule, num_layers, len(stored[0].labels), layers)
