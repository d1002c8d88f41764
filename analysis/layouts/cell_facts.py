"""What tables say of a cell: its numbers in full for the sidecar, and as texts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from analysis.layouts.table import Entry, deviation_entry, interval_entry, number_entry, number_text
from analysis.statistics import uncertainty
from analysis.statistics.searches import Optimism, optimism_of_search
from analysis.studies.cells import Cell
from study.facts.winner import best_search_record
from trainables.data.tasks import TASKS
from trainables.schema import to_plain

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
        "optimism": (found := optimism_of(cell)) and to_plain(found),
    }


def optimism_of(cell: Cell) -> Optimism | None:
    """What the best search score promised beyond the confirm trials; None while there are too few."""
    best = best_search_record(cell.arm_records)
    return None if best is None else optimism_of_search(best, cell.records)


def scores_in(cell: Cell, metric: str) -> list[float]:
    """The scores of the confirm records in a metric, named as in `published.csv`."""
    if metric == PAPER_METRICS[cell.task]:
        return cell.scores
    return [record.metrics[metric] for record in cell.records]


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


def gap_entry(difference: float, low: float, high: float, *, mark: str = "") -> Entry:
    """A difference with its interval, in points: `+1.5 (-0.2 to +3.1)`."""
    texts = [number_text(100 * value, signed=True) for value in (difference, low, high)]
    numbers = dict(zip(("", "_low", "_high"), texts, strict=True))
    return Entry(f"{texts[0]} ({texts[1]} to {texts[2]})", numbers, mark=mark)


def range_entry(value: float | None, low: float | None, high: float | None, decimals: int = 2) -> Entry:
    """A number with the range over seeds: `3.10 (1.00 to 5.33)`."""
    if value is None or low is None or high is None:
        return Entry()
    texts = [number_text(number, decimals) for number in (value, low, high)]
    numbers = dict(zip(("", "_low", "_high"), texts, strict=True))
    return Entry(texts[0] if low == high else f"{texts[0]} ({texts[1]} to {texts[2]})", numbers)


def speed_entries(cell: Cell, facts: dict[str, Any]) -> dict[str, Entry]:
    decimals = {"mean_layers": 2, "layer_ratio": 2}
    decimals |= {name: 2 for name in facts if name.startswith("time_ratio")}
    decimals |= {"fewest_layers": 1, "most_layers": 1, "parameters": 1 if (facts["parameters"] or 1) >= 1 else 3}
    numbers = {name: number_entry(value, decimals.get(name, 0)) for name, value in facts.items()}
    low, high = numbers.pop("fewest_layers"), numbers.pop("most_layers")
    if low.numbers:
        numbers["range"] = Entry(f"{low.text} to {high.text}", {"_low": low.text, "_high": high.text})
    return {"score": score_entry(cell, cell.median), **numbers}
