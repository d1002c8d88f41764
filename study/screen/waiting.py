"""What a person sees while there is nothing else to see yet: what is waited for, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from study.screen.terminal import can_redraw, console_on


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
