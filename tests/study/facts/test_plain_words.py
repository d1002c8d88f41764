"""What people read on every screen: pytest tests/study/facts/test_plain_words.py"""

from __future__ import annotations

from study.facts.durations import to_second
from study.facts.plain_words import counted, for_screen


def test_one_is_not_several() -> None:
    assert [counted(number, "cell") for number in (0, 1, 2)] == ["0 cells", "1 cell", "2 cells"]


def test_times_are_to_the_second() -> None:
    assert to_second("2026-11-24T02:09:53.896600+00:00") == "2026-11-24T02:09:53+00:00"


def test_a_terminal_is_shown_no_escapes() -> None:
    assert for_screen(r"KL(prior \|\| posterior), \[CLS], 2 \* 3, \\d") == r"KL(prior || posterior), [CLS], 2 * 3, \d"
