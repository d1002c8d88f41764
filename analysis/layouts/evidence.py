"""Results from which all tables are made, and functions that all table layouts use.

A cell holds the trials of one row of a table on one task. A place is the pair (row label, task) of a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from analysis.layouts import comparison_notes, model_notes, protocol_notes, search_notes
from analysis.layouts.table import ESTIMATE, POINTS, POINTS_RANGE, Entry, Line, Table
from analysis.statistics.budgets import Saving, evaluate_cell, read_saving
from analysis.statistics.comparisons import (
    Comparison,
    Repeats,
    are_comparable,
    compare,
    find_baseline_row,
    list_interim_analyses,
    repeats_of_rows,
)
from analysis.statistics.costs import flops_of_exits
from analysis.statistics.curves import Curves, read_curves, shared_ranges
from analysis.statistics.difficulty import LayersByDifficulty, read_layers_by_difficulty
from analysis.statistics.exits import Exits, FullRun, Sweep, list_sweeps, read_exits, read_full_run
from analysis.statistics.gains import Gain, can_toss, read_gain, score_coins
from analysis.statistics.samples import (
    PLAIN_METHOD,
    Place,
    Sample,
    constant_scores,
    draw_samples,
    has_found_nothing,
    is_above_constant,
    resample,
)
from analysis.statistics.times import Measurement, Ratio, list_measurements
from analysis.statistics.uncertainty import PairedTest
from analysis.studies.cells import Cell, Row, make_rows, name_studies
from analysis.studies.load import Study
from analysis.studies.stored_predictions import Answers, read_cell_predictions
from study.terminal.text import joined
from trainables.configuration.schema import to_plain
from trainables.data.tasks import GLUE_TASKS, TASKS

USUAL_PRECISION = "float32"  # precision that goes without saying
COIN_STEP = 0.25  # layers between the points of a line of coins
PAPER_TASKS = ("sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb")  # PALBERT, table 2; macro is their mean


@dataclass(frozen=True)
class Evidence:
    """Studies, the rows of their tables, and the statistics that are computed from these rows."""

    studies: list[Study]
    rows: list[Row]

    @cached_property
    def samples(self) -> dict[Place, Sample]:
        """Bootstrap samples of the predictions. Cells without predictions for every seed are left out.

        Raises:
            ValueError: if a predictions file does not belong to its trial's record.
        """
        return draw_samples(self.rows)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """The comparison of each pair of rows on each task for which both have predictions of the same examples."""
        return compare(
            self.samples, self.baseline, are_comparable=self.are_comparable, num_analyses=len(self.interim_analyses)
        )

    @cached_property
    def interim_analyses(self) -> list[str]:
        """Times at which the user may have seen scores, as texts such as `5 seeds`.

        P-values are corrected for the number of these times.
        """
        return list_interim_analyses(self.rows)

    @cached_property
    def differences(self) -> dict[Place, Comparison]:
        """The comparison of each row with the baseline, by row label and task."""
        return {(one.row, one.task): one for one in self.comparisons if one.family == "baseline"}

    def are_comparable(self, row: str, other: str, task: str) -> bool:
        """Check whether the scores of two rows may be tested against each other on a task.

        Return True if either row has no cell for the task.
        """
        cells = [self.cells_by_place[label, task] for label in (row, other) if (label, task) in self.cells_by_place]
        return len(cells) < 2 or are_comparable(*cells)

    @cached_property
    def repeats(self) -> dict[Place, Repeats]:
        """The scores after each search, for every cell with repeated searches."""
        return repeats_of_rows(self.rows)

    @cached_property
    def comparisons_of_methods(self) -> list[Comparison]:
        """Comparisons of rows with the baseline, by the mean scores of their repeated searches.

        The list is empty if no search was repeated.
        """
        stored = {place: repeats for place, repeats in self.repeats.items() if repeats.examples}
        num_analyses = len(list_interim_analyses(self.rows, at_searches=True)) if stored else 1
        compared = compare(stored, self.baseline, are_comparable=self.are_comparable, num_analyses=num_analyses)
        return [one for one in compared if one.family == "baseline"]

    @property
    def tested(self) -> list[Comparison]:
        """The comparisons for the summary.

        If searches were repeated, methods are compared, and tuning counts as part of a method. Otherwise, the chosen
        configurations are compared.
        """
        return self.comparisons_of_methods or self.comparisons

    @cached_property
    def not_above_constant(self) -> dict[Place, float]:
        """The score of the best constant answer, for each cell that is not shown to beat it."""
        cells, samples = self.cells_by_place, self.samples
        return {p: c for p, c in self._constants.items() if not is_above_constant(cells[p], samples.get(p), c)}

    @property
    def nothing_found(self) -> dict[Place, float]:
        """The score of the best constant answer, for each cell without a search trial above it."""
        return {p: c for p, c in self._constants.items() if has_found_nothing(self.cells_by_place[p], c)}

    @cached_property
    def _constants(self) -> dict[Place, float]:
        return constant_scores(self.cells_by_place, self.samples)

    @property
    def baseline(self) -> str | None:
        """Label of the baseline's row; None if the baseline has no row with results, or several such rows."""
        return find_baseline_row(self.rows)

    @cached_property
    def exits(self) -> dict[Place, Exits]:
        """Early exits of each cell's models. Cells without recorded mean layers are left out."""
        return {place: exits for place, cell in self.cells_by_place.items() if (exits := read_exits(cell)) is not None}

    @cached_property
    def exits_with_dropped(self) -> dict[Place, Exits]:
        """Early exits of each cell's models, as `exits`, but dropped final runs count, as in means and gains."""
        found = {}
        for place, exits in self.exits.items():
            cell = self.cells_by_place[place]
            own = exits if len(cell.tested) == len(cell.records) else read_exits(cell.with_dropped)
            if own is not None:
                found[place] = own
        return found

    @property
    def full_runs(self) -> dict[Place, FullRun]:
        """Cells whose models have exit settings, but were measured to run all layers. Dropped final runs count."""
        runs = {
            place: read_full_run(self.cells_by_place[place].with_dropped, exits)
            for place, exits in self.exits_with_dropped.items()
        }
        return {place: run for place, run in runs.items() if run is not None}

    @cached_property
    def rules(self) -> dict[Place, tuple[Sweep, ...]]:
        """Results of each cell's models with every exit rule. The rule of the cell's method comes first.

        Dropped final runs count, as gains are measured at these settings. Cells without stored sweeps are left out.
        """
        rules = {}
        for place, exits in self.exits_with_dropped.items():
            if exits.sweeps:
                swept = {sweep.rule for sweep in exits.sweeps}
                _, sweeps = self._applied_rules.get(place, (None, []))
                rules[place] = (*exits.sweeps, *(sweep for sweep in sweeps if sweep.rule not in swept))
        return rules

    @cached_property
    def _applied_rules(self) -> dict[Place, tuple[Saving, list[Sweep]]]:
        """What is computed with all exit rules, for cells whose models have exits; each rule is applied once."""
        applied = {}
        for place in self.with_exits:
            settings = evaluate_cell(self.cells_by_place[place])
            if settings is not None:  # the settings keep all predictions in memory, so they are not cached
                applied[place] = read_saving(settings, self.find_plain(place)), list_sweeps(settings)
        return applied

    @cached_property
    def gains(self) -> dict[Place, Gain]:
        """Gain of the exits of each cell whose models have exits, and predictions for at least two seeds."""
        gains = {place: read_gain(self.cells_by_place[place]) for place in self.with_exits}
        return {place: gain for place, gain in gains.items() if gain is not None}

    @cached_property
    def layers_by_difficulty(self) -> dict[Place, LayersByDifficulty]:
        """Exit layers of easy and of hard examples, for cells whose models have exits and whose data are generated."""
        layers = {place: read_layers_by_difficulty(self.cells_by_place[place]) for place in self.with_exits}
        return {place: own for place, own in layers.items() if own is not None}

    @cached_property
    def savings(self) -> dict[Place, Saving]:
        """Fewest layers at which each cell keeps the plain model's score, for cells whose models have exits."""
        return {place: saving for place, (saving, _) in self._applied_rules.items()}

    @cached_property
    def weak_models(self) -> dict[Place, tuple[float, float]]:
        """Cells whose models score significantly below plain models even with all layers, with both mean scores."""
        answered: dict[Place, Sequence[Answers]] = {}
        plain_rows: dict[Place, str] = {}  # cell with all layers -> row of its plain model
        for place in self.with_exits:
            plain_row, cell = self.find_plain_row(place), self.cells_by_place[place]
            if plain_row is None or not are_comparable(cell, plain := self.cells_by_place[plain_row, place[1]]):
                continue
            own, other = (read_cell_predictions(one.with_dropped) for one in (cell, plain))
            if min(len(own), len(other)) > 1 and len({one.examples for one in (*own, *other)}) == 1:
                answered[place] = [replace(one, answers=one.layer_answers[-1:]) for one in own]
                plain_rows[place] = plain_row
                answered[plain_row, place[1]] = other
        samples = resample(answered)
        tests = [
            one
            for plain_row in dict.fromkeys(plain_rows.values())
            for one in compare(
                {place: own for place, own in samples.items() if plain_row in (place[0], plain_rows.get(place))},
                plain_row,
                num_analyses=len(self.interim_analyses),
            )
        ]
        means = {place: float(np.mean(sample.scores)) for place, sample in samples.items()}
        return {
            (one.row, one.task): (means[one.row, one.task], means[one.other, one.task])
            for one in tests
            if one.family == "baseline" and one.holds and one.test.difference < 0
        }

    def score_coins(self, place: Place, mean_layers: np.ndarray) -> np.ndarray | None:
        """Score the coin of each of a cell's models at these mean layers; both arrays are (points, seeds).

        Return None if no coin can be tossed; see `can_toss`.
        """
        stored = read_cell_predictions(self.cells_by_place[place])
        return score_coins(stored, mean_layers) if can_toss(stored) else None

    @cached_property
    def coins(self) -> dict[Place, tuple[np.ndarray, np.ndarray]]:
        """Mean layers (points,) and scores (points, seeds) of the coins of each cell whose models have exits.

        Dropped final runs count.
        """
        lines = {}
        for place in self.with_exits:
            layers = np.arange(1, self.exits[place].num_layers + COIN_STEP / 2, COIN_STEP)
            stored = read_cell_predictions(self.cells_by_place[place].with_dropped)
            if can_toss(stored):
                lines[place] = layers, score_coins(stored, np.repeat(layers[:, None], len(stored), axis=1))
        return lines

    @property
    def with_exits(self) -> list[Place]:
        """Cells whose models have exits, whether or not an example exits early."""
        return [place for place, exits in self.exits.items() if exits.sweeps or exits.is_early]

    def find_plain_row(self, place: Place) -> str | None:
        """Return the label of the row with the same backbone without early exits, first of those of the same study."""
        own = self.cells_by_place[place]
        plain = {
            label: cell
            for (label, task), cell in self.cells_by_place.items()
            if cell.arm.method == PLAIN_METHOD and task == place[1] and cell.records
            if cell.arm.backbone_fingerprint == own.arm.backbone_fingerprint
        }
        folders = {study.folder for study in own.studies}
        beside = [label for label, cell in plain.items() if folders & {study.folder for study in cell.studies}]
        return next(iter([*beside, *plain]), None)

    def find_plain(self, place: Place) -> Cell | None:
        """Return the cell of the same backbone without early exits, or None if the studies have no such cell."""
        row = self.find_plain_row(place)
        return None if row is None else self.cells_by_place[row, place[1]]

    def find_time_reference_row(self, place: Place) -> str | None:
        """Return the row whose time is the unit: the plain model of the same backbone, or else the baseline."""
        row = self.find_plain_row(place) or self.baseline
        return row if (row, place[1]) in self.cells_by_place else None

    def find_time_reference(self, place: Place) -> Cell | None:
        """Return the cell whose time is the unit; see `find_time_reference_row`."""
        row = self.find_time_reference_row(place)
        return None if row is None else self.cells_by_place[row, place[1]]

    @cached_property
    def measurements(self) -> list[Measurement]:
        """Measurements of inference times, one for each study and machine, newest first."""
        return list_measurements(self.studies)

    def list_untimed(self, made: Measurement) -> list[str]:
        """Name the models of the study that a measurement left out, because they did not exist then.

        These are seeds if all arms lack the same ones, or else arms, with their seeds if not all are lacking.
        """
        seeds, untimed = dict[str, list[int]](), dict[str, list[int]]()
        for place, cell in self.cells_by_place.items():
            if of_study := [one for one in cell.tested if one.key in made.records and made.covers(cell)]:
                seeds["/".join(place)] = [one.seed for one in of_study]
                untimed["/".join(place)] = [one.seed for one in of_study if one.key not in made.keys]
        if untimed == seeds or not any(untimed.values()):
            return []  # the table has no line of the measurement, or nothing is left out
        first, *others = untimed.values()
        if all(lacking == first for lacking in others):
            return [_name_seeds(first)]
        return [
            name if lacking == seeds[name] else f"{name} {_name_seeds(lacking)}"
            for name, lacking in untimed.items()
            if lacking
        ]

    def describe_measurement(self, made: Measurement) -> str:
        """Name the machine of a measurement, the precisions if not all are float32, and the models that it left out."""
        timed = [cell for cell in self.cells_by_place.values() if any(made.read(cell, n) for n in made.batch_sizes)]
        precisions = {str(one.config.get("precision", USUAL_PRECISION)) for cell in timed for one in cell.tested}
        if made.event.clock == "cpu":  # only GPUs have TensorFloat-32
            precisions = {USUAL_PRECISION if precision == "tensorfloat32" else precision for precision in precisions}
        named = sorted(precisions) if precisions - {USUAL_PRECISION} else []
        missing = self.list_untimed(made)
        parts = [made.machine, *[f"in {joined(named)}"] * bool(named)]
        parts += [f"without {joined(missing)}"] * bool(missing)
        return ", ".join(parts)

    @property
    def trusted_times(self) -> Measurement | None:
        """The newest measurement that nothing disturbed."""
        return next((made for made in self.measurements if not made.disturbance), None)

    def find_times_of_single_texts(self, task: str) -> Measurement | None:
        """Find the newest measurement that timed models of the task on single texts, and that nothing disturbed."""
        cells = [cell for (_, other), cell in self.cells_by_place.items() if other == task]
        return next(
            (made for made in self.measurements if not made.disturbance and any(made.read(cell, 1) for cell in cells)),
            None,
        )

    def find_time_ratio(self, cell: Cell, other: Cell, size: int) -> Ratio | None:
        """Divide the times of two cells in the newest measurement that timed both, and that nothing disturbed."""
        ratios = (made.compare(cell, other, size) for made in self.measurements if not made.disturbance)
        return next((ratio for ratio in ratios if ratio is not None), None)

    @property
    def time_references(self) -> list[str]:
        """Methods whose times are the unit for some cell."""
        cells = [self.find_time_reference(place) for place in self.cells_by_place]
        return list(dict.fromkeys(cell.arm.method for cell in cells if cell))

    @cached_property
    def curves(self) -> dict[Place, Curves]:
        """Curves of score against mean layers, for the cells that were evaluated at several exit settings."""
        curves = {place: read_curves(cell) for place, cell in self.cells_by_place.items()}
        return {place: known for place, known in curves.items() if known is not None}

    @property
    def curve_reference(self) -> str:
        """Label of the reference row for comparisons of curves.

        The reference row is the baseline if it has a curve, and otherwise the first row with a curve.
        """
        labels = [label for label, _ in self.curves]
        return self.baseline if self.baseline in labels else labels[0]

    @cached_property
    def curves_by_flops(self) -> dict[Place, Curves]:
        """Curves of score against millions of FLOPs, for the cells with counted FLOPs."""
        costs = {place: flops_of_exits(self.cells_by_place[place]) for place in self.curves}
        return {place: self.curves[place].at_cost(cost) for place, cost in costs.items() if cost is not None}

    def compare_curves(self, curves: Mapping[Place, Curves]) -> dict[Place, Comparison]:
        """Compare the mean score of each curve with that of the reference row on the same task.

        The mean covers only the costs that all curves of the task reach.
        """
        ranges = shared_ranges(curves)
        scored = {place: curve.over(*ranges[place[1]]) for place, curve in curves.items() if place[1] in ranges}
        if not scored:
            return {}
        compared = compare(
            scored, self.curve_reference, are_comparable=self.are_comparable, num_analyses=len(self.interim_analyses)
        )
        return {(one.row, one.task): one for one in compared if one.family == "baseline"}

    @property
    def cells(self) -> list[tuple[str, Cell]]:
        """Every cell with the label of its row."""
        return [(row.label, cell) for row in self.rows for cell in row.cells.values()]

    @cached_property
    def cells_by_place(self) -> dict[Place, Cell]:
        """Every cell, by row label and task."""
        return {(label, cell.task): cell for label, cell in self.cells}

    @property
    def limits(self) -> list[str]:
        """Notes on the limits of the scores, such as rows that are not tested against each other.

        `model_notes.weak_model_notes` lists the weak models.
        """
        return [
            *protocol_notes.repeated_text_notes(cell for _, cell in self.cells),
            *search_notes.first_search_notes((cell for _, cell in self.cells), are_tabulated=bool(self.repeats)),
            *comparison_notes.untestable_pair_notes(self.rows),
            *comparison_notes.look_notes(self.rows),
            *model_notes.collapsed_notes(self.samples),
            *model_notes.constant_notes(self.not_above_constant, self.nothing_found),
            *model_notes.full_run_notes(self.full_runs),
            *search_notes.unequal_search_notes(self.rows),
            *search_notes.shared_start_notes(self.rows),
            *search_notes.edge_notes(self.rows),
            *search_notes.dropped_notes(self.rows),
        ]

    def mark(self, place: Place) -> str:
        """Return a cell's marks: ° if it is not shown to beat a constant answer, and the arrow of its difference."""
        arrow = self.differences[place].arrow if place in self.differences else ""
        return "°" * (place in self.not_above_constant) + arrow

    @property
    def on_mini(self) -> bool:
        """Whether any study uses mini-GLUE, the generated data."""
        return any(study.is_mini for study in self.studies)


def gather(studies: list[Study], *, separate: bool = False) -> Evidence:
    """Gather the results of studies with the same protocol. If `separate`, no row has results of two studies.

    Raises:
        ValueError: if the studies cannot share a table.
    """
    return Evidence(studies, make_rows(studies, separate=separate))


def make_table(
    evidence: Evidence,
    name: str,
    *,
    columns: Mapping[str, str] = MappingProxyType({}),
    lines: Iterable[Line],
    **others: Any,
) -> Table:
    """Make a table, and add the origin of its numbers. Lines without entries are left out.

    Args:
        columns: name -> heading. By default, the tasks of PALBERT's paper, then all other planned tasks.
        others: more fields of `Table`. The title may have the placeholders `{glue}`, `{data}` and `{seeds}`.
    """
    columns = columns or list_task_columns(evidence.studies, PAPER_TASKS)
    table = Table(name=name, columns=columns, lines=[line for line in lines if line.entries], **others)
    return add_provenance(evidence, table)


def add_provenance(evidence: Evidence, table: Table) -> Table:
    """Fill in the placeholders in the title, and add the studies and cells to the table's JSON file."""
    has_glue = any(cell.task in GLUE_TASKS for _, cell in evidence.cells)
    is_untrained = any(study.plan.untrained for study in evidence.studies)
    data = " on mini-GLUE" * evidence.on_mini + ", untrained backbone" * is_untrained
    seeds = protocol_notes.describe_seeds(evidence.studies, evidence.rows)
    title = table.title.format(glue="GLUE " * (has_glue and not evidence.on_mini), data=data, seeds=seeds)
    named = list(zip(name_studies(evidence.studies), evidence.studies, strict=True))
    pretrained = {
        name: made
        for name, study in named
        if (made := protocol_notes.pretraining_facts(study, evidence.rows)) is not None
    }
    first = evidence.studies[0]
    sidecar: dict[str, Any] = {
        "protocol": {first.protocol_hash: to_plain(first.protocol)},
        "studies": [
            {"name": name, "journal": study.journal.sha256, "lines": study.journal.lines} for name, study in named
        ],
        "incomplete": search_notes.seed_notes(evidence.rows),
        "cells": [{"row": label} | _identify_cell(cell) for label, cell in evidence.cells],
        **({"pretraining": pretrained} if pretrained else {}),
    }
    return replace(table, title=title[0].upper() + title[1:], sidecar=sidecar | table.sidecar)


def list_task_columns(studies: list[Study], order: tuple[str, ...]) -> dict[str, str]:
    """Map tasks to their titles, in the order of the columns: the tasks in `order`, then all other planned tasks."""
    tasks = {task for study in studies for task in study.tasks}
    return {task: TASKS[task].title for task in (*order, *(task for task in TASKS if task in tasks - set(order)))}


def add_seeds(cell: Cell, entry: Entry) -> Entry:
    """Add the cell's number of seeds to the entry; return an empty entry if the cell has no results."""
    if cell.state == "missing":
        return Entry()
    return replace(entry, n=len(cell.records), off_protocol=cell.state != "complete")


def format_median(cell: Cell) -> Entry:
    """Format the cell's median score over the seeds."""
    return add_seeds(cell, POINTS.entry(cell.median))


def format_mean(sample: Sample) -> Entry:
    """Format the mean score over the seeds, with its 95 % interval."""
    interval = sample.mean_interval
    return POINTS_RANGE.entry(float(np.mean(sample.scores)), interval.low, interval.high)


def _name_seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def format_test(test: PairedTest, mark: str = "") -> Entry:
    """Format a tested difference with its 95 % interval, and add the standard error for the JSON file."""
    entry = ESTIMATE.entry(test.difference, test.low, test.high, mark=mark)
    further = {"_standard_error": ESTIMATE.scale * test.standard_error, "_freedom": test.freedom}
    return replace(entry, values={**entry.values, **further})


def _identify_cell(cell: Cell) -> dict[str, Any]:
    """Return what the JSON file says about a cell, such as seeds, scores, configuration and keys of records."""
    return {
        "method": cell.arm.method,
        "task": cell.task,
        "studies": [study.name for study in cell.studies],
        "state": cell.state,
        "n": len(cell.records),
        "seeds": cell.seeds,
        "seeds_wanted": cell.seeds_wanted,
        "scores": cell.scores,
        "records": [record.key for record in cell.records],
        "failed": [record.key for record in cell.failed],
        "config": cell.config,
        "backbone": cell.arm.backbone,
        "data_fingerprint": cell.arm.data_fingerprint,
        "data_differences": cell.data_differences,
        "samples": cell.arm.samples,
    }
