"""What people read on every screen: pytest tests/study/terminal/test_text.py"""

from __future__ import annotations

import fcntl
import io
import os
import struct
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from study.terminal.text import (
    CellInWords,
    counted,
    describe_shortfalls,
    format_markdown,
    joined,
    to_second,
    wrap_line,
    wrap_text,
)


def test_one_is_not_several() -> None:
    assert [counted(number, "cell") for number in (0, 1, 2)] == ["0 cells", "1 cell", "2 cells"]


def test_the_last_of_several_stands_behind_an_and() -> None:
    told = [joined(parts) for parts in ([], ["RTE"], ["RTE", "CoLA"], ["RTE", "MRPC", "CoLA"])]
    assert told == ["", "RTE", "RTE and CoLA", "RTE, MRPC and CoLA"]


def test_cells_of_a_row_that_miss_the_same_share_a_line() -> None:
    none, one = "0 of 5 confirm trials completed", "1 of 5 confirm trials completed"
    missing = {
        "albert": {"RTE": "", "CoLA": none, "MRPC": one, "QNLI": none},
        "pabee": dict.fromkeys(("RTE", "CoLA", "MRPC", "QNLI"), "not begun"),
        "palbert": {"RTE": "not begun"},
    }
    cells = [
        CellInWords(row, column, f"{row}/{column.lower()}", shortfall)
        for row, own in missing.items()
        for column, shortfall in own.items()
    ]
    assert describe_shortfalls(cells) == [
        "albert on CoLA and QNLI: 0 of 5 confirm trials completed",
        "albert/mrpc: 1 of 5 confirm trials completed",
        "pabee on all 4 tasks: not begun",
        "palbert/rte: not begun",
    ]


def test_times_are_to_the_second() -> None:
    assert to_second("2026-11-24T02:09:53.896600+00:00") == "2026-11-24T02:09:53+00:00"


@pytest.fixture
def terminal() -> Iterator[TextIO]:
    """One of 30 columns."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 30, 0, 0))
    with os.fdopen(theirs, "w") as output:
        yield output
    os.close(ours)


def test_a_terminal_is_shown_no_escapes(terminal: TextIO) -> None:
    assert format_markdown(r"KL(p \|\| q), \[CLS], 2 \* 3, \\d", terminal) == r"KL(p || q), [CLS], 2 * 3, \d"


def test_terminal_wraps_prose_but_not_tables(terminal: TextIO) -> None:
    row = "| method | RTE | CoLA | MRPC | STS-B |"
    text = f"## GLUE dev scores on mini-GLUE, median\n\n{row}\n\n- trained on AMD EPYC (AVX512), 1 thread\n"
    shown = f"""## GLUE dev scores on
mini-GLUE, median

{row}

- trained on AMD EPYC
  (AVX512), 1 thread
"""
    assert format_markdown(text, terminal) == shown
    assert format_markdown(text, io.StringIO()) == text


def test_lines_are_broken_between_words_in_a_terminal_alone(terminal: TextIO) -> None:
    line = "study runs/s1, profile mini: this machine has no GPUs"
    assert wrap_text(line, terminal) == "study runs/s1, profile mini:\n  this machine has no GPUs"
    assert wrap_text(line, io.StringIO()) == line


@pytest.mark.parametrize(
    "command",
    [
        "`analysis.tables runs/s1`",
        "bin/python -m study.status runs/s1",
        "--continue runs/s1",
        "--continue 'runs/a study'",
    ],
)
def test_what_is_to_be_pasted_stays_whole(command: str) -> None:
    assert wrap_line(f"  or again: {command}; as before", 20) == f"  or again:\n    {command};\n    as before"
