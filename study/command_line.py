"""What all commands share: options as typed values, and every error that a user can cause in one line on stderr."""

from __future__ import annotations

import argparse
import os
import re
import select
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

from study.facts.plain_words import on_screen, wrapped
from study.own_packages import CONSOLE, PACKAGES, check_own
from study.storage.secrets import masked
from trainables.schema import from_plain
from trainables.spelling import nearest_in_words

T = TypeVar("T")
SEVERAL = ("method", "task")  # options that take a,b,c


class _Help(argparse.HelpFormatter):
    """Help whose lines fit: argparse itself breaks neither titles of groups nor menus."""

    def format_help(self) -> str:
        lines = super().format_help().split("\n")
        return "\n".join(line if len(line) <= self._width else _broken(line, self._width) for line in lines)


def _broken(line: str, width: int) -> str:
    """At blanks, and behind the bars of a menu."""
    return re.sub("\1 ?", "", wrapped(line.replace("|", "|\1 "), width))


class Parser(argparse.ArgumentParser):
    """A parser of one command's options."""

    def __init__(self, command: str, description: str, *, epilog: str | None = None) -> None:
        """`command` is the module that `python -m` runs, or the console's."""
        prog = f"python -m {command}" if "." in command else command
        if Path(sys.argv[0]).stem == CONSOLE:
            prog = f"{CONSOLE} {command.partition('.')[2]}" if "." in command else command
        super().__init__(prog=prog, description=description, epilog=epilog, allow_abbrev=False, formatter_class=_Help)

    def error(self, message: str) -> NoReturn:
        if wrong := re.fullmatch(r"argument (\S+): invalid (int|float) value: (.*)", message):
            message = f"{wrong[1]} is {wrong[3]}; allowed: {'a whole number' if wrong[2] == 'int' else 'a number'}"
            if wrong[2] == "int" and "," in wrong[3]:
                action = next(action for action in self._actions if wrong[1] in action.option_strings)
                message += f", not a list: {action.help}"
        raise ValueError(f"{message}; see --help")

    def complete(self, **values: Sequence[str]) -> None:
        """Offers these values of options, by name, to a shell that completes a line."""
        for action in self._actions:
            if action.dest in values:
                setattr(action, "completer", partial(_completed, values[action.dest]))

    def options(self, kind: type[T], arguments: Sequence[str] | None) -> T:
        """The options of a command line as a `kind`, whose fields are the options' names.

        Raises:
            ValueError: an option is unknown, missing or out of its range.
        """
        known, unknown = self.parse_known_args(arguments)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
            near = nearest_in_words(unknown[0].partition("=")[0], flags) if unknown[0].startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        values = vars(known)
        for action in self._actions:
            if "" in (given if isinstance(given := values.get(action.dest), list) else [given]):
                name = next((flag for flag in action.option_strings if flag.startswith("--")), action.metavar)
                raise ValueError(f"{name} is ''; allowed: some text{', or leave it out' * (not action.required)}")
        try:
            return from_plain(kind, values, where="--")
        except ValueError as error:
            field, _, fault = str(error).removeprefix("--: ").partition(" ")
            raise ValueError(f"--{field.replace('_', '-')} {fault}") from None


def _completed(names: Sequence[str], *, prefix: str, action: argparse.Action, **_: object) -> list[str]:
    """Names that the word could become; of an option that takes several behind each other, the last of them."""
    before, comma, _last = prefix.rpartition(",")
    if comma and action.dest not in SEVERAL:
        return []
    given = before.split(",")
    return [f"{before}{comma}{name}" for name in names if name not in given]


def guarded(command: str, main: Callable[[], int], *, after_interrupt: str = "") -> int:
    """The exit status of a command: what `main` returns; 2 after a `ValueError`, 1 after Ctrl-C or a fault of the disk.

    Each of these is told in one line, which ends with `after_interrupt` where nothing was wrong with the request. A
    reader of the output that goes away (`| head`) ends the command without a word.
    """
    warnings.formatwarning = _one_line
    try:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
        check_own("study", *{command.partition(".")[0]} & {*PACKAGES})
        status = main()
        sys.stdout.flush()
        return status
    except ValueError as error:
        message, status = str(error).removeprefix(f"{command}: "), 2
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, lambda *_: os._exit(1))  # no tracebacks of what ends now
        message, status = f"interrupted{after_interrupt}", 1
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE
        message, status = f"{error}{after_interrupt}", 1
    print(on_screen(f"{command}: {masked(message)}", sys.stderr), file=sys.stderr)
    return status


def _nobody_reads() -> bool:
    """Whether it is standard output whose reader has gone, and no other pipe or connection."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # errors alone
    return bool(poll.poll(0))


def _one_line(message: Warning | str, *_: object, **__: object) -> str:
    return f"warning: {message}\n"
