"""What is timed, and how: pytest tests/trainables/runs/test_latency.py"""

from __future__ import annotations

import itertools
import time

import msgspec
import numpy as np
import pytest
import torch
from helpers.trials import run_to_the_end, spec_of
from msgspec.structs import replace

from trainables.configuration.schema import Reader
from trainables.models.answer_rules import FixedLayer
from trainables.models.exit_rules import LastLayer, Patience, Threshold
from trainables.runs import latency
from trainables.runs.latency import count_flops, count_flops_of_texts, measure_latency, timed_rules
from trainables.runs.training import TrainingRun
from trainables.runs.trial import Latency

EARLY, WHOLE = Patience(1, None), LastLayer()


@pytest.fixture
def run(cache) -> TrainingRun:
    return TrainingRun(spec_of("pabee", "sst2", config={"patience": 1, "num_hidden_layers": 4}), cache=cache)


def measured(run, num_batches: dict[int, int]) -> tuple[Latency, list[tuple[object, int]]]:
    """The latency, and the rule and the size of every batch that was answered."""
    model, calls = run._model, []
    infer = model.infer
    model.infer = lambda batch, *more: calls.append((more[-1], len(batch["input_ids"]))) or infer(batch, *more)
    return measure_latency(model, run._data.selection, [EARLY, WHOLE], num_batches=num_batches), calls


def test_timing_rounds_cover_every_batch_and_rule(run):
    own = run._model.exit_rule
    _, calls = measured(run, {1: 2, 8: 1})
    counted = [(EARLY, 8), (WHOLE, 8)]  # FLOPs, at the largest size
    in_turn = [(EARLY, 1), (WHOLE, 1)] * 2 + [(EARLY, 8), (WHOLE, 8)]
    assert calls == in_turn * (1 + latency.ROUNDS) + counted
    assert run._model.exit_rule is own and run._model.training


def test_times_are_per_example_means_over_batches_of_the_fastest_round(run, monkeypatch):
    seconds = itertools.chain([1.0, 10.0, 3.0, 30.0], [5.0, 9.0, 2.0, 40.0], [4.0, 50.0, 6.0, 60.0])
    monkeypatch.setattr(latency, "_time", lambda answer, clock: next(seconds))
    found, _ = measured(run, {8: 2})
    assert [own.timings[0].milliseconds for own in found.exits] == [1000 * 1.5 / 8, 1000 * 19.5 / 8]
    assert [own.timings[0].examples for own in found.exits] == [16, 16]


@pytest.mark.parametrize(
    ("device", "threads", "clock"),
    [("cpu", 1, time.thread_time), ("cpu", 2, time.perf_counter), ("cuda", 1, time.perf_counter)],
)
def test_other_load_is_not_timed_with_thread_clock(device, threads, clock, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert latency._choose_clock(torch.device(device)) is clock


def test_layers_and_flops_are_of_timed_examples(run):
    found, _ = measured(run, {1: 3, 8: 2})
    early, whole = found.under_own_rule, found.all_layers
    assert {timing.mean_layers for timing in whole.timings} == {4}
    assert all(2 <= timing.mean_layers < 4 for timing in early.timings)  # an untrained model agrees with itself soon
    assert 0 < early.flops < whole.flops
    assert [(timing.batch_size, timing.examples) for timing in early.timings] == [(1, 3), (8, 16)]


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
    counted = latency.count_flops(lambda: model.infer(examples.batch(np.array([row]), torch.device("cpu"))))
    parabola = np.polyfit([text.tokens for text in texts], [text.by_layer[1] for text in texts], deg=2)
    assert np.polyval(parabola, examples.lengths[row]) == pytest.approx(counted, rel=1e-6)


@pytest.mark.parametrize(
    ("lengths", "rows"),
    [([7], [0, 0, 0]), ([9, 5, 5, 7], [1, 3, 0]), ([9, 300, 5, 256, 7, 255], [2, 0, 5, 3, 1, 1])],
)
def test_three_lengths_are_counted_on_each_side_of_long_texts(lengths, rows):
    assert latency._choose_texts(np.array(lengths)) == rows


@pytest.mark.parametrize(("selection", "split"), [("holdout", "dev"), ("dev", "dev")])
def test_times_and_flops_are_of_the_split_that_is_reported(cache, monkeypatch, selection, split):
    run = run_to_the_end(spec_of("pabee", selection=selection, config={"epochs": 1}), cache)
    seen = []
    monkeypatch.setattr(
        "trainables.runs.training.measure_latency",
        lambda model, examples, *others, **named: (
            seen.append(examples) or measure_latency(model, examples, *others, **named)
        ),
    )
    texts = run.measure_latency().texts
    assert seen == [getattr(run._data, split)]
    assert {text.tokens for text in texts} <= {*seen[0].lengths.tolist()}


def test_a_latency_is_written_as_it_is_read(run):
    found = replace(measured(run, {1: 1})[0], texts=count_flops_of_texts(run._model, run._data.selection))
    line = msgspec.json.encode(found)
    assert msgspec.json.encode(Reader(Latency).read(line, where="latency")) == line  # `verify` holds files against this


@pytest.mark.slow
def test_sampled_exit_reproduces_all_but_times(cache):
    run = run_to_the_end(spec_of("pondernet", config={"epochs": 1, "num_hidden_layers": 4}), cache)
    first, second = (run.measure_latency() for _ in range(2))
    untimed = [
        [(own.rule, own.flops, [timing.mean_layers for timing in own.timings]) for own in found.exits] + [*found.texts]
        for found in (first, second)
    ]
    assert untimed[0] == untimed[1] and first.under_own_rule.rule == "sample"


def test_selected_epoch_is_timed_with_own_weights(cache, monkeypatch):
    run = run_to_the_end(spec_of("pabee", config={"epochs": 2}), cache)
    run._selected_weights = {name: torch.zeros_like(value) for name, value in run._selected_weights.items()}
    before = {name: value.clone() for name, value in run._model.state_dict().items()}
    timed = []

    def measure(model, *others, **named):
        timed.append(max(value.abs().max().item() for value in model.state_dict().values()))
        return measure_latency(model, *others, **named)

    monkeypatch.setattr("trainables.runs.training.measure_latency", measure)
    run.measure_latency()
    assert timed == [0.0]
    assert all(torch.equal(before[name], value) for name, value in run._model.state_dict().items())


def test_swept_settings_are_timed_beside_own_and_all_layers(cache):
    methods = {"palbert": ["threshold", "last", "threshold", "threshold"], "albert": ["last"]}
    for method, expected in methods.items():
        rules = timed_rules(TrainingRun(spec_of(method, "rte"), cache=cache)._model)
        assert [rule.name for rule in rules] == expected
    assert Threshold(0.35) in timed_rules(TrainingRun(spec_of("palbert", "rte"), cache=cache)._model)


def test_batches_are_no_larger_than_the_examples_are_many(run):
    model, few = run._model, run._data.selection.take(np.arange(3))
    found = measure_latency(model, few, [WHOLE], num_batches={1: 2, 8: 1, 32: 1})
    assert [(timing.batch_size, timing.examples) for timing in found.under_own_rule.timings] == [(1, 2), (3, 3)]


@pytest.mark.parametrize(
    ("num_examples", "batch_size", "num_batches", "starts"),
    [(10, 1, 3, [0, 4, 9]), (10, 4, 8, [0, 6]), (3, 3, 8, [0]), (2, 1, 200, [0, 1])],
)
def test_batches_are_spread_over_the_rows(num_examples, batch_size, num_batches, starts):
    batches = latency._choose_batches(num_examples, batch_size, num_batches)
    assert [rows.tolist() for rows in batches] == [np.arange(start, start + batch_size).tolist() for start in starts]


def test_a_product_of_matrices_counts_two_flops_for_every_multiplication():
    left, right = torch.ones(3, 5), torch.ones(5, 7)
    assert count_flops(lambda: left @ right + 1) == 2 * 3 * 5 * 7
