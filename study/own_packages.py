"""Prepare the process of a command before other modules are imported; so this module imports next to nothing.

From the first moment, Ctrl-C ends the command in one line, file names are UTF-8, and packages of others that have the
same name as ours are refused.
"""

import importlib.util
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]  # folder of our packages
PACKAGES = ("analysis", "search_spaces", "study", "trainables")
CONSOLE = "glue-study"  # the program that runs every command


def end_in_one_line() -> None:
    """Make Ctrl-C end a command of this project with one line and status 1, until `guarded` takes over.

    The packages call this first when they are imported, because imports take a while. If the importing process is not a
    command of this project, nothing changes. In a locale without UTF-8, the command restarts in UTF-8 mode, because
    paths must be written in UTF-8 into journals and pages.
    """
    command = _command()
    if command is None:
        return
    _open_closed_streams()
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.ignore_environment:
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

    def interrupted(*_: object) -> None:
        os.write(2, f"{command}: interrupted, nothing was begun\n".encode())
        os._exit(1)

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # already ignored in a script's background
            signal.signal(number, interrupted)


def _open_closed_streams() -> None:
    """Open closed standard streams on the null device, because the next opened file would take their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
            setattr(sys, name, os.fdopen(opened, "w" if number else "r"))


def check_own(*names: str, path: Sequence[str] | None = None) -> None:
    """Check that Python finds our packages of these names first, in `path` or else in `sys.path`.

    Raises:
        ValueError: if another package is found before ours.
    """
    for name in names:
        found = _found(name, sys.path if path is None else path)
        if found and not found.resolve().is_relative_to(ROOT / name):
            folder = found.parents[1] if found.name == "__init__.py" else found.parent
            way = f"take {folder} from PYTHONPATH"
            if folder.resolve() == Path.cwd():
                way = "run the command in another folder"
            ours = f"{ROOT / name}, the package {name} of glue-exit-study"
            raise ValueError(f"{found} is found before {ours}; {way}, or rename the first")


def require_own(*names: str) -> None:
    """Check during import that Python finds our packages first; a command of this project ends with one line if not.

    Raises:
        ImportError: if another package is found before ours, and the importer is not a command of this project.
    """
    try:
        check_own(*names)
    except ValueError as error:
        if Path(sys.argv[0]).name in ("-m", CONSOLE):  # `-m` while Python locates the module
            raise SystemExit(f"{CONSOLE}: {error}") from None
        raise ImportError(str(error)) from None


def is_installed(package: str) -> bool:
    """Check whether a package can be imported, without importing it."""
    return importlib.util.find_spec(package) is not None


def _command() -> str | None:
    """Name the command of this project that this process runs, such as `study.launch`; None for other processes."""
    name = Path(sys.argv[0]).name
    if name not in ("-m", CONSOLE):  # `-m` while Python locates the module
        return None
    started_as = sys.orig_argv[-len(sys.argv) :][0]  # the word before the arguments; it differs in worker processes
    if name == CONSOLE:
        return CONSOLE if Path(started_as).name == CONSOLE else None
    package, _, module = started_as.removeprefix("-m").partition(".")
    return f"{package}.{module}" if package in ("analysis", "study") and module.isidentifier() else None


def _found(name: str, path: Sequence[str]) -> Path | None:
    """Find the file that an import of a package would load first, or the package's folder if it has no such file."""
    for finder in sys.meta_path:
        if spec := finder.find_spec(name, path):
            return Path(spec.origin or next(iter(spec.submodule_search_locations or [""]))).absolute()
    return None
