"""pytest tests/study/decisions/test_asha.py"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from study.decisions import asha
from study.facts.events import AshaDecided
from study.plans.plan import EarlyStopping

STOPPING = EarlyStopping(grace=1, factor=3)


class Rungs:
    """The scores at the rungs of one arm, as its facts hold them."""

    def __init__(self, epochs: int = 9) -> None:
        self.epochs = epochs
        self.scores: dict[int, dict[str, float]] = {}

    def look(self, key: str, epoch: int, score: float) -> AshaDecided | None:
        limits = {"epochs": self.epochs, "stopping": STOPPING}
        return asha.decide(self.scores, key, time="", epoch=epoch, score=score, **limits)

    def decide(self, key: str, epoch: int, score: float) -> str | None:
        decision = self.look(key, epoch, score)
        if decision is None:
            return None
        self.scores.setdefault(epoch, {})[key] = score
        return decision.decision


def test_first_trial_of_a_rung_goes_on():
    assert Rungs().decide("a", 1, 0.1) == "continue"


def test_a_score_below_the_upper_third_is_stopped():
    rungs = Rungs()
    for key, score in (("a", 0.1), ("b", 0.4), ("c", 0.7)):
        rungs.decide(key, 1, score)
    decision = rungs.look("d", 1, 0.45)
    assert (decision.decision, decision.recorded, decision.cutoff) == ("stop", 3, pytest.approx(0.5))
    assert rungs.decide("e", 1, 0.5) == "continue"


def test_between_rungs_and_at_the_last_epoch_there_is_no_decision():
    assert [epoch for epoch in range(1, 10) if Rungs().look("a", epoch, 0.5)] == [1, 3]


def test_a_trial_passes_a_rung_once():
    rungs = Rungs()
    assert rungs.decide("a", 1, 0.5) == "continue"
    assert rungs.decide("a", 1, 0.0) is None


@pytest.mark.parametrize("factor", [2, 3, 4, 7])
def test_the_cutoff_is_numpys_quantile_to_the_bit(factor):
    random = Random(factor)
    for number in range(1, 60):
        scores = [random.choice((random.random(), 0.5)) for _ in range(number)]
        cutoff = asha.compute_cutoff(sorted(scores), EarlyStopping(grace=1, factor=factor))
        assert cutoff == np.percentile(scores, 100 * (1 - 1 / factor))


def test_decisions_equal_those_of_ray():
    from ray.tune.schedulers import AsyncHyperBandScheduler

    random = Random(0)
    ours = Rungs(epochs=28)
    rays = AsyncHyperBandScheduler(
        time_attr="epoch", metric="score", mode="max", grace_period=1, reduction_factor=3, max_t=28
    )
    for number in range(200):
        trial = SimpleNamespace(trial_id=str(number), stub=False)
        rays.on_trial_add(None, trial)
        for epoch in range(1, 28):
            score = random.random()
            ray_says = rays.on_trial_result(None, trial, {"epoch": epoch, "score": score})
            assert (ours.decide(str(number), epoch, score) or "continue").upper() == ray_says
            if ray_says == "STOP":
                break
