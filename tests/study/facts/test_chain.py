"""What is found of a journal that was changed: pytest tests/study/facts/test_chain.py"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.edited_studies import rechained
from helpers.journals import MadeJournal

from study.facts.chain import START, ChainCheck, linked, unlinked
from study.facts.events import FILE, read_events
from study.facts.journal import Journal

Lines = list[bytes]
CHANGES: dict[str, tuple[Callable[[Lines], Lines], int]] = {  # how, and the line that is named
    "edited": (lambda lines: [*lines[:2], lines[2].replace(b"0.5", b"0.6"), *lines[3:]], 3),
    "a digit of a cost": (lambda lines: [*lines[:2], lines[2].replace(b"node-1", b"node-2"), *lines[3:]], 3),
    "cut out": (lambda lines: [*lines[:2], *lines[3:]], 3),
    "first cut": (lambda lines: lines[1:], 1),
    "swapped": (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], 3),
    "twice": (lambda lines: [*lines[:3], lines[2], *lines[3:]], 4),
    "last edited": (lambda lines: [*lines[:-1], lines[-1].replace(b"complete", b"drained")], 6),
    "put in": (lambda lines: [*lines[:3], linked(unlinked(lines[2])[0], START), *lines[3:]], 4),
    "edited with its own chain": (
        lambda lines: [*rechained([*lines[:2], lines[2].replace(b"0.5", b"0.6")]), *lines[3:]],
        4,
    ),
}


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    made = MadeJournal(tmp_path)
    made.begin()
    made.whole_trial("k", [0.5, 0.25])
    made.end()
    return (tmp_path / FILE).read_bytes().splitlines()


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_line_is_named_by_a_check_without_decoding(lines, change):
    how, number = CHANGES[change]
    check = ChainCheck()
    assert [n for n, line in enumerate(how(lines), start=1) if check.fault(line)][0] == number


@pytest.mark.parametrize("change", ["edited", "a digit of a cost", "last edited", "edited with its own chain"])
def test_no_launch_goes_on_after_a_changed_line(tmp_path, lines, change):
    how, number = CHANGES[change]
    (tmp_path / FILE).write_bytes(b"".join(line + b"\n" for line in how(lines)))
    with pytest.raises(ValueError, match=rf"{FILE}:{number}: chain is '[0-9a-f]{{16}}'.*was edited"):
        Journal(tmp_path)


def test_one_change_is_told_once(lines):
    check = ChainCheck()
    edited = [*lines[:2], lines[2].replace(b"0.5", b"0.6"), *lines[3:]]
    assert len([line for line in edited if check.fault(line)]) == 1


def test_a_line_without_a_chain_is_refused(tmp_path, lines):
    (tmp_path / FILE).write_bytes(b"".join(unlinked(line)[0] + b"\n" for line in lines))
    with pytest.raises(ValueError, match=f"{FILE}:1: the field chain is missing$"):
        read_events(tmp_path)


def test_a_check_goes_on_where_an_earlier_one_had_come(lines):
    first = ChainCheck()
    assert [first.fault(line) for line in lines[:3]] == [None] * 3
    then = ChainCheck(first.head)
    assert [then.fault(line) for line in lines[3:]] == [None] * 3


def test_every_launch_continues_the_chain_after_a_torn_line_too(tmp_path, lines):
    with (tmp_path / FILE).open("ab") as file:
        file.write(lines[-1][:-1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        journal = Journal(tmp_path)
    journal.append(read_events(tmp_path)[0])
    journal.close()
    check = ChainCheck()
    assert [check.fault(line) for line in (tmp_path / FILE).read_bytes().splitlines()] == [None] * 7


def test_a_record_names_the_head_before_its_end(tmp_path, lines):
    [record] = [event.record for event in read_events(tmp_path) if hasattr(event, "record")]
    assert record.journal_head == unlinked(lines[3])[1]


def test_a_launch_is_warned_of_lines_that_were_cut_off_since_the_last_one(tmp_path, lines):
    Journal(tmp_path).close()
    (tmp_path / FILE).write_bytes(b"".join(line + b"\n" for line in lines[:-1]))
    with pytest.warns(UserWarning, match=f"{FILE} ends with line 5; journal.seal says 6: the lines after it were cut"):
        Journal(tmp_path).close()


def test_lines_that_a_killed_launch_added_are_no_fault(tmp_path, lines):
    Journal(tmp_path).close()
    with (tmp_path / FILE).open("ab") as file:
        file.write(linked(unlinked(lines[-1])[0], unlinked(lines[-1])[1]) + b"\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Journal(tmp_path).close()
