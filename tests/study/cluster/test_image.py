"""The image of `Dockerfile`, built and run: STUDY_IMAGE_BASE=IMAGE pytest tests/study/cluster/test_image.py

IMAGE is a base for `--build-arg BASE` that `buildah` can have here: a local one, or one that it may pull. The package
index must be reachable. It takes several gigabytes and minutes, so that nothing builds it unasked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.places import PATIENCE_SECONDS, ROOT

BASE, STORAGE = os.environ.get("STUDY_IMAGE_BASE"), os.environ.get("STUDY_IMAGE_STORAGE")
TAG = "localhost/glue-exit-study:test"


def lacking() -> str | None:
    if BASE is None:
        return "STUDY_IMAGE_BASE names no base image"
    if shutil.which("buildah") is None:
        return "buildah is not installed"
    return None if os.geteuid() == 0 else "buildah builds without a user namespace only as root"


pytestmark = [pytest.mark.slow, pytest.mark.skipif(lacking() is not None, reason=str(lacking()))]


def buildah(*words: str) -> str:
    where = ["--storage-driver", "vfs", *(["--root", STORAGE] if STORAGE else [])]
    command = ["buildah", *where, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3 * PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.fixture(scope="module")
def container() -> Iterator[str]:
    index = (
        ["--build-arg", f"TORCH_INDEX={os.environ['STUDY_IMAGE_TORCH']}"] if "STUDY_IMAGE_TORCH" in os.environ else []
    )
    buildah("bud", "--isolation", "chroot", "--network", "host", "--build-arg", f"BASE={BASE}", *index, "-t", TAG, ".")
    name = buildah("from", "--pull-never", TAG)
    yield name
    buildah("rm", name)
    buildah("rmi", TAG)


def said_in(container: str, command: str) -> str:
    return buildah("run", "--isolation", "chroot", container, "--", "bash", "-c", command)


def test_it_runs_as_a_user_who_is_not_root(container: str) -> None:
    assert said_in(container, "id -u; echo $HOME") == "1000\n/home/study"


def test_it_has_the_versions_that_are_tested(container: str) -> None:
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    found = said_in(container, "pip freeze --exclude-editable").splitlines()
    found = [line.partition("+")[0] for line in found]  # torch's name of its CPU build
    assert {pin.lower() for pin in pins if pin.startswith(("ray==", "torch==", "optuna==", "mlflow=="))} <= set(found)


def test_a_launch_plans_in_it(container: str) -> None:
    assert "nothing was run" in said_in(container, "python -m study.launch --method albert --task rte --dry-run")


def test_kubernetes_finds_in_it_what_it_calls(container: str) -> None:
    assert said_in(container, "command -v wget bash") == "/usr/bin/wget\n/usr/bin/bash"
    assert said_in(container, "bash -lc 'command -v ray python'") == "/opt/study/bin/ray\n/opt/study/bin/python"


def test_only_what_is_needed_is_in_it(container: str) -> None:
    assert Path(said_in(container, "pwd")).name == "glue-exit-study"
    assert said_in(container, "ls | grep -v egg-info").split() == [
        "LICENSE",
        "README.md",
        "analysis",
        "constraints.txt",
        "pyproject.toml",
        "search_spaces",
        "study",
        "trainables",
    ]
