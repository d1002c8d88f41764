"""The hash chain of the journal: the last field of every line is a hash of the line and of the chain before it.

A line that was edited, put in, cut out or moved is found with its number, without a line being decoded. A cut of the
last lines is found by the seal, which a launch leaves when it closes the journal; of a launch that was killed, by the
records, each of which names the chain before its own event. It is no signature: whoever writes all of a folder anew
makes a chain that holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from trainables.atomic_files import write_json
from trainables.configuration import Count
from trainables.schema import Reader, Typed, to_plain

SEAL = "journal.seal"
START = "0" * 16  # the chain before the first line
_FIELD, _END = b',"chain":"', b'"}'
_LENGTH = len(_FIELD) + len(START) + len(_END)


def linked(line: bytes, before: str) -> bytes:
    """A JSON object with its chain as the last field; `before` is the chain of the line before."""
    return line[:-1] + _FIELD + _link(line, before).encode() + _END


def unlinked(line: bytes) -> tuple[bytes, str]:
    """A line of a journal without its chain, and the chain; "" where it has none."""
    line = line.removesuffix(b"\n")
    if line[-_LENGTH : -_LENGTH + len(_FIELD)] != _FIELD or not line.endswith(_END):
        return line, ""
    return line[:-_LENGTH] + b"}", line[-_LENGTH + len(_FIELD) : -len(_END)].decode(errors="replace")


def chained(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of JSON without their ends, as a journal of them alone has them."""
    head = START
    for line in lines:
        whole = linked(line, head)
        head = unlinked(whole)[1]
        yield whole + b"\n"


class ChainCheck:
    """Follows the lines of a journal, from its first or from where an earlier check had come."""

    def __init__(self, head: str = START) -> None:
        self.head = head  # the chain of the last line that was followed

    def fault(self, line: bytes) -> str | None:
        """What is wrong with the next line, in words. A break is told once: the lines after it are held against it."""
        body, found = unlinked(line)
        before, self.head = self.head, found
        if found == _link(body, before):
            return None
        return (
            f"chain is {found!r}, which this line after the one before it does not give: this line was edited or put "
            "in, or lines before it were edited, cut out or moved"
        )


class Seal(Typed, frozen=True, kw_only=True):
    """How far a journal went when a launch closed it. Later lines may follow: of a launch that was killed."""

    lines: Count
    chain: str  # of the last of them


_SEALS = Reader(Seal)


def write_seal(folder: Path, lines: int, chain: str) -> None:
    """Replaces the seal of the journal, which has so many lines and this chain at its end."""
    write_json(folder / SEAL, to_plain(Seal(lines=lines, chain=chain)))


def seal_fault(folder: Path, lines: Sequence[bytes]) -> str | None:
    """What is wrong with the end of a journal's lines by the seal of its study's folder, in words."""
    path = folder / SEAL
    if not path.exists():  # no launch has closed it yet
        return None
    try:
        seal: Seal = _SEALS.read(path.read_bytes(), where=SEAL)
    except ValueError as error:
        return f"cannot be held against its seal: {error}"
    if len(lines) < seal.lines:
        return f"ends with line {len(lines)}; {SEAL} says {seal.lines}: the lines after it were cut off"
    found = unlinked(lines[seal.lines - 1])[1] if seal.lines else START
    return None if found == seal.chain else f"line {seal.lines} has chain {found!r}; {SEAL} says {seal.chain!r}"


def checked_head(path: Path, lines: Iterable[bytes]) -> str:
    """The chain of the last of a journal's lines.

    Raises:
        ValueError: the chain does not hold; file and line are named.
    """
    check = ChainCheck()
    for number, line in enumerate(lines, start=1):
        if fault := check.fault(line):
            raise ValueError(f"{path}:{number}: {fault}")
    return check.head


def _link(line: bytes, before: str) -> str:
    return hashlib.blake2b(before.encode() + line, digest_size=len(START) // 2).hexdigest()
