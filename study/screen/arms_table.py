"""How far every arm is, as a table for a terminal."""

from __future__ import annotations

from rich.table import Table

from study.decisions.progress import ArmProgress, PretrainingProgress, StudyProgress
from study.screen.words import points

COLUMNS = ("arm", "search", "stopped", "failed", "under way", "confirm", "best", "median")


def arms_table(progress: StudyProgress) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "arm" else "right")
    if progress.pretraining:
        table.add_row(progress.pretraining.arm.name, *_pretraining_cells(progress.pretraining))
    for arm in progress.arms:
        table.add_row(arm.arm.name, *_cells(arm))
    return table


def _pretraining_cells(pretraining: PretrainingProgress) -> list[str]:
    """It has epochs where others have trials, and no score that a table knows."""
    trial = pretraining.trial
    failed = bool(trial and trial.record and trial.record.status == "failed")
    epochs = f"epoch {trial.epochs if trial else 0}/{pretraining.arm.epochs}"
    return [epochs, "", _count(failed), _count(len(pretraining.facts.under_way)), "", "", ""]


def _cells(arm: ArmProgress) -> list[str]:
    searched = [trial.record for trial in arm.facts.search if trial.record]
    return [
        f"{len(searched)}/{arm.arm.samples}",
        _count(sum(1 for record in searched if record.status == "stopped")),
        _count(sum(1 for trial in arm.facts.trials if trial.record and trial.record.status == "failed")),
        _count(len(arm.facts.under_way)),
        f"{sum(1 for trial in arm.confirm_trials if trial.ended)}/{len(arm.arm.seeds)}",
        points(_best_score(arm)),
        points(arm.median),
    ]


def _best_score(arm: ArmProgress) -> float | None:
    """Of the search trials, those under way too."""
    return max((trial.best.report.row.selection_score for trial in arm.facts.search if trial.best), default=None)


def _count(number: int) -> str:
    return str(number or "")
