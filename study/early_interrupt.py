"""Ctrl-C while a command still imports what it needs: one line, as later. This imports next to nothing."""

import os
import signal
import sys

from study.own_packages import CONSOLE


def end_in_one_line() -> None:
    """From now on Ctrl-C ends a command of ours at once, in one line, with status 1; `guarded` takes it over.

    The packages call this as the first thing when they are imported, for what a command imports takes a while. Where
    another process imports them, nothing is changed.
    """
    command = _command()
    if command is None:
        return

    def interrupted(*_: object) -> None:
        os.write(2, f"{command}: interrupted, nothing was begun\n".encode())
        os._exit(1)

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # in the background of a script
            signal.signal(number, interrupted)


def _command() -> str | None:
    """The command that this process was started as, `study.launch` or the console's; None if it is none of ours."""
    name = os.path.basename(sys.argv[0])
    if name not in ("-m", CONSOLE):  # the first while Python locates what `-m` names
        return None
    started_as = sys.orig_argv[-len(sys.argv) :][0]  # what stands before the arguments; of its workers something else
    if name == CONSOLE:
        return CONSOLE if os.path.basename(started_as) == CONSOLE else None
    package, _, module = started_as.removeprefix("-m").partition(".")
    return f"{package}.{module}" if package in ("analysis", "study") and module.isidentifier() else None
