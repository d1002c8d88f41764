"""pytest tests/test_journal.py"""

import fcntl
import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from study.journal import Journal, write_json
from study.record import read_events

RECORD = {"key": "k", "score": 0.5}


def written(folder: Path, *numbers: int) -> bytes:
    journal = Journal(folder)
    for number in numbers:
        journal.append("counted", number=number)
    journal.close()
    return (folder / "events.jsonl").read_bytes()


def test_events_come_back_in_order(tmp_path):
    written(tmp_path, 1, 2)
    written(tmp_path, 3)
    assert [event["number"] for event in read_events(tmp_path)] == [1, 2, 3]


def test_a_cut_at_any_byte_loses_at_most_the_event_being_written(tmp_path):
    whole = written(tmp_path, 1, 2)
    first = whole.index(b"\n") + 1
    (tmp_path / "events.jsonl").write_bytes(whole[:-1])
    written(tmp_path, 3)
    assert [event["number"] for event in read_events(tmp_path)] == [1, 2, 3]
    for length in range(first, len(whole) - 1):
        (tmp_path / "events.jsonl").write_bytes(whole[:length])
        if length == first:
            written(tmp_path, 3)
        else:
            with pytest.warns(UserWarning, match="cut a torn last line"):
                written(tmp_path, 3)
        assert [event["number"] for event in read_events(tmp_path)] == [1, 3]


def test_a_broken_line_in_the_middle_is_refused_by_file_and_line(tmp_path):
    whole = written(tmp_path, 1, 2)
    (tmp_path / "events.jsonl").write_bytes(whole.replace(b"{", b"?", 1))
    with pytest.raises(ValueError, match=r"events.jsonl:1: not a JSON object"):
        Journal(tmp_path)
    Path(tmp_path / "events.jsonl").write_bytes(whole)
    Journal(tmp_path).close()  # and the lock was let go


def test_a_record_that_a_crash_left_out_is_added(tmp_path):
    journal = Journal(tmp_path)
    journal.append("trial_ended", key="k", record=RECORD)
    journal.close()
    (tmp_path / "records.jsonl").write_bytes(b'{"torn')
    with pytest.warns(UserWarning, match="added the record of k|torn"):
        Journal(tmp_path).close()
    assert json.loads((tmp_path / "records.jsonl").read_text()) == RECORD


def test_a_second_launch_is_told_who_holds_the_study(tmp_path):
    journal = Journal(tmp_path)
    code = f"from study.journal import Journal; from pathlib import Path; Journal(Path({str(tmp_path)!r}))"
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"is being run by another launch: process {os.getpid()} on" in second.stderr
    journal.close()


def test_a_look_at_who_holds_the_study_does_not_keep_a_launch_out(tmp_path):
    Journal(tmp_path).close()
    with (tmp_path / "launch.lock").open("rb") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        threading.Timer(0.05, fcntl.flock, (look, fcntl.LOCK_UN)).start()
        Journal(tmp_path).close()


@pytest.mark.parametrize("line", ["[]", '{"x":1}'])
def test_a_record_that_is_none_is_refused_by_file_and_line(tmp_path, line):
    (tmp_path / "records.jsonl").write_text(f"{line}\n")
    with pytest.raises(ValueError, match=r"records.jsonl:1: "):
        Journal(tmp_path)


def test_a_dead_process_does_not_hold_the_study(tmp_path):
    code = (
        "import os; from study.journal import Journal; from pathlib import Path;"
        f"Journal(Path({str(tmp_path)!r})).append('counted', number=1); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert written(tmp_path, 2)


def test_a_full_disk_leaves_the_events_as_they_were(tmp_path):
    """A file size limit stands in for the disk: the kernel cuts the write short in the same way."""
    code = (
        "import resource, signal; from study.journal import Journal; from pathlib import Path;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"journal = Journal(Path({str(tmp_path)!r})); journal.append('counted', number=1);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (150, {resource.RLIM_INFINITY}));"
        "journal.append('counted', number=2, padding='x' * 500)"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "OSError" in child.stderr
    written(tmp_path, 3)
    assert [event["number"] for event in read_events(tmp_path)] == [1, 3]


def test_a_clock_that_jumps_back_changes_nothing_but_the_times(tmp_path, monkeypatch):
    times = iter(["2026-01-02T00:00:00.000000+00:00", "2026-01-01T00:00:00.000000+00:00"])
    monkeypatch.setattr("study.journal.utc_now", lambda: next(times, "2026-01-01T00:00:01.000000+00:00"))
    written(tmp_path, 1, 2, 3)
    assert [event["number"] for event in read_events(tmp_path)] == [1, 2, 3]


def test_write_json_leaves_no_other_file(tmp_path):
    write_json(tmp_path / "plan.json", {"a": 1})
    write_json(tmp_path / "plan.json", {"a": 2})
    assert {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()} == {"plan.json": {"a": 2}}
