"""Models that are timed together: pytest tests/trainables/runs/test_timing.py"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.trials import spec_of

from trainables.models.exit_rules import LastLayer, Patience, Threshold, leave_at
from trainables.runs import timing
from trainables.runs.flops import count_flops
from trainables.runs.times import DETAIL_EVERY
from trainables.runs.timing import (
    Contestant,
    ProcessorTimes,
    TooLittleTime,
    _Blocks,
    choose_batches,
    compare_rules,
    measure,
)
from trainables.runs.training import TrainingRun

DEEP = {"num_hidden_layers": 4}


@pytest.fixture
def contestants(cache) -> list[Contestant]:
    """Two arms with two and one model."""
    made = []
    for method, seed in (("albert", 1), ("pabee", 1), ("pabee", 2)):
        config = DEEP | ({"patience": 1} if method == "pabee" else {})
        run = TrainingRun(spec_of(method, "sst2", seed=seed, config=config), cache=cache)
        model = run._model.eval()
        made.append(Contestant(f"{method}-{seed}", f"{method}/sst2", model, run._data.selection))
    return made


@pytest.fixture
def small(monkeypatch) -> None:
    monkeypatch.setattr(timing, "BATCHES", {1: 10, 8: 4})
    monkeypatch.setattr(timing, "BLOCKS", 2)


def test_all_models_are_timed_in_every_round(contestants, small):
    rounds = []
    timed, layers = measure(
        contestants, [1, 8], seconds=600, reference="albert/sst2", most_rounds=3, on_round=rounds.append
    )
    own = {(model.key, model.batch_size): model for model in timed if model.exit == "own"}
    assert {*own} == {(each.key, size) for each in contestants for size in (1, 8)}
    assert {len(model.texts) for (_, size), model in own.items() if size == 1} == {10}
    assert {len(model.texts) for (_, size), model in own.items() if size == 8} == {4}
    assert {len(model.rounds) for model in own.values()} == {3} == {len(rounds)}
    assert all(min(model.texts) > 0 for model in own.values())
    assert own["albert-1", 1].mean_layers == 4 > own["pabee-1", 1].mean_layers >= 2
    assert [(part.key, part.batch_size) for part in layers] == [
        (key, size) for key in ("albert-1", "pabee-1") for size in (1, 8)
    ]


def test_details_are_of_the_first_model_of_an_arm_with_exits(contestants, small):
    timed, _ = measure(contestants, [1], seconds=600, reference="albert/sst2", most_rounds=3)
    details = [model for model in timed if model.exit != "own"]
    assert {model.key for model in details} == {"pabee-1"}
    found = {kind: [model.at for model in details if model.exit == kind] for kind in ("layer", "first", "cut")}
    assert found == {"layer": [1, 2, 3, 4] * 2, "first": [3, 4], "cut": [1, 2, 3, 4]}
    rules = [model.rule for model in details if model.exit == "layer"]
    assert rules == ["patience"] * 4 + ["max_probability"] * 4
    texts = {model.key: len(model.texts) for model in timed if model.exit == "own"}
    assert {len(model.texts) for model in details} == {len(range(0, texts["pabee-1"], DETAIL_EVERY))}
    assert [model.mean_layers for model in details if model.exit == "cut"] == [1, 2, 3, 4]
    checks = [model for model in details if model.exit == "setting"]
    assert all(len(model.exit_layers) == len(model.texts) for model in checks) and len(checks) >= 2


def test_models_take_turns_block_by_block(contestants, small, monkeypatch):
    calls = []
    infer = timing._Way._infer
    monkeypatch.setattr(
        timing._Way, "_infer", lambda way, *more: calls.append((way.contestant.key, way.kind)) or infer(way, *more)
    )
    measure(contestants, [1], seconds=600, reference="albert/sst2", most_rounds=3)
    block = 1 + 5  # one answer before it is not timed
    own = [key for key, kind in calls if kind == "own"]
    first, own = own[: 4 * block], own[4 * block :]
    assert {*first} == {"albert-1", "pabee-1"}  # a model of each arm, for the speed
    blocks = [own[start : start + 3 * block] for start in range(0, len(own), 3 * block)]
    assert len(blocks) == 1 + 3 * 2  # one to warm up, and two in each of three rounds
    assert all(each.count(key) == block for each in blocks for key in ("albert-1", "pabee-1", "pabee-2"))


def test_measurement_ends_when_ratios_are_precise(contestants, small, monkeypatch):
    monkeypatch.setattr(timing, "_precision", lambda ways, reference: 0.004)
    timed, _ = measure(contestants, [1], seconds=600, reference="albert/sst2", most_rounds=50)
    assert {len(model.rounds) for model in timed} == {timing.FEWEST_ROUNDS}


def test_too_little_time_is_reported_before_every_model_has_run(contestants, small, monkeypatch):
    timed, time_batch = [], timing._Way.time
    monkeypatch.setattr(
        timing._Way, "time", lambda way, *more, **named: timed.append(way.contestant) or time_batch(way, *more, **named)
    )
    with pytest.raises(TooLittleTime) as raised:
        measure(contestants, [1], seconds=0.001, reference="albert/sst2")
    assert raised.value.seconds > 0.001 and {each.key for each in timed} == {"albert-1", "pabee-1"}


def test_inference_is_as_before_after_a_measurement(contestants, small):
    before = [dict(vars(each.model)) for each in contestants]
    measure(contestants, [1], seconds=600, reference="albert/sst2", most_rounds=3)
    assert [{*vars(each.model)} for each in contestants] == [{*own} for own in before]


@pytest.mark.parametrize("rule", [Patience(1, None), Threshold(0.5), LastLayer()])
def test_forced_rule_leaves_after_its_layer(rule, cache):
    method = "palbert" if isinstance(rule, Threshold) else "pabee"
    run = TrainingRun(spec_of(method, "sst2", config=DEEP), cache=cache)
    batch = run._data.selection.batch(np.arange(6), torch.device("cpu"))
    for layer in range(rule.earliest(4), 5):
        forced = leave_at(rule, layer)
        assert isinstance(forced, type(rule)) and forced.name == rule.name
        assert run._model.eval().infer(batch, rule=forced).exit_layer.tolist() == [layer] * 6


def test_parts_of_a_layer_time_one_head_without_exits(contestants):
    albert, layers = contestants[0], []
    pooled, batch = albert.model.pooled, albert.examples.batch(np.arange(1), torch.device("cpu"))
    albert.model.pooled = lambda index, first: layers.append(len(first)) or pooled(index, first)
    timing._time_parts(albert, 1, [batch])
    assert {*layers} == {1}


def test_batches_have_similar_lengths_and_spread_over_all():
    lengths = np.random.default_rng(0).integers(5, 60, 1_000)
    batches = choose_batches(lengths, 32)
    assert len(batches) == 20 and {len(rows) for rows in batches} == {32}
    assert max(np.ptp(lengths[rows]) for rows in batches) <= 4
    assert lengths[batches[0]].max() == lengths.max() and lengths[batches[-1]].min() < 8
    assert len({row for rows in batches for row in rows.tolist()}) == 640
    assert [len(rows) for rows in choose_batches(lengths[:7], 32)] == [7]
    assert len(choose_batches(lengths, 1)) == 200


def test_texts_timed_in_detail_are_every_fifth_of_all_blocks():
    """An analysis that has the times of all texts finds them so."""
    examples = SimpleNamespace(lengths=np.arange(408) % 60 + 4)
    blocks = _Blocks([SimpleNamespace(examples=examples)], [1, 64])
    texts = [np.concatenate(rows).tolist() for rows in blocks._rows[1]]
    detailed = [text for place, own in enumerate(texts) for text in own[blocks._choose_detailed(1, place)]]
    assert len(texts[0]) % DETAIL_EVERY and detailed == [text for own in texts for text in own][::DETAIL_EVERY]


@pytest.mark.parametrize(
    ("device", "threads", "clock"),
    [("cpu", 1, time.thread_time), ("cpu", 2, time.perf_counter), ("cuda", 1, time.perf_counter)],
)
def test_one_thread_is_timed_by_its_processor_time(device, threads, clock, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert timing.choose_clock(torch.device(device)) is clock


def test_load_of_others_is_that_of_the_processors_that_this_process_may_use(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "PROCESSOR_TIMES", tmp_path / "stat")
    monkeypatch.setattr(timing.os, "sched_getaffinity", lambda _: {0, 1})

    def read(ticks: int) -> ProcessorTimes:
        lines = [f"cpu{number} {ticks if number < 2 else 0} 0 0 500 7 0 0 0 0 0" for number in range(64)]
        (tmp_path / "stat").write_text("\n".join(["cpu  9 9 9 9 9 9 9 9 9 9", *lines, "intr 1"]) + "\n")
        return ProcessorTimes.read()

    ticks = os.sysconf("SC_CLK_TCK")
    earlier, later = (replace(read(seconds * ticks), clock=2.0 * seconds, own=0.0) for seconds in (0, 10))
    assert later.processors == 2 and later.others_since(earlier) == pytest.approx(0.5)


def test_load_of_others_leaves_out_this_process():
    earlier = ProcessorTimes(clock=0.0, busy=100.0, own=10.0, processors=4)
    later = ProcessorTimes(clock=10.0, busy=118.0, own=20.0, processors=4)
    assert later.others_since(earlier) == pytest.approx(0.2)


def test_rules_are_compared_on_batches_no_larger_than_the_examples(contestants):
    model, few = contestants[1].model, contestants[1].examples.take(np.arange(3))
    costs = compare_rules(model, few, [Patience(1, None), LastLayer()], {1: 2, 8: 1, 32: 1})
    assert {size: [rule.examples for rule in rules] for size, rules in costs.items()} == {1: [2, 2], 3: [3, 3]}
    for early, whole in costs.values():
        assert 0 < early.flops <= whole.flops and min(early.milliseconds, whole.milliseconds) > 0


def test_flops_of_rules_are_means_over_texts_of_all_lengths(contestants):
    model, examples = contestants[1].model, contestants[1].examples
    (costs,) = compare_rules(model, examples, [LastLayer()], {1: len(examples)})[1]
    batches = [examples.batch(np.array([row]), torch.device("cpu")) for row in range(len(examples))]
    counts = [count_flops(lambda batch=batch: model.infer(batch, rule=LastLayer())) for batch in batches]
    assert costs.flops == pytest.approx(np.mean(counts)) and min(counts) < max(counts)
