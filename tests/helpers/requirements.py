"""What pyproject.toml requires, and how the versions of an environment differ from the tested ones; for the Makefile.

python -m helpers.requirements names      # all requirements without their bounds, for pip
python -m helpers.requirements versions   # a line for each package with another version than constraints.txt
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping

from helpers.places import ROOT
from packaging.requirements import Requirement
from packaging.version import Version

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("train", "dev")


def read_requirements() -> list[Requirement]:
    """The requirements of studies and of their tests, without the project itself."""
    texts = [*PROJECT["dependencies"], *(text for extra in EXTRAS for text in PROJECT["optional-dependencies"][extra])]
    return [needed for text in texts if (needed := Requirement(text)).name != PROJECT["name"]]


def read_tested() -> dict[str, str]:
    """Package -> its version in constraints.txt."""
    lines = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in lines}


def describe_versions(needed: Iterable[Requirement], tested: Mapping[str, str]) -> list[str]:
    """A line for each package that is installed in another version than the tested one."""
    lines = []
    for requirement in needed:
        try:
            version = Version(importlib.metadata.version(requirement.name)).public
        except importlib.metadata.PackageNotFoundError:
            continue
        expected = tested[requirement.name.lower()]
        if version != expected:
            is_allowed = requirement.specifier.contains(version, prereleases=True)
            limit = "" if is_allowed else f"; pyproject.toml allows {requirement.specifier}"
            lines.append(f"{requirement.name} {version}: tested with {expected}{limit}")
    return lines


if __name__ == "__main__":
    if sys.argv[1] == "names":
        for requirement in read_requirements():
            extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
            print(f"{requirement.name}{extras}")
    else:
        print("\n".join(describe_versions(read_requirements(), read_tested()) or ["all versions are the tested ones"]))
