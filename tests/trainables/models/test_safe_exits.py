"""Exits that are shown to be safe: pytest tests/trainables/models/test_safe_exits.py"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from trainables.models.exit_rules import LayerOutputs, every_patience, every_threshold, every_uncertainty, rule_as_json
from trainables.models.safe_exits import evaluate_settings, find_safe_setting, max_losses, read_evaluated_settings

SHARES = np.array([0.0, 0.004, 0.009, 0.013, 0.011, 0.03, 0.08])  # lost by each setting of a population; not rising
RISK, N, DRAWS = 0.01, 1_000, 2_000


@pytest.mark.parametrize("n", [1, 5, 277, 872, 40_430])
@pytest.mark.parametrize("risk", [0.01, 0.02, 0.05])
def test_most_lost_is_the_exact_binomial_bound(n, risk):
    most = max_losses(n, risk)
    assert most < 0 or binom.cdf(most, n, risk) <= 0.05
    assert binom.cdf(most + 1, n, risk) > 0.05


def test_277_examples_show_nothing_safe_at_one_percent():
    assert max_losses(277, 0.01) == -1
    assert find_safe_setting(np.zeros((3, 277), dtype=bool), 0.01) is None
    assert find_safe_setting(np.zeros((3, 300), dtype=bool), 0.01) == 2


def outputs(n: int = 400) -> tuple[LayerOutputs, np.ndarray]:
    """Six layers that get right one after the other, with λ, and the labels."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=n)
    right = rng.random((6, n)) < np.linspace(0.6, 0.9, 6)[:, None]
    logits = np.eye(2, dtype=np.float32)[np.where(right, labels, 1 - labels)]
    return LayerOutputs(logits, rng.random((6, n)).astype(np.float32)), labels


def plain_exit_layer(answers: list[int], patience: int) -> int:
    """PABEE, one example at a time: layers run, from 1."""
    agreements = 0
    for layer in range(1, len(answers)):
        agreements = agreements + 1 if answers[layer] == answers[layer - 1] else 0
        if agreements == patience:
            return layer + 1
    return len(answers)


def plain_boldest(answers: np.ndarray, labels: np.ndarray | None, risk: float) -> int:
    """The lowest patience that may lose so much, walking down from the highest; 0 if none."""
    found, n = 0, answers.shape[1]
    for patience in range(len(answers), 0, -1):
        lost = 0
        for example in range(n):
            own = answers[plain_exit_layer(answers[:, example].tolist(), patience) - 1, example]
            whole = answers[-1, example]
            lost += own != whole if labels is None else (whole == labels[example]) and (own != labels[example])
        if binom.cdf(lost, n, risk) > 0.05:
            break
        found = patience
    return found


@pytest.mark.parametrize("with_labels", [True, False])
@pytest.mark.parametrize("risk", [0.02, 0.05, 0.1, 0.2])
def test_boldest_patience_is_that_of_a_plain_walk(with_labels, risk):
    of_layers, labels = outputs()
    known = labels if with_labels else None
    settings = evaluate_settings(every_patience(6, None), of_layers)
    place = find_safe_setting(settings.lost(known), risk)
    found = 0 if place is None else settings.rules[place].patience
    assert min(found, 5) == min(plain_boldest(of_layers.logits.argmax(axis=2), known, risk), 5)  # 5 and 6 run all


def test_settings_are_walked_from_the_last_layer_on():
    settings = evaluate_settings(every_threshold(), outputs()[0])
    assert [rule.q for rule in settings.rules] == sorted((rule.q for rule in settings.rules), reverse=True)
    assert settings.mean_layers[0] == 6 and not settings.lost(None)[0].any()


def test_learned_exits_are_walked_by_the_stored_uncertainties(tmp_path):
    of_layers, labels = outputs()
    arrays = {
        "layer_logits": of_layers.logits,
        "uncertainties": np.tile(np.linspace(0.99, 0.01, 6)[:, None], (1, len(labels))),
        "labels": labels,
        "sweep_rule": np.array(["learned"] * len(every_uncertainty())),
        "sweep_rule_fields": np.array([rule_as_json(rule) for rule in every_uncertainty()]),
    }
    np.savez(tmp_path / "predictions.npz", **arrays)
    settings, _ = read_evaluated_settings(tmp_path / "predictions.npz", "learned")
    thresholds = [rule.threshold for rule in settings.rules]
    assert thresholds == sorted(thresholds)
    assert settings.mean_layers[thresholds.index(0.5)] == 4 and settings.mean_layers[[0, -1]].tolist() == [6, 1]


def draws() -> list[np.ndarray]:
    """Losses (settings, N) of examples drawn from the population."""
    rng = np.random.default_rng(1)
    return [rng.random(N) < SHARES[:, None] for _ in range(DRAWS)]


def test_safe_setting_keeps_risk_in_95_of_100_draws():
    places = [find_safe_setting(lost, RISK) for lost in draws()]
    broken = [place is not None and SHARES[place] > RISK for place in places]
    assert np.mean(broken) <= 0.05
    naive = [SHARES[np.flatnonzero(lost.mean(axis=1) <= RISK).max()] > RISK for lost in draws()]
    assert np.mean(naive) > 0.3
    assert np.mean([place is not None and place >= 1 for place in places]) > 0.5  # and it is of use
