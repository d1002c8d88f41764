"""What lies where in a study's folder."""

from __future__ import annotations

from pathlib import Path

RECORDS = "records.jsonl"


def predictions_file(folder: Path, key: str) -> Path:
    """The predictions of a confirm trial."""
    return folder / "predictions" / f"{key}.npz"
