"""Functions that run in a process of their own: pytest tests/study/test_new_processes.py"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from helpers.places import PATIENCE_SECONDS
from helpers.started_processes import is_alive

from study.contract.new_processes import NewProcess, ProcessEnded, new_process

pytestmark = pytest.mark.slow


def send_pid(send: Callable[[Any], None]) -> None:
    send(os.getpid())
    time.sleep(3600)


def leave_child(send: Callable[[Any], None]) -> None:
    """Start a process by `spawn` and one by `fork`, send their numbers, and end."""
    child = NewProcess(send_pid)
    send(child.receive())
    if not (forked := os.fork()):
        time.sleep(3600)
    send(forked)
    os._exit(3)


def wait_for_child(send: Callable[[Any], None]) -> None:
    child = subprocess.Popen(["sleep", "3600"])
    send(child.pid)
    child.wait()


def wait_until_ended(*numbers: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(psutil.pid_exists(number) and is_alive(psutil.Process(number)) for number in numbers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_process_that_ends_itself_leaves_no_child() -> None:
    with new_process(leave_child) as process:
        children = [process.receive(), process.receive()]
        with pytest.raises(ProcessEnded, match=r"^ended with status 3$"):
            process.receive()
        wait_until_ended(*children)


def test_process_that_is_ended_leaves_no_child() -> None:
    with new_process(wait_for_child) as process:
        child = process.receive()
    wait_until_ended(child)
