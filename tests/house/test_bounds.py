"""The ends of what pyproject.toml allows: pytest tests/house/test_bounds.py; `make bounds-test` runs tests at both."""

import contextlib
import importlib.metadata
import re

import pytest
from helpers import requirements
from helpers.places import ROOT
from helpers.requirements import PROJECT
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from study.terminal.processes import EXTRA, EXTRA_MODULES

NEEDED = [
    Requirement(text) for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"][EXTRA])
]  # of a study


def pinned(name: str) -> dict[str, Version]:
    """The versions of a file of constraints."""
    lines = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE)
    return {package.lower().replace("_", "-"): Version(version) for package, version in lines}


def test_lowest_constraints_are_the_lower_bounds():
    bounds = {
        need.name: Version(bound.version) for need in NEEDED for bound in need.specifier if bound.operator == ">="
    }
    assert pinned("constraints-lowest.txt") == bounds
    assert len(bounds) == len(NEEDED)


def test_tested_versions_are_within_the_bounds():
    tested = pinned("constraints.txt")
    assert [need.name for need in NEEDED if not need.specifier.contains(tested[need.name])] == []


def test_tested_versions_can_be_installed_on_the_first_python_that_the_project_allows():
    (first,) = re.findall(r">=([\d.]+)", PROJECT["requires-python"])
    refused = {}
    for name, version in pinned("constraints.txt").items():
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # of an extra that is not installed
            package = importlib.metadata.distribution(name)
            if Version(package.version) == version and (needed := package.metadata.get("Requires-Python")):
                refused |= {} if SpecifierSet(needed).contains(f"{first}.0") else {name: needed}
    assert refused == {}


def test_no_bound_of_a_study_is_one_exact_version():
    assert [need.name for need in NEEDED for bound in need.specifier if bound.operator in ("==", "~=")] == []


def test_modules_of_the_extra_are_those_of_its_packages():
    extra = {Requirement(text).name for text in PROJECT["optional-dependencies"][EXTRA]}
    with_base = {"pyyaml", "tqdm"}  # Optuna, which is in the base, brings them too
    modules = {{"scikit-learn": "sklearn"}.get(name, name) for name in extra - with_base}
    assert {*EXTRA_MODULES} == modules | {"huggingface_hub", "tokenizers"}


def test_extras_of_a_study_contain_the_one_that_trains():
    extras = PROJECT["optional-dependencies"]
    assert [name for name in extras if name != EXTRA and f"glue-exit-study[{EXTRA}]" not in extras[name]] == []


def test_newest_versions_are_compared_with_the_tested_ones(monkeypatch: pytest.MonkeyPatch):
    installed = {"torch": "3.1.0+cpu", "ray": "2.60.0", "mlflow": "3.17.2", "types-PyYAML": "6.1"}

    def version(name: str) -> str:
        if name in installed:
            return installed[name]
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    tested = {"torch": "2.13.0", "ray": "2.60.0", "mlflow": "3.17.1", "types-pyyaml": "6.1"}
    texts = ("torch>=2.9,<3", "ray[tune]>=2.59", "mlflow>=3.16,<3.19", "pandas>=3", "types-PyYAML>=6")
    needed = [Requirement(text) for text in texts]
    assert requirements.describe_versions(needed, tested) == [
        "torch 3.1.0: tested with 2.13.0; pyproject.toml allows <3,>=2.9",
        "mlflow 3.17.2: tested with 3.17.1",
    ]
