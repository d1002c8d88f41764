"""What tables say of a cell: its numbers in full for the sidecar, and as texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.layouts.rendering import GAP
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
    return f"{100 * score:.1f}"


def cell_text(cell: Cell, number: str) -> str:
    """The number, marked with its n where the seeds are not the protocol's; GAP where there is none."""
    if cell.state == "missing":
        return GAP
    return number if cell.state == "complete" else f"{number} (n={len(cell.records)})"


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


def deviation_text(scores: list[float]) -> str:
    numbers = mean_and_deviation_of(scores)
    if numbers["mean"] is None:
        return GAP
    deviation = numbers["standard_deviation"]
    return f"{points(numbers['mean'])} ± {GAP if deviation is None else points(deviation)}"


def mean_and_deviation_of(scores: list[float]) -> dict[str, float | None]:
    return {
        "mean": float(np.mean(scores)) if scores else None,
        "standard_deviation": float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
    }


def median_interval(cell: Cell) -> uncertainty.Interval | None:
    return uncertainty.median_interval(cell.scores) if len(cell.records) > 1 else None


def interval_text(interval: uncertainty.Interval | None) -> str:
    return f"{points(interval.low)} to {points(interval.high)}" if interval else GAP


def interval_facts(place: tuple[str, str], interval: uncertainty.Interval | None) -> dict[str, Any]:
    return {"row": place[0], "task": place[1]} | (vars(interval) if interval else {})


def optimism_text(cell: Cell) -> str:
    value = optimism_of(cell)
    return GAP if value is None else cell_text(cell, f"{100 * value:+.1f}")


def speed_texts(cell: Cell, facts: dict[str, Any]) -> dict[str, str]:
    formats = {"num_layers": ".0f", "mean_layers": ".2f", "layer_ratio": ".2f", "eval_seconds_per_epoch": ".2f"}
    numbers = {name: GAP if value is None else format(value, formats.get(name, ".0f")) for name, value in facts.items()}
    return {"score": cell_text(cell, points(cell.median)), **numbers}
