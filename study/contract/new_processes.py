"""Runs a function in a new process, which a user's method may end, or change for good."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any


class ProcessEnded(Exception):
    """The error for a process that has ended before its function returned; the message gives the status or signal."""


class NewProcess:
    """A process that runs `function(send, *arguments)`; `receive` returns what the function sends.

    The process belongs to the group of the process that starts it, unless it is made by `new_process`.
    """

    def __init__(self, function: Callable[..., None], *arguments: Any, leads_group: bool = False) -> None:
        """Start the process; if it leads a group, all that it has started ends with it."""
        context = multiprocessing.get_context("spawn")  # a fork would share what this process has imported
        self._connection, connection = context.Pipe(duplex=False)
        self._process = context.Process(target=_run, args=(connection, leads_group, function, *arguments))
        self._leads_group, self._has_ended = leads_group, False
        self._process.start()
        connection.close()
        assert self._process.pid is not None
        self._number = self._process.pid
        # Ready once the process has ended, although a forked child may hold the sentinel's pipe; Linux only.
        self._exit = os.pidfd_open(self._number) if hasattr(os, "pidfd_open") else self._process.sentinel

    def receive(self) -> Any:
        """Wait for the next object, and return it; return None if the function has returned.

        Raises:
            ProcessEnded: if the process has ended instead.
        """
        if self._connection in wait([self._connection, self._exit]):
            with suppress(EOFError):
                return self._connection.recv()
        wait([self._exit])
        self._end_group()
        raise ProcessEnded(describe_status(self._process.exitcode or 0))

    def end(self) -> None:
        """Kill the process and its group, if they are still running."""
        self._connection.close()
        if not self._has_ended:
            self._process.kill()
            self._end_group()

    def _end_group(self) -> None:
        """Kill what the process has started, before another process can get its number; then wait for its end."""
        if self._leads_group:
            with suppress(ProcessLookupError, PermissionError):  # PermissionError: on macOS, if only a zombie is left
                os.killpg(self._number, signal.SIGKILL)
        self._process.join()
        if self._exit != self._process.sentinel:
            os.close(self._exit)
        self._has_ended = True


@contextmanager
def new_process(function: Callable[..., None], *arguments: Any) -> Iterator[NewProcess]:
    """Start a process that leads a group, and end the group with the context."""
    process = NewProcess(function, *arguments, leads_group=True)
    try:
        yield process
    finally:
        process.end()


def describe_status(status: int) -> str:
    """Describe the exit status of a process, as `multiprocessing` gives it."""
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def _run(connection: Connection, leads_group: bool, function: Callable[..., None], *arguments: Any) -> None:
    if leads_group:
        os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the command, which ends this process
    function(connection.send, *arguments)
    connection.send(None)
