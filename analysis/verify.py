"""Recomputes everything that studies claim, and names what has drifted.

python -m analysis.verify runs/NAME ... [--tables FOLDER [--separate]]

Held against each other: the plan and its digest; the journal and what the plan's rules make of it, event by event;
the records and the journal; the predictions, their digests in the records and the recorded numbers; the descriptions
of models; `optuna.journal`; tables and report, made anew. With `--tables` also the tables of several studies in a
folder. One line per drift, and exit status 1. What nothing in a folder repeats stands in `--help`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from analysis.studies.load import load_studies, load_study
from analysis.verification import optuna_file
from analysis.verification.event_rules import Replay
from analysis.verification.made_anew import has_report, report_drift, tables_drift
from analysis.verification.not_covered import in_words
from analysis.verification.plan_checks import plan_drift
from analysis.verification.records_file import drift_without_journal, records_drift
from analysis.verification.stored_files import models_drift, predictions_drift
from study.command_line import Parser, guarded
from study.facts import events
from study.facts.plain_words import counted
from study.facts.plan_on_disk import require_plan
from study.plans import plan_file
from study.plans.plan_file import PlanFile
from trainables.schema import Typed


def verify(folder: Path) -> list[str]:
    """What has drifted, one line each; empty where all holds.

    Raises:
        ValueError: the folder has no plan.
    """
    try:
        file = require_plan(folder)
    except ValueError as error:
        if not (folder / plan_file.FILE).exists():
            raise
        return [str(error)]
    facts = facts_drift(folder, file)
    return facts + numbers_drift(folder, said=facts)


def facts_drift(folder: Path, file: PlanFile) -> list[str]:
    """What has drifted in the plan, the journal, the records and `optuna.journal`."""
    return list(each_facts_drift(folder, file))


def each_facts_drift(folder: Path, file: PlanFile) -> Iterator[str]:
    """The same, a line as soon as it is found: who asks for the first alone does not wait for the others."""
    yield from plan_drift(file)
    if not (folder / events.FILE).exists():
        yield from drift_without_journal(folder, file)
        return
    replay = Replay(folder, file)
    yield from replay.drift()
    yield from records_drift(folder, replay.facts.records)
    yield from optuna_file.optuna_drift(folder, file, replay.facts)


def numbers_drift(folder: Path, *, said: Sequence[str] = ()) -> list[str]:
    """What has drifted in the predictions, the models, the tables and the report; `said` is told already."""
    try:
        study = load_study(folder)
        drift = predictions_drift(study)
    except ValueError as error:
        return [f"numbers cannot be made anew: {_unless_said(error, said)}"]
    try:
        _ = study.facts
    except ValueError as error:
        return [*drift, f"models, tables and report cannot be checked: {_unless_said(error, said)}"]
    return drift + models_drift(study) + tables_drift([study], folder / "tables") + report_drift(study)


def _unless_said(error: ValueError, said: Sequence[str]) -> str:
    """The error, which names a file by its whole path, or where it stands already."""
    told = next((line for line in said if str(error).endswith(line)), None)
    return str(error) if told is None else f"see {told.partition(': ')[0]} above"


class Options(Typed, frozen=True, kw_only=True):
    """The options of this command."""

    studies: list[str]
    tables: str | None
    separate: bool


def main(argv: Sequence[str] | None = None) -> int:
    """0 if all agrees, 1 on any drift, 2 if a folder is no study."""
    return guarded("analysis.verify", lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    options = build_parser().options(Options, argv)
    folders = [Path(name) for name in options.studies]
    if options.separate and options.tables is None:
        raise ValueError("--separate is of the tables of --tables FOLDER; allowed: both or none")
    if options.tables is not None and not Path(options.tables).is_dir():
        raise ValueError(f"--tables {options.tables} is no folder; allowed: what analysis.tables --out has written")
    statuses = [_tell(str(folder), verify(folder), _checked(folder)) for folder in folders]
    if options.tables is not None:
        drift = _joined_drift(folders, Path(options.tables), separate=options.separate, is_sound=not max(statuses))
        statuses.append(_tell(options.tables, drift, "the tables agree with the records"))
    return max(statuses)


def _joined_drift(folders: list[Path], tables: Path, *, separate: bool, is_sound: bool) -> list[str]:
    """The drift of the tables of several studies; `is_sound`: whether none of these has drifted."""
    try:
        return tables_drift(load_studies(folders), tables, separate=separate)
    except ValueError as error:
        if is_sound:
            raise
        return [f"the tables cannot be made anew: {error}"]


def _tell(name: str, drift: list[str], agreement: str) -> int:
    for line in drift:
        print(f"drift: {line}", file=sys.stderr)
    print(f"{counted(len(drift), 'drift')} in {name}" if drift else f"{name}: {agreement}")
    return 1 if drift else 0


def _checked(folder: Path) -> str:
    """Which parts were checked and agree, and which the study does not have."""
    has = {
        "journal": (folder / events.FILE).exists(),
        "optuna.journal": (folder / optuna_file.FILE).exists(),
        "predictions": (folder / "predictions").is_dir(),
        "report": has_report(folder),
    }
    absent = [name for name, is_there in has.items() if not is_there]
    unchecked = f"; not checked, because the study has none: {', '.join(absent)}" if absent else ""
    present = ["plan", "records", *(name for name, is_there in has.items() if is_there)]
    return f"{', '.join(present)} and tables agree{unchecked}"


def build_parser() -> Parser:
    parser = Parser("analysis.verify", "Recompute what studies claim.", epilog=in_words())
    parser.add_argument("studies", nargs="+", metavar="runs/NAME")
    parser.add_argument("--tables", metavar="FOLDER", help="tables of all of them, made with analysis.tables --out")
    parser.add_argument("--separate", action="store_true", help="they were made with --separate")
    return parser


if __name__ == "__main__":
    sys.exit(main())
