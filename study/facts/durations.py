"""How long something took and when it was, in one form everywhere."""

from datetime import datetime


def clock(seconds: float) -> str:
    """`75` as `1:15`, `3675` as `1:01:15`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def to_second(time: str) -> str:
    """`2026-11-24T02:09:53.896600+00:00` as `2026-11-24T02:09:53+00:00`."""
    return datetime.fromisoformat(time).isoformat(timespec="seconds")
