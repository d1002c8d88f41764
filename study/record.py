"""The record of a finished trial: one flat row, all of its numbers from one epoch. What `analysis` reads.

Needs nothing but the standard library.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

Phase = Literal["search", "confirm"]
Status = Literal["completed", "stopped", "failed"]


@dataclass(frozen=True, kw_only=True)
class Record:
    key: str  # identity: hash of protocol, method, task, phase, configuration, seed
    study: str
    protocol_hash: str
    method: str
    task: str
    phase: Phase
    trial: int  # number within the arm and phase, from 0
    seed: int
    config: dict[str, Any]  # the full configuration of the method, tuned and fixed
    status: Status  # "stopped" is by ASHA
    error: str | None  # last line of the error of a failed trial
    score: float | None  # the task's metric at the selected epoch, on the reported split, in [-1, 1]
    selection_score: float | None  # the same metric on the split used to select
    metrics: dict[str, float]  # every component metric of the reported split at that epoch
    epoch: int | None  # the selected epoch, from 1
    epochs: int  # epochs run
    num_layers: int | None
    mean_layers: float | None  # mean layers run per dev example under the method's exit
    train_examples: int  # examples seen in training, repeats counted
    train_seconds: float
    eval_seconds: float
    gpu_seconds: float  # share of a GPU x seconds held
    wall_seconds: float  # from the trial's start to its end, waiting after a crash left out
    model: str | None  # where the selected model lies
    data_fingerprint: str
    versions: dict[str, str]
    git_commit: str | None
    host: str
    device: str
    started: str  # UTC, ISO 8601
    ended: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Record:
        """The record that `row` holds. ValueError names a missing field or a value outside the contract; a field
        that the contract does not know is left out with a warning."""
        if not isinstance(row, dict):
            raise ValueError(f"a record is a JSON object, not {type(row).__name__}")
        names = [field.name for field in fields(cls)]
        missing = [name for name in names if name not in row]
        if missing:
            raise ValueError(f"record {row.get('key', '(without key)')!r} lacks the field(s) {', '.join(missing)}")
        unknown = sorted(set(row) - set(names))
        if unknown:
            warnings.warn(f"records carry fields outside the contract: {', '.join(unknown)}", stacklevel=2)
        record = cls(**{name: row[name] for name in names})
        record._check()
        return record

    def _check(self) -> None:
        for name, types in _FIELD_TYPES.items():
            value = getattr(self, name)
            if not isinstance(value, types) or isinstance(value, bool):
                raise ValueError(f"record {self.key!r}: {name} is {value!r}; allowed: {_in_words(types)}")
        for name, value, allowed in (("phase", self.phase, get_args(Phase)), ("status", self.status, get_args(Status))):
            if value not in allowed:
                raise ValueError(f"record {self.key!r}: {name} is {value!r}; allowed: {', '.join(allowed)}")
        if self.status == "completed" and not (isinstance(self.score, int | float) and math.isfinite(self.score)):
            raise ValueError(f"record {self.key!r}: score of a completed trial is {self.score!r}; allowed: a number")


def _types_of(hint: Any) -> tuple[type, ...]:
    """What `isinstance` takes for an annotation: `float` admits whole numbers, a `Literal` is text."""
    if get_origin(hint) is Literal:
        return (str,)
    if get_origin(hint) is UnionType:
        return tuple(kind for part in get_args(hint) for kind in _types_of(part))
    return (int, float) if hint is float else (get_origin(hint) or hint,)


def _in_words(types: tuple[type, ...]) -> str:
    words = {int: "a whole number", float: "a number", str: "text", dict: "an object", NoneType: "null"}
    return " or ".join(words[kind] for kind in types if not (kind is int and float in types))


_FIELD_TYPES = {name: _types_of(hint) for name, hint in get_type_hints(Record).items()}


def best_search_record(records: Iterable[Record]) -> Record | None:
    """The completed search trial with the highest selection score, the earliest among equals; None if none completed.

    Its configuration is the one that an arm's confirm trials repeat.
    """
    completed = [record for record in records if record.phase == "search" and record.status == "completed"]
    return max(completed, key=lambda record: (record.selection_score, -record.trial), default=None)


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 1, object) of each line of a JSON-lines file.

    A last line that a crash has torn is left out with a warning; any other broken line is a ValueError with file and
    line number. A missing file is empty.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n") and not is_json(line):
                warnings.warn(f"{path}:{number}: torn last line left out ({len(line)} bytes)", stacklevel=2)
                return
            try:
                yield number, json.loads(line)
            except ValueError:
                raise ValueError(f"{path}:{number}: not a JSON object: {line[:60]!r}") from None


def is_json(line: bytes) -> bool:
    """Whether the line is whole: a JSON object that was cut short is none."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def read_records(path: Path) -> list[Record]:
    """The records of a `records.jsonl`, in file order. ValueErrors name file and line."""
    records = []
    for number, row in read_json_lines(path):
        try:
            records.append(Record.from_json(row))
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
    return records


def read_events(folder: Path) -> list[dict[str, Any]]:
    """The events of a study folder, in order; empty where there are none yet."""
    path = folder / "events.jsonl"
    events = []
    for number, row in read_json_lines(path):
        if not isinstance(row, dict) or "event" not in row:
            raise ValueError(f"{path}:{number}: not an event: the field 'event' is missing")
        events.append(row)
    return events
