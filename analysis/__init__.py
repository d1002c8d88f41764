"""Make tables, statistics, pictures and reports of finished or running studies, without importing torch or Ray."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.studies.frames import Frames

# Load the module by its path, because `import study` may find another package of that name.
_spec = spec_from_file_location("own_packages", Path(__file__).parents[1] / "study" / "own_packages.py")
assert _spec is not None and _spec.loader is not None
_own_packages = module_from_spec(_spec)
_spec.loader.exec_module(_own_packages)
_own_packages.require_environment()
_own_packages.handle_interrupts_early()
_own_packages.require_not_shadowed("search_spaces", "study", "trainables")


def load(folder: Path | str | None = None) -> Frames:
    """Load a finished or running study as pandas data frames; by default, load the newest study in `runs/`.

    Raises:
        ValueError: the folder has no study, or the study is damaged.
    """
    from analysis.studies.frames import Frames
    from analysis.studies.load import load_study, newest_study

    return Frames(load_study(folder or newest_study()))
