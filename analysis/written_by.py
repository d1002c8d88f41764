"""The version of this package that writes tables and reports."""

from __future__ import annotations

import hashlib
import importlib.metadata
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = (".py", ".css", ".j2", ".toml", ".csv")


@cache
def version() -> str:
    """Format the versions of this package and of matplotlib: `0.1.0, sources 1a2b3c4d, matplotlib 3.10.9`."""
    digest = hashlib.sha256()
    for path in sorted(path for name in ("analysis", "study") for path in (ROOT / name).rglob("*")):
        if path.suffix in SOURCES:
            digest.update(
                f"{path.relative_to(ROOT).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}".encode()
            )
    ours, matplotlib = (importlib.metadata.version(name) for name in ("glue-exit-study", "matplotlib"))
    return f"{ours}, sources {digest.hexdigest()[:8]}, matplotlib {matplotlib}"
