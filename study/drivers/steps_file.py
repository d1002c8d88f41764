"""How far the epochs under way are, for `study.status` in another process. Nothing of it is in the journal."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from study.drivers.messages import Steps
from trainables.atomic_files import write_json
from trainables.schema import Reader, to_plain

FILE = "steps.json"  # in the study's folder, while a launch runs
_STEPS = Reader(tuple[Steps, ...])


def write_steps(folder: Path, steps: Collection[Steps]) -> None:
    """Replaces what is there; a launch goes on where that cannot be written."""
    with suppress(OSError):
        write_json(folder / FILE, to_plain(tuple(steps)))


def remove_steps(folder: Path) -> None:
    """Leaves no file behind at the end of a launch."""
    with suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)


def read_steps(folder: Path) -> Mapping[str, Steps]:
    """Steps by the key of the trial; none without a file that can be read."""
    try:
        found: tuple[Steps, ...] = _STEPS.read((folder / FILE).read_bytes(), where=FILE)
    except (OSError, ValueError):
        return {}
    return {steps.key: steps for steps in found}
