"""Ctrl-C while a command still imports what it needs: one line, as later. This imports next to nothing."""

import os
import signal


def end_in_one_line(command: str) -> None:
    """From now on Ctrl-C ends the command at once, in one line, with status 1; `guarded` takes it over."""

    def interrupted(*_: object) -> None:
        os.write(2, f"{command}: interrupted, nothing was begun\n".encode())
        os._exit(1)

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # in the background of a script
            signal.signal(number, interrupted)
