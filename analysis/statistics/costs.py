"""Compute the costs of each row: the time that its trials took, and the layers and FLOPs that its models need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from msgspec import UNSET

from analysis.studies.cells import Cell, Row, find_repeats
from analysis.studies.load import Study
from analysis.studies.stored_predictions import read_cell_predictions
from study.facts.record import Spent, compute_ledger, count_by_status
from study.plans.resolved_plan import Pretraining
from trainables.configuration import compute_segment_length
from trainables.models.exit_rules import HALVED_FROM
from trainables.runs.trial import list_flops_terms

LARGEST_EXCESS = 0.2  # largest share by which rows may differ in compute without a warning
UNITS = ("gpu_seconds", "cpu_seconds")  # fields of `Compute`
SECONDS = {"s": 1, "min": 60, "h": 3600}
LEAST_TIME = 0.001  # in any unit; a shorter time prints as "<" and this number

TimeUnit = Literal["s", "min", "h"]


@dataclass(frozen=True)
class Compute:
    """GPU seconds and CPU seconds of trials.

    GPU seconds are weighted by the share of the GPU that the trial used. CPU seconds are wall-clock seconds.
    """

    gpu_seconds: float
    cpu_seconds: float

    def describe(self, unit: TimeUnit | None = None) -> str:
        """Format the GPU time and the CPU time in `unit`. The default unit suits the longer time."""
        unit = unit or choose_unit([self])
        parts = [f"{format_time(self.gpu_seconds, unit)} of GPU"] * (self.gpu_seconds > 0)
        parts += [f"{format_time(self.cpu_seconds, unit)} on CPU"] * (self.cpu_seconds > 0)
        return " and ".join(parts) or format_time(0.0, unit)


@dataclass(frozen=True)
class PretrainingCost:
    """Cost of all pretrainings of a backbone. Every arm of the tables that uses the backbone pays an equal share."""

    made: Pretraining
    whole: Compute
    arms: int


@dataclass(frozen=True)
class LedgerEntry:
    """GPU and CPU time spent on all trials of a row's arms, including stopped, failed and repeated trials.

    If the backbone was pretrained by this package, each arm also pays an equal share of the pretraining.
    """

    row: str
    spent: list[Spent]  # per arm and phase
    pretrained: list[PretrainingCost]  # one per arm whose backbone was pretrained here
    unfinished: frozenset[str] = frozenset()  # tasks on which a search or a final run has not ended

    @property
    def trials(self) -> dict[str, int]:
        """Number of trials by status."""
        return count_by_status(self.spent)

    @property
    def search(self) -> Compute:
        """GPU and CPU time of the search trials."""
        return sum_compute(spent for spent in self.spent if spent.phase == "search")

    @property
    def confirm(self) -> Compute:
        """GPU and CPU time of the confirm trials."""
        return sum_compute(spent for spent in self.spent if spent.phase == "confirm")

    @property
    def pretraining(self) -> Compute:
        """The row's share of the pretraining cost."""
        return Compute(*(sum(getattr(cost.whole, unit) / cost.arms for cost in self.pretrained) for unit in UNITS))

    @property
    def total(self) -> Compute:
        """GPU and CPU time of all trials, plus the row's share of the pretraining."""
        return sum_compute([*self.spent, self.pretraining])

    def on(self, tasks: Collection[str]) -> Compute:
        """Add up the GPU and CPU time of the row's trials on these tasks."""
        return sum_compute(spent for spent in self.spent if spent.task in tasks)


def sum_compute(spent: Iterable[Spent | Compute]) -> Compute:
    """Add up GPU time and CPU time separately."""
    entries = list(spent)
    return Compute(*(sum(getattr(entry, unit) for entry in entries) for unit in UNITS))


def row_ledger(rows: list[Row]) -> list[LedgerEntry]:
    """Compute the costs of each row, including repeated searches."""
    entries, costs = [], _price_pretrainings(rows)
    for row in rows:
        searched = _list_searches(row)
        pretrained = [costs[name] for cell in searched if (name := cell.arm.backbone_fingerprint) in costs]
        spent = compute_ledger(record for cell in searched for record in cell.paid)
        unfinished = frozenset(cell.task for cell in searched if not cell.is_finished)
        entries.append(LedgerEntry(row.label, spent, pretrained, unfinished))
    return entries


def _list_searches(row: Row) -> list[Cell]:
    """List the cells of the row, each followed by those of its repeated searches."""
    return [repeat for cell in row.cells.values() for repeat in find_repeats(cell)]


def _price_pretrainings(rows: Sequence[Row]) -> dict[str, PretrainingCost]:
    """Compute the cost of each pretraining by this package, by the fingerprint of the backbone that it made.

    An arm that several studies have, because one is a copy of another, pays once.
    """
    cells = [cell for row in rows for cell in _list_searches(row)]
    arms = Counter(cell.arm.backbone_fingerprint for cell in cells)
    planned = [arm for cell in cells for study in cell.studies for arm in study.plan.arms]
    made = {arm.backbone_fingerprint: arm.pretraining for arm in planned if arm.pretraining is not UNSET}
    return {name: PretrainingCost(own, _price(own), arms[name]) for name, own in made.items()}


def _price(made: Pretraining) -> Compute:
    """Return the cost of a pretraining, including those of the backbone that it started from."""
    return sum_compute(
        Compute(stage.gpu_seconds, 0.0 if stage.gpu_seconds else stage.wall_seconds) for stage in made.stages
    )


def pretraining_cost(study: Study, rows: Sequence[Row]) -> PretrainingCost | None:
    """Return the cost of pretraining a study's backbone, or None if this package did not pretrain it.

    Args:
        rows: all rows of the tables, whose arms share the cost.
    """
    pretrained = [arm.backbone_fingerprint for arm in study.plan.arms if arm.pretraining is not UNSET]
    return _price_pretrainings(rows)[pretrained[0]] if pretrained else None


def warn_of_unlike_compute(entries: list[LedgerEntry]) -> list[str]:
    """Return a warning if the compute of the rows differs by over 20 % on the tasks that all rows have finished.

    Pretraining gets a separate warning.
    """
    spent = [entry for entry in entries if entry.trials]
    if not spent:
        return []
    warnings = _unlike("the pretraining of the rows' backbones", {entry.row: _dearest(entry) for entry in spent})
    common = set.intersection(*({one.task for one in entry.spent} - entry.unfinished for entry in spent))
    computes = {entry.row: entry.on(common) for entry in spent}
    computes = {row: compute for row, compute in computes.items() if compute.gpu_seconds or compute.cpu_seconds}
    if len({(compute.gpu_seconds > 0, compute.cpu_seconds > 0) for compute in computes.values()}) > 1:
        unit = choose_unit(computes.values())
        costs = ", ".join(f"{row} {compute.describe(unit)}" for row, compute in computes.items())
        return [*warnings, f"not all rows ran on the same kind of device, so their compute is not compared: {costs}"]
    return warnings + _unlike("compute on the tasks that all rows have finished", computes)


def _dearest(entry: LedgerEntry) -> Compute:
    """Return the full cost of the row's most expensive pretraining."""
    wholes = [cost.whole for cost in entry.pretrained]
    return Compute(*(max((getattr(whole, unit) for whole in wholes), default=0.0) for unit in UNITS))


def _unlike(what: str, computes: dict[str, Compute]) -> list[str]:
    """Return a warning for each kind of time that differs by over 20 % between the rows."""
    warnings, unit = [], choose_unit(computes.values())
    for kind in UNITS if computes else ():
        ordered = sorted(computes, key=lambda row: getattr(computes[row], kind))
        least, most = computes[ordered[0]], computes[ordered[-1]]
        if getattr(most, kind) > (1 + LARGEST_EXCESS) * getattr(least, kind):
            doubt = "" if kind == "gpu_seconds" else " (wall-clock time, on a machine that may have had other work)"
            warnings.append(
                f"{what} differs by more than 20 %{doubt}: "
                f"{ordered[-1]} used {most.describe(unit)}, but {ordered[0]} used {least.describe(unit)}"
            )
    return warnings


def choose_unit(computes: Iterable[Compute]) -> TimeUnit:
    """Choose the unit that suits the longest time of `computes`."""
    return time_unit(max((getattr(compute, kind) for compute in computes for kind in UNITS), default=0.0))


def time_unit(seconds: float) -> TimeUnit:
    """Choose seconds for times below a minute, minutes for times below an hour, and hours for longer times."""
    return "s" if seconds < 60 else "min" if seconds < 3600 else "h"


def format_time(seconds: float, unit: TimeUnit) -> str:
    """Format a time in `unit` without an exponent: `0.25 h`."""
    number = seconds / SECONDS[unit]
    if 0 < number < LEAST_TIME:
        return f"<{LEAST_TIME} {unit}"
    return f"{number:,.0f} {unit}" if number >= 100 else f"{number:.3g} {unit}"


def flops(cell: Cell) -> float | None:
    """Compute the FLOPs (in millions) per dev example under the models' exit rule, as the median over seeds.

    Return None if `flops_of_exits` does.
    """
    by_layer = flops_of_exits(cell)
    if by_layer is None:
        return None
    means = [np.take_along_axis(by_layer, own.exit_layers - 1, axis=0).mean() for own in read_cell_predictions(cell)]
    return float(np.median(means))


def flops_of_exits(cell: Cell) -> np.ndarray | None:
    """Compute the FLOPs (in millions) of every dev example for an exit after each layer.

    FLOPs are a weighted sum of the terms in `list_flops_terms`. The counted texts determine the weights, for texts
    below and from `HALVED_FROM` tokens separately.

    Returns:
        FLOPs (layers, n). None if predictions or the lengths of texts are not stored, or if the counted texts on the
        same side of `HALVED_FROM` do not determine the FLOPs of all others.

    Raises:
        ValueError: if a predictions file is damaged.
    """
    stored = read_cell_predictions(cell)
    lengths = stored[0].lengths if stored else None
    texts = next((record.text_flops for record in cell.records if record.text_flops), ())
    if lengths is None or not texts:
        return None
    found = np.empty((len(texts[0].by_layer), len(lengths)))
    config: Mapping[str, Any] = cell.records[0].config
    is_nystrom = config.get("attention") == "nystrom"
    segment_length = compute_segment_length(config["max_length"], config["num_landmarks"]) if is_nystrom else None
    for is_long in np.unique(lengths >= HALVED_FROM):
        counted = {text.tokens: text.by_layer for text in texts if (text.tokens >= HALVED_FROM) == is_long}
        rows = (lengths >= HALVED_FROM) == is_long
        terms = list_flops_terms(np.concatenate([[*counted], lengths[rows]]), segment_length)
        terms /= terms.max(axis=0)
        known, wanted = np.split(terms, [len(counted)])
        if not counted or np.linalg.matrix_rank(known) < np.linalg.matrix_rank(terms):
            return None
        weights, *_ = np.linalg.lstsq(known, np.array([*counted.values()]) / 1e6)  # (terms, layers)
        found[:, rows] = (wanted @ weights).T
    return found


def relative_layers(cell: Cell, other: Cell) -> float | None:
    """Divide the mean layers of `cell` by the mean layers of `other`; return None if either is unknown."""
    own, theirs = (median_over_seeds(each, "mean_layers") for each in (cell, other))
    return own / theirs if own and theirs else None


def median_over_seeds(cell: Cell, field: Literal["num_parameters", "num_layers", "mean_layers"]) -> float | None:
    """Compute the median of a record's field over the cell's seeds; return None if no record has it."""
    numbers = [number for record in cell.records if (number := getattr(record, field)) is not None]
    return float(np.median(numbers)) if numbers else None


def speed_up(cells: Iterable[Cell]) -> float | None:
    """Divide the cells' total depth by their total mean layers; return None if no cell has both numbers."""
    numbers = [(median_over_seeds(cell, "num_layers"), median_over_seeds(cell, "mean_layers")) for cell in cells]
    pairs = [(depth, run) for depth, run in numbers if depth and run]
    return sum(depth for depth, _ in pairs) / sum(run for _, run in pairs) if pairs else None
