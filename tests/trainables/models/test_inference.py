"""Inference runs only the heads that it needs: pytest tests/trainables/models/test_inference.py"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from helpers import walked_layers
from helpers.walked_layers import LENGTHS, texts
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from trainables.encoders import layerwise
from trainables.encoders.token_states import Places, TokenStates
from trainables.models.answer_rules import Entropy, FixedLayer
from trainables.models.early_exit import EarlyExitModel
from trainables.models.exit_rules import (
    Expectation,
    LastLayer,
    LearnedExit,
    Patience,
    Sampled,
    Step,
    Threshold,
    apply_exit,
    needs_no_logits,
)
from trainables.models.ponder import PonderModel

LAYERS = 6


def model_of(method: str, family: str = "bert", **changes: Any) -> EarlyExitModel:
    model = walked_layers.model_of(family, method, **changes)
    with torch.no_grad():  # so that examples leave at different layers
        for name, weight in model.named_parameters():
            if name.startswith(("classifier", "lambda_head.output", "exit_head")):
                weight.mul_(30)
    return model


def recorded(model: EarlyExitModel, monkeypatch, *names: str) -> dict[str, list[int]]:
    """The numbers of layers times examples for which each of the model's functions is called from now on."""
    seen: dict[str, list[int]] = {name: [] for name in names}

    def record(name, run, *given):
        seen[name].append(next(value for value in given if isinstance(value, Tensor)).shape[:2].numel())
        return run(*given)

    for name in names:
        run = getattr(model, name)
        monkeypatch.setattr(model, name, lambda *given, name=name, run=run: record(name, run, *given))
    return seen


class Operations(TorchDispatchMode):
    """Lists the operations that PyTorch runs, as `aten` names them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, operation, types, given=(), named=None):
        name = operation.overloadpacket.__name__
        is_masked = name in ("index", "index_put_") and any(
            index is not None and index.dtype == torch.bool for index in given[1]
        )
        self.names.append(f"{name} by a mask" if is_masked else name)
        return operation(*given, **(named or {}))

    @property
    def waits(self) -> int:
        """The number of operations for which the host would wait for a GPU."""
        waiting = ("_local_scalar_dense", "nonzero", "masked_select", "index by a mask", "index_put_ by a mask")
        return sum(self.names.count(name) for name in waiting)


@contextmanager
def operations():
    with torch.no_grad(), Operations() as found:
        yield found


@torch.no_grad()
def keep_everyone(model: EarlyExitModel) -> None:
    """Let classifiers of adjacent layers disagree, and λ be small."""
    if isinstance(model, PonderModel):
        model.lambda_head.output.weight.zero_()
        model.lambda_head.output.bias.fill_(-30)
    for layer, classifier in enumerate(getattr(model, "classifiers", [])):
        classifier.weight.zero_()
        classifier.bias[layer % 2] = 1


SETTINGS = [
    ("albert", LastLayer()),
    ("pabee", Patience(1, None)),
    ("pabee", LastLayer()),
    ("berxit", LearnedExit(0.52)),
    ("pondernet", Sampled(1)),
    ("palbert", Threshold(0.6)),
    ("palbert", Threshold(0.0)),
    ("palbert", Threshold(1.0)),
    ("palbert", LastLayer()),
    ("palbert", Expectation(legacy=False)),
]


@pytest.mark.parametrize("pooling", ["pooler", "mean"])
@pytest.mark.parametrize(("method", "rule"), SETTINGS)
def test_a_batch_exits_as_its_examples_and_as_the_rule_on_all_layers(method, rule, pooling):
    model, batch = model_of(method, pooling=pooling), texts()
    generators = [torch.Generator().manual_seed(2) for _ in range(3)]
    found = model.infer(batch, generators[0], rule)
    wanted = apply_exit(rule, model.all_exits(batch), generators[1])
    assert torch.equal(found.exit_layer, wanted.exit_layer)
    torch.testing.assert_close(found.logits, wanted.logits, rtol=0, atol=1e-5)
    for row, length in enumerate(LENGTHS):
        one = {name: values[row : row + 1, :length] for name, values in batch.items()}
        alone = model.infer(one, generators[2], rule)
        assert alone.exit_layer == found.exit_layer[row]
        torch.testing.assert_close(alone.logits[0], found.logits[row], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("method", "rule"), [("palbert", Threshold(0.6)), ("pondernet", Sampled(1)), ("berxit", LearnedExit(0.52))]
)
def test_only_examples_that_leave_are_classified(method, rule, monkeypatch):
    model = model_of(method)
    seen = recorded(model, monkeypatch, "classified", "exit_logits")
    left = model.infer(texts(), torch.Generator().manual_seed(2), rule).exit_layer
    leaving = [int((left == layer).sum()) for layer in range(1, LAYERS + 1)]
    assert len({*left.tolist()}) > 1
    assert seen["classified"] == [number for number in leaving if number]
    there = [int((left >= layer).sum()) for layer in range(1, LAYERS)]  # the last layer needs no exit head
    assert seen["exit_logits"] == [number for number in there if number]


@pytest.mark.parametrize("method", ["albert", "pabee", "deebert", "berxit", "pondernet", "palbert"])
def test_without_exits_only_the_heads_of_the_last_layer_run(method, monkeypatch):
    model = model_of(method, pooling="mean")
    seen = recorded(model, monkeypatch, "pooled", "classified", "exit_logits")
    reads, read = [], model.encoder.read
    monkeypatch.setattr(model.encoder, "read", lambda states: reads.append(1) or read(states))
    model.infer(texts(), rule=LastLayer())
    assert seen == {"pooled": [5], "classified": [5], "exit_logits": []} and len(reads) == 1


def test_an_exit_after_the_last_layer_needs_no_exit_head(monkeypatch):
    for method, rule in (("palbert", Threshold(1.0)), ("berxit", LearnedExit(0.0))):
        model = model_of(method)
        seen = recorded(model, monkeypatch, "classified", "exit_logits")
        model.infer(texts(), rule=rule)
        assert seen == {"classified": [5], "exit_logits": []}


def test_rules_that_read_logits_get_the_heads_of_earlier_layers_together(monkeypatch):
    model = model_of("pabee")
    seen = recorded(model, monkeypatch, "classified")
    model.infer(texts(), rule=Patience(5, None))
    assert seen["classified"] == [LAYERS * 5]


# The number of layers after which the next step depends on who leaves.
WAITS = [
    ("albert", LastLayer(), 0),
    ("pabee", Patience(6, None), 0),
    ("pabee", Patience(3, None), 2),
    ("palbert", Threshold(0.999999), 5),
    ("palbert", Threshold(1.0), 0),
    ("palbert", Expectation(legacy=False), 0),
    ("pabee", FixedLayer(4), 1),
]


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize(("method", "rule", "waits"), WAITS)
def test_a_gpu_is_waited_for_only_at_layers_where_examples_may_leave(method, rule, waits, padded, monkeypatch):
    if not padded:
        monkeypatch.setattr(layerwise, "PADDING_FREE_WIDTH", 0)
        monkeypatch.setattr(Places, "of", Places._keep_order)
    model = model_of(method)
    keep_everyone(model)
    with operations() as found:
        left = model.infer(texts(), rule=rule).exit_layer
    assert (left == (4 if isinstance(rule, FixedLayer) else LAYERS)).all()
    packing = 0 if padded else 2  # the number of real tokens, and their places
    assert found.waits == waits + packing


def test_examples_that_leave_cost_a_gpu_no_further_wait():
    model = model_of("pabee")
    with operations() as found:
        left = model.infer(texts(), rule=Patience(1, None)).exit_layer
    assert len({*left.tolist()}) > 1
    assert found.waits == min(int(left.max()), LAYERS - 1) - 1  # layer 1 cannot be left


def test_nothing_is_selected_or_written_where_nobody_leaves():
    model = model_of("palbert", pooling="mean")
    keep_everyone(model)
    with operations() as found:
        model.infer(texts(), rule=Threshold(0.999))
    assert found.names.count("index") == 0 and found.names.count("index_put_") == 1  # the answers, at the end


class Whole(PonderModel):
    """A user's method: its classifier needs the outputs of earlier layers, so its heads are one function."""

    def exit_heads(self, index, first, carried):
        logits, exit_logits, carried = super().exit_heads(index, first, carried)
        return logits + exit_logits[..., None].cumsum(0), exit_logits, carried


@dataclass(frozen=True)
class Sure(Threshold):
    """A user's rule: as the exit head says, but only with a sure answer."""

    def step(self, state, layer, num_layers, logits, lambdas):
        step = super().step(state, layer, num_layers, logits, lambdas)
        return Step(step.leaves & (logits.softmax(1).amax(1) > 0.6), logits, step.state)


def test_methods_and_rules_that_define_the_whole_get_the_whole(monkeypatch):
    model = model_of("palbert")
    calls, heads = [], model.exit_heads
    monkeypatch.setattr(model, "exit_heads", lambda *given: calls.append(given[0]) or heads(*given))
    found, wanted = model.infer(texts(), rule=Sure(0.6)), apply_exit(Sure(0.6), model.all_exits(texts()))
    assert torch.equal(found.exit_layer, wanted.exit_layer) and calls[0] == 0 and len(calls) > 1
    monkeypatch.undo()
    model.__class__ = Whole
    found = model.infer(texts(), rule=LastLayer()).logits
    torch.testing.assert_close(found, model.all_exits(texts()).logits[-1], rtol=0, atol=1e-5)


def test_rules_know_whether_they_need_logits():
    without = [Threshold(0.5), Sampled(), LearnedExit(0.1), LastLayer()]
    others = [Patience(2, None), Expectation(legacy=False), Entropy(0.3), FixedLayer(2), Sure(0.5)]
    assert [needs_no_logits(rule) for rule in (*without, *others)] == [True] * 4 + [False] * 5


def test_a_method_without_heads_is_named():
    class Headless(PonderModel):
        classified = EarlyExitModel.classified

    model = model_of("palbert")
    model.__class__ = Headless
    with pytest.raises(NotImplementedError, match="Headless defines neither `exit_heads` nor `classified`"):
        model.all_exits(texts())


@pytest.mark.parametrize("family", ["albert", "bert", "roberta", "sharebert"])
@pytest.mark.parametrize("changes", [{}, {"attention": "nystrom", "num_landmarks": 4, "conv_kernel_size": 3}])
def test_texts_of_one_length_need_no_mask_and_give_the_same_bits(family, changes, monkeypatch):
    if changes and family in ("roberta", "sharebert"):
        return
    model, batch = model_of("palbert", family, pooling="mean", **changes), texts((32, 32, 32))
    with_mask = model.all_exits(batch)
    monkeypatch.setattr(layerwise, "PADDING_FREE_WIDTH", 0)
    states = model.encoder.embed(**batch)
    assert states.mask is None and states.of(torch.tensor([0, 2])).hidden.shape[:2] == (2, 32)
    without = model.all_exits(batch)
    assert torch.equal(with_mask.logits, without.logits) and torch.equal(with_mask.lambdas, without.lambdas)
    padded = model.encoder.embed(**texts((32, 32, 32, 31)))
    assert isinstance(padded.mask, Tensor)


def test_the_mean_without_a_mask_has_the_same_bits():
    hidden = torch.randn(7, 25, 384)
    mask = torch.ones(7, 1, 1, 25, dtype=torch.bool)
    assert torch.equal(TokenStates(hidden, None).mean(), TokenStates(hidden, mask).mean())
