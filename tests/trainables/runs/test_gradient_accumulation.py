"""Batches that are computed in parts: pytest tests/trainables/runs/test_gradient_accumulation.py"""

from __future__ import annotations

import pytest
import torch
from helpers.trials import spec_of
from msgspec.structs import replace

import trainables
from study.plans import profiles
from study.plans.resolution import resolve
from trainables.runs.training import TrainingRun
from trainables.runs.trial import TrialSpec

pytestmark = pytest.mark.usefixtures("few_rows")

NO_DROPOUT = {"hidden_dropout": 0.0, "classifier_dropout": 0.0, "gradient_clip": 0.0}
NO_TRUNCATION = {"epsilon": 1e-9}  # otherwise, posteriors end where all examples of a part are truncated
METHODS = [method for method in trainables.list_methods() if method not in ("deebert", "sharebert")]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def spec_with(method: str, parts: int, **changes) -> TrialSpec:
    more = NO_TRUNCATION if method in ("palbert", "pondernet") else {}
    return spec_of(method, "rte", config={**NO_DROPOUT, **more, "gradient_accumulation": parts, **changes})


def gradients_of(method: str, parts: int, rows: int, cache, **changes) -> list[torch.Tensor]:
    """The gradients of the first step, on a batch of `rows` rows."""
    run = TrainingRun(spec_with(method, parts, **changes), cache=cache, limit=32)
    run._model.train()
    run._optimiser._optimizer.step = lambda: None
    run._step(run._data.train.batch(run._draw_batches(1)[0][:rows], run._device))
    return [weight.grad for weight in run._model.parameters() if weight.grad is not None]


@pytest.mark.parametrize("rows", [32, 30, 3])
@pytest.mark.parametrize("method", METHODS)
def test_gradients_of_a_batch_in_parts_are_those_of_the_batch(method, rows, cache):
    whole, parts = (gradients_of(method, number, rows, cache) for number in (1, 4))
    assert len(whole) == len(parts) > 10
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)


def test_unequal_parts_are_weighted_by_their_examples(cache):
    """Thirty rows in four parts are 8, 8, 7 and 7: the mean of the parts' losses would be another loss."""
    run = TrainingRun(spec_with("albert", 4), cache=cache, limit=32)
    batch = run._data.train.batch(run._draw_batches(1)[0][:30], run._device)
    losses = [loss.item() for loss in run._compute_losses(batch)]
    sizes = (8, 8, 7, 7)
    split = zip(*(values.split(sizes) for values in batch.values()), strict=True)
    parts = [run._model.loss(dict(zip(batch, values, strict=True)))["loss"].item() for values in split]
    assert losses == pytest.approx([loss * size / 30 for loss, size in zip(parts, sizes, strict=True)])
    assert sum(losses) == pytest.approx(run._model.loss(batch)["loss"].item(), abs=1e-5)


def test_a_step_in_parts_counts_as_one(cache):
    run = TrainingRun(spec_with("berxit", 4, batch_size=8), cache=cache, limit=32)
    run.run_epoch()
    assert int(run._model.steps) == run.steps_per_epoch == 4


@pytest.mark.parametrize("method", ["pabee", "berxit"])
def test_a_trial_in_parts_resumes(method, cache, tmp_path):
    spec = spec_with(method, 3, batch_size=8, hidden_dropout=0.1)
    whole = TrainingRun(spec, cache=cache, limit=32)
    whole.run_epoch()
    whole.save(tmp_path)
    resumed = TrainingRun.resume(tmp_path, cache=cache, limit=32)
    whole.run_epoch()
    resumed.run_epoch()
    weights = whole._model.state_dict()
    assert all(weight.equal(weights[name]) for name, weight in resumed._model.state_dict().items())


def test_the_truncation_of_parts_is_a_departure():
    def lines(methods, **settings):
        plan = replace(profiles.load_profile("mini"), methods=methods, tasks=("rte",), settings=settings)
        return [str(line) for line in resolve(plan).departures["protocol"] if "posteriors" in line.what]

    assert not lines(("palbert", "pabee")) and not lines(("pabee",), gradient_accumulation=4)
    [line] = lines(("palbert", "pabee"), gradient_accumulation=4)
    assert line.startswith("end of the posteriors of palbert: ") and "where all of its part are" in line
