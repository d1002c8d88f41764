"""Exit settings that real models have: the best within a number of layers, and the cheapest that keeps a score.

No number is interpolated between settings. One half of dev chooses a setting by the means over the seeds, and the other
half measures it. Then the halves swap roles, so each example is answered by the setting that the other half chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.statistics.exit_settings import apply_setting, halves, list_all_settings, list_own_settings
from analysis.studies.cells import Cell
from analysis.studies.stored_predictions import Answers, Predictions, read_cell_predictions
from trainables.data.metrics import compute_metrics, score
from trainables.models.exit_rules import ExitRule
from trainables.models.fronts import ROUNDING

MOST_LOST = 0.01  # of the plain model's score, by the cheapest setting that keeps it: 1 point


@dataclass(frozen=True)
class Chosen:
    """Results of an exit setting that one half of dev chose, on the other half; both halves together."""

    names: tuple[str, str]  # of the setting that each half chose
    answers: list[Answers]  # of every seed's model, on all examples
    exit_layers: list[np.ndarray]  # of every seed's model, (draws, n), from 1

    @property
    def mean_layers(self) -> list[float]:
        """Mean layers per example of every seed's model."""
        return [float(layers.mean()) for layers in self.exit_layers]

    @property
    def scores(self) -> list[float]:
        """Score of every seed's model."""
        return [one.score for one in self.answers]


@dataclass(frozen=True)
class Saving:
    """The fewest layers at which a cell's models lose at most `MOST_LOST` against a plain model with all its layers."""

    reference: str  # "albert with all layers", or "the same models with all layers" if there is no plain model
    reference_score: float  # mean over the seeds
    own: Chosen | None  # of the settings of the method's own exit rule; None if no setting keeps the score
    of_all: Chosen | None  # of the settings of all exit rules


@dataclass(frozen=True)
class SettingsOnHalves:
    """Scores and layers of exit settings on each half of dev, as means over the seeds, and on all examples."""

    stored: Sequence[Predictions]
    rules: Sequence[ExitRule | None]  # None: the setting of the trials
    scores: np.ndarray  # (settings, 2)
    mean_layers: np.ndarray  # (settings, 2)
    whole_scores: np.ndarray  # (settings, seeds)
    whole_layers: np.ndarray  # (settings, seeds)

    def only(self, rules: Sequence[ExitRule | None]) -> SettingsOnHalves:
        """Keep only the settings `rules`."""
        places = [self.rules.index(rule) for rule in rules]
        arrays = (self.scores, self.mean_layers, self.whole_scores, self.whole_layers)
        return SettingsOnHalves(self.stored, rules, *(own[places] for own in arrays))

    def best_within(self, most_layers: float) -> Chosen | None:
        """Choose the setting that scores best with at most `most_layers` mean layers; None if no setting fits."""
        fits = self.mean_layers <= most_layers + ROUNDING
        return self._measure(np.where(fits, self.scores, -np.inf), fits)

    def cheapest_keeping(self, least_scores: np.ndarray) -> Chosen | None:
        """Choose the setting with the fewest layers that scores at least `least_scores` (2,) on the half that chooses.

        Return None if no setting does.
        """
        fits = self.scores >= least_scores - ROUNDING
        return self._measure(np.where(fits, -self.mean_layers, -np.inf), fits)

    def _measure(self, values: np.ndarray, fits: np.ndarray) -> Chosen | None:
        """Measure the settings with the highest values (settings, 2) on the halves that did not choose them."""
        if not fits.any(axis=0).all():
            return None
        by_half = [apply_setting(self.rules[place], self.stored) for place in values.argmax(axis=0)]
        measured = tuple(reversed(halves(self.stored[0].split)))
        seeds = range(len(self.stored))
        return Chosen(
            names=(by_half[0].name, by_half[1].name),
            answers=[
                Answers(
                    one.task, one.ids, one.split, one.labels, _join([own.answers[seed] for own in by_half], measured)
                )
                for seed, one in zip(seeds, self.stored, strict=True)
            ],
            exit_layers=[_join([own.exit_layers[seed] for own in by_half], measured) for seed in seeds],
        )


def evaluate_cell(cell: Cell) -> SettingsOnHalves | None:
    """Evaluate all exit settings of a cell's models; each exit rule is applied once. Dropped final runs count.

    Returns:
        None if predictions are missing or for different examples.

    Raises:
        ValueError: if a predictions file is damaged.
    """
    stored = read_cell_predictions(cell.with_dropped)
    if len({one.examples for one in stored}) != 1:
        return None
    return evaluate_on_halves(stored, list_all_settings(stored))


def read_saving(settings: SettingsOnHalves, plain: Cell | None) -> Saving:
    """Find the fewest layers at which a cell's models keep a plain model's score. Dropped final runs count.

    Args:
        settings: all exit settings of models with early exits.
        plain: models of the same backbone without early exits. If it is None or lacks predictions of the same examples,
            the last layer of the models with early exits takes its place.

    Raises:
        ValueError: if a predictions file is damaged.
    """
    stored = settings.stored
    others = read_cell_predictions(plain.with_dropped) if plain else []
    is_plain = {one.examples for one in others} == {stored[0].examples}
    reference = others if is_plain else stored
    least_scores = _last_layer_on_halves(reference) - MOST_LOST
    return Saving(
        reference=f"{plain.arm.method if plain and is_plain else 'the same models'} with all layers",
        reference_score=float(np.mean([one.score_answers(one.layer_answers[-1]) for one in reference])),
        own=settings.only(list_own_settings(stored)).cheapest_keeping(least_scores),
        of_all=settings.cheapest_keeping(least_scores),
    )


def _last_layer_on_halves(stored: Sequence[Predictions]) -> np.ndarray:
    """Compute the mean score of the last layer over the seeds, on each half of dev, (2,)."""
    return np.array(
        [np.mean([_score(one, one.layer_answers[-1], rows) for one in stored]) for rows in halves(stored[0].split)]
    )


def evaluate_on_halves(stored: Sequence[Predictions], rules: Sequence[ExitRule | None]) -> SettingsOnHalves:
    """Evaluate exit settings on each half of dev.

    Args:
        stored: predictions of every seed's model for the same examples.
        rules: exit settings, at least one; None means the setting of the trials.
    """
    parts = halves(stored[0].split)
    scores, mean_layers = np.empty((2, len(rules), len(parts)))
    whole_scores, whole_layers = np.empty((2, len(rules), len(stored)))
    for place, rule in enumerate(rules):
        setting = apply_setting(rule, stored)
        whole_layers[place] = setting.mean_layers
        whole_scores[place] = [
            np.mean([one.score_answers(draw) for draw in draws])
            for one, draws in zip(stored, setting.answers, strict=True)
        ]
        for half, rows in enumerate(parts):
            pairs = [(one, draw) for one, draws in zip(stored, setting.answers, strict=True) for draw in draws]
            scores[place, half] = np.mean([_score(one, draw, rows) for one, draw in pairs])
            mean_layers[place, half] = np.mean([layers[:, rows].mean() for layers in setting.exit_layers])
    return SettingsOnHalves(stored, rules, scores, mean_layers, whole_scores, whole_layers)


def _score(predictions: Predictions, answers: np.ndarray, rows: np.ndarray) -> float:
    """Score answers (n,) on some of the examples."""
    metrics = compute_metrics(predictions.task, answers[rows], predictions.labels[rows], predictions.split[rows])
    return score(predictions.task, metrics)


def _join(arrays: Sequence[np.ndarray], parts: Sequence[np.ndarray]) -> np.ndarray:
    """Take the examples of each part from the array of the same place; arrays of one draw repeat it."""
    draws = max(len(own) for own in arrays)
    joined = np.empty((draws, arrays[0].shape[1]), dtype=arrays[0].dtype)
    for own, rows in zip(arrays, parts, strict=True):
        joined[:, rows] = own[:, rows] if len(own) == draws else own[:1, rows]
    return joined
