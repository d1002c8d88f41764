"""Counts, lines and tables as people read them, in one form everywhere."""

import os
import re
import textwrap
from typing import TextIO

_TO_PASTE = re.compile(r"`[^`]*`|\S*python\S* -m [^;]*[^;,.)]|--continue \S+")  # commands, and what stands in backticks


def counted(number: int, noun: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def columns(output: TextIO) -> int | None:
    """Of the terminal that it is; None where it is none, or one that does not say."""
    try:
        return os.get_terminal_size(output.fileno()).columns or None
    except (OSError, ValueError):
        return None


def wrapped(line: str, width: int, *, hang: str = "  ") -> str:
    """A line broken between its words, the next ones behind `hang`. What is to be pasted stays whole: a terminal breaks
    it so that it can be."""
    whole = _TO_PASTE.sub(lambda quoted: quoted[0].replace(" ", "\0"), line)
    indent = line[: len(line) - len(line.lstrip())] + hang
    filled = textwrap.fill(whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return filled.replace("\0", " ")


def on_screen(text: str, output: TextIO) -> str:
    """Lines as this output shows them: in a terminal broken between their words, elsewhere as they are."""
    width = columns(output)
    return text if width is None else "\n".join(wrapped(line, width) for line in text.split("\n"))


def for_screen(markdown: str, output: TextIO) -> str:
    """A Markdown text as this output shows it: in a terminal without the backslashes that make characters stand for
    themselves, and broken between its words, but for the rows of tables."""
    if not output.isatty():
        return markdown
    text, width = re.sub(r"\\([\\*`<\[|])", r"\1", markdown), columns(output)
    return text if width is None else "\n".join(_prose(line, width) for line in text.split("\n"))


def _prose(line: str, width: int) -> str:
    return line if line.startswith("|") else wrapped(line, width, hang="  " if line.startswith("- ") else "")
