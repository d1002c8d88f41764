"""Processes that a test has started, and those that they have started; any of them may end at any moment."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from contextlib import suppress

import psutil
from helpers.places import PATIENCE_SECONDS


def is_alive(process: psutil.Process) -> bool:
    """Whether it is there, and not only to be asked for its exit status."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descendants(root: int, name: str) -> list[psutil.Process]:
    """Those that the process of this number has started, and that these have, with this in their name."""
    found = []
    for process in psutil.Process(root).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found += [process] * (name in process.name())
    return found


def kill(processes: Iterable[psutil.Process]) -> None:
    """At once; one that has ended meanwhile is as good."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def kill_all(started: subprocess.Popen) -> None:
    """A process and whatever it has started, stopped first, so that none can start another meanwhile."""
    if started.poll() is None:
        root = psutil.Process(started.pid)
        root.suspend()
        kill((*root.children(recursive=True), root))
        started.wait(timeout=PATIENCE_SECONDS)
