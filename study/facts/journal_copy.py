"""The copy of a study's journal, and the check that the journal has not lost lines.

The journal is copied when a launch starts and when it ends. It only grows, so the newest copy contains all earlier
ones, and only the newest is kept.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from study.facts.events import FILE
from study.terminal.text import counted
from trainables.files.atomic_files import write_bytes

COPY = "events.copy.jsonl"
_RESULTS = ("predictions/*.npz", "trials/[!.]*", "records.jsonl")  # none is written before the journal's first line


def keep_copy(folder: Path) -> None:
    """Replace the journal's copy, unless both have the same size."""
    journal, copy = folder / FILE, folder / COPY
    if _read_size(copy) != _read_size(journal):
        write_bytes(copy, journal.read_bytes())


def check_not_lost(folder: Path) -> None:
    """Check that the journal of a study was not deleted, emptied or cut.

    Raises:
        ValueError: the copy continues the journal, or the journal is empty although the study has results.
    """
    journal, copy = folder / FILE, folder / COPY
    if journal.is_dir():
        return  # whoever reads it reports this
    copied_size, size = _read_size(copy), _read_size(journal)  # in this order: a launch may go on meanwhile
    if size < copied_size:
        content, copied = journal.read_bytes() if size else b"", copy.read_bytes()
        if copied.startswith(content):
            more = counted(copied.count(b"\n") - content.count(b"\n"), "more line")
            raise ValueError(
                f"{_describe_lack(journal)}, and its copy has {more}; to restore it: "
                f"{shlex.join(['cp', str(copy), str(journal)])}; to go on without these lines, delete {COPY}"
            )
    elif not size and (result := next((path for name in _RESULTS for path in folder.glob(name)), None)):
        raise ValueError(
            f"{_describe_lack(journal)}, but the study has results, such as {result.relative_to(folder)}; restore the "
            "file from a backup, or start a new study with another --name"
        )


def _describe_lack(journal: Path) -> str:
    if not journal.exists():
        return f"{journal} is missing"
    return f"{journal} was cut" if journal.stat().st_size else f"{journal} is empty"


def _read_size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
