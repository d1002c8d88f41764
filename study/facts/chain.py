"""The hash chain of the journal: the last field of every line is a hash of the line and of the chain before it.

A line that was edited, put in, cut out or moved is found with its number, without a line being decoded. A cut of the
last lines is found by the records, each of which names the chain before its own event, and by tables and report, which
name the digest of the records. It is no signature: whoever writes all of a folder anew makes a chain that holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

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
