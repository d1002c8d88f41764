"""Study folders whose journal was edited, with the records that it repeats; and what is said about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

import msgspec

from study.facts.chain import SEAL, START, linked, unlinked
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
    """The journal with these lines and the records that they have, by a hand that makes their chain anew too."""
    (study / FILE).write_bytes(b"".join(line + b"\n" for line in rechained(lines)))
    (study / SEAL).unlink(missing_ok=True)
    records = [event.record for event in read_events(study) if isinstance(event, TrialEnded)]
    (study / "records.jsonl").write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))


def rechained(lines: Iterable[bytes]) -> list[bytes]:
    """The lines with a chain that holds, and its heads in their records."""
    head, chained = START, []
    for line in lines:
        chained.append(_linked(line, head))
        head = unlinked(chained[-1])[1]
    return chained


@lru_cache(maxsize=1000)
def _linked(line: bytes, head: str) -> bytes:
    """The line behind a chain that ends so; remembered, as many edited journals begin alike."""
    body, chain = unlinked(line)
    if chain and b'"record":' not in line:
        return linked(body, head)
    plain = json.loads(line)
    plain.pop("chain", None)
    if isinstance(plain.get("record"), dict):
        plain["record"]["journal_head"] = head
    return linked(msgspec.json.encode(plain), head)


def has(drift: Iterable[str], *texts: str) -> bool:
    """Whether one line has all of the texts."""
    return any(all(text in line for text in texts) for line in drift)
