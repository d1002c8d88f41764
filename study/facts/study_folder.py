"""What lies where in a study's folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

from study.facts.events import FILE

RECORDS = "records.jsonl"
DEV_TABLE = "tables/dev.md"  # written by `analysis`


def dev_table(folder: Path) -> str:
    """The study's first table as Markdown; "" where none was made."""
    path = folder / DEV_TABLE
    return path.read_text() if path.exists() else ""


def how_records_come_back(folder: Path) -> str:
    """What is to be done about a line of `records.jsonl` that cannot be read, to stand behind what is wrong with it."""
    can_be_made = (folder / FILE).exists() and (folder / RECORDS).is_file()
    return "; the same launch writes it anew from the journal" if can_be_made else ""


def predictions_file(folder: Path, key: str) -> Path:
    """The predictions of a confirm trial."""
    return folder / "predictions" / f"{key}.npz"


def predictions_digest(folder: Path, key: str) -> str | None:
    """SHA-256 of the predictions of a confirm trial; None where none are stored."""
    path = predictions_file(folder, key)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None
