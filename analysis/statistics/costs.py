"""The cost of the numbers: the compute of every row, and the layers and the time of the models that came of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from msgspec import UNSET

from analysis.studies.cells import Cell, Row, find_repeats
from analysis.studies.load import Study
from analysis.studies.stored_predictions import read_cell_predictions
from study.facts.ledger import Spent, count_by_status, in_words, ledger
from study.facts.plain_words import counted
from study.facts.record import Record
from study.plans.resolved_plan import Pretraining
from trainables.runs.trial import Latency
from trainables.schema import to_plain

LARGEST_EXCESS = 0.2  # rows whose compute differs by more were not given the same chance
UNITS = ("gpu_seconds", "cpu_seconds")  # of `Compute`
SECONDS = {"s": 1, "min": 60, "h": 3600}
LEAST_TIME = 0.001  # in any unit; what is shorter is only called so

TimeUnit = Literal["s", "min", "h"]


@dataclass(frozen=True)
class Compute:
    """Time of trials: on GPUs by the share held, on CPUs by the clock. The two are never added up."""

    gpu_seconds: float
    cpu_seconds: float

    def in_words(self, unit: TimeUnit | None = None) -> str:
        """Print it in the unit of its neighbours, or in its own if it stands alone."""
        unit = unit or choose_unit([self])
        parts = [f"{format_time(self.gpu_seconds, unit)} of GPU"] * (self.gpu_seconds > 0)
        parts += [f"{format_time(self.cpu_seconds, unit)} by the clock on CPU"] * (self.cpu_seconds > 0)
        return " and ".join(parts) or format_time(0.0, unit)


@dataclass(frozen=True)
class PretrainingCost:
    """How the backbone of a study was pretrained, and what that has cost: its arms pay for it, all alike."""

    made: Pretraining
    whole: Compute
    arms: int


@dataclass(frozen=True)
class Entry:
    """The compute of one row: all trials of its arms, stopped and failed ones and those that ran again too.

    If a backbone was pretrained here, the arms pay for that as well, each an equal share.
    """

    row: str
    spent: list[Spent]  # per arm and phase
    pretrained: list[PretrainingCost]  # one for each of its arms in each study with such a backbone
    unfinished: frozenset[str] = frozenset()  # tasks of which there is no number yet

    @property
    def trials(self) -> dict[str, int]:
        """Number of trials by status."""
        return count_by_status(self.spent)

    @property
    def search(self) -> Compute:
        """Time of the search trials."""
        return total_of(spent for spent in self.spent if spent.phase == "search")

    @property
    def confirm(self) -> Compute:
        """Time of the confirm trials."""
        return total_of(spent for spent in self.spent if spent.phase == "confirm")

    @property
    def pretraining(self) -> Compute:
        """The shares of its arms."""
        return Compute(*(sum(getattr(cost.whole, unit) / cost.arms for cost in self.pretrained) for unit in UNITS))

    @property
    def total(self) -> Compute:
        """Time of all trials, and the shares of the pretraining."""
        return total_of([*self.spent, self.pretraining])

    def on(self, tasks: Collection[str]) -> Compute:
        """Add up what its trials spent on these tasks."""
        return total_of(spent for spent in self.spent if spent.task in tasks)

    def in_words(self, unit: TimeUnit) -> str:
        """Print the row's total, its parts and its trials."""
        pretraining = f", pretraining {self.pretraining.in_words(unit)}" if self.pretrained else ""
        parts = f"search {self.search.in_words(unit)}{pretraining}"
        return f"{self.row} {self.total.in_words(unit)} ({parts}; {in_words(self.trials)})"

    def to_json(self) -> dict[str, Any]:
        """Return the entry for a table's sidecar."""
        parts = ["search", "confirm", *(["pretraining"] if self.pretrained else []), "total"]
        totals = {name: vars(getattr(self, name)) for name in parts}
        return {"row": self.row, **totals, "trials": self.trials, "arms": to_plain(self.spent)}


def total_of(spent: Iterable[Spent | Compute]) -> Compute:
    """Add up time of trials, or sums of it."""
    entries = list(spent)
    return Compute(*(sum(getattr(entry, unit) for entry in entries) for unit in UNITS))


def row_ledger(rows: list[Row]) -> list[Entry]:
    """One entry per row, of all its searches."""
    entries = []
    for row in rows:
        searched = [repeat for cell in row.cells.values() for repeat in find_repeats(cell)]
        costs = [pretraining_cost(study) for cell in searched for study in cell.studies]
        spent = ledger(record for cell in searched for record in cell.paid)
        unfinished = frozenset(task for task, cell in row.cells.items() if cell.state == "missing")
        entries.append(Entry(row.label, spent, [cost for cost in costs if cost is not None], unfinished))
    return entries


def pretraining_cost(study: Study) -> PretrainingCost | None:
    """Compute what a study's backbone has cost, and who pays; None if it was not pretrained here."""
    pretrained = [arm.pretraining for arm in study.file.plan.arms if arm.pretraining is not UNSET]
    if not pretrained:
        return None
    made = pretrained[0]
    whole = Compute(made.gpu_seconds, 0.0 if made.gpu_seconds else made.wall_seconds)
    return PretrainingCost(made, whole, arms=len(pretrained))


def ledger_notes(entries: list[Entry]) -> list[str]:
    """Put the ledger in words, and warn if rows had unlike compute on the tasks that all of them ran to a number.

    Pretraining is compared apart: a large cost that rows share would hide how unlike their trials' is.
    """
    spent = [entry for entry in entries if entry.trials]
    if not spent:
        return []
    unit = choose_unit(entry.total for entry in spent)
    notes = ["compute: " + "; ".join(entry.in_words(unit) for entry in spent)]
    notes += _unlike("the pretraining of the rows' backbones", {entry.row: _dearest(entry) for entry in spent})
    common = set.intersection(*({one.task for one in entry.spent} - entry.unfinished for entry in spent))
    return notes + _warnings({entry.row: entry.on(common) for entry in spent})


def _dearest(entry: Entry) -> Compute:
    """Find the pretraining of its backbone, whoever pays for it; of several studies' the dearest."""
    wholes = [cost.whole for cost in entry.pretrained]
    return Compute(*(max((getattr(whole, unit) for whole in wholes), default=0.0) for unit in UNITS))


def _warnings(computes: dict[str, Compute]) -> list[str]:
    computes = {row: compute for row, compute in computes.items() if compute.gpu_seconds or compute.cpu_seconds}
    devices = {row: (compute.gpu_seconds > 0, compute.cpu_seconds > 0) for row, compute in computes.items()}
    if len(set(devices.values())) > 1:
        unit = choose_unit(computes.values())
        costs = ", ".join(f"{row} {compute.in_words(unit)}" for row, compute in computes.items())
        return [f"warning: not all rows ran on the same kind of device, so their compute is not compared: {costs}"]
    return _unlike("compute on the tasks that all rows ran", computes)


def _unlike(what: str, computes: dict[str, Compute]) -> list[str]:
    """Warn of each kind of time of which one row had much more than another."""
    warnings, unit = [], choose_unit(computes.values())
    for kind in UNITS if computes else ():
        ordered = sorted(computes, key=lambda row: getattr(computes[row], kind))
        least, most = computes[ordered[0]], computes[ordered[-1]]
        if getattr(most, kind) > (1 + LARGEST_EXCESS) * getattr(least, kind):
            doubt = "" if kind == "gpu_seconds" else " (by the clock, on a machine that may have had other work)"
            warnings.append(
                f"warning: {what} differs by more than 20 %{doubt}: "
                f"{ordered[-1]} had {most.in_words(unit)}, {ordered[0]} {least.in_words(unit)}"
            )
    return warnings


def choose_unit(computes: Iterable[Compute]) -> TimeUnit:
    """Choose the unit of the largest of them, for all: numbers beside each other are compared."""
    return time_unit(max((getattr(compute, kind) for compute in computes for kind in UNITS), default=0.0))


def time_unit(seconds: float) -> TimeUnit:
    """Seconds below a minute, minutes below an hour."""
    return "s" if seconds < 60 else "min" if seconds < 3600 else "h"


def format_time(seconds: float, unit: TimeUnit) -> str:
    """`0.25 h`, without an exponent however little or much it is."""
    number = seconds / SECONDS[unit]
    if 0 < number < LEAST_TIME:
        return f"<{LEAST_TIME} {unit}"
    return f"{number:,.0f} {unit}" if number >= 1000 else f"{number:.3g} {unit}"


def list_latencies(cell: Cell) -> list[Latency]:
    """List the latencies of the records that have one."""
    return [record.latency for record in cell.records if record.latency is not None]


def milliseconds(cell: Cell, batch_size: int) -> float | None:
    """Time per example under the models' own exit, median over the seeds; None if nothing was timed.

    A few examples are timed, which run other layers than all of dev: the time is that of as many layers as dev runs.
    """
    times = []
    for record in cell.records:
        timing = record.latency and record.latency.own.timing(batch_size)
        if timing and record.mean_layers:
            times.append(timing.milliseconds * record.mean_layers / timing.mean_layers)
    return float(np.median(times)) if times else None


def flops(cell: Cell) -> float | None:
    """Count an example's FLOPs (matrix products) under the models' own exit, median over seeds; None unless counted."""
    counts = [latency.own.flops for latency in list_latencies(cell)]
    return float(np.median(counts)) if counts else None


def flops_of_exits(cell: Cell) -> np.ndarray | None:
    """Compute the FLOPs of each text, in millions, for every layer that it may leave after.

    FLOPs are quadratic in the length of a text, so three lengths that were counted give those of all. Older records
    lack them: all texts then cost the same, on the line through the exit settings that were counted.

    Returns:
        (layers, n), or (layers, 1) for older records; None if nothing was counted.

    Raises:
        ValueError: if a predictions file is broken.
    """
    latencies, stored = list_latencies(cell), read_cell_predictions(cell)
    if not latencies or not stored:
        return None
    lengths = stored[0].lengths
    if lengths is not None and latencies[0].texts:
        counted = {text.tokens: np.array(text.by_layer) / 1e6 for text in latencies[0].texts}
        degree = len(counted) - 1
        coefficients = np.polyfit([*counted], [*counted.values()], deg=degree)  # (degree + 1, layers)
        return np.asarray((np.vander(lengths.astype(float), degree + 1) @ coefficients).T)
    settings = [setting for latency in latencies for setting in latency.exits]
    layers = [max(own.timings, key=lambda timing: timing.batch_size).mean_layers for own in settings]
    if len({*layers}) < 2:
        return None
    line = np.polyfit(layers, [own.flops / 1e6 for own in settings], deg=1)
    return np.asarray(np.polyval(line, np.arange(1, len(stored[0].layer_answers) + 1))[:, None])


def relative_time(pairs: Iterable[tuple[Cell, Cell]], batch_size: int) -> float | None:
    """Milliseconds per example of cells to those of others, both summed; None unless all were timed."""
    times = [(milliseconds(own, batch_size), milliseconds(other, batch_size)) for own, other in pairs]
    timed = [(own, other) for own, other in times if own is not None and other]
    if not timed or len(timed) < len(times):
        return None
    return sum(own for own, _ in timed) / sum(other for _, other in timed)


def relative_layers(cell: Cell, other: Cell) -> float | None:
    """Layers that a cell's models run per dev example to those of another cell; None if either does not say."""
    own, theirs = (speed_facts(each)["mean_layers"] for each in (cell, other))
    return own / theirs if own and theirs else None


def name_devices(cells: Iterable[Cell]) -> str:
    """Name what the cells' models were timed on; empty if nothing was."""
    latencies = [latency for cell in cells for latency in list_latencies(cell)]
    return " or ".join(
        dict.fromkeys(f"{latency.device}, {counted(latency.threads, 'thread')}" for latency in latencies)
    )


def speed_facts(cell: Cell) -> dict[str, Any]:
    """Medians over the confirm records: parameters (millions), depth, and layers run with their range."""

    def median(value: Callable[[Record], float | None]) -> float | None:
        numbers = [number for record in cell.records if (number := value(record)) is not None]
        return float(np.median(numbers)) if numbers else None

    layers = [record.mean_layers for record in cell.records if record.mean_layers is not None]
    parameters = median(lambda record: record.num_parameters)
    return {
        "parameters": None if parameters is None else parameters / 1e6,
        "num_layers": median(lambda record: record.num_layers),
        "mean_layers": median(lambda record: record.mean_layers),
        "fewest_layers": min(layers, default=None),
        "most_layers": max(layers, default=None),
    }


def speed_up(facts: Iterable[Mapping[str, Any]]) -> float | None:
    """All layers / layers run over the cells with these `speed_facts`, both summed; None without any."""
    pairs = [(cell["num_layers"], cell["mean_layers"]) for cell in facts if cell["num_layers"] and cell["mean_layers"]]
    return sum(depth for depth, _ in pairs) / sum(run for _, run in pairs) if pairs else None
