"""What the analysis commands share: an error that a user can cause is one line on stderr and exit status 2."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors are ValueErrors, for `run` to report."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def run(main: Callable[[], int]) -> None:
    """Runs a command and exits with its status; ValueErrors and file errors become one line, warnings too."""
    warnings.formatwarning = _one_line
    try:
        status = main()
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        status = 2
    sys.exit(status)


def _one_line(message: Warning | str, *_: object, **__: object) -> str:
    return f"warning: {message}\n"
