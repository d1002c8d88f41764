"""Recompute what a study claims, and name every difference.

python -m analysis.verify runs/NAME ... [--again N] [--against URI] [--tables FOLDER [--separate]]

Folds the journal, computes the numbers of the confirm trials from their predictions, makes the tables, pictures and
report again, and compares. `--again` lets stored models answer dev once more, `--against` asks an MLflow what it was
told. Every difference is one line; the exit status is 1 if there is any.

docs/certainty.md lists the forgeries that each of these finds, and those that none of them can.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np

from analysis.report import PAGE, report_files
from analysis.studies.load import Study, load_studies, load_study
from analysis.studies.stored_predictions import disagreements, read_predictions
from analysis.tables import files_of, make_tables
from analysis.written_by import FILE as SEAL
from analysis.written_by import Seal, cells_of, other_numbers, seal_of_folder, seal_of_page
from study.command_line import Command, argument, option
from study.facts.events import FILE as JOURNAL
from study.facts.plain_words import counted
from study.facts.record import Record
from study.facts.study_facts import StudyFacts, read_facts
from study.facts.study_folder import first_plan_digest, journal_digest, predictions_digest, predictions_file
from study.plans.plan_file import FILE as PLAN
from study.plans.plan_file import PlanFile, require_plan
from study.storage.addresses import is_uri, masked
from study.storage.trial_places import find_model_address
from trainables.atomic_files import is_unfinished
from trainables.configuration import Count
from trainables.schema import Typed, to_plain

PICTURES = "pictures"
DESCRIPTION = "model.json"
PLACES = ("data", "backbone", "tokenizer")  # may be elsewhere when a study is continued; arms have fingerprints
LONGEST_VALUE = 200  # characters of a value in a line
NOT_HELD = (
    "Exit status: 0 all agrees, 1 something differs, 2 bad usage. Compared: the plan, the journal, predictions, "
    "model descriptions, tables, pictures and the report; with --again the weights of models, with --against the "
    "runs in MLflow. Not compared: models under a URI without --again, mlflow.db, records.jsonl, optuna.journal and "
    "logs. What verify cannot know: whether a folder whose parts all agree shows what really ran. That takes models, "
    "an MLflow or a git tag that its author could not change."
)
# By how much a logit of the same model may differ on another processor; of another precision than float32 the latter.
SAME_LOGITS, NEAR_LOGITS = 0.01, 0.2
OTHER_EXITS = 0.01  # share of examples that may leave elsewhere then: those on the edge of the exit's rule


def verify(folder: Path, *, again: int = 0, against: str | None = None) -> list[str]:
    """Name everything that has drifted, one line each; empty if all agrees.

    `again`: how many stored models, drawn at random, answer dev again; `against`: address of an MLflow.

    Raises:
        ValueError: the folder has no plan, or the MLflow does not answer.
    """
    try:
        file = require_plan(folder)
    except ValueError as error:
        if not (folder / PLAN).exists():
            raise
        return [str(error)]
    if not (folder / JOURNAL).exists():
        return [f"{folder / JOURNAL} is missing: nothing shows where any number comes from"]
    try:
        facts = read_facts(folder)
    except ValueError as error:
        return [str(error)]
    drift = plan_drift(folder, file, facts)
    try:
        study = load_study(folder, facts=facts)
    except ValueError as error:
        return [*drift, f"numbers cannot be made anew: {error}"]
    drift += predictions_drift(study, facts) + models_drift(study, facts)
    drift += tables_drift([study], folder / "tables") + report_drift(study)
    drift += answers_drift(study, facts, again) if again else []
    return drift + (mlflow_drift(folder, against) if against else [])


# ---- the plan and the journal


def plan_drift(folder: Path, file: PlanFile, facts: StudyFacts) -> list[str]:
    """Compare `plan.json` with the plan of the journal's last launch. Reading it has checked its own digest."""
    lines = differences(f"{PLAN}: protocol_hash", file.protocol_hash, file.plan.protocol_hash)
    for event in facts.registered:
        lines += differences(f"{JOURNAL}: plan registered as {event.place}", event.digest, first_plan_digest(folder))
    if facts.last_launch is None:
        return [*lines, f"{JOURNAL} has no launch; {PLAN} is compared with nothing"]
    launched = facts.last_launch.began.plan
    lines += differences(f"{PLAN}: protocol", to_plain(file.plan.protocol), to_plain(launched.protocol))
    found, wanted = (
        {"asked": {name: value for name, value in to_plain(plan.asked.of_numbers).items() if name not in PLACES}}
        | {arm.name: to_plain(arm) for arm in plan.arms}
        for plan in (file.plan, launched)
    )
    return lines + differences(f"{PLAN}:", found, wanted)


# ---- predictions and models


def predictions_drift(study: Study, facts: StudyFacts) -> list[str]:
    """Name the predictions files that are not those of their records, or give other numbers."""
    folder = study.folder / "predictions"
    if not folder.is_dir():
        return []
    records = _confirmed(facts)
    expected = {predictions_file(study.folder, record.key) for record in records}
    strangers = sorted(path for path in folder.glob("*.npz") if path not in expected)
    lines = [f"{path} belongs to no completed confirm trial" for path in strangers]
    return lines + [line for record in records for line in _prediction_lines(study, record)]


def _prediction_lines(study: Study, record: Record) -> list[str]:
    path = predictions_file(study.folder, record.key)
    try:
        predictions = read_predictions(study, record)
    except ValueError as error:
        return [str(error)]
    if predictions is None:
        return [f"{path} is missing: the predictions of {_name(record)}"]
    lines = differences(f"{path}: SHA-256", predictions_digest(study.folder, record.key), record.predictions_digest)
    try:
        found = disagreements(record, predictions)
    except (ValueError, IndexError) as error:  # labels or settings that the task does not have
        found = [f"no numbers can be made of it: {error}"]
    return lines + [f"{path} does not belong to the record of {_name(record)}: {'; '.join(found)}"] * bool(found)


def models_drift(study: Study, facts: StudyFacts) -> list[str]:
    """Name the models whose description is not of their record's trial. Models under a URI are not read."""
    places = sorted((study.folder / "trials").glob("[!.]*"))
    lines = [f"{place} belongs to no trial of the journal" for place in places if place.name not in facts.trials]
    stored = [record for record in _confirmed(facts) if record.model is not None and not is_uri(record.model)]
    return lines + [line for record in stored for line in _model_lines(study, record, str(record.model))]


def _model_lines(study: Study, record: Record, model: str) -> list[str]:
    path = Path(find_model_address(model, folder=study.folder, key=record.key)) / DESCRIPTION
    try:
        found = json.loads(path.read_text())
        spec = {name: found["spec"][name] for name in ("method", "task", "config", "seed")}
        trial = {"epoch": found["epoch"], "selection_score": found["selection_score"]}
    except OSError:
        return [f"{path} is missing: the model of {_name(record)}"]
    except (ValueError, KeyError, TypeError) as error:
        return [f"{path} describes no model: {type(error).__name__}: {error}"]
    wanted: dict[str, Any] = to_plain(record)
    return [
        *differences(f"{path}: spec", spec, {name: wanted[name] for name in spec}),
        *differences(f"{path}:", trial, {name: wanted[name] for name in trial}),
    ]


def _confirmed(facts: StudyFacts) -> list[Record]:
    """List the records of the completed confirm trials, as the journal has them."""
    records = [trial.record for trial in facts.trials.values() if trial.phase == "confirm"]
    return [record for record in records if record is not None and record.status == "completed"]


def _name(record: Record) -> str:
    return f"{record.arm} {record.phase} seed {record.seed} (key {record.key})"


# ---- what has to be asked elsewhere: models, and MLflow


def answers_drift(study: Study, facts: StudyFacts, number: int) -> list[str]:
    """Name stored predictions that their models do not give now, of so many models drawn at random."""
    stored = [record for record in _confirmed(facts) if record.model is not None]
    drawn = random.sample(stored, min(number, len(stored)))
    if len(drawn) < number:
        return [
            f"{study.folder}: {counted(len(stored), 'model')} for --again {number}; allowed: a study with its models"
        ]
    with TemporaryDirectory() as folder:
        to = Path(folder) / "predictions"
        to.mkdir()
        keys = [record.key for record in drawn]
        done = _run("study.predict_dev", str(study.folder), *keys, "--to", str(to))
        if done.returncode:
            return [f"stored models cannot answer again: {_message(done)}"]
        return [line for record in drawn for line in _answer_lines(study, record, replace(study, folder=to.parent))]


def _answer_lines(study: Study, record: Record, again: Study) -> list[str]:
    stored, now = read_predictions(study, record), read_predictions(again, record)
    path = predictions_file(study.folder, record.key)
    if stored is None or now is None:
        return [f"{path} is missing: nothing to compare with the stored model of {_name(record)}"]
    if stored.examples != now.examples or stored.logits.shape != now.logits.shape:
        return [f"{path} has other examples than the stored model of {_name(record)} answers"]
    leaves_elsewhere = stored.exit_layers != now.exit_layers
    gaps = np.abs(stored.logits - now.logits).max(axis=-1)[~leaves_elsewhere]
    gap, share = float(gaps.max(initial=0.0)), float(leaves_elsewhere.mean())
    if gap <= (SAME_LOGITS if record.config.get("precision") == "float32" else NEAR_LOGITS) and share <= OTHER_EXITS:
        print(f"{_name(record)} answered again: logits differ by {gap:.1g} at most, {share:.1%} leave elsewhere")
        return []
    found = f"logits differ by up to {gap:.3g}, {share:.1%} of examples leave elsewhere"
    return [f"{path} is not what the stored model of {_name(record)} answers: {found}"]


def mlflow_drift(folder: Path, uri: str) -> list[str]:
    """Compare the runs in an MLflow with the journal.

    Raises:
        ValueError: it does not answer.
    """
    done = _run("study.mirror", str(folder), "--tracking-uri", uri, "--compare")
    if done.returncode not in (0, 1):
        raise ValueError(f"--against: {_message(done)}")
    return [f"{masked(uri)}: {line}" for line in done.stdout.splitlines()]


def _run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of `study`, which may import what `analysis` does not."""
    return subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)


def _message(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


# ---- tables, pictures and report


def tables_drift(studies: list[Study], folder: Path, *, separate: bool = False) -> list[str]:
    """Name the files of a folder of tables that are not what the studies give, are missing, or belong to no table."""
    again = " ".join(["python -m analysis.tables", *(str(study.folder) for study in studies)])
    make = partial(make_tables, studies, separate=separate)
    return _written_drift("the tables", folder, _content(folder), lambda: files_of(make()), made_by=again)


def report_drift(study: Study) -> list[str]:
    """Name the files of the report that are not what the study gives, are missing, or no picture, if there is one."""
    there, again = _report_content(study.folder), f"python -m analysis.report {study.folder}"
    make = partial(report_files, study)
    return _written_drift("the report", study.folder, there, make, made_by=again) if there else []


def _content(folder: Path) -> dict[str, bytes]:
    """Read the files of a folder, name -> content, but for what the next write removes; a folder in it is empty."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name: path.read_bytes() if path.is_file() else b"" for path in paths if not is_unfinished(path)}


def _report_content(folder: Path) -> dict[str, bytes]:
    """Read the page and the pictures of a study; empty without a report."""
    page = {PAGE: (folder / PAGE).read_bytes()} if (folder / PAGE).exists() else {}
    return page | {f"{PICTURES}/{name}": content for name, content in _content(folder / PICTURES).items()}


def _seal(files: Mapping[str, bytes]) -> tuple[Seal | None, dict[str, bytes]]:
    """Read the seal of tables or of a report, and the files without it."""
    if found := seal_of_page(files.get(PAGE, b"")):
        return found[0], {**files, PAGE: found[1]}
    return seal_of_folder(files), {name: content for name, content in files.items() if name != SEAL}


def _written_drift(
    what: str, folder: Path, there: Mapping[str, bytes], make: Callable[[], dict[str, bytes]], *, made_by: str
) -> list[str]:
    """Name files that differ from those made anew, are missing or surplus; of another version, edits and numbers."""
    try:
        files = make()
    except Exception as error:  # noqa: BLE001  changed predictions may fail anywhere in the statistics
        return [f"{what} cannot be made anew: {error}"]
    seal, unsealed = _seal(there)
    if seal and seal.is_of_another_version:
        where = f"{folder / PAGE if PAGE in there else folder}"
        if not seal.holds(unsealed):
            return [f"{where} was edited since version {seal.version} wrote it; {made_by} writes it again"]
        pages = [[own[name] for name in own if name.endswith(".html")] for own in (unsealed, files)]
        return [f"{where}, written by version {seal.version}: {line}" for line in other_numbers(*map(cells_of, pages))]
    if seal is None:
        files.pop(SEAL, None)  # then every byte is compared
    lines = []
    for name, content in files.items():
        if name not in there:
            lines.append(f"{folder / name} is missing; {made_by} writes it")
        elif there[name] != content:
            lines.append(f"{folder / name} is not what the study gives: {first_difference(there[name], content)}")
    surplus = [folder / name for name in there if name not in files]
    return lines + [f"{path} is a file that nothing here makes; stale, or written by somebody else" for path in surplus]


# ---- differences in words


def differences(where: str, found: object, expected: object) -> list[str]:
    """Name every field, however deep, in which a plain value is not what it should be: its name and both values."""
    if found == expected:
        return []
    if isinstance(found, dict) and isinstance(expected, dict):
        names = sorted(found.keys() | expected.keys())
        return [line for name in names for line in differences(f"{where} {name}", found.get(name), expected.get(name))]
    return [f"{where} is {_short(found)}; should be {_short(expected)}"]


def first_difference(found: bytes, expected: bytes) -> str:
    """Name the first line in which two files differ, and both texts."""
    lines, wanted = (content.decode(errors="backslashreplace").splitlines() for content in (found, expected))
    for number, (line, other) in enumerate(zip(lines, wanted, strict=False), start=1):
        if line != other:
            pairs = enumerate(zip(line, other, strict=False))
            start = next((place for place, (one, two) in pairs if one != two), min(len(line), len(other)))
            around = slice(max(0, start - 40), start + 40)
            return f"line {number} has {line[around]!r}; should be {other[around]!r}"
    return f"{len(lines)} lines of {len(found)} bytes; should be {len(wanted)} of {len(expected)}"


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]} ..."


# ---- the command


class Options(Typed, frozen=True, kw_only=True):
    """The options of this command."""

    studies: Annotated[list[str], argument("runs/NAME", "folder of a study")]
    again: Annotated[Count, option("let N stored models, drawn at random, answer dev again", "N")] = 0
    against: Annotated[str | None, option("compare with the runs in this MLflow", "URI")] = None
    tables: Annotated[str | None, option("also check joint tables of analysis.tables --out", "FOLDER")] = None
    separate: Annotated[bool, option("with --tables: they were written with --separate")] = False


def run(options: Options) -> int:
    """Print what differs; return 0 if all agrees, and 1 on any drift."""
    folders = [Path(name) for name in options.studies]
    if options.separate and options.tables is None:
        raise ValueError("--separate needs --tables FOLDER: it says how those tables were written")
    if options.tables is not None and not Path(options.tables).is_dir():
        raise ValueError(f"--tables {options.tables} is no folder; allowed: what analysis.tables --out has written")
    drifts = {folder: verify(folder, again=options.again, against=options.against) for folder in folders}
    statuses = [_print(str(folder), drift, _agreement(folder)) for folder, drift in drifts.items()]
    if options.tables is not None:
        drift = _joined_drift(folders, Path(options.tables), separate=options.separate, is_sound=not max(statuses))
        statuses.append(_print(options.tables, drift, "the tables agree with the studies"))
    return max(statuses)


def _joined_drift(folders: list[Path], tables: Path, *, separate: bool, is_sound: bool) -> list[str]:
    """Verify the tables of several studies; `is_sound`: whether none of these has drifted."""
    try:
        return tables_drift(load_studies(folders), tables, separate=separate)
    except ValueError as error:
        if is_sound:
            raise
        return [f"the tables cannot be made anew: {error}"]


def _print(name: str, drift: list[str], agreement: str) -> int:
    """Print every drift, or the agreement; return 1 if there is any drift."""
    for line in drift:
        print(f"drift: {line}", file=sys.stderr)
    print(f"{counted(len(drift), 'drift')} in {name}" if drift else f"{name}: {agreement}")
    return 1 if drift else 0


def _agreement(folder: Path) -> str:
    """Name the parts compared, those that the study does not have, and the digest that MLflow has as a tag."""
    has = {"predictions": (folder / "predictions").is_dir(), "report": bool(_report_content(folder))}
    absent = [name for name, is_there in has.items() if not is_there]
    unchecked = f"; not checked, because the study has none: {', '.join(absent)}" if absent else ""
    present = ["plan", "journal", *(name for name, is_there in has.items() if is_there)]
    agreement = f"{', '.join(present)} and tables agree{unchecked}; journal {journal_digest(folder).describe()}"
    written = {"tables": _content(folder / "tables"), "report": _report_content(folder)}
    for name, files in written.items():
        if (seal := _seal(files)[0]) and seal.is_of_another_version:
            agreement += (
                f"\n{name}: written by version {seal.version}; compared: the numbers of its cells, and its seal"
            )
            agreement += f"; python -m study.rebuild {folder} makes it again"
    return agreement


main = Command(
    "analysis.verify", Options, "Recompute what studies claim; print every difference.", run, epilog=NOT_HELD
)

if __name__ == "__main__":
    sys.exit(main())
