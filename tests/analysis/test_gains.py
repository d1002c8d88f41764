"""The gain of exits, against a plain writing and against tosses: pytest tests/analysis/test_gains.py"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from helpers.made_studies import edit_records
from helpers.places import ROOT
from helpers.swept_studies import swept_study

from analysis.layouts.answer import answer, warn_of_weak_models
from analysis.layouts.evidence import Evidence, gather
from analysis.layouts.exit_tables import exits_table
from analysis.layouts.model_notes import collapsed_notes
from analysis.statistics import exit_settings
from analysis.statistics.exit_settings import ExitSetting, apply_setting, halvings
from analysis.statistics.gains import Gain, can_measure, measure_gains, read_gain, score_coins
from analysis.statistics.samples import resample
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import Answers, Predictions, predictions_from, read_cell_predictions
from study.facts.study_folder import predictions_file
from trainables.data.metrics import compute_metrics, score
from trainables.data.tasks import TASKS
from trainables.models.answer_rules import FixedLayer

KEPT = ROOT / "benchmarks" / "results" / "real" / "cpu"


@cache
def kept(task: str) -> Evidence:
    return gather([load_study(KEPT / f"cpu-{task}")])


@cache
def stored_of(method: str, task: str) -> list[Predictions]:
    return read_cell_predictions(kept(task).cells_by_place[method, task])


# A second, plain writing: confusion counts of one model at a time, first without halves.


def plain_score(task: str, counts: np.ndarray) -> float:
    """Matthews' correlation or accuracy from counts [label][answer]."""
    (true_negative, false_positive), (false_negative, true_positive) = counts
    if task == "sst2":
        return (true_positive + true_negative) / counts.sum()
    below = (true_positive + false_positive) * (true_positive + false_negative)
    below *= (true_negative + false_positive) * (true_negative + false_negative)
    return (true_positive * true_negative - false_positive * false_negative) / below**0.5 if below else 0.0


def count(labels: np.ndarray, answers: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.array([[weights[(labels == one) & (answers == two)].sum() for two in (0, 1)] for one in (0, 1)])


def plain_gains(
    model: Predictions, task: str, weights: np.ndarray | None = None, *, neighbours_only: bool = False
) -> list[float]:
    """The gain of the own exit against both neighbouring layers, and against the best coin."""
    weights = np.ones(len(model.labels)) if weights is None else weights
    own = np.mean([plain_score(task, count(model.labels, draw, weights)) for draw in model.answers])
    mean = float((weights * model.exit_layers.mean(axis=0)).sum() / weights.sum())
    depth = len(model.layer_answers)
    neighbours = (min(int(mean), depth - 1), min(int(mean), depth - 1) + 1)
    pairs = [neighbours] if neighbours_only else [neighbours, *combinations(range(1, depth + 1), 2)]
    coins = [
        plain_score(
            task,
            (high - mean) / (high - low) * count(model.labels, model.layer_answers[low - 1], weights)
            + (mean - low) / (high - low) * count(model.labels, model.layer_answers[high - 1], weights),
        )
        for low, high in pairs
        if low <= mean <= high
    ]
    return [own - coins[0], own - max(coins)]


GAINS = [  # points, against the neighbours and against the best coin; 95 % interval against the neighbours
    ("palbert", "cola", 0.00, 0.00, (0.0, 0.0)),
    ("palbert", "sst2", 0.04, -0.02, (-0.3, 0.4)),
    ("pabee", "cola", 0.08, 0.06, (-0.4, 0.5)),
    ("pabee", "sst2", -0.52, -0.54, (-1.0, 0.0)),
    ("pondernet", "cola", -1.43, -1.89, (-3.3, 0.4)),
    ("pondernet", "sst2", -3.64, -3.77, (-4.1, -3.2)),
]


@pytest.mark.parametrize(("method", "task", "neighbours", "best", "interval"), GAINS)
def test_kept_gains_are_those_of_a_plain_writing(method, task, neighbours, best, interval):
    stored = stored_of(method, task)
    plain = 100 * np.array([plain_gains(model, task) for model in stored])
    assert plain.mean(axis=0) == pytest.approx([neighbours, best], abs=0.006)
    (gain,) = measure_gains(stored, [apply_setting(None, stored)])
    low, high = sorted((neighbours, best))
    assert low - 0.15 <= 100 * gain.mean <= high + 0.15
    assert (100 * gain.interval.low, 100 * gain.interval.high) == pytest.approx(interval, abs=0.25)  # of another coin


def plain_halved_gain(stored: list[Predictions], task: str) -> float:
    """The mean gain over seeds and halvings of dev. Each half of a halving has the coin that the other half chose."""
    depth, labels = len(stored[0].layer_answers), stored[0].labels
    pairs = sorted(combinations(range(1, depth + 1), 2), key=lambda pair: pair[1] - pair[0])
    gains = []
    for parts in halvings(stored[0].split).astype(float):
        counts = [[[count(labels, own, part) for own in one.layer_answers] for one in stored] for part in parts]

        def toss(half: int, seed: int, pair: tuple[int, int], mean: float, counts=counts) -> np.ndarray:
            (low, high), layers = pair, counts[half][seed]
            return (high - mean) / (high - low) * layers[low - 1] + (mean - low) / (high - low) * layers[high - 1]

        for seed, model in enumerate(stored):
            mean, tossed = float(model.exit_layers.mean()), np.zeros((2, 2))
            allowed = [pair for pair in pairs if pair[0] <= mean <= pair[1]]
            for half in (0, 1):
                scores = [
                    np.mean([plain_score(task, toss(1 - half, one, pair, mean)) for one in range(len(stored))])
                    for pair in allowed
                ]
                tossed += toss(half, seed, allowed[int(np.argmax(np.round(scores, 12)))], mean)
            own = np.mean([plain_score(task, count(labels, draw, np.ones(len(labels)))) for draw in model.answers])
            gains.append(own - plain_score(task, tossed))
    return float(np.mean(gains))


@pytest.mark.parametrize(
    ("method", "task"), [pytest.param(*one[:2], marks=[pytest.mark.long] * (one[1] == "sst2")) for one in GAINS]
)
def test_kept_gains_are_means_over_halvings(method, task):
    """Chances are averaged over halvings, not scores; for accuracy it is the same, for Matthews nearly."""
    stored = stored_of(method, task)
    (gain,) = measure_gains(stored, [apply_setting(None, stored)])
    expected = plain_halved_gain(stored, task)
    assert 100 * gain.mean == pytest.approx(100 * expected, abs=1e-6 if task == "sst2" else 0.02)


@pytest.mark.parametrize(("method", "task"), [one[:2] for one in GAINS if any(one[4])])
def test_gain_hardly_depends_on_halves(method, task, monkeypatch):
    stored, found = stored_of(method, task), []
    for first in (0, 100, 200, 300):
        monkeypatch.setattr(exit_settings, "FIRST_SEED", first)
        (gain,) = measure_gains(stored, [apply_setting(None, stored)])
        found.append((gain.mean, gain.interval.low, gain.interval.high))
    assert 100 * np.ptp(found, axis=0).max() < 0.1  # with one halving, 0.5 for pabee on CoLA


@pytest.mark.parametrize(("method", "task", "interval"), [(one[0], one[1], one[4]) for one in GAINS if any(one[4])])
def test_interval_adds_the_variances_over_seeds_and_examples(method, task, interval):
    """A plain bootstrap of the examples; what seeds and examples share is in both variances, and is taken off once."""
    stored, rng = stored_of(method, task), np.random.default_rng(0)
    n, seeds = len(stored[0].labels), len(stored)
    gains = 100 * np.array([plain_gains(model, task)[0] for model in stored])
    draws = (np.bincount(rng.integers(n, size=n), minlength=n).astype(float) for _ in range(80))
    resampled = np.array(
        [[100 * plain_gains(model, task, drawn, neighbours_only=True)[0] for model in stored] for drawn in draws]
    )
    of_examples = resampled.mean(axis=1).var(ddof=1)
    shared = (resampled - resampled.mean(axis=1, keepdims=True)).var(axis=0, ddof=1).sum() / (seeds - 1) / seeds
    variance = gains.var(ddof=1) / seeds + max(0, of_examples - shared)
    half = 2.15 * variance**0.5
    width = interval[1] - interval[0]
    assert (gains.mean() - half, gains.mean() + half) == pytest.approx(interval, abs=0.1 + 0.15 * width)


# Made models.

N = 600


def model_of(task: str, layer_logits: np.ndarray, labels: np.ndarray, splits: np.ndarray | None = None) -> Predictions:
    layers, n, _ = layer_logits.shape
    nothing = np.array([], dtype=np.str_)
    return predictions_from(
        TASKS[task],
        {
            "ids": np.arange(n),
            "split": np.array([TASKS[task].dev_splits[0]] * n) if splits is None else splits,
            "labels": labels,
            "logits": layer_logits[-1:],
            "exit_layers": np.full((1, n), layers),
            "layer_logits": layer_logits,
            **{f"sweep_{name}": nothing for name in ("rule", "field", "rule_fields")},
            **{f"sweep_{name}": np.array([]) for name in ("setting", "score", "mean_layers")},
        },
    )


def made_models(task: str, *, seeds: int = 3, layers: int = 4, rng: np.random.Generator) -> list[Predictions]:
    """Models whose layers answer better and better; those of a regression also with more spread."""
    of_task = TASKS[task]
    classes = rng.integers(of_task.num_labels, size=N)
    labels = rng.uniform(0, 5, N) if of_task.is_regression else classes
    splits = np.array([of_task.dev_splits[i % len(of_task.dev_splits)] for i in range(N)])
    models = []
    for _ in range(seeds):
        share = np.linspace(0.3, 1, layers)[:, None]
        if of_task.is_regression:
            logits = (2.5 + share * (labels - 2.5) + (1.2 - share) * rng.normal(size=(layers, N)))[..., None]
        else:
            right = rng.random((layers, N)) < 0.5 + 0.4 * share
            logits = np.eye(of_task.num_labels)[np.where(right, labels, 0)]
        models.append(model_of(task, logits, labels, splits))
    return models


@pytest.mark.parametrize("task", ["rte", "cola", "mrpc", "mnli", "stsb"])
def test_coins_score_the_mean_of_many_tosses(task):
    """On both halves, at layers that were chosen on the other half; Spearman's ranks are those among the answers."""
    rng = np.random.default_rng(3)
    (model,) = stored = made_models(task, seeds=1, layers=2, rng=rng)  # of two layers, one pair is chosen everywhere
    (expected,) = score_coins(stored, np.array([[1.3]]))[0]
    tossed = []
    for _ in range(400):
        rows = rng.permutation(N)[: round(0.3 * N)]
        answers = model.layer_answers[0].copy()
        answers[rows] = model.layer_answers[1][rows]
        tossed.append(score(model.task, compute_metrics(model.task, answers, model.labels, model.split)))
    assert expected == pytest.approx(np.mean(tossed), abs=4 * np.std(tossed) / 20 + 5e-4)


def test_matthews_of_coin_is_not_linear():
    labels = np.repeat([0, 1], [186, 414])
    logits = np.stack(
        [np.eye(2)[np.ones(N, dtype=int)], np.eye(2)[np.where(np.arange(N) % 5 == 0, 1 - labels, labels)]]
    )
    stored = [model_of("cola", logits, labels)]
    ends, middle = score_coins(stored, np.array([[1.0], [2.0]]))[:, 0], score_coins(stored, np.array([[1.5]]))[0, 0]
    assert ends[0] == 0 and middle > ends.mean() + 0.05


def test_coin_uses_best_pair_of_layers():
    """Layers 1 and 2 have learned nothing; 4 is good, so half of the examples at 4 and half at 1 beat all at 2 or 3."""
    rng = np.random.default_rng(4)
    labels = rng.integers(2, size=N)
    right = rng.random((4, N)) < np.array([0.5, 0.5, 0.5, 0.9])[:, None]
    stored = [model_of("rte", np.eye(2)[np.where(right, labels, 1 - labels)], labels)] * 2
    scores = score_coins(stored, np.full((1, 2), 2.5))[0]
    assert scores == pytest.approx([0.7] * 2, abs=0.03)
    cut = apply_setting(FixedLayer(3), stored)
    assert measure_gains(stored, [cut])[0].mean == pytest.approx(0.5 - (0.5 + 2 * 0.9) / 3, abs=0.06)


def test_coin_gains_nothing_and_perfect_exits_gain():
    rng = np.random.default_rng(5)
    stored = made_models("rte", rng=rng)
    answers = [model.layer_answers for model in stored]
    toss, known = [], []
    for model, layers in zip(stored, answers, strict=True):
        toss.append(np.where(rng.random(N) < 0.5, 1, 4)[None])
        easy = layers[0] == model.labels
        known.append(np.where(easy & (rng.random(N) < 0.7), 1, 4)[None])

    def setting(exit_layers):
        chosen = (np.take_along_axis(own, exits - 1, axis=0) for own, exits in zip(answers, exit_layers, strict=True))
        return ExitSetting("made", tuple(chosen), tuple(exit_layers))

    blind, wise = measure_gains(stored, [setting(toss), setting(known)])
    assert blind.interval.low < 0 < blind.interval.high
    assert wise.interval.low > 0.05


def test_all_examples_at_the_first_or_the_last_layer_gain_nothing():
    rng = np.random.default_rng(6)
    stored = made_models("rte", rng=rng)
    for layer in (1, 4):
        (gain,) = measure_gains(stored, [apply_setting(FixedLayer(layer), stored)])
        assert gain.scores == pytest.approx([0.0] * 3) and gain.interval.low == pytest.approx(0)


def test_layers_are_chosen_on_the_other_half(monkeypatch):
    """Layer 2 is right on one half of dev, layer 3 on the other; each half is measured where the other is right."""
    monkeypatch.setattr(exit_settings, "HALVINGS", 1)
    labels = np.random.default_rng(7).integers(2, size=N)
    ((one, two),) = halvings(np.array(["dev"] * N))
    right = np.zeros((4, N), dtype=bool)
    right[1, one] = right[2, two] = True
    logits = np.eye(2)[np.where(right, labels, 1 - labels)]
    stored = [model_of("rte", logits, labels)] * 2
    assert score_coins(stored, np.full((1, 2), 2.0)).tolist() == [[0.0, 0.0]]


@pytest.mark.slow
def test_gain_is_table_score_minus_coin(tmp_path):
    evidence = gather([load_study(swept_study(tmp_path / "s", ["albert", "palbert", "pondernet"], ["rte", "stsb"]))])
    assert set(evidence.gains) == {(method, task) for method in ("palbert", "pondernet") for task in ("rte", "stsb")}
    for place, gain in evidence.gains.items():
        cell = evidence.cells_by_place[place]
        stored = read_cell_predictions(cell)
        for seed, model in enumerate(stored):
            coin = score_coins(stored, np.full((1, len(stored)), model.mean_layers))[0, seed]
            assert cell.scores[seed] - gain.scores[seed] == pytest.approx(coin)
    line = next(line for line in exits_table(evidence).lines if line.label == "palbert/rte")
    assert line.entries["gain"].values[""] == pytest.approx(100 * evidence.gains["palbert", "rte"].mean)


@pytest.mark.parametrize(("select", "is_named"), [("best", True), ("last", False)])
def test_gains_of_epochs_chosen_on_the_same_rows_are_named(tmp_path, select, is_named):
    folder = swept_study(tmp_path / "s", ["albert", "palbert"], ["rte"])
    edit_records(folder, lambda rows: [row["config"].update(select=select) for row in rows])
    notes = exits_table(gather([load_study(folder)])).notes
    named = "gains of palbert are too high: on these rows, their epochs were chosen by the score with exits"
    assert [note for note in notes if note.startswith("gains")] == [named] * is_named


def test_gains_that_no_table_has_are_not_too_high(tmp_path):
    """All examples of all models leave at the last layer, so exits have no gain."""
    evidence = gather([load_study(swept_study(tmp_path / "s", ["albert", "palbert"], ["rte"]))])
    (place,) = evidence.gains
    evidence.gains[place] = replace(evidence.gains[place], only_layer=12)
    assert not [note for note in exits_table(evidence).notes if note.startswith("gains")]


@pytest.mark.parametrize(("points", "is_shown"), [(0.03, False), (0.06, True), (-1.0, False)])
def test_gain_that_prints_as_zero_is_not_shown(points, is_shown):
    """On PonderNet's SST-2 models, 99 % of the examples exit at layer 3 under q = 0.3; the coin is at times another."""
    assert Gain([points / 100] * 2, np.full((10, 2), points / 100), "", None).is_shown == is_shown


def test_gain_needs_two_seeds_of_two_layers_on_the_same_examples():
    rng = np.random.default_rng(8)
    stored = made_models("rte", rng=rng)
    assert can_measure(stored) and not can_measure(stored[:1]) and not can_measure([])
    assert not can_measure(made_models("rte", layers=1, rng=rng))
    assert not can_measure([*stored, *made_models("rte", rng=rng)])


def test_an_answer_that_mixes_all_layers_has_no_gain_of_exits(tmp_path):
    """The expectation over all layers runs all of them; its lead over the last layer is not that of an exit."""
    folder = swept_study(tmp_path / "s", ["palbert"], ["rte"])
    evidence = gather([load_study(folder)])
    (cell,) = evidence.cells_by_place.values()
    depth = cell.records[0].num_layers
    for record in cell.records:
        path = predictions_file(folder, record.key)
        arrays = dict(np.load(path))
        arrays["exit_layers"] = np.full_like(arrays["exit_layers"], depth)
        np.savez(path, **arrays)  # the answers stay those of the exits
    assert read_gain(cell) is None


# Models that are weak without their exits, and models that give one answer to everything.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "scores"), [("cola", (11.6, 29.5)), pytest.param("sst2", (83.5, 87.2), marks=pytest.mark.long)]
)
def test_models_below_plain_ones_even_with_all_layers_are_named_first(task, scores):
    weak = kept(task).weak_models
    assert list(weak) == [("pondernet", task)]
    assert tuple(100 * score for score in weak["pondernet", task]) == pytest.approx(scores, abs=0.05)
    words = f"pondernet on {TASKS[task].title} ({scores[0]}; albert {scores[1]})"
    (warning,) = warn_of_weak_models(kept(task))
    assert warning.endswith(f"these models score significantly below plain ones: {words}.")
    assert answer(kept(task)).partition("| arm ")[0].endswith(f"{warning}\n\n")  # before any number on exits


def test_seeds_with_one_answer_to_all_examples_are_counted():
    rng, labels = np.random.default_rng(9), np.arange(40) % 2
    varied = [Answers(TASKS["cola"], np.arange(40), np.full(40, "dev"), labels, rng.integers(2, size=(1, 40)))]
    same = [replace(varied[0], answers=np.ones((1, 40), dtype=int))] * 2
    samples = resample({("albert", "cola"): [*same, *varied], ("palbert", "cola"): varied * 2})
    assert collapsed_notes(samples) == ["some models give one answer to all examples: 2 of 3 seeds of albert on CoLA"]
