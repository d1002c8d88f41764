"""The image of `Dockerfile`, built and run: STUDY_IMAGE_BASE=IMAGE pytest -rs tests/study/cluster/test_image.py

IMAGE is a base for `--build-arg BASE` that `buildah` can have here: a local one, of the folder STUDY_IMAGE_STORAGE if
that is set, or one that it may pull. The package index must be reachable, and a CPU build of torch: PyTorch's, or the
index STUDY_IMAGE_TORCH. It takes several gigabytes and minutes, so that nothing builds it unasked.

As root, with a base image that needs no registry:

    HERE=/var/tmp/image; BUILDAH="buildah --storage-driver vfs --root $HERE/storage"
    debootstrap --variant=minbase --include=python3,python3-venv,wget,ca-certificates bookworm $HERE/base
    CONTAINER=$($BUILDAH from scratch) && $BUILDAH copy $CONTAINER $HERE/base /
    $BUILDAH commit --rm $CONTAINER localhost/bookworm
    STUDY_IMAGE_BASE=localhost/bookworm STUDY_IMAGE_STORAGE=$HERE/storage pytest -rs tests/study/cluster/test_image.py
    $BUILDAH bud --isolation chroot --network host --build-arg BASE=localhost/bookworm -t glue-exit-study .
    rm -r $HERE

Behind a proxy with its own certificate, append it to $HERE/base/etc/ssl/certs/ca-certificates.crt after `debootstrap`.
Another index of torch may be local: `python -m http.server 8642` serves a folder with torch/torch-VERSION+cpu-....whl
at http://127.0.0.1:8642; `--build-arg TORCH_INDEX=URL` names it to `buildah bud`.
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
TORCH_INDEX = os.environ.get("STUDY_IMAGE_TORCH")
TAG = "localhost/glue-exit-study:test"


def lacking() -> list[str]:
    disk = STORAGE if STORAGE and Path(STORAGE).is_dir() else "/var/lib"
    found = {
        "STUDY_IMAGE_BASE, which names a base image (the head of this file makes one)": BASE is not None,
        "buildah": shutil.which("buildah") is not None,
        "root, as whom buildah builds without a user namespace": os.geteuid() == 0,
        "10 GB of free disk": shutil.disk_usage(disk).free > 10e9,
    }
    return [thing for thing, is_here in found.items() if not is_here]


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=f"there is no {', no '.join(lacking())}")]


def buildah(*words: str) -> str:
    where = ["--storage-driver", "vfs", *(["--root", STORAGE] if STORAGE else [])]
    command = ["buildah", *where, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3 * PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def build(tag: str, torch_index: str | None) -> None:
    arguments = [f"BASE={BASE}", *([f"TORCH_INDEX={torch_index}"] if torch_index else [])]
    words = [word for argument in arguments for word in ("--build-arg", argument)]
    buildah("bud", "--isolation", "chroot", "--network", "host", *words, "-t", tag, ".")


@pytest.fixture(scope="module")
def container() -> Iterator[str]:
    build(TAG, TORCH_INDEX)
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


def test_its_torch_is_the_build_for_cpus(container: str) -> None:
    assert said_in(container, "python -c 'import torch; print(torch.version.cuda)'") == "None"


def test_an_index_without_torch_ends_the_build() -> None:
    with pytest.raises(AssertionError, match="Cannot install torch"):
        build("localhost/glue-exit-study:without-torch", "http://127.0.0.1:9/nothing-listens")


def test_a_launch_plans_in_it(container: str) -> None:
    assert "nothing was run" in said_in(container, "python -m study.launch --method albert --task rte --dry-run")


def test_its_code_is_found_from_any_folder(container: str) -> None:
    said_in(container, "cd / && python -c 'import analysis, search_spaces, study, trainables'")


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
