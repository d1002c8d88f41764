"""A Ray cluster that `ray up` makes on hosts of this machine."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from cluster.hosts import OPERATOR, Hosts
from cluster.local_configuration import local_configuration
from helpers.places import PATIENCE_SECONDS, ROOT

HEAD = 1
PROJECT = "cd ~/glue-exit-study && export PATH=$PWD/.venv/bin:$PATH"
TRIES, JOIN_SECONDS = 3, 600.0
# What a shell on a node has, by the line that cluster.yaml adds to ~/.bashrc.
ON_A_NODE = f"{PROJECT} RAY_AUTH_MODE=token"
ALIVE = (
    "import ray; ray.init('auto', log_to_driver=False, logging_level='ERROR'); "
    "print('ALIVE', *(node['NodeManagerAddress'] for node in ray.nodes() if node['Alive']))"
)


@dataclass
class ClusterOnHosts:
    """`hosts` with an operator (0), a head (1) and workers. `random` draws the moments of power cuts."""

    hosts: Hosts
    random: random.Random
    workers: list[int] = field(default_factory=lambda: [2, 3])

    def prepare(self) -> None:
        """The operator gets the project's files and makes a token, as docs/cluster.md says."""
        project = self.hosts.disk(OPERATOR) / "root" / "glue-exit-study"
        for name in self._shipped()["file_mounts"].values():
            if not name.startswith("~"):
                _copy(ROOT / name, project / name)
        self.write_configuration()
        self.operator("(umask 077; ray get-auth-token --generate > /dev/null); chmod 600 ~/.ray/auth_token")

    def write_configuration(self) -> None:
        """`cluster.yaml` as it is shipped, for these hosts."""
        addresses = [self.hosts.address(host) for host in self.workers]
        local = local_configuration(self._shipped(), head=self.hosts.address(HEAD), workers=addresses)
        path = self.hosts.disk(OPERATOR) / "root" / "glue-exit-study" / "cluster.yaml"
        path.write_text(yaml.safe_dump(local, width=1000))

    def operator(self, line: str, *, check: bool = True) -> str:
        """What a line of bash prints at the operator's, in the project's folder."""
        return self.hosts.run(OPERATOR, f"{PROJECT} && {line}", check=check, timeout=PATIENCE_SECONDS).stdout

    def on_node(self, host: int, line: str) -> subprocess.CompletedProcess:
        """A line of bash on a node, as somebody who is logged in there types it."""
        return self.hosts.run(host, f"{ON_A_NODE} && {line}", check=False, timeout=PATIENCE_SECONDS)

    def up(self) -> None:
        """`ray up`, until the workers have joined: once more where a machine is so busy that Ray gives one up."""
        for _ in range(TRIES):
            answer = self.operator("ray up -y cluster.yaml", check=False)
            if "Useful commands" in answer and self.all_join(JOIN_SECONDS):
                return
        raise RuntimeError(answer[-4000:])

    def all_join(self, seconds: float = PATIENCE_SECONDS) -> bool:
        """Waits for all workers that are on; False: some have not joined in so many seconds."""
        expected = {self.hosts.address(host) for host in self.workers if self.hosts.is_on(host)}
        deadline = time.monotonic() + seconds
        while not expected <= self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(5.0)
        return True

    def alive(self) -> set[str]:
        """Addresses of the nodes that Ray counts as alive."""
        answer = self.on_node(HEAD, f'python -c "{ALIVE}"').stdout
        return {word for line in answer.splitlines() if line.startswith("ALIVE") for word in line.split()[1:]}

    def processes(self, host: int) -> list[str]:
        """Command lines of what runs on a host, but for its sshd and what asks."""
        lines = self.hosts.run(host, "ps -eo args=").stdout.splitlines()
        return [line for line in lines if "sshd" not in line and "ps -eo args=" not in line]

    @staticmethod
    def wait(condition: Callable[[], object], what: str, *, every: float) -> None:
        """Until the condition holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            time.sleep(every)

    @staticmethod
    def _shipped() -> dict:
        return yaml.safe_load((ROOT / "cluster.yaml").read_text())


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
