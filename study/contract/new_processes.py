"""Runs a function in a new process, which a user's method may end, or change for good."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any


class ProcessEnded(Exception):
    """The error for a process that has ended before its function returned; the message gives the status or signal."""


class NewProcess:
    """A process that runs `function(send, *arguments)`; `receive` returns what the function sends."""

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        """Start the process."""
        context = multiprocessing.get_context("spawn")  # a fork would share what this process has imported
        self._connection, connection = context.Pipe(duplex=False)
        self._process = context.Process(target=_run, args=(connection, function, *arguments))
        self._process.start()
        connection.close()

    def receive(self) -> Any:
        """Wait for the next object, and return it; return None if the function has returned.

        Raises:
            ProcessEnded: if the process has ended instead.
        """
        try:
            return self._connection.recv()
        except EOFError:
            self._process.join()
            raise ProcessEnded(describe_status(self._process.exitcode or 0)) from None

    def end(self) -> None:
        """Kill the process, if it is still running."""
        self._connection.close()
        self._process.kill()
        self._process.join()


@contextmanager
def new_process(function: Callable[..., None], *arguments: Any) -> Iterator[NewProcess]:
    """Start a process, and end it with the context."""
    process = NewProcess(function, *arguments)
    try:
        yield process
    finally:
        process.end()


def describe_status(status: int) -> str:
    """Describe the exit status of a process, as `multiprocessing` gives it."""
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def _run(connection: Connection, function: Callable[..., None], *arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the command, which ends this process
    function(connection.send, *arguments)
    connection.send(None)
