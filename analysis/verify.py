"""Recomputes everything that a study claims, and names what has drifted.

python -m analysis.verify runs/NAME

Held against each other: the records and the journal, the stored predictions and the records, and the tables on disk
and tables made anew from the records. Exit status 1 on any drift.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from analysis.command_line import Parser, run
from analysis.load import Study, load_study
from analysis.predictions import disagreements, predictions_path, read_predictions
from analysis.tables import make_tables, table_files
from study.record import Record


def verify(folder: Path) -> list[str]:
    """What has drifted, one line each; empty where all holds. ValueError: the folder is no study."""
    study = load_study(folder)
    return [*journal_drift(study), *predictions_drift(study), *tables_drift(study)]


def journal_drift(study: Study) -> list[str]:
    """Where `records.jsonl` is not what the journal's `trial_ended` events say; nothing without a journal."""
    told = {event["key"]: event["record"] for event in study.events if event["event"] == "trial_ended"}
    if not study.events:
        return []
    found = {record.key: record for record in study.records}
    missing = [f"records.jsonl lacks the record of {key}, which the journal has" for key in told.keys() - found.keys()]
    unknown = [f"records.jsonl has {key}, which the journal does not know" for key in found.keys() - told.keys()]
    changed = [
        f"records.jsonl and the journal differ about {_name(record)}: {', '.join(fields)}"
        for key, record in found.items()
        if key in told and (fields := _differing(record, told[key]))
    ]
    return sorted(missing) + sorted(unknown) + sorted(changed)


def predictions_drift(study: Study) -> list[str]:
    """Where a score is not what the stored predictions give; nothing where the study stored none."""
    folder = study.folder / "predictions"
    if not folder.is_dir():
        return []
    records = [record for record in study.records if record.phase == "confirm" and record.status == "completed"]
    known = {predictions_path(study, record) for record in records}
    strangers = sorted(path for path in folder.glob("*.npz") if path not in known)
    return [f"{path} belongs to no completed confirm record" for path in strangers] + [
        line for record in records for line in _prediction_lines(study, record)
    ]


def tables_drift(study: Study) -> list[str]:
    """Which files of `tables/` are not what the records give."""
    try:
        tables = make_tables([study])
    except ValueError as error:
        return [f"the tables cannot be made anew: {error}"]
    lines = []
    for table in tables:
        for name, text in table_files(table).items():
            path = study.folder / "tables" / name
            if not path.exists():
                lines.append(f"{path} is missing; python -m analysis.tables {study.folder} writes it")
            elif path.read_text(encoding="utf-8") != text:
                lines.append(f"{path} is not what the records give")
    return lines


def _prediction_lines(study: Study, record: Record) -> list[str]:
    path = predictions_path(study, record)
    try:
        predictions = read_predictions(study, record)
    except ValueError as error:
        return [str(error)]
    if predictions is None:
        return [f"{path} is missing: the predictions of {_name(record)}"]
    found = disagreements(record, predictions)
    return [f"{path} does not belong to the record of {_name(record)}: {'; '.join(found)}"] if found else []


def _differing(record: Record, told: dict[str, Any]) -> list[str]:
    mine = record.to_json()
    return [name for name in mine if mine[name] != told.get(name)]


def _name(record: Record) -> str:
    return f"{record.method}/{record.task} {record.phase} seed {record.seed} (key {record.key})"


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(prog="python -m analysis.verify", description="Recompute what a study claims.")
    parser.add_argument("study", type=Path, metavar="runs/NAME")
    options = parser.parse_args(arguments)
    drift = verify(options.study)
    for line in drift:
        print(f"drift: {line}", file=sys.stderr)
    if drift:
        print(f"{len(drift)} drift(s) in {options.study}")
        return 1
    present = {"journal": "events.jsonl", "predictions": "predictions"}
    absent = [name for name, file in present.items() if not (options.study / file).exists()]
    unchecked = f"; not checked, because the study has none: {', '.join(absent)}" if absent else ""
    agreeing = ["records", *(name for name in present if name not in absent), "tables"]
    print(f"{options.study}: {', '.join(agreeing[:-1])} and {agreeing[-1]} agree{unchecked}")
    return 0


if __name__ == "__main__":
    run(main)
