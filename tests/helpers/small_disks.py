"""A disk of a given size, which tests fill: a tmpfs, mounted for one test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, *, kilobytes: int, inodes: int = 0) -> Iterator[Path]:
    """Mount a disk of this size; 0 inodes means as many as fit. Skip the test if mounts are not permitted."""
    folder.mkdir()
    options = f"size={kilobytes}k" + f",nr_inodes={inodes}" * bool(inodes)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this machine mounts no tmpfs for tests: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def enlarge(disk: Path, *, kilobytes: int) -> None:
    """Give a mounted disk another size."""
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(disk)], check=True)
