"""Recompute all numbers and files of a study from its journal and predictions, and print every difference.

python -m analysis.verify runs/NAME ... [--again N] [--against URI] [--tables FOLDER [--separate]]

Scores are recomputed from the stored predictions and compared with the records in the journal. Tables, pictures and
report are recomputed from both. `--again N` also runs N stored models on dev, and `--against URI` also compares the
runs in MLflow. Each difference is printed as one line; the exit status is 1 if there are any.

docs/certainty.md lists the forgeries that each check finds, and the forgeries that no check can find.
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
from analysis.tables import make_tables, render_files
from analysis.written_by import FILE as SEAL
from analysis.written_by import Seal, find_other_numbers, read_cells, seal_of_folder, seal_of_page
from study.command_line import Command, argument, option
from study.facts.events import FILE as JOURNAL
from study.facts.plain_words import counted, joined
from study.facts.record import Record
from study.facts.study_facts import StudyFacts, read_facts
from study.facts.study_folder import (
    compute_journal_digest,
    compute_plan_digest,
    compute_predictions_digest,
    predictions_file,
)
from study.plans.plan_file import FILE as PLAN
from study.plans.plan_file import PlanFile, require_plan
from study.storage.addresses import is_uri, masked
from study.storage.trial_places import find_model_address
from trainables.atomic_files import is_unfinished
from trainables.configuration import Count
from trainables.schema import Typed, to_plain

TABLES, PICTURES = "tables", "pictures"
DESCRIPTION, WEIGHTS = "model.json", "model.safetensors"  # files of a stored model
PLACES = ("data", "backbone", "tokenizer")  # not compared: a continued study may change these paths
LONGEST_VALUE = 200  # values with more characters are cut
NOT_HELD = (
    "The exit status is 0 if everything agrees, 1 if something differs, and 2 for bad usage. The command compares the "
    "plan, the journal, predictions, model descriptions, tables, pictures and the report. With --again it also runs "
    "stored models and compares their predictions. With --against it also compares the runs in MLflow. It does not "
    "compare mlflow.db, records.jsonl, optuna.journal, logs and, without --again, models that are stored at a URI. "
    "Agreement does not prove that the study ran, because a whole folder can be invented. Stronger evidence is a "
    "stored model that reproduces its predictions, or an MLflow that the author could not change."
)
# Largest tolerated difference of a logit, because processors differ: in float32, and in lower precision.
SAME_LOGITS, NEAR_LOGITS = 0.01, 0.2
OTHER_EXITS = 0.01  # largest tolerated share of examples that exit at another layer


def verify(folder: Path, *, again: int = 0, against: str | None = None) -> list[str]:
    """Recompute a study's files from its journal and predictions, and list all differences, one line each.

    Args:
        again: number of stored models to run on dev again, drawn at random.
        against: tracking URI of the MLflow whose runs are compared with the journal.

    Raises:
        ValueError: the folder has no plan or too few stored models, or MLflow does not answer.
    """
    try:
        file = require_plan(folder)
    except ValueError as error:
        if not (folder / PLAN).exists():
            raise
        return [str(error)]
    if not (folder / JOURNAL).exists():
        return [f"{folder / JOURNAL} is missing, so nothing shows where the numbers come from"]
    try:
        facts = read_facts(folder)
    except ValueError as error:
        return [str(error)]
    drawn = _draw_models(folder, facts, again)
    drift = find_plan_differences(folder, file, facts)
    try:
        study = load_study(folder, facts=facts)
    except ValueError as error:
        return [*drift, f"the numbers cannot be recomputed: {error}"]
    drift += predictions_drift(study, facts) + models_drift(study, facts)
    drift += find_table_differences([study], folder / TABLES) if (folder / TABLES).is_dir() else []
    drift += report_drift(study)
    drift += find_prediction_differences(study, drawn) if drawn else []
    return drift + (mlflow_drift(folder, against) if against else [])


# ---- the plan and the journal


def find_plan_differences(folder: Path, file: PlanFile, facts: StudyFacts) -> list[str]:
    """Compare `plan.json` with the plan of the last launch, and registered digests with the first plan's digest."""
    lines = list_differences(f"{PLAN}: protocol_hash", file.protocol_hash, file.plan.protocol_hash)
    for event in facts.registered:
        lines += list_differences(
            f"{JOURNAL}: plan registered as {event.place}", event.digest, compute_plan_digest(folder)
        )
    if facts.last_launch is None:
        return [*lines, f"{JOURNAL} records no launch, so {PLAN} cannot be compared"]
    launched = facts.last_launch.began.plan
    lines += list_differences(f"{PLAN}: protocol", to_plain(file.plan.protocol), to_plain(launched.protocol))
    found, wanted = (
        {"asked": {name: value for name, value in to_plain(plan.asked.score_fields).items() if name not in PLACES}}
        | {arm.name: to_plain(arm) for arm in plan.arms}
        for plan in (file.plan, launched)
    )
    return lines + list_differences(f"{PLAN}:", found, wanted)


# ---- predictions and models


def predictions_drift(study: Study, facts: StudyFacts) -> list[str]:
    """Find prediction files that are missing, belong to no confirm trial, or disagree with the trial's record."""
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
    lines = list_differences(
        f"{path}: SHA-256", compute_predictions_digest(study.folder, record.key), record.predictions_digest
    )
    try:
        found = disagreements(record, predictions)
    except (ValueError, IndexError) as error:  # labels or settings that the task does not have
        found = [f"no numbers can be computed from the file: {error}"]
    return lines + [f"{path} does not belong to the record of {_name(record)}: {'; '.join(found)}"] * bool(found)


def models_drift(study: Study, facts: StudyFacts) -> list[str]:
    """Find stored models that are missing, belong to no trial, or describe another trial; skip models at URIs."""
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
        return [f"{path} does not describe a model: {type(error).__name__}: {error}"]
    wanted: dict[str, Any] = to_plain(record)
    return [
        *list_differences(f"{path}: spec", spec, {name: wanted[name] for name in spec}),
        *list_differences(f"{path}:", trial, {name: wanted[name] for name in trial}),
    ]


def _confirmed(facts: StudyFacts) -> list[Record]:
    """List the journal's records of completed confirm trials."""
    records = [trial.record for trial in facts.trials.values() if trial.phase == "confirm"]
    return [record for record in records if record is not None and record.status == "completed"]


def _name(record: Record) -> str:
    return f"{record.arm} {record.phase} seed {record.seed} (key {record.key})"


# ---- models and MLflow


def _draw_models(folder: Path, facts: StudyFacts, number: int) -> list[Record]:
    """Draw at random the confirm trials whose stored models are run again.

    If some confirm trials have no stored model, print how many have one.

    Raises:
        ValueError: fewer than `number` models are stored.
    """
    if not number:
        return []
    confirmed = _confirmed(facts)
    stored = [record for record in confirmed if _is_stored(folder, record)]
    if number > len(stored):
        kept = counted(len(stored), "stored model") if stored else "no stored models"
        raise ValueError(f"--again {number}: {folder} has {kept} to run again")
    if len(stored) < len(confirmed):
        print(
            f"{folder}: only {len(stored)} of {len(confirmed)} confirm trials can run again, because the models of the "
            "others are not stored"
        )
    return random.sample(stored, number)


def _is_stored(folder: Path, record: Record) -> bool:
    """Check whether the weights of the record's model exist; for a model at a URI, return True without checking."""
    address = find_model_address(record.model or "", folder=folder, key=record.key)
    return bool(record.model) and (is_uri(address) or (Path(address) / WEIGHTS).is_file())


def find_prediction_differences(study: Study, drawn: list[Record]) -> list[str]:
    """Run the stored models of these records on dev again, and list stored predictions that differ from new ones."""
    with TemporaryDirectory() as folder:
        to = Path(folder) / "predictions"
        to.mkdir()
        keys = [record.key for record in drawn]
        done = _run("study.predict_dev", str(study.folder), *keys, "--to", str(to))
        if done.returncode:
            return [f"stored models cannot run again: {_message(done)}"]
        return [line for record in drawn for line in _answer_lines(study, record, replace(study, folder=to.parent))]


def _answer_lines(study: Study, record: Record, again: Study) -> list[str]:
    stored, now = read_predictions(study, record), read_predictions(again, record)
    path = predictions_file(study.folder, record.key)
    if stored is None or now is None:
        return [f"{path} is missing, so the stored model of {_name(record)} cannot be compared"]
    if stored.examples != now.examples or stored.logits.shape != now.logits.shape:
        return [f"{path} and the new predictions of the stored model of {_name(record)} are for different examples"]
    leaves_elsewhere = stored.exit_layers != now.exit_layers
    gaps = np.abs(stored.logits - now.logits).max(axis=-1)[~leaves_elsewhere]
    gap, share = float(gaps.max(initial=0.0)), float(leaves_elsewhere.mean())
    if gap <= (SAME_LOGITS if record.config.get("precision") == "float32" else NEAR_LOGITS) and share <= OTHER_EXITS:
        print(
            f"{_name(record)} was run again: logits differ by up to {gap:.1g}, "
            f"{share:.1%} of examples exit at another layer"
        )
        return []
    found = f"logits differ by up to {gap:.3g}, {share:.1%} of examples exit at another layer"
    return [f"{path} differs from the predictions of the stored model of {_name(record)}: {found}"]


def mlflow_drift(folder: Path, uri: str) -> list[str]:
    """Compare the runs in MLflow with the journal.

    Raises:
        ValueError: MLflow does not answer.
    """
    done = _run("study.mirror", str(folder), "--tracking-uri", uri, "--compare")
    if done.returncode not in (0, 1):
        raise ValueError(f"--against: {_message(done)}")
    return [f"{masked(uri)}: {line}" for line in done.stdout.splitlines()]


def _run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that needs torch or MLflow in a subprocess, because `analysis` must not import them."""
    return subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)


def _message(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


# ---- tables, pictures and report


def find_table_differences(studies: list[Study], folder: Path, *, separate: bool = False) -> list[str]:
    """Find files of tables that are missing, superfluous, or different from what the studies give."""
    again = " ".join(["python -m analysis.tables", *(str(study.folder) for study in studies)])
    make = partial(make_tables, studies, separate=separate)
    return _written_drift("the tables", folder, _content(folder), lambda: render_files(make()), made_by=again)


def report_drift(study: Study) -> list[str]:
    """Find missing, superfluous and different files of the report; return an empty list if there is no report."""
    there, again = _report_content(study.folder), f"python -m analysis.report {study.folder}"
    make = partial(report_files, study)
    return _written_drift("the report", study.folder, there, make, made_by=again) if there else []


def _content(folder: Path) -> dict[str, bytes]:
    """Read the finished files of a folder, as name -> content. A subfolder counts as an empty file."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name: path.read_bytes() if path.is_file() else b"" for path in paths if not is_unfinished(path)}


def _report_content(folder: Path) -> dict[str, bytes]:
    """Read the report's page and pictures, if there are any, as name -> content."""
    page = {PAGE: (folder / PAGE).read_bytes()} if (folder / PAGE).exists() else {}
    return page | {f"{PICTURES}/{name}": content for name, content in _content(folder / PICTURES).items()}


def _seal(files: Mapping[str, bytes]) -> tuple[Seal | None, dict[str, bytes]]:
    """Split the files of tables or of a report into their seal (version and SHA-256) and the files without it."""
    if found := seal_of_page(files.get(PAGE, b"")):
        return found[0], {**files, PAGE: found[1]}
    return seal_of_folder(files), {name: content for name, content in files.items() if name != SEAL}


def _written_drift(
    what: str, folder: Path, there: Mapping[str, bytes], make: Callable[[], dict[str, bytes]], *, made_by: str
) -> list[str]:
    """Find files that are missing, superfluous, or different from those that `make` returns.

    If another version of this package wrote the files, only later edits and different numbers in table cells count as
    differences.
    """
    try:
        files = make()
    except Exception as error:  # noqa: BLE001  changed predictions may fail anywhere in the statistics
        return [f"{what} cannot be recomputed: {error}"]
    seal, unsealed = _seal(there)
    if seal and seal.is_of_another_version:
        where = f"{folder / PAGE if PAGE in there else folder}"
        if not seal.holds(unsealed):
            return [f"{where} was edited since version {seal.version} wrote it; {made_by} writes it again"]
        pages = [[own[name] for name in own if name.endswith(".html")] for own in (unsealed, files)]
        return [
            f"{where}, written by version {seal.version}: {line}"
            for line in find_other_numbers(*map(read_cells, pages))
        ]
    if seal is None:
        files.pop(SEAL, None)  # without a seal, every byte is compared
    lines = []
    for name, content in files.items():
        if name not in there:
            lines.append(f"{folder / name} is missing; {made_by} writes it")
        elif there[name] != content:
            lines.append(f"{folder / name} differs from what the study gives: {first_difference(there[name], content)}")
    surplus = [folder / name for name in there if name not in files]
    return lines + [f"{path} is not a file of {what}; it is outdated, or somebody else wrote it" for path in surplus]


# ---- description of differences


def list_differences(where: str, found: object, expected: object) -> list[str]:
    """List the fields in which two JSON-like values differ, at any depth, with the two values of each field."""
    if found == expected:
        return []
    if isinstance(found, dict) and isinstance(expected, dict):
        names = sorted(found.keys() | expected.keys())
        return [
            line for name in names for line in list_differences(f"{where} {name}", found.get(name), expected.get(name))
        ]
    return [f"{where} is {_short(found)}; should be {_short(expected)}"]


def first_difference(found: bytes, expected: bytes) -> str:
    """Describe the first line in which two files differ, with the text in both files."""
    lines, wanted = (content.decode(errors="backslashreplace").splitlines() for content in (found, expected))
    for number, (line, other) in enumerate(zip(lines, wanted, strict=False), start=1):
        if line != other:
            pairs = enumerate(zip(line, other, strict=False))
            start = next((place for place, (one, two) in pairs if one != two), min(len(line), len(other)))
            around = slice(max(0, start - 40), start + 40)
            return f"line {number} has {line[around]!r}; should be {other[around]!r}"
    sizes = (f"{len(text)} lines and {len(content)} bytes" for text, content in ((lines, found), (wanted, expected)))
    return "the file has {}; should be {}".format(*sizes)


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]} ..."


# ---- the command


class Options(Typed, frozen=True, kw_only=True):
    """Arguments of `python -m analysis.verify`."""

    studies: Annotated[list[str], argument("runs/NAME", "folder of a study")]
    again: Annotated[Count, option("run N stored models, drawn at random, on dev again", "N")] = 0
    against: Annotated[str | None, option("compare with the runs in MLflow at this tracking URI", "URI")] = None
    tables: Annotated[
        str | None, option("also check this folder, which holds joint tables of the studies", "FOLDER")
    ] = None
    separate: Annotated[bool, option("the tables of --tables were written with --separate")] = False


def run(options: Options) -> int:
    """Print the differences; return 1 if there are any, else 0."""
    folders = [Path(name) for name in options.studies]
    if options.separate and options.tables is None:
        raise ValueError("--separate needs --tables FOLDER: it says how the tables in that folder were written")
    if options.tables is not None and not Path(options.tables).is_dir():
        raise ValueError(
            f"--tables {options.tables} is not a folder; allowed: a folder that analysis.tables --out wrote"
        )
    drifts = {folder: verify(folder, again=options.again, against=options.against) for folder in folders}
    statuses = [_print(str(folder), drift, _agreement(folder)) for folder, drift in drifts.items()]
    if options.tables is not None:
        drift = _joined_drift(folders, Path(options.tables), separate=options.separate, is_sound=not max(statuses))
        statuses.append(_print(options.tables, drift, "the tables agree with the studies"))
    return max(statuses)


def _joined_drift(folders: list[Path], tables: Path, *, separate: bool, is_sound: bool) -> list[str]:
    """Find differences in the joint tables of several studies.

    If the tables cannot be recomputed, raise an error if `is_sound` (no single study has differences), else list the
    error as a difference.
    """
    try:
        return find_table_differences(load_studies(folders), tables, separate=separate)
    except ValueError as error:
        if is_sound:
            raise
        return [f"the tables cannot be recomputed: {error}"]


def _print(name: str, drift: list[str], agreement: str) -> int:
    """Print the differences, or `agreement` if there are none; return 1 if there are differences, else 0."""
    for line in drift:
        print(f"difference: {line}", file=sys.stderr)
    print(f"{counted(len(drift), 'difference')} in {name}" if drift else f"{name}: {agreement}")
    return 1 if drift else 0


def _agreement(folder: Path) -> str:
    """Describe a study without differences: the compared parts, the parts that it lacks, and the journal's digest."""
    has = {name: (folder / name).is_dir() for name in ("predictions", TABLES)}
    has["report"] = bool(_report_content(folder))
    absent = [name for name, is_there in has.items() if not is_there]
    unchecked = f"; not checked, because the study lacks them: {', '.join(absent)}" if absent else ""
    present = ["plan", "journal", *(name for name, is_there in has.items() if is_there)]
    agreement = f"{joined(present)} agree{unchecked}\njournal: {compute_journal_digest(folder).describe()}"
    written = {TABLES: _content(folder / TABLES), "report": _report_content(folder)}
    for name, files in written.items():
        if (seal := _seal(files)[0]) and seal.is_of_another_version:
            agreement += (
                f"\n{name}: version {seal.version} wrote these files, so only their seal (version and SHA-256) and the "
                f"numbers in their cells were compared; python -m study.rebuild {folder} writes them again"
            )
    return agreement


main = Command(
    "analysis.verify",
    Options,
    "Recompute the numbers and files of studies, and print every difference.",
    run,
    epilog=NOT_HELD,
)

if __name__ == "__main__":
    sys.exit(main())
