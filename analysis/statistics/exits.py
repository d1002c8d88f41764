"""Early exits of the models of a table cell (one method on one task), computed from stored predictions.

`read_exits` reads the layers at which examples exit. It also reads mean layers and scores at other exit settings.
`read_full_run` finds a setting that exits earlier if the models run all layers.
`list_sweeps` has the results of other exit rules on the same models. `read_guarantees` finds safe exit settings, at
which few examples lose the right answer. `gains.py` measures whether exits tell easy examples from hard ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

import numpy as np

from analysis.statistics.budgets import SettingsOnHalves
from analysis.statistics.exit_settings import list_all_settings
from analysis.studies.cells import Cell
from analysis.studies.stored_predictions import Predictions, read_cell_predictions
from study.facts.record import Record
from trainables.data.tasks import TASKS
from trainables.models.answer_rules import list_rules
from trainables.models.exit_rules import ExitRule, read_setting, with_setting
from trainables.models.safe_exits import EvaluatedSettings, evaluate_settings, find_safe_setting
from trainables.runs.trial import LARGEST_CDF, blocked_exit

RISKS = (0.01, 0.02, 0.05)  # allowed shares of examples that lose the right answer
LEAST_SAVED = 0.005  # layers; less prints as 6.00 of 6


@dataclass(frozen=True)
class Sweep:
    """Results of one exit rule at every setting, for the models of all seeds."""

    rule: str  # "threshold", "patience"
    field: str  # parameter that varies: "q", "patience"
    settings: np.ndarray  # (settings,), ascending: q, or layers of patience
    mean_layers: np.ndarray  # (seeds, settings) mean layers per dev example
    scores: np.ndarray  # (seeds, settings), in [-1, 1]

    def nearest(self, mean_layers: float, *, within: float) -> int | None:
        """Return the index of the setting with mean layers (median over seeds) nearest to `mean_layers`.

        Return None if the nearest setting differs by more than `within`.
        """
        away = np.abs(np.median(self.mean_layers, axis=0) - mean_layers)
        return int(away.argmin()) if away.min() <= within else None


@dataclass(frozen=True)
class Exits:
    """Early exits of a cell's models. The first axis of every array is the seed."""

    num_layers: int
    mean_layers: np.ndarray  # (seeds,) mean layers per dev example, with the method's own exit
    scores: np.ndarray  # (seeds,) in [-1, 1], with the method's own exit
    sweeps: tuple[Sweep, ...]  # empty if the method runs all layers, or predictions are missing
    shares: np.ndarray | None  # (seeds, layers) share of dev examples that exit at each layer; None: not stored
    posterior: np.ndarray | None  # (seeds, layers), mean probability of exiting; None: not stored, or no Λ head

    @property
    def is_early(self) -> bool:
        """Whether any example exits before the last layer."""
        return bool((self.mean_layers < self.num_layers).any())


def read_exits(cell: Cell) -> Exits | None:
    """Read the exits of a cell's models; leave out sweeps and shares if any seed lacks predictions.

    Returns:
        None if the cell has no records, or a record lacks its mean layers.

    Raises:
        ValueError: if a predictions file is damaged.
    """
    layers = [record.mean_layers for record in cell.records if record.mean_layers is not None]
    if not layers or len(layers) < len(cell.records):
        return None
    stored = read_cell_predictions(cell)
    named = (own.sweep_rule[own.sweep_field != ""].tolist() for own in stored)  # a rule without a setting has no curve
    sweeps = [_sweep(rule, stored, cell.records) for rule in dict.fromkeys(chain.from_iterable(named))]
    depth = max(record.num_layers or 0 for record in cell.records)
    probabilities = [own.exit_probabilities for own in stored if own.exit_probabilities is not None]
    return Exits(
        num_layers=depth,
        mean_layers=np.array(layers),
        scores=np.array(cell.scores),
        sweeps=tuple(sweep for sweep in sweeps if len(sweep.settings)),
        shares=np.stack([_shares(predictions, depth) for predictions in stored]) if stored else None,
        posterior=np.stack(probabilities).astype(float).mean(axis=2) if probabilities else None,
    )


@dataclass(frozen=True)
class MildestExit:
    """The exit setting with the most layers among those that exit before the last layer, as means over the seeds."""

    field: str  # parameter of the exit rule: "q", "patience"
    setting: float
    mean_layers: float
    score: float


@dataclass(frozen=True)
class FullRun:
    """Models with early exits that were measured to run all layers."""

    num_layers: int
    exits_some: bool  # whether a few examples do exit early
    reason: str  # why no example can exit early; empty if unknown
    score: float  # mean over the seeds
    mildest: MildestExit | None  # of the swept settings; None if none of them exits earlier


def read_full_run(cell: Cell, exits: Exits) -> FullRun | None:
    """Describe models with exit settings that run all layers; return None if they exit earlier or have no exits."""
    if not exits.sweeps or exits.mean_layers.mean() <= exits.num_layers - LEAST_SAVED:
        return None
    largest = max(cell.records, key=lambda record: (record.metrics or {}).get(LARGEST_CDF, 0.0))
    reasons = [blocked_exit(record.metrics or {}, record.config) for record in (*cell.records, largest)]
    return FullRun(
        num_layers=exits.num_layers,
        exits_some=exits.is_early,
        reason=reasons[-1] if all(reasons) else "",
        score=float(exits.scores.mean()),
        mildest=_find_mildest(exits),
    )


def _find_mildest(exits: Exits) -> MildestExit | None:
    settings = [
        MildestExit(sweep.field, float(setting), float(layers), float(score))
        for sweep in exits.sweeps
        for setting, layers, score in zip(
            sweep.settings, sweep.mean_layers.mean(axis=0), sweep.scores.mean(axis=0), strict=True
        )
        if layers <= exits.num_layers - LEAST_SAVED
    ]
    return max(settings, key=lambda own: (own.mean_layers, own.score), default=None)


def _sweep(rule: str, stored: list[Predictions], records: tuple[Record, ...]) -> Sweep:
    """Collect the results of `rule` at each setting that was evaluated for every seed."""
    (field,) = {field for own in stored for field in own.sweep_field[own.sweep_rule == rule].tolist()}
    points: list[dict[float, tuple[float, float]]] = []  # per seed: setting -> (mean layers, score)
    for own, record in zip(stored, records, strict=True):
        columns = (own.sweep_setting, own.sweep_mean_layers, own.sweep_score)
        swept = zip(*(column[own.sweep_rule == rule].tolist() for column in columns), strict=True)
        points.append({setting: (layers, score) for setting, layers, score in swept})
        setting = record.config.get(field)
        if isinstance(setting, int | float):
            points[-1].setdefault(float(setting), (record.mean_layers or np.nan, record.score or 0.0))
    settings = sorted(set.intersection(*(set(point) for point in points)))
    values = np.array([[point[setting] for setting in settings] for point in points])
    values = values.reshape(len(points), len(settings), 2)  # also without settings
    return Sweep(
        rule=rule,
        field=field,
        settings=np.array(settings),
        mean_layers=values[:, :, 0],
        scores=values[:, :, 1],
    )


def list_sweeps(settings: SettingsOnHalves) -> list[Sweep]:
    """List the results of each exit rule that needs only the answers of layers; `settings` has its settings."""
    layers, _, labels = settings.stored[0].outputs.logits.shape
    return [
        _sweep_rule(list(rules), settings)
        for _, rules in groupby(list_rules(layers, labels), key=lambda rule: rule.name)
    ]


def _sweep_rule(rules: list[ExitRule], settings: SettingsOnHalves) -> Sweep:
    places = [settings.rules.index(rule) for rule in rules]
    return Sweep(
        rule=rules[0].name,
        field=rules[0].field or "",
        settings=np.array([read_setting(rule) for rule in rules], dtype=float),
        mean_layers=settings.whole_layers[places].T,
        scores=settings.whole_scores[places].T,
    )


def find_rule(sweep: Sweep, place: int, stored: Sequence[Predictions]) -> ExitRule | None:
    """Return the exit rule at index `place` of a sweep, or None if this package does not define the rule.

    Args:
        stored: predictions of the models of the sweep.
    """
    for rule in list_all_settings(stored):
        if rule is not None and rule.name == sweep.rule and rule.field is not None:
            value = getattr(rule, rule.field)
            return with_setting(rule, {rule.field: type(value)(sweep.settings[place])})
    return None


def _shares(predictions: Predictions, depth: int) -> np.ndarray:
    """Compute the share of examples that exit at each layer, (layers,), averaged over the draws of a random exit."""
    counts = np.bincount(predictions.exit_layers.ravel(), minlength=depth + 1)[1:]
    return np.asarray(counts / counts.sum())


@dataclass(frozen=True)
class Guarantee:
    """Mean layers at the fastest safe setting of an exit rule, for each seed and each risk in `RISKS`."""

    rule: str
    num_layers: int
    examples: int  # number of dev examples
    last_layer: list[float]  # each seed's score with all layers, in [-1, 1]
    layers: dict[float, np.ndarray]  # (2, seeds): with labels, then without; all layers if no setting is safe


def read_guarantees(cell: Cell) -> Iterator[Guarantee]:
    """Yield a guarantee for each exit rule that has stored results for every seed.

    Regression tasks and unknown exit rules have no guarantees.

    Raises:
        ValueError: if a predictions file is damaged.
    """
    stored = [] if TASKS[cell.task].is_regression else read_cell_predictions(cell)
    for name in dict.fromkeys(name for own in stored for name in own.sweep_rule.tolist()):
        rules = [[rule for rule in own.sweep_rules if rule is not None and rule.name == name] for own in stored]
        if all(rules):
            num_layers = len(stored[0].layer_answers)
            evaluated = [
                (evaluate_settings(settings, own.outputs), own.labels)
                for settings, own in zip(rules, stored, strict=True)
            ]
            layers = {
                risk: np.array(
                    [
                        [_count_safe_layers(settings, labels, risk, num_layers) for settings, labels in evaluated],
                        [_count_safe_layers(settings, None, risk, num_layers) for settings, _ in evaluated],
                    ]
                )
                for risk in RISKS
            }
            last_layer = [own.score_answers(own.layer_answers[-1]) for own in stored]
            yield Guarantee(name, num_layers, len(stored[0].labels), last_layer, layers)


def _count_safe_layers(settings: EvaluatedSettings, labels: np.ndarray | None, risk: float, num_layers: int) -> float:
    """Return the mean layers of the fastest safe setting; return `num_layers` if no setting is safe."""
    place = find_safe_setting(settings.lost(labels), risk)
    return num_layers if place is None else float(settings.mean_layers[place])
