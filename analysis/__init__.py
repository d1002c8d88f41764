"""Make tables, statistics, pictures and reports of finished or running studies, without importing torch or Ray."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.frames import Frames

# Load the module by its path, because `import study` may find another package of that name.
_spec = spec_from_file_location("processes", Path(__file__).parents[1] / "study" / "terminal" / "processes.py")
assert _spec is not None and _spec.loader is not None
_processes = module_from_spec(_spec)
_spec.loader.exec_module(_processes)
_processes.require_environment()
_processes.handle_interrupts_early()
_processes.require_not_shadowed("search_spaces", "study", "trainables")


def load(folder: Path | str | None = None, *, data: str | None = None) -> Frames:
    """Load a finished or running study as pandas data frames; by default, load the newest study in `runs/`.

    Args:
        data: the data of the study, as `--data` of its launch, for the texts in the frame `predictions`.

    Raises:
        ValueError: the folder has no study, or the study is damaged.
    """
    from analysis.frames import Frames
    from analysis.studies.load import load_study, newest_study

    return Frames(load_study(folder or newest_study()), data)
