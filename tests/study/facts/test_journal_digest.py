"""The digest that tables, report and MLflow name: pytest tests/study/facts/test_journal_digest.py"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from helpers.journals import MadeJournal

from study.facts.events import FILE
from study.facts.study_folder import compute_journal_digest


@pytest.fixture
def journal(tmp_path: Path) -> MadeJournal:
    made = MadeJournal(tmp_path)
    made.begin()
    made.whole_trial("k", [0.5, 0.25])
    return made


def test_digest_is_what_sha256sum_prints(journal: MadeJournal, tmp_path: Path) -> None:
    digest = compute_journal_digest(tmp_path)
    command = f"head -n {digest.lines} {FILE} | sha256sum"
    printed = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert (digest.sha256, digest.lines) == (printed.split()[0], 5)
    assert digest.describe() == f"{digest.sha256}, 5 lines"


def test_digest_stays_when_the_launch_ends(journal: MadeJournal, tmp_path: Path) -> None:
    before = compute_journal_digest(tmp_path)
    journal.end()
    assert compute_journal_digest(tmp_path) == before
    journal.begin(launch=2)
    assert compute_journal_digest(tmp_path).lines == before.lines + 2


def test_torn_last_line_does_not_count(journal: MadeJournal, tmp_path: Path) -> None:
    before = compute_journal_digest(tmp_path)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"event":"laun')
    assert compute_journal_digest(tmp_path) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines[:2], lines[2].replace(b"0.5", b"0.6"), *lines[3:]],
        lambda lines: [*lines[:2], *lines[3:]],
        lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
        lambda lines: lines[:-1],
    ],
    ids=["edited", "cut out", "swapped", "cut off"],
)
def test_changed_journal_has_another_digest(journal: MadeJournal, tmp_path: Path, change) -> None:
    before, path = compute_journal_digest(tmp_path), tmp_path / FILE
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    assert compute_journal_digest(tmp_path) != before


def test_folder_without_a_journal_has_no_lines(tmp_path: Path) -> None:
    assert compute_journal_digest(tmp_path).lines == 0
