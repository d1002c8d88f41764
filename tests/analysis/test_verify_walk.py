"""Every digit of a study's folder is changed once: pytest tests/analysis/test_verify_walk.py

What `verify` does not find changed is exactly what NOT_COVERED says; and where the chain of the journal is made anew
behind every change, exactly what CHAIN_ALONE says too.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from helpers.edited_studies import has, rechained
from helpers.launched_studies import eventful_study

from analysis.report import write_report
from analysis.studies.load import load_study
from analysis.verification.epoch_rules import TOLERANCE
from analysis.verification.event_rules import Replay
from analysis.verification.not_covered import CHAIN_ALONE, NOT_COVERED, NotCovered
from analysis.verification.optuna_file import optuna_drift
from analysis.verification.records_file import records_drift
from analysis.verification.stored_files import models_drift, predictions_drift
from analysis.verify import each_facts_drift, facts_drift, numbers_drift, verify
from study.facts.chain import SEAL, ChainCheck
from study.facts.plan_on_disk import require_plan
from study.facts.study_facts import StudyFacts

pytestmark = [pytest.mark.slow, pytest.mark.long]

OTHER_CHOICES = {
    "complete": "interrupted",
    "continue": "stop",
    "stop": "continue",
    "completed": "stopped",
    "stopped": "completed",
    "search": "confirm",
    "confirm": "search",
    "asked": "code",
    "machine": "preemption",
    "method": "memory",
    "pretrain": "search",
}
NOT_A_FIELD = {"trials under a URI"}  # of no file here
Path_ = tuple[str | int, ...]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = eventful_study(tmp_path_factory.mktemp("runs") / "s7")
    write_report(folder)
    assert verify(folder) == []
    return folder


@pytest.fixture
def study(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "s7")


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every number, text and null within a plain value, and where it stands; of a list its first and last."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else [(i, value[i]) for i in (0, -1) if value]
        for name, inner in items:
            yield from leaves(inner, (*path, name))
    else:
        yield path, value


def variants(value: Any) -> Iterator[Any]:
    """The value with one digit or character changed."""
    if isinstance(value, bool):
        yield not value
    elif value is None:
        yield from (1, 1.5, "x")
    elif isinstance(value, str):
        if value in OTHER_CHOICES:
            yield OTHER_CHOICES[value]
        yield from _changed_texts(value or "x")
    else:
        for text in _changed_texts(json.dumps(value)):
            other = json.loads(text) if not re.match(r"-?0\d", text) else value
            if other != value:
                yield other


def _changed_texts(text: str) -> Iterator[str]:
    """With the first, the last microsecond's or the last digit changed; without digits, with another letter."""
    digits = [match.start() for match in re.finditer(r"[0-9]", text)]
    steps = [(digits[:1], 1), (digits[-5:-4], 1), (digits[-1:], 1), (digits[-1:], 9)]
    places = dict.fromkeys((place, step) for own, step in steps for place in own)
    for place, step in places:
        yield text[:place] + str((int(text[place]) + step) % 10) + text[place + 1 :]
    if not digits:
        place = len(text) // 2
        yield text[:place] + ("q" if text[place] != "q" else "w") + text[place + 1 :]


def replaced(value: Any, path: Path_, new: Any) -> Any:
    """A copy of a plain value with another leaf."""
    value = copy.deepcopy(value)
    inner = value
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = new
    return value


def name_of(path: Path_) -> str:
    """The place of a field in its line: `report.row.epoch`; places in a list are one."""
    return ".".join(name for name in path if isinstance(name, str))


def listed(entries: tuple[NotCovered, ...], field: str) -> str | None:
    """The entry that holds the field of an event."""
    fields = [entry.field for entry in entries]
    return next((one for one in fields if field == one or field.startswith(f"{one}.")), None)


def in_lines(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def with_its_chain(path: Path, lines: list[bytes]) -> None:
    """The journal with these lines, their chain made anew, and its heads in the records; no seal."""
    chained = rechained(lines)
    in_lines(path, chained)
    path.with_name(SEAL).unlink(missing_ok=True)
    ends = [json.loads(line)["record"] for line in chained if b'"event":"trial_ended"' in line]
    records = path.with_name("records.jsonl")
    rows = [json.loads(line) for line in records.read_bytes().splitlines()]
    heads = [end["journal_head"] for end in ends] + [""] * (len(rows) - len(ends))
    changed = [row | {"journal_head": head} for row, head in zip(rows, heads, strict=True)]
    in_lines(records, [msgspec.json.encode(row) for row in changed])


def undetected(
    path: Path,
    lines: list[int],
    kind: Callable[[dict], str],
    drift: Callable[[], Iterator[str]],
    write: Callable[[Path, list[bytes]], None] = in_lines,
) -> Iterator[tuple[str, int, Path_, Any]]:
    """The changes to these lines of a file of JSON lines that go unseen: field, line, place and new value."""
    before = path.read_bytes()
    content = before.splitlines()
    for number in lines:
        plain = json.loads(content[number])
        for place, value in leaves(plain):
            for new in variants(value):
                changed = [*content]
                changed[number] = msgspec.json.encode(replaced(plain, place, new))
                write(path, changed)
                if next(drift(), None) is None:
                    yield f"{kind(plain)}{name_of(place)}", number, place, new
    write(path, before.splitlines())


def one_of_each(path: Path, kind: Callable[[dict], tuple]) -> list[int]:
    """The number of the first line of each kind."""
    first: dict[tuple, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines()):
        first.setdefault(kind(json.loads(line)), number)
    return list(first.values())


def rows_of(path: Path) -> list[dict]:
    """The rows of all epochs that the journal has."""
    plain = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [event["report"]["row"] for event in plain if event["event"] == "epoch_reported"]


def kind_of_event(plain: dict) -> tuple:
    """What tells lines of the journal apart, beyond the event."""
    report, record = plain.get("report", {}), plain.get("record", {})
    row = report.get("row", {})
    return (
        plain["event"],
        plain.get("launch") if plain["event"] == "launch_began" else None,
        plain.get("phase") or (record.get("phase"), record.get("status")),
        (row.get("improved"), row.get("finished"), "sample_std" in row.get("metrics", {})),
        "tokens" in row.get("metrics", {}),
        (report.get("outcome") or {}).get("model") is None,
        plain.get("decision"),
    )


def test_every_field_of_the_journal_is_in_its_chain(study: Path) -> None:
    """The chain is followed for each change: the first line that breaks is the one that was changed."""
    path = study / "events.jsonl"
    content, whole, heads = path.read_bytes().splitlines(), ChainCheck(), []
    for line in content:
        heads.append(whole.head)
        assert whole.fault(line) is None
    for number in one_of_each(path, kind_of_event):
        plain = json.loads(content[number])
        for place, value in leaves(plain):
            for new in variants(value):
                changed = msgspec.json.encode(replaced(plain, place, new))
                assert ChainCheck(heads[number]).fault(changed), place


def test_a_line_that_was_changed_cut_or_moved_is_named_by_verify(study: Path) -> None:
    path = study / "events.jsonl"
    lines = path.read_bytes().splitlines()
    middle = len(lines) // 2
    changes = {
        middle + 1: [*lines[:middle], lines[middle].replace(b"2026", b"2027"), *lines[middle + 1 :]],
        middle + 2: [*lines[: middle + 1], *lines[middle + 2 :]],
        3: [*lines[:2], lines[3], lines[2], *lines[4:]],
        1: lines[1:],
    }
    for number, changed in changes.items():
        in_lines(path, changed)
        assert any(f"events.jsonl:{number}: chain is" in line for line in facts_drift(study, require_plan(study)))


def test_every_field_of_the_seal(study: Path) -> None:
    seal, plan = json.loads((study / SEAL).read_bytes()), require_plan(study)
    assert facts_drift(study, plan) == []
    for changed in (
        {"lines": seal["lines"] + 1},
        {"lines": seal["lines"] - 1},
        {"lines": 0},
        {"chain": "0" * 16},
        {"chain": 1},
    ):
        (study / SEAL).write_bytes(msgspec.json.encode(seal | changed))
        assert has(facts_drift(study, plan), SEAL), changed


def test_a_cut_of_the_last_lines_is_found_by_the_seal(study: Path) -> None:
    path, plan = study / "events.jsonl", require_plan(study)
    lines = path.read_bytes().splitlines()
    in_lines(path, lines[:-1])
    assert has(facts_drift(study, plan), f"events.jsonl ends with line {len(lines) - 1}", f"says {len(lines)}")


def test_a_cut_of_the_last_lines_after_a_kill_is_found_by_the_records(study: Path) -> None:
    path, plan = study / "events.jsonl", require_plan(study)
    (study / SEAL).unlink()
    lines = path.read_bytes().splitlines()
    last_end = max(n for n, line in enumerate(lines) if b'"event":"trial_ended"' in line)
    in_lines(path, lines[:last_end])
    assert any("the journal has no such record" in line for line in facts_drift(study, plan))
    records = (study / "records.jsonl").read_bytes().splitlines()
    in_lines(study / "records.jsonl", records[:-1])
    assert numbers_drift(study), "tables and report name the digest of the records"


def test_every_field_of_the_journal(study: Path) -> None:
    path, plan = study / "events.jsonl", require_plan(study)
    before, records = path.read_bytes(), (study / "records.jsonl").read_bytes()
    lines = one_of_each(path, kind_of_event)
    unseen = list(
        undetected(
            path, lines, lambda plain: f"{plain['event']}.", lambda: each_facts_drift(study, plan), with_its_chain
        )
    )
    unseen = [found for found in unseen if found[0].partition(".")[2] not in ("chain", "record.journal_head")]
    assert (path.read_bytes(), (study / "records.jsonl").read_bytes()) == (before, records)
    fields = {field for field, *_ in unseen}
    assert {field for field in fields if listed(CHAIN_ALONE, field) is None} == set()
    assert {listed(CHAIN_ALONE, field) for field in fields} == {entry.field for entry in CHAIN_ALONE}
    small = [new for field, _, _, new in unseen if field == "epoch_reported.report.row.mean_layers"]
    known = {row["mean_layers"] for row in rows_of(path)}
    assert all(min(abs(new - value) for value in known) < TOLERANCE for new in small)

    # All of them at once: the digest of the records, with the heads of the chain, stands in every table and the report.
    plain = [json.loads(line) for line in path.read_bytes().splitlines()]
    for _, number, place, new in unseen:
        plain[number] = replaced(plain[number], place, new)
    with_its_chain(path, [msgspec.json.encode(line) for line in plain])
    drift = numbers_drift(study)
    files = [study / "report.html", *(study / "tables").glob("*.json")]
    assert [path for path in files if not any(line.startswith(f"{path} is not what") for line in drift)] == []


def facts_of(study: Path) -> StudyFacts:
    """What the other files are held against: a journal in which nothing is wrong."""
    replay = Replay(study, require_plan(study))
    assert list(replay.drift()) == []
    return replay.facts


def test_every_field_of_the_records(study: Path) -> None:
    path, facts = study / "records.jsonl", facts_of(study)
    lines = one_of_each(path, lambda plain: (plain["phase"], plain["status"]))
    assert list(undetected(path, lines, lambda _: "", lambda: iter(records_drift(study, facts.records)))) == []


def test_every_field_of_optunas_journal(study: Path) -> None:
    path, plan, facts = study / "optuna.journal", require_plan(study), facts_of(study)
    lines = one_of_each(path, lambda plain: (plain["op_code"], plain.get("state"), plain.get("study_name")))
    changes = undetected(path, lines, lambda _: "", lambda: iter(optuna_drift(study, plan, facts)))
    unseen = {field for field, *_ in changes}
    assert unseen == {entry.field for entry in NOT_COVERED if entry.file == "optuna.journal"}


@pytest.mark.parametrize("name", ["plan.json", "model.json"])
def test_every_field_of_a_json_file(study: Path, name: str) -> None:
    loaded = load_study(study)
    repeated = next(record for record in loaded.records if record.phase == "confirm" and record.arm == "albert/rte")
    path = study / name if name == "plan.json" else next((study / "trials" / repeated.key).rglob(name))
    plain, before = json.loads(path.read_text()), path.read_text()
    unseen = []
    for place, value in leaves(plain):
        for new in variants(value):
            path.write_text(json.dumps(replaced(plain, place, new)))
            if not (verify(study) if name == "plan.json" else models_drift(loaded)):
                unseen.append((name_of(place), value, new))
    path.write_text(before)
    assert unseen == []


def test_every_array_of_the_predictions(study: Path) -> None:
    loaded, rng = load_study(study), np.random.default_rng(0)
    records = {record.method: record for record in loaded.records if record.phase == "confirm"}
    for record in records.values():
        path = study / "predictions" / f"{record.key}.npz"
        before = path.read_bytes()
        with np.load(path) as file:
            arrays = dict(file)
        for name, array in arrays.items():
            for place in {0, int(rng.integers(array.size)), array.size - 1}:
                changed = array.copy()
                changed.flat[place] = (
                    f"{changed.flat[place]}"[::-1] if array.dtype.kind == "U" else _next(changed, place)
                )
                np.savez(path, **(arrays | {name: changed}))
                assert predictions_drift(loaded), (record.method, name, place)
        path.write_bytes(before)
    assert predictions_drift(loaded) == []


def _next(array: np.ndarray, place: int) -> Any:
    """The smallest change of a number."""
    value = array.flat[place]
    return np.nextafter(value, array.dtype.type(9)) if array.dtype.kind == "f" else value + 1


def test_every_table_and_the_report(study: Path) -> None:
    folders = (study / "tables", study / "pictures")
    files = [study / "report.html", *(path for folder in folders for path in folder.iterdir())]
    for path in files:
        content = bytearray(path.read_bytes())
        place = next(i for i in reversed(range(len(content))) if chr(content[i]).isalnum())
        content[place] = ord("1") if content[place] != ord("1") else ord("2")
        path.write_bytes(bytes(content))
    drift = numbers_drift(study)
    assert len(drift) == len(files) > 40
    assert [path for path in files if not any(line.startswith(f"{path} is not what") for line in drift)] == []


def test_every_file_is_walked_or_not_covered(study: Path) -> None:
    walked = ["plan.json", "events.jsonl", SEAL, "records.jsonl", "optuna.journal", "predictions/*.npz", "tables/*"]
    walked += ["report.html", "pictures/*", "trials/*/model-epoch-*/model.json", "trials/*/model-epoch-*/config.json"]
    whole = [entry.file for entry in NOT_COVERED if not entry.field and entry.file not in NOT_A_FIELD]
    patterns = [*walked, *(file.replace("KEY", "*").replace("-N/", "-*/") for file in whole)]
    found = {pattern: set(study.glob(pattern)) for pattern in patterns}
    assert [pattern for pattern, paths in found.items() if not paths] == []
    files = {path for path in study.rglob("*") if path.is_file()}
    assert files == {path for paths in found.values() for path in paths}


def test_every_file_of_the_model_that_all_start_from(study: Path) -> None:
    loaded = load_study(study)
    (record,) = loaded.pretrained
    for path in (study / "trials" / record.key).rglob("*.*"):
        before = path.read_bytes()
        path.write_bytes(before.replace(b"1", b"4").replace(b"2", b"5"))
        assert path.read_bytes() != before and models_drift(loaded), path
        path.write_bytes(before)
    assert models_drift(loaded) == []


def test_files_that_are_not_covered_are_not_read(study: Path) -> None:
    whole = [entry.file for entry in NOT_COVERED if not entry.field and entry.file not in NOT_A_FIELD]
    loaded = load_study(study)
    (pretrained,) = loaded.pretrained
    for pattern in whole:
        for path in study.glob(pattern.replace("KEY", "*").replace("-N/", "-*/")):
            if pretrained.key not in path.parts:
                path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    assert facts_drift(study, require_plan(study)) + predictions_drift(loaded) + models_drift(loaded) == []
