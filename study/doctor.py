"""Is this machine, or every node of a Ray cluster, ready for a study? `python -m study.doctor`.

Checks packages, Ray, GPUs, data, corpus, storage and tracking, and says of each fault what to do about it.
Exit status: 0 ready, 1 faults, 2 bad usage.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from study.cluster.address import check_address, cluster_address
from study.cluster.node_checks import Finding, check_clock, check_packages, nearest_existing, versions_here
from study.command_line import Parser, guarded
from study.storage.addresses import is_uri, small_object, storage_address, tracking_address
from study.storage.secrets import masked
from trainables.corpora import corpus as corpora
from trainables.data import glue
from trainables.schema import Typed

NODE_SECONDS = 180.0  # a node may have to import torch from a slow disk


class Options(Typed, frozen=True, kw_only=True):
    """The options of this command."""

    address: str | None
    data: str
    corpus: str | None
    storage: str
    tracking_uri: str | None


def check_tracking(uri: str) -> list[Finding]:
    """The tracking store answers."""
    from study.mlflow_mirror.tracking import count_experiments, outages, prepare_environment, reason

    prepare_environment()
    try:
        count = count_experiments(uri)
    except outages() as error:
        advice = "start the server, mend --tracking-uri, or go on without: python -m study.mirror catches up later"
        return [Finding("tracking", f"{masked(uri)} does not answer ({reason(error)}): {advice}", True)]
    return [Finding("tracking", f"{masked(uri)}, {count} experiments")]


def check_cluster(address: str | None, *, data: str, corpus: str | None, storage: str) -> Iterator[Finding]:
    """Ray answers at `address`, or starts on this machine where it is None; then every node is checked."""
    import ray

    from study.cluster.ray_connection import ray_cluster

    where = f"the cluster at {address}" if address else "this machine"
    with ExitStack() as stack:
        try:
            stack.enter_context(ray_cluster(address))
        except Exception as error:  # Ray raises anything
            reason = str(error).strip().partition("\n")[0]
            mend = "is it up (ray status), is the address right, is Ray's version the same?"
            yield Finding("Ray", f"{reason}: {mend if address else 'see the logs of Ray'}", True)
            return
        nodes = [node for node in ray.nodes() if node["Alive"]]
        total = ray.cluster_resources()
        size = f"{len(nodes)} nodes, {total.get('CPU', 0):g} CPUs, {total.get('GPU', 0):g} GPUs"
        yield Finding("Ray", f"{ray.__version__} on {where}: {size}")
        marker = stack.enter_context(_marker(storage))
        yield from _check_nodes(nodes, data=data, corpus=corpus, storage=storage, marker=marker)


def _check_nodes(nodes: list[dict[str, Any]], **settings: Any) -> Iterator[Finding]:
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def report(gpus: float) -> tuple[dict[str, str], list[Finding]]:
        from study.cluster import node_checks  # the node's own copy: a node without the project says so here

        return node_checks.versions_here(), node_checks.check_node(gpus=gpus, **settings)

    def start(function: Callable[..., Any], node: dict[str, Any], *arguments: float) -> Any:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        return ray.remote(num_cpus=0, max_retries=0)(function).options(scheduling_strategy=there).remote(*arguments)

    tasks = [start(report, node, node["Resources"].get("GPU", 0.0)) for node in nodes]
    deadline = time.monotonic() + NODE_SECONDS
    for node, task in zip(nodes, tasks, strict=True):
        host = node["NodeManagerAddress"]
        try:
            versions, findings = ray.get(task, timeout=max(deadline - time.monotonic(), 1.0))
            asked = time.time()
            told = ray.get(start(lambda: time.time(), node), timeout=NODE_SECONDS)
            findings += check_clock(told, asked=asked, answered=time.time())
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
    path = nearest_existing(folder) / f".doctor-{uuid.uuid4().hex}"
    path.touch()
    try:
        yield str(path)
    finally:
        path.unlink()


def main(argv: Sequence[str] | None = None) -> int:
    """0 ready, 1 faults, 2 bad usage."""
    return guarded("study.doctor", lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    options = build_parser().options(Options, argv)
    faults = 0
    if options.address is not None:
        check_address(options.address)
    tracking = None if options.tracking_uri is None else tracking_address(options.tracking_uri)
    for finding in _findings(options, storage_address(options.storage), tracking):
        faults += finding.is_fault
        print(f"{'FAULT' if finding.is_fault else 'ok':6}{finding.subject}: {finding.text}", flush=True)
    print("ready" if not faults else f"{faults} fault(s)")
    return 1 if faults else 0


def _findings(options: Options, storage: str, tracking: str | None) -> Iterator[Finding]:
    here = check_packages()
    yield from here
    if any(finding.is_fault for finding in here):
        return  # nothing else would tell more than that
    text = options.corpus and corpora.seen_from_anywhere(options.corpus)
    yield from check_cluster(options.address, data=glue.seen_from_anywhere(options.data), corpus=text, storage=storage)
    if tracking is not None:
        yield from check_tracking(tracking)


def build_parser() -> Parser:
    parser = Parser("study.doctor", "Is this machine, or every node of a Ray cluster, ready for a study?")
    parser.add_argument(
        "--address", default=cluster_address(), help="of a Ray cluster (default: RAY_ADDRESS, or else this machine)"
    )
    parser.add_argument("--data", default="mini", metavar="mini|hub|FOLDER", help="what the study will train on (mini)")
    parser.add_argument("--corpus", metavar="mini|hub:NAME|FOLDER", help="what the study will pretrain on")
    parser.add_argument(
        "--storage", default="runs", metavar="PATH_OR_URI", help="the launch's --storage, or else its --out (runs)"
    )
    parser.add_argument("--tracking-uri", metavar="URI", help="MLflow store or server to ask as well")
    return parser


if __name__ == "__main__":
    sys.exit(main())
