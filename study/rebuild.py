"""Rewrite every export of a study from its plan and its journal: `python -m study.rebuild runs/NAME`.

The exports are `records.jsonl`, `optuna.journal`, `best.toml`, tables, pictures, the report, and the runs in MLflow. A
launch writes them when it ends. No number is computed from them; `study.mirror` and the last screen of a launch only
show the tables. You may delete them at any time.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from study.decisions.progress import StudyProgress, compute_progress
from study.drivers.messages import STEPS_FILE
from study.facts.plan_file import require_plan
from study.facts.record import Record, format_records
from study.facts.study_facts import TrialFacts, read_facts
from study.facts.study_folder import (
    ANSWER,
    BROWSE,
    DEV_TABLE,
    MIRROR_LOG,
    RECORDS,
    WORKERS_LOG,
    compute_predictions_digest,
    predictions_file,
)
from study.plans.resolved_plan import Arm
from study.storage.addresses import check_tracking_address
from study.storage.models import locate_model
from study.terminal.command_line import Command, argument, option
from study.terminal.output import show_waiting
from study.terminal.processes import is_installed
from study.terminal.text import python
from study.winners import BEST, as_toml
from trainables.configuration.schema import Typed
from trainables.files import atomic_files
from trainables.files.atomic_files import describe_blocked, write_bytes

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

OPTUNA = "optuna.journal"
EXPORTS = (RECORDS, OPTUNA, BEST, ANSWER, "report.html")
_LOGS = (WORKERS_LOG, MIRROR_LOG, STEPS_FILE)
_ENDINGS = (".md", ".csv", ".tex", ".html", ".json", ".svg", ".pdf")  # of tables and pictures


def check_places(folder: Path, *, mlflow: bool) -> None:
    """Check that nothing stands in the place of a file or folder that a launch writes; `mlflow`: also the store.

    Raises:
        ValueError: if there is a folder in the place of a file, or a file in the place of a folder.
    """
    tables = [
        path for path in (*folder.glob("tables/[!.]*"), *folder.glob("pictures/[!.]*")) if path.suffix in _ENDINGS
    ]
    names = (*EXPORTS, *_LOGS, *(("mlflow.db", BROWSE) if mlflow else ()))
    for path in (*(folder / name for name in names), *tables):
        if blocked := describe_blocked(path):
            raise ValueError(f"{blocked}, then run the same command")
    for path in (folder / "tables", folder / "pictures"):
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path} is not a folder; move or delete it, then run the same command")


def write_files(folder: Path, progress: StudyProgress) -> bool:
    """Write all exports except the MLflow runs. If some cannot be written, print the errors and return False."""
    is_written = analyse(folder)  # first, because it takes longest: files deleted meanwhile are written again below
    contents = {
        folder / RECORDS: format_records(progress.facts.records),
        folder / OPTUNA: format_optuna_journal(progress),
        folder / BEST: as_toml(progress).encode(),
    }
    try:
        atomic_files.write_files(contents)
    except OSError as error:
        print(f"some exports are missing: {error}", file=sys.stderr)
        is_written = False
    if not is_written:
        command = f"{python()} -m study.rebuild {shlex.quote(str(folder))}"
        print(f"no results are lost; to write the missing exports: {command}", file=sys.stderr)
    return is_written


def format_optuna_journal(progress: StudyProgress) -> bytes:
    """Build the content of `optuna.journal`: one Optuna study per arm, with the search trials that have ended.

    Trials after the first unfinished trial are left out, so Optuna numbers the trials as the study does. Equal
    study journals give equal bytes.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import BaseJournalBackend

    class Lines(BaseJournalBackend):
        """A backend that keeps an Optuna journal in memory."""

        def __init__(self) -> None:
            self.logs: list[dict[str, Any]] = []

        def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
            return self.logs[log_number_from:]

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            self.logs += logs

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # else Optuna logs a line for every study
    lines = Lines()
    storage = JournalStorage(lines)
    for arm in progress.arms:
        if not arm.facts.trials:
            continue
        study = optuna.create_study(storage=storage, study_name=arm.name, direction="maximize")
        for record in arm.facts.searched:
            study.add_trial(_build_optuna_trial(arm.planned, progress.facts.trials[record.key], record))
    logs = ({**log, "worker_id": "study"} for log in lines.logs)  # Optuna's worker ids are random
    return b"".join(json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs)


def _build_optuna_trial(arm: Arm, trial: TrialFacts, record: Record) -> FrozenTrial:
    from optuna.trial import create_trial

    from study.decisions.proposals import STATES, make_distributions

    copy = create_trial(
        state=STATES[record.status],
        value=record.selection_score if record.status == "completed" else None,
        params={name: record.config[name] for name in arm.space},
        distributions=make_distributions(arm),
        intermediate_values={} if record.status == "failed" else trial.scores,  # a failed trial may run again
        user_attrs={"key": record.key, "trial": record.trial, "seed": record.seed, "status": record.status},
    )
    copy.datetime_start = datetime.fromisoformat(record.started).astimezone().replace(tzinfo=None)
    copy.datetime_complete = datetime.fromisoformat(record.ended).astimezone().replace(tzinfo=None)
    return copy


def analyse(folder: Path) -> bool:
    """Write tables, pictures and report in a process without Ray and torch; return False if this fails."""
    for name in (DEV_TABLE, ANSWER):
        with suppress(OSError):
            (folder / name).unlink(missing_ok=True)
    command = [sys.executable, "-m", "analysis.report", str(folder)]
    with show_waiting("tables and report", output=sys.stderr):
        report = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    print(report.stderr, end="", file=sys.stderr)  # after the progress line is cleared
    return report.returncode == 0


class Options(Typed, frozen=True, kw_only=True):
    """Options of `study.rebuild`: the study's folder and the MLflow store."""

    folder: Annotated[str, argument("runs/NAME", "the study's folder")]
    tracking_uri: Annotated[
        str | None, option("MLflow URL or sqlite:///FILE; default: as in the last launch", "URI|none")
    ] = None


def run(options: Options) -> int:
    """Repair predictions, write the exports and copy the runs into MLflow. Return 1 if any of this fails, else 0.

    Without --tracking-uri, the store is that of the last launch.

    Raises:
        ValueError: if the folder holds no study, or the store's URI is not one.
    """
    folder = Path(options.folder)
    if options.tracking_uri not in (None, "none"):
        check_tracking_address(options.tracking_uri)
    plan, facts = require_plan(folder).plan, read_facts(folder)
    if not facts.launches:
        raise ValueError(f"{folder} has no events; allowed: the folder of a study that has been launched")
    is_repaired = repair_predictions(folder, facts.records)
    is_written = write_files(folder, compute_progress(plan, facts))
    last = facts.last_launch.began.execution if facts.last_launch else None
    uri = options.tracking_uri or (last.tracking_uri if last else None)
    return 0 if _mirror(folder, uri) and is_written and is_repaired else 1


def repair_predictions(folder: Path, records: Iterable[Record]) -> bool:
    """Let the stored models answer dev again if their predictions are damaged or missing.

    A file is replaced only by predictions with the digest in the journal. Return False if a file remains damaged or
    missing.
    """
    newest = {record.key: record for record in records if record.predictions_digest}
    are_repaired = [_repair(folder, record) for record in newest.values() if _is_damaged(folder, record)]
    return all(are_repaired)


def _is_damaged(folder: Path, record: Record) -> bool:
    """Check if a predictions file was changed, or is missing although its model is stored in the study's folder."""
    found = compute_predictions_digest(folder, record.key)
    is_missing = (
        found is None and (folder / "predictions").is_dir() and Path(locate_model(record, folder).model or "").is_dir()
    )
    return is_missing or found not in (None, record.predictions_digest)


def _repair(folder: Path, record: Record) -> bool:
    path = predictions_file(folder, record.key)
    fault = "damaged" if path.exists() else "missing"
    with TemporaryDirectory(prefix="glue-exit-study-") as temporary:
        command = [sys.executable, "-m", "study.stored_models.predict_dev", str(folder), record.key, "--to", temporary]
        with show_waiting(f"the stored model of trial {record.key}", output=sys.stderr):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        content = b"" if done.returncode else (Path(temporary) / path.name).read_bytes()
    if hashlib.sha256(content).hexdigest() == record.predictions_digest:
        write_bytes(path, content)
        line = f"{path} was {fault}; the stored model predicted dev again, as recorded in the journal"
        print(line, file=sys.stderr)  # a launch with --json prints JSON alone on stdout
        return True
    reason = "the stored model gives other predictions than those recorded in the journal"
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    print(f"{path} is {fault}, and cannot be made again: {reason}", file=sys.stderr)
    return False


def _mirror(folder: Path, uri: str | None) -> bool:
    """Copy the runs into MLflow, if it is installed and `uri` is not "none"; return False if the copy fails."""
    if uri is None and not is_installed("mlflow"):
        print("MLflow is not installed, so no runs are copied into it", file=sys.stderr)
        return True
    if uri == "none":
        return True
    command = [sys.executable, "-m", "study.mirror", str(folder), *(["--tracking-uri", uri] if uri else [])]
    return subprocess.run(command, check=False).returncode == 0


main = Command(
    "study.rebuild",
    Options,
    __doc__ or "",
    run,
    after_interrupt="; nothing is lost; run the same command again",
)

if __name__ == "__main__":
    sys.exit(main())
