"""Files that survive a power cut: pytest tests/study/facts/test_journal.py"""

import errno
import fcntl
import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from helpers.edited_files import replace_in
from helpers.edited_studies import read_event_lines
from helpers.journals import MadeJournal, failure_of, report_of, reported, row_of
from helpers.messages import says, shown
from msgspec.structs import replace

from study.facts import lock
from study.facts.events import LaunchEnded, SearchClosed, TrialRetried, read_events
from study.facts.journal import Journal
from study.facts.journal_copy import COPY
from study.facts.lock import LEASE, Lease, find_lock_holder
from study.facts.study_facts import read_facts
from study.facts.study_folder import compute_journal_digest
from study.terminal.processes import STOP_SIGNALS
from trainables.files.atomic_files import write_json


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


def test_journal_cut_at_any_byte_loses_one_event(tmp_path):
    whole = written(tmp_path, 1, 2)
    first = whole.index(b"\n") + 1
    (tmp_path / "events.jsonl").write_bytes(whole[:-1])
    (tmp_path / COPY).unlink()  # it has only lines that no power cut can take
    written(tmp_path, 3)
    assert numbers(tmp_path) == [1, 2, 3]
    for length in range(first, len(whole) - 1):
        (tmp_path / "events.jsonl").write_bytes(whole[:length])
        (tmp_path / COPY).unlink(missing_ok=True)
        if length == first:
            written(tmp_path, 3)
        else:
            with pytest.warns(UserWarning, match="removed an incomplete last line"):
                written(tmp_path, 3)
        assert numbers(tmp_path) == [1, 3]


def test_any_flipped_bit_of_a_line_is_noticed(tmp_path):
    """Also one that makes another number of a number. Without its end, the last line is cut off, with a warning."""
    whole = written(tmp_path, 1, 2)
    first = whole.index(b"\n")
    for bit in range(8 * first):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / "events.jsonl").write_bytes(flipped)
        with pytest.raises(ValueError, match=r"events.jsonl:1: ") as refused:
            read_facts(tmp_path)
        assert says(str(refused.value), "restore", "from a copy, or", "delete this line")


def test_lines_of_older_versions_have_no_checksum(tmp_path):
    whole = written(tmp_path, 1, 2)
    (tmp_path / COPY).unlink()
    (tmp_path / "events.jsonl").write_bytes(b"".join(line + b"\n" for line in read_event_lines(tmp_path)))
    assert len((tmp_path / "events.jsonl").read_bytes()) < len(whole)
    written(tmp_path, 3)
    assert numbers(tmp_path) == [1, 2, 3]


def test_broken_line_in_the_middle_names_file_and_line(tmp_path):
    whole = written(tmp_path, 1, 2)
    (tmp_path / "events.jsonl").write_bytes(b'{"event": \n' + whole)
    with pytest.raises(ValueError, match=r"events.jsonl:1: .*not a JSON object"):
        Journal(tmp_path)
    Path(tmp_path / "events.jsonl").write_bytes(whole)
    Journal(tmp_path).close()  # and the lock was let go


def test_an_event_that_could_not_be_read_again_is_not_written(tmp_path, snapshot):
    journal = Journal(tmp_path)
    with pytest.raises(ValueError) as refusal:
        journal.append(counted(journal, -1))
    assert shown(str(refusal.value), tmp_path) == snapshot
    assert (tmp_path / "events.jsonl").read_bytes() == b""
    journal.close()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"phase":"search"', '"phase":"rest"'),
        ('"phase":"search",', ""),
        ('"event":"trial_started"', '"event":"trial_stared"'),
        ('"seed":42', '"seed":"x"'),
        ('"seed":42', '"seed":42,"colour":1'),
        ('"key":"k"', '"key":"other"'),
    ],
)
def test_a_changed_line_is_named_with_its_field(tmp_path, before, after, snapshot):
    made = MadeJournal(tmp_path)
    made.begin()
    made.start("k")
    made.epoch("k", 1, 0.5)
    replace_in(tmp_path / "events.jsonl", before, after)
    with pytest.raises(ValueError) as refusal:
        Journal(tmp_path)
    assert shown(str(refusal.value), tmp_path) == snapshot


def test_a_second_launch_is_told_who_holds_the_study(tmp_path):
    journal = Journal(tmp_path)
    code = f"from study.facts.journal import Journal; from pathlib import Path; Journal(Path({str(tmp_path)!r}))"
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"another launch: process {os.getpid()} on" in second.stderr
    journal.close()


def test_finding_lock_holder_does_not_block_launch(tmp_path, monkeypatch):
    Journal(tmp_path).close()
    with (tmp_path / "events.jsonl").open("rb") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        monkeypatch.setattr(lock.time, "sleep", lambda _: fcntl.flock(look, fcntl.LOCK_UN))
        Journal(tmp_path).close()


@pytest.fixture
def silent_soon(monkeypatch):
    """A launch on another machine is dead after a second without a sign."""
    monkeypatch.setattr("study.facts.lock.SILENT_SECONDS", 1.0)


@pytest.fixture
def no_locks(monkeypatch):
    """A file system that grants every lock to everybody, as NFS does that is mounted without them."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)


@pytest.fixture
def other_launch(tmp_path):
    """A process that has the study of `tmp_path` open."""
    code = (
        "import sys; from study.facts.journal import Journal; from pathlib import Path;"
        f"journal = Journal(Path({str(tmp_path)!r})); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"open\n"
        yield process
        process.kill()


def test_second_launch_is_refused_where_locks_mean_nothing(tmp_path, no_locks, other_launch):
    with pytest.raises(ValueError, match=f"another launch: process {other_launch.pid} on"):
        Journal(tmp_path)
    assert find_lock_holder(tmp_path).startswith(f"process {other_launch.pid} on")
    other_launch.kill()
    other_launch.wait()
    assert find_lock_holder(tmp_path) is None
    Journal(tmp_path).close()


def test_second_launch_is_refused_when_the_lease_was_deleted(tmp_path, other_launch):
    (tmp_path / "launch.lease").unlink()
    with pytest.raises(ValueError, match="another launch: holder unknown"):
        Journal(tmp_path)


@pytest.mark.parametrize("lives", [True, False])
def test_lease_of_another_machine_holds_while_it_is_touched(tmp_path, no_locks, silent_soon, monkeypatch, lives):
    there = replace(Lease.for_this_process(), host="elsewhere")
    monkeypatch.setattr("study.facts.lock.BEAT_SECONDS", 0.1)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(Lease, "for_this_process", lambda: there)
        journal = Journal(tmp_path)
    if lives:
        with pytest.raises(ValueError, match=rf"another launch: process {os.getpid()} on elsewhere"):
            Journal(tmp_path)
        journal.close()
    else:
        journal._lock._is_over.set()  # as if it was killed: its lease stays
        journal._lock._thread.join()
        Journal(tmp_path).close()


@pytest.mark.parametrize(
    ("mounts", "where"),
    [
        ("/dev/vda / ext4 rw 0 0\nserver:/home {} nfs4 rw 0 0\n", "nfs4 at /"),
        ("proc /proc proc rw 0 0\n", "a file system"),  # below a changed root
    ],
)
def test_file_system_without_locks_is_named(mounts, where, tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    (tmp_path / "mounts").write_text(mounts.format(tmp_path))
    monkeypatch.setattr(lock, "_MOUNTS", tmp_path / "mounts")
    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(ValueError, match=rf"is on {where}\S*, .*\(Function not implemented\)"):
        Journal(tmp_path)


@pytest.fixture
def woken(tmp_path, no_locks, silent_soon, monkeypatch):
    """The journal of a process on another machine that was frozen, and whose lease therefore became old."""
    monkeypatch.setattr("study.facts.lock.BEAT_SECONDS", 3600.0)
    with monkeypatch.context() as elsewhere:
        there = replace(Lease.for_this_process(), host="elsewhere")
        elsewhere.setattr(Lease, "for_this_process", lambda: there)
        return Journal(tmp_path)


def test_woken_process_keeps_the_lease_of_its_successor_and_stops_writing(tmp_path, woken):
    successor = Journal(tmp_path)
    lease, before = (tmp_path / LEASE).read_bytes(), (tmp_path / LEASE).stat().st_mtime_ns
    with pytest.raises(ValueError, match=f"another launch: process {os.getpid()} on .*; this process"):
        woken.append(counted(woken, 1))
    woken.close()
    assert (tmp_path / LEASE).read_bytes() == lease and (tmp_path / LEASE).stat().st_mtime_ns == before
    successor.append(counted(successor, 2))
    successor.close()
    assert numbers(tmp_path) == [2] and not (tmp_path / LEASE).exists()


def test_woken_process_does_not_beat_for_its_successor(tmp_path, woken, monkeypatch):
    monkeypatch.setattr("study.facts.lock.BEAT_SECONDS", 3600.0)
    successor = Journal(tmp_path)
    os.utime(tmp_path / LEASE, (0, 0))
    monkeypatch.setattr("study.facts.lock.BEAT_SECONDS", 0.01)
    woken._lock._beat()  # returns, because the lease is another's
    assert (tmp_path / LEASE).stat().st_mtime == 0
    woken.close()
    successor.close()


def test_woken_process_leaves_the_copy_of_its_successor(tmp_path, woken):
    woken.append(counted(woken, 1))
    successor = Journal(tmp_path)
    successor.append(counted(successor, 2))
    successor.close()
    woken.close()
    assert (tmp_path / COPY).read_bytes() == (tmp_path / "events.jsonl").read_bytes()
    assert numbers(tmp_path) == [1, 2]


def cut_journal(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:1]))


@pytest.mark.parametrize(
    ("lose", "fault"),
    [
        (Path.unlink, "is missing, .* 3 more lines"),
        (lambda path: path.write_bytes(b""), "is empty, .* 3 more lines"),
        (cut_journal, "was cut, .* 2 more lines"),
    ],
    ids=["deleted", "emptied", "cut"],
)
def test_lost_lines_are_refused_with_the_command_that_restores_them(tmp_path, lose, fault):
    journal = tmp_path / "events.jsonl"
    whole = written(tmp_path, 1, 2, 3)
    lose(journal)
    for read in (Journal, read_facts):
        with pytest.raises(ValueError, match=f"^{journal} {fault}; .*: cp ") as refused:
            read(tmp_path)
    subprocess.run(re.search("(cp [^;]+);", str(refused.value))[1], shell=True, check=True)
    assert journal.read_bytes() == whole
    lose(journal)
    (tmp_path / COPY).unlink()  # as the message allows
    written(tmp_path, 4)
    assert numbers(tmp_path)[-1] == 4


@pytest.mark.parametrize("result", ["predictions/k.npz", "trials/k/state.pt", "records.jsonl"])
@pytest.mark.parametrize("is_emptied", [True, False])
def test_results_without_journal_and_copy_are_refused(tmp_path, result, is_emptied):
    (tmp_path / "predictions").mkdir()
    (tmp_path / "trials").mkdir()
    written(tmp_path)  # a launch that was killed before its first line may leave all this
    (tmp_path / result).parent.mkdir(exist_ok=True)
    (tmp_path / result).touch()
    if not is_emptied:
        (tmp_path / "events.jsonl").unlink()
    lack, named = "empty" if is_emptied else "missing", result.removesuffix("/state.pt")
    for read in (Journal, read_facts):
        with pytest.raises(ValueError, match=f"is {lack}, .* {named}.*; restore .* a backup"):
            read(tmp_path)
    assert (tmp_path / "events.jsonl").exists() == is_emptied


def test_journal_is_copied_at_the_start_and_at_the_end(tmp_path):
    journal = Journal(tmp_path)
    assert not (tmp_path / COPY).exists()
    journal.append(counted(journal, 1))
    journal.close()
    first = (tmp_path / COPY).read_bytes()
    assert first == (tmp_path / "events.jsonl").read_bytes()
    (tmp_path / COPY).unlink()  # as if the launch had been killed
    journal = Journal(tmp_path)
    journal.append(counted(journal, 2))
    assert (tmp_path / COPY).read_bytes() == first


def test_journal_emptied_in_use_is_not_copied(tmp_path):
    journal = Journal(tmp_path)
    journal.append(counted(journal, 1))
    journal.close()
    copy = (tmp_path / COPY).read_bytes()
    journal = Journal(tmp_path)
    (tmp_path / "events.jsonl").write_bytes(b"")
    journal.close()
    assert (tmp_path / COPY).read_bytes() == copy


@pytest.mark.parametrize("mask", [0o002, 0o022, 0o077])
def test_journal_copy_and_lease_follow_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        journal = Journal(tmp_path)
        journal.append(counted(journal, 1))
        modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("events.jsonl", LEASE)}
        journal.close()
    finally:
        os.umask(before)
    modes[COPY] = (tmp_path / COPY).stat().st_mode & 0o777
    assert set(modes.values()) == {0o666 & ~mask}, modes


def test_nothing_is_added_to_lines_of_another_process(tmp_path, snapshot):
    journal = Journal(tmp_path)
    journal.append(counted(journal, 1))
    with (tmp_path / "events.jsonl").open("ab") as other:
        other.write(msgspec.json.encode(counted(journal, 2)) + b"\n")
    with pytest.raises(ValueError) as refusal:
        journal.append(counted(journal, 3))
    assert shown(str(refusal.value), tmp_path) == snapshot
    journal.close()
    assert numbers(tmp_path) == [1, 2]


def test_deleted_journal_is_written_again(tmp_path):
    journal = Journal(tmp_path)
    journal.append(counted(journal, 1))
    (tmp_path / "events.jsonl").unlink()
    with pytest.raises(ValueError, match=r"events.jsonl was deleted or replaced"):
        journal.append(counted(journal, 2))
    journal.close()
    assert numbers(tmp_path) == [1]


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_signal_during_a_flush_leaves_disk_and_memory_alike(tmp_path, monkeypatch, number):
    """Ctrl-C while a slow disk flushes an event: it takes effect once the event is a fact."""
    flush = os.fdatasync
    before = {each: signal.signal(each, signal.default_int_handler) for each in STOP_SIGNALS}
    try:
        made = MadeJournal(tmp_path)
        made.begin()
        journal = Journal(tmp_path)
        with monkeypatch.context() as slow:
            slow.setattr(os, "fdatasync", lambda descriptor: (flush(descriptor), signal.raise_signal(number)))
            with pytest.raises(KeyboardInterrupt):
                journal.append(LaunchEnded(time=journal.now(), launch=1, status="interrupted"))
        assert journal.facts.last_launch == read_facts(tmp_path).last_launch
        assert journal.facts.last_launch.ended is not None
        assert signal.getsignal(number) is signal.default_int_handler
        journal.close()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_an_end_that_stands_twice_counts_once_and_another_is_refused(tmp_path):
    made = MadeJournal(tmp_path)
    made.begin()
    made.whole_trial("k", [0.5])
    events = tmp_path / "events.jsonl"
    last = events.read_bytes().splitlines(keepends=True)[-1]
    events.write_bytes(events.read_bytes() + last)
    assert [record.key for record in read_facts(tmp_path).records] == ["k"]
    events.write_bytes(events.read_bytes() + last.replace(b'"completed"', b'"stopped"'))
    with pytest.raises(ValueError, match=r"events.jsonl:\d+: trial 'k' .*already ended"):
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


def test_break_off_depends_on_order_not_clock():
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


@pytest.mark.parametrize("end", [b"\n", b"\n\n", b"\r\n \n", b"\n \t"])
def test_trailing_blank_lines_are_removed_by_next_launch(tmp_path, end):
    whole = written(tmp_path, 1, 2)
    digest = compute_journal_digest(tmp_path)
    (tmp_path / "events.jsonl").write_bytes(whole + end)
    assert numbers(tmp_path) == [1, 2] and compute_journal_digest(tmp_path) == digest
    with pytest.warns(UserWarning, match="events.jsonl: removed "):
        assert written(tmp_path, 3).startswith(whole + b"{")
    assert numbers(tmp_path) == [1, 2, 3]


def test_blank_line_in_the_middle_is_refused_by_file_and_line(tmp_path, snapshot):
    whole = written(tmp_path, 1, 2)
    (tmp_path / "events.jsonl").write_bytes(whole.replace(b"\n", b"\n\n", 1))
    with pytest.raises(ValueError) as refusal:
        read_events(tmp_path)
    assert shown(str(refusal.value), tmp_path) == snapshot
