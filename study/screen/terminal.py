"""Terminal output: an animated line while a command waits, and output that survives the loss of the terminal."""

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
    """Return a rich console for this stream, without highlighting."""
    return Console(file=output, highlight=False)


def can_redraw(console: Console) -> bool:
    """Check whether the console is a terminal that can overwrite lines; a terminal with `TERM=dumb` cannot."""
    return console.is_terminal and not console.is_dumb_terminal


@contextmanager
def show_waiting(what: str, *, output: TextIO) -> Iterator[Callable[[], None]]:
    """Show `waiting for WHAT` as an animated line until the block ends or the yielded function is called.

    Shows nothing if `output` is not a terminal that can overwrite lines.
    """
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
    """A replacement for sys.stdout or sys.stderr that drops all text after the reader or the terminal is gone."""

    def __init__(self, stream: TextIO):
        """Use the file descriptor and the encoding of `stream`."""
        settings: dict[str, Any] = {name: getattr(stream, name) for name in ("encoding", "errors", "line_buffering")}
        super().__init__(os.fdopen(stream.fileno(), "wb", closefd=False), **settings)
        self.lost: OSError | None = None  # the first error of a write

    def write(self, text: str, /) -> int:
        """Write the text, or drop it if the output is lost; return the number of characters."""
        with self._silent_when_lost():
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the output; do nothing if it is lost."""
        with self._silent_when_lost():
            super().flush()

    @contextmanager
    def _silent_when_lost(self) -> Iterator[None]:
        """After an OSError, redirect the descriptor to the null device, also for child processes that inherit it."""
        try:
            yield
        except OSError as error:
            self.lost = self.lost or error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)


@contextmanager
def lasting_outputs() -> Iterator[None]:
    """Keep this process and its children running without their terminal: ignore SIGHUP and drop lost output."""
    streams, on_hangup = (sys.stdout, sys.stderr), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for name, stream in zip(_OUTPUTS, streams, strict=True):
        stream.flush()
        with suppress(io.UnsupportedOperation):  # a stream in memory has no file descriptor
            setattr(sys, name, LastingOutput(stream))
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout, sys.stderr = streams
        signal.signal(signal.SIGHUP, on_hangup)


def lost_outputs() -> str | None:
    """Describe which standard outputs were lost and why, or return None if none was lost."""
    outputs = {name: getattr(sys, name) for name in _OUTPUTS}
    errors = {name: out.lost.strerror for name, out in outputs.items() if isinstance(out, LastingOutput) and out.lost}
    return f"ran without {' and '.join(f'{name} ({error})' for name, error in errors.items())}" if errors else None
