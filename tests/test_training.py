"""A training run that can be trusted. Run: pytest tests/test_training.py"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from trials import run_to_the_end, spec_of

import trainables
from trainables.data.glue import load_split
from trainables.data.tasks import TASKS, compute_metrics, predictions_from_logits, score
from trainables.models.exit_rules import LayerOutputs
from trainables.runs.evaluation import exit_probabilities, full_depth_outputs
from trainables.runs.trained_model import load_trained
from trainables.runs.training import TrainingError, TrainingRun, TrialSpec
from trainables.runs.trial_files import read_state

REPOSITORY = Path(__file__).parents[1]
TIMES = ("train_seconds", "eval_seconds")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def weights_of(run, folder):
    run.save(folder)
    return read_state(folder)["model"]


def untimed(rows):
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def assert_equal_weights(ours, theirs):
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("method", trainables.available())
def test_same_seed_gives_the_same_weights_and_rows(method, cache, tmp_path):
    spec = spec_of(method, config={"epochs": 1})
    torch.manual_seed(3)
    first = run_to_the_end(spec, cache)
    torch.manual_seed(4)
    second = run_to_the_end(spec, cache)
    assert_equal_weights(weights_of(first, tmp_path / "first"), weights_of(second, tmp_path / "second"))
    assert untimed(first.history) == untimed(second.history)


def test_another_seed_gives_other_weights(cache, tmp_path):
    one, two = (run_to_the_end(spec_of(seed=seed, config={"epochs": 1}), cache) for seed in (1, 2))
    ours, theirs = weights_of(one, tmp_path / "one"), weights_of(two, tmp_path / "two")
    assert not any(torch.equal(ours[name], theirs[name]) for name in ours if name.endswith("weight"))


def test_training_leaves_the_callers_generator_alone(cache):
    torch.manual_seed(3)
    run_to_the_end(spec_of("pondernet", config={"epochs": 1}), cache)
    drawn = torch.rand(4)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(4))


def test_evaluating_does_not_change_training(cache, tmp_path):
    spec = spec_of("pondernet", config={"epochs": 2, "classifier_dropout": 0.2})
    left_alone = run_to_the_end(spec, cache)
    disturbed = TrainingRun(spec, cache=cache)
    while not disturbed.finished:
        disturbed.run_epoch()
        disturbed.outcome(predictions=tmp_path / "predictions.npz")
        torch.rand(5)
    assert_equal_weights(weights_of(left_alone, tmp_path / "one"), weights_of(disturbed, tmp_path / "two"))


RESUME = """
import sys
from pathlib import Path
from trainables.runs.training import TrainingRun
cache, *folders = map(Path, sys.argv[1:])
for folder in folders:
    run = TrainingRun.resume(folder, cache=cache)
    while not run.finished:
        run.run_epoch()
        run.save(folder)
"""
RESUMED = ("albert", "palbert", "pondernet")  # without and with exit, and with a sampled one
LINEAR = {"schedule": "linear", "warmup_ratio": 0.1, "gradient_clip": 1.0, "hidden_dropout": 0.1, "weight_decay": 0.01}


@pytest.fixture(scope="module")
def resumed(cache, tmp_path_factory):
    """One trial per method, as it was after its first epoch, and the folder where a new process ran it to its end."""
    folders, runs = {}, {}
    for method in RESUMED:
        runs[method] = TrainingRun(spec_of(method, task="mrpc", config=LINEAR), cache=cache)
        runs[method].run_epoch()
        folders[method] = tmp_path_factory.mktemp(method)
        runs[method].save(folders[method])
    command = [sys.executable, "-c", RESUME, str(cache), *map(str, folders.values())]
    subprocess.run(command, check=True, cwd=REPOSITORY, env=os.environ | {"PYTHONPATH": str(REPOSITORY)})
    return {method: (runs[method], folders[method]) for method in folders}


@pytest.mark.parametrize("method", RESUMED)
def test_resumed_in_a_new_process_equals_uninterrupted(method, resumed, cache, tmp_path):
    run, folder = resumed[method]
    while not run.finished:
        run.run_epoch()
    run.save(tmp_path)
    ours, theirs = read_state(tmp_path), read_state(folder)
    assert_equal_weights(ours["model"], theirs["model"])
    assert untimed(ours["history"]) == untimed(theirs["history"])
    best = [load_file(path / f"model-epoch-{run.best_epoch}" / "model.safetensors") for path in (tmp_path, folder)]
    assert_equal_weights(*best)


def test_resuming_carries_the_costs_on(resumed):
    rows = read_state(resumed["albert"][1])["history"]
    assert [row["train_examples"] for row in rows] == [1000, 2000]
    assert all(rows[0][name] < rows[1][name] for name in TIMES)


def test_resuming_needs_a_saved_trial(cache, tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path}: no saved trial, state.pt is missing"):
        TrainingRun.resume(tmp_path, cache=cache)


def test_killed_while_saving_leaves_a_whole_state(cache, tmp_path):
    """Kills at random moments of saving one epoch, a later one, the first ... in one folder; each time it loads."""
    run = TrainingRun(spec_of(config={"epochs": 9}), cache=cache)
    snapshots = []
    while len(snapshots) < 2:
        if run.run_epoch()["improved"]:
            snapshots.append(tmp_path / f"snapshot-{run.best_epoch}")
            run.save(snapshots[-1])
    known = [TrainingRun.resume(snapshot, cache=cache).history for snapshot in snapshots]
    folder = tmp_path / "trial"
    TrainingRun.resume(snapshots[0], cache=cache).save(folder)
    moments = random.Random(5)
    for _ in range(6):
        saves = [TrainingRun.resume(snapshot, cache=cache) for snapshot in snapshots[::-1] * 3]
        child = multiprocessing.get_context("fork").Process(target=_save_all, args=(saves, folder))
        child.start()
        time.sleep(moments.uniform(0.005, 0.06))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        survivor = TrainingRun.resume(folder, cache=cache)
        assert survivor.history in known
        load_trained(Path(survivor.outcome()["model"]))


def _save_all(runs, folder):
    for run in runs:
        run.save(folder)


def test_saving_keeps_one_model_and_no_leftovers(cache, tmp_path):
    run = TrainingRun(spec_of(), cache=cache)
    (tmp_path / ".model-epoch-1.77").mkdir()  # as a killed process leaves it
    while not run.finished:
        run.run_epoch()
        run.save(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [f"model-epoch-{run.best_epoch}", "state.pt"]


def test_loss_that_is_not_finite_names_step_and_learning_rate(cache):
    run = TrainingRun(spec_of(config={"learning_rate": 1e30}), cache=cache)
    with pytest.raises(TrainingError, match=r"loss is (nan|inf) at step 2, learning rate 1e\+30; try a lower"):
        run.run_epoch()


@pytest.mark.parametrize("task", ["sst2", "stsb"])
def test_weights_that_break_in_the_last_step_are_noticed(task, cache):
    run = TrainingRun(spec_of(task=task, config={"learning_rate": 1e30, "batch_size": 1000}), cache=cache)  # one step
    with pytest.raises(TrainingError, match="outputs are not finite after step 1, learning rate"):
        run.run_epoch()


def test_out_of_memory_names_the_batch_size_and_half_of_it(cache, monkeypatch):
    run = TrainingRun(spec_of(config={"batch_size": 32}), cache=cache)
    monkeypatch.setattr(run._model, "loss", lambda batch: {"loss": torch.empty(10**15)})
    with pytest.raises(TrainingError, match="out of memory with batch_size 32; try 16"):
        run.run_epoch()


def test_other_errors_of_pytorch_are_not_called_out_of_memory(cache, monkeypatch):
    run = TrainingRun(spec_of(), cache=cache)
    monkeypatch.setattr(run._model, "loss", lambda batch: {"loss": torch.ones(2) @ torch.ones(3)})
    with pytest.raises(RuntimeError, match="size"):
        run.run_epoch()


def test_stops_after_epochs_without_improvement_and_a_tie_is_none(cache):
    run = run_to_the_end(spec_of(config={"learning_rate": 1e-12, "epochs": 9, "stop_after": 2}), cache)
    assert [row["selection_score"] for row in run.history] == [run.history[0]["selection_score"]] * 3
    assert [row["improved"] for row in run.history] == [True, False, False]
    assert [row["finished"] for row in run.history] == [False, False, True]
    assert run.best_epoch == 1


def test_stop_after_zero_runs_all_epochs(cache):
    run = run_to_the_end(spec_of(config={"learning_rate": 1e-12, "epochs": 4, "stop_after": 0}), cache)
    assert len(run.history) == 4


def test_outcome_is_that_of_the_best_epoch(cache, tmp_path):
    run = run_to_the_end(spec_of(config={"epochs": 4, "learning_rate": 3e-3}), cache)
    scores = [row["selection_score"] for row in run.history]
    run.save(tmp_path)
    outcome = run.outcome()
    best = run.history[int(np.argmax(scores))]  # the first of the highest
    assert outcome["epoch"] == best["epoch"] and outcome["epochs"] == 4
    assert outcome["score"] == outcome["selection_score"] == max(scores)
    assert outcome["metrics"] == best["metrics"]
    assert outcome["train_examples"] == 4000
    assert outcome["model"] == str(tmp_path / f"model-epoch-{best['epoch']}")


def test_rows_and_outcomes_are_plain_json(cache):
    run = run_to_the_end(spec_of("pondernet", config={"epochs": 1}), cache)
    assert json.loads(json.dumps(run.history, allow_nan=False)) == run.history
    assert json.loads(json.dumps(run.outcome(), allow_nan=False)) == run.outcome()


@pytest.mark.parametrize(
    "method, task", [("albert", "rte"), ("pabee", "mnli"), ("palbert", "stsb"), ("pondernet", "cola")]
)
def test_predictions_give_the_score_back(method, task, cache, tmp_path):
    run = run_to_the_end(spec_of(method, task, config={"epochs": 1}), cache)
    outcome = run.outcome(predictions=tmp_path / "predictions.npz")
    with np.load(tmp_path / "predictions.npz", allow_pickle=False) as arrays:
        predicted = predictions_from_logits(TASKS[task], arrays["logits"])
        metrics = compute_metrics(TASKS[task], predicted, arrays["labels"], arrays["split"])
        draws = arrays.get("draw_scores")
        assert draws is None or draws[0] == score(TASKS[task], metrics)
        assert outcome["score"] == (score(TASKS[task], metrics) if draws is None else pytest.approx(draws.mean()))
        assert len(arrays["ids"]) == len(arrays["exit_layers"]) == sum(run.history[0]["exit_histogram"])
        assert arrays["exit_layers"].min() >= 1 and arrays["exit_layers"].max() <= outcome["num_layers"]
        assert len(arrays["sweep_rule"]) == len(arrays["sweep_setting"]) == len(arrays["sweep_score"])


def test_sweep_holds_the_methods_own_setting(cache, tmp_path):
    run = run_to_the_end(spec_of("palbert", config={"epochs": 1}), cache)
    outcome = run.outcome(predictions=tmp_path / "predictions.npz")
    with np.load(tmp_path / "predictions.npz", allow_pickle=False) as arrays:
        own = (arrays["sweep_rule"] == "threshold") & (arrays["sweep_setting"] == 0.5)
        assert arrays["sweep_score"][own] == [outcome["score"]]
        assert arrays["sweep_mean_layers"][own] == [outcome["mean_layers"]]


def test_sampled_exit_reports_mean_spread_and_expectation(cache, tmp_path):
    run = run_to_the_end(spec_of("pondernet", config={"epochs": 2, "sample_draws": 40}), cache)
    outcome = run.outcome(predictions=tmp_path / "predictions.npz")
    with np.load(tmp_path / "predictions.npz", allow_pickle=False) as arrays:
        draws, layers = arrays["draw_scores"], arrays["draw_mean_layers"]
    assert outcome["score"] == pytest.approx(draws.mean())
    assert outcome["mean_layers"] == pytest.approx(layers.mean())
    assert outcome["metrics"]["sample_std"] == pytest.approx(draws.std(ddof=1))
    error = 4 * draws.std(ddof=1) / math.sqrt(len(draws))
    assert outcome["metrics"]["expected_accuracy"] == pytest.approx(outcome["score"], abs=error)
    assert outcome["metrics"]["expected_mean_layers"] == pytest.approx(outcome["mean_layers"], abs=0.05)


def test_exit_probabilities_are_those_of_the_geometric_distribution():
    outputs = LayerOutputs(torch.zeros(4, 1, 2), torch.full((4, 1), 0.3))
    expected = torch.tensor([0.3, 0.7 * 0.3, 0.49 * 0.3, 0.343])
    assert torch.allclose(exit_probabilities(outputs)[:, 0].float(), expected)


def test_mean_layers_are_over_both_dev_sets_of_mnli(cache):
    run = run_to_the_end(spec_of("palbert", "mnli", config={"epochs": 1}), cache)
    [row] = run.history
    sizes = [len(load_split(TASKS["mnli"], name, "mini").ids) for name in TASKS["mnli"].dev_splits]
    layers = np.arange(1, len(row["exit_histogram"]) + 1)
    assert sum(row["exit_histogram"]) == sum(sizes)
    assert row["mean_layers"] == pytest.approx(np.average(layers, weights=row["exit_histogram"]))


def test_batches_of_any_size_give_the_same_outputs(cache):
    run = TrainingRun(spec_of("palbert"), cache=cache)
    one_by_one = full_depth_outputs(run._model, run._selection_set, 1)
    batched = full_depth_outputs(run._model, run._selection_set, 64)
    assert torch.allclose(one_by_one.logits, batched.logits, atol=1e-5)
    assert torch.allclose(one_by_one.lambdas, batched.lambdas, atol=1e-5)


@pytest.fixture
def rte_without_dev(tmp_path):
    """RTE in the original layout, train only; and the text of its dev file."""
    rows = {}
    for name in ("train", "dev"):
        split = load_split(TASKS["rte"], name, "mini")
        names = [TASKS["rte"].labels[label] for label in split.labels]
        lines = [f"{i}\t{a}\t{b}\t{label}" for i, (a, b), label in zip(split.ids, split.texts, names)]
        rows[name] = "\n".join(["index\tsentence1\tsentence2\tlabel", *lines]) + "\n"
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE" / "train.tsv").write_text(rows["train"])
    return tmp_path, rows["dev"]


@pytest.mark.filterwarnings("ignore:.*rows; the official")
def test_holdout_reads_dev_in_the_outcome_and_not_before(rte_without_dev, cache, tmp_path):
    folder, dev = rte_without_dev
    run = run_to_the_end(spec_of(task="rte", data=str(folder), selection="holdout", config={"epochs": 2}), cache)
    assert [row["score"] for row in run.history] == [None, None]
    assert run.history[-1]["train_examples"] == 2 * 900 and sum(run.history[0]["exit_histogram"]) == 100
    with pytest.raises(ValueError, match="dev.tsv"):
        run.outcome()
    (folder / "RTE" / "dev.tsv").write_text(dev)
    outcome = run.outcome(predictions=tmp_path / "predictions.npz")
    with np.load(tmp_path / "predictions.npz", allow_pickle=False) as arrays:
        assert outcome["score"] == np.mean(arrays["logits"].argmax(1) == arrays["labels"])
        assert set(arrays["split"]) == {"dev"}


@pytest.mark.filterwarnings("ignore:.*rows; the official")
def test_holdout_without_report_never_reads_dev(rte_without_dev, cache):
    spec = spec_of(
        task="rte", data=str(rte_without_dev[0]), selection="holdout", report_dev=False, config={"epochs": 1}
    )
    outcome = run_to_the_end(spec, cache).outcome()
    assert outcome["score"] == outcome["selection_score"]


def test_holdout_slice_is_the_same_for_every_seed(cache):
    runs = [TrainingRun(spec_of(seed=seed, task="mnli", selection="holdout"), cache=cache) for seed in (1, 2)]
    assert np.array_equal(runs[0]._selection_set.ids, runs[1]._selection_set.ids)
    assert not set(runs[0]._selection_set.ids) & set(runs[0]._train_set.ids)
    assert math.isfinite(runs[0].run_epoch()["selection_score"])


def test_trained_model_needs_nothing_but_its_folder(cache, tmp_path):
    run = run_to_the_end(spec_of("palbert", config={"epochs": 1}), cache)
    run.save(tmp_path)
    trained = load_trained(Path(run.outcome()["model"]))
    assert trained.spec == run.spec
    ours = full_depth_outputs(run._model, run._selection_set, 64)
    theirs = full_depth_outputs(trained.model, run._selection_set, 64)
    assert torch.equal(ours.logits, theirs.logits) and torch.equal(ours.lambdas, theirs.lambdas)
    text = load_split(TASKS["sst2"], "dev", "mini").texts[0][0]
    start, length = run._selection_set.starts[0], run._selection_set.lengths[0]
    assert trained.tokenizer(text)["input_ids"] == run._selection_set.tokens[start : start + length].tolist()


def test_start_from_takes_the_encoder_and_new_heads(cache, tmp_path):
    source = run_to_the_end(spec_of(task="mnli", config={"epochs": 1}), cache)
    source.save(tmp_path)
    trained = load_trained(Path(source.outcome()["model"])).model.state_dict()
    spec = spec_of("palbert", task="rte", start_from=source.outcome()["model"], config={"learning_rate": 1e-12})
    started = weights_of(run_to_the_end(replace(spec, config=spec.config | {"epochs": 1}), cache), tmp_path / "started")
    encoder = {name for name in trained if name.startswith("encoder.")}
    assert encoder == {name for name in started if name.startswith("encoder.")}
    assert all(torch.allclose(started[name], trained[name], atol=1e-6) for name in encoder)
    assert started["classifier.weight"].shape != trained["classifier.weight"].shape


def test_start_from_refuses_an_encoder_that_does_not_fit(cache, tmp_path):
    source = run_to_the_end(spec_of(backbone="mini-bert", config={"epochs": 1}), cache)
    source.save(tmp_path)
    with pytest.raises(ValueError, match=r"start_from .*: its encoder \(mini-bert, task sst2\) does not fit"):
        TrainingRun(spec_of(start_from=source.outcome()["model"]), cache=cache)


@pytest.mark.parametrize("method", trainables.available())
def test_bfloat16_trains(method, cache):
    run = run_to_the_end(spec_of(method, config={"precision": "bfloat16", "epochs": 1}), cache)
    assert math.isfinite(run.history[0]["train_loss"])


def test_linear_schedule_warms_up_and_ends_at_zero(cache):
    run = TrainingRun(spec_of(config=LINEAR | {"epochs": 1, "learning_rate": 1e-3}), cache=cache)
    rates = []
    step = run._step

    def watched(batch):
        rates.append(run._optimizer.param_groups[0]["lr"])
        return step(batch)

    run._step = watched
    run.run_epoch()
    num_steps, warmup = 32, 3
    expected = [i / warmup if i < warmup else (num_steps - i) / (num_steps - warmup) for i in range(num_steps)]
    assert rates == pytest.approx([1e-3 * factor for factor in expected])


def test_unknown_values_name_the_menu(cache):
    with pytest.raises(ValueError, match="no task named 'rtee'; available: sst2, rte"):
        TrainingRun(replace(spec_of(), task="rtee"), cache=cache)
    with pytest.raises(ValueError, match="no method named 'alberta'; available: albert"):
        TrainingRun(replace(spec_of(), method="alberta"), cache=cache)
    with pytest.raises(ValueError, match="selection is 'test'; allowed: dev, holdout"):
        spec_of(selection="test")


def test_spec_survives_json():
    spec = spec_of("palbert")
    assert TrialSpec(**json.loads(json.dumps(asdict(spec)))) == spec


def test_the_released_electra_schedule_decays_during_the_warm_up(tmp_path):
    config = LINEAR | {"schedule": "linear_from_start", "warmup_ratio": 0.5, "epochs": 2}
    run = TrainingRun(spec_of(method="albert", config=config), cache=tmp_path)
    steps = 2 * math.ceil(len(run._train_set) / run._config.batch_size)
    rate = run._schedule.lr_lambdas[0]
    assert [rate(0), rate(steps // 4), rate(steps // 2), rate(steps)] == pytest.approx([0, 0.375, 0.5, 0], abs=0.02)
