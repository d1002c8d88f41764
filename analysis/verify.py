"""Recompute the numbers, tables, pictures and report of a study, and print every difference.

python -m analysis.verify runs/NAME ... [--again N] [--against URI] [--tables FOLDER [--separate]]

Scores are recomputed from the stored predictions and compared with the records in the journal. Tables, pictures and
report are recomputed too. `--again N` also runs N stored models on dev, and `--against URI` also compares the runs in
MLflow. Each difference is printed as one line; the exit status is 1 if there is a difference.

docs/certainty.md lists the forgeries that each check finds, and the forgeries that no check can find.
"""

from __future__ import annotations

import json
import operator
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np

from analysis.layouts.evidence import gather
from analysis.layouts.rendering import FORMATS
from analysis.layouts.table import Table
from analysis.report import PAGE, have_same_content, report_files
from analysis.studies.load import Study, load_studies, load_study
from analysis.studies.stored_predictions import disagreements, read_predictions
from analysis.tables import WRITTEN_BY, make_tables, render_files, tabulate
from analysis.written_by import version
from study.facts.code_history import list_own_methods
from study.facts.events import FILE as JOURNAL
from study.facts.plan_file import FILE as PLAN
from study.facts.plan_file import PlanFile, require_plan
from study.facts.provenance import ROOT
from study.facts.record import Record
from study.facts.registration import find_plan_source, read_plan_commit
from study.facts.study_facts import StudyFacts, read_facts
from study.facts.study_folder import (
    compute_journal_digest,
    compute_plan_digest,
    compute_predictions_digest,
    predictions_file,
)
from study.plans.resolved_plan import ResolvedPlan
from study.storage.addresses import is_uri
from study.storage.models import DESCRIPTION, WEIGHTS, DamagedModel, find_model_address, local_model
from study.terminal.command_line import Command, argument, option
from study.terminal.processes import require_package
from study.terminal.text import clock, counted, joined, masked, print_lines
from trainables.configuration import Count
from trainables.configuration.schema import Typed, to_plain
from trainables.files.atomic_files import is_unfinished

# The folder in a printed command, as one word of a shell, in HTML or not.
FOLDER = re.compile(rb"(-m (?:study\.time|analysis\.explain) )(?:'[^'\n]*'|&#39;.*?&#39;|[^\s<]+)")
TABLES, REPORT = "tables", (PAGE, "pictures/*")
VERSIONS = {  # file that names the version which wrote the tables or the report -> where it names the version
    WRITTEN_BY: re.compile(rb'"version": ?"(.*?)"'),
    PAGE: re.compile(rb'<meta name="generator" content="glue-exit-study (.*?)">'),
}
PLACES = ("data", "backbone", "tokenizer")  # not compared: a continued study may change these paths
COUNTS = ("repeated_texts", "train_rows")  # compared if the version of the last launch counted them
LONGEST_VALUE = 200  # values with more characters are cut
NOT_HELD = (
    "The exit status is 0 if everything compared agrees, 1 if something differs, and 2 for bad usage. The command "
    "compares the plan, the journal, predictions, models, tables, pictures and the report. It skips "
    "tables, pictures and reports that another version of this program wrote, and names them. With --again it also "
    "runs stored models and compares their predictions. With --against it also compares the runs in MLflow. It never "
    "compares mlflow.db, records.jsonl, optuna.journal, best.toml and logs. Models under a URI (--storage) are "
    "compared only with --again. Agreement does not prove that the study ran, because a whole folder can be invented. "
    "Stronger evidence is a stored model that reproduces its predictions, or an MLflow that the author could not "
    "change."
)
# Largest tolerated difference of a logit, because processors differ: in float32, and in lower precision.
SAME_LOGITS, NEAR_LOGITS = 0.01, 0.2
OTHER_EXITS = 0.01  # largest tolerated share of examples that exit at another layer


def verify(folder: Path, *, again: int = 0, against: str | None = None) -> list[str]:
    """Recompute a study's files from its journal and predictions; describe each difference in one line.

    Args:
        again: number of stored models to run on dev again. They are drawn at random.
        against: tracking URI of MLflow. The runs there are compared with the journal.

    Raises:
        ValueError: the folder has no plan or too few stored models, or MLflow does not answer.
    """
    if (folder / PLAN).exists() and not (folder / JOURNAL).exists():
        return [f"{folder / JOURNAL} is missing, so nothing shows where the numbers come from"]
    try:
        file, facts = require_plan(folder), read_facts(folder)
    except ValueError as error:
        if not (folder / PLAN).exists():
            raise
        return [str(error)]
    lines = [*compare_plan(folder, file, facts), *compare_registration(facts)]
    try:
        study = load_study(folder, facts=facts)
        evidence = gather([study])
    except ValueError as error:
        return [*lines, f"the numbers cannot be recomputed: {error}"]
    kept = ("completed", "dropped")  # of a dropped trial, tests and intervals keep the score
    confirmed = [record for record in study.records if record.phase == "confirm" and record.status in kept]
    drawn = _draw_models(study, confirmed, again)
    lines += [*compare_predictions(study, confirmed), *compare_models(study, confirmed)]
    made_by = f"python -m study.rebuild {shlex.quote(str(folder))}"
    if (folder / TABLES).is_dir():
        lines += compare_tables(folder / TABLES, lambda: tabulate(evidence), made_by=made_by)
    if report := _read_files(folder, *REPORT):
        lines += _compare_files(
            "the report", folder, report, lambda: report_files(study, evidence, tabulate(evidence)), made_by=made_by
        )
    if drawn:
        lines += compare_answers(study, drawn)
    if against:
        lines += compare_with_mlflow(folder, against)
    return lines


# ---- the plan and the journal


def compare_plan(folder: Path, file: PlanFile, facts: StudyFacts) -> Iterator[str]:
    """Compare `plan.json` with the journal: with the registered digests, and with the last launch's plan."""
    yield from list_differences(f"{PLAN}: protocol_hash", file.protocol_hash, file.plan.protocol_hash)
    digest = compute_plan_digest(folder)
    for event in () if any(event.digest == digest for event in facts.registered) else facts.registered:
        yield from list_differences(f"{JOURNAL}: plan registered as {event.place}", event.digest, digest)
    if facts.last_launch is None:
        yield f"{JOURNAL} records no launch, so {PLAN} cannot be compared"
        return
    launched = facts.last_launch.began.plan
    yield from list_differences(f"{PLAN}: protocol", to_plain(file.plan.protocol), to_plain(launched.protocol))
    found, wanted = (
        {"asked": _read_asked(plan)}
        | {arm.name: to_plain(arm) for arm in plan.arms}
        | {name: to_plain(getattr(plan, name) or {}) for name in COUNTS if getattr(launched, name)}
        for plan in (file.plan, launched)
    )
    yield from list_differences(f"{PLAN}:", found, wanted)


def _read_asked(plan: ResolvedPlan) -> dict[str, Any]:
    """Return what a plan's request says about its scores and tables, without paths.

    Numbers of seeds and samples are left out: a finished study may grow them without a launch.
    """
    asked, sizes = plan.request, {name: task.sizes for name, task in (plan.own_tasks or {}).items()}
    fields = {name: value for name, value in asked.score_fields.items() if name not in PLACES}
    fields |= {"methods": asked.methods, "tasks": asked.tasks, "first": asked.first or {}}
    plain: dict[str, Any] = to_plain({**fields, "is_generated": asked.is_generated, "rows of own tasks": sizes})
    return plain


def compare_registration(facts: StudyFacts) -> Iterator[str]:
    """Compare the commit that holds the plan's file with the repository's history, where there is one."""
    source = find_plan_source(facts)
    commit, began = source and read_plan_commit(source), _find_first_start(facts)
    if source and commit and commit.path and began and commit.made > began:
        yield f"{JOURNAL}: commit {source.commit}, which holds the plan, was made after the first trial began ({began})"


def _find_first_start(facts: StudyFacts) -> datetime | None:
    """Return the time at which the first trial started, or None if there is no trial."""
    times = [trial.started.time for trial in facts.trials.values()]
    return datetime.fromisoformat(min(times)) if times else None


def _describe_registration(folder: Path) -> str:
    """Describe the commit that holds the plan, as a line; return an empty text if no commit is known."""
    facts = read_facts(folder)
    source, began = find_plan_source(facts), _find_first_start(facts)
    if source is None or began is None:
        return ""
    commit = read_plan_commit(source)
    if commit is None:
        return f"\nnot checked, because {ROOT} is not a repository with this commit: the plan in {source.commit}"
    if commit.path is None:
        return f"\nthe plan was read from {source.file}, which is not in commit {source.commit}"
    before = clock((began - commit.made).total_seconds())
    return f"\n{commit.path} is in commit {source.commit}, made {before} before the first trial"


# ---- predictions and models


def compare_predictions(study: Study, confirmed: list[Record]) -> Iterator[str]:
    """Find prediction files that are missing or superfluous, or that do not match the journal."""
    folder = study.folder / "predictions"
    if not folder.is_dir():
        return
    records = {predictions_file(study.folder, record.key): record for record in confirmed}
    for path in sorted({*folder.glob("*.npz")} - records.keys()):
        yield f"{path} belongs to no completed confirm trial"
    for path, record in records.items():
        if not path.exists():
            yield f"{path} is missing: the predictions of {_name(record)}"
            continue
        found = compute_predictions_digest(study.folder, record.key)
        remedy = f"; to repair it, if the model is kept: python -m study.rebuild {shlex.quote(str(study.folder))}"
        for line in list_differences(f"{path}: SHA-256", found, record.predictions_digest):
            yield line + remedy
        try:
            predictions = read_predictions(study, record)
        except ValueError as error:  # a damaged file; the error names it
            yield str(error)
            continue
        try:
            faults = disagreements(record, predictions) if predictions else []
        except (ValueError, IndexError) as error:  # labels or settings that the task does not have
            faults = [f"no numbers can be computed from the file: {error}"]
        if faults:
            yield f"{path} does not match the record of {_name(record)}: {'; '.join(faults)}"


def compare_models(study: Study, confirmed: list[Record]) -> Iterator[str]:
    """Find stored models that are missing or superfluous, or that do not match the journal. Skip models at URIs."""
    for place in sorted((study.folder / "trials").glob("[!.]*")):
        if place.name not in study.facts.trials:
            yield f"{place} belongs to no trial of the journal"
    for record in confirmed:
        if record.model is None or is_uri(record.model):
            continue
        model_folder = Path(find_model_address(record.model, folder=study.folder, key=record.key))
        path = model_folder / DESCRIPTION
        trial: dict[str, Any] = to_plain(record)
        wanted = {"spec": {name: trial[name] for name in ("method", "task", "config", "seed")}}
        wanted |= {name: trial[name] for name in ("epoch", "selection_score")}
        try:
            model = json.loads(path.read_text())
            found = {name: model[name] for name in wanted} | {
                "spec": {name: model["spec"][name] for name in wanted["spec"]}
            }
        except OSError:
            yield f"{path} is missing: the model of {_name(record)}"
        except (ValueError, KeyError, TypeError) as error:
            yield f"{path} does not describe a model: {type(error).__name__}: {error}"
        else:
            yield from list_differences(f"{path}:", found, wanted)
            if [*model_folder.iterdir()] == [path]:  # study.drop --models has deleted the weights
                continue
            try:
                with local_model(str(model_folder), record.model_digest):
                    pass
            except DamagedModel as error:
                yield str(error)


def _name(record: Record) -> str:
    return f"{record.arm} {record.phase} seed {record.seed} (key {record.key})"


# ---- models and MLflow


def _draw_models(study: Study, confirmed: list[Record], number: int) -> list[Record]:
    """Choose confirm trials at random, to run their stored models again.

    If some confirm trials have no stored model, print how many have one.

    Raises:
        ValueError: fewer than `number` models are stored.
    """
    if not number:
        return []
    stored = [record for record in confirmed if _is_stored(study.folder, record)]
    if number > len(stored):
        kept = counted(len(stored), "stored model") if stored else "no stored models"
        raise ValueError(f"--again {number}: {study.folder} has {kept}")
    if len(stored) < len(confirmed):
        print(
            f"{study.folder}: only {len(stored)} of {len(confirmed)} confirm trials can run again, because the others "
            "have no stored models"
        )
    return random.sample(stored, number)


def _is_stored(folder: Path, record: Record) -> bool:
    """Check whether the weights of the record's model exist; for a model at a URI, return True without checking."""
    address = find_model_address(record.model or "", folder=folder, key=record.key)
    return bool(record.model) and (is_uri(address) or (Path(address) / WEIGHTS).is_file())


def compare_answers(study: Study, drawn: list[Record]) -> Iterator[str]:
    """Run the stored models of these trials on dev again; list the files with different predictions."""
    with TemporaryDirectory() as folder:
        again = replace(study, folder=Path(folder))
        (again.folder / "predictions").mkdir()
        for keys in _group_by_process(study, drawn):
            done = _run(
                "study.stored_models.predict_dev", str(study.folder), *keys, "--to", str(again.folder / "predictions")
            )
            if done.returncode:
                yield f"stored models cannot run again: {_message(done)}"
                return
            print_lines([line for line in done.stderr.splitlines() if line.startswith("warning: ")], sys.stderr)
        for record in drawn:
            path = predictions_file(study.folder, record.key)
            stored, now = read_predictions(study, record), read_predictions(again, record)
            if stored is None or now is None:
                yield f"{path} is missing, so the stored model of {_name(record)} cannot be compared"
            elif stored.examples != now.examples or stored.logits.shape != now.logits.shape:
                yield f"{path} and the new predictions of the model of {_name(record)} are for different examples"
            else:
                exits_elsewhere = stored.exit_layers != now.exit_layers
                gaps = np.abs(stored.logits - now.logits).max(axis=-1)[~exits_elsewhere]
                gap, share = float(gaps.max(initial=0.0)), float(exits_elsewhere.mean())
                found = f"logits differ by up to {gap:.3g}, {share:.1%} of examples exit at another layer"
                allowed = SAME_LOGITS if record.config.get("precision") == "float32" else NEAR_LOGITS
                if gap <= allowed and share <= OTHER_EXITS:
                    print(f"{_name(record)} was run again: {found}")
                else:
                    yield f"{path} differs from the predictions of the stored model of {_name(record)}: {found}"


def _group_by_process(study: Study, records: list[Record]) -> Iterable[list[str]]:
    """Group the keys of trials: a process for all built-in methods, and one for each trial of a user's own method."""
    own = list_own_methods(study.facts)
    groups = dict[str, list[str]]()
    for record in records:
        groups.setdefault(record.key if record.method in own else "", []).append(record.key)
    return groups.values()


def compare_with_mlflow(folder: Path, uri: str) -> list[str]:
    """Compare the runs in MLflow with the journal.

    Raises:
        ValueError: MLflow does not answer.
    """
    done = _run("study.mirror", str(folder), "--tracking-uri", uri, "--compare")
    if done.returncode not in (0, 1) or (done.returncode == 1 and not done.stdout):  # without a difference, it failed
        raise ValueError(f"--against: {_message(done)}")
    return [f"{masked(uri)}: {line}" for line in done.stdout.splitlines()]


def _run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that needs torch or MLflow in a subprocess, because `analysis` must not import them."""
    return subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)


def _message(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


# ---- tables, pictures and report


def compare_tables(out: Path, make: Callable[[], list[Table]], *, made_by: str) -> list[str]:
    """Find files of tables that are missing, superfluous, or different from the tables that `make` returns.

    Formats that `analysis.tables --format` adds are compared if some file has them.
    """
    there = _read_files(out, "*")
    formats = [ending for ending in FORMATS if any(name.endswith(f".{ending}") for name in there)]
    return _compare_files("the tables", out, there, lambda: render_files(make(), formats), made_by=made_by)


def _read_files(folder: Path, *patterns: str) -> dict[str, bytes]:
    """Read the finished files that match `patterns`; return name -> content. A subfolder counts as an empty file."""
    paths = sorted(path for pattern in patterns for path in folder.glob(pattern) if not is_unfinished(path))
    return {path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else b"" for path in paths}


def _find_other_version(files: Mapping[str, bytes]) -> str | None:
    """Return the version that wrote these files, or None if it is unknown or our own version."""
    for name, pattern in VERSIONS.items():
        if (found := pattern.search(files.get(name, b""))) and found[1] != version().encode():
            return found[1].decode(errors="replace")
    return None


def _compare_files(
    what: str, folder: Path, there: Mapping[str, bytes], make: Callable[[], dict[str, bytes]], *, made_by: str
) -> list[str]:
    """Find files that are missing, superfluous, or different from those that `make` returns.

    If another version wrote the files, print this and compare nothing.
    """
    if wrote := _find_other_version(there):
        where = folder / PAGE if PAGE in there else folder
        print(f"{where}: not compared, because another version wrote it ({wrote}); {made_by} writes it again")
        return []
    try:
        files = make()
    except Exception as error:  # noqa: BLE001  changed predictions may fail anywhere in the statistics
        return [f"{what} cannot be recomputed: {error}"]
    lines = [f"{folder / name} is missing; {made_by} writes it" for name in files if name not in there]
    for name, content in there.items():
        if name not in files:
            lines.append(f"{folder / name} is not a file of {what}; it is outdated, or somebody else wrote it")
        elif not (have_same_content if name == PAGE else operator.eq)(
            own := leave_out_folders(content), expected := leave_out_folders(files[name])
        ):
            found = first_difference(own, expected)
            lines.append(f"{folder / name} differs from what the study gives: {found}")
    return lines


def leave_out_folders(content: bytes) -> bytes:
    """Leave out the study's folder in printed commands, so that a moved study has the same files."""
    return FOLDER.sub(rb"\1", content)


# ---- description of differences


def list_differences(where: str, found: object, expected: object) -> list[str]:
    """Describe each field that differs between two JSON-like values, at any depth."""
    if found == expected:
        return []
    if isinstance(found, dict) and isinstance(expected, dict):
        names = sorted(found.keys() | expected.keys())
        return [
            line for name in names for line in list_differences(f"{where} {name}", found.get(name), expected.get(name))
        ]
    return [f"{where} is {_short(found)}; should be {_short(expected)}"]


def first_difference(found: bytes, expected: bytes) -> str:
    """Describe the first line in which two files differ."""
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
    separate: Annotated[bool, option("for --tables: the folder was written with --separate")] = False


def run(options: Options) -> int:
    """Print the differences; return 1 if there are any, else 0."""
    folders = [Path(name) for name in options.studies]
    if options.separate and options.tables is None:
        raise ValueError(
            "--separate needs --tables FOLDER: the option describes how the tables in that folder were written"
        )
    if options.tables is not None and not Path(options.tables).is_dir():
        raise ValueError(
            f"--tables {options.tables} is not a folder; allowed: a folder that analysis.tables --out wrote"
        )
    if options.again:
        require_package("torch", "--again")
    if options.against is not None:
        require_package("mlflow", "--against")
    found = {folder: verify(folder, again=options.again, against=options.against) for folder in folders}
    statuses = [_print(str(folder), lines, "" if lines else _agreement(folder)) for folder, lines in found.items()]
    if options.tables is not None:
        if not any(statuses):
            load_studies(folders)  # studies that agree but cannot stand in one table are bad usage, not a difference
        out, separate = Path(options.tables), ["--separate"] * options.separate
        made_by = " ".join(["python -m analysis.tables", *options.studies, "--out", options.tables, *separate])
        lines = compare_tables(
            out, lambda: make_tables(load_studies(folders), separate=options.separate), made_by=made_by
        )
        is_compared = _find_other_version(_read_files(out, WRITTEN_BY)) is None
        agreement = "the tables agree with the studies" if is_compared else "nothing was compared"
        statuses.append(_print(options.tables, lines, agreement))
    return max(statuses)


def _print(name: str, lines: list[str], agreement: str) -> int:
    """Print the differences, or `agreement` if there are none; return 1 if there are differences, else 0."""
    for line in lines:
        print(f"difference: {line}", file=sys.stderr)
    print(f"{counted(len(lines), 'difference')} in {name}" if lines else f"{name}: {agreement}")
    return 1 if lines else 0


def _agreement(folder: Path) -> str:
    """Describe what was compared in a study without differences, what was missing, and the journal's digest."""
    has = {name: (folder / name).is_dir() for name in ("predictions", TABLES)}
    has["report"] = any(path for pattern in REPORT for path in folder.glob(pattern))
    absent = [name for name, is_there in has.items() if not is_there]
    unchecked = f"; not checked, because the study lacks them: {', '.join(absent)}" if absent else ""
    named = {TABLES: _read_files(folder / TABLES, WRITTEN_BY), "report": _read_files(folder, PAGE)}
    uncompared = [name for name, files in named.items() if _find_other_version(files)]
    compared = ["plan", "journal", *(name for name, is_there in has.items() if is_there and name not in uncompared)]
    digest = compute_journal_digest(folder).describe()
    return f"{joined(compared)} agree{unchecked}\nSHA-256 of the journal: {digest}{_describe_registration(folder)}"


main = Command(
    "analysis.verify",
    Options,
    "Recompute the numbers and files of studies, and print every difference.",
    run,
    epilog=NOT_HELD,
)

if __name__ == "__main__":
    sys.exit(main())
