"""Is this machine, or every node of a Ray cluster, ready for a study? `python -m study.doctor`.

Checks packages, Ray, GPUs, data, storage and tracking, and says of each fault what to do about it.
Exit status: 0 ready, 1 faults, 2 bad usage.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import logging
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
import tomllib
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study.storage import exists, is_uri, small_object, storage_address

PROJECT = "glue-exit-study"
MUST_AGREE = ("ray", "torch", "transformers", "datasets", "optuna")  # between nodes, or numbers and pickles differ
NODE_SECONDS = 180.0  # a node may have to import torch from a slow disk
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
    """The versions that nodes of a cluster must have in common; those that are not installed are left out."""
    found = {}
    for name in MUST_AGREE:
        try:
            found[name] = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def _requirements() -> list[str]:
    """What the project needs, of its checkout or else of its installed package; without the extras."""
    checkout = Path(__file__).parents[1] / "pyproject.toml"
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

    found, absent = [], []
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
        found.append(name)
    if not found:
        return [
            Finding("data", f"{data} holds no task: allowed are mini, hub or a folder such as {data}/RTE/*.tsv", True)
        ]
    without = f"; without {', '.join(absent)}" if absent else ""
    return [Finding("data", f"{data}: {', '.join(found)}{without}")]


def check_storage(folder: Path, marker: Path | None) -> list[Finding]:
    """A file can be written to where `folder` lies or will lie, and the `marker` of the driver is seen from here."""
    place = _existing(folder)
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


def _existing(folder: Path) -> Path:
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


def check_tracking(uri: str) -> list[Finding]:
    """The tracking store answers."""
    from study.tracking import count_experiments, masked, outages, prepare_environment, reason

    prepare_environment()
    try:
        count = count_experiments(uri)
    except outages() as error:
        advice = "start the server, mend --tracking-uri, or go on without: python -m study.mirror catches up later"
        return [Finding("tracking", f"{masked(uri)} does not answer ({reason(error)}): {advice}", True)]
    return [Finding("tracking", f"{masked(uri)}, {count} experiments")]


def check_cluster(address: str | None, *, data: str, storage: str) -> Iterator[Finding]:
    """Ray answers at `address`, or starts on this machine where it is null; then every node is checked."""
    import ray

    where = f"the cluster at {address}" if address else "this machine"
    try:
        if address:
            _knock(address)
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, include_dashboard=None)
    except Exception as error:  # Ray raises anything from ConnectionError to bare RuntimeError
        reason = str(error).strip().partition("\n")[0]
        advice = (
            "is it up (ray status), is the address right, is Ray's version the same?" if address else "see ray's logs"
        )
        yield Finding("Ray", f"does not start on {where} ({reason}): {advice}", True)
        return
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        total = ray.cluster_resources()
        size = f"{len(nodes)} nodes, {total.get('CPU', 0):g} CPUs, {total.get('GPU', 0):g} GPUs"
        yield Finding("Ray", f"{ray.__version__} on {where}: {size}")
        with _marker(storage) as marker:
            yield from _check_nodes(nodes, data=data, storage=storage, marker=marker)
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """OSError where nothing listens at `address`; `ray.init` would wait for it without an end."""
    host, _, port = address.rpartition("://")[-1].rpartition(":")
    if port.isdigit():  # "auto" has none, and answers at once
        socket.create_connection((host, int(port)), timeout=5).close()


def _check_nodes(nodes: list[dict[str, Any]], **settings: Any) -> Iterator[Finding]:
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def report(gpus: float) -> tuple[dict[str, str], list[Finding]]:
        from study import doctor  # the node's own copy: a node without the project says so here

        return doctor.versions_here(), doctor.check_node(gpus=gpus, **settings)

    tasks = [
        ray.remote(num_cpus=0, max_retries=0)(report)
        .options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
        .remote(node["Resources"].get("GPU", 0.0))
        for node in nodes
    ]
    deadline = time.monotonic() + NODE_SECONDS
    for node, task in zip(nodes, tasks, strict=True):
        host = node["NodeManagerAddress"]
        try:
            versions, findings = ray.get(task, timeout=max(deadline - time.monotonic(), 1.0))
        except RayError as error:
            reason = str(error).strip().splitlines()[-1]
            advice = "install the project there (the setup commands of cluster.yaml do), or take the node out"
            yield Finding(f"node {host}", f"cannot run the check ({reason}): {advice}", True)
            continue
        differing = [
            f"{name} {versions.get(name)}, here {mine}"
            for name, mine in versions_here().items()
            if versions.get(name) != mine
        ]
        if differing:
            yield Finding(f"node {host}", f"{'; '.join(differing)}: install constraints.txt on every node", True)
        for finding in findings:
            yield Finding(f"{finding.subject} on {host}", finding.text, finding.is_fault)


@contextmanager
def _marker(storage: str) -> Iterator[str | None]:
    """What lies in `storage` for a while; None where it cannot be written, which the check of storage tells."""
    with ExitStack() as stack:
        try:
            marker = stack.enter_context(small_object(storage) if is_uri(storage) else _small_file(Path(storage)))
        except (OSError, ValueError):
            marker = None
        yield marker


@contextmanager
def _small_file(folder: Path) -> Iterator[str]:
    path = _existing(folder) / f".doctor-{uuid.uuid4().hex}"
    path.touch()
    try:
        yield str(path)
    finally:
        path.unlink()


def _guarded(subject: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return check()
    except Exception as error:  # a broken install can raise anything: it is a finding, and the other checks go on
        return [Finding(subject, f"{type(error).__name__}: {error}: pip install -c constraints.txt -e . again", True)]


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    faults = 0
    try:
        for finding in _findings(options, storage_address(options.storage)):
            faults += finding.is_fault
            print(f"{'FAULT' if finding.is_fault else 'ok':6}{finding.subject}: {finding.text}", flush=True)
    except ValueError as error:
        print(f"study.doctor: {error}", file=sys.stderr)
        return 2
    print("ready" if not faults else f"{faults} fault(s)")
    return 1 if faults else 0


def _findings(options: argparse.Namespace, storage: str) -> Iterator[Finding]:
    here = check_packages()
    yield from here
    if any(finding.is_fault for finding in here):
        return  # nothing else would tell more than that
    data = options.data if options.data in ("mini", "hub") else str(Path(options.data).resolve())
    yield from check_cluster(options.address, data=data, storage=storage)
    if options.tracking_uri:
        yield from check_tracking(options.tracking_uri)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m study.doctor", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--address", default=os.environ.get("RAY_ADDRESS"), help="of a Ray cluster (default: this machine)"
    )
    parser.add_argument("--data", default="mini", metavar="mini|hub|FOLDER", help="what the study will train on (mini)")
    parser.add_argument(
        "--storage", default="runs", metavar="PATH_OR_URI", help="the launch's --storage, or else its --out (runs)"
    )
    parser.add_argument("--tracking-uri", metavar="URI", help="MLflow store or server to ask as well")
    return parser


if __name__ == "__main__":
    sys.exit(main())
