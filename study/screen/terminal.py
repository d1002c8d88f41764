"""What a terminal can show of what moves, and a line for as long as there is nothing else to see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


def console_on(output: TextIO) -> Console:
    return Console(file=output, highlight=False)


def can_redraw(console: Console) -> bool:
    """Whether what stands there can be written over: `TERM=dumb` is a terminal too, but cannot move its cursor."""
    return console.is_terminal and not console.is_dumb_terminal


@contextmanager
def waiting_for(what: str, *, output: TextIO) -> Iterator[Callable[[], None]]:
    """A line that moves, until it is over or what this gives is called; nothing where no line can move."""
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
