"""Check that this machine, or every node of a Ray cluster, is ready for a study: `python -m study.doctor`.

Checks Ray, code, clocks, GPUs, data, storage and tracking, and prints a remedy for each fault.
With --cluster, it only checks that a file such as cluster.yaml has no unfilled fields, before anything is started.
The exit status is 0 if everything is ready, 1 if there are faults, and 2 if an option is invalid.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from msgspec import field
from msgspec.structs import replace

from study.facts.provenance import Provenance, list_other_code, read_provenance, versions
from study.facts.study_folder import RUNS
from study.storage.addresses import (
    check_address,
    check_tracking_address,
    exists,
    find_existing,
    is_uri,
    read_cluster_address,
    resolve_storage_address,
    small_object,
)
from study.terminal.command_line import Command, option
from study.terminal.text import counted, masked
from trainables.configuration import NotNegative
from trainables.configuration.error_text import take_first_line
from trainables.configuration.schema import Typed
from trainables.data import glue

SHOWN = ("python", "ray", "torch", "transformers", "datasets", "optuna")
UNFILLED = "FILL_IN"  # in cluster.yaml and kubernetes/*.yaml, what the user has to replace
LITTLE_SPACE_GB = 1.0  # the launch compares the free space with what its own study needs
NODE_SECONDS = 180.0  # a node may have to import torch from a slow disk
CLOCK_SECONDS = 60.0  # largest clock error that logs, tokens and signed requests tolerate


class Options(Typed, frozen=True, kw_only=True):
    """The options of this command."""

    address: Annotated[str | None, option("Ray cluster to check; default: RAY_ADDRESS, or else this machine")] = field(
        default_factory=read_cluster_address
    )
    cluster: Annotated[
        str | None, option("only name the unfilled fields of this file, such as cluster.yaml", "FILE")
    ] = None
    data: Annotated[str, option("data of the study; default: mini", "mini|hub|FOLDER")] = "mini"
    storage: Annotated[
        str, option(f"where studies will be stored (--storage or --out of a launch); default: {RUNS}", "PATH_OR_URI")
    ] = RUNS
    tracking_uri: Annotated[str | None, option("also check this MLflow store", "URI")] = None
    wait_minutes: Annotated[
        NotNegative, option("minutes to wait for a worker of each node type; default: %(default)g", "X")
    ] = 15.0


@dataclass(frozen=True)
class Finding:
    """The result of a check, which is printed as one line. The text of a fault ends with a remedy."""

    subject: str
    text: str
    is_fault: bool = False


def list_packages() -> Finding:
    """List the versions of Python and of the most important packages."""
    shown = [f"{name} {version.partition('+')[0]}" for name, version in versions().items() if name in SHOWN]
    return Finding("packages", ", ".join(shown))


def check_gpus(expected: float) -> Finding:
    """Check that torch is a CUDA build and that an NVIDIA driver is loaded.

    `expected` is the number of GPUs that the node should have. If this number is 0, nothing is checked.
    """
    import torch

    if not expected:
        return Finding("GPUs", "none")
    node = f"Ray assigns {expected:g} GPUs to the node"
    if torch.version.cuda is None:
        advice = "install a CUDA build from PyPI (pip install --force-reinstall torch==VERSION)"
        return Finding("GPUs", f"{node}, but torch {torch.__version__} is a CPU build: {advice}", True)
    driver = Path("/proc/driver/nvidia/version")
    if not (driver.exists() or torch.cuda.is_available()):  # a sandbox may have GPUs but no folder of the driver
        return Finding("GPUs", f"{node}, but no NVIDIA driver is loaded: use an image with a driver", True)
    loaded = f", {driver.read_text().splitlines()[0]}" if driver.exists() else ""
    return Finding("GPUs", f"{expected:g}, torch for CUDA {torch.version.cuda}{loaded}")


def check_data(data: str) -> Finding:
    """Check that `data` has at least one task, and that the development split of each task can be read."""
    from trainables.data.tasks import GLUE_TASKS, TASKS

    tasks, absent = [], []
    for name in GLUE_TASKS:
        try:
            glue.check_data(TASKS[name], data)
        except ValueError:
            absent.append(name)
            continue
        try:
            glue.load_split(TASKS[name], TASKS[name].dev_splits[0], data)
        except (ValueError, OSError) as error:
            return Finding("data", f"{error}: correct the file, or choose another --data", True)
        tasks.append(name)
    if not tasks:
        return Finding("data", f"{data} has no task: give mini, hub or a folder with files such as RTE/dev.tsv", True)
    missing = f"; these tasks are missing: {', '.join(absent)}" if absent else ""
    return Finding("data", f"{data} has the tasks {', '.join(tasks)}{missing}")


def check_storage(storage: str, marker: str | None) -> Finding:
    """Check that files can be written to the storage and, if it is a folder, that there is enough free space.

    Args:
        marker: a file in the storage that this node must see, or None.
    """
    place = _find_place(storage)
    try:
        if is_uri(storage):
            with small_object(place):
                is_shared = marker is None or exists(marker)
        else:
            with tempfile.NamedTemporaryFile(dir=place, prefix=".doctor-") as file:
                file.write(b"written by study.doctor")
                file.flush()
                os.fsync(file.fileno())  # some file systems report a full disk or quota only here
            is_shared = marker is None or exists(marker)
    except ValueError as error:
        advice = "give this node the credentials (a role, or environment variables), or choose another --storage"
        return Finding("storage", f"{error}: {advice}", True)
    except OSError as error:
        advice = "make the folder writable, or choose another --storage"
        return Finding("storage", f"{place} cannot be written ({error.strerror}): {advice}", True)
    if not is_shared:
        advice = "mount one shared folder at the same path on every node, or choose another --storage"
        return Finding("storage", f"this node does not see the files of the other nodes in {storage}: {advice}", True)
    if is_uri(storage):
        return Finding("storage", f"files can be written to {storage}")
    free = shutil.disk_usage(place).free / 1e9
    if free < LITTLE_SPACE_GB:
        advice = "make room, or choose another --storage"
        return Finding("storage", f"{storage} has only {free:.1f} GB of free space: {advice}", True)
    return Finding("storage", f"{storage} has {free:.1f} GB of free space")


def _find_place(storage: str) -> str:
    """Return the storage if it is a URI or an existing folder, else the nearest existing folder above it."""
    return storage if is_uri(storage) else str(find_existing(Path(storage)))


def check_token() -> list[Finding]:
    """Check that no other user of this machine can read the token of a Ray cluster; return no finding if so."""
    from study.cluster.ray_cluster import describe_readable_token

    return [Finding("token", fault, True) for fault in (describe_readable_token(),) if fault]


def check_node(*, gpus: float, data: str, storage: str, marker: str | None) -> list[Finding]:
    """Run the checks that must run on the node itself: token, GPUs, data and storage."""
    return [
        list_packages(),
        *check_token(),
        _run_check("GPUs", partial(check_gpus, gpus)),
        _run_check("data", partial(check_data, data)),
        _run_check("storage", partial(check_storage, storage, marker)),
    ]


def _run_check(subject: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # noqa: BLE001  # a broken install can raise anything, and the other checks must run
        advice = "reinstall the project (pip install -c constraints.txt -e '.[train]')"
        return Finding(subject, f"{type(error).__name__}: {error}: {advice}", True)


def check_tracking(uri: str) -> Finding:
    """Check that the MLflow tracking store at `uri` can be reached."""
    from study.mlflow_mirror.tracking import count_experiments, outages, prepare_environment, reason

    prepare_environment()
    try:
        count = count_experiments(uri)
    except outages() as error:
        advice = "start the server, correct --tracking-uri, or launch without --tracking-uri and run study.mirror later"
        return Finding("tracking", f"{masked(uri)} does not answer ({reason(error)}): {advice}", True)
    return Finding("tracking", f"{masked(uri)} has {counted(count, 'experiment')}")


def check_cluster_file(path: Path) -> Iterator[Finding]:
    """Find the fields of cluster.yaml, or of another YAML file, that still contain `FILL_IN`.

    Raises:
        ValueError: if the file cannot be read, or is not YAML.
    """
    import yaml

    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError(f"--cluster {path} cannot be read: {error.strerror}; allowed: a file of `ray up`") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"--cluster {path} is not YAML: {' '.join(str(error).split())}") from None
    found = list(dict.fromkeys(field for content in documents for field in _find_unfilled(content, "")))
    for name in found:
        yield Finding(str(path), f"{name} contains {UNFILLED}: replace it; the file's comments explain the value", True)
    if not found:
        yield Finding(str(path), "no field is unfilled")


def _find_unfilled(content: object, name: str) -> Iterator[str]:
    """Yield the name of each text that contains `UNFILLED`, such as `provider.region` or `setup_commands[0]`."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _find_unfilled(value, f"{name}.{key}" if name else str(key))
    elif isinstance(content, list):
        for place, value in enumerate(content):
            yield from _find_unfilled(value, f"{name}[{place}]")
    elif isinstance(content, str) and UNFILLED in content:
        yield name


def check_cluster(address: str | None, *, data: str, storage: str, wait_minutes: float = 0.0) -> Iterator[Finding]:
    """Connect to the Ray cluster at `address` and check every node. If `address` is None, start Ray on this machine.

    The checks begin when a worker of each kind has joined the cluster, or after `wait_minutes`.
    """
    place = f"the cluster at {address}" if address else "this machine"
    with ExitStack() as stack:
        try:
            import ray

            from study.cluster.ray_cluster import ANY, await_workers, ray_cluster

            stack.enter_context(ray_cluster(address))
        except Exception as error:  # noqa: BLE001  # Ray raises anything
            reason = take_first_line(error)
            advice = "read the logs of Ray, or reinstall the project"
            if address:
                advice = "check the state of the cluster (ray status), its address and its version of Ray"
            yield Finding("Ray", f"{reason}: {advice}", True)
            return
        absent = await_workers(minutes=wait_minutes, say=lambda line: print(line, file=sys.stderr, flush=True))
        nodes = _list_nodes()
        total = ray.cluster_resources()
        size = f"{counted(len(nodes), 'node')}, {total.get('CPU', 0):g} CPUs, {total.get('GPU', 0):g} GPUs"
        yield Finding("Ray", f"version {ray.__version__} on {place}, with {size}")
        for kind in absent:
            fault = "no node can run a trial" if kind is ANY else f"no {kind.name} has joined the cluster"
            advice = "read the autoscaler's status (ray status), start a worker, or raise --wait-minutes"
            yield Finding("workers", f"{fault} after {wait_minutes:g} minutes: {advice}", True)
        marker = None
        with suppress(ValueError):  # the nodes' checks report a storage that cannot be written
            marker = stack.enter_context(small_object(_find_place(storage)))
        checked = set[str]()
        # Nodes that join during the checks are checked too.
        while nodes := [node for node in _list_nodes() if node["NodeID"] not in checked]:
            yield from _check_nodes(nodes, data=data, storage=storage, marker=marker)
            checked |= {node["NodeID"] for node in nodes}


def _list_nodes() -> list[dict[str, Any]]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def _check_nodes(nodes: list[dict[str, Any]], **settings: Any) -> Iterator[Finding]:
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def report(gpus: float) -> tuple[str, dict[str, str], list[Finding]]:
        from study import doctor  # imports the node's copy; fails on a node without the project
        from study.facts import provenance

        code = provenance.read_provenance()
        return code.code_digest, dict(code.versions), doctor.check_node(gpus=gpus, **settings)

    places = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    start = ray.remote(num_cpus=0, max_retries=0)
    look, read = start(report), start(lambda: time.time())
    tasks = [
        look.options(scheduling_strategy=place).remote(node["Resources"].get("GPU", 0.0))
        for node, place in zip(nodes, places, strict=True)
    ]
    deadline = time.monotonic() + NODE_SECONDS
    for node, place, task in zip(nodes, places, tasks, strict=True):
        host = node["NodeManagerAddress"]
        try:
            digest, versions, findings = ray.get(task, timeout=max(deadline - time.monotonic(), 1.0))
            before = time.time()
            node_time = ray.get(read.options(scheduling_strategy=place).remote(), timeout=NODE_SECONDS)
        except RayError as error:
            yield _describe_silent_node(node, error)
            continue
        node_code = Provenance(code_digest=digest, versions=versions, git_commit=None)
        if differences := list_other_code(node_code, read_provenance()):
            advice = "copy the code of this machine to the node (ray up), and install constraints.txt there"
            yield Finding(f"node {host}", f"{'; '.join(differences)}: {advice}", True)
        if (offset := max(before - node_time, node_time - time.time())) > CLOCK_SECONDS:
            fault = f"the clock is wrong by {offset / 60:.1f} minutes: synchronise it (chrony, ntpd)"
            yield Finding(f"node {host}", fault, True)
        for finding in findings:
            yield Finding(f"{finding.subject} on {host}", finding.text, finding.is_fault)


def _describe_silent_node(node: dict[str, Any], error: Exception) -> Finding:
    """Report a node that does not answer. This is a fault only if Ray still lists the node as alive."""
    subject = f"node {node['NodeManagerAddress']}"
    if node["NodeID"] not in {alive["NodeID"] for alive in _list_nodes()}:
        return Finding(subject, "the node has left the cluster, or has restarted as another node")
    reason = str(error).strip().splitlines()[-1]
    advice = "install the project on the node (the setup commands of cluster.yaml do this), or remove the node"
    return Finding(subject, f"the node cannot run the checks ({reason}): {advice}", True)


def run(options: Options) -> int:
    """Run all checks and print the findings; return 1 if there is a fault, else 0.

    Raises:
        ValueError: if an option is invalid, or would be ignored beside --cluster.
    """
    faults = 0
    if options.cluster is not None and (others := _list_typed(replace(options, cluster=None))):
        raise ValueError(
            f"--cluster only looks for unfilled fields in its file, and ignores {', '.join(others)}; leave out one of "
            "the two"
        )
    if options.address is not None:
        check_address(options.address)
    tracking = None if options.tracking_uri is None else check_tracking_address(options.tracking_uri)
    if options.cluster is not None:
        findings = check_cluster_file(Path(options.cluster))
    else:
        findings = _check_all(options, resolve_storage_address(options.storage), tracking)
    for finding in findings:
        faults += finding.is_fault
        print(f"{'FAULT' if finding.is_fault else 'ok':6}{finding.subject}: {finding.text}", flush=True)
    whole = "ready" if options.cluster is None else f"nothing in {options.cluster} is left to fill in"
    print(counted(faults, "fault") if faults else whole)
    return 1 if faults else 0


def _list_typed(options: Options) -> list[str]:
    """List the options, with their values, that are not at their defaults."""
    default = Options()
    values = {name: getattr(options, name) for name in Options.__struct_fields__}
    return [
        f"--{name.replace('_', '-')} {masked(str(value))}"
        for name, value in values.items()
        if value != getattr(default, name)
    ]


def _check_all(options: Options, storage: str, tracking: str | None) -> Iterator[Finding]:
    yield list_packages()
    data, minutes = glue.make_absolute(options.data), options.wait_minutes
    yield from check_cluster(options.address, data=data, storage=storage, wait_minutes=minutes)
    if tracking is not None:
        yield check_tracking(tracking)


main = Command(
    "study.doctor", Options, "Check that this machine, or every node of a cluster, is ready for a study.", run
)

if __name__ == "__main__":
    sys.exit(main())
