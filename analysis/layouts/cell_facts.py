"""What tables say of a cell: its numbers in full for the sidecar, and as texts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from analysis.layouts.table import Entry, deviation_entry, interval_entry, number_entry, number_text
from analysis.statistics import uncertainty
from analysis.studies.cells import Cell
from study.facts.winner import best_search_record
from trainables.data.tasks import TASKS

# The metrics of a table's columns, in the words of `published.csv`: PALBERT's tables, and ELECTRA's.
PAPER_METRICS = {task: "accuracy" for task in TASKS} | {
    "cola": "matthews",
    "mrpc": "mean(acc,f1)",
    "mnli": "mean(acc m,mm)",
    "qqp": "mean(acc,f1)",
    "stsb": "mean(pearson,spearman)",
}
ELECTRA_METRICS = PAPER_METRICS | {"mrpc": "accuracy", "qqp": "accuracy", "stsb": "spearman"}


def points(score: float) -> str:
    """A score in [-1, 1] as the papers print it."""
    return number_text(100 * score)


def cell_entry(cell: Cell, entry: Entry) -> Entry:
    """The entry with its number of seeds; a gap where the cell is missing."""
    if cell.state == "missing":
        return Entry()
    return replace(entry, n=len(cell.records), off_protocol=cell.state != "complete")


def score_entry(cell: Cell, score: float) -> Entry:
    return cell_entry(cell, number_entry(100 * score))


def cell_names(cell: Cell) -> dict[str, Any]:
    """Which cell it is and which records make it: the sidecar's entry in every table."""
    return {
        "method": cell.method,
        "task": cell.task,
        "studies": [study.name for study in cell.studies],
        "state": cell.state,
        "n": len(cell.records),
        "seeds": cell.seeds,
        "seeds_wanted": cell.seeds_wanted,
        "records": [record.key for record in cell.records],
        "failed": [record.key for record in cell.failed],
        "config": cell.config,
        "backbone": cell.arm.backbone,
        "data_fingerprint": cell.arm.data_fingerprint,
        "data_differences": cell.data_differences,
        "samples": cell.arm.samples,
    }


def cell_facts(cell: Cell) -> dict[str, Any]:
    """The dev table's entry: the number in full, how sure it is, and the search behind it."""
    best = best_search_record(cell.arm_records)
    return cell_names(cell) | {
        "median": cell.median if cell.records else None,
        "summary": uncertainty.summary(cell.scores) if cell.records else None,
        "scores": cell.scores,
        "best_search": best and {"record": best.key, "selection_score": best.selection_score},
        "optimism": optimism_of(cell),
    }


def optimism_of(cell: Cell) -> float | None:
    """Best search score minus confirmed median; None while either is missing."""
    best = best_search_record(cell.arm_records)
    if best is None or best.selection_score is None or not cell.records:
        return None
    return uncertainty.optimism(best.selection_score, cell.median)


def electra_scores(cell: Cell) -> list[float]:
    """The scores of the confirm records in ELECTRA's metrics."""
    metric = ELECTRA_METRICS[cell.task]
    return cell.scores if metric == PAPER_METRICS[cell.task] else [record.metrics[metric] for record in cell.records]


def spread_entry(cell: Cell) -> Entry:
    numbers = mean_and_deviation_of([100 * score for score in cell.scores])
    return cell_entry(cell, deviation_entry(numbers["mean"], numbers["standard_deviation"]))


def mark_meanings(baseline: str | None) -> dict[str, str]:
    return {"↑": f"above {baseline} at the 5 % level", "↓": f"below {baseline} at the 5 % level"} if baseline else {}


def mean_and_deviation_of(scores: list[float]) -> dict[str, float | None]:
    return {
        "mean": float(np.mean(scores)) if scores else None,
        "standard_deviation": float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
    }


def median_interval(cell: Cell) -> uncertainty.Interval | None:
    return uncertainty.median_interval(cell.scores) if len(cell.records) > 1 else None


def points_interval(interval: uncertainty.Interval | None) -> Entry:
    return interval_entry(100 * interval.low, 100 * interval.high) if interval else Entry()


def interval_facts(place: tuple[str, str], interval: uncertainty.Interval | None) -> dict[str, Any]:
    return {"row": place[0], "task": place[1]} | (vars(interval) if interval else {})


def optimism_entry(cell: Cell) -> Entry:
    value = optimism_of(cell)
    return Entry() if value is None else cell_entry(cell, number_entry(100 * value, signed=True))


def speed_entries(cell: Cell, facts: dict[str, Any]) -> dict[str, Entry]:
    decimals = {"mean_layers": 2, "layer_ratio": 2, "eval_seconds_per_epoch": 2}
    numbers = {name: number_entry(value, decimals.get(name, 0)) for name, value in facts.items()}
    return {"score": score_entry(cell, cell.median), **numbers}
