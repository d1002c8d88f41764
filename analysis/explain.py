"""From a cell to its runs.

python -m analysis.explain runs/NAME palbert/cola
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Sequence

from msgspec import UNSET

from analysis.layouts.cell_facts import points
from analysis.studies.cells import Cell, cell_of
from analysis.studies.load import Study, load_study
from study.command_line import Parser, guarded
from study.facts import events
from study.facts.json_lines import read_lines
from study.facts.record import Record
from study.facts.study_folder import predictions_file
from study.facts.winner import best_search_record
from trainables.schema import Typed, to_plain


def explain(study: Study, name: str) -> str:
    """Everything behind one cell, as text.

    Raises:
        ValueError: the study has no such cell.
    """
    names = [f"{method}/{task}" for method in study.methods for task in study.tasks]
    if name not in names:
        raise ValueError(f"no cell named {name!r} in {study.folder}; available: {', '.join(names)}")
    method, task = name.split("/")
    cell = cell_of(study, method, task)
    parts = [_headline(cell), *_confirm_lines(cell), *_search_lines(cell)]
    if cell.records:
        parts += [f"configuration: {json.dumps(to_plain(cell.config), sort_keys=True)}", *_provenance_lines(cell)]
    return "\n".join(parts) + "\n"


def journal_lines(study: Study, key: str) -> list[str]:
    """Where the journal tells of a trial: file, line and event, each epoch left out."""
    path = study.folder / events.FILE
    return [
        f"{path}:{number}: {event.__struct_config__.tag} {event.time}"
        for number, event in read_lines(path, events.READER)
        if getattr(event, "key", None) == key and not isinstance(event, events.EpochReported)
    ]


def mlflow_run_ids(study: Study) -> dict[str, str]:
    """MLflow's run id by trial key, from the study's own store; empty where it tracks elsewhere or not at all.

    Read with sqlite alone: analysis works where MLflow is not installed. The table is `tags` of MLflow 3.
    """
    store = study.folder.resolve() / "mlflow.db"
    if not store.exists():
        return {}
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        return dict(connection.execute("SELECT value, run_uuid FROM tags WHERE key = 'key'"))
    except sqlite3.Error as error:
        raise ValueError(f"{store}: not an MLflow store: {error}") from None
    finally:
        connection.close()


def _headline(cell: Cell) -> str:
    number = f"{points(cell.median)} points, median of {len(cell.records)}" if cell.records else "no number"
    return f"{cell.name} in {cell.studies[0].folder}: {number} ({cell.describe().removeprefix(f'{cell.name}: ')})"


def _confirm_lines(cell: Cell) -> list[str]:
    (study,) = cell.studies
    run_ids = mlflow_run_ids(study)
    return [line for record in (*cell.records, *cell.failed) for line in _record_lines(study, record, run_ids)]


def _search_lines(cell: Cell) -> list[str]:
    records = cell.arm_records
    search = [record for record in records if record.phase == "search"]
    best = best_search_record(records)
    lines = [f"search: {len(search)} trials, {sum(record.status == 'completed' for record in search)} completed"]
    if best is not None and best.selection_score is not None:
        lines.append(f"best search trial: {best.trial}, key {best.key}, {points(best.selection_score)} points")
    return lines


def _record_lines(study: Study, record: Record, run_ids: dict[str, str]) -> list[str]:
    result = (
        f"failed: {record.error}" if record.score is None else f"{points(record.score)} points at epoch {record.epoch}"
    )
    predictions = predictions_file(study.folder, record.key)
    details = {
        "metrics": json.dumps(to_plain(record.metrics)) if record.metrics else "",
        "layers": f"{record.mean_layers:.2f} of {record.num_layers}" if record.mean_layers else "",
        "model": record.model or "",
        "predictions": str(predictions) if predictions.exists() else "",
        "ran": f"{record.started} to {record.ended} on {record.host} ({record.device})",
        "MLflow run": run_ids.get(record.key) or f"search for tags.key = '{record.key}'",
    }
    lines = [f"  seed {record.seed}: {result}; key {record.key}"]
    lines += [f"    {name}: {value}" for name, value in details.items() if value]
    return lines + [f"    {line}" for line in journal_lines(study, record.key)]


def _provenance_lines(cell: Cell) -> list[str]:
    """What made the numbers; a line for each value that the confirm trials do not share."""
    values_by_name = {
        "protocol": {record.protocol_hash for record in cell.records},
        "commit": {record.git_commit or "unknown" for record in cell.records},
        "code, digest of the sources": {record.code_digest for record in cell.records},
        "data fingerprint": {record.data_fingerprint for record in cell.records},
        "versions": {json.dumps(to_plain(record.versions), sort_keys=True) for record in cell.records},
    }
    made_by = cell.arm.pretrained_by
    pretrained = "" if made_by is UNSET else f", pretrained by {made_by}, key {cell.arm.backbone_fingerprint}"
    return [f"backbone: {cell.arm.pinned_backbone}{pretrained}"] + [
        f"{name}: {' | '.join(sorted(values))}" for name, values in values_by_name.items()
    ]


class Options(Typed, frozen=True, kw_only=True):
    """The options of this command."""

    study: str
    cell: str


def main(argv: Sequence[str] | None = None) -> int:
    return guarded("analysis.explain", lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    parser = Parser("analysis.explain", "From a cell to its runs.")
    parser.add_argument("study", metavar="runs/NAME")
    parser.add_argument("cell", metavar="METHOD/TASK")
    options = parser.options(Options, argv)
    print(explain(load_study(options.study), options.cell), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
