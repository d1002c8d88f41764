"""python -m pytest tests/analysis/test_stored_predictions.py"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.made_studies import predictions, record, scores_of, store_predictions, write_study
from msgspec import structs

from analysis.studies.load import load_study
from analysis.studies.stored_predictions import disagreements, read_predictions, recomputed_sweep
from trainables.data.metrics import compute_metrics, score
from trainables.data.tasks import TASKS
from trainables.models.exit_rules import LayerOutputs, Patience, apply_exit

LAYERS, EXAMPLES = 6, 200


def stored(folder, task="rte", method="pabee", **changed):
    arrays = predictions(method, task, 0.7, seed=1, num_examples=EXAMPLES, salt=0) | changed
    row = record(method, task, 0.5)
    store_predictions(write_study(folder, [row]), row.key, arrays)
    return structs.replace(row, **scores_of(task, arrays)), read_predictions(load_study(folder), row)


def swept_patience(task, threshold):
    """The arrays of a patience sweep, by the model's own rule."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(LAYERS, EXAMPLES, TASKS[task].num_labels, generator=generator)
    labels = predictions("pabee", task, 0.7, seed=1, num_examples=EXAMPLES, salt=0)["labels"]
    results = [
        apply_exit(Patience(patience, threshold), LayerOutputs(logits, None)) for patience in range(1, LAYERS + 1)
    ]
    answers = logits[:, :, 0].numpy() if threshold else logits.argmax(dim=2).numpy().astype(np.int8)
    said = [result.logits[:, 0].numpy() if threshold else result.logits.argmax(dim=1).numpy() for result in results]
    return {
        "layer_answers": answers,
        "sweep_rule": np.array(["patience"] * LAYERS),
        "sweep_setting": np.arange(1.0, LAYERS + 1),
        "sweep_score": np.array([score(TASKS[task], compute_metrics(TASKS[task], own, labels)) for own in said]),
        "sweep_mean_layers": np.array([result.exit_layer.double().mean().item() for result in results]),
    }


@pytest.mark.parametrize(("task", "threshold"), [("rte", None), ("stsb", 0.5)])
def test_every_patience_is_recomputed_from_the_layers_answers(tmp_path, task, threshold):
    arrays = swept_patience(task, threshold)
    _, found = stored(tmp_path, task, **arrays)
    assert len(set(arrays["sweep_score"])) > 2
    assert recomputed_sweep(found, threshold) == pytest.approx(arrays["sweep_score"], abs=1e-9)


def test_a_changed_sweep_is_found(tmp_path):
    row, found = stored(tmp_path, **swept_patience("rte", None))
    assert disagreements(row, found) == []
    changed = replace(found, sweep_score=found.sweep_score + np.eye(LAYERS)[2] * 0.1)
    (line,) = disagreements(row, changed)
    assert line.startswith("patience at 3 scores ")


def test_thresholds_but_the_last_layers_are_not_recomputable(tmp_path):
    _, found = stored(tmp_path, sweep_rule=np.array(["threshold"] * 9), sweep_setting=np.linspace(0.2, 1, 9))
    assert np.isnan(recomputed_sweep(found, None)).tolist() == [True] * 8 + [False]


def test_a_regressions_patience_needs_its_threshold(tmp_path):
    _, found = stored(tmp_path, "stsb", **swept_patience("stsb", 0.5))
    assert np.isnan(recomputed_sweep(found, None)).all()


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
        ("logits", (EXAMPLES, 2), r"logits has shape \(200, 2\); allowed: 200 examples, at least one, on axis 1"),
        ("logits", (1, EXAMPLES, 3), r"logits have shape \(1, 200, 3\); allowed: 1 draw\(s\), 200 examples, 2 label"),
        ("exit_layers", (3, EXAMPLES), r"logits have shape \(1, 200, 2\); allowed: 3 draw\(s\)"),
        ("labels", (7,), r"labels has shape \(7,\); allowed: 200 examples"),
        ("exit_probabilities", (5, EXAMPLES), r"exit_probabilities have shape \(5, 200\); allowed: \(12, 200\)"),
    ],
)
def test_an_array_of_another_shape_is_one_line(tmp_path, name, shape, message):
    row = record("pabee", "rte", 0.5)
    arrays = predictions("pabee", "rte", 0.7, seed=1, num_examples=EXAMPLES, salt=0) | {name: np.ones(shape)}
    store_predictions(write_study(tmp_path, [row]), row.key, arrays)
    with pytest.raises(ValueError, match=message):
        read_predictions(load_study(tmp_path), row)
