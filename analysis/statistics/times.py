"""Times per text of models, from the measurements of `study.time`, and their ratios with intervals.

Only times of one measurement are compared, because machines and their other work differ. Times are in milliseconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from statistics import median
from typing import Literal

import numpy as np

from analysis.statistics.comparisons import FEWEST_TO_DETECT, detectable_difference
from analysis.statistics.samples import RESAMPLES, over_resamples
from analysis.statistics.uncertainty import (
    ConfidenceInterval,
    PairedTest,
    Variance,
    mean_test,
    mean_variances,
    paired_test,
    welch_test,
)
from analysis.studies.cells import Cell
from analysis.studies.load import Study
from study.facts.events import TimesMeasured
from study.facts.record import Record
from study.terminal.text import counted, joined
from trainables.models.exit_rules import ExitRule, Sampled, read_setting
from trainables.runs.times import DETAIL_EVERY, ExitKind, LayerTime, TimedModel

MOST_OTHERS = 0.1  # share of the processors of a measurement that other programs may use meanwhile
MOST_SPREAD = 0.05  # of a model's times between rounds, see `Measurement.spread`
SLOW_TEXTS = 90  # percentile
MEDIAN_VARIANCE = math.pi / 2  # of a median over rounds, relative to the mean's: at most this for normal noise


@dataclass(frozen=True)
class Ratio:
    """A ratio of two methods' mean times per text, with its 95 % interval."""

    logs: PairedTest  # of the difference between the logarithms of the times
    num_seeds: int = 0  # of the method with fewer; 0: unknown

    @property
    def value(self) -> float:
        """The estimate."""
        return math.exp(self.logs.difference)

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return math.exp(self.logs.low)

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return math.exp(self.logs.high)

    @property
    def differs(self) -> bool:
        """Whether the interval excludes 1."""
        return self.low > 1 or self.high < 1

    @property
    def missed(self) -> float | None:
        """The ratio above 1 that is found with 80 % power; None if a difference was found, or if it is unknown."""
        if self.differs or self.num_seeds < FEWEST_TO_DETECT:
            return None
        log = detectable_difference(self.logs.standard_error, self.logs.freedom)
        return None if log is None else math.exp(log)


@dataclass(frozen=True)
class Times:
    """Times per text of a cell's models under their own exit rule, at one batch size."""

    seeds: list[int]
    texts: np.ndarray  # (seeds, batches), each the median over the rounds
    rounds: np.ndarray  # (seeds, rounds), each the mean over the batches

    @property
    def mean(self) -> float:
        """Mean time per text, over texts and seeds."""
        return float(self.texts.mean())

    @property
    def median(self) -> float:
        """Median time of a text, over texts and seeds."""
        return float(np.median(self.texts))

    @property
    def slow(self) -> float:
        """90th percentile of the times, over texts and seeds."""
        return float(np.percentile(self.texts, SLOW_TEXTS))

    @property
    def interval(self) -> ConfidenceInterval:
        """95 % interval of the mean, over seeds, texts and rounds; a time is never below 0."""
        if len(self.seeds) > 1:
            over_seeds = mean_variances(self.resampled, self.texts.mean(axis=1).tolist())
            variances = [*over_seeds, *_variances_over_rounds(self.rounds.mean(axis=0))]
        else:
            variances = _variances_of_one(self.resampled[:, 0], self.rounds[0])
        test = paired_test(self.mean, variances)
        if test.standard_error == 0:
            return ConfidenceInterval(self.mean, self.mean)
        return ConfidenceInterval(max(test.low, 0.0), test.high)

    @cached_property
    def resampled(self) -> np.ndarray:
        """Mean times on bootstrap resamples of the texts, (resamples, seeds). All methods share the resamples."""
        return np.asarray(_draw_weights(self.texts.shape[1]) @ self.texts.T)

    def take(self, seeds: Sequence[int]) -> Times:
        """Keep only the models of these seeds, in this order."""
        places = [self.seeds.index(seed) for seed in seeds]
        return Times([*seeds], self.texts[places], self.rounds[places])

    @property
    def in_detail(self) -> Times:
        """Keep only the texts that a measurement also times in detail."""
        return Times(self.seeds, self.texts[:, ::DETAIL_EVERY], self.rounds)


@cache
def _draw_weights(number: int) -> np.ndarray:
    """Draw the weights of so many texts in each resample, (resamples, texts)."""
    return np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), size=RESAMPLES) / number


def compare_times(own: Times, other: Times) -> Ratio:
    """Divide one method's mean time by that of another, measured on the same texts in the same rounds.

    The interval covers chance in seeds, texts and rounds. It is computed from logarithms. If both methods have at least
    two seeds in common, models of equal seeds are compared; otherwise, all models are. If a method has one model, it is
    compared with one of the other method, of the same seed if there is one. A model's noise over rounds is part of the
    variance over seeds, as each model is measured on its own.
    """
    shared = [seed for seed in own.seeds if seed in other.seeds]
    fewest = min(len(own.seeds), len(other.seeds))
    if len(shared) > 1 or (shared and fewest == 1):
        return _compare_pairs(own.take(shared), other.take(shared))
    if fewest == 1:  # nothing is known of the variance over one method's seeds
        return _compare_pairs(own.take(own.seeds[:1]), other.take(other.seeds[:1]))
    logs = [np.log(times.texts.mean(axis=1)) for times in (own, other)]
    test = welch_test(np.log(own.resampled), np.log(other.resampled), logs[0].tolist(), logs[1].tolist())
    return Ratio(test, fewest)


def _compare_pairs(own: Times, other: Times) -> Ratio:
    logs = np.log(own.texts.mean(axis=1)) - np.log(other.texts.mean(axis=1))
    resampled = np.log(own.resampled) - np.log(other.resampled)
    if len(logs) > 1:
        test = mean_test(resampled, logs.tolist())
        if test.standard_error == 0:  # without any spread, the interval is the ratio itself
            test = replace(test, low=test.difference, high=test.difference)
        return Ratio(test, len(logs))
    variances = _variances_of_one(resampled[:, 0], np.log(own.rounds[0] / other.rounds[0]))
    return Ratio(paired_test(float(logs[0]), variances), num_seeds=1)


def _variances_of_one(resampled: np.ndarray, rounds: np.ndarray) -> list[Variance]:
    """Estimate the variances over texts and over rounds of a number of one seed."""
    return [Variance(float(np.var(resampled, ddof=1)), np.inf), *_variances_over_rounds(rounds)]


def _variances_over_rounds(rounds: np.ndarray) -> list[Variance]:
    """Estimate the variance over rounds of their median, (rounds,); a single round says nothing about it."""
    if len(rounds) < 2:
        return []
    return [Variance(MEDIAN_VARIANCE * float(np.var(rounds, ddof=1)) / len(rounds), len(rounds) - 1)]


@dataclass(frozen=True)
class LayerCosts:
    """Times of one model of an arm at single layers under one exit rule, each for single texts."""

    layers: Mapping[int, TimedModel]  # layer -> all texts leave after it, and the rule decides at every layer
    first: Mapping[int, TimedModel]  # layer -> the same, but the rule decides at this layer for the first time
    cut: np.ndarray  # (layers,) if all texts leave after a layer without any decision
    checks: tuple[TimedModel, ...]  # swept settings that were timed directly

    @property
    def num_texts(self) -> int:
        """Number of texts at which each layer was timed."""
        return len(self.layers[1].texts)

    @cached_property
    def deciding(self) -> np.ndarray:
        """Mean time if all texts leave after a layer, and the rule decides at every layer, (layers,)."""
        return np.array([np.mean(self.layers[layer].texts) for layer in sorted(self.layers)])

    def compute(self, rule: ExitRule, exit_layers: np.ndarray) -> float:
        """Compute the mean time per text under an exit rule from the layers at which the texts leave."""
        return float(self._sum("texts", {rule: 1.0}, self._share(exit_layers)).mean())

    def compare(
        self, shares: Mapping[ExitRule | None, float], exit_layers: Sequence[np.ndarray], plain: Times
    ) -> PairedTest:
        """Test the logarithm of the ratio of a cell's mean time, computed from these times, to that of plain models.

        The variance has parts for the seeds and the dev texts, which decide where texts leave; for the timed texts; for
        the rounds; and for what differs between models that take equally long. The last is the variance between the
        plain models, which counts once more for the single model whose layers were timed.

        Args:
            shares: exit setting -> share of the texts that leave under it; None means exits that are drawn at random.
            exit_layers: of the dev texts, for every seed's model, (draws, n), from 1.
            plain: times of at least two plain models for the texts at which the layers were timed.
        """
        late = {rule or Sampled(): share for rule, share in shares.items()}
        by_layer = np.array([self._share(layers) for layers in exit_layers])  # (seeds, layers)
        costs = np.stack([self.deciding[layers - 1].mean(axis=0) for layers in exit_layers], axis=1)  # (n, seeds)
        costs = costs + self._sum("texts", late, 0 * by_layer[0]).mean()
        resampled = over_resamples(lambda weights: weights @ costs / len(costs), len(costs), seed=0)
        texts, rounds = (self._sum(name, late, by_layer.mean(axis=0)) for name in ("texts", "rounds"))
        drawn = np.log(_draw_weights(len(texts)) @ texts) - np.log(plain.resampled.mean(axis=1))
        of_plain = np.log(plain.texts.mean(axis=1))
        variances = [
            *mean_variances(np.log(resampled), np.log(costs.mean(axis=0)).tolist()),
            *_variances_of_one(drawn, np.log(rounds / plain.rounds.mean(axis=0))),
            Variance(float(np.var(of_plain, ddof=1)) * (1 + 1 / len(of_plain)), len(of_plain) - 1),
        ]
        return paired_test(float(np.log(costs.mean(axis=0)).mean() - of_plain.mean()), variances)

    def _share(self, exit_layers: np.ndarray) -> np.ndarray:
        """Compute the share of texts that leave after each layer, (layers,)."""
        return np.bincount(exit_layers.ravel(), minlength=len(self.layers) + 1)[1:] / exit_layers.size

    def _sum(
        self, name: Literal["texts", "rounds"], shares: Mapping[ExitRule, float], by_layer: np.ndarray
    ) -> np.ndarray:
        """Sum the times of layers by text or by round.

        Args:
            shares: exit setting -> share of the texts that leave under it.
            by_layer: share of the texts that leave after each layer, (layers,).
        """
        total = by_layer @ np.array([getattr(self.layers[layer], name) for layer in sorted(self.layers)])
        for rule, share in shares.items():
            earliest = rule.earliest(len(self.layers))
            if earliest in self.first:
                late, eager = (np.array(getattr(own[earliest], name)) for own in (self.first, self.layers))
                total = total + share * (late - eager)
        return np.asarray(total)


def find_scale(timed: Sequence[Times]) -> float:
    """Divide the mean time of all texts by that of the texts that are also timed in detail, over several methods."""
    whole, detailed = ([own.texts.mean() for own in several] for several in (timed, [own.in_detail for own in timed]))
    return float(np.mean(whole) / np.mean(detailed))


def find_error(costs: LayerCosts, rules: Sequence[ExitRule]) -> float | None:
    """Find the largest relative error of computed times, at the settings that were timed directly.

    Return None if none of these is a setting of `rules`.
    """
    known = {(rule.name, read_setting(rule)): rule for rule in rules}
    errors = [
        abs(costs.compute(rule, np.array(check.exit_layers)) / float(np.mean(check.texts)) - 1)
        for check in costs.checks
        if (rule := known.get((check.rule, check.at))) is not None
    ]
    return max(errors, default=None)


@dataclass(frozen=True)
class Measurement:
    """One measurement of a study's models on one machine."""

    event: TimesMeasured
    study: Study

    @property
    def records(self) -> Mapping[str, Record]:
        """The study's trials by key."""
        return self.study.records_by_key

    @property
    def machine(self) -> str:
        """The device, the threads and the host."""
        threads = counted(self.event.threads, "thread")
        return f"{self.event.device}, {threads} (host {self.event.host}, {self.event.time[:10]})"

    @property
    def extent(self) -> str:
        """Count the models of an arm, their texts, and the rounds."""
        own = {place: model for place, model in self._own.items() if place[0] in self.records}
        models = Counter((self.records[key].arm, size) for key, size in own)
        texts = []
        for size in self.batch_sizes:
            batches = _span(len(model.texts) for (_, other), model in own.items() if other == size)
            texts.append(f"{batches} texts alone" if size == 1 else f"{batches} batches of {size}")
        rounds = _span(len(model.rounds) for model in own.values())
        return f"{_span(models.values())} of each arm's models, {joined(texts)}, in {rounds} rounds"

    @property
    def batch_sizes(self) -> list[int]:
        """All batch sizes, ascending."""
        return sorted({model.batch_size for model in self.event.models})

    @cached_property
    def spread(self) -> float:
        """Typical standard deviation of a model's time between rounds, relative to the times of the other models.

        This is the median over the models, on the task and at the batch size where it is largest. The models of a task
        take turns in every round, so what slows all of them alike changes no ratio.
        """
        together: dict[tuple[str, int], list[tuple[float, ...]]] = {}
        for (key, batch_size), model in self._own.items():
            if key in self.records and len(model.rounds) > 1:
                together.setdefault((self.records[key].task, batch_size), []).append(model.rounds)
        return max((median(_find_spreads(np.array(rounds))) for rounds in together.values()), default=0.0)

    @property
    def disturbance(self) -> str:
        """Why the times are not to be trusted; empty if they are."""
        others = self.event.others_during or 0.0
        if others > MOST_OTHERS:
            return f"other programs used {100 * others:.0f} % of the processors"
        if self.spread > MOST_SPREAD:
            return f"times of models, relative to one another, varied by {100 * self.spread:.0f} % between rounds"
        return ""

    @property
    def quality(self) -> str:
        """How little disturbed a measurement that is trusted."""
        others = self.event.others_during
        used = "" if others is None else f"other programs used {100 * others:.0f} % of the processors, and "
        return f"{used}relative times varied by {100 * self.spread:.1g} % between rounds"

    def read(self, cell: Cell, batch_size: int) -> Times | None:
        """Read the times of a cell's models; None if none was timed at this batch size. Dropped final runs count."""
        if not self.covers(cell):
            return None
        found = [(record.seed, model) for record in cell.tested if (model := self._own.get((record.key, batch_size)))]
        if not found:
            return None
        texts, rounds = ([getattr(model, name) for _, model in found] for name in ("texts", "rounds"))
        return Times([seed for seed, _ in found], np.array(texts), np.array(rounds))

    def compare(self, cell: Cell, other: Cell, batch_size: int) -> Ratio | None:
        """Divide the time of a cell's models by that of another cell's; None if either was not timed."""
        own, theirs = self.read(cell, batch_size), self.read(other, batch_size)
        return None if own is None or theirs is None else compare_times(own, theirs)

    def find_layer_time(self, cell: Cell, batch_size: int) -> LayerTime | None:
        """Find the parts of a layer's time for one of the cell's models; None if they were not timed."""
        keys = {record.key for record in cell.tested} if self.covers(cell) else set[str]()
        return next((own for own in self.event.layers if own.key in keys and own.batch_size == batch_size), None)

    def read_layer_costs(self, cell: Cell, rule: str | None = None) -> LayerCosts | None:
        """Read the times of single layers for one of the cell's models; None if they were not timed.

        Args:
            rule: name of the exit rule that decides; None means the method's own.
        """
        keys = {record.key for record in cell.tested} if self.covers(cell) else set[str]()
        leaving = [model for model in self.event.models if model.exit == "layer" and model.key in keys]
        if not leaving or rule not in (None, *(model.rule for model in leaving)):
            return None
        key, own_rule = leaving[0].key, leaving[0].rule
        own = [model for model in self.event.models if model.key == key]

        def by_layer(kind: ExitKind) -> dict[int, TimedModel]:
            return {int(model.at or 0): model for model in own if (model.exit, model.rule) == (kind, rule or own_rule)}

        cut = np.array([np.mean(model.texts) for model in own if model.exit == "cut"])
        checks = tuple(model for model in own if model.exit == "setting")
        return LayerCosts(by_layer("layer"), by_layer("first"), cut, checks)

    def covers(self, cell: Cell) -> bool:
        """Check if the cell is of the measurement's study; others of the same plan have trials of the same keys."""
        return any(study.folder == self.study.folder for study in cell.studies)

    @cached_property
    def keys(self) -> set[str]:
        """The keys of the trials whose models were timed."""
        return {key for key, _ in self._own}

    @cached_property
    def _own(self) -> dict[tuple[str, int], TimedModel]:
        return {(model.key, model.batch_size): model for model in self.event.models if model.exit == "own"}


def _span(numbers: Iterable[int]) -> str:
    """Format the lowest and the highest number, or the only one: `3 to 5`, `3`."""
    found = sorted({*numbers})
    return f"{found[0]} to {found[-1]}" if len(found) > 1 else f"{found[0]}"


def _find_spreads(rounds: np.ndarray) -> list[float]:
    """Find how much each model's time varies between rounds, beside what all share; `rounds` is (models, rounds)."""
    relative = rounds / rounds.mean(axis=1, keepdims=True)
    if len(rounds) > 1:  # the mean over the models has a part of each model's own deviation
        relative = (relative / relative.mean(axis=0) - 1) * math.sqrt(len(rounds) / (len(rounds) - 1))
    return list(relative.std(axis=1, ddof=1).tolist())


def list_measurements(studies: Iterable[Study]) -> list[Measurement]:
    """List the newest measurement for each study, machine and list of batch sizes, newest first.

    This is the newest of those that nothing disturbed, or the newest of all if there is none. An earlier one stays if
    it timed models that this one lacks.
    """
    chosen: dict[tuple[str, str, str, int, tuple[int, ...]], list[Measurement]] = {}
    for study in studies:
        for event in study.facts.times:
            made = Measurement(event, study)
            place = (str(study.folder), event.host, event.device, event.threads, tuple(made.batch_sizes))
            earlier = chosen.setdefault(place, [])
            if made.disturbance and not all(other.disturbance for other in earlier):
                continue
            is_trusted = not made.disturbance
            kept = [other for other in earlier if other.keys - made.keys and not (is_trusted and other.disturbance)]
            chosen[place] = [*kept, made]
    return sorted((made for own in chosen.values() for made in own), key=lambda made: made.event.time, reverse=True)
