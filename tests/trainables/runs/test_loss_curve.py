"""The parts of the loss as curves: pytest tests/trainables/runs/test_loss_curve.py"""

import math

import pytest
import torch

from trainables.runs.loss_curve import MOST_POINTS, STEPS_BETWEEN_POINTS, LossCurve


def curve_of(steps, num_steps=None):
    curve = LossCurve(num_steps or len(steps))
    for parts in steps:
        curve.add(parts)
        curve.end_step()
    return curve.read()


def test_short_epoch_has_one_point_with_the_means():
    found = curve_of([{"loss": torch.tensor(1.0), "kl": 4}, {"loss": torch.tensor(2.0), "kl": torch.tensor([6.0])}])
    assert found.steps == (2,) and found.means == {"loss": (1.5,), "kl": (5.0,)}


def test_long_epoch_has_a_point_for_each_stretch():
    steps = 4 * STEPS_BETWEEN_POINTS
    found = curve_of([{"loss": torch.tensor(float(step))} for step in range(steps)])
    assert found.steps == (50, 100, 150, 200)
    assert found.means["loss"] == (24.5, 74.5, 124.5, 174.5)
    assert len(LossCurve(1_000_000).read().steps) == MOST_POINTS


def test_mean_of_a_part_is_over_the_steps_that_have_it():
    assert curve_of([{"kl": 1.0}, {}, {"kl": 3.0}]).means == {"kl": (2.0,)}


@pytest.mark.parametrize("value", [torch.ones(2), "text", None, torch.tensor(1j)])
def test_entry_that_is_no_number_is_ignored(value):
    assert curve_of([{"loss": 1.0, "extra": value, 3: 1.0}]).means == {"loss": (1.0,)}


def test_mean_that_is_not_finite_is_absent():
    assert curve_of([{"kl": math.inf}]).means == {"kl": (None,)}


def test_parts_of_a_batch_are_weighted_by_their_examples():
    curve = LossCurve(1)
    curve.add({"kl": torch.tensor(1.0)}, share=0.75)
    curve.add({"kl": torch.tensor(5.0)}, share=0.25, is_first=False)
    curve.end_step()
    assert curve.read().means == {"kl": (2.0,)}


def test_graph_of_a_part_is_freed():
    weight = torch.ones(1, requires_grad=True)
    curve = LossCurve(1)
    curve.add({"kl": (2 * weight).sum()})
    assert not curve._sums[0]["kl"].requires_grad
