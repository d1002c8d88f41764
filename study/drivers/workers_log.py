"""The size of the log of the workers: a method may print gigabytes."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

LOG_BYTES = 100 * 2**20


def shorten_log(log: Path) -> None:
    """If the log has more than `LOG_BYTES`, move its end to the file `NAME.1`, replacing it, and empty the log.

    The workers append to the log, so they continue at its new end. What they write during the move may be lost.
    """
    with suppress(OSError):  # there is no log yet, or the disk is full
        size = log.stat().st_size
        if size <= LOG_BYTES:
            return
        try:
            with log.open("rb") as file, log.with_name(f"{log.name}.1").open("wb") as end:
                file.seek(size - LOG_BYTES)
                shutil.copyfileobj(file, end)
        finally:
            os.truncate(log, 0)
