"""What is said, and when a launch ends, where nothing moves: pytest tests/study/drivers/test_watchdog.py"""

import pytest

from study.drivers.driver import Stalled, Watchdog

HOUR = 3600.0


class Watched:
    """A watchdog with a clock that the test sets."""

    def __init__(self, **options: float) -> None:
        self.time = 0.0
        self.said: list[str] = []
        self.dog = Watchdog(say=self.said.append, clock=lambda: self.time, **options)

    def look(self, at: float, *, nodes: int = 1, has_room: bool = True) -> None:
        self.time = at
        self.dog.look(nodes=nodes, has_room=has_room, state="3 trials wait")


def test_it_speaks_after_ten_minutes_and_then_ever_more_rarely():
    watched = Watched()
    for minute in range(120):
        watched.look(60.0 * minute)
    assert watched.said == [
        f"no trial has made progress for {minutes} minutes: 3 trials wait" for minutes in (10, 30, 90)
    ]


def test_whatever_moves_starts_it_anew():
    watched = Watched()
    for minute in range(600):
        watched.look(60.0 * minute)
        if minute % 9 == 0:
            watched.dog.moved()
    assert watched.said == []


@pytest.mark.parametrize(
    ("options", "has_room", "limit"), [({}, True, 24), ({}, False, 1), ({"max_idle_hours": 0.5}, True, 0.5)]
)
def test_the_launch_ends_after_the_stated_time(options, has_room, limit):
    watched = Watched(**options)
    watched.look(limit * HOUR - 1, has_room=has_room)
    with pytest.raises(Stalled, match=r"no trial has made progress for .*: 3 trials wait"):
        watched.look(limit * HOUR, has_room=has_room)


def test_cluster_without_node_ends_and_resumes():
    watched = Watched()
    watched.look(0, nodes=0)
    watched.look(9, nodes=1)
    watched.look(18, nodes=0)
    with pytest.raises(Stalled, match="the Ray cluster no longer has a live node"):
        watched.look(28, nodes=0)
