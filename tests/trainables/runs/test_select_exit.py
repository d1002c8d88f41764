"""What epochs are selected by, and the exit setting they take: pytest tests/trainables/runs/test_select_exit.py"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.trials import spec_of
from msgspec.structs import replace

from trainables.models.exit_rules import ExitResult, LayerOutputs
from trainables.models.fronts import pareto_places
from trainables.runs.evaluation import Evaluation, best_evaluation, full_depth_outputs, layer_score, swept
from trainables.runs.training import TrainingRun

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_rows")]

MENU = {"patience": (1, 2, 3)}  # of five layers


def run_of(cache, select_by, *, menu=MENU, **changes) -> TrainingRun:
    config = {"num_hidden_layers": 5, "epochs": 3, "learning_rate": 2e-3}
    spec = spec_of("pabee", config=config, post_hoc=menu, select_by=select_by, **changes)
    run = TrainingRun(replace(spec, config={n: v for n, v in spec.config.items() if n not in menu}), cache=cache)
    while not run.finished:
        run.run_epoch()
    return run


def scores_of_last_epoch(run: TrainingRun) -> tuple[dict[int, tuple[float, float]], list[float]]:
    """Mean layers and score by patience, and the score of each layer."""
    examples, task = run._data.selection, run._task
    outputs = full_depth_outputs(run._model, examples, 64)
    settings = {own.rule.patience: (own.mean_layers, own.score) for own in swept(run._model, task, examples, outputs)}
    return settings, [layer_score(outputs, layer, task, examples) for layer in range(1, 6)]


def evaluation_of(score: float, layers: int) -> Evaluation:
    draw = ExitResult(torch.zeros(2, 2), torch.tensor([layers, layers]))
    return Evaluation(LayerOutputs(torch.zeros(4, 2, 2)), (draw,), {}, score, selection_score=score)


def test_of_equal_scores_the_one_with_fewer_layers_is_taken():
    broken, slow, fast = evaluation_of(math.nan, 1), evaluation_of(0.7, 4), evaluation_of(0.7, 3)
    assert best_evaluation([broken, slow, fast]) is best_evaluation([fast, slow, broken]) is fast


def test_best_setting_within_the_layers_is_taken(cache):
    run = run_of(cache, "at:3.5")
    settings, _ = scores_of_last_epoch(run)
    within = {t: point for t, point in settings.items() if t in MENU["patience"] and point[0] <= 3.5}
    best = max(within, key=lambda t: (within[t][1], -within[t][0]))
    row = run.history[-1]
    assert 0 < len(within) < len(MENU["patience"])
    assert row.exit_setting == {"patience": best}
    assert (row.mean_layers, row.selection_score) == pytest.approx(within[best])
    assert row.reported.score == row.selection_score


def test_model_over_layer_limit_counts_with_its_layer(cache):
    run = run_of(cache, "at:1.5")
    settings, layers = scores_of_last_epoch(run)
    row = run.history[-1]
    assert row.exit_setting == {"patience": 1}
    assert row.selection_score == pytest.approx(layers[0])
    assert (row.mean_layers, row.reported.score) == pytest.approx(settings[1])


def test_area_is_mean_score_over_front(cache):
    run = run_of(cache, "area")
    settings, alone = scores_of_last_epoch(run)
    points = np.array([*settings.values(), *enumerate(alone, start=1)])
    layers, values = points[pareto_places(*points.T)].T
    expected = np.mean(np.interp(np.linspace(1, 5, 40_001), layers, values))
    row = run.history[-1]
    assert row.selection_score == pytest.approx(expected, abs=1e-4)
    assert row.reported.score == pytest.approx(max(settings[t][1] for t in MENU["patience"]))


def test_epoch_is_selected_by_the_same_number(cache):
    run = run_of(cache, "area")
    scores = [row.selection_score for row in run.history]
    assert run.best_epoch == scores.index(max(scores)) + 1


@pytest.mark.parametrize("select_by", ["at:1", "area"])
def test_a_method_without_exits_keeps_its_score(select_by, cache):
    rows = []
    for rule in ({}, {"select_by": select_by}):
        run = TrainingRun(spec_of("albert", config={"epochs": 1}, **rule), cache=cache)
        rows.append(run.run_epoch())
    assert rows[0].selection_score == rows[1].selection_score
    assert rows[1].reported.score == rows[1].selection_score


def test_confirm_trial_with_one_setting_is_held_to_the_layers_too(cache):
    run = run_of(cache, "at:1.5", menu={"patience": (2,)})
    settings, layers = scores_of_last_epoch(run)
    row = run.history[-1]
    assert row.selection_score == pytest.approx(layers[0])
    assert (row.mean_layers, row.reported.score) == pytest.approx(settings[2])


def test_resumed_trial_selects_by_the_same_rule(cache, tmp_path):
    run = run_of(cache, "at:1.5")
    run.save(tmp_path)
    resumed = TrainingRun.resume(tmp_path, cache=cache)
    assert (resumed.spec.select_by, resumed.history) == ("at:1.5", run.history)
    with pytest.raises(ValueError, match="select_by"):
        TrainingRun.resume(tmp_path, spec=replace(run.spec, select_by="area"), cache=cache)
