"""Where output goes: consoles, a line that shows waiting, and outputs that outlast their terminal.

`lasting_outputs` keeps a command running after its terminal is closed.
"""

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
    """Check whether the console is a terminal that can overwrite lines. A terminal with `TERM=dumb` cannot."""
    return console.is_terminal and not console.is_dumb_terminal


@contextmanager
def show_waiting(task: str, *, output: TextIO) -> Iterator[Callable[[], None]]:
    """Show `waiting for TASK` as an animated line during the context. The yielded function removes the line.

    Nothing is shown if `output` is not a terminal that can overwrite lines.
    """
    console = console_on(output)
    columns = (SpinnerColumn(), TextColumn(f"waiting for {task}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not can_redraw(console)) as progress:
        progress.add_task("", total=None)
        yield progress.stop


class LastingOutput(io.TextIOWrapper):
    """A replacement for sys.stdout or sys.stderr. Once the reader or the terminal is gone, all text is discarded."""

    def __init__(self, stream: TextIO):
        """Use the file descriptor and the encoding of `stream`."""
        settings: dict[str, Any] = {name: getattr(stream, name) for name in ("encoding", "errors", "line_buffering")}
        super().__init__(os.fdopen(stream.fileno(), "wb", closefd=False), **settings)
        self.lost: OSError | None = None  # the first error of a write

    def write(self, text: str, /) -> int:
        """Write the text, or discard it if the reader or terminal is gone. Return the number of characters."""
        with self._silent_when_lost():
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the output, unless its reader or terminal is gone."""
        with self._silent_when_lost():
            super().flush()

    @contextmanager
    def _silent_when_lost(self) -> Iterator[None]:
        """If the block raises an OSError, redirect the file descriptor to the null device."""
        try:
            yield
        except OSError as error:
            self.lost = self.lost or error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)


@contextmanager
def lasting_outputs() -> Iterator[None]:
    """Keep this process and its children running if their terminal closes: ignore SIGHUP and discard the output."""
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
    """Describe the outputs (stdout, stderr) that could not be written; return None if there are none."""
    outputs = {name: getattr(sys, name) for name in _OUTPUTS}
    errors = {name: out.lost.strerror for name, out in outputs.items() if isinstance(out, LastingOutput) and out.lost}
    names = " and ".join(f"{name} ({error})" for name, error in errors.items())
    return f"the launch ran without {names}" if errors else None
