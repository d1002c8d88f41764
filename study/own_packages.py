"""Check that no other package hides a package of this project by having the same name.

This module imports only the standard library.
"""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]  # the folder that contains this project's packages
PACKAGES = ("analysis", "search_spaces", "study", "trainables")
CONSOLE = "glue-study"  # the program that runs every command


def check_not_shadowed(*names: str, path: Sequence[str] | None = None) -> None:
    """Check that an import of each name finds the package of this project.

    The search uses `path` or, by default, `sys.path`.

    Raises:
        ValueError: if Python finds another package of that name first.
    """
    for name in names:
        file = _find_package(name, sys.path if path is None else path)
        if file and not file.resolve().is_relative_to(ROOT / name):
            folder = file.parents[1] if file.name == "__init__.py" else file.parent
            is_here = folder.resolve() == Path.cwd()
            advice = "run the command in another folder" if is_here else f"remove {folder} from PYTHONPATH"
            ours = f"{ROOT / name}, the package {name} of glue-exit-study"
            raise ValueError(f"{file} is found before {ours}; {advice}, or rename the other package")


def require_not_shadowed(*names: str) -> None:
    """Check that imports find this project's packages.

    If not, a command of this project exits with a one-line error, and any other process gets an ImportError.

    Raises:
        ImportError: if an import finds another package, and this process runs no command of this project.
    """
    try:
        check_not_shadowed(*names)
    except ValueError as error:
        if Path(sys.argv[0]).name in ("-m", CONSOLE):  # `-m` while Python locates the module
            raise SystemExit(f"{CONSOLE}: {error}") from None
        raise ImportError(str(error)) from None


def is_installed(package: str) -> bool:
    """Check whether a package can be imported, without importing it."""
    return importlib.util.find_spec(package) is not None


def _find_package(name: str, path: Sequence[str]) -> Path | None:
    """Return the file that an import of `name` loads first.

    If `name` is a package without `__init__.py`, return its folder. If there is no such module, return None.
    """
    for finder in sys.meta_path:
        if spec := finder.find_spec(name, path):
            return Path(spec.origin or next(iter(spec.submodule_search_locations or [""]))).absolute()
    return None
