"""A training run that can be trusted. Run: pytest tests/trainables/runs/test_training.py"""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.messages import one_line
from helpers.trials import FEW_ROWS, LINEAR, assert_equal_weights, run_to_the_end, spec_of, untimed, weights_of
from msgspec.structs import replace
from safetensors.torch import load_file

import trainables
from trainables.configuration.schema import from_json, from_plain, to_plain
from trainables.models.classifiers import ClassifierPerLayer
from trainables.models.exit_rules import Patience
from trainables.runs import random_numbers, training
from trainables.runs.evaluation import evaluating
from trainables.runs.trained_model import load_trained
from trainables.runs.training import TrainingRun
from trainables.runs.training_errors import FiniteLosses
from trainables.runs.trial import TrainingError, TrialSpec
from trainables.runs.trial_files import read_state

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_rows")]


@pytest.mark.parametrize("method", trainables.list_methods())
def test_same_seed_gives_the_same_weights_and_rows(method, cache, tmp_path):
    spec = spec_of(method, config={"epochs": 1})
    torch.manual_seed(3)
    first = run_to_the_end(spec, cache)
    torch.manual_seed(4)
    second = run_to_the_end(spec, cache)
    assert_equal_weights(weights_of(first, tmp_path / "first"), weights_of(second, tmp_path / "second"))
    assert untimed(first.history) == untimed(second.history)


@pytest.mark.parametrize("accumulation", [1, 3])
def test_rows_have_the_parts_of_the_loss(cache, accumulation):
    config = {"epochs": 1, "gradient_accumulation": accumulation}
    run = run_to_the_end(spec_of("palbert", config=config), cache)
    (row,) = run.history
    assert row.losses.steps[-1] == run.steps_per_epoch
    means = {name: values[0] for name, values in row.losses.means.items()}
    assert means["loss"] == pytest.approx(row.train_loss, rel=1e-5)
    assert means["task_loss"] + run._config.beta * means["kl"] == pytest.approx(means["loss"], rel=1e-4)


def test_another_seed_gives_other_weights(cache, tmp_path):
    one, two = (run_to_the_end(spec_of(seed=seed, config={"epochs": 1}), cache) for seed in (1, 2))
    ours, theirs = weights_of(one, tmp_path / "one"), weights_of(two, tmp_path / "two")
    assert not any(torch.equal(ours[name], theirs[name]) for name in ours if name.endswith("weight"))


def test_every_epoch_draws_numbers_of_its_own(cache, monkeypatch):
    keys, derive = [], random_numbers._derive_seed
    monkeypatch.setattr(random_numbers, "_derive_seed", lambda *key: keys.append(key) or derive(*key))
    run_to_the_end(spec_of(seed=7, config={"epochs": 2}), cache)
    purposes = ("order", "dropout", "evaluation", "exits")
    assert {*keys} == {(7, "weights", 0), *product([7], purposes, (1, 2))}


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


def test_model_is_in_training_mode_again_after_an_error_in_its_evaluation():
    model = torch.nn.Linear(1, 1)
    with pytest.raises(KeyError), evaluating(model):
        assert not model.training
        raise KeyError
    assert model.training


def test_loss_that_is_not_finite_names_step_and_learning_rate(cache):
    run = TrainingRun(spec_of(config={"learning_rate": 1e30}), cache=cache)
    with pytest.raises(TrainingError, match=r"(nan|inf) at step 2 .*1e\+30; try"):
        run.run_epoch()


@pytest.mark.parametrize(("rates", "told"), [([0.0, 1e-4], True), ([1e-4, 1e-4], False)])
def test_lower_learning_rate_needs_a_changed_model(rates, told):
    for steps_before, broken_at_first in ((0, True), (0, False), (50, True)):
        all_rates = [1e-4] * steps_before + rates
        losses = FiniteLosses(SimpleNamespace(steps=steps_before, learning_rate_after=all_rates.__getitem__))
        for broken in (broken_at_first, True):
            losses.add(torch.tensor(math.nan if broken else 1.0))
        with pytest.raises(TrainingError) as caught:
            losses.mean()
        is_untrained = steps_before == 0 and (broken_at_first or told)
        assert ("before any step " in str(caught.value)) is is_untrained
        assert ("try a lower learning_rate" in str(caught.value)) is not is_untrained


@pytest.mark.parametrize("task", ["sst2", "stsb"])
def test_weights_that_break_in_the_last_step_are_noticed(task, cache):
    run = TrainingRun(spec_of(task=task, config={"learning_rate": 1e30, "batch_size": 1000}), cache=cache)  # one step
    with pytest.raises(TrainingError, match=r"after step 1 .* 1e\+30; try"):
        run.run_epoch()


def test_out_of_memory_names_the_batch_size_and_half_of_it(cache, monkeypatch):
    run = TrainingRun(spec_of(config={"batch_size": 32}), cache=cache)
    monkeypatch.setattr(run._model, "loss", lambda batch: {"loss": torch.empty(10**15)})
    with pytest.raises(TrainingError, match="batch_size 32; try batch_size 16"):
        run.run_epoch()


def test_other_errors_of_pytorch_are_not_called_out_of_memory(cache, monkeypatch):
    run = TrainingRun(spec_of(), cache=cache)
    monkeypatch.setattr(run._model, "loss", lambda batch: {"loss": torch.ones(2) @ torch.ones(3)})
    with pytest.raises(RuntimeError, match="size"):
        run.run_epoch()


def test_stops_after_epochs_without_improvement_and_a_tie_is_none(cache):
    run = run_to_the_end(spec_of(config={"learning_rate": 1e-12, "epochs": 9, "stop_after": 2}), cache)
    assert [row.selection_score for row in run.history] == [run.history[0].selection_score] * 3
    assert [row.best_epoch == row.epoch for row in run.history] == [True, False, False]
    assert [row.finished for row in run.history] == [False, False, True]
    assert run.best_epoch == 1


def test_stop_after_zero_runs_all_epochs(cache):
    run = run_to_the_end(spec_of(config={"learning_rate": 1e-12, "epochs": 4, "stop_after": 0}), cache)
    assert len(run.history) == 4


OPEN = {"patience": (1, 2, 3, 4)}  # of four layers: 3 and 4 never leave early


def open_spec(**changes):
    spec = spec_of("pabee", config={"num_hidden_layers": 4, "epochs": 3, "learning_rate": 2e-3}, post_hoc=OPEN)
    return replace(spec, config={name: value for name, value in spec.config.items() if name not in OPEN}, **changes)


def test_each_epoch_takes_the_best_exit_setting_of_its_model(cache):
    run = run_to_the_end(open_spec(), cache)
    rows = {t: run_to_the_end(spec_of("pabee", config=open_spec().config | {"patience": t}), cache) for t in (1, 2)}
    for epoch, row in enumerate(run.history):
        pinned = {t: rows[t].history[epoch] for t in (1, 2)}
        best = max(pinned, key=lambda t: (pinned[t].selection_score, -pinned[t].mean_layers))
        assert row.exit_setting == {"patience": best}
        assert (row.selection_score, row.mean_layers) == (pinned[best].selection_score, pinned[best].mean_layers)


def test_settings_that_cannot_leave_early_are_not_tried(cache):
    assert TrainingRun(open_spec(), cache=cache)._exit_settings == [{"patience": 1}, {"patience": 2}]


@pytest.mark.parametrize("selection", ["dev", "holdout"])
def test_chosen_exit_setting_is_reported_and_kept_with_the_model(selection, cache, tmp_path):
    run = run_to_the_end(open_spec(selection=selection), cache)
    chosen = run.history[run.best_epoch - 1].exit_setting
    run.save(tmp_path / "state")
    run.write_model(tmp_path / "model")
    trained = load_trained(tmp_path / "model")
    assert trained.config.patience == trained.model.exit_rule.patience == chosen["patience"]
    resumed = TrainingRun.resume(tmp_path / "state", cache=cache)
    assert resumed.outcome().reported == run.outcome().reported
    stored = run.outcome(predictions=tmp_path / "predictions.npz").reported
    with np.load(tmp_path / "predictions.npz") as file:
        at = file["sweep_setting"].tolist().index(chosen["patience"])
        assert (file["sweep_score"][at], file["sweep_mean_layers"][at]) == (stored.score, stored.mean_layers)


LAST = {"select": "last", "learning_rate": 1e-12, "epochs": 3}  # no epoch is better than the first


def test_where_the_last_epoch_is_selected_it_is_kept_and_reported(cache, tmp_path):
    run = run_to_the_end(spec_of(config=LAST), cache)
    assert [row.best_epoch for row in run.history] == [1, 2, 3]
    run.save(tmp_path)
    outcome = run.outcome(predictions=tmp_path / "predictions.npz")
    assert (run.best_epoch, outcome.reported.metrics) == (3, run.history[-1].metrics)
    assert outcome.reported.score == run.history[-1].selection_score
    kept = load_file(Path(outcome.model) / "model.safetensors")
    assert_equal_weights(kept, read_state(tmp_path)["model"])


def test_the_last_epoch_is_reported_even_if_it_is_worse(cache, tmp_path):
    run = run_to_the_end(spec_of(config={"select": "last", "epochs": 3, "learning_rate": 3e-3}), cache, limit=None)
    scores = [row.selection_score for row in run.history]
    assert scores[-1] < max(scores)  # or this test says nothing
    assert run.outcome().reported.score == scores[-1]
    assert run.outcome(predictions=tmp_path / "predictions.npz").reported.score == scores[-1]


def test_selected_epoch_outputs_are_reused(cache, tmp_path, monkeypatch):
    """A resumed trial asks it again, and hears the same."""
    run = run_to_the_end(spec_of("pondernet"), cache)  # whose exit is drawn
    run.save(tmp_path)
    resumed = TrainingRun.resume(tmp_path, cache=cache)
    asked = resumed.outcome(predictions=tmp_path / "asked.npz")
    monkeypatch.setattr(training, "full_depth_in_steps", None)
    kept = run.outcome(predictions=tmp_path / "kept.npz")
    assert kept.reported == asked.reported
    with np.load(tmp_path / "kept.npz") as mine, np.load(tmp_path / "asked.npz") as theirs:
        assert all(np.array_equal(mine[name], theirs[name], equal_nan=mine[name].dtype.kind == "f") for name in mine)


def test_start_takes_the_encoder_and_new_heads(cache, tmp_path):
    source = run_to_the_end(spec_of(task="mnli", config={"epochs": 1}), cache)
    source.save(tmp_path)
    trained = load_trained(Path(source.outcome().model)).model.state_dict()
    spec = spec_of("palbert", task="rte", start=source.outcome().model, config={"learning_rate": 1e-12})
    started = weights_of(run_to_the_end(replace(spec, config=spec.config | {"epochs": 1}), cache), tmp_path / "started")
    encoder = {name for name in trained if name.startswith("encoder.")}
    assert encoder == {name for name in started if name.startswith("encoder.")}
    assert all(torch.allclose(started[name], trained[name], atol=1e-6) for name in encoder)
    assert started["classifier.weight"].shape != trained["classifier.weight"].shape


def test_second_stage_keeps_encoder_and_last_classifier(cache, tmp_path):
    source = run_to_the_end(spec_of(task="rte", config={"epochs": 1}), cache)
    source.save(tmp_path)
    spec = spec_of("deebert", task="rte", start=source.outcome().model, config={"epochs": 1})
    before = TrainingRun(spec, cache=cache)._model.state_dict()
    begun = {name: value.clone() for name, value in before.items()}
    ended = weights_of(run_to_the_end(spec, cache), tmp_path / "ended")
    first = load_trained(Path(source.outcome().model)).model.state_dict()
    last = f"classifiers.{source.history[0].num_layers - 1}."
    kept = {name: name.replace(last, "classifier.") for name in begun if name.startswith(("encoder.", last))}
    assert set(kept.values()) == first.keys()
    assert all(torch.equal(ended[ours], first[theirs]) for ours, theirs in kept.items())
    trained = begun.keys() - kept.keys()
    assert trained and not any(torch.equal(ended[name], begun[name]) for name in trained)


def test_second_stage_needs_a_classifier_to_keep(cache, tmp_path, snapshot):
    source = run_to_the_end(spec_of("pabee", task="rte", config={"epochs": 1}), cache)
    source.save(tmp_path)
    with pytest.raises(ValueError) as raised:
        TrainingRun(spec_of("deebert", task="rte", start=source.outcome().model), cache=cache)
    assert one_line(raised.value, tmp_path) == snapshot


@pytest.mark.parametrize(
    ("trained", "second", "words"),
    [
        ({"num_hidden_layers": 3}, {"num_hidden_layers": 2}, "reads layer 3 by pooling pooler, but would here read "),
        ({"head": "first_token"}, {}, "by pooling first, but would here read layer "),
        ({"head": "first_token", "pooling": "mean"}, {}, "by pooling mean, but would here read layer "),
    ],
)
def test_second_stage_refuses_a_classifier_of_another_layer_or_input(trained, second, words, cache, tmp_path):
    method, backbone = ("electra-small", "mini-electra") if "head" in trained else ("albert", "mini-albert")
    source = run_to_the_end(spec_of(method, task="rte", backbone=backbone, config={"epochs": 1, **trained}), cache)
    source.save(tmp_path)
    spec = spec_of("deebert", task="rte", backbone=backbone, start=source.outcome().model, config=second)
    with pytest.raises(ValueError, match=words):
        TrainingRun(spec, cache=cache)


def test_few_rows_of_mnli_have_both_dev_sets(cache):
    """Without one of them, its accuracy is the mean of nothing."""
    spec = spec_of(task="mnli", config={"batch_size": 2})
    TrainingRun(spec, cache=cache).try_out()
    assert TrainingRun(spec, cache=cache).measure_epoch_seconds(steps=1) > 0


def test_epoch_is_timed_after_the_end_of_the_first_step(cache, monkeypatch):
    run, order = TrainingRun(spec_of(), cache=cache), []
    step = SimpleNamespace(item=lambda: order.append("step ended"))
    monkeypatch.setattr(run, "_step", lambda batch: step)
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: order.append("clock read") or 0.0))
    run.measure_epoch_seconds(steps=1)
    assert order[:3] == ["step ended", "clock read", "step ended"]


def test_start_refuses_an_encoder_that_does_not_fit(cache, tmp_path, snapshot):
    source = run_to_the_end(spec_of(backbone="mini-bert", config={"epochs": 1}), cache)
    source.save(tmp_path)
    with pytest.raises(ValueError) as raised:
        TrainingRun(spec_of(start=source.outcome().model), cache=cache)
    assert one_line(raised.value, tmp_path) == snapshot


@pytest.mark.parametrize("method", trainables.list_methods())
def test_bfloat16_trains(method, cache):
    run = run_to_the_end(spec_of(method, config={"precision": "bfloat16", "epochs": 1}), cache)
    assert math.isfinite(run.history[0].train_loss)


@pytest.mark.parametrize(
    ("warmup", "changes"), [(2, {"warmup_ratio": 0.25}), (5, {"warmup_ratio": 0.0, "warmup_steps": 5})]
)
def test_linear_schedule_warms_up_and_ends_at_zero(warmup, changes, cache):
    run = TrainingRun(spec_of(config=LINEAR | {"epochs": 1, "learning_rate": 1e-3} | changes), cache=cache)
    rates = []
    step = run._step

    def watched(batch, curve):
        rates.append(run._optimiser._optimizer.param_groups[0]["lr"])
        return step(batch, curve)

    run._step = watched
    run.run_epoch()
    num_steps = FEW_ROWS // 32
    expected = [i / warmup if i < warmup else (num_steps - i) / (num_steps - warmup) for i in range(num_steps)]
    assert rates == pytest.approx([1e-3 * factor for factor in expected])


@pytest.mark.parametrize("changes", [{"task": "rtee"}, {"method": "alberta"}, {"config": {"epochs": 0}}], ids=str)
def test_unknown_values_name_the_menu(changes, cache, snapshot):
    spec = spec_of()
    changed = {"config": spec.config | changes["config"]} if "config" in changes else changes
    with pytest.raises(ValueError) as raised:
        TrainingRun(replace(spec, **changed), cache=cache)
    assert one_line(raised.value) == snapshot


def test_swept_rules_are_checked_before_the_training(cache, monkeypatch):
    class SurePatience(Patience):
        """A rule whose author has forgotten its name."""

    monkeypatch.setattr(ClassifierPerLayer, "sweep_rules", lambda model: [SurePatience(1, None)])
    with pytest.raises(ValueError, match="exit rule SurePatience has the name of a built-in rule, patience; allowed: "):
        TrainingRun(spec_of("pabee"), cache=cache)


def test_spec_with_an_unknown_selection_is_not_read(snapshot):
    with pytest.raises(ValueError) as raised:
        from_plain(TrialSpec, to_plain(spec_of()) | {"selection": "test"}, where="a trial")
    assert one_line(raised.value) == snapshot


def test_spec_survives_json():
    spec = spec_of("palbert")
    assert from_json(TrialSpec, json.dumps(to_plain(spec)).encode(), where="a trial") == spec


def test_the_released_electra_schedule_decays_during_the_warm_up(tmp_path):
    config = LINEAR | {"schedule": "linear_from_start", "warmup_ratio": 0.5, "epochs": 2}
    run = TrainingRun(spec_of(method="albert", config=config), cache=tmp_path)
    steps = 2 * math.ceil(len(run._data.train) / run._config.batch_size)
    rate = run._optimiser._schedule.lr_lambdas[0]
    assert [rate(0), rate(steps // 4), rate(steps // 2), rate(steps)] == pytest.approx([0, 0.375, 0.5, 0], abs=0.02)
