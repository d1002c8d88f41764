"""Files that survive a power cut: pytest tests/study/facts/test_journal.py"""

import fcntl
import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from helpers.journals import MadeJournal, failure_of, report_of, reported, row_of

from study.facts.events import SearchClosed, TrialRetried, read_events
from study.facts.journal import Journal
from study.facts.study_facts import read_facts
from trainables.atomic_files import write_json


def counted(journal: Journal, number: int) -> SearchClosed:
    """An event with a number in it."""
    return SearchClosed(time=journal.now(), arms=["albert/rte"], max_gpu_hours=number)


def written(folder: Path, *numbers: int) -> bytes:
    journal = Journal(folder)
    for number in numbers:
        journal.append(counted(journal, number))
    journal.close()
    return (folder / "events.jsonl").read_bytes()


def numbers(folder: Path) -> list[float | None]:
    return [event.max_gpu_hours for event in read_events(folder) if isinstance(event, SearchClosed)]


def test_events_come_back_in_order(tmp_path):
    written(tmp_path, 1, 2)
    written(tmp_path, 3)
    assert numbers(tmp_path) == [1, 2, 3]


def test_a_cut_at_any_byte_loses_at_most_the_event_being_written(tmp_path):
    whole = written(tmp_path, 1, 2)
    first = whole.index(b"\n") + 1
    (tmp_path / "events.jsonl").write_bytes(whole[:-1])
    written(tmp_path, 3)
    assert numbers(tmp_path) == [1, 2, 3]
    for length in range(first, len(whole) - 1):
        (tmp_path / "events.jsonl").write_bytes(whole[:length])
        if length == first:
            written(tmp_path, 3)
        else:
            with pytest.warns(UserWarning, match="cut a torn last line"):
                written(tmp_path, 3)
        assert numbers(tmp_path) == [1, 3]


def test_a_broken_line_in_the_middle_is_refused_by_file_and_line(tmp_path):
    whole = written(tmp_path, 1, 2)
    (tmp_path / "events.jsonl").write_bytes(whole.replace(b"{", b"?", 1))
    with pytest.raises(ValueError, match=r"events.jsonl:1: not a JSON object"):
        Journal(tmp_path)
    Path(tmp_path / "events.jsonl").write_bytes(whole)
    Journal(tmp_path).close()  # and the lock was let go


def test_an_event_that_could_not_be_read_again_is_not_written(tmp_path):
    journal = Journal(tmp_path)
    with pytest.raises(ValueError, match=r"a new line: max_gpu_hours is -1; allowed: a number >= 0"):
        journal.append(counted(journal, -1))
    assert (tmp_path / "events.jsonl").read_bytes() == b""
    journal.close()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"phase":"search"', '"phase":"rest"', "phase is 'rest'; allowed: search, confirm"),
        ('"phase":"search",', "", "the field phase is missing"),
        ('"event":"trial_started"', '"event":"trial_stared"', "event is 'trial_stared'; allowed: launch_began, .*"),
        ('"seed":42', '"seed":"x"', "seed is 'x'; allowed: a whole number"),
        ('"seed":42', '"seed":42,"colour":1', "no field named colour"),
        ('"key":"k"', '"key":"other"', None),
    ],
)
def test_a_changed_line_is_named_with_its_field(tmp_path, before, after, message):
    made = MadeJournal(tmp_path)
    made.begin()
    made.start("k")
    made.epoch("k", 1, 0.5)
    text = (tmp_path / "events.jsonl").read_text()
    assert before in text
    (tmp_path / "events.jsonl").write_text(text.replace(before, after, 1))
    expected = f"events.jsonl:2: {message}" if message else "events.jsonl:3: trial 'k' was never started"
    with pytest.raises(ValueError, match=f"{expected}$"):
        Journal(tmp_path)


def test_a_second_launch_is_told_who_holds_the_study(tmp_path):
    journal = Journal(tmp_path)
    code = f"from study.facts.journal import Journal; from pathlib import Path; Journal(Path({str(tmp_path)!r}))"
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"is being run by another launch: process {os.getpid()} on" in second.stderr
    journal.close()


def test_a_look_at_who_holds_the_study_does_not_keep_a_launch_out(tmp_path):
    Journal(tmp_path).close()
    with (tmp_path / "launch.lock").open("rb") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        threading.Timer(0.05, fcntl.flock, (look, fcntl.LOCK_UN)).start()
        Journal(tmp_path).close()


def test_an_end_that_stands_twice_counts_once_and_another_is_refused(tmp_path):
    made = MadeJournal(tmp_path)
    made.begin()
    made.whole_trial("k", [0.5])
    events = tmp_path / "events.jsonl"
    last = events.read_bytes().splitlines(keepends=True)[-1]
    events.write_bytes(events.read_bytes() + last)
    assert [record.key for record in read_facts(tmp_path).records] == ["k"]
    events.write_bytes(events.read_bytes() + last.replace(b'"completed"', b'"stopped"'))
    with pytest.raises(ValueError, match=r"events.jsonl:\d+: trial 'k' has ended before"):
        read_facts(tmp_path)


def test_a_dead_process_does_not_hold_the_study(tmp_path):
    code = (
        "import os; from study.facts.journal import Journal; from pathlib import Path;"
        f"Journal(Path({str(tmp_path)!r})); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert written(tmp_path, 2)


def test_a_full_disk_leaves_the_events_as_they_were(tmp_path):
    """A file size limit stands in for the disk: the kernel cuts the write short in the same way."""
    code = (
        "import resource, signal; from study.facts.journal import Journal; from pathlib import Path;"
        "from study.facts.events import SearchClosed;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"journal = Journal(Path({str(tmp_path)!r}));"
        "journal.append(SearchClosed(time='', arms=['a'], max_gpu_hours=1));"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (150, {resource.RLIM_INFINITY}));"
        "journal.append(SearchClosed(time='', arms=['a'] * 200, max_gpu_hours=2))"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "OSError" in child.stderr
    written(tmp_path, 3)
    assert numbers(tmp_path) == [1, 3]


def test_a_clock_that_jumps_back_changes_nothing_but_the_times(tmp_path, monkeypatch):
    times = iter(["2026-01-02T00:00:00.000000+00:00", "2026-01-01T00:00:00.000000+00:00"])
    monkeypatch.setattr("study.facts.journal.utc_now", lambda: next(times, "2026-01-01T00:00:01.000000+00:00"))
    written(tmp_path, 1, 2, 3)
    assert numbers(tmp_path) == [1, 2, 3]


def test_write_json_leaves_no_other_file(tmp_path):
    write_json(tmp_path / "plan.json", {"a": 1})
    write_json(tmp_path / "plan.json", {"a": 2})
    assert {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()} == {"plan.json": {"a": 2}}


def test_the_order_of_times_survives_a_clock_that_is_set_back(tmp_path, monkeypatch):
    journal = Journal(tmp_path)
    for number, hour in enumerate((12, 15, 9, 14, 16)):
        monkeypatch.setattr("study.facts.journal.utc_now", lambda hour=hour: f"2026-01-01T{hour:02}:00:00.000000+00:00")
        journal.append(counted(journal, number))
        if number == 2:
            journal.close()
            journal = Journal(tmp_path)
    journal.close()
    assert [event.time[11:13] for event in read_events(tmp_path)] == ["12", "15", "15", "15", "16"]


def test_whether_a_trial_is_broken_off_is_a_matter_of_order_and_not_of_the_clock():
    journal = MadeJournal()
    journal.begin()
    key = "1"
    journal.start(key)
    retried = TrialRetried(time=journal.now(), key=key, failure=failure_of("machine"))
    for _ in range(2):
        journal.append(retried)
        assert journal.facts.trials[key].is_broken_off
        epoch = journal.facts.trials[key].epochs + 1
        journal.append(reported(time=journal.now(), key=key, report=report_of(row_of(epoch, 0.5))))
        assert not journal.facts.trials[key].is_broken_off


def test_journal_of_another_format_is_refused_in_one_line(tmp_path):
    made = MadeJournal(tmp_path)
    made.begin()
    path, now = tmp_path / "events.jsonl", made.now()
    for written, found in (('"format":2', 3), ('"format":2,', 1)):
        path.write_text(path.read_text().replace(written, '"format":3' if found == 3 else ""))
        with pytest.raises(ValueError, match=rf"events.jsonl:1: a journal of format {found}, and this version reads"):
            read_facts(tmp_path)
        path.unlink()
        made.begin()
    path.write_text(f'{{"event":"launch_began","time":"{now}","launch":1,"colour":"blue"}}\n')
    with pytest.raises(ValueError, match=r"events.jsonl:1: a journal of format 1, and this version reads format 2; "):
        read_facts(tmp_path)
