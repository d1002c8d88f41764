"""Exit settings that real models have: the best within a number of layers, and the cheapest that keeps a score.

No number is interpolated between settings. One half of dev chooses a setting by the means over the seeds, and the other
half measures it. Then the halves swap roles, so each example is answered by the setting that the other half chose. The
numbers are means over many random halvings of dev, so that they do not depend on one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from analysis.statistics.exit_settings import (
    DIGITS,
    apply_setting,
    apply_settings,
    halvings,
    list_all_settings,
    list_own_settings,
)
from analysis.statistics.samples import (
    Place,
    Sample,
    Scored,
    over_resamples,
    resample,
    subtract,
    weighted_scores,
)
from analysis.studies.cells import Cell
from analysis.studies.stored_predictions import Answers, Predictions, read_cell_predictions
from trainables.models.exit_rules import ExitRule, describe_rule
from trainables.models.fronts import ROUNDING

MOST_LOST = 0.01  # of the plain model's score, by the cheapest setting that keeps it: 1 point


@dataclass(frozen=True)
class AnswersOfHalves(Answers):
    """Answers of one model under the settings that halves of dev chose; its draws are those of each halving in turn."""


@dataclass(frozen=True)
class Chosen:
    """Results of the exit settings that halves of dev chose, each on the other half of the examples.

    Each halving of dev answers all examples, and counts as a draw of a random exit.
    """

    shares: Mapping[ExitRule | None, float]  # chosen setting -> share of the halves that chose it, the greatest first
    answers: list[AnswersOfHalves]  # of every seed's model, on all examples
    exit_layers: list[np.ndarray]  # of every seed's model, (draws, n), from 1

    @property
    def names(self) -> tuple[str, ...]:
        """The chosen settings; most halves chose the first one."""
        return tuple("own" if rule is None else describe_rule(rule) for rule in self.shares)

    @property
    def mean_layers(self) -> list[float]:
        """Mean layers per example of every seed's model."""
        return [float(layers.mean()) for layers in self.exit_layers]

    @property
    def scores(self) -> list[float]:
        """Score of every seed's model."""
        return _score_models(self.answers)


@dataclass(frozen=True)
class Kept:
    """Results of the settings that halves of dev chose, without the answers, which take much memory."""

    names: tuple[str, ...]  # of the chosen settings; most halves chose the first one
    mean_layers: list[float]  # of every seed's model
    scores: list[float]  # of every seed's model


@dataclass(frozen=True)
class Saving:
    """The fewest layers at which a cell's models lose at most `MOST_LOST` against a plain model with all its layers."""

    reference: str  # "albert with all layers", or "the same models with all layers" if there is no plain model
    reference_score: float  # mean over the seeds
    own: Kept | None  # of the settings of the method's own exit rule; None if most halves find none that keeps it
    of_all: Kept | None  # of the settings of all exit rules


@dataclass(frozen=True)
class SettingsOnHalves:
    """Scores and layers of exit settings on halves of dev, as means over the seeds, and on all examples."""

    stored: Sequence[Predictions]
    rules: Sequence[ExitRule | None]  # None: the setting of the trials
    scores: np.ndarray  # (settings, halvings, 2)
    mean_layers: np.ndarray  # (settings, halvings, 2)
    whole_scores: np.ndarray  # (settings, seeds)
    whole_layers: np.ndarray  # (settings, seeds)

    def only(self, rules: Sequence[ExitRule | None]) -> SettingsOnHalves:
        """Keep only the settings `rules`."""
        places = [self.rules.index(rule) for rule in rules]
        arrays = (self.scores, self.mean_layers, self.whole_scores, self.whole_layers)
        return SettingsOnHalves(self.stored, rules, *(own[places] for own in arrays))

    def best_within(self, most_layers: float | np.ndarray) -> Chosen | None:
        """Choose the setting that scores best with at most `most_layers` mean layers, on each half (halvings, 2).

        A half on which no setting fits chooses the one with the fewest layers. Return None if most halves do so.
        """
        fits = self.mean_layers <= most_layers + ROUNDING
        return self._measure(fits, self.scores, otherwise=-self.mean_layers)

    def cheapest_keeping(self, least_scores: np.ndarray) -> Chosen | None:
        """Choose the setting with the fewest layers among those that score at least `least_scores` (halvings, 2).

        A half on which no setting does chooses the one with the best score. Return None if most halves do so.
        """
        fits = self.scores >= least_scores - ROUNDING
        return self._measure(fits, -self.mean_layers, otherwise=self.scores)

    def _measure(self, fits: np.ndarray, values: np.ndarray, *, otherwise: np.ndarray) -> Chosen | None:
        """Measure the settings with the highest values on the halves that did not choose them.

        All arrays are (settings, halvings, 2).

        Args:
            fits: which settings may be chosen. If none may on most halves, return None.
            otherwise: values on halves on which no setting may be chosen.
        """
        can_choose = fits.any(axis=0)
        if can_choose.mean() <= 0.5:  # also if the halves are divided
            return None
        places = np.where(can_choose, np.where(fits, values, -np.inf).argmax(axis=0), otherwise.argmax(axis=0))
        numbers = dict(Counter(places.ravel().tolist()).most_common())
        applied = {place: apply_setting(self.rules[place], self.stored) for place in numbers}
        measured = halvings(self.stored[0].split)[:, ::-1]
        seeds = range(len(self.stored))
        return Chosen(
            shares={self.rules[place]: number / places.size for place, number in numbers.items()},
            answers=[
                AnswersOfHalves(
                    *(one.task, one.ids, one.split, one.labels),
                    _join({place: own.answers[seed] for place, own in applied.items()}, places, measured),
                )
                for seed, one in zip(seeds, self.stored, strict=True)
            ],
            exit_layers=[
                _join({place: own.exit_layers[seed] for place, own in applied.items()}, places, measured)
                for seed in seeds
            ],
        )


@dataclass(frozen=True)
class RulesCompared:
    """The best setting of one exit rule, and its difference from another on the same models at no more mean layers."""

    chosen: Chosen
    difference: Scored  # the chosen setting's score minus the other's, of every seed's model
    other_layers: list[float]  # mean layers of every seed's model under the other rule


def compare_at_equal_layers(
    settings: SettingsOnHalves, rules: Sequence[ExitRule | None], other: ExitRule | None
) -> RulesCompared | None:
    """Subtract the score of `other` from that of the best of `rules` on the same models.

    One half of dev chooses the setting with the best score at no more mean layers than `other` runs on this half. The
    other half measures both.

    Args:
        settings: have `rules` and `other`.

    Returns:
        None if on most halves every setting of `rules` runs more layers.
    """
    chosen = settings.only(rules).best_within(settings.only([other]).mean_layers[0])
    if chosen is None:
        return None
    stored = settings.stored
    applied = apply_setting(other, stored)
    task = stored[0].task.name
    samples = resample_on_halves(
        {
            ("chosen", task): chosen.answers,
            ("other", task): [_replace_answers(*pair) for pair in zip(stored, applied.answers, strict=True)],
        }
    )
    return RulesCompared(
        chosen, subtract(samples["chosen", task], samples["other", task]), other_layers=applied.mean_layers
    )


def resample_on_halves(answered: Mapping[Place, Sequence[Answers]]) -> dict[Place, Sample]:
    """Score the answers of each cell on bootstrap resamples, as `resample` does; all cells have the same examples.

    A correlation is the mean over the halves of dev, because the settings of two halves may answer on other scales.
    """
    (first, *_), *_ = answered.values()
    if not first.task.is_regression:
        return resample(answered)
    return {
        place: Sample(
            _score_models(models),
            over_resamples(partial(_correlate_on_halves, models), len(first.labels), seed=0),
            first.examples,
            [*models],
        )
        for place, models in answered.items()
    }


def _score_models(models: Sequence[Answers]) -> list[float]:
    """Score every seed's model; a correlation is the mean over the halves of dev."""
    if not models[0].task.is_regression:
        return [one.score for one in models]
    scores: list[float] = _correlate_on_halves(models, np.ones((1, len(models[0].labels))))[0].tolist()
    return scores


def _correlate_on_halves(models: Sequence[Answers], weights: np.ndarray) -> np.ndarray:
    """Compute each model's correlation as the mean over the halves of dev and the draws; return (resamples, models).

    Args:
        weights: of the examples in each resample, (resamples, n).
    """
    examples, parts = models[0], halvings(models[0].split)
    draws = np.stack([_list_draws_of_halvings(one, len(parts)) for one in models], axis=1)
    num_models, num_draws = draws.shape[1:3]
    total = np.zeros((len(weights), num_models))
    for own, halves in zip(draws, parts, strict=True):
        for rows in halves:
            answers = own[..., rows].reshape(num_models * num_draws, -1)
            scores = weighted_scores(examples.task, weights[:, rows], answers, examples.labels[rows])
            total += scores.reshape(-1, num_models, num_draws).mean(axis=2)
    return total / (2 * len(parts))


def _list_draws_of_halvings(one: Answers, number: int) -> np.ndarray:
    """Return the draws of each halving of dev, (halvings, draws, n); answers without halves are those of every one."""
    if isinstance(one, AnswersOfHalves):
        return one.answers.reshape(number, -1, one.answers.shape[1])
    return np.broadcast_to(one.answers, (number, *one.answers.shape))


def _replace_answers(model: Answers, answers: np.ndarray) -> Answers:
    """Give other answers (draws, n) to the examples of a model."""
    return Answers(model.task, model.ids, model.split, model.labels, answers)


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
    least_scores = find_least_scores(reference)
    return Saving(
        reference=f"{plain.arm.method if plain and is_plain else 'the same models'} with all layers",
        reference_score=float(
            np.mean(_score_models([_replace_answers(one, one.layer_answers[-1:]) for one in reference]))
        ),
        own=_summarise(settings.only(list_own_settings(stored)).cheapest_keeping(least_scores)),
        of_all=_summarise(settings.cheapest_keeping(least_scores)),
    )


def _summarise(chosen: Chosen | None) -> Kept | None:
    return None if chosen is None else Kept(chosen.names, chosen.mean_layers, chosen.scores)


def find_least_scores(plain: Sequence[Predictions]) -> np.ndarray:
    """Compute the least score that keeps the mean score of plain models' last layer, on halves of dev (halvings, 2)."""
    parts = halvings(plain[0].split)
    return _score_on_halves(plain[0], np.stack([one.layer_answers[-1] for one in plain]), parts) - MOST_LOST


def evaluate_on_halves(stored: Sequence[Predictions], rules: Sequence[ExitRule | None]) -> SettingsOnHalves:
    """Evaluate exit settings on halves of dev.

    Args:
        stored: predictions of every seed's model for the same examples.
        rules: exit settings, at least one; None means the setting of the trials.
    """
    parts = halvings(stored[0].split)
    scores, mean_layers = np.empty((2, len(rules), *parts.shape[:2]))
    whole_scores, whole_layers = np.empty((2, len(rules), len(stored)))
    for place, setting in enumerate(apply_settings(rules, stored)):
        whole_layers[place] = setting.mean_layers
        whole_scores[place] = [
            np.mean([one.score_answers(draw) for draw in draws])
            for one, draws in zip(stored, setting.answers, strict=True)
        ]
        scores[place] = _score_on_halves(stored[0], np.concatenate(setting.answers), parts)
        layers = np.mean([own.mean(axis=0) for own in setting.exit_layers], axis=0)
        mean_layers[place] = parts @ layers / parts.sum(axis=2)
    return SettingsOnHalves(stored, rules, scores.round(DIGITS), mean_layers.round(DIGITS), whole_scores, whole_layers)


def _score_on_halves(examples: Answers, answers: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Score answers (models, n) on parts (halvings, 2, n) of the examples; return means over models, (halvings, 2).

    Spearman's correlation uses the ranks in the whole dev set.
    """
    by_split = []
    for rows in (examples.split == name for name in np.unique(examples.split)):
        weights = parts[..., rows].reshape(-1, rows.sum()).astype(float)
        scores = weighted_scores(examples.task, weights, answers[:, rows], examples.labels[rows])
        by_split.append(scores.mean(axis=1).reshape(parts.shape[:2]))
    return np.asarray(np.mean(by_split, axis=0))


def _join(arrays: Mapping[int, np.ndarray], places: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """For each halving, take the examples of each half from the array of its place; arrays of one draw repeat it.

    Args:
        arrays: by place, (draws, n).
        places: (halvings, 2).
        parts: which examples each half contains, (halvings, 2, n).

    Returns:
        (halvings * draws, n), in the smallest type, because the rows are many.
    """
    one = next(iter(arrays.values()))
    draws = max(len(own) for own in arrays.values())
    is_whole = np.issubdtype(one.dtype, np.integer)
    dtype = np.min_scalar_type(max(int(own.max()) for own in arrays.values())) if is_whole else one.dtype
    joined = np.empty((len(places), draws, one.shape[1]), dtype=dtype)
    for target, chosen, halves in zip(joined, places.tolist(), parts, strict=True):
        for place, rows in zip(chosen, halves, strict=True):
            own = arrays[place]
            target[:, rows] = own[:, rows] if len(own) == draws else own[:1, rows]
    return joined.reshape(-1, one.shape[1])
