"""What a person sees while there is nothing else to see yet: what is waited for, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def waiting_for(what: str, *, output: TextIO) -> Iterator[Callable[[], None]]:
    """A line that moves, until it is over or what this gives is called; nothing where there is no terminal."""
    console = Console(file=output, highlight=False)
    words = f"waiting for {what}"
    if not console.is_terminal:
        yield lambda: None
        return
    columns = (SpinnerColumn(), TextColumn(words, markup=False), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True)
    with progress:
        progress.add_task(words, total=None)
        yield progress.stop
