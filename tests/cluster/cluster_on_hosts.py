"""A Ray cluster that `ray up` makes on hosts of this machine, and studies that run there."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from cluster.hosts import OPERATOR, Hosts
from cluster.local_configuration import local_configuration
from helpers.places import PATIENCE_SECONDS, ROOT

from study.facts.events import EpochReported, Event, TrialEnded, TrialRetried, read_events
from study.facts.record import Record, read_records

HEAD = 1
PROJECT = "cd ~/glue-exit-study && export PATH=$PWD/.venv/bin:$PATH"
# What a shell on a node has, by the line that cluster.yaml adds to ~/.bashrc.
ON_A_NODE = f"{PROJECT} RAY_AUTH_MODE=token"
DOCTOR = "python -m study.doctor --address auto --data mini --storage /shared/runs"
LAUNCH = "python -m study.launch --profile mini --method palbert --task rte --address auto --out /shared/runs"
ALIVE = (
    "import ray; ray.init('auto', log_to_driver=False, logging_level='ERROR'); "
    "print('ALIVE', *(node['NodeManagerAddress'] for node in ray.nodes() if node['Alive']))"
)
# Three searches and two seeds, of epochs enough to be cut off in.
SIZE = "--samples 3 --seeds 2 --epochs 4"


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
        self.operator("umask 077 && ray get-auth-token --generate")

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

    def up(self, options: str = "") -> None:
        """`ray up`, then waits until all workers that are on have joined."""
        self.operator(f"ray up -y {options} cluster.yaml")
        expected = {self.hosts.address(host) for host in self.workers if self.hosts.is_on(host)}
        self.wait(lambda: expected <= self.alive(), f"{expected} to join", every=5.0)

    def alive(self) -> set[str]:
        """Addresses of the nodes that Ray counts as alive."""
        answer = self.on_node(HEAD, f'python -c "{ALIVE}"').stdout
        return {word for line in answer.splitlines() if line.startswith("ALIVE") for word in line.split()[1:]}

    def launch(self, name: str, more: str = SIZE) -> subprocess.Popen:
        """The documented launch of a study of this name, by `ray exec` from the operator's."""
        line = f"{PROJECT} && ray exec cluster.yaml '{LAUNCH} --name {name} {more}'"
        with self._log(name).open("a") as log:
            return subprocess.Popen(self.hosts.command(OPERATOR, line), stdout=log, stderr=log, text=True)

    def finish(self, process: subprocess.Popen, name: str) -> str:
        """What all launches of a study have printed, once the last has ended well."""
        assert process.wait(timeout=PATIENCE_SECONDS) == 0, self.printed(name)[-6000:]
        return self.printed(name)

    def printed(self, name: str) -> str:
        """What the launches of a study have printed."""
        return self._log(name).read_text()

    def folder(self, name: str) -> Path:
        """Where a study lies, as this machine sees it."""
        return self.hosts.shared / "runs" / name

    def events(self, name: str) -> list[Event]:
        """The journal of a study so far."""
        return read_events(self.folder(name)) if self.folder(name).exists() else []

    def wait_for_a_moment(self, name: str, *, epochs: range) -> int:
        """Waits for a moment in the middle of a study that this run draws: a host on which a trial is under way."""
        number, pause = self.random.choice(epochs), self.random.uniform(0, 2)
        self.wait(lambda: self._reports(name) >= number and self.busy(name), f"epoch {number} of {name}", every=0.1)
        time.sleep(pause)
        host = self.random.choice(self.busy(name) or self.workers)
        print(f"{name}: {self._reports(name)} epochs, {pause:.2f} s after epoch {number}")
        return host

    def busy(self, name: str) -> list[int]:
        """Hosts where trials are under way that have reported an epoch there."""
        under_way: dict[str, str] = {}
        for event in self.events(name):
            if isinstance(event, EpochReported) and event.report.outcome is None:
                under_way[event.key] = event.report.host
            elif isinstance(event, EpochReported | TrialEnded | TrialRetried):
                under_way.pop(event.key, None)
        return sorted({host for host in self.workers if self.hosts.name(host) in under_way.values()})

    def whole(self, name: str, *, searched: int = 3, confirmed: int = 2) -> dict[str, Record]:
        """Key -> record of a study that is complete: nothing lost, nothing twice, and it verifies."""
        records = read_records(self.folder(name) / "records.jsonl")
        by_key = {record.key: record for record in records}
        assert len(records) == len(by_key) and all(record.status != "failed" for record in records)
        phases = Counter(record.phase for record in records)
        assert phases == {"search": searched, "confirm": confirmed}
        epochs = [(e.key, e.report.row.epoch) for e in self.events(name) if isinstance(e, EpochReported)]
        assert len(epochs) == len(set(epochs))
        predicted = {path.stem for path in (self.folder(name) / "predictions").glob("*.npz")}
        assert predicted == {record.key for record in records if record.phase == "confirm"}
        answer = self.on_node(HEAD, f"python -m analysis.verify /shared/runs/{name}")
        assert answer.returncode == 0, answer.stdout
        return by_key

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

    def _reports(self, name: str) -> int:
        return sum(isinstance(event, EpochReported) for event in self.events(name))

    def _log(self, name: str) -> Path:
        return self.hosts.state / f"{name}.log"

    @staticmethod
    def _shipped() -> dict:
        return yaml.safe_load((ROOT / "cluster.yaml").read_text())


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
