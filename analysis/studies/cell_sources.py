"""The predictions of a cell's records, and the baseline that its plans name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis.studies.cells import Cell
from analysis.studies.stored_predictions import Predictions, read_predictions
from study.facts.record import Record
from study.facts.study_folder import predictions_file


@dataclass(frozen=True)
class Source:
    """A confirm record of a cell with its predictions."""

    record: Record
    path: Path
    predictions: Predictions | None  # None where no file was stored


def baselines_of(cell: Cell) -> set[str | None]:
    """The methods that the cell's plans compare the others with."""
    return {study.file.plan.asked.baseline for study in cell.studies}


def sources_of(cell: Cell) -> list[Source]:
    """The cell's records, by seed, with their predictions.

    Raises:
        ValueError: a file is broken.
    """
    found = [(cell.study_of(record), record) for record in cell.records]
    return [
        Source(record, predictions_file(study.folder, record.key), read_predictions(study, record))
        for study, record in found
    ]


def predictions_of(cell: Cell) -> list[Predictions]:
    """The predictions of every seed of the cell; empty where one of them is missing."""
    stored = [source.predictions for source in sources_of(cell)]
    found = [predictions for predictions in stored if predictions is not None]
    return found if len(found) == len(stored) else []
