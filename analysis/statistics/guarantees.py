"""Find exit settings with a proven bound on the share of examples that lose the right answer by an early exit.

Such settings are called safe. They are chosen on stored dev predictions. `trainables.models.safe_exits` defines and
proves the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from analysis.studies.cells import Cell
from analysis.studies.stored_predictions import Predictions, read_cell_predictions
from trainables.data.tasks import TASKS
from trainables.models.safe_exits import EvaluatedSettings, confident, evaluate_settings, expected, stored_rules

RISKS = (0.01, 0.02, 0.05)  # allowed shares of examples that lose the right answer
PROMISES: dict[str, Callable[[np.ndarray, float], int | None]] = {"confident": confident, "expected": expected}
Wanted = tuple[str, float]  # kind of bound, and the share allowed


@dataclass(frozen=True)
class Guarantee:
    """Mean layers of a cell's models at an exit rule's safe setting with the fewest mean layers, for each bound."""

    rule: str
    num_layers: int
    examples: int  # number of dev examples
    layers: dict[Wanted, np.ndarray]  # (2, seeds): bounds with labels, then without; all layers if no setting is safe


def guarantees(cell: Cell) -> Iterator[Guarantee]:
    """Yield the guarantee of each exit rule.

    A regression task has no guarantees, because its answers are neither right nor wrong.

    Raises:
        ValueError: if a predictions file is damaged.
    """
    stored = [] if TASKS[cell.task].is_regression else read_cell_predictions(cell)
    for rule in dict.fromkeys(name for predictions in stored for name in predictions.sweep_rule.tolist()):
        evaluations = [_evaluate_settings(rule, predictions) for predictions in stored]
        complete = [evaluated for evaluated in evaluations if evaluated is not None]
        if len(complete) == len(evaluations):
            yield _guarantee(rule, complete, stored)


def _evaluate_settings(rule: str, predictions: Predictions) -> EvaluatedSettings | None:
    """Evaluate the settings of an exit rule, from most to fewest mean layers.

    Return None if the layer outputs or the settings of the rule are not stored.
    """
    if predictions.outputs is None or predictions.sweep_rule_fields is None:
        return None
    rules = stored_rules(predictions.sweep_rule, predictions.sweep_rule_fields, name=rule)
    return evaluate_settings(rules, predictions.outputs) if rules else None


def _guarantee(rule: str, evaluations: list[EvaluatedSettings], stored: list[Predictions]) -> Guarantee:
    num_layers = len(stored[0].layer_answers)

    def compute_layers(evaluated: EvaluatedSettings, labels: np.ndarray | None, promise: str, risk: float) -> float:
        place = PROMISES[promise](evaluated.lost(labels), risk)
        return num_layers if place is None else float(evaluated.mean_layers[place])

    pairs = list(zip(evaluations, stored, strict=True))
    layers = {
        (promise, risk): np.array(
            [
                [compute_layers(evaluated, predictions.labels, promise, risk) for evaluated, predictions in pairs],
                [compute_layers(evaluated, None, promise, risk) for evaluated in evaluations],
            ]
        )
        for promise in PROMISES
        for risk in RISKS
    }
    return Guarantee(rule, num_layers, len(stored[0].labels), layers)
