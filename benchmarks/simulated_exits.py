"""Simulated exits of which the gain is known, and curves and guarantees of exits; `benchmarks.statistics`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import special

from analysis.statistics import uncertainty
from analysis.statistics.budgets import compare_at_equal_layers, evaluate_on_halves
from analysis.statistics.curves import Settings, common_range, make_curves
from analysis.statistics.exit_settings import apply_setting
from analysis.statistics.gains import measure_gains
from analysis.studies.stored_predictions import Answers, Predictions, predictions_from
from benchmarks.rates import Rate
from benchmarks.simulated_models import EXAMPLES, SEED_DEVIATION, SEEDS
from trainables.data.tasks import TASKS as GLUE
from trainables.models.answer_rules import SWEPT_PROBABILITIES, MaxProbability
from trainables.models.safe_exits import CONFIDENCE, find_safe_setting


def curves_of_exits(divisor: int) -> Iterator[Rate]:
    """Models that gain alike with every layer, so all settings lie on one line."""
    rng, repeats = np.random.default_rng(16), 400 // divisor
    few, many = np.array([2.0, 10.0]), np.linspace(2, 10, 30)
    rejected = 0
    for _ in range(repeats):
        labels, ease = rng.integers(2, size=EXAMPLES), rng.uniform(0.5, 0.85, EXAMPLES)
        curves = [
            make_curves([exit_settings(rng, labels, ease, layers) for _ in range(SEEDS)]) for layers in (few, many)
        ]
        one, other = (own.over(*common_range(curves)) for own in curves)
        test = uncertainty.welch_test(one.resampled, other.resampled, one.scores, other.scores)
        rejected += test.p_value < uncertainty.ALPHA
    yield Rate("curves that are alike: called different", rejected / repeats, repeats, "at most", uncertainty.ALPHA)


def exit_settings(rng: np.random.Generator, labels: np.ndarray, ease: np.ndarray, layers: np.ndarray) -> Settings:
    """A model under several settings, each at one number of layers; 1 point more for each layer."""
    examples = Answers(GLUE["rte"], np.arange(EXAMPLES), np.full(EXAMPLES, "dev"), labels, labels[None])
    luck, shift = rng.random(EXAMPLES), rng.normal(0, SEED_DEVIATION)
    is_right = luck < ease + shift + 0.01 * (layers[:, None] - 6)
    exit_layers = np.broadcast_to(layers[:, None], is_right.shape)
    return Settings(examples, np.where(is_right, labels, 1 - labels), exit_layers)


class Exiting(NamedTuple):
    """A kind of models, and where their examples exit."""

    name: str
    task: str
    heights: tuple[float, ...]  # by how much each layer is right more often than ease; twice as much for hard examples
    layers: tuple[int, int]  # at which examples exit
    knows_hard: bool  # whether the hard examples exit at the later layer, or half of all by a toss


EXITING = (
    Exiting("blind exits, layers on a line", "rte", (-0.1, -0.06, -0.02, 0.02, 0.06, 0.1), (3, 6), False),
    Exiting("blind exits, dead layers below", "rte", (-0.17, -0.17, -0.17, 0.0, 0.06, 0.08), (1, 4), False),
    Exiting("blind exits, a plateau", "rte", (-0.1, 0.0, 0.02, 0.03, 0.03, 0.03), (2, 5), False),
    Exiting("blind exits, Matthews", "cola", (-0.1, -0.06, -0.02, 0.02, 0.06, 0.1), (3, 6), False),
    Exiting("exits that know hard examples", "rte", (-0.1, -0.06, -0.02, 0.02, 0.06, 0.1), (3, 6), True),
)


POPULATION = 200_000


def gains_of_exits(divisor: int) -> Iterator[Rate]:
    """Gains on new dev examples with new seeds, beside the gain in the population."""
    rng, repeats = np.random.default_rng(17), 600 // divisor
    for kind in EXITING:
        true_gain = population_gain(kind, rng)
        covered = claimed = 0
        for _ in range(repeats):
            labels, ease = rng.integers(2, size=EXAMPLES), rng.uniform(0.5, 0.85, EXAMPLES)
            models = [exiting_model(kind, labels, ease, rng.normal(0, SEED_DEVIATION), rng) for _ in range(SEEDS)]
            setting = apply_setting(None, models)
            interval = measure_gains(models, [setting])[0].interval
            covered += interval.low <= true_gain <= interval.high
            claimed += interval.low > 0
        yield Rate(f"{kind.name}: gain covered", covered / repeats, repeats, "at least", uncertainty.LEVEL)
        level = (1 - uncertainty.LEVEL) / 2
        if not kind.knows_hard:
            yield Rate(f"{kind.name}: called better than a coin", claimed / repeats, repeats, "at most", level)
    for epochs in (6, 25):
        claimed, studies = 0, repeats // 2
        for _ in range(studies):
            labels, ease = rng.integers(2, size=EXAMPLES), rng.uniform(0.5, 0.85, EXAMPLES)
            models = [best_of_epochs(EXITING[0], labels, ease, epochs, rng) for _ in range(SEEDS)]
            claimed += measure_gains(models, [apply_setting(None, models)])[0].interval.low > 0
        name = f"{EXITING[0].name}, best of {epochs} epochs on the same dev rows: called better than a coin"
        yield Rate(name, claimed / studies, studies, "for comparison", None)


def rules_at_equal_layers(divisor: int) -> Iterator[Rate]:
    """Differences between exit rules on new dev examples with new seeds, beside what such studies find on average."""
    rng, repeats = np.random.default_rng(37), 400 // divisor
    sure = [MaxProbability(probability) for probability in SWEPT_PROBABILITIES]
    for height, name in ((0.0, "layers that answer equally well"), (0.04, "better layers above")):
        tests = []
        for _ in range(repeats):
            labels, ease = rng.integers(2, size=EXAMPLES), rng.uniform(0.5, 0.85, EXAMPLES)
            models = [unsure_model(height, labels, ease, rng) for _ in range(SEEDS)]
            compared = compare_at_equal_layers(evaluate_on_halves(models, [None, *sure]), sure, None)
            assert compared is not None
            tests.append(uncertainty.mean_test(compared.difference.resampled, compared.difference.scores))
        expected = float(np.mean([test.difference for test in tests])) if height else 0.0
        covered = float(np.mean([test.low <= expected <= test.high for test in tests]))
        yield Rate(f"{name}: difference covered", covered, repeats, "at least", uncertainty.LEVEL)
        if not height:
            differ = float(np.mean([test.p_value < uncertainty.ALPHA for test in tests]))
            yield Rate(f"{name}: called different", differ, repeats, "at most", uncertainty.ALPHA)


def unsure_model(height: float, labels: np.ndarray, ease: np.ndarray, rng: np.random.Generator) -> Predictions:
    """A model whose examples exit at layer 2 or 4 by a toss, but which is surer of easy examples.

    Each layer adds so much to the chance of a right answer on a hard example.
    """
    n, is_hard = len(labels), ease < np.median(ease)
    chances = ease + rng.normal(0, SEED_DEVIATION) + height * np.arange(-2, 4)[:, None] * is_hard  # (layers, n)
    layer_answers = np.where(rng.random(chances.shape) < chances, labels, 1 - labels)
    logits = np.eye(2)[layer_answers] * (rng.uniform(0, 3, chances.shape) + 2 * ~is_hard)[..., None]
    return made_predictions("rte", labels, logits, np.where(rng.random(n) < 0.5, 2, 4))


def exiting_model(
    kind: Exiting, labels: np.ndarray, ease: np.ndarray, shift: float, rng: np.random.Generator
) -> Predictions:
    """A model of this kind, with the answers of all layers and of its exits."""
    n, is_hard = len(labels), ease < np.median(ease)
    chances = ease + shift + np.array(kind.heights)[:, None] * 2 * is_hard  # (layers, n)
    layer_answers = np.where(rng.random(n) < chances, labels, 1 - labels)
    is_late = is_hard if kind.knows_hard else rng.random(n) < 0.5
    exit_layers = np.where(is_late, kind.layers[1], kind.layers[0])
    return made_predictions(kind.task, labels, np.eye(2)[layer_answers], exit_layers)


def made_predictions(task: str, labels: np.ndarray, logits: np.ndarray, exit_layers: np.ndarray) -> Predictions:
    """A model with these logits of all layers, (layers, n, labels), whose examples exit at these layers, (n,)."""
    n = len(labels)
    nothing = {f"sweep_{name}": np.array([]) for name in ("setting", "score", "mean_layers")}
    names = {f"sweep_{name}": np.array([], dtype=np.str_) for name in ("rule", "field", "rule_fields")}
    arrays = {
        "ids": np.arange(n),
        "split": np.full(n, "dev"),
        "labels": labels,
        "logits": logits[exit_layers - 1, np.arange(n)][None],
        "exit_layers": exit_layers[None],
        "layer_logits": logits,
    }
    return predictions_from(GLUE[task], arrays | nothing | names)


def best_of_epochs(
    kind: Exiting, labels: np.ndarray, ease: np.ndarray, epochs: int, rng: np.random.Generator
) -> Predictions:
    """The epoch of a trial that scores best on the dev rows of the gain."""
    shift = rng.normal(0, SEED_DEVIATION)
    trial = (exiting_model(kind, labels, ease, shift + rng.normal(0, SEED_DEVIATION), rng) for _ in range(epochs))
    return max(trial, key=lambda model: model.score)


def population_gain(kind: Exiting, rng: np.random.Generator) -> float:
    """The gain on very many examples, beside the best coin there, for a seed without luck."""
    labels, ease = rng.integers(2, size=POPULATION), rng.uniform(0.5, 0.85, POPULATION)
    model = exiting_model(kind, labels, ease, 0.0, rng)
    if not kind.knows_hard:  # a blind exit is a coin itself
        lower, upper = (counts_of(model.layer_answers[layer - 1], labels) for layer in kind.layers)
        own = score_of_counts(kind.task, (lower + upper) / 2)
    else:
        own = score_of_counts(kind.task, counts_of(model.answers[0], labels))
    layers, mean = [counts_of(answers, labels) for answers in model.layer_answers], sum(kind.layers) / 2
    coins = [
        score_of_counts(kind.task, ((high - mean) * layers[low - 1] + (mean - low) * layers[high - 1]) / (high - low))
        for low in range(1, len(layers))
        for high in range(low + 1, len(layers) + 1)
        if low <= mean <= high
    ]
    return own - max(coins)


def counts_of(answers: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How many examples have each label and answer, (2, 2)."""
    return np.bincount(2 * labels + answers, minlength=4).reshape(2, 2).astype(float)


def score_of_counts(task: str, counts: np.ndarray) -> float:
    """Accuracy, or Matthews' correlation on CoLA."""
    if task != "cola":
        return float(np.trace(counts) / counts.sum())
    sums = np.prod(counts.sum(axis=0)) * np.prod(counts.sum(axis=1))
    return float(np.linalg.det(counts) / sums**0.5)


RISK, ACCURACY, LABELLED = 0.02, 0.85, 872  # SST-2's dev rows


SAFE_LOSSES = np.geomspace(0.002, 0.1, 60)  # shares of examples that settings lose; the slowest setting comes first


def safe_exits(divisor: int) -> Iterator[Rate]:
    """Models and exit rules that are alike. The truth is the share that a setting loses in the population."""
    rng, repeats = np.random.default_rng(19), 4_000 // divisor
    for models in (1, SEEDS, 25 * SEEDS):
        broken = float(np.mean([breaks_guarantee(rng, models) for _ in range(repeats)]))
        if models == 1:
            yield Rate("a model, a rule: more is lost", broken, repeats, "at most", 1 - CONFIDENCE)
        else:
            name = f"the best of {models} models by the dev score of their exits: more is lost"
            yield Rate(name, broken, repeats, "for comparison", None)
    for rules in (2, 3, 7):
        broken = float(np.mean([fastest_breaks_guarantee(rng, rules) for _ in range(repeats)]))
        yield Rate(f"the fastest of {rules} rules: more is lost", broken, repeats, "for comparison", None)


def breaks_guarantee(rng: np.random.Generator, models: int) -> bool:
    """Whether the safe exit of the best model loses more than it may. Each model's own exit loses the share at risk."""
    is_right = rng.random((models, LABELLED)) < ACCURACY  # at the last layer
    luck = rng.random((models, LABELLED))
    best = (is_right & (luck > RISK / ACCURACY)).mean(axis=1).argmax()
    lost = is_right[best] & (luck[best] < SAFE_LOSSES[:, None] / ACCURACY)
    return loses_more(find_safe_setting(lost, RISK))


def fastest_breaks_guarantee(rng: np.random.Generator, rules: int) -> bool:
    """Whether the fastest of several rules' safe exits on one model loses more than it may."""
    is_right = rng.random(LABELLED) < ACCURACY
    hardness = 0.6**0.5 * rng.normal(size=LABELLED) + 0.4**0.5 * rng.normal(size=(rules, LABELLED))
    limits = special.ndtri(SAFE_LOSSES / ACCURACY)
    safe = [find_safe_setting(is_right & (own < limits[:, None]), RISK) for own in hardness]
    speeds = [-1 if place is None else place for place in safe]
    return loses_more(max(speeds))


def loses_more(place: int | None) -> bool:
    return place is not None and place >= 0 and bool(SAFE_LOSSES[place] > RISK)
