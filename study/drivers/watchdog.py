"""The watchdog: it warns if a launch makes no progress, and later stops the launch, which can then be continued."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

SPEAK_SECONDS = 600.0  # without progress before the first warning; later warnings come at growing intervals
NO_NODE_SECONDS = 10.0  # without a live node; Ray notices lost nodes after 15 s; later nodes would form another cluster
NO_ROOM_SECONDS = 3600.0  # without a node that can hold a trial; an autoscaler may take that long to add one
IDLE_HOURS = 24.0  # without progress for any reason; no step takes this long


class Stalled(Exception):
    """The error that ends a launch without progress."""


class Watchdog:
    """Measures how long no trial has made progress, and limits this time."""

    def __init__(
        self,
        *,
        max_idle_hours: float = IDLE_HOURS,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        """Start the timer; `say` prints a line, and `clock` returns seconds."""
        self._limit = 3600 * max_idle_hours
        self.say = say
        self._clock = clock
        self.moved()

    def moved(self) -> None:
        """Restart the timer, because a trial has begun, reported, ended or failed."""
        self._moved = self._clock()
        self._nodes_gone = math.inf  # when the last node was lost; infinite while a node is alive
        self._next_word = self._moved + SPEAK_SECONDS

    def look(self, *, nodes: int, has_room: bool, state: str) -> None:
        """Warn if there has been no progress for long.

        `nodes` is the number of live nodes; `has_room` is True if any of them can hold a trial. The warning includes
        `state`, which describes what the launch is waiting for.

        Raises:
            Stalled: if there was no progress for too long.
        """
        now = self._clock()
        self._nodes_gone = math.inf if nodes else min(self._nodes_gone, now)
        idle = f"no progress for {_minutes(now - self._moved)}: {state}"
        if now - self._nodes_gone >= NO_NODE_SECONDS:
            raise Stalled(f"the Ray cluster has no live node any more; {idle}")
        if now - self._moved >= (self._limit if has_room else min(self._limit, NO_ROOM_SECONDS)):
            raise Stalled(idle)
        if now >= self._next_word:
            self.say(idle)
            self._next_word = now + 2 * (now - self._moved)


def _minutes(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 2 * 3600 else f"{seconds / 60:.0f} minutes"
