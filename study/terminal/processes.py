"""Prepare the process of a command before its slow imports. This module imports only the standard library.

After the preparation, Ctrl-C ends the command with a one-line message, and file names are encoded in UTF-8. The module
also checks that Python has the packages that this project needs, and that no other package hides one of its own.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # the folder that contains this project's packages
PACKAGES = ("analysis", "search_spaces", "study", "trainables")
CONSOLE = "glue-study"  # the program that runs every command
EXTRA = "train"  # the extra of pyproject.toml that training needs; plans and finished studies do without it
# Modules of the packages that this extra installs, and of some that these bring along.
EXTRA_MODULES = (
    "datasets",
    "huggingface_hub",
    "mlflow",
    "pyarrow",
    "ray",
    "safetensors",
    "sklearn",
    "tokenizers",
    "torch",
    "transformers",
)
# Ctrl-C and the signals by which schedulers ask a job to end. SLURM, LSF, Grid Engine and PBS send SIGTERM, SIGUSR1 or
# SIGUSR2 before they preempt a job; SIGXCPU comes when a limit on CPU time is reached.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)


def require_environment() -> None:
    """Check that this Python is new enough and has this project's dependencies; it may be another than the project's.

    `study` and `analysis` call this function before all else.

    Raises:
        SystemExit: in a command of this project, if a dependency is missing.
        ImportError: in any other process, if a dependency is missing.
    """
    is_old = sys.version_info < (3, 11)
    if not is_old and is_installed("msgspec"):  # every command imports this dependency first
        return
    fault = f"{sys.executable} ({sys.version.split()[0]}) " + ("is too old" if is_old else "lacks the package msgspec")
    python = ROOT / ".venv" / "bin" / "python"
    remedy = "run the command with" if python.exists() else "install the project (README.md), then use"
    message = f"{fault}; {remedy} {_shorten(python)}"
    if Path(sys.argv[0]).name == "-m":
        raise SystemExit(f"{CONSOLE}: {message} -m ...")
    raise ImportError(message)


def _shorten(path: Path) -> str:
    """Return the path relative to the current folder if it is inside this folder."""
    return str(path.relative_to(Path.cwd())) if Path.cwd() in path.parents else str(path)


def handle_interrupts_early() -> None:
    """Make `STOP_SIGNALS` end this command with a one-line message and status 1.

    `study` and `analysis` call this function early, because their imports take seconds. Later, `guarded` handles the
    signals. The function does nothing if the process runs no command of this project. In a locale without UTF-8, the
    function restarts the command in UTF-8 mode.
    """
    command = _command()
    if command is None:
        return
    _open_closed_streams()
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.ignore_environment:
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

    def interrupted(*_: object) -> None:
        os.write(2, f"{command}: interrupted; nothing was started\n".encode())
        os._exit(1)

    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # a script's background commands ignore the signal
            signal.signal(number, interrupted)


def _open_closed_streams() -> None:
    """Connect closed standard streams to the null device, so that no other file gets their descriptors."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
            setattr(sys, name, os.fdopen(opened, "w" if number else "r"))


def check_not_shadowed(*names: str, path: Sequence[str] | None = None) -> None:
    """Check that imports of `names` find the packages of this project.

    The search uses `path` or, by default, `sys.path`.

    Raises:
        ValueError: if Python finds another package first.
    """
    for name in names:
        file = _find_package(name, sys.path if path is None else path)
        if file and not file.resolve().is_relative_to(ROOT / name):
            folder = file.parents[1] if file.name == "__init__.py" else file.parent
            is_here = folder.resolve() == Path.cwd()
            advice = "run the command in another folder" if is_here else f"remove {folder} from PYTHONPATH"
            ours = f"{ROOT / name}, the package {name} of glue-exit-study"
            raise ValueError(f"Python imports {file} instead of {ours}; {advice}, or rename the package in {folder}")


def require_not_shadowed(*names: str) -> None:
    """Check that imports of `names` find the packages of this project.

    Raises:
        SystemExit: in a command of this project, if an import finds another package.
        ImportError: in any other process, if an import finds another package.
    """
    try:
        check_not_shadowed(*names)
    except ValueError as error:
        if Path(sys.argv[0]).name in ("-m", CONSOLE):  # argv[0] is "-m" until Python has located the module
            raise SystemExit(f"{CONSOLE}: {error}") from None
        raise ImportError(str(error)) from None


def is_installed(package: str) -> bool:
    """Check whether a package can be imported, without importing it."""
    return importlib.util.find_spec(package) is not None


def require_package(package: str, what: str = "this command") -> None:
    """Raise ValueError if a package of the extra `train`, which `what` needs, is not installed."""
    if not is_installed(package):
        raise ValueError(f"{what} {describe_missing(package)}")


def describe_missing(package: str) -> str:
    """Describe a missing package of the extra `train` as the end of a sentence, with the command that installs it."""
    is_checkout = (ROOT / "pyproject.toml").is_file()
    project = f"-e '{ROOT}[{EXTRA}]'" if is_checkout else f"'glue-exit-study[{EXTRA}]'"
    command = f"pip install {project}"
    return f"needs the package {package}, which is not installed; to install all that training needs: {command}"


def _command() -> str | None:
    """Return this process's command, such as `study.launch`, or None if the process runs no command of this project."""
    name = Path(sys.argv[0]).name
    if name not in ("-m", CONSOLE):  # argv[0] is "-m" until Python has located the module
        return None
    started_as = sys.orig_argv[-len(sys.argv) :][0]  # the word before the arguments; it differs in worker processes
    if name == CONSOLE:
        return CONSOLE if Path(started_as).name == CONSOLE else None
    package, _, module = started_as.removeprefix("-m").partition(".")
    return f"{package}.{module}" if package in ("analysis", "study") and module.isidentifier() else None


def _find_package(name: str, path: Sequence[str]) -> Path | None:
    """Return the file that an import of `name` loads first; None if there is no such module.

    For a package without `__init__.py`, return the folder.
    """
    for finder in sys.meta_path:
        if spec := finder.find_spec(name, path):
            return Path(spec.origin or next(iter(spec.submodule_search_locations or [""]))).absolute()
    return None
