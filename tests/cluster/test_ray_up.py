"""From `ray up` to `ray down` on hosts whose power is cut: make cluster-test ARGS="-k 'not test_hosts'"

The tests are one story, in this order, on one cluster.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cluster.cluster_on_hosts import DOCTOR, HEAD, ClusterOnHosts
from cluster.hosts import OPERATOR
from helpers.places import ROOT

from study.facts.events import EpochReported, NodeLeftOut, TrialRetried

LATER = 4
# What may listen beyond loopback. Ray's programs ask for the token; `python` is what answers to ray:// on the head.
REACHABLE = {"sshd": 22, "gcs_server": 6379, "python": 10001}
REACHABLE_ANYWHERE = {"raylet", "ray::DashboardA", "ray::RuntimeEnv"}
NODES = "import ray; ray.init({address!r}, log_to_driver=False, logging_level=50); print(ray.nodes())"


def listening(cluster: ClusterOnHosts, host: int) -> list[tuple[str, int, str]]:
    """Address, port and program of all that listens on a host."""
    found = []
    for line in cluster.hosts.run(host, "ss -Hltnup").stdout.splitlines():
        place, program = line.split()[4], re.search(r'"(.+?)"', line)
        address, _, port = place.rpartition(":")
        found.append((address.strip("[]").removeprefix("::ffff:"), int(port), program[1] if program else ""))
    return found


def test_doctor_finds_every_node_ready(cluster: ClusterOnHosts) -> None:
    answer = cluster.operator(f"ray exec cluster.yaml '{DOCTOR}'")
    assert answer.splitlines()[-1] == "ready" or "\nready" in answer, answer
    for host in (HEAD, *cluster.workers):
        assert f"storage on {cluster.hosts.address(host)}: /shared/runs" in answer


def test_nobody_else_on_a_node_can_read_the_token(cluster: ClusterOnHosts) -> None:
    for host in (OPERATOR, HEAD, *cluster.workers):
        assert cluster.hosts.run(host, "stat -c %a ~/.ray/auth_token").stdout == "600\n"
    for host in (HEAD, *cluster.workers):
        assert cluster.hosts.run(host, "stat -c %a ~/.ray").stdout == "700\n"


def test_what_listens_beyond_loopback_is_known_and_asks_for_the_token(cluster: ClusterOnHosts) -> None:
    for host in (HEAD, *cluster.workers):
        there = listening(cluster, host)
        assert {address for address, _, _ in there} <= {"127.0.0.1", "*", "0.0.0.0", cluster.hosts.address(host)}
        beyond = [(port, program) for address, port, program in there if address != "127.0.0.1"]
        assert all(program in REACHABLE_ANYWHERE or REACHABLE.get(program) == port for port, program in beyond), there
        for port, program in beyond:
            where = f"http://{cluster.hosts.address(host)}:{port}/metrics"
            answer = cluster.hosts.run(OPERATOR, f"curl --silent --max-time 10 --output - {where}", check=False).stdout
            assert "# HELP" not in answer, (host, port, program)


def test_a_stranger_without_the_token_is_refused(cluster: ClusterOnHosts) -> None:
    head = cluster.hosts.address(HEAD)
    stranger = "HOME=/tmp RAY_AUTH_MODE=disabled timeout 300"
    answer = cluster.operator(f'{stranger} python -c "{NODES.format(address=f"{head}:6379")}" 2>&1', check=False)
    assert "NodeManagerAddress" not in answer and "Authentication token is missing" in answer, answer
    client = f'python -c "{NODES.format(address=f"ray://{head}:10001")}" 2>&1'  # tells a stranger nothing at all
    assert "NodeManagerAddress" not in cluster.operator(f"{stranger} {client}", check=False)
    assert "NodeManagerAddress" in cluster.operator(f"RAY_AUTH_MODE=token {client}")


def test_a_study_survives_the_power_cut_of_a_worker(cluster: ClusterOnHosts) -> None:
    process = cluster.launch("worker")
    host = cluster.wait_for_a_moment("worker", epochs=range(1, 8))
    cluster.hosts.off(host)
    printed = cluster.finish(process, "worker")
    cluster.whole("worker")
    lost = [e.failure for e in cluster.events("worker") if isinstance(e, TrialRetried)]
    assert lost and {failure.host for failure in lost} == {cluster.hosts.name(host)}, lost
    assert cluster.hosts.name(host) in printed or cluster.hosts.address(host) in printed
    cluster.hosts.on(host)


def test_a_study_goes_on_after_the_power_cut_of_the_head(cluster: ClusterOnHosts) -> None:
    process = cluster.launch("head")
    cluster.wait_for_a_moment("head", epochs=range(1, 8))
    cluster.hosts.off(HEAD)
    assert process.wait(timeout=600) != 0
    cluster.hosts.on(HEAD)
    cluster.up()
    before = cluster.events("head")
    cluster.finish(cluster.launch("head"), "head")
    assert cluster.events("head")[: len(before)] == before
    cluster.whole("head")


def test_a_worker_that_is_added_later_is_used(cluster: ClusterOnHosts) -> None:
    cluster.hosts.on(LATER)
    cluster.workers.append(LATER)
    cluster.write_configuration()
    cluster.up("--no-restart")
    cluster.finish(cluster.launch("later", "--samples 6 --seeds 2 --epochs 2"), "later")
    cluster.whole("later", searched=6)
    used = {e.report.host for e in cluster.events("later") if isinstance(e, EpochReported)}
    assert cluster.hosts.name(LATER) in used


def test_records_and_tables_travel_to_the_operator_and_models_stay(cluster: ClusterOnHosts) -> None:
    cluster.operator("ray rsync-down cluster.yaml /shared/runs/head runs/")
    folder = cluster.hosts.disk(OPERATOR) / "root/glue-exit-study/runs/head"
    there = {path.name for path in folder.iterdir()}
    assert {"records.jsonl", "events.jsonl", "plan.json", "tables", "predictions", "mlflow.db"} <= there
    assert "trials" not in there and (cluster.folder("head") / "trials").exists()
    assert "palbert" in cluster.operator("python -m analysis.tables runs/head")


SMALL = "--samples 2 --seeds 1 --epochs 2"


def doctor(cluster: ClusterOnHosts) -> str:
    """What doctor says of a cluster with a fault."""
    answer = cluster.on_node(HEAD, DOCTOR)
    assert answer.returncode == 1 and "fault(s)" in answer.stdout, answer.stdout
    return answer.stdout


def faults(cluster: ClusterOnHosts, host: int) -> list[str]:
    """The faults that doctor finds on a host."""
    return [
        line
        for line in doctor(cluster).splitlines()
        if line.startswith("FAULT") and cluster.hosts.address(host) in line
    ]


def left_out(cluster: ClusterOnHosts, name: str) -> set[str]:
    """Hosts that a study left out."""
    return {event.host for event in cluster.events(name) if isinstance(event, NodeLeftOut)}


@contextmanager
def edited(cluster: ClusterOnHosts, host: int, path: str, line: str) -> Iterator[None]:
    """A file on a host with a line more; it may be new."""
    cluster.hosts.run(host, f"if [ -e {path} ]; then cp -p {path} /tmp/kept; fi; echo {shlex.quote(line)} >> {path}")
    yield
    cluster.hosts.run(host, f"if [ -e /tmp/kept ]; then mv /tmp/kept {path}; else rm {path}; fi")


def test_a_worker_without_the_shared_folder_is_named_and_left_out(cluster: ClusterOnHosts) -> None:
    host = cluster.workers[0]
    cluster.hosts.run(host, "mount -t tmpfs other /shared")
    assert any("is not the folder that the other nodes see" in line for line in faults(cluster, host))
    printed = cluster.finish(cluster.launch("unshared", SMALL), "unshared")
    cluster.whole("unshared", searched=2, confirmed=1)
    assert left_out(cluster, "unshared") <= {cluster.hosts.name(host)}
    assert {e.report.host for e in cluster.events("unshared") if isinstance(e, EpochReported)} <= {
        cluster.hosts.name(other) for other in cluster.workers[1:]
    }
    assert cluster.hosts.run(host, "find /shared -type f").stdout == ""
    cluster.hosts.run(host, "umount /shared")
    del printed


def test_a_worker_with_other_code_is_named_and_left_out(cluster: ClusterOnHosts) -> None:
    host = cluster.workers[0]
    with edited(cluster, host, "~/glue-exit-study/trainables/palbert.py", "# another version"):
        assert any("source" in line for line in faults(cluster, host))
        cluster.finish(cluster.launch("code", SMALL), "code")
    cluster.whole("code", searched=2, confirmed=1)
    assert left_out(cluster, "code") == {cluster.hosts.name(host)}


def test_a_worker_whose_clock_is_minutes_off_is_named(cluster: ClusterOnHosts) -> None:
    host, packages = cluster.workers[0], "~/glue-exit-study/.venv/lib/python3.11/site-packages"
    shutil.copy(ROOT / "tests/helpers/shifted_clock.py", cluster.hosts.disk(host) / "tmp")
    clock = "import os, sys; os.environ['SHIFTED_CLOCK'] = '/tmp/seconds'; sys.path.append('/tmp'); "
    cluster.hosts.run(host, "echo 600 > /tmp/seconds")
    with edited(
        cluster, host, f"{packages}/sitecustomize.py", f"{clock}import shifted_clock; shifted_clock.shift_clock()"
    ):
        assert any("clock" in line for line in faults(cluster, host))


@pytest.mark.parametrize("of", ["Ray", "Python"])
def test_a_worker_with_another_version_is_refused_by_name(cluster: ClusterOnHosts, of: str) -> None:
    host, packages = cluster.workers[0], "$HOME/glue-exit-study/.venv/lib/python3.11/site-packages"
    start = f"start --address={cluster.hosts.address(HEAD)}:6379 --disable-usage-stats 2>&1"
    cluster.on_node(host, "ray stop --force")
    if of == "Ray":
        with edited(cluster, host, f"{packages}/ray/_version.py", "version = '2.59.0'"):
            said = cluster.on_node(host, f"ray {start}")
    else:
        said = cluster.on_node(host, f"PYTHONPATH={packages} /usr/bin/python3 -m ray.scripts.scripts {start}")
    assert said.returncode != 0 and "Version mismatch" in said.stdout, said.stdout
    assert (f"{of}: 2.59.0" if of == "Ray" else "Python: 3.11.2") in said.stdout
    assert cluster.hosts.address(host) not in cluster.alive()
    assert cluster.on_node(host, f"ray {start}").returncode == 0


def test_ray_down_leaves_nothing(cluster: ClusterOnHosts) -> None:
    cluster.operator("ray down -y cluster.yaml")
    cluster.wait(lambda: not cluster.processes(HEAD), "the head's processes to end", every=1.0)
    for host in cluster.workers:
        cluster.wait(lambda host=host: not cluster.processes(host), f"{host}'s processes to end", every=1.0)
