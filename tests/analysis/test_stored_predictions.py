"""python -m pytest tests/analysis/test_stored_predictions.py"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.made_studies import predictions, record, scores_of, store_predictions, write_study
from msgspec import structs

from analysis.studies.load import load_study
from analysis.studies.stored_predictions import disagreements, read_predictions, recomputed_sweep
from trainables.data.metrics import compute_metrics, predictions_from_logits, score
from trainables.data.tasks import TASKS
from trainables.models.answer_rules import list_rules
from trainables.models.exit_rules import (
    LayerOutputs,
    apply_exit,
    every_patience,
    every_threshold,
    every_uncertainty,
    read_setting,
    rule_as_json,
)
from trainables.runs.evaluation import as_stored

LAYERS, EXAMPLES = 6, 200


def stored(folder, task="rte", method="pabee", **changed):
    arrays = predictions(method, task, 0.7, seed=1, num_examples=EXAMPLES, salt=0) | changed
    row = record(method, task, 0.5)
    store_predictions(write_study(folder, [row]), row.key, arrays)
    return structs.replace(row, **scores_of(task, arrays)), read_predictions(load_study(folder), row)


def swept(task, rules, head="lambdas"):
    """The arrays of a sweep, by PyTorch on full precision, beside the outputs as they are stored."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(LAYERS, EXAMPLES, TASKS[task].num_labels, generator=generator)
    said_by_head = {head: torch.rand(LAYERS, EXAMPLES, generator=generator)}
    labels = predictions("pabee", task, 0.7, seed=1, num_examples=EXAMPLES, salt=0)["labels"]
    results = [apply_exit(rule, LayerOutputs(logits, **said_by_head)) for rule in rules]
    said = [predictions_from_logits(TASKS[task], result.logits.numpy()) for result in results]
    return {
        "layer_logits": as_stored(logits.numpy()),
        head: said_by_head[head].numpy(),
        "sweep_rule": np.array([rule.name for rule in rules]),
        "sweep_rule_fields": np.array([rule_as_json(rule) for rule in rules]),
        "sweep_field": np.array([rule.field for rule in rules]),
        "sweep_setting": np.array([read_setting(rule) for rule in rules]),
        "sweep_score": np.array([score(TASKS[task], compute_metrics(TASKS[task], own, labels)) for own in said]),
        "sweep_mean_layers": np.array([result.exit_layer.double().mean().item() for result in results]),
    }


@pytest.mark.parametrize(("task", "threshold"), [("rte", None), ("stsb", 0.5)])
def test_sweep_of_full_precision_is_recomputed_from_the_stored_outputs(tmp_path, task, threshold):
    arrays = swept(task, [*every_patience(LAYERS, threshold), *every_threshold()])
    _, found = stored(tmp_path, task, **arrays)
    assert len(set(arrays["sweep_score"])) > 5
    told = np.stack([arrays["sweep_score"], arrays["sweep_mean_layers"]], axis=1)
    assert recomputed_sweep(found) == pytest.approx(told, abs=1e-9)


def test_uncertainties_are_recomputed_and_taken_for_no_posterior(tmp_path):
    arrays = swept("rte", every_uncertainty(), head="uncertainties")
    _, found = stored(tmp_path, method="berxit", **arrays)
    told = np.stack([arrays["sweep_score"], arrays["sweep_mean_layers"]], axis=1)
    assert recomputed_sweep(found) == pytest.approx(told, abs=1e-9)
    assert told[0, 1] == LAYERS and told[-1, 1] == 1
    assert found.exit_probabilities is None


@pytest.mark.parametrize("task", ["rte", "mnli", "stsb"])
def test_rules_on_answers_are_recomputed_as_they_were_swept(tmp_path, task):
    arrays = predictions("pabee", task, 0.7, seed=1, num_examples=EXAMPLES, salt=0)
    generator = torch.Generator().manual_seed(1)
    outputs = torch.randn(LAYERS, EXAMPLES, TASKS[task].num_labels, generator=generator)
    kept = torch.from_numpy(as_stored(outputs.numpy()).astype(np.float32))
    rules = list_rules(LAYERS, TASKS[task].num_labels)
    results = [apply_exit(rule, LayerOutputs(kept, None)) for rule in rules]
    said = [predictions_from_logits(TASKS[task], result.logits.numpy()) for result in results]
    scores = [score(TASKS[task], compute_metrics(TASKS[task], own, arrays["labels"], arrays["split"])) for own in said]
    layers = [result.exit_layer.double().mean().item() for result in results]
    names = {"sweep_rule": "name", "sweep_field": "field"}
    swept = {array: np.array([getattr(rule, name) for rule in rules]) for array, name in names.items()}
    swept |= {"sweep_rule_fields": np.array([rule_as_json(rule) for rule in rules]), "sweep_score": np.array(scores)}
    swept |= {"sweep_setting": np.array([read_setting(rule) for rule in rules]), "sweep_mean_layers": np.array(layers)}
    row, found = stored(tmp_path, task, **swept, layer_logits=as_stored(outputs.numpy()))
    assert recomputed_sweep(found) == pytest.approx(np.stack([scores, layers], axis=1), abs=1e-9)
    assert disagreements(row, found) == []


@pytest.mark.parametrize("name", ["sweep_score", "sweep_mean_layers"])
def test_a_changed_sweep_is_found(tmp_path, name):
    row, found = stored(tmp_path, **swept("rte", every_patience(LAYERS, None)))
    assert disagreements(row, found) == []
    changed = replace(found, **{name: getattr(found, name) + np.eye(LAYERS)[2] * 0.1})
    (line,) = disagreements(row, changed)
    assert line.startswith("patience at 3: the sweep has score ")


def test_rules_of_other_packages_are_not_recomputed(tmp_path):
    arrays = swept("rte", every_patience(LAYERS, None)) | {"sweep_rule": np.array(["mine"] * LAYERS)}
    _, own = stored(tmp_path / "own", **arrays)
    assert np.isnan(recomputed_sweep(own)).all()


def test_scores_and_layers_are_means_over_the_draws(tmp_path):
    row, found = stored(tmp_path, "mrpc", "pondernet")
    assert found.draws == 4 and found.answers.shape == found.exit_layers.shape == (4, EXAMPLES)
    each = [compute_metrics(TASKS["mrpc"], answers, found.labels) for answers in found.answers]
    assert found.score == pytest.approx(np.mean([score(TASKS["mrpc"], metrics) for metrics in each]))
    assert found.metrics["f1"] == pytest.approx(np.mean([metrics["f1"] for metrics in each]))
    assert disagreements(row, found) == []


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("logits", (EXAMPLES, 2), r"logits has shape \(200, 2\); allowed: \(1, 200, 2\)"),
        ("logits", (1, EXAMPLES, 3), r"logits has shape \(1, 200, 3\); allowed: \(1, 200, 2\)"),
        ("exit_layers", (3, EXAMPLES), r"logits has shape \(1, 200, 2\); allowed: \(3, 200, 2\)"),
        ("exit_layers", (), r"exit_layers has shape \(\); allowed: \(0, 200\), with at least one element on each axis"),
        ("labels", (7,), r"labels has shape \(7,\); allowed: \(200,\)"),
        ("lengths", (7,), r"lengths has shape \(7,\); allowed: \(200,\)"),
        ("lambdas", (5, EXAMPLES), r"lambdas has shape \(5, 200\); allowed: \(12, 200\)"),
        ("layer_logits", (5, EXAMPLES, 3), r"layer_logits has shape \(5, 200, 3\); allowed: \(5, 200, 2\)"),
    ],
)
def test_an_array_of_another_shape_is_one_line(tmp_path, name, shape, message):
    row = record("pabee", "rte", 0.5)
    arrays = predictions("pabee", "rte", 0.7, seed=1, num_examples=EXAMPLES, salt=0) | {name: np.ones(shape)}
    store_predictions(write_study(tmp_path, [row]), row.key, arrays)
    with pytest.raises(ValueError, match=message):
        read_predictions(load_study(tmp_path), row)
