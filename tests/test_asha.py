"""pytest tests/test_asha.py"""

from types import SimpleNamespace

import pytest

from study.asha import Asha


def decide(asha: Asha, key: str, epoch: int, score: float) -> str | None:
    decision = asha.decide(key, epoch=epoch, score=score)
    if decision is None:
        return None
    asha.apply({"key": key, **vars(decision)})
    return decision.decision


def test_first_trial_of_a_rung_goes_on():
    assert decide(Asha(grace=1, factor=3, max_epochs=9), "a", 1, 0.1) == "continue"


def test_a_score_below_the_upper_third_is_stopped():
    asha = Asha(grace=1, factor=3, max_epochs=9)
    for key, score in (("a", 0.1), ("b", 0.4), ("c", 0.7)):
        decide(asha, key, 1, score)
    decision = asha.decide("d", epoch=1, score=0.45)
    assert decision is not None
    assert (decision.decision, decision.recorded, decision.cutoff) == ("stop", 3, pytest.approx(0.5))
    assert decide(asha, "e", 1, 0.5) == "continue"


def test_between_rungs_and_at_the_last_epoch_there_is_no_decision():
    asha = Asha(grace=1, factor=3, max_epochs=9)
    assert [epoch for epoch in range(1, 10) if asha.decide("a", epoch=epoch, score=0.5)] == [1, 3]


def test_a_trial_passes_a_rung_once():
    asha = Asha(grace=1, factor=3, max_epochs=9)
    assert decide(asha, "a", 1, 0.5) == "continue"
    assert decide(asha, "a", 1, 0.0) is None


def test_decisions_equal_those_of_ray():
    from random import Random

    from ray.tune.schedulers import AsyncHyperBandScheduler

    random = Random(0)
    ours = Asha(grace=1, factor=3, max_epochs=28)
    rays = AsyncHyperBandScheduler(
        time_attr="epoch", metric="score", mode="max", grace_period=1, reduction_factor=3, max_t=28
    )
    for number in range(200):
        trial = SimpleNamespace(trial_id=str(number), stub=False)
        rays.on_trial_add(None, trial)
        for epoch in range(1, 28):
            score = random.random()
            ray_says = rays.on_trial_result(None, trial, {"epoch": epoch, "score": score})
            we_say = decide(ours, str(number), epoch, score)
            assert (we_say or "continue").upper() == ray_says
            if ray_says == "STOP":
                break
