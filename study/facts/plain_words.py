"""Counts and tables as people read them, in one form everywhere."""

import re


def counted(number: int, noun: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def for_screen(markdown: str) -> str:
    """A Markdown text without the backslashes that make characters stand for themselves."""
    return re.sub(r"\\([\\*`<\[|])", r"\1", markdown)
