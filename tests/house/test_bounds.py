"""The ends of what pyproject.toml allows: pytest tests/house/test_bounds.py; `make bounds-test` runs tests at both."""

import re
import tomllib

from helpers.places import ROOT
from packaging.requirements import Requirement
from packaging.version import Version

NEEDED = [Requirement(text) for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]]


def pinned(name: str) -> dict[str, Version]:
    """The versions of a file of constraints."""
    lines = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE)
    return {package.lower().replace("_", "-"): Version(version) for package, version in lines}


def test_lowest_constraints_are_the_lower_bounds():
    bounds = {
        need.name: Version(bound.version)
        for need in NEEDED
        for bound in need.specifier
        if bound.operator in (">=", "==")
    }
    assert pinned("constraints-lowest.txt") == bounds
    assert len(bounds) == len(NEEDED)


def test_tested_versions_are_within_the_bounds():
    tested = pinned("constraints.txt")
    assert [need.name for need in NEEDED if not need.specifier.contains(tested[need.name])] == []
