"""Launches on a slow disk, on a share without locks, and with exports deleted: pytest tests/study/test_bad_places.py"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import psutil
import pytest
from helpers.launches import WITHOUT_RAY, Launches, local_workers
from helpers.places import PATIENCE_SECONDS
from helpers.trials import check_as_alone

from study.facts.events import read_events
from study.facts.lock import LEASE
from study.rebuild import OPTUNA
from study.storage.launch_marks import MARK

pytestmark = [pytest.mark.slow, pytest.mark.long]
STUDY = ["--method", "albert", "--task", "rte", "--profile", "mini", "--samples", "1", "--epochs", "6", *WITHOUT_RAY]
# Stand-ins for what no test machine has, as `sitecustomize` of every Python process of a launch:
SLOW_FLUSH = """
import os, time
_fsync, _fdatasync = os.fsync, os.fdatasync
os.fsync = lambda file: (time.sleep(0.4), _fsync(file))[1]
os.fdatasync = lambda file: (time.sleep(0.4), _fdatasync(file))[1]
"""
NO_LOCKS = "import fcntl; fcntl.flock = lambda *_: None"  # as NFS that is mounted with nolock


def launches(home: Path) -> Launches:
    return Launches(home / "study", [*STUDY], random.Random(0))


def put_into_processes(code: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "python").mkdir()
    (home / "python" / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(home / "python"))


def test_second_ctrl_c_during_a_flush_loses_nothing(tmp_path, monkeypatch):
    """The second comes as the journal grows after the first: its event is written, and being flushed."""
    study = launches(tmp_path)
    with monkeypatch.context() as slow:
        put_into_processes(SLOW_FLUSH, tmp_path, slow)
        launcher = study.launch("--seeds", "2")
    assert study.wait_for(1, launcher), study.printed()
    launcher.send_signal(signal.SIGINT)
    journal = study.folder / "events.jsonl"
    size, deadline = journal.stat().st_size, time.monotonic() + PATIENCE_SECONDS
    while journal.stat().st_size == size and launcher.poll() is None:
        assert time.monotonic() < deadline, study.printed()
        time.sleep(0.01)
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(timeout=PATIENCE_SECONDS) == 1, study.printed()
    read_events(study.folder)
    study.finish(study.launch("--seeds", "2"))
    assert set(check_as_alone(study.folder, tmp_path / "cache")) == {"completed"}


def test_second_launch_is_refused_without_locks_and_the_first_completes(tmp_path, monkeypatch):
    study = launches(tmp_path)
    put_into_processes(NO_LOCKS, tmp_path, monkeypatch)
    first = study.launch("--seeds", "2")
    assert study.wait_for(1, first), study.printed()
    assert study.launch("--seeds", "2").wait(timeout=PATIENCE_SECONDS) == 2
    assert f"is being run by another launch: process {first.pid} on" in study.printed()
    study.finish(first)
    assert set(check_as_alone(study.folder, tmp_path / "cache")) == {"completed"}


def test_exports_deleted_during_a_launch_change_nothing(tmp_path):
    study = launches(tmp_path)
    study.finish(study.launch("--seeds", "1"))
    launcher = study.launch("--seeds", "2")
    assert study.wait_for(study.epochs() + 1, launcher), study.printed()
    exports = [study.folder / name for name in (OPTUNA, "records.jsonl", "best.toml", "report.html")]
    for path in exports:
        path.unlink()
    study.finish(launcher)
    assert "Traceback" not in study.printed()
    assert all(path.exists() for path in exports)
    assert set(check_as_alone(study.folder, tmp_path / "cache")) == {"completed"}


def test_woken_launch_leaves_its_successor_alone_without_locks(tmp_path, monkeypatch):
    """The first launch is frozen, as a suspended machine is; the second runs on a machine of another name."""
    study = launches(tmp_path)
    other_name = "import os, socket; socket.gethostname = lambda: os.environ['HOST']"
    put_into_processes(f"{NO_LOCKS}\n{other_name}", tmp_path, monkeypatch)
    monkeypatch.setenv("HOST", "first")
    first = study.launch("--seeds", "2")
    assert study.wait_for(1, first), study.printed()
    frozen, earlier = [psutil.Process(first.pid), *local_workers(first.pid)], find_marks(study.folder)
    try:
        for process in frozen:
            process.suspend()
        monkeypatch.setenv("HOST", "second")
        second = study.launch("--seeds", "2")
        assert study.wait_for(1, second), study.printed()
        lease, marks = (study.folder / LEASE).read_bytes(), find_marks(study.folder) - earlier
        assert b"second" in lease and len(marks) == 2
    finally:
        for process in reversed(frozen):
            process.resume()
    assert first.wait(timeout=PATIENCE_SECONDS) == 2, study.printed()
    assert f"is now run by another launch: process {second.pid} on second" in study.printed()
    if second.poll() is None:
        assert (study.folder / LEASE).read_bytes() == lease and find_marks(study.folder) == marks
    study.finish(second)
    assert set(check_as_alone(study.folder, tmp_path / "cache")) == {"completed"}
    assert not (study.folder / LEASE).exists() and not find_marks(study.folder)


def find_marks(folder: Path) -> set[Path]:
    """The files by which workers recognise the folders of a launch."""
    return {*folder.glob(f"*/{MARK}*")}
