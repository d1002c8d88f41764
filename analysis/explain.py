"""List the trials from which a cell of the dev table was computed.

python -m analysis.explain runs/NAME palbert/cola
"""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from typing import Annotated

from analysis.layouts.protocol_notes import collect_provenance, describe_pretraining
from analysis.layouts.table import POINTS
from analysis.studies.cells import Cell, make_rows, read_cell
from analysis.studies.load import Study, load_study
from study.facts import events
from study.facts.record import Record
from study.facts.study_folder import predictions_file
from study.facts.winner import best_search_record
from study.storage.models import locate_model
from study.terminal.command_line import Command, argument
from study.terminal.text import counted, to_second
from trainables.configuration.schema import Typed, to_plain
from trainables.configuration.spelling import resolve_name
from trainables.data.tasks import trainable_tasks
from trainables.files import method_files


def explain(study: Study, name: str) -> str:
    """Describe a cell: its score, its search, its final runs, and the machines on which they ran.

    Raises:
        ValueError: the study has no such cell.
    """
    names = [f"{method}/{task}" for method in study.methods for task in study.tasks]
    known = [f"{method}/{task}" for method in {*study.methods, *method_files.names()} for task in trainable_tasks()]
    name = resolve_name(name, names, what=f"cell of {study.folder}", known=known)
    method, task = name.split("/")
    cell = read_cell(study, method, task)
    number = (
        f"{POINTS.text(cell.median)} points, median of {counted(len(cell.records), 'seed')}"
        if cell.records
        else "no number"
    )
    parts = [
        f"{name} in {study.folder}: {number} ({cell.shortfall})",
        *(line for record in (*cell.records, *cell.failed, *cell.dropped) for line in _record_lines(study, record)),
        *_search_lines(study, cell),
        f"MLflow filter: tags.arm = '{name}'",
    ]
    if cell.records:
        facts = {"backbone": cell.arm.pinned_backbone, "protocol": study.protocol_hash} | collect_provenance(
            cell.records
        )
        parts.append(f"configuration: {json.dumps(to_plain(cell.config), sort_keys=True)}")
        parts += [
            *describe_pretraining([study], make_rows([study])),
            *(f"{fact}: {value}" for fact, value in facts.items()),
        ]
    parts.append(f"command that recomputes the score: python -m analysis.verify {shlex.quote(str(study.folder))}")
    return "\n".join(parts) + "\n"


def _search_lines(study: Study, cell: Cell) -> list[str]:
    """Describe the cell's search: its best trial, its failures by cause, and the command that prints tracebacks."""
    records = cell.arm_records
    search = [record for record in records if record.phase == "search"]
    best = best_search_record(records)
    lines = [
        f"search: {counted(len(search), 'trial')}, {sum(record.status == 'completed' for record in search)} completed"
    ]
    if best is not None and best.selection_score is not None:
        split = "dev" if study.plan.request.selection == "dev" else "the held-out slice of train"
        score = POINTS.text(best.selection_score)
        lines.append(f"best search trial: number {best.trial} (key {best.key}), {score} points on {split}")
    failed = [record for record in records if record.status == "failed"]
    errors = Counter(record.error for record in failed if record.phase == "search")
    lines += [f"  {number} failed: {error}" for error, number in errors.items()]
    if failed:
        lines.append(f"tracebacks: python -m study.status {shlex.quote(str(study.folder))} --failures")
    return lines


def _record_lines(study: Study, record: Record) -> list[str]:
    """Describe a run: its result, key, host and files, and its lines in the journal."""
    predictions = predictions_file(study.folder, record.key)
    details = {
        "metrics": json.dumps(to_plain(record.metrics)) if record.metrics else "",
        "layers": f"{record.mean_layers:.2f} of {record.num_layers}" if record.mean_layers else "",
        "predictions": str(predictions) if predictions.exists() else "",
        "model": locate_model(record, study.folder).model or "",
        "ran": f"{to_second(record.started)} to {to_second(record.ended)} on {record.host} ({record.device})",
        "MLflow filter": f"tags.key = '{record.key}'",
    }
    score = None if record.score is None else f"{POINTS.text(record.score)} points at epoch {record.epoch}"
    came = score if record.status == "completed" else f"{record.status}: {record.error}"
    return [
        f"  seed {record.seed}: {came}; key {record.key}",
        *(f"    {name}: {value}" for name, value in details.items() if value),
        *(
            f"    {where}: {event.__struct_config__.tag} {to_second(event.time)}"
            for where, event in events.read_lines(study.folder)
            if getattr(event, "key", None) == record.key and not isinstance(event, events.EpochReported)
        ),
    ]


class Options(Typed, frozen=True, kw_only=True):
    """Arguments of `python -m analysis.explain`."""

    study: Annotated[str, argument("runs/NAME", "folder of the study")]
    cell: Annotated[str, argument("METHOD/TASK")]


def run(options: Options) -> int:
    """Print the description of the cell and its trials."""
    print(explain(load_study(options.study), options.cell), end="")
    return 0


main = Command("analysis.explain", Options, "List the trials from which a cell of the dev table was computed.", run)

if __name__ == "__main__":
    sys.exit(main())
