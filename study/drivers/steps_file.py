"""The file in which a launch stores how far each running trial is in its epoch; `study.status` reads it."""

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
    """Replace the steps file; ignore errors, because the launch does not depend on the file."""
    with suppress(OSError):
        write_json(folder / FILE, to_plain(tuple(steps)))


def remove_steps(folder: Path) -> None:
    """Delete the steps file at the end of a launch."""
    with suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)


def read_steps(folder: Path) -> Mapping[str, Steps]:
    """Return the steps by trial key, or {} if the file cannot be read."""
    try:
        read: tuple[Steps, ...] = _STEPS.read((folder / FILE).read_bytes(), where=FILE)
    except (OSError, ValueError):
        return {}
    return {steps.key: steps for steps in read}
