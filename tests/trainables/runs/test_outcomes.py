"""What a trial reports and leaves behind. Run: pytest tests/trainables/runs/test_outcomes.py"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.trials import FEW_ROWS, run_to_the_end, spec_of
from hypothesis import given, settings
from hypothesis import strategies as st

import trainables
from trainables.configuration.schema import from_plain, to_plain
from trainables.data.glue import load_split
from trainables.data.metrics import compute_metrics, predictions_from_logits, score
from trainables.data.tasks import TASKS
from trainables.models.exit_rules import LayerOutputs, exit_probabilities
from trainables.runs.evaluation import as_stored, full_depth_outputs
from trainables.runs.trained_model import load_trained
from trainables.runs.training import TrainingRun
from trainables.runs.trial import EpochRow, Outcome, blocked_exit

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_rows")]


def test_outcome_is_that_of_the_best_epoch(cache, tmp_path):
    run = run_to_the_end(spec_of(config={"epochs": 4, "learning_rate": 3e-3}), cache)
    scores = [row.selection_score for row in run.history]
    run.save(tmp_path)
    outcome = run.outcome()
    best = run.history[int(np.argmax(scores))]  # the first of the highest
    assert run.best_epoch == best.epoch and len(run.history) == 4
    assert outcome.reported == best.reported and outcome.reported.score == max(scores)
    assert run.history[-1].train_examples == 4 * FEW_ROWS
    assert outcome.model == str(tmp_path / f"model-epoch-{best.epoch}")


def test_rows_and_outcomes_are_plain_json(cache):
    run = run_to_the_end(spec_of("pondernet", config={"epochs": 1}), cache)
    rows = json.loads(json.dumps(to_plain(run.history), allow_nan=False))
    outcome = json.loads(json.dumps(to_plain(run.outcome()), allow_nan=False))
    assert from_plain(list[EpochRow], rows, where="rows") == run.history
    assert from_plain(Outcome, outcome, where="outcome") == run.outcome()


@pytest.mark.parametrize(
    "method, task", [("albert", "rte"), ("pabee", "mnli"), ("palbert", "stsb"), ("pondernet", "cola")]
)
def test_predictions_give_the_score_back(method, task, cache, tmp_path):
    run = run_to_the_end(spec_of(method, task, config={"epochs": 1}), cache)
    outcome = run.outcome(predictions=tmp_path / "predictions.npz")
    with np.load(tmp_path / "predictions.npz", allow_pickle=False) as arrays:
        metrics = [
            compute_metrics(
                TASKS[task], predictions_from_logits(TASKS[task], logits), arrays["labels"], arrays["split"]
            )
            for logits in arrays["logits"]
        ]
        assert len(metrics) == (run.spec.config["sample_draws"] if method == "pondernet" else 1)
        assert outcome.reported.score == pytest.approx(np.mean([score(TASKS[task], own) for own in metrics]), abs=1e-12)
        assert outcome.reported.mean_layers == pytest.approx(arrays["exit_layers"].mean(), abs=1e-12)
        assert len(arrays["ids"]) == arrays["exit_layers"].shape[1]
        assert arrays["exit_layers"].min() >= 1 and arrays["exit_layers"].max() <= run.history[0].num_layers
        assert len(arrays["sweep_rule"]) == len(arrays["sweep_setting"]) == len(arrays["sweep_score"])


@pytest.mark.parametrize("method, task", [("pabee", "stsb"), ("palbert", "rte"), ("berxit", "stsb")])
def test_predictions_hold_every_layer_and_posterior(method, task, cache, tmp_path):
    run = run_to_the_end(spec_of(method, task, config={"epochs": 1}), cache)
    run.outcome(predictions=tmp_path / "predictions.npz")
    with np.load(tmp_path / "predictions.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    n = len(arrays["ids"])
    assert arrays["lengths"].tolist() == run._data.dev.lengths.tolist()
    assert arrays["layer_logits"].shape == (run.history[0].num_layers, n, TASKS[task].num_labels)
    assert arrays["layer_logits"].dtype == (np.float32 if task == "stsb" else np.float16)
    answers = np.stack([predictions_from_logits(TASKS[task], logits) for logits in arrays["layer_logits"]])
    assert arrays["logits"].dtype == np.float32 and arrays["exit_layers"].dtype == np.uint8
    for logits, layers in zip(arrays["logits"], arrays["exit_layers"], strict=True):
        said = predictions_from_logits(TASKS[task], logits)
        assert np.array_equal(said, answers[layers - 1, np.arange(n)])
    heads = {name: arrays[name] for name in ("lambdas", "uncertainties") if name in arrays}
    assert [*heads] == {"pabee": [], "palbert": ["lambdas"], "berxit": ["uncertainties"]}[method]
    assert all(head.dtype == np.float32 and head.shape == answers.shape for head in heads.values())


@settings(deadline=None)
@given(st.integers(2, 3), st.integers(0, 2**32 - 1), st.sampled_from([1e-4, 1.0, 1e5]))
def test_stored_logits_have_the_greatest_of_full_precision(num_labels, seed, scale):
    logits = (scale * np.random.default_rng(seed).normal(size=(4, 500, num_labels))).astype(np.float32)
    logits[:, :250] = np.round(logits[:, :250] / scale) * scale * (1 + 1e-5 * np.arange(num_labels))  # nearly tied
    stored = as_stored(logits)
    assert np.array_equal(stored.argmax(axis=2), logits.argmax(axis=2))
    is_normal = (np.abs(logits) > 1e-4) & (np.abs(logits) < 5e4)
    assert np.allclose(stored[is_normal], logits[is_normal], rtol=2e-3)


def test_sweep_holds_the_methods_own_setting(cache, tmp_path):
    run = run_to_the_end(spec_of("palbert", config={"epochs": 1}), cache)
    outcome = run.outcome(predictions=tmp_path / "predictions.npz")
    with np.load(tmp_path / "predictions.npz", allow_pickle=False) as arrays:
        own = (arrays["sweep_rule"] == "threshold") & (arrays["sweep_setting"] == 0.5)
        assert arrays["sweep_score"][own] == [outcome.reported.score]
        assert arrays["sweep_mean_layers"][own] == [outcome.reported.mean_layers]


def test_q_exit_reports_the_largest_probability_of_leaving_early(cache, tmp_path):
    run = run_to_the_end(spec_of("palbert", config={"epochs": 1}), cache)
    outcome = run.outcome(predictions=tmp_path / "predictions.npz")
    with np.load(tmp_path / "predictions.npz", allow_pickle=False) as arrays:
        stay = np.prod(1 - arrays["lambdas"][:-1].astype(float), axis=0)
    assert outcome.reported.metrics["largest_cdf"] == pytest.approx((1 - stay).max(), abs=1e-6)


def test_a_posterior_below_q_is_why_no_example_leaves(snapshot):
    assert blocked_exit({"largest_cdf": 0.163}, {"q": 0.5}) == snapshot


@pytest.mark.parametrize(("metrics", "q"), [({"largest_cdf": 0.51}, 0.5), ({}, 0.5), ({"largest_cdf": 0.1}, None)])
def test_no_exit_is_blocked_without_a_posterior_below_q(metrics, q):
    assert blocked_exit(metrics, {"q": q}) == ""


def test_sampled_exit_reports_mean_and_spread(cache, tmp_path):
    run = run_to_the_end(spec_of("pondernet", config={"epochs": 2, "sample_draws": 40}), cache)
    outcome = run.outcome(predictions=tmp_path / "predictions.npz")
    with np.load(tmp_path / "predictions.npz", allow_pickle=False) as arrays:
        draws = (arrays["logits"].argmax(axis=2) == arrays["labels"]).mean(axis=1)
        layers = arrays["exit_layers"].mean(axis=1)
    assert len(draws) == 40
    assert outcome.reported.score == pytest.approx(draws.mean())
    assert outcome.reported.mean_layers == pytest.approx(layers.mean())
    assert outcome.reported.metrics["sample_std"] == pytest.approx(draws.std(ddof=1))


def test_exit_probabilities_are_those_of_the_geometric_distribution():
    outputs = LayerOutputs(torch.zeros(4, 1, 2), torch.full((4, 1), 0.3))
    expected = torch.tensor([0.3, 0.7 * 0.3, 0.49 * 0.3, 0.343])
    assert torch.allclose(exit_probabilities(outputs)[:, 0].float(), expected)


def test_mean_layers_are_over_both_dev_sets_of_mnli(cache, tmp_path):
    run = run_to_the_end(spec_of("palbert", "mnli", config={"epochs": 1}), cache, limit=None)
    [row] = run.history
    sizes = [len(load_split(TASKS["mnli"], name, "mini").ids) for name in TASKS["mnli"].dev_splits]
    run.outcome(predictions=tmp_path / "predictions.npz")
    with np.load(tmp_path / "predictions.npz", allow_pickle=False) as arrays:
        assert arrays["exit_layers"].shape[1] == sum(sizes)
        assert row.mean_layers == pytest.approx(arrays["exit_layers"].mean())


def test_batches_of_any_size_give_the_same_outputs(cache):
    run = TrainingRun(spec_of("palbert"), cache=cache)
    one_by_one = full_depth_outputs(run._model, run._data.selection, 1)
    batched = full_depth_outputs(run._model, run._data.selection, 64)
    assert torch.allclose(one_by_one.logits, batched.logits, atol=1e-5)
    assert torch.allclose(one_by_one.lambdas, batched.lambdas, atol=1e-5)


@pytest.fixture
def rte_without_dev(tmp_path):
    """RTE in the original layout, train only; and the text of its dev file."""
    rows = {}
    for name in ("train", "dev"):
        split = load_split(TASKS["rte"], name, "mini")
        names = [TASKS["rte"].labels[label] for label in split.labels]
        lines = [f"{i}\t{a}\t{b}\t{label}" for i, (a, b), label in zip(split.ids, split.texts, names, strict=True)]
        rows[name] = "\n".join(["index\tsentence1\tsentence2\tlabel", *lines]) + "\n"
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE" / "train.tsv").write_text(rows["train"])
    return tmp_path, rows["dev"]


def test_holdout_reads_dev_in_the_outcome_and_not_before(rte_without_dev, cache, tmp_path):
    folder, dev = rte_without_dev
    run = run_to_the_end(spec_of(task="rte", data=str(folder), selection="holdout", config={"epochs": 2}), cache)
    assert run.history[-1].train_examples == 2 * (FEW_ROWS * 9 // 10)
    with pytest.raises(ValueError, match=r"dev.tsv"):
        run.outcome()
    (folder / "RTE" / "dev.tsv").write_text(dev)
    outcome = run.outcome(predictions=tmp_path / "predictions.npz")
    with np.load(tmp_path / "predictions.npz", allow_pickle=False) as arrays:
        assert outcome.reported.score == np.mean(arrays["logits"][0].argmax(1) == arrays["labels"])
        assert set(arrays["split"]) == {"dev"}


def test_holdout_without_report_never_reads_dev(rte_without_dev, cache):
    spec = spec_of(
        task="rte", data=str(rte_without_dev[0]), selection="holdout", report_dev=False, config={"epochs": 1}
    )
    run = run_to_the_end(spec, cache)
    assert run.outcome().reported.score == run.history[0].selection_score


def test_holdout_slice_is_the_same_for_every_seed(cache):
    runs = [TrainingRun(spec_of(seed=seed, task="mnli", selection="holdout"), cache=cache) for seed in (1, 2)]
    assert np.array_equal(runs[0]._data.selection.ids, runs[1]._data.selection.ids)
    assert not set(runs[0]._data.selection.ids) & set(runs[0]._data.train.ids)
    assert math.isfinite(runs[0].run_epoch().selection_score)


WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "man", "dog", "is", "was", "not", "##s", ".")


@pytest.fixture
def tokenizer(tmp_path):
    """The folder of a small tokenizer of BERT's kind, which splits words into pieces."""
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "vocab.txt").write_text("\n".join(WORDS))
    (tmp_path / "tokenizer" / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    return tmp_path / "tokenizer"


def test_own_tokenizer_is_stored_with_model(tokenizer, cache, tmp_path):
    own = TrainingRun(spec_of(task="rte", config={"epochs": 1}), cache=cache)
    run = run_to_the_end(spec_of(task="rte", tokenizer=str(tokenizer), config={"epochs": 1}), cache)
    assert run._data.train.tokens.max() < len(WORDS) < own._data.train.tokens.max()  # two entries in one cache
    run.save(tmp_path / "trial")
    assert TrainingRun.resume(tmp_path / "trial", cache=cache).spec.tokenizer == str(tokenizer)
    shutil.rmtree(tokenizer)
    trained = load_trained(Path(run.outcome().model))
    assert trained.spec.tokenizer == str(tokenizer)
    encoded = trained.tokenizer(*load_split(TASKS["rte"], "dev", "mini").texts[0])
    start, length = run._data.selection.starts[0], run._data.selection.lengths[0]
    assert encoded["input_ids"] == run._data.selection.tokens[start : start + length].tolist()
    assert encoded["token_type_ids"] == run._data.selection.token_types[start : start + length].tolist()


def test_a_tokenizer_that_is_not_there_is_refused(cache):
    with pytest.raises(ValueError, match=r"^tokenizer './nowhere' is not a folder"):
        TrainingRun(spec_of(tokenizer="./nowhere"), cache=cache)


@pytest.mark.parametrize("attention", [{}, {"attention": "nystrom", "num_landmarks": 6, "conv_kernel_size": 3}])
def test_trained_model_needs_nothing_but_its_folder(attention, cache, tmp_path):
    run = run_to_the_end(spec_of("palbert", config={"epochs": 1, **attention}), cache)
    run.save(tmp_path)
    trained = load_trained(str(run.outcome().model))
    assert trained.spec == run.spec
    assert trained.config == trainables.configure("palbert", run.spec.config)
    ours = full_depth_outputs(run._model, run._data.selection, 64)
    theirs = full_depth_outputs(trained.model, run._data.selection, 64)
    assert torch.equal(ours.logits, theirs.logits) and torch.equal(ours.lambdas, theirs.lambdas)
    text = load_split(TASKS["sst2"], "dev", "mini").texts[0][0]
    start, length = run._data.selection.starts[0], run._data.selection.lengths[0]
    assert trained.tokenizer(text)["input_ids"] == run._data.selection.tokens[start : start + length].tolist()
