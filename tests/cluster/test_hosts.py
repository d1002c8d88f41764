"""Hosts of this machine are hosts: python -m pytest tests/cluster/test_hosts.py"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.hosts import Hosts, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("environment")
    for layer, text in (("upper", "upper"), ("lower", "lower")):
        (folder / layer / "bin").mkdir(parents=True)
        (folder / layer / "bin" / "which").write_text(text)
    (folder / "lower" / "bin" / "only").write_text("lower")
    layers = (folder / "upper", folder / "lower")
    hosts = Hosts(prefix="hosttest", subnet="10.88.8", state=tmp_path_factory.mktemp("hosts"), layers=layers)
    try:
        hosts.up(3)
        yield hosts
    finally:
        hosts.down()
        assert not list(Path("/run/netns").glob("hosttest*"))


def ssh(hosts: Hosts, host: int, line: str) -> subprocess.CompletedProcess:
    options = "-o StrictHostKeyChecking=no -o BatchMode=yes -o ConnectTimeout=5 -i ~/.ssh/key"
    return hosts.run(0, f"ssh {options} root@{hosts.address(host)} '{line}'", check=False)


def test_the_operator_reaches_them_by_ssh_and_nobody_reaches_anything_else(hosts: Hosts) -> None:
    assert ssh(hosts, 1, "hostname").stdout.endswith("hosttest1\n")
    assert ssh(hosts, 2, "getent hosts hosttest1").stdout.split()[-2:] == ["10.88.8.101", "hosttest1"]
    assert hosts.run(1, "ip route").stdout.split() == [
        "10.88.8.0/24",
        "dev",
        "eth0",
        "proto",
        "kernel",
        "scope",
        "link",
        "src",
        "10.88.8.101",
    ]


def test_processes_and_folders_are_their_own(hosts: Hosts) -> None:
    for folder in ("/root", "/tmp", "/etc", "/var/lib", "/run", "/dev/shm"):
        hosts.run(1, f"echo one > {folder}/mine")
        assert hosts.run(2, f"cat {folder}/mine", check=False).returncode != 0, folder
    assert hosts.run(1, "cat /proc/1/comm").stdout == "sshd\n"
    assert len(hosts.run(1, "ls -d /proc/[0-9]*").stdout.split()) < 5
    assert hosts.run(1, "touch /usr/mine", check=False).returncode != 0


def test_one_folder_is_shared_and_the_operator_does_not_see_it(hosts: Hosts) -> None:
    hosts.run(1, "echo one > /shared/seen")
    assert hosts.run(2, "cat /shared/seen").stdout == "one\n"
    assert hosts.run(0, "ls /shared", check=False).returncode != 0


def test_environments_lie_over_each_other_and_changes_are_the_hosts_own(hosts: Hosts) -> None:
    assert hosts.run(1, f"cd {hosts.venv}/bin && cat which only").stdout == "upperlower"
    hosts.run(1, f"echo changed > {hosts.layers[1]}/bin/only")
    assert hosts.run(1, f"cat {hosts.venv}/bin/only").stdout == "changed\n"
    assert hosts.run(2, f"cat {hosts.venv}/bin/only").stdout == "lower"
    assert (hosts.layers[1] / "bin" / "only").read_text() == "lower"


def test_a_power_cut_ends_all_says_nothing_and_leaves_the_disk(hosts: Hosts) -> None:
    listener = 'import socket; s = socket.create_server(("10.88.8.101", 7000)); c, _ = s.accept(); print(c.recv(1))'
    server = subprocess.Popen(hosts.command(1, f"python3 -c '{listener}'"), stdout=subprocess.PIPE, text=True)
    caller = (
        "import socket, time\n"
        "while True:\n"
        '    try: c = socket.create_connection(("10.88.8.101", 7000)); break\n'
        "    except ConnectionRefusedError: time.sleep(0.1)\n"
        'print("connected", flush=True); c.settimeout(3)\n'
        "try: print(repr(c.recv(1)))\n"
        'except TimeoutError: print("silence")\n'
    )
    client = subprocess.Popen(hosts.command(2, f"python3 -c '{caller}'"), stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None and client.stdout.readline() == "connected\n"
    hosts.run(1, "echo kept > /root/kept; echo gone > /run/gone")
    hosts.off(1)
    assert client.communicate(timeout=60)[0] == "silence\n"
    assert server.wait(timeout=60) != 0
    assert ssh(hosts, 1, "hostname").returncode == 255
    hosts.on(1)
    assert hosts.run(1, "cat /root/kept; cat /run/gone", check=False).stdout.startswith("kept\ncat: /run/gone")
    assert ssh(hosts, 1, "hostname").stdout.endswith("hosttest1\n")


def test_one_that_is_off_is_said_to_be(hosts: Hosts) -> None:
    hosts.off(2)
    with pytest.raises(RuntimeError, match="host 2 is off"):
        hosts.run(2, "true")
    hosts.on(2)
