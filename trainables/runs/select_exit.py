"""Chooses the exit setting of an epoch and computes its selection score, as `--select-by` demands.

By default, the selection score is the score of the best exit setting. There are two alternatives.
Each gives one number, so the choice of epochs, ASHA, the sampler and the choice of winners use it like any score:

* `at:6`: the best score of the exit settings that run at most 6 mean layers on the selection split. If every setting
  runs more, the setting with the fewest layers is chosen, and the selection score is the score of leaving always
  after layer 6, which would keep to the limit.
* `area`: the mean score over the Pareto front of all exit settings, from one layer to all. Each single layer counts as
  a setting too, so that the fronts of all models cover the same range. The exit setting is the one with the best score.
  (castorini/berxit at 1fb2162, plotting/auc.py:57-95, compares two curves by the area between them.)

If the model cannot leave early, both alternatives equal the model's score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec import UNSET, UnsetType

from trainables.data.examples import Examples
from trainables.data.tasks import Task
from trainables.models.early_exit import EarlyExitModel
from trainables.models.exit_rules import with_setting
from trainables.models.fronts import ROUNDING, front_weights, pareto_places
from trainables.runs.evaluation import Evaluation, best_evaluation, layer_score, swept
from trainables.runs.trial import AREA, AT_LAYERS


def select_exit(
    evaluations: Sequence[Evaluation],
    select_by: str | UnsetType,
    *,
    model: EarlyExitModel,
    task: Task,
    examples: Examples,
) -> Evaluation:
    """Choose an exit setting; return the evaluation under this setting, with the selection score of the epoch.

    Args:
        evaluations: evaluations of the same outputs, one for each setting of the model's exit.
    """
    best, depth = best_evaluation(evaluations), evaluations[0].num_layers
    rules = [with_setting(model.exit_rule, evaluation.exit_setting) for evaluation in evaluations]
    if select_by is UNSET or all(rule.earliest(depth) == depth for rule in rules):
        return best
    if select_by == AREA:
        return replace(best, selection_score=_compute_area(evaluations, model, task, examples))
    most = float(select_by.removeprefix(AT_LAYERS))
    within = [evaluation for evaluation in evaluations if evaluation.mean_layers <= most + ROUNDING]
    if within:
        return best_evaluation(within)
    fewest = min(evaluations, key=lambda evaluation: (evaluation.mean_layers, -evaluation.score))
    return replace(fewest, selection_score=layer_score(fewest.outputs, math.floor(most), task, examples))


def _compute_area(evaluations: Sequence[Evaluation], model: EarlyExitModel, task: Task, examples: Examples) -> float:
    outputs, depth = evaluations[0].outputs, evaluations[0].num_layers
    points = [(setting.mean_layers, setting.score) for setting in evaluations]
    points += [(setting.mean_layers, setting.score) for setting in swept(model, task, examples, outputs)]
    points += [(layer, layer_score(outputs, layer, task, examples)) for layer in range(1, depth + 1)]
    layers, scores = np.array([point for point in points if math.isfinite(point[1])]).T
    front = pareto_places(layers, scores)
    return float(front_weights(layers[front], 1, depth) @ scores[front])
