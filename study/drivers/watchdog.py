"""The watchdog: it warns if nothing moves, and in the end stops the launch, which the same command continues."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

SPEAK_SECONDS = 600.0  # without a start, a step, an end or a failure; then again after twice as long
NO_NODE_SECONDS = 10.0  # with no node alive, which Ray reports after 15: later nodes are another cluster
NO_ROOM_SECONDS = 3600.0  # with no node that could hold a trial: as long as an autoscaler may take
IDLE_HOURS = 24.0  # whatever the reason; longer than the longest step


class Stalled(Exception):
    """The end of a launch in which nothing moves any more."""


class Watchdog:
    """A comparison, made again and again, of how long nothing has moved with how long that may be."""

    def __init__(
        self,
        *,
        max_idle_hours: float = IDLE_HOURS,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        """`say` prints a line; `clock` is in seconds."""
        self._limit = 3600 * max_idle_hours
        self.say = say
        self._clock = clock
        self.moved()

    def moved(self) -> None:
        """Note that a trial has begun, reported, ended or failed."""
        self._moved = self._clock()
        self._nodes_gone = math.inf  # since when no node has been alive
        self._next_word = self._moved + SPEAK_SECONDS

    def look(self, *, nodes: int, has_room: bool, state: str) -> None:
        """Warn if it is time to.

        `nodes` is the number of those alive, `has_room` whether a trial fits on any, `state` what is waited for.

        Raises:
            Stalled: nothing has moved for too long.
        """
        now = self._clock()
        self._nodes_gone = math.inf if nodes else min(self._nodes_gone, now)
        idle = f"nothing has moved for {_minutes(now - self._moved)}: {state}"
        if now - self._nodes_gone >= NO_NODE_SECONDS:
            raise Stalled(f"no node of the Ray cluster is alive any more; {idle}")
        if now - self._moved >= (self._limit if has_room else min(self._limit, NO_ROOM_SECONDS)):
            raise Stalled(idle)
        if now >= self._next_word:
            self.say(idle)
            self._next_word = now + 2 * (now - self._moved)


def _minutes(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 2 * 3600 else f"{seconds / 60:.0f} minutes"
