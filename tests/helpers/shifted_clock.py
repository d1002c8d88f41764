"""A clock that jumps: as `sitecustomize` on PYTHONPATH, every Python process of a launch takes the time from here.

What Python takes for the time is the machine's, and the seconds that stand in the file SHIFTED_CLOCK more.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import os
import time
from pathlib import Path

_machine_time = time.time


def shifted_time() -> float:
    with Path(os.environ["SHIFTED_CLOCK"]).open() as file:
        return _machine_time() + float(file.read())


def _now(kind: type[datetime.datetime], tz: datetime.tzinfo | None = None) -> datetime.datetime:
    return kind.fromtimestamp(shifted_time(), tz)


def shift_clock() -> None:
    """From here on. The type `datetime` stays the one that C code knows; only its `now` is replaced."""
    time.time = shifted_time
    time.time_ns = lambda: int(1e9 * shifted_time())
    gc.get_referents(vars(datetime.datetime))[0]["now"] = classmethod(_now)  # the type's own dict
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.datetime))


if __name__ == "sitecustomize":
    shift_clock()
