"""Updates, against plain formulas and between themselves: pytest tests/trainables/runs/test_optimiser.py"""

import copy
import math
from contextlib import nullcontext

import pytest
import torch
from helpers.configurations import config_of, values_of
from helpers.corpora import pretraining_config
from helpers.messages import one_line
from helpers.plain_pretraining import plain_lamb
from torch import nn
from transformers import get_scheduler

import trainables
from trainables.configuration.schema import to_plain
from trainables.data.examples import load_examples, prepare_tokenizer
from trainables.data.tasks import TASKS
from trainables.encoders.loading import load_encoder
from trainables.models import classifiers
from trainables.models.classifiers import LastLayerModel
from trainables.runs import training
from trainables.runs.optimiser import Optimiser, decay_groups, training_words
from trainables.runs.training import TrainingRun
from trainables.runs.trial import TrainingError, TrialSpec
from trainables.runs.trial_files import read_state

pytestmark = pytest.mark.usefixtures("few_rows")

STEPS = 5
OPTIMIZERS = ["adamw", "adamw_uncorrected", "lamb", "lamb_clamped"]


def optimiser_of(model, weight_decay, *, kind="adamw", num_steps=STEPS, warmup_steps=0, **changes):
    values = {"learning_rate": 0.1, "adam_epsilon": 1e-6, "schedule": "constant", "gradient_clip": 0.0}
    config = pretraining_config(**(values | changes))
    groups = decay_groups(model, weight_decay)
    return Optimiser(model, groups, config, num_steps=num_steps, warmup_steps=warmup_steps, kind=kind)


def model_of():
    """A matrix with a norm of 14, a normalisation that starts at one and zero."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4))
    with torch.no_grad():
        model[0].weight.mul_(14 / model[0].weight.norm())
    return model


def trajectories(model, kind, weight_decay, gradients):
    """Every parameter after each step on given gradients."""
    optimiser = optimiser_of(model, weight_decay, kind=kind)
    after = {name: [] for name, _ in model.named_parameters()}
    for step in range(STEPS):
        optimiser.step([(weight * gradients[name][step]).sum() for name, weight in model.named_parameters()])
        for name, weight in model.named_parameters():
            after[name].append(weight.detach().clone())
    return after


@pytest.mark.parametrize(
    ("optimizer", "matrix", "vector"),
    [
        ("adamw_uncorrected", {"ratio": False}, {"ratio": False}),
        ("lamb", {"ratio": True}, {"ratio": False}),
        ("lamb_clamped", {"ratio": True, "clamp": 10.0}, {"ratio": True, "clamp": 10.0}),
    ],
)
def test_every_step_is_that_of_the_formula(optimizer, matrix, vector):
    model = model_of()
    starts = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    gradients = {name: [torch.randn_like(start) for _ in range(STEPS)] for name, start in starts.items()}
    after = trajectories(model, optimizer, 0.3, gradients)
    for name, start in starts.items():
        kind, decay = (matrix, 0.3) if start.ndim > 1 else (vector, 0.0)
        expected = plain_lamb(start, gradients[name], rate=0.1, decay=decay, **kind)
        for ours, theirs in zip(after[name], expected, strict=True):
            assert torch.allclose(ours, theirs, atol=1e-5)


def test_lamb_skips_ratio_without_weight_decay():
    model = model_of()
    gradients = {name: [torch.randn_like(weight)] * STEPS for name, weight in model.named_parameters()}
    bias = model[0].bias.detach().clone()
    after = trajectories(model, "lamb", 0.0, gradients)
    expected = plain_lamb(bias, gradients["0.bias"], rate=0.1, decay=0.0, ratio=False)
    assert torch.allclose(after["0.bias"][-1], expected[-1], atol=1e-6)


def test_what_is_not_trained_is_in_no_group():
    model = model_of()
    model[1].requires_grad_(False)
    groups = decay_groups(model, 0.3)
    assert [(group["weight_decay"], [list(p.shape) for p in group["params"]]) for group in groups] == [
        (0.3, [[4, 6]]),
        (0.0, [[4]]),
    ]


def losses_of(model, parts):
    """Of a batch of 12 in so many parts, each weighted by its share."""
    inputs = torch.randn(12, 6, generator=torch.Generator().manual_seed(3)).to(model[0].weight.dtype)
    for part in inputs.chunk(parts):
        yield (model(part) - 1).square().mean() * len(part) / len(inputs)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("parts", [2, 5, 12])
def test_a_batch_in_parts_gives_the_step_of_the_batch(optimizer, parts):
    whole, split = model_of().double(), model_of().double()
    settings = {"kind": optimizer, "gradient_clip": 0.05, "learning_rate": 0.01}
    one, other = (optimiser_of(model, 0.1, **settings) for model in (whole, split))
    for _ in range(STEPS):
        assert torch.allclose(one.step(losses_of(whole, 1)), other.step(losses_of(split, parts)), atol=1e-12)
    assert one.steps == other.steps == STEPS
    assert all(torch.allclose(a, b, atol=1e-9) for a, b in zip(whole.parameters(), split.parameters(), strict=True))
    assert not torch.allclose(whole[0].weight, model_of()[0].weight.double(), atol=1e-3), "it has moved"


def test_gradient_of_whole_batch_is_clipped():
    model = model_of()
    optimiser_of(model, 0.0, gradient_clip=0.05).step(losses_of(model, 3))
    norm = torch.stack([weight.grad.square().sum() for weight in model.parameters()]).sum().sqrt()
    assert norm.item() == pytest.approx(0.05, rel=1e-4)


def test_next_part_is_computed_after_graph_is_freed():
    model = model_of()
    parts = list(losses_of(model, 2))
    freed = []

    def one_by_one():
        yield parts[0]
        with pytest.raises(RuntimeError, match="second time"):
            parts[0].backward()
        freed.append(True)
        yield parts[1]

    optimiser_of(model, 0.0).step(one_by_one())
    assert freed


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_resumed_updates_are_those_that_would_have_come(optimizer):
    model = model_of()
    settings = {"kind": optimizer, "schedule": "polynomial", "decay_power": 1.0, "warmup_steps": 2, "num_steps": 9}
    optimiser = optimiser_of(model, 0.1, **settings)
    for _ in range(3):
        optimiser.step(losses_of(model, 2))
    again = copy.deepcopy(model)
    resumed = optimiser_of(again, 0.1, **settings)
    resumed.load(copy.deepcopy(optimiser.state()))
    for _ in range(3):
        optimiser.step(losses_of(model, 2))
        resumed.step(losses_of(again, 2))
    assert resumed.steps == optimiser.steps
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0, 0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        ("linear", [0, 0.5, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8, 0]),
        ("linear_from_start", [0, 0.45, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0]),
        ("polynomial", [0, 0.5, 1, 49 / 64, 36 / 64, 25 / 64, 16 / 64, 9 / 64, 4 / 64, 1 / 64, 0]),
    ],
)
def test_a_schedule_warms_up_in_steps_and_then_falls(schedule, expected):
    model = model_of()
    power = 2.0 if schedule == "polynomial" else None
    settings = {"warmup_steps": 2, "num_steps": 10, "learning_rate": 0.001}
    optimiser = optimiser_of(model, 0.0, schedule=schedule, decay_power=power, **settings)
    for _ in range(10):
        optimiser.step(losses_of(model, 1))
    rates = [optimiser.learning_rate_after(steps) for steps in range(11)]
    assert optimiser.steps == 10 and rates == pytest.approx([0.001 * factor for factor in expected])


@pytest.mark.parametrize(
    "schedule", ["constant", "cosine", "inverse_sqrt", "linear", "linear_from_start", "polynomial"]
)
def test_without_warm_up_the_first_step_has_the_full_rate(schedule):
    power = 1.0 if schedule == "polynomial" else None
    settings = {"warmup_steps": 0, "num_steps": 10, "learning_rate": 0.001}
    optimiser = optimiser_of(model_of(), 0.0, schedule=schedule, decay_power=power, **settings)
    assert optimiser.learning_rate_after(0) == 0.001


NAMED = {"constant": "constant_with_warmup"} | {  # name here -> name in transformers
    name: name for name in ("cosine", "inverse_sqrt", "linear", "polynomial")
}


@pytest.mark.parametrize("schedule", NAMED)
def test_a_schedule_of_transformers_is_followed_and_resumed(schedule):
    settings = {"warmup_steps": 3, "num_steps": 12, "learning_rate": 0.001, "schedule": schedule}
    settings |= {"decay_power": 1.0} if schedule == "polynomial" else {}
    model, again = model_of(), model_of()
    optimiser = optimiser_of(model, 0.0, **settings)
    options = {"lr_end": 0.0, "power": 1.0} if schedule == "polynomial" else None
    plain = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.001)
    theirs = get_scheduler(NAMED[schedule], plain, 3, 12, scheduler_specific_kwargs=options)
    for step in range(12):
        assert optimiser.learning_rate_after(step) == pytest.approx(theirs.get_last_lr()[0])
        if step == 6:
            resumed = optimiser_of(again, 0.0, **settings)
            resumed.load(copy.deepcopy(optimiser.state()))
            assert resumed.steps == 6
            assert resumed._optimizer.param_groups[0]["lr"] == optimiser._optimizer.param_groups[0]["lr"]
        optimiser.step(losses_of(model, 1))
        plain.step()
        theirs.step()


def test_a_method_may_have_a_learning_rate_of_its_own():
    class Config(type(config_of("albert"))):
        def learning_rate_at(self, step, steps):
            return self.learning_rate * (1 - step / steps) ** 3

    config = Config(**(to_plain(config_of("albert")) | {"learning_rate": 0.001}))
    model = model_of()
    groups = [{"params": [*model.parameters()], "weight_decay": 0.0, "lr": 0.0005}]
    optimiser = Optimiser(model, groups, config, num_steps=4, warmup_steps=2)
    assert [optimiser.learning_rate_after(step) for step in range(5)] == pytest.approx(
        [0.001, 0.001 * 27 / 64, 0.001 / 8, 0.001 / 64, 0.0]
    )
    optimiser.step([model[0].weight.sum()])
    assert optimiser._optimizer.param_groups[0]["lr"] == pytest.approx(0.0005 * 27 / 64)


def test_the_first_step_of_uncorrected_moments_is_larger():
    """m is 1 - β1 of the gradient and √v √(1 - β2) of it, where the corrected ones are all of it: 3.2 times."""
    corrected, uncorrected = model_of(), model_of()
    for model, optimizer in ((corrected, "adamw"), (uncorrected, "adamw_uncorrected")):
        optimiser = optimiser_of(model, 0.0, kind=optimizer, adam_epsilon=1e-12)
        optimiser.step([model[0].weight.sum()])
    start = model_of()[0].weight
    ratio = (uncorrected[0].weight - start) / (corrected[0].weight - start)
    assert torch.allclose(ratio, torch.full_like(ratio, 0.1 / math.sqrt(0.001)), rtol=1e-3)


# Loss scaling in float16.

OVERFLOWS = [1.0, 1e38, 1.0, 1.0, 1e38, 1.0]  # factors of the losses of six steps; times the scale, 1e38 is infinite


def train_on(model, optimiser, factors):
    for factor in factors:
        optimiser.step([factor * loss for loss in losses_of(model, 2)])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("gradient_clip", [0.0, 0.05])
def test_float16_takes_the_steps_of_a_plain_loop_with_a_scaler(optimizer, gradient_clip):
    ours, theirs = model_of(), model_of()
    settings = {"kind": optimizer, "schedule": "linear", "warmup_steps": 1, "num_steps": 9}
    settings |= {"gradient_clip": gradient_clip}
    optimiser = optimiser_of(ours, 0.1, precision="float16", **settings)
    train_on(ours, optimiser, OVERFLOWS)
    plain, scaler = optimiser_of(theirs, 0.1, **settings)._optimizer, torch.amp.GradScaler("cpu")
    schedule, taken = get_scheduler("linear", plain, 1, 9), 0
    for factor in OVERFLOWS:
        plain.zero_grad()
        for loss in losses_of(theirs, 2):
            scaler.scale(factor * loss).backward()
        if gradient_clip:
            scaler.unscale_(plain)
            nn.utils.clip_grad_norm_(theirs.parameters(), gradient_clip)
        scaler.step(plain)
        scale = scaler.get_scale()
        scaler.update()
        if scaler.get_scale() == scale:  # as in the Trainer: a step that was skipped does not advance the schedule
            schedule.step()
            taken += 1
    assert taken == 4 and optimiser.steps == 6
    assert (
        optimiser._schedule.last_epoch == taken and optimiser.state()["scale"]["scale"] == scaler.get_scale() == 2**14
    )
    assert optimiser.learning_rate_after(6) == pytest.approx(schedule.get_last_lr()[0])
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_an_overflow_in_float16_changes_no_parameter():
    model = model_of()
    optimiser = optimiser_of(model, 0.1, precision="float16")
    before = copy.deepcopy(model)
    train_on(model, optimiser, [1e38])
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))
    assert (optimiser.steps, optimiser.state()["scale"]["skipped"]) == (1, 1)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("done", [1, 2, 5])
def test_resumed_float16_has_the_scale_and_the_skipped_steps(optimizer, done):
    settings = {"kind": optimizer, "schedule": "linear", "num_steps": 9, "precision": "float16"}
    model = model_of()
    optimiser = optimiser_of(model, 0.1, **settings)
    train_on(model, optimiser, OVERFLOWS[:done])
    again = copy.deepcopy(model)
    resumed = optimiser_of(again, 0.1, **settings)
    resumed.load(copy.deepcopy(optimiser.state()))
    train_on(model, optimiser, OVERFLOWS[done:])
    train_on(again, resumed, OVERFLOWS[done:])
    assert resumed.steps == optimiser.steps == 6 and resumed.state()["scale"] == optimiser.state()["scale"]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_gradients_that_always_overflow_in_float16_end_the_training(snapshot):
    model = model_of()
    optimiser = optimiser_of(model, 0.1, precision="float16")
    with pytest.raises(TrainingError) as raised:
        train_on(model, optimiser, [math.inf] * 40)
    assert one_line(raised.value) == snapshot
    assert optimiser.steps < 40


def test_other_precisions_scale_nothing_and_keep_their_state():
    assert optimiser_of(model_of(), 0.1, precision="bfloat16").state().keys() == {"optimizer", "schedule"}


# Embeddings that no training example uses stay out of training.


def trained(cache, folder, backbone="mini-albert", method="palbert"):
    config = values_of(method, "rte") | {"epochs": 1, "batch_size": 128, "max_length": 32}
    run = TrainingRun(
        TrialSpec(method=method, task="rte", config=config, seed=1, data="mini", backbone=backbone), cache=cache
    )
    row = run.run_epoch()
    run.save(folder)
    return row, read_state(folder)


def words_of(model, cache, *, weight_decay=0.0):
    task = TASKS["rte"]
    tokenizer = prepare_tokenizer("mini-bert", task, "mini")
    examples = load_examples(task, ("dev",), "mini", tokenizer, max_length=32, cache=cache)
    return examples, training_words(model, examples, weight_decay=weight_decay)


def early_exit_model(family):
    torch.manual_seed(0)
    config = config_of("palbert", max_length=32)
    vocab_size = len(prepare_tokenizer("mini-bert", TASKS["rte"], "mini"))
    return trainables.load_method("palbert").build(
        config, load_encoder(f"mini-{family}", config, vocab_size=vocab_size), TASKS["rte"]
    )


@pytest.mark.slow
def test_a_trial_is_the_same_as_with_all_words(tmp_path, monkeypatch):
    row, ours = trained(tmp_path / "cache", tmp_path / "used")
    monkeypatch.setattr(training, "training_words", lambda *_, **__: nullcontext)
    row_of_all, with_all = trained(tmp_path / "cache", tmp_path / "all")
    assert row.train_loss == pytest.approx(row_of_all.train_loss, rel=1e-6)
    assert ours["model"].keys() == with_all["model"].keys()
    for name, weight in with_all["model"].items():
        torch.testing.assert_close(ours["model"][name], weight, rtol=0, atol=1e-6, msg=name)


def tie_words(model):
    model.decoder = torch.nn.Linear(*reversed(model.encoder.embeddings.word_embeddings.weight.shape), bias=False)
    model.decoder.weight = model.encoder.embeddings.word_embeddings.weight


def test_words_that_a_decoder_shares_stay_shared_in_training(tmp_path):
    model = early_exit_model("bert")
    tie_words(model)
    with words_of(model, tmp_path)[1]():
        assert model.encoder.embeddings.word_embeddings.weight is model.decoder.weight


@pytest.mark.slow
def test_trial_with_tied_words_is_the_same_as_with_all_words(tmp_path, monkeypatch):
    class Tied(LastLayerModel):
        """A model that also predicts the second token of each text, from the word embeddings."""

        def __init__(self, *given):
            super().__init__(*given)
            tie_words(self)

        def loss(self, batch):
            *_, last = self.first_tokens(batch)
            words = torch.nn.functional.cross_entropy(self.decoder(last), batch["input_ids"][:, 1])
            return {"loss": super().loss(batch)["loss"] + words}

    monkeypatch.setattr(classifiers, "LastLayerModel", Tied)
    row, ours = trained(tmp_path / "cache", tmp_path / "used", "mini-bert", method="albert")
    monkeypatch.setattr(training, "training_words", lambda *_, **__: nullcontext)
    row_of_all, with_all = trained(tmp_path / "cache", tmp_path / "all", "mini-bert", method="albert")
    assert row.train_loss == row_of_all.train_loss
    assert all(torch.equal(weight, with_all["model"][name]) for name, weight in ours["model"].items())


def test_word_of_no_example_is_not_read_as_another(tmp_path):
    model = early_exit_model("bert")
    examples, words = words_of(model, tmp_path)
    absent = next(token for token in range(99) if token not in {*examples.tokens.tolist(), examples.pad_token})
    with words(), pytest.raises(IndexError):
        model.encoder.embeddings.word_embeddings(torch.tensor([absent]))


def test_only_words_of_the_examples_are_trained_and_come_back(tmp_path):
    model = early_exit_model("bert")
    examples, words = words_of(model, tmp_path)
    used = sorted({*examples.tokens.tolist(), examples.pad_token})
    table = model.encoder.embeddings.word_embeddings
    before, batch = table.weight.detach().clone(), examples.batch(torch.arange(8).numpy(), torch.device("cpu"))
    expected = model.eval().all_exits(batch).logits
    with words():
        weight = dict(model.named_parameters())["encoder.embeddings.word_embeddings.weight"]
        assert weight.shape == (len(used), before.shape[1]) and len(used) < len(before)
        assert torch.equal(model.all_exits(batch).logits, expected)
        with torch.no_grad():
            weight += 1
    assert model.encoder.embeddings.word_embeddings is table
    assert torch.equal(table.weight[used], before[used] + 1)
    rest = sorted(set(range(len(before))) - set(used))
    assert torch.equal(table.weight[rest], before[rest])


@pytest.mark.parametrize(("family", "weight_decay"), [("bert", 0.01), ("sharebert", 0.0)])
def test_words_train_with_gradient_or_decay(family, weight_decay, tmp_path):
    model = early_exit_model(family)
    table = model.encoder.embeddings.word_embeddings
    with words_of(model, tmp_path, weight_decay=weight_decay)[1]():
        assert model.encoder.embeddings.word_embeddings is table
