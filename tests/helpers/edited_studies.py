"""Study folders whose journal was edited, and what is said about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from study.facts.events import FILE, BaseEvent, EventReader, add_checksum, remove_checksum
from study.facts.journal_copy import COPY


def edit_events(study: Path, kind: type[BaseEvent], change: Callable[[dict], object], *, number: int = 0) -> None:
    """Applies `change` to the plain values of the event of this kind."""
    lines = read_event_lines(study)
    found = [i for i, line in enumerate(lines) if isinstance(EventReader().read(line, where=""), kind)]
    plain = json.loads(lines[found[number]])
    change(plain)
    lines[found[number]] = msgspec.json.encode(plain)
    write_events(study, lines)


def read_event_lines(study: Path) -> list[bytes]:
    """The lines of the journal without their checksums, to be edited."""
    return [remove_checksum(line, where=FILE) for line in (study / FILE).read_bytes().splitlines()]


def write_events(study: Path, lines: Iterable[bytes]) -> None:
    """Writes the journal with these lines and their checksums; the lines may be fewer than its copy has."""
    (study / COPY).unlink(missing_ok=True)
    (study / FILE).write_bytes(b"".join(add_checksum(line) + b"\n" for line in lines))


def has(drift: Iterable[str], *texts: str) -> bool:
    """Whether one line has all of the texts."""
    return any(all(text in line for text in texts) for line in drift)
