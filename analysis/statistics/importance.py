"""What a search says of its hyperparameters: which were tuned, and how much each of them mattered."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from analysis.studies.cells import Row
from study.facts.record import Record

FEWEST_TRIALS = 8  # below, a forest has nothing to say


def tuned_fields(row: Row) -> list[str]:
    """The fields of the method's configuration that differ between the search trials of an arm, by name."""
    arms = [_search_records(records) for records in (cell.arm_records for cell in row.cells.values())]
    fields = {
        field
        for records in arms
        for field in (records[0].config if records else ())
        if len({json.dumps(record.config.get(field)) for record in records}) > 1
    }
    return sorted(fields)


def importances(row: Row) -> dict[str, float]:
    """Share of the search score's variation that each tuned field explains, mean over the arms, largest first.

    Impurity importance of a random forest over the completed trials; empty with fewer than 8 of them in every arm.
    """
    fields = tuned_fields(row)
    arms = [_completed(cell.arm_records) for cell in row.cells.values()]
    shares = [_forest_shares(records, fields) for records in arms if len(records) >= FEWEST_TRIALS]
    if not shares or not fields:
        return {}
    mean = np.mean(shares, axis=0)
    return {fields[i]: float(mean[i]) for i in np.argsort(-mean, kind="stable")}


def _forest_shares(records: list[Record], fields: list[str]) -> np.ndarray:
    from sklearn.ensemble import RandomForestRegressor  # takes a second to import

    columns = [_as_numbers([record.config.get(field) for record in records]) for field in fields]
    scores = [record.selection_score for record in records]
    forest = RandomForestRegressor(n_estimators=64, random_state=0)
    return forest.fit(np.stack(columns, axis=1), scores).feature_importances_


def _as_numbers(values: list[object]) -> np.ndarray:
    """Numbers as they are, anything else by its place among the values."""
    if all(isinstance(value, int | float) for value in values):
        return np.array(values, dtype=float)
    menu = sorted({json.dumps(value) for value in values})
    return np.array([menu.index(json.dumps(value)) for value in values], dtype=float)


def _search_records(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.phase == "search"]


def _completed(records: Sequence[Record]) -> list[Record]:
    return [record for record in _search_records(records) if record.status == "completed"]
