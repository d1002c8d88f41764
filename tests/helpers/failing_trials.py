"""A trial for `benchmarks.shared_device` that fails or waits; without torch, so that its process starts fast."""

from __future__ import annotations

from multiprocessing.synchronize import Barrier
from typing import Any


def fail_or_wait(seed: int, backbone: str, arguments: Any, barrier: Barrier, results: Any) -> None:
    """Fail as trial 0; as any other trial, wait for all."""
    if seed == 0:
        raise SystemExit(3)
    barrier.wait()
