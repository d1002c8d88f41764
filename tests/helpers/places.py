"""Where things lie, for tests in any room."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # of the checkout
SHARED = ROOT.parent / "shared"  # real data and reference cases, where a machine has them
