"""A release: one version everywhere, and archives that hold what an installed study needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from helpers.places import PATIENCE_SECONDS, ROOT

from study.facts.events import FORMAT

PACKAGES = ("analysis", "search_spaces", "study", "trainables")


def list_tracked(*folders: str) -> list[str]:
    command = ["git", "ls-files", "--", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if (ROOT / name).exists()]


def list_data_files() -> set[str]:
    return {name for name in list_tracked(*PACKAGES) if not name.endswith(".py")}


def version() -> str:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_changelog_and_citation_have_the_version_of_the_package():
    newest = re.search(r"^## (\S+) \(\d{4}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest[1] == version()
    if "RELEASE" in os.environ:  # nothing is released under a heading without a version
        assert re.search(r"^## .*", newest.string, re.MULTILINE)[0] == newest[0]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version()


def test_changelog_has_format_of_study_files():
    _, newest, *_ = re.split(r"^## .*$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert f"The files of a study have format {FORMAT}." in newest


@pytest.fixture(scope="module")
def archives(tmp_path_factory) -> Path:
    """What `make release` has built, as RELEASE says, or else wheel and source archive of this tree."""
    if "RELEASE" in os.environ:
        return Path(os.environ["RELEASE"])
    tree, dist = tmp_path_factory.mktemp("tree") / "tree", tmp_path_factory.mktemp("dist")
    for name in list_tracked():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tree / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(tree)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr[-2000:]
    return dist


@pytest.mark.slow
def test_the_wheel_has_every_module_and_the_data_files(archives):
    (wheel,) = archives.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert modules | list_data_files() <= names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]
    assert f"-{version()}-" in wheel.name


@pytest.mark.slow
def test_the_source_archive_can_be_built_again(archives):
    (source,) = archives.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", *list_data_files()} <= names
