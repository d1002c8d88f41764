"""Whether Python finds our packages, or somebody else's of the same names first. This imports next to nothing."""

import os
import sys
from collections.abc import Sequence

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # where our packages lie
PACKAGES = ("analysis", "search_spaces", "study", "trainables")
CONSOLE = "glue-study"  # the name under which all commands can be called


def check_own(*names: str, path: Sequence[str] | None = None) -> None:
    """Passes if packages of these names are ours, where Python looks for them in `path`, or else in `sys.path`.

    Raises:
        ValueError: somebody else's is found first.
    """
    for name in names:
        found = _found(name, sys.path if path is None else path)
        if found and not os.path.realpath(found).startswith(os.path.join(ROOT, name, "")):
            folder = os.path.dirname(found if found.endswith(f"{name}.py") else os.path.dirname(found))
            way = f"take {folder} from PYTHONPATH"
            if os.path.realpath(folder) == os.path.realpath(os.curdir):
                way = "run the command in another folder"
            ours = f"{os.path.join(ROOT, name)}, the package {name} of glue-exit-study"
            raise ValueError(f"{found} is found before {ours}; {way}, or rename the first")


def require_own(*names: str) -> None:
    """As `check_own`, for what is imported: a command ends with the one line, and any other importer gets it.

    Raises:
        ImportError: somebody else's is found first, and no command of ours is what imports.
    """
    try:
        check_own(*names)
    except ValueError as error:
        if os.path.basename(sys.argv[0]) in ("-m", CONSOLE):  # the first while Python locates what `-m` names
            raise SystemExit(f"{CONSOLE}: {error}") from None
        raise ImportError(str(error)) from None


def _found(name: str, path: Sequence[str]) -> str | None:
    """The file, or the folder without one, that an import of a package would begin with."""
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path)
        if spec is not None:
            return os.path.abspath(spec.origin or os.path.join([*(spec.submodule_search_locations or "")][0], ""))
    return None
