"""Recomputes everything that a study claims, and names what has drifted.

python -m analysis.verify runs/NAME

Held against each other: the records and the journal, the stored predictions and the records, and the tables on disk
and tables made anew from the records. Exit status 1 on any drift.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.studies.load import Study, load_study
from analysis.studies.stored_predictions import disagreements, read_predictions
from analysis.tables import make_tables, table_files
from study.command_line import Parser, guarded
from study.facts import events
from study.facts.record import Record
from study.facts.study_folder import predictions_file
from trainables.schema import Typed


def verify(folder: Path) -> list[str]:
    """What has drifted, one line each; empty where all holds.

    Raises:
        ValueError: the folder is no study.
    """
    study = load_study(folder)
    return [*journal_drift(study), *predictions_drift(study), *tables_drift(study)]


def journal_drift(study: Study) -> list[str]:
    """Where `records.jsonl` is not what the journal's `trial_ended` events say; nothing without a journal."""
    if not (study.folder / events.FILE).exists():
        return []
    in_journal = {record.key: record for record in study.facts.records}
    in_file = {record.key: record for record in study.records}
    lost, strange = in_journal.keys() - in_file.keys(), in_file.keys() - in_journal.keys()
    missing = [f"records.jsonl lacks the record of {key}, which the journal has" for key in lost]
    unknown = [f"records.jsonl has {key}, which the journal does not know" for key in strange]
    changed = [
        f"records.jsonl and the journal differ about {_name(record)}: {', '.join(fields)}"
        for key, record in in_file.items()
        if key in in_journal and (fields := _differing(record, in_journal[key]))
    ]
    return sorted(missing) + sorted(unknown) + sorted(changed)


def predictions_drift(study: Study) -> list[str]:
    """Where a score is not what the stored predictions give; nothing where the study stored none."""
    folder = study.folder / "predictions"
    if not folder.is_dir():
        return []
    records = [record for record in study.records if record.phase == "confirm" and record.status == "completed"]
    expected = {predictions_file(study.folder, record.key) for record in records}
    strangers = sorted(path for path in folder.glob("*.npz") if path not in expected)
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
    path = predictions_file(study.folder, record.key)
    try:
        predictions = read_predictions(study, record)
    except ValueError as error:
        return [str(error)]
    if predictions is None:
        return [f"{path} is missing: the predictions of {_name(record)}"]
    differences = disagreements(record, predictions)
    return [f"{path} does not belong to the record of {_name(record)}: {'; '.join(differences)}"] if differences else []


def _differing(record: Record, told: Record) -> list[str]:
    return [name for name in record.__struct_fields__ if getattr(record, name) != getattr(told, name)]


def _name(record: Record) -> str:
    return f"{record.method}/{record.task} {record.phase} seed {record.seed} (key {record.key})"


class Options(Typed, frozen=True, kw_only=True):
    """The options of this command."""

    study: str


def main(argv: Sequence[str] | None = None) -> int:
    """0 if all agrees, 1 on any drift, 2 if the folder is no study."""
    return guarded("analysis.verify", lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    parser = Parser("analysis.verify", "Recompute what a study claims.")
    parser.add_argument("study", metavar="runs/NAME")
    folder = Path(parser.options(Options, argv).study)
    drift = verify(folder)
    for line in drift:
        print(f"drift: {line}", file=sys.stderr)
    if drift:
        print(f"{len(drift)} drift(s) in {folder}")
        return 1
    present = {"journal": events.FILE, "predictions": "predictions"}
    absent = [name for name, file in present.items() if not (folder / file).exists()]
    unchecked = f"; not checked, because the study has none: {', '.join(absent)}" if absent else ""
    agreeing = ["records", *(name for name in present if name not in absent), "tables"]
    print(f"{folder}: {', '.join(agreeing[:-1])} and {agreeing[-1]} agree{unchecked}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
