"""Study folders whose journal was edited, with the records that it repeats; and what is said about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from study.facts.events import FILE, READER, BaseEvent, TrialEnded, read_events


def edit_events(study: Path, kind: type[BaseEvent], change: Callable[[dict], object], *, number: int = 0) -> None:
    """Applies `change` to the plain values of the event of this kind, and writes its record to the records too."""
    lines = (study / FILE).read_bytes().splitlines()
    found = [i for i, line in enumerate(lines) if isinstance(READER.read(line, where=""), kind)]
    plain = json.loads(lines[found[number]])
    change(plain)
    lines[found[number]] = msgspec.json.encode(plain)
    write_events(study, lines)


def write_events(study: Path, lines: Iterable[bytes]) -> None:
    """Writes the journal with these lines, and the records that they have."""
    (study / FILE).write_bytes(b"".join(line + b"\n" for line in lines))
    records = [event.record for event in read_events(study) if isinstance(event, TrialEnded)]
    (study / "records.jsonl").write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))


def has(drift: Iterable[str], *texts: str) -> bool:
    """Whether one line has all of the texts."""
    return any(all(text in line for text in texts) for line in drift)
