"""Where a Ray cluster is. Launch and doctor ask the same: `--address`, or else RAY_ADDRESS, or else this machine."""

from __future__ import annotations

import os

_ALLOWED = "auto, HOST:PORT, ray://HOST:PORT"


def cluster_address() -> str | None:
    """What `--address` is where it is not given; None: Ray on this machine alone."""
    address = os.environ.get("RAY_ADDRESS", "")
    return None if address in ("", "local") else address  # Ray's own word for this machine


def named(address: str) -> str:
    """The address of a cluster with the name of what gave it."""
    return f"RAY_ADDRESS {address}" if address == os.environ.get("RAY_ADDRESS") else f"--address {address}"


def check_address(address: str) -> None:
    """Passes if it is an address, and holds no user and no password, which would stand in the plan and the journal.

    Raises:
        ValueError: it is none, or does.
    """
    if "@" in address or "?" in address:
        name, _, _ = named(address).partition(" ")
        raise ValueError(f"{name} holds more than a host and a port; allowed: {_ALLOWED}")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto" and (not host or "/" in host or not is_port(port)):
        raise ValueError(f"{named(address)}: allowed: {_ALLOWED}")


def is_port(text: str) -> bool:
    """Whether a text is the number of a port."""
    return text.isascii() and text.isdigit() and 0 < int(text) < 2**16
