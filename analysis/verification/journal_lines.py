"""The lines of a study's journal, those left out that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from study.facts.chain import START, ChainCheck, linked, seal_fault
from study.facts.events import FILE, READER, BaseEvent, Event


@dataclass(frozen=True)
class JournalLine:
    """An event and where it stands."""

    number: int  # from 1
    event: Event
    head: str = START  # chain of the line before

    @property
    def where(self) -> str:
        return f"{FILE}:{self.number} {kind_of(self.event)}"


def kind_of(event: BaseEvent) -> str:
    """The event's name in the file: `trial_started`."""
    return str(event.__struct_config__.tag)


@dataclass(frozen=True)
class ReadJournal:
    """The lines of a journal, those left out that cannot be read."""

    lines: list[JournalLine]
    faults: list[str]  # one for each that cannot be read, is not as the journal writes it, or whose chain does not hold
    unread: list[int]  # numbers of the lines that cannot be read


def read_journal(folder: Path) -> ReadJournal:
    """What can be read of a journal, and what is wrong with its lines; lines that were cut off at its end too.

    A line that cannot be read breaks its own chain and that of the line after it: that is not said again.
    """
    found, broken, unread, chain = [], [], list[int](), ChainCheck()
    lines = (folder / FILE).read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        head, fault = chain.head, chain.fault(line)
        try:
            event = READER.read(line, where=f"{FILE}:{number}")
        except ValueError as error:
            broken.append(str(error))
            unread.append(number)
            continue
        if fault and number - 1 not in unread:
            broken.append(f"{FILE}:{number}: {fault}")
        found.append(JournalLine(number, event, head))
        if not fault and line != (written := linked(msgspec.json.encode(event), head) + b"\n"):
            broken.append(f"{found[-1].where} is written as {line[:200]!r}; should be {written[:200]!r}")
    if fault := seal_fault(folder, lines):
        broken.append(f"{FILE} {fault}")
    return ReadJournal(found, broken, unread)
