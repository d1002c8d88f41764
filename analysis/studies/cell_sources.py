"""Where a cell's facts lie: its arm, the predictions of its records, and the baseline that its plan names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis.studies.cells import Cell
from analysis.studies.stored_predictions import Predictions, read_predictions
from study.facts.record import Record
from study.facts.study_folder import predictions_file
from study.plans.resolved_plan import Arm


@dataclass(frozen=True)
class Source:
    """A confirm record of a cell with its predictions."""

    record: Record
    path: Path
    predictions: Predictions | None  # None where no file was stored


def arm_of(cell: Cell) -> Arm:
    """The plan of the cell's arm."""
    return cell.study.arm(cell.method, cell.task)


def baseline_of(cell: Cell) -> str | None:
    """The method that the cell's plan compares the others with."""
    return cell.study.file.plan.asked.baseline


def sources_of(cell: Cell) -> list[Source]:
    """The cell's records, by seed, with their predictions.

    Raises:
        ValueError: a file is broken.
    """
    study = cell.study
    return [
        Source(record, predictions_file(study.folder, record.key), read_predictions(study, record))
        for record in cell.records
    ]


def predictions_of(cell: Cell) -> list[Predictions]:
    """The predictions of every seed of the cell; empty where one of them is missing."""
    stored = [source.predictions for source in sources_of(cell)]
    found = [predictions for predictions in stored if predictions is not None]
    return found if len(found) == len(stored) else []
