"""How FLOPs are counted: pytest tests/trainables/runs/test_flops.py"""

from __future__ import annotations

from functools import partial

import msgspec
import numpy as np
import pytest
import torch
from helpers.trials import run_to_the_end, spec_of

from trainables.configuration.schema import Reader
from trainables.encoders.nystrom import read_segment_length
from trainables.models import early_exit
from trainables.models.answer_rules import FixedLayer, MaxProbability
from trainables.models.exit_rules import LastLayer, LearnedExit, Sampled, Threshold
from trainables.runs import flops
from trainables.runs.flops import count_flops, count_flops_of_texts
from trainables.runs.training import TrainingRun
from trainables.runs.trial import TextFlops, list_flops_terms


@pytest.fixture
def run(cache) -> TrainingRun:
    return TrainingRun(spec_of("pabee", "sst2", config={"patience": 1, "num_hidden_layers": 4}), cache=cache)


def test_flops_of_three_texts_rise_with_layers_and_length(run):
    lengths = sorted(set(run._data.selection.lengths.tolist()))
    texts = count_flops_of_texts(run._model, run._data.selection)
    assert [text.tokens for text in texts] == [lengths[0], lengths[len(lengths) // 2], lengths[-1]]
    flops = np.array([text.by_layer for text in texts])
    assert flops.shape == (3, 4) and (np.diff(flops, axis=0) > 0).all() and (np.diff(flops, axis=1) > 0).all()


def test_three_texts_give_the_flops_of_every_other(run):
    """The products of a layer are linear and quadratic in tokens, so a parabola meets what is counted in between."""
    examples, model = run._data.selection, run._model
    texts = count_flops_of_texts(model, examples)
    row = int(np.argsort(examples.lengths)[len(examples.lengths) // 4])
    model.exit_rule = FixedLayer(2)
    counted = flops.count_flops(lambda: model.infer(examples.batch(np.array([row]), torch.device("cpu"))))
    parabola = np.polyfit([text.tokens for text in texts], [text.by_layer[1] for text in texts], deg=2)
    assert np.polyval(parabola, examples.lengths[row]) == pytest.approx(counted, rel=1e-6)


def text_of(tokens):
    return {name: torch.ones(1, tokens, dtype=torch.int64) for name in ("input_ids", "attention_mask")}


@pytest.mark.parametrize("backbone", ["mini-albert", "mini-electra"])
@pytest.mark.parametrize("lengths", [range(4, 49), range(9, 25), [5, 16, 17, 31, 40], [7]])
def test_counted_texts_give_the_nystrom_flops_of_every_other(backbone, lengths, cache):
    """Each segment of 8 tokens adds a landmark, so a parabola through three lengths would miss the others."""
    nystrom = {"attention": "nystrom", "num_landmarks": 6, "conv_kernel_size": 3}
    model = TrainingRun(spec_of("pabee", backbone=backbone, config=nystrom), cache=cache)._model.eval()
    counted = np.array([count_flops(partial(model.infer, text_of(tokens), rule=FixedLayer(2))) for tokens in lengths])
    assert read_segment_length(model.encoder.configuration) == 8
    chosen = flops._choose_texts(np.array(lengths), 8)
    assert len(chosen) <= 5
    terms = list_flops_terms(np.array(lengths), 8)
    weights, *_ = np.linalg.lstsq(terms[chosen], counted[chosen])
    assert terms @ weights == pytest.approx(counted, rel=1e-6)


@pytest.mark.parametrize(
    ("lengths", "rows"),
    [([7], [0, 0, 0]), ([9, 5, 5, 7], [1, 3, 0]), ([9, 300, 5, 256, 7, 255], [2, 0, 5, 3, 1, 1])],
)
def test_three_lengths_are_counted_on_each_side_of_long_texts(lengths, rows):
    assert flops._choose_texts(np.array(lengths)) == rows


@pytest.mark.parametrize(("selection", "split"), [("holdout", "dev"), ("dev", "dev")])
def test_flops_are_of_the_split_that_is_reported(cache, selection, split):
    run = run_to_the_end(spec_of("pabee", selection=selection, config={"epochs": 1}), cache)
    assert {text.tokens for text in run.count_flops()} <= {*getattr(run._data, split).lengths.tolist()}


@pytest.mark.parametrize(
    ("method", "rules"),
    [
        ("albert", [LastLayer()]),
        ("palbert", [Threshold(q) for q in (0.0, 0.3, 0.95, 1.0)]),
        ("pondernet", [Sampled()] * 6),
        ("berxit", [LearnedExit(threshold) for threshold in (0.0, 0.01, 1.0)]),
    ],
)
def test_exits_count_only_heads_that_their_rule_runs(method, rules, cache):
    run = TrainingRun(spec_of(method, "sst2", config={"num_hidden_layers": 3}), cache=cache)
    examples, model, layers = run._data.selection, run._model.eval(), set()
    for seed, rule in enumerate(rules):
        model.exit_rule = rule
        texts = count_flops_of_texts(model, examples)
        for text, row in zip(texts, flops._choose_texts(examples.lengths), strict=True):
            batch = examples.batch(np.array([row]), torch.device("cpu"))
            layer = int(model.infer(batch, torch.Generator().manual_seed(seed)).exit_layer)
            counted = count_flops(partial(model.infer, batch, torch.Generator().manual_seed(seed)))
            assert counted == text.by_layer[layer - 1], (rule, layer)
            layers.add(layer)
    assert 3 in layers


def test_first_exit_does_not_count_shared_matrices(cache):
    run = TrainingRun(spec_of("pabee", "sst2", backbone="mini-sharebert"), cache=cache)
    first, again = (count_flops_of_texts(run._model, run._data.selection) for _ in range(2))
    assert first == again


def test_flops_are_written_as_they_are_read(run):
    found = count_flops_of_texts(run._model, run._data.selection)
    line = msgspec.json.encode(found)
    read = Reader(tuple[TextFlops, ...]).read(line, where="flops")
    assert msgspec.json.encode(read) == line  # `verify` holds files against this


def test_a_product_of_matrices_counts_two_flops_for_every_multiplication():
    left, right = torch.ones(3, 5), torch.ones(5, 7)
    assert count_flops(lambda: left @ right + 1) == 2 * 3 * 5 * 7


def test_flops_are_counted_without_cudnn():
    """PyTorch counts no FLOPs of cuDNN's recurrent layers."""
    seen = []
    count_flops(lambda: seen.append(torch.backends.cudnn.enabled))
    assert seen == [False] and torch.backends.cudnn.enabled


def test_long_texts_count_what_their_exits_run(run, monkeypatch):
    """Only at the first layer at which a rule decides, an exit skips the second half of the layer for other tokens."""
    monkeypatch.setattr(flops, "HALVED_FROM", 4)
    monkeypatch.setattr(early_exit, "HALVED_FROM", 4)
    examples, model, layers = run._data.selection, run._model.eval(), set()
    model.exit_rule = MaxProbability(1.0)
    by_tokens = {text.tokens: text.by_layer for text in count_flops_of_texts(model, examples)}
    for row in flops._choose_texts(examples.lengths):
        batch = examples.batch(np.array([row]), torch.device("cpu"))
        sure = model.all_exits(batch).logits.double().softmax(-1).amax(-1)[:, 0].tolist()
        for probability in (0.0, *(value - 1e-4 for value in sure)):
            rule = MaxProbability(probability)
            layer = int(model.infer(batch, rule=rule).exit_layer)
            counted = count_flops(lambda batch=batch, rule=rule: model.infer(batch, rule=rule))
            assert counted == by_tokens[int(examples.lengths[row])][layer - 1], (probability, layer)
            layers.add(layer)
    assert 1 in layers and len(layers) > 1
