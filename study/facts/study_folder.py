"""What lies where in a study's folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

RECORDS = "records.jsonl"
DEV_TABLE = "tables/dev.md"  # written by `analysis`


def dev_table(folder: Path) -> str:
    """The study's first table as Markdown; "" where none was made."""
    path = folder / DEV_TABLE
    return path.read_text() if path.exists() else ""


def predictions_file(folder: Path, key: str) -> Path:
    """The predictions of a confirm trial."""
    return folder / "predictions" / f"{key}.npz"


def predictions_digest(folder: Path, key: str) -> str | None:
    """SHA-256 of the predictions of a confirm trial; None where none are stored."""
    path = predictions_file(folder, key)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None
