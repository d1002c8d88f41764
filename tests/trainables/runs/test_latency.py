"""Which batches are timed, and how: pytest tests/trainables/runs/test_latency.py"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.trials import spec_of

from trainables.models.exit_rules import LastLayer, Patience
from trainables.runs import latency
from trainables.runs.latency import measure_latency
from trainables.runs.training import TrainingRun


@pytest.fixture
def run(cache) -> TrainingRun:
    return TrainingRun(spec_of("pabee", "sst2", config={"patience": 1}), cache=cache)


def measured(run, batch_size: int, *, num_batches: int) -> tuple[latency.Latency, list[tuple[object, int]]]:
    """The latency, and the rule and the size of every batch that was answered."""
    model, calls = run._model.eval(), []
    infer = model.infer
    model.infer = lambda batch, generator: calls.append((model.exit_rule, len(batch["input_ids"]))) or infer(batch)
    examples = run._data.selection
    return measure_latency(model, examples, batch_size, torch.Generator(), num_batches=num_batches), calls


def test_every_batch_is_answered_with_and_without_exits_and_the_first_twice(run):
    rule = run._model.exit_rule
    _, calls = measured(run, 8, num_batches=3)
    assert calls == [(rule, 8), (LastLayer(), 8)] * 4 and isinstance(rule, Patience)
    assert run._model.exit_rule is rule


def test_medians_are_per_example_and_without_the_first_time(run, monkeypatch):
    seconds = iter([99.0, 99.0, 1.0, 10.0, 3.0, 30.0, 2.0, 20.0])
    monkeypatch.setattr(latency, "_seconds", lambda answer: answer() is None or next(seconds))
    found, _ = measured(run, 8, num_batches=3)
    assert (found.with_exits, found.all_layers) == (2000 / 8, 20000 / 8)


@pytest.mark.parametrize(
    ("num_examples", "batch_size", "num_batches", "starts"),
    [(10, 1, 3, [0, 4, 9]), (10, 4, 8, [0, 6]), (3, 128, 8, [0]), (2, 1, 200, [0, 1])],
)
def test_batches_are_spread_over_the_rows(num_examples, batch_size, num_batches, starts):
    batches = latency._spread_batches(num_examples, batch_size, num_batches)
    size = min(batch_size, num_examples)
    assert [rows.tolist() for rows in batches] == [np.arange(start, start + size).tolist() for start in starts]
