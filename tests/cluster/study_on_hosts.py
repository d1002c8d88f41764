"""A study on a cluster of hosts, from outside: its launches, its journal, and whether it is whole."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.cluster_on_hosts import HEAD, PROJECT, ClusterOnHosts
from cluster.hosts import OPERATOR
from helpers.places import PATIENCE_SECONDS

from study.facts.events import EpochReported, Event, NodeLeftOut, TrialEnded, TrialRetried, read_events
from study.facts.record import Record
from study.facts.study_facts import read_facts

LAUNCH = "python -m study.launch --profile mini --method palbert --task rte --address auto"


def hosts_under_way(events: Sequence[Event]) -> set[str]:
    """Names of the hosts where trials are under way that have reported an epoch there."""
    under_way: dict[str, str] = {}
    host_of: dict[str, str] = {}
    for event in events:
        if isinstance(event, EpochReported) and event.outcome is None:
            host_of |= {event.key: event.process.host} if event.process else {}
            under_way[event.key] = host_of[event.key]
        elif isinstance(event, EpochReported | TrialEnded | TrialRetried):
            under_way.pop(event.key, None)
    return set(under_way.values())


@dataclass
class StudyOnHosts:
    """A study in /shared/runs, or in the head's own `~/runs` where no folder is shared."""

    cluster: ClusterOnHosts
    name: str
    samples: int = 3
    seeds: int = 2
    epochs: int = 4  # enough to be cut off in
    storage: str | None = None

    def launch(self) -> subprocess.Popen:
        """The documented launch, by `ray exec` from the operator's."""
        size = f"--samples {self.samples} --seeds {self.seeds} --epochs {self.epochs}"
        where = f"--out {self._out} --name {self.name}" + (f' --storage "{self.storage}"' if self.storage else "")
        line = f"{PROJECT} && ray exec cluster.yaml '{LAUNCH} {size} {where}'"
        with self._log.open("a") as log:
            return subprocess.Popen(self.cluster.hosts.command(OPERATOR, line), stdout=log, stderr=log, text=True)

    def finish(self, process: subprocess.Popen | None = None) -> str:
        """What all launches have printed, once this one, or a new one, has ended well."""
        assert (process or self.launch()).wait(timeout=PATIENCE_SECONDS) == 0, self._log.read_text()[-6000:]
        return self._log.read_text()

    @property
    def folder(self) -> Path:
        """Where it lies, as this machine sees it."""
        hosts = self.cluster.hosts
        return (hosts.disk(HEAD) / "root" if self.storage else hosts.shared) / "runs" / self.name

    def events(self) -> list[Event]:
        """The journal so far."""
        return read_events(self.folder) if self.folder.exists() else []

    def wait_for_a_moment(self, epochs: range) -> int:
        """Waits for a moment in its middle that this run draws: a host on which a trial is under way."""
        drawn = self.cluster.random
        number, pause = drawn.choice(epochs), drawn.uniform(0, 2)
        self._wait_until_busy(number)
        time.sleep(pause)
        busy = self._wait_until_busy(number)  # trials may have ended meanwhile
        print(f"{self.name}: at {self._reports()} epochs, {pause:.2f} s after epoch {number}; trials on {busy}")
        return drawn.choice(busy)

    def _wait_until_busy(self, epochs: int) -> list[int]:
        """Waits for so many epochs and a trial under way; the hosts of trials under way."""
        busy: list[int] = []

        def has_come() -> bool:
            busy[:] = self.busy() if self._reports() >= epochs else []
            return bool(busy)

        self.cluster.wait(has_come, f"epoch {epochs} of {self.name}", every=0.1)
        return busy

    def cut_power(self, host: int) -> set[str]:
        """Cuts the power of a host; its name if a trial is under way there, whose end was not told just before."""
        self.cluster.hosts.off(host)
        return {self.cluster.hosts.name(host)} if host in self.busy() else set()

    def busy(self) -> list[int]:
        """Hosts where trials are under way that have reported an epoch there."""
        names = hosts_under_way(self.events())
        return sorted(host for host in self.cluster.workers if self.cluster.hosts.name(host) in names)

    def used(self) -> set[str]:
        """Names of the hosts that trained."""
        return {e.process.host for e in self.events() if isinstance(e, EpochReported) and e.process}

    def left_out(self) -> set[str]:
        """Names of the hosts that got no trials for a while."""
        return {event.host for event in self.events() if isinstance(event, NodeLeftOut)}

    def lost_on(self) -> set[str]:
        """Names of the hosts on which trials broke off."""
        return {e.failure.host for e in self.events() if isinstance(e, TrialRetried) and e.failure.host}

    def check_whole(self) -> dict[str, Record]:
        """Key -> record of a complete study: nothing lost, nothing twice, and `analysis.verify` finds nothing."""
        records = read_facts(self.folder).records
        by_key = {record.key: record for record in records}
        assert len(records) == len(by_key) and all(record.status != "failed" for record in records)
        phases = Counter(record.phase for record in records)
        assert phases == {"search": self.samples, "confirm": self.seeds}
        epochs = [(e.key, e.row.epoch) for e in self.events() if isinstance(e, EpochReported)]
        assert len(epochs) == len(set(epochs))
        predicted = {path.stem for path in (self.folder / "predictions").glob("*.npz")}
        assert predicted == {record.key for record in records if record.phase == "confirm"}
        answer = self.cluster.on_node(HEAD, f"python -m analysis.verify {self._out}/{self.name}")
        assert answer.returncode == 0 and (self.folder / "tables" / "dev.csv").exists(), answer.stdout
        return by_key

    def _reports(self) -> int:
        return sum(isinstance(event, EpochReported) for event in self.events())

    @property
    def _out(self) -> str:
        return "~/runs" if self.storage else "/shared/runs"

    @property
    def _log(self) -> Path:
        return self.cluster.hosts.state / f"{self.name}.log"
