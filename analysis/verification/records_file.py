"""`records.jsonl` against the journal: line by line the records of its `trial_ended` events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from analysis.verification.differences import differences, unlike
from study.facts.record import READER, Record
from study.facts.study_folder import RECORDS, how_records_come_back
from study.plans.identity import search_seed
from study.plans.plan_file import PlanFile
from trainables.schema import to_plain


def name_of(record: Record) -> str:
    """The record in words: arm, phase, seed and key."""
    return f"{record.arm} {record.phase} seed {record.seed} (key {record.key})"


def records_drift(folder: Path, in_journal: Sequence[Record]) -> list[str]:
    """Where `records.jsonl` is not what these records of the journal give."""
    lines, drift, num_unread = _read(folder)
    expected = {_identity(record): record for record in in_journal}
    found = {_identity(record) for record in lines.values()}
    missing = [record for identity, record in expected.items() if identity not in found]
    if len(missing) > num_unread:  # else the lines that cannot be read are theirs
        drift += [f"{RECORDS} lacks the record of {name_of(record)}, which the journal has" for record in missing]
    for number, record in lines.items():
        where = f"{RECORDS}:{number} {name_of(record)}"
        if _identity(record) not in expected:
            drift.append(f"{where}: the journal has no such record")
        else:
            drift += differences(f"{where}:", to_plain(record), to_plain(expected[_identity(record)]))
    order = [identity for identity in map(_identity, lines.values()) if identity in expected]
    wanted = [identity for identity in expected if identity in found]
    if not drift and order != wanted:
        drift.append(f"{RECORDS} has its records in another order than the journal, or one of them twice")
    return drift


def drift_without_journal(folder: Path, file: PlanFile) -> list[str]:
    """Where a record of `records.jsonl` is not of the plan: its key and, of a search trial, its seed."""
    lines, drift, _ = _read(folder)
    arms = {arm.name: arm for arm in file.plan.all_arms}
    for number, record in lines.items():
        if record.arm not in arms:
            continue  # `load_study` says so
        identity = {"phase": record.phase, "config": record.config, "seed": record.seed, "start": record.start}
        expected: dict[str, object] = {"key": file.plan.trial_key(arms[record.arm], **identity)}  # type: ignore[arg-type]
        if record.phase == "search":
            expected["seed"] = search_seed(record.arm, record.trial)
        drift += [f"{RECORDS}:{number} {name_of(record)}: {fault}" for fault in unlike(record, expected)]
    return drift


def _identity(record: Record) -> tuple[str, str]:
    """A trial that was reopened has several records."""
    return record.key, record.ended


def _read(folder: Path) -> tuple[dict[int, Record], list[str], int]:
    """The records by line number, a line for each that cannot be read or is not as the journal writes it, and how many
    cannot be read."""
    path, records, broken, num_unread = folder / RECORDS, {}, [], 0
    content = path.read_bytes() if path.exists() else b""
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        try:
            records[number] = READER.read(line, where=f"{RECORDS}:{number}")
        except ValueError as error:
            broken.append(f"{error}{how_records_come_back(folder)}")
            num_unread += 1
            continue
        if line != msgspec.json.encode(records[number]) + b"\n":
            broken.append(f"{RECORDS}:{number} is not written as the journal writes it")
    return records, broken, num_unread
