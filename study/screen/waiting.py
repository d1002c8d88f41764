"""What a person sees while there is nothing else to see yet: what is waited for, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def waiting_for(what: str, *, output: TextIO) -> Iterator[Callable[[], None]]:
    """A line that moves, where there is a terminal, until it is over or what this gives is called; else a plain one."""
    console = Console(file=output, highlight=False)
    words = f"waiting for {what}"
    if not console.is_terminal:
        console.print(f"{words} ...", markup=False, soft_wrap=True)
        yield lambda: None
        return
    columns = (SpinnerColumn(), TextColumn(words, markup=False), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True)
    with progress:
        progress.add_task(words, total=None)
        yield progress.stop
