"""The output of a process: a moving line in a terminal, and silence once the terminal is gone."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_OUTPUTS = ("stdout", "stderr")


def console_on(output: TextIO) -> Console:
    """Make a console without highlighting."""
    return Console(file=output, highlight=False)


def can_redraw(console: Console) -> bool:
    """Check if lines can be written over: `TERM=dumb` is a terminal too, but cannot move its cursor."""
    return console.is_terminal and not console.is_dumb_terminal


@contextmanager
def waiting_for(what: str, *, output: TextIO) -> Iterator[Callable[[], None]]:
    """Show a moving line until the block ends or the yielded function is called; nothing if no line can move."""
    console = console_on(output)
    words = f"waiting for {what}"
    if not can_redraw(console):
        yield lambda: None
        return
    columns = (SpinnerColumn(), TextColumn(words, markup=False), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True)
    with progress:
        progress.add_task(words, total=None)
        yield progress.stop


class LastingOutput(io.TextIOWrapper):
    """A standard output or error that becomes silent once its reader or its terminal is gone."""

    def __init__(self, stream: TextIO):
        """Take the place of a stream with a file descriptor."""
        settings: dict[str, Any] = {name: getattr(stream, name) for name in ("encoding", "errors", "line_buffering")}
        super().__init__(os.fdopen(stream.fileno(), "wb", closefd=False), **settings)
        self.lost: OSError | None = None  # what came first when it could not be written

    def write(self, text: str, /) -> int:
        """Write the text, or drop it after an error."""
        with self._silent_when_lost():
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or do nothing after an error."""
        with self._silent_when_lost():
            super().flush()

    @contextmanager
    def _silent_when_lost(self) -> Iterator[None]:
        """Redirect the descriptor to nowhere after an error, for the processes that inherit it too."""
        try:
            yield
        except OSError as error:
            self.lost = self.lost or error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)


@contextmanager
def lasting_outputs() -> Iterator[None]:
    """Let this process outlive its terminal and readers, and its children ignore SIGHUP too."""
    streams, on_hangup = (sys.stdout, sys.stderr), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for name, stream in zip(_OUTPUTS, streams, strict=True):
        stream.flush()
        with suppress(io.UnsupportedOperation):  # it is in memory
            setattr(sys, name, LastingOutput(stream))
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout, sys.stderr = streams
        signal.signal(signal.SIGHUP, on_hangup)


def lost_outputs() -> str | None:
    """Describe the outputs that were lost; None if all are written."""
    outputs = {name: getattr(sys, name) for name in _OUTPUTS}
    errors = {name: out.lost.strerror for name, out in outputs.items() if isinstance(out, LastingOutput) and out.lost}
    return f"went on without {' and '.join(f'{name} ({error})' for name, error in errors.items())}" if errors else None
