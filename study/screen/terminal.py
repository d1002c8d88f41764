"""What an output can show of what moves."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console


def console_on(output: TextIO) -> Console:
    return Console(file=output, highlight=False)


def can_redraw(console: Console) -> bool:
    """Whether what stands there can be written over: `TERM=dumb` is a terminal too, but cannot move its cursor."""
    return console.is_terminal and not console.is_dumb_terminal
