"""What only a node itself can see: packages, GPUs, data and storage. Each fault says what to do about it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from study.storage.addresses import exists, is_uri, small_object

PROJECT = "glue-exit-study"
TOLD = ("ray", "torch", "transformers", "datasets", "optuna")
LITTLE_SPACE_GB = 10.0


@dataclass(frozen=True)
class Finding:
    """One line of the answer. The text of a fault ends with what to do about it."""

    subject: str
    text: str
    is_fault: bool = False


def check_packages() -> list[Finding]:
    """Every dependency of the project is there, in a version within its bounds."""
    faults = [fault for text in _requirements() if (fault := _missing(text))]
    if faults:
        return [Finding("packages", f"{'; '.join(faults)}: pip install -c constraints.txt -e .", True)]
    versions = ", ".join(f"{name} {version}" for name, version in versions_here().items())
    return [Finding("packages", f"python {platform.python_version()}, {versions}")]


def versions_here() -> dict[str, str]:
    """The versions that are worth a line; those that are not installed are left out."""
    versions = {}
    for name in TOLD:
        try:
            versions[name] = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            pass
    return versions


def _requirements() -> list[str]:
    """What the project needs, of its checkout or else of its installed package; without the extras."""
    checkout = Path(__file__).parents[2] / "pyproject.toml"
    if checkout.exists():
        return tomllib.loads(checkout.read_text())["project"]["dependencies"]
    return [text for text in importlib.metadata.requires(PROJECT) or [] if "extra ==" not in text]


def _missing(requirement: str) -> str | None:
    from packaging.requirements import Requirement

    wanted = Requirement(requirement)
    try:
        version = importlib.metadata.version(wanted.name)
    except importlib.metadata.PackageNotFoundError:
        return f"{wanted.name} is not installed"
    fits = wanted.specifier.contains(version, prereleases=True)
    return None if fits else f"{wanted.name} is {version}, wanted {wanted.specifier}"


def check_gpus(expected: float) -> list[Finding]:
    """The driver and the build of torch fit the number of GPUs that Ray counts here."""
    import torch

    if not expected:
        return [Finding("GPUs", "none")]
    if torch.version.cuda is None:
        advice = "install a CUDA build: pip install --force-reinstall torch==VERSION from PyPI"
        return [Finding("GPUs", f"{expected:g} GPUs, but torch {torch.__version__} is a CPU build: {advice}", True)]
    driver = Path("/proc/driver/nvidia/version")
    if not driver.exists():
        return [Finding("GPUs", f"{expected:g} GPUs, but no NVIDIA driver is loaded: use an image with a driver", True)]
    return [Finding("GPUs", f"{expected:g}, torch for CUDA {torch.version.cuda}, {driver.read_text().splitlines()[0]}")]


def check_data(data: str) -> list[Finding]:
    """The development split of every task that is there can be read."""
    from trainables.data import glue
    from trainables.data.tasks import TASKS, TRAINABLE_TASKS

    tasks, absent = [], []
    for name in TRAINABLE_TASKS:
        try:
            glue.check_data(TASKS[name], data)
        except ValueError:
            absent.append(name)
            continue
        try:
            glue.load_split(TASKS[name], TASKS[name].dev_splits[0], data)
        except (ValueError, OSError) as error:
            return [Finding("data", f"{error}: mend the file, or choose another --data", True)]
        tasks.append(name)
    if not tasks:
        return [
            Finding("data", f"{data} holds no task: allowed are mini, hub or a folder such as {data}/RTE/*.tsv", True)
        ]
    without = f"; without {', '.join(absent)}" if absent else ""
    return [Finding("data", f"{data}: {', '.join(tasks)}{without}")]


def check_storage(folder: Path, marker: Path | None) -> list[Finding]:
    """A file can be written to where `folder` lies or will lie, and the `marker` of the driver is seen from here."""
    place = nearest_existing(folder)
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".doctor-") as file:
            file.write(b"written by study.doctor")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        advice = "make it writable, or choose another --storage"
        return [Finding("storage", f"{place} cannot be written ({error.strerror}): {advice}", True)]
    if marker is not None and not marker.exists():
        advice = "mount one shared folder at the same path on every node and give it as --storage"
        return [Finding("storage", f"{folder} is not the folder that the other nodes see: {advice}", True)]
    free = shutil.disk_usage(place).free / 1e9
    if free < LITTLE_SPACE_GB:
        return [
            Finding("storage", f"{folder} has only {free:.1f} GB free: make room, or choose another --storage", True)
        ]
    return [Finding("storage", f"{folder}, {free:.0f} GB free")]


def check_objects(uri: str, marker: str | None) -> list[Finding]:
    """An object can be written and deleted under `uri`, and the `marker` of the driver is seen from here."""
    try:
        with small_object(uri):
            seen = marker is None or exists(marker)
    except (OSError, ValueError) as error:
        advice = "give this node the credentials (a role, or environment variables), or choose another --storage"
        return [Finding("storage", f"{error}: {advice}", True)]
    if not seen:
        return [Finding("storage", f"{uri} is not what the other nodes see there: choose another --storage", True)]
    return [Finding("storage", f"{uri} can be written")]


def nearest_existing(folder: Path) -> Path:
    """`folder`, or the nearest one above it that is there."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def check_node(*, gpus: float, data: str, storage: str, marker: str | None) -> list[Finding]:
    """All that can only be seen on the node itself."""
    checks: dict[str, Callable[[], list[Finding]]] = {
        "packages": check_packages,
        "GPUs": lambda: check_gpus(gpus),
        "data": lambda: check_data(data),
        "storage": lambda: (
            check_objects(storage, marker)
            if is_uri(storage)
            else check_storage(Path(storage), Path(marker) if marker else None)
        ),
    }
    return [finding for subject, check in checks.items() for finding in _guarded(subject, check)]


def _guarded(subject: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return check()
    except Exception as error:  # a broken install can raise anything: it is a finding, and the other checks go on
        return [Finding(subject, f"{type(error).__name__}: {error}: pip install -c constraints.txt -e . again", True)]
