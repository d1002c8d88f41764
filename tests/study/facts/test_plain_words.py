"""What people read on every screen: pytest tests/study/facts/test_plain_words.py"""

from __future__ import annotations

from study.facts.durations import to_second
from study.facts.plain_words import CellInWords, counted, for_screen, joined, shortfalls


def test_one_is_not_several() -> None:
    assert [counted(number, "cell") for number in (0, 1, 2)] == ["0 cells", "1 cell", "2 cells"]


def test_the_last_of_several_stands_behind_an_and() -> None:
    told = [joined(parts) for parts in ([], ["RTE"], ["RTE", "CoLA"], ["RTE", "MRPC", "CoLA"])]
    assert told == ["", "RTE", "RTE and CoLA", "RTE, MRPC and CoLA"]


def test_cells_of_a_row_that_miss_the_same_share_a_line() -> None:
    missing = {
        "albert": {"RTE": "", "CoLA": "confirm 0 of 5", "MRPC": "confirm 1 of 5", "QNLI": "confirm 0 of 5"},
        "pabee": dict.fromkeys(("RTE", "CoLA", "MRPC", "QNLI"), "not begun"),
        "palbert": {"RTE": "not begun"},
    }
    cells = [
        CellInWords(row, column, f"{row}/{column.lower()}", shortfall)
        for row, own in missing.items()
        for column, shortfall in own.items()
    ]
    assert shortfalls(cells) == [
        "albert on CoLA and QNLI: confirm 0 of 5",
        "albert/mrpc: confirm 1 of 5",
        "pabee on all 4 tasks: not begun",
        "palbert/rte: not begun",
    ]


def test_times_are_to_the_second() -> None:
    assert to_second("2026-11-24T02:09:53.896600+00:00") == "2026-11-24T02:09:53+00:00"


def test_a_terminal_is_shown_no_escapes() -> None:
    assert for_screen(r"KL(prior \|\| posterior), \[CLS], 2 \* 3, \\d") == r"KL(prior || posterior), [CLS], 2 * 3, \d"
