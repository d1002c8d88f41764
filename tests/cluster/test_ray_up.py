"""From `ray up` to `ray down` on hosts whose power is cut: python -m pytest tests/cluster/test_ray_up.py

The tests are one story, in this order, on one cluster; each leaves it as the next one finds it.
"""

from __future__ import annotations

import platform
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cluster.cluster_on_hosts import HEAD, ClusterOnHosts
from cluster.hosts import OPERATOR
from cluster.study_on_hosts import StudyOnHosts
from helpers.places import PATIENCE_SECONDS, ROOT

from study.facts.events import TrialRetried

DOCTOR = "python -m study.doctor --address auto --data mini --storage /shared/runs"
LATER = 4
MIDDLE = range(1, 8)  # epochs of a study after which power is cut; it has 20
# What may listen beyond loopback. Ray's programs ask for the token; `python` is what answers to ray:// on the head.
REACHABLE = {"sshd": 22, "gcs_server": 6379, "python": 10001}
REACHABLE_ANYWHERE = {"raylet", "ray::DashboardA", "ray::RuntimeEnv"}
NODES = "import ray; ray.init({address!r}, log_to_driver=False, logging_level=50); print(ray.nodes())"
PYTHON = "python" + ".".join(platform.python_version_tuple()[:2])
PACKAGES = f"$HOME/glue-exit-study/.venv/lib/{PYTHON}/site-packages"
JOIN = "--address={head}:6379 --disable-usage-stats 2>&1"
BUCKET_PORT = 9000


def listening(cluster: ClusterOnHosts, host: int) -> list[tuple[str, int, str]]:
    """Address, port and program of all that listens on a host."""
    found = []
    for line in cluster.hosts.run(host, "ss -Hltnup").stdout.splitlines():
        place, program = line.split()[4], re.search(r'"(.+?)"', line)
        address, _, port = place.rpartition(":")
        found.append((address.strip("[]").removeprefix("::ffff:"), int(port), program[1] if program else ""))
    return found


def faults(cluster: ClusterOnHosts, host: int) -> list[str]:
    """The faults that doctor finds on a host."""
    answer = cluster.on_node(HEAD, DOCTOR)
    assert answer.returncode == 1 and re.search(r"^\d+ faults?$", answer.stdout, re.MULTILINE), answer.stdout
    lines = answer.stdout.splitlines()
    return [line for line in lines if line.startswith("FAULT") and cluster.hosts.address(host) in line]


@contextmanager
def longer(cluster: ClusterOnHosts, host: int, path: str, line: str) -> Iterator[None]:
    """A file on a host with a line more, for a while; one that is not there has the line alone."""
    cluster.hosts.run(host, f"if [ -e {path} ]; then cp -p {path} /tmp/kept; fi; echo {shlex.quote(line)} >> {path}")
    yield
    cluster.hosts.run(host, f"if [ -e /tmp/kept ]; then mv /tmp/kept {path}; else rm {path}; fi")


def test_doctor_finds_every_node_ready(cluster: ClusterOnHosts) -> None:
    answer = cluster.operator(f"ray exec cluster.yaml '{DOCTOR}'")
    assert re.search("^ready", answer, re.M), answer
    for host in (HEAD, *cluster.workers):
        assert f"storage on {cluster.hosts.address(host)}: /shared/runs" in answer


def test_nobody_else_on_a_node_can_read_the_token(cluster: ClusterOnHosts) -> None:
    for host in (OPERATOR, HEAD, *cluster.workers):
        assert cluster.hosts.run(host, "stat -c %a ~/.ray/auth_token").stdout == "600\n"
    for host in (HEAD, *cluster.workers):
        assert cluster.hosts.run(host, "stat -c %a ~/.ray").stdout == "700\n"


def test_what_listens_beyond_loopback_is_known_and_tells_nothing(cluster: ClusterOnHosts) -> None:
    for host in (HEAD, *cluster.workers):
        there = listening(cluster, host)
        assert {address for address, _, _ in there} <= {"127.0.0.1", "*", "0.0.0.0", cluster.hosts.address(host)}
        beyond = [(port, program) for address, port, program in there if address != "127.0.0.1"]
        assert all(program in REACHABLE_ANYWHERE or REACHABLE.get(program) == port for port, program in beyond), there
        for port, program in beyond:
            where = f"http://{cluster.hosts.address(host)}:{port}/metrics"
            answer = cluster.hosts.run(OPERATOR, f"curl --silent --max-time 10 --output - {where}", check=False).stdout
            assert "# HELP" not in answer, (host, port, program)
    assert ("127.0.0.1", 8265, "python") in listening(cluster, HEAD), "the dashboard"


def test_a_stranger_without_the_token_is_refused(cluster: ClusterOnHosts) -> None:
    head = cluster.hosts.address(HEAD)
    stranger = "HOME=/tmp RAY_AUTH_MODE=disabled timeout 300"
    answer = cluster.operator(f'{stranger} python -c "{NODES.format(address=f"{head}:6379")}" 2>&1', check=False)
    assert "NodeManagerAddress" not in answer and "Authentication token is missing" in answer, answer
    client = f'python -c "{NODES.format(address=f"ray://{head}:10001")}" 2>&1'
    silence = "ray client connection timeout"  # all that ray:// has for a stranger
    assert silence in cluster.operator(f"{stranger} {client}", check=False)
    assert silence not in cluster.operator(f"RAY_AUTH_MODE=token {client}", check=False)


def test_a_study_survives_the_power_cut_of_a_worker(cluster: ClusterOnHosts) -> None:
    study = StudyOnHosts(cluster, "worker")
    process = study.launch()
    host = study.wait_for_a_moment(MIDDLE)
    lost = study.cut_power(host)
    printed = study.finish(process)
    study.check_whole()
    assert study.lost_on() == lost
    assert all(name in printed for name in lost)
    cluster.hosts.on(host)
    assert cluster.all_join()


def test_a_study_goes_on_after_the_power_cut_of_the_head(cluster: ClusterOnHosts) -> None:
    study = StudyOnHosts(cluster, "head")
    process = study.launch()
    study.wait_for_a_moment(MIDDLE)
    cluster.hosts.off(HEAD)
    assert process.wait(timeout=PATIENCE_SECONDS) != 0
    cluster.hosts.on(HEAD)
    cluster.up()
    before = study.events()
    study.finish()
    assert study.events()[: len(before)] == before
    study.check_whole()


def test_no_number_of_cuts_in_a_row_fails_a_trial(cluster: ClusterOnHosts) -> None:
    """More than `--max-failures`: a machine that is lost is nobody's failure."""
    study = StudyOnHosts(cluster, "cuts", samples=1, seeds=1, epochs=25)
    process = study.launch()
    for _ in range(4):
        reports = len(study.events())
        cluster.wait(lambda seen=reports: len(study.events()) > seen and study.busy(), "another epoch", every=0.1)
        host = study.busy()[0]
        cluster.hosts.off(host)
        cluster.hosts.on(host)
    study.finish(process)
    study.check_whole()
    assert sum(isinstance(event, TrialRetried) for event in study.events()) >= 4
    assert cluster.all_join()


def test_a_worker_that_is_added_later_is_used(cluster: ClusterOnHosts) -> None:
    cluster.hosts.on(LATER)
    cluster.workers.append(LATER)
    cluster.write_configuration()
    cluster.operator("ray up -y --no-restart cluster.yaml")
    cluster.operator("ray exec cluster.yaml 'ray get-worker-ips ~/ray_bootstrap_config.yaml'")
    assert cluster.all_join()
    study = StudyOnHosts(cluster, "later", samples=6, epochs=2)
    study.finish()
    study.check_whole()
    assert cluster.hosts.name(LATER) in study.used()


def test_records_and_tables_travel_to_the_operator_and_models_stay(cluster: ClusterOnHosts) -> None:
    cluster.operator("ray rsync-down cluster.yaml /shared/runs/head runs/")
    folder = cluster.hosts.disk(OPERATOR) / "root/glue-exit-study/runs/head"
    there = {path.name for path in folder.iterdir()}
    assert {"records.jsonl", "events.jsonl", "plan.json", "tables", "predictions", "mlflow.db"} <= there
    assert "trials" not in there and (StudyOnHosts(cluster, "head").folder / "trials").exists()
    assert "| palbert" in cluster.operator("python -m analysis.tables runs/head")


def test_a_worker_without_the_shared_folder_is_named_and_trains_nothing(cluster: ClusterOnHosts) -> None:
    host = cluster.workers[0]
    cluster.hosts.run(host, "mount -t tmpfs other /shared")
    assert any("does not see the files of" in line for line in faults(cluster, host))
    study = StudyOnHosts(cluster, "unshared", samples=4)
    study.finish()
    study.check_whole()
    assert study.used() and cluster.hosts.name(host) not in study.used()
    assert study.left_out() == {cluster.hosts.name(host)}
    assert cluster.hosts.run(host, "find /shared -type f").stdout == ""
    cluster.hosts.run(host, "umount /shared")


def test_a_worker_with_other_code_is_named_and_trains_nothing(cluster: ClusterOnHosts) -> None:
    host = cluster.workers[0]
    with longer(cluster, host, "~/glue-exit-study/trainables/palbert.py", "# another version"):
        assert faults(cluster, host)
        study = StudyOnHosts(cluster, "code", samples=4)
        study.finish()
    study.check_whole()
    assert study.used() and cluster.hosts.name(host) not in study.used()
    assert study.left_out() == {cluster.hosts.name(host)}


def test_worker_clock_skew_is_named_without_wrong_numbers(cluster: ClusterOnHosts) -> None:
    host = cluster.workers[0]
    shutil.copy(ROOT / "tests/helpers/shifted_clock.py", cluster.hosts.disk(host) / "tmp")
    cluster.hosts.run(host, "echo 600 > /tmp/seconds")
    setting = "import os, sys; os.environ['SHIFTED_CLOCK'] = '/tmp/seconds'; sys.path.append('/tmp')"
    clock = f"{setting}; import shifted_clock; shifted_clock.shift_clock()"
    with longer(cluster, host, f"{PACKAGES}/sitecustomize.py", clock):
        assert any("clock" in line for line in faults(cluster, host))
        study = StudyOnHosts(cluster, "clock", samples=4)
        study.finish()
    study.check_whole()


def refused(cluster: ClusterOnHosts, start: str) -> str:
    """What a worker is told that leaves, tries to join by this program, and may not. The head has it back by itself."""
    host = cluster.workers[0]
    cluster.on_node(host, "ray stop --force")
    said = cluster.on_node(host, f"{start} {JOIN.format(head=cluster.hosts.address(HEAD))}")
    assert said.returncode != 0, said.stdout
    return said.stdout


def test_a_worker_with_another_ray_is_refused_by_name(cluster: ClusterOnHosts) -> None:
    with longer(cluster, cluster.workers[0], f"{PACKAGES}/ray/_version.py", "version = '2.59.0'"):
        assert "Ray: 2.59.0" in refused(cluster, "ray start")
    assert cluster.all_join()


def test_a_worker_with_another_python_is_refused_by_name(cluster: ClusterOnHosts) -> None:
    host = cluster.workers[0]
    other = cluster.hosts.run(host, "/usr/bin/python3 --version").stdout.split()[1]
    if other == platform.python_version() or not f"python{other}".startswith(f"{PYTHON}."):
        pytest.skip(f"the other Python of this machine is {other}, which is the same or cannot read these packages")
    start = f"PYTHONPATH={PACKAGES} /usr/bin/python3 -m ray.scripts.scripts start"
    assert f"Python: {other}" in refused(cluster, start)
    assert cluster.all_join()


def test_bucket_study_survives_power_cut(cluster: ClusterOnHosts) -> None:
    """The operator's machine has the bucket."""
    place = f"{cluster.hosts.address(OPERATOR)}:{BUCKET_PORT}"
    server = f"python -m moto.server -H {cluster.hosts.address(OPERATOR)} -p {BUCKET_PORT}"
    cluster.operator(f"(setsid {server} > ~/bucket.log 2>&1 &)")
    cluster.operator(f"curl --silent --retry 600 --retry-all-errors --retry-delay 1 -X PUT http://{place}/bucket")
    keys = "[default]\naws_access_key_id = any\naws_secret_access_key = any\nregion = us-east-1\n"
    for host in (HEAD, *cluster.workers):
        cluster.hosts.run(host, f"umask 077; mkdir -p ~/.aws; echo -n {shlex.quote(keys)} > ~/.aws/credentials")
        cluster.hosts.run(host, "umount --lazy /shared && rmdir /shared")
    storage = f"s3://bucket/study?scheme=http&endpoint_override={place}"
    study = StudyOnHosts(cluster, "bucket", storage=storage)
    process = study.launch()
    lost = study.cut_power(study.wait_for_a_moment(MIDDLE))
    study.finish(process)
    study.check_whole()
    assert study.lost_on() == lost


def test_ray_down_and_a_stop_on_each_machine_leave_nothing(cluster: ClusterOnHosts) -> None:
    cluster.operator("ray down -y cluster.yaml")
    for host in (HEAD, *cluster.workers):
        if cluster.hosts.is_on(host):
            there = f"-i ~/.ssh/key -o StrictHostKeyChecking=no root@{cluster.hosts.address(host)}"
            cluster.operator(f"ssh {there} \"bash -lic 'ray stop --force'\"")
            cluster.wait(lambda host=host: not cluster.processes(host), f"the end of all on host {host}", every=1.0)
