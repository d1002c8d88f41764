"""The best setting within a number of layers, and the cheapest that keeps a score: tests/analysis/test_budgets.py"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.places import ROOT
from helpers.swept_studies import LAYERS, swept_study
from scipy.stats import pearsonr, spearmanr

from analysis.layouts.evidence import gather
from analysis.layouts.exit_tables import exits_table
from analysis.layouts.rendering import render
from analysis.statistics import exit_settings
from analysis.statistics.budgets import (
    MOST_LOST,
    compare_at_equal_layers,
    evaluate_cell,
    evaluate_on_halves,
    read_saving,
    resample_on_halves,
)
from analysis.statistics.exit_settings import HALVINGS, apply_setting, halvings, list_all_settings, list_own_settings
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import read_cell_predictions
from trainables.models.answer_rules import SWEPT_PROBABILITIES, FixedLayer, MaxProbability, list_rules
from trainables.models.exit_rules import Threshold, apply_exit, describe_rule

KEPT = ROOT / "benchmarks" / "results" / "real" / "cpu"


@pytest.fixture(scope="module")
def kept():
    return {task: gather([load_study(KEPT / f"cpu-{task}")]).cells_by_place for task in ("cola", "sst2")}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "s"
    return gather([load_study(swept_study(folder, ["albert", "palbert", "pondernet"], ["rte"]))])


def test_every_setting_of_palbert_within_four_layers_scores_nothing_on_cola(kept):
    stored = read_cell_predictions(kept["cola"]["palbert", "cola"])
    settings = evaluate_on_halves(stored, list_own_settings(stored))
    chosen = settings.best_within(4)
    assert chosen.scores == [0.0] * 10 and max(chosen.mean_layers) <= 4
    assert np.mean(settings.best_within(5).scores) == pytest.approx(0.309, abs=0.0005)


@pytest.mark.parametrize("most_layers", [3, 4, 5])
def test_setting_within_a_budget_is_the_best_of_the_other_half(kept, most_layers):
    """A plain writing for PonderNet on SST-2, whose metric is accuracy."""
    stored = read_cell_predictions(kept["sst2"]["pondernet", "sst2"])
    points = []  # for each setting, layers and right answers of every model, (seeds, n)
    for rule in list_own_settings(stored):
        results = [(one.exit_layers[0], one.answers[0]) for one in stored]
        if rule is not None:
            applied = [apply_exit(rule, one.outputs) for one in stored]
            results = [(result.exit_layer, result.logits.argmax(axis=1)) for result in applied]
        points.append(
            (np.array([one for one, _ in results]), np.array([two for _, two in results]) == stored[0].labels)
        )
    right = []
    for one, two in halvings(stored[0].split):
        for choosing, measuring in ((one, two), (two, one)):
            allowed = [own for own in points if own[0][:, choosing].mean() <= most_layers]
            best = max(allowed, key=lambda own: own[1][:, choosing].sum())
            right.append(best[1][:, measuring].sum(axis=1))
    found = evaluate_on_halves(stored, list_own_settings(stored)).best_within(most_layers)
    assert len(right) == 2 * HALVINGS
    assert found.scores == pytest.approx(np.sum(right, axis=0) / HALVINGS / len(stored[0].labels))


@pytest.mark.parametrize("task", ["cola", "sst2"])
def test_budget_hardly_depends_on_halves(kept, task, monkeypatch):
    stored = read_cell_predictions(kept[task]["pondernet", task])
    scores = []
    for first in (0, 100, 200):
        monkeypatch.setattr(exit_settings, "FIRST_SEED", first)
        scores.append(np.mean(evaluate_on_halves(stored, list_own_settings(stored)).best_within(4).scores))
    assert 100 * (max(scores) - min(scores)) < 0.1


def test_greatest_probability_is_compared_at_layers_of_own_exits(kept):
    """A plain writing for PABEE on SST-2: the threshold is chosen on one half, both rules are measured on the other."""
    stored = read_cell_predictions(kept["sst2"]["pabee", "sst2"])
    own_layers, labels = np.array([one.exit_layers[0] for one in stored]), stored[0].labels
    own_right = np.array([one.answers[0] for one in stored]) == labels
    thresholds = {}
    for threshold in SWEPT_PROBABILITIES:
        layers, right = np.full_like(own_layers, 6), np.zeros_like(own_right)
        for model, one in enumerate(stored):
            powers = np.exp(one.outputs.logits.astype(float))
            greatest = (powers / powers.sum(axis=2, keepdims=True)).max(axis=2)
            for example in range(len(labels)):
                sure = np.flatnonzero(greatest[:-1, example].round(9) > threshold)
                layers[model, example] = sure[0] + 1 if len(sure) else 6
            right[model] = one.layer_answers[layers[model] - 1, np.arange(len(labels))] == labels
        thresholds[threshold] = layers, right
    differences, run = [], []
    for one, two in halvings(stored[0].split):
        for choosing, measuring in ((one, two), (two, one)):
            most = own_layers[:, choosing].mean() + 1e-9
            allowed = [own for own in thresholds.values() if own[0][:, choosing].mean() <= most]
            layers, right = max(allowed, key=lambda own: own[1][:, choosing].sum())
            differences.append((right[:, measuring].astype(int) - own_right[:, measuring]).sum(axis=1))
            run.append(layers[:, measuring].sum(axis=1))
    rules = [MaxProbability(threshold) for threshold in SWEPT_PROBABILITIES]
    found = compare_at_equal_layers(evaluate_on_halves(stored, [None, *rules]), rules, None)
    size = HALVINGS * len(labels)
    assert found.difference.scores == pytest.approx(np.sum(differences, axis=0) / size)
    assert found.chosen.mean_layers == pytest.approx(np.sum(run, axis=0) / size)
    assert found.other_layers == pytest.approx(own_layers.mean(axis=1).tolist())
    assert sum(found.chosen.shares.values()) == pytest.approx(1)


def test_rule_does_not_differ_from_itself(kept):
    """The mean over 100 halvings differs from the score itself by a rounding error, which is no difference."""
    stored, cut = read_cell_predictions(kept["sst2"]["pabee", "sst2"]), FixedLayer(4)
    found = compare_at_equal_layers(evaluate_on_halves(stored, [cut]), [cut], cut)
    assert found.difference.scores == [0.0] * 10 and not found.difference.resampled.any()


def test_rule_that_needs_more_layers_is_not_compared(kept):
    stored = read_cell_predictions(kept["sst2"]["pabee", "sst2"])
    rules = [FixedLayer(5), FixedLayer(6)]
    assert compare_at_equal_layers(evaluate_on_halves(stored, [FixedLayer(4), *rules]), rules, FixedLayer(4)) is None


def test_no_setting_within_a_budget_is_no_score(kept):
    stored = read_cell_predictions(kept["cola"]["pabee", "cola"])
    settings = evaluate_on_halves(stored, list_own_settings(stored))
    assert settings.best_within(1.9) is None and settings.best_within(2.0) is not None  # with patience 1


@pytest.mark.slow
def test_correlation_is_not_that_of_answers_on_two_scales(tmp_path):
    """One setting halves the answers of the other, so a correlation over both would be lower than that of either."""

    def change(method, labels, outputs):
        return replace(outputs, logits=outputs.logits * torch.linspace(0.2, 1, LAYERS)[:, None, None])

    cells = gather([load_study(swept_study(tmp_path / "s", ["pabee"], ["stsb"], change=change))]).cells_by_place
    stored = read_cell_predictions(cells["pabee", "stsb"])
    rules = [FixedLayer(layer) for layer in (3, 12)]
    settings = evaluate_on_halves(stored, rules)
    most_layers = np.tile([3.0, 12.0], (HALVINGS, 1))  # the halves of each pair choose different layers
    chosen = settings.best_within(most_layers)
    assert np.mean(chosen.scores) == pytest.approx(settings.scores.mean(), abs=0.002)
    assert np.mean(chosen.scores) > np.mean([one.score for one in chosen.answers]) + 0.05
    samples = resample_on_halves({("chosen", "stsb"): chosen.answers, ("last", "stsb"): stored})
    assert samples["chosen", "stsb"].scores == chosen.scores
    assert samples["chosen", "stsb"].resampled.mean() == pytest.approx(np.mean(chosen.scores), abs=0.01)


@pytest.mark.slow
def test_rule_of_a_regression_does_not_differ_from_itself(tmp_path):
    cells = gather([load_study(swept_study(tmp_path / "s", ["pabee"], ["stsb"]))]).cells_by_place
    stored, cut = read_cell_predictions(cells["pabee", "stsb"]), FixedLayer(4)
    found = compare_at_equal_layers(evaluate_on_halves(stored, [cut]), [cut], cut)
    assert found.difference.scores == [0.0] * 5 and not found.difference.resampled.any()


@pytest.mark.slow
def test_reference_of_a_regression_is_scored_on_halves_like_the_settings(tmp_path):
    cells = gather([load_study(swept_study(tmp_path / "s", ["albert", "pabee"], ["stsb"], examples=60))]).cells_by_place
    plain = read_cell_predictions(cells["albert", "stsb"])
    found = [
        spearmanr(one.layer_answers[-1][half], one.labels[half])[0] / 2
        + pearsonr(one.layer_answers[-1][half], one.labels[half])[0] / 2
        for one in plain
        for half in halvings(one.split).reshape(-1, 60)
    ]
    saving = read_saving(evaluate_cell(cells["pabee", "stsb"]), cells["albert", "stsb"])
    assert saving.reference_score == pytest.approx(np.mean(found))
    assert abs(saving.reference_score - np.mean([one.score for one in plain])) > 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "task", "own", "of_all"),
    [
        ("palbert", "cola", 5.0, 5.0),
        pytest.param("palbert", "sst2", 4.4, 4.1, marks=pytest.mark.long),
        ("pabee", "cola", 4.6, 4.0),
        pytest.param("pabee", "sst2", 5.0, 4.0, marks=pytest.mark.long),
        ("pondernet", "cola", None, None),
        pytest.param("pondernet", "sst2", None, None, marks=pytest.mark.long),
    ],
)
def test_fewest_layers_of_the_kept_studies_within_one_point_of_albert(kept, method, task, own, of_all):
    saving = read_saving(evaluate_cell(kept[task][method, task]), kept[task]["albert", task])
    assert saving.reference == "albert with all layers"
    assert saving.reference_score == pytest.approx(np.mean(kept[task]["albert", task].scores))
    layers = [chosen and float(np.mean(chosen.mean_layers)) for chosen in (saving.own, saving.of_all)]
    assert [number and round(number, 1) for number in layers] == [own, of_all]


def test_cheapest_setting_is_measured_on_other_half(made):
    """A half on which no setting keeps the score chooses the best one."""
    stored = read_cell_predictions(made.cells_by_place["palbert", "rte"])
    plain = read_cell_predictions(made.cells_by_place["albert", "rte"])
    saving, labels = made.savings["palbert", "rte"], stored[0].labels
    rules = list_own_settings(stored)
    answers = [apply_setting(rule, stored) for rule in rules]
    right = np.array([np.mean([(own == labels).mean(axis=0) for own in one.answers], axis=0) for one in answers])
    layers = np.array([np.mean([own.mean(axis=0) for own in one.exit_layers], axis=0) for one in answers])
    measured, names, failed = np.zeros((2, 2 * HALVINGS)), Counter(), 0
    for number, (one, two) in enumerate(halvings(stored[0].split)):
        for half, (choosing, measuring) in enumerate(((one, two), (two, one))):
            least = np.mean([np.mean((own.answers[0] == labels)[choosing]) for own in plain]) - MOST_LOST
            scores, costs = right[:, choosing].mean(axis=1), layers[:, choosing].mean(axis=1)
            keeping = [place for place in range(len(rules)) if scores[place] >= least - 1e-9]
            failed += not keeping
            best = min(keeping, key=costs.__getitem__) if keeping else int(np.argmax(scores))
            names[answers[best].name] += 1
            measured[:, 2 * number + half] = right[best, measuring].sum(), layers[best, measuring].sum()
    if failed >= HALVINGS:
        assert saving.own is None
        return
    score, cost = measured.sum(axis=1) / HALVINGS / len(labels)
    assert (np.mean(saving.own.scores), np.mean(saving.own.mean_layers)) == pytest.approx((score, cost))
    assert set(saving.own.names) == set(names) and names[saving.own.names[0]] == max(names.values())


@pytest.mark.parametrize(("fitting", "is_measured"), [(2 * HALVINGS, True), (HALVINGS + 1, True), (HALVINGS, False)])
def test_setting_that_fits_on_most_halves_is_measured(made, fitting, is_measured):
    stored = read_cell_predictions(made.cells_by_place["palbert", "rte"])
    settings = evaluate_on_halves(stored, list_own_settings(stored))
    least = np.full(2 * HALVINGS, 2.0)  # of scores up to 1
    least[:fitting] = 0.0
    found = settings.cheapest_keeping(least.reshape(HALVINGS, 2))
    assert (found is not None) == is_measured


def test_last_layer_replaces_missing_plain_model(made):
    cell = made.cells_by_place["pondernet", "rte"]
    stored = read_cell_predictions(cell)
    saving = read_saving(evaluate_cell(cell), None)
    assert saving.reference == "the same models with all layers"
    last = [np.mean(one.layer_answers[-1] == one.labels) for one in stored]
    assert saving.reference_score == pytest.approx(np.mean(last))
    assert np.mean(saving.of_all.mean_layers) <= np.mean(saving.own.mean_layers) + 1  # more rules, on noisy halves


def test_all_settings_are_own_and_every_answer_rule(made):
    stored = read_cell_predictions(made.cells_by_place["palbert", "rte"])
    rules = list_all_settings(stored)
    assert rules[0] is None and Threshold(0.5) in rules and FixedLayer(12) in rules
    assert len(rules) == len(set(rules)) == 1 + 20 + len(list_rules(12, 2))


def test_each_exit_rule_is_applied_once_for_savings_and_rules(tmp_path, monkeypatch):
    evidence = gather([load_study(swept_study(tmp_path / "s", ["albert", "palbert", "pabee"], ["rte"]))])
    applied: Counter[str] = Counter()

    def apply(rule, outputs):
        applied[describe_rule(rule)] += 1
        return apply_exit(rule, outputs)

    monkeypatch.setattr(exit_settings, "apply_exit", apply)
    assert len(evidence.savings) == len(evidence.rules) == 2
    chosen = [own for saving in evidence.savings.values() for own in (saving.own, saving.of_all) if own is not None]
    again = {name for own in chosen for name in own.names}
    assert applied and max(number for name, number in applied.items() if name not in again) == 2  # cells


@pytest.mark.long
@pytest.mark.slow
def test_table_prints_a_dash_where_no_setting_keeps_the_score():
    evidence = gather([load_study(KEPT / "cpu-cola")])
    table = exits_table(evidence)
    lines = {line.label: line.entries for line in table.lines}
    assert lines["pondernet/cola"]["fewest_layers"].text == "- / -"
    assert lines["pabee/cola"]["fewest_layers"].numbers["_own"] == "4.6"
    assert "fewest_layers" not in lines["albert/cola"]
    rows = {row.split(",")[0]: row for row in render(table, "csv").splitlines()}
    assert "fewest_layers_own,fewest_layers_own_difference,fewest_layers_any" in next(iter(rows.values()))
    (pabee,) = [one for one in table.sidecar["savings"] if one["row"] == "pabee"]
    assert pabee["any"]["settings"][0] == "fixed 4"
