"""Where things lie, and how long tests wait, in any room."""

from __future__ import annotations

import socket
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # of the checkout
GLUE = ROOT.parent / "shared" / "glue"  # the real files of GLUE, where a machine has them
CASES = ROOT / "tests" / "cases"  # numbers computed by the original code

# For any process, server or notebook, however busy the machine: a whole study takes a minute on an idle one. No test
# measures how long it waited.
PATIENCE_SECONDS = 1200


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]
