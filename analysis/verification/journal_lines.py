"""The lines of a study's journal, those left out that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from study.facts.events import FILE, READER, BaseEvent, Event


@dataclass(frozen=True)
class JournalLine:
    """An event and where it stands."""

    number: int  # from 1
    event: Event

    @property
    def where(self) -> str:
        return f"{FILE}:{self.number} {kind_of(self.event)}"


def kind_of(event: BaseEvent) -> str:
    """The event's name in the file: `trial_started`."""
    return str(event.__struct_config__.tag)


def read_journal(folder: Path) -> tuple[list[JournalLine], list[str]]:
    """The events that can be read, and a line for each that cannot, or that is not as the journal writes it."""
    found, broken = [], []
    for number, line in enumerate((folder / FILE).read_bytes().splitlines(keepends=True), start=1):
        try:
            event = READER.read(line, where=f"{FILE}:{number}")
        except ValueError as error:
            broken.append(str(error))
            continue
        found.append(JournalLine(number, event))
        if line != (written := msgspec.json.encode(event) + b"\n"):
            broken.append(f"{found[-1].where} is written as {line[:200]!r}; should be {written[:200]!r}")
    return found, broken
