"""Kills the processes of a running study at random moments until the study is done, on a Ray cluster of its own, or
without Ray.

    python -m helpers.kills --kills 50
    python -m helpers.kills --kills 50 --driver local

The long form of tests/study/test_kills.py. Only processes that were started here are killed, by their numbers.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import psutil
import ray
from helpers.launches import Launches, local_workers
from helpers.places import PATIENCE_SECONDS
from helpers.started_processes import descendants, is_alive, kill, kill_all
from helpers.trials import check_as_alone
from ray.cluster_utils import Cluster

from study.decisions import asha
from study.facts.events import AshaDecided, EpochReported, TrialStarted, read_events
from study.facts.plan_file import require_plan
from study.facts.study_facts import read_facts

EPOCHS = 300  # that a study of the long form reports at least


@dataclass
class KilledStudy(Launches, ABC):
    """A study whose processes are killed, each kind in turn."""

    kinds: ClassVar[tuple[str, ...]]
    killed: Counter = field(default_factory=Counter)

    def run(self, *, kills: int, epochs: int) -> None:
        """Kills `kills` times, spread at random over the `epochs` that the study will report."""
        launcher = self._launch()
        for number in range(kills):
            if not self.wait_for(int(epochs * (number + self.random.random()) / (kills + 1)), launcher):
                break
            launcher = self._kill(self.kinds[number % len(self.kinds)], launcher)
        self.finish(launcher)

    def _kill(self, kind: str, launcher: subprocess.Popen) -> subprocess.Popen:
        if kind == "worker":
            workers = self._workers(launcher)
            if not workers:
                return launcher
            kill([self.random.choice(workers)])
        elif kind == "launcher":
            self._kill_launcher(launcher)
            launcher = self._launch()
        else:
            launcher = self._kill_node(launcher)
        self.killed[kind] += 1
        return launcher

    @abstractmethod
    def _launch(self) -> subprocess.Popen:
        """Begins it, or goes on with it."""

    @abstractmethod
    def _workers(self, launcher: subprocess.Popen) -> list[psutil.Process]:
        """The processes that train."""

    def _kill_launcher(self, launcher: subprocess.Popen) -> None:
        launcher.kill()
        launcher.wait()

    @abstractmethod
    def _kill_node(self, launcher: subprocess.Popen) -> subprocess.Popen:
        """The launcher that goes on."""


@dataclass
class KilledCluster(KilledStudy):
    """A study on a cluster of a head and two nodes with a slot each."""

    kinds = ("launcher", "worker", "node")

    def __post_init__(self) -> None:
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.nodes = [self._add_node(), self._add_node()]

    def run(self, *, kills: int, epochs: int) -> None:
        try:
            super().run(kills=kills, epochs=epochs)
        finally:
            self.cluster.shutdown()

    def _launch(self) -> subprocess.Popen:
        return self.launch("--address", self.cluster.address)

    def _workers(self, launcher: subprocess.Popen) -> list[psutil.Process]:
        """The actors that train, of this cluster alone."""
        raylets = [node.all_processes["raylet"][0].process.pid for node in self.nodes]
        name = "ResourceTrainable"  # Ray's, for an actor with resources
        return [actor for raylet in raylets for actor in descendants(raylet, name)]

    def _kill_node(self, launcher: subprocess.Popen) -> subprocess.Popen:
        self.cluster.remove_node(self.nodes.pop(self.random.randrange(2)), allow_graceful=False)
        self.nodes.append(self._add_node())
        return launcher

    def _add_node(self) -> Any:
        return self.cluster.add_node(num_cpus=1, env_vars={"HF_HUB_OFFLINE": "1"})


@dataclass
class KilledMachine(KilledStudy):
    """A study without Ray, whose node is this machine: the launcher and all that it has started."""

    kinds = ("launcher", "worker", "machine")

    def _launch(self) -> subprocess.Popen:
        return self.launch("--driver", "local")

    def _workers(self, launcher: subprocess.Popen) -> list[psutil.Process]:
        return local_workers(launcher.pid)

    def _kill_launcher(self, launcher: subprocess.Popen) -> None:
        """No worker is left behind."""
        workers, deadline = self._workers(launcher), time.monotonic() + PATIENCE_SECONDS
        super()._kill_launcher(launcher)
        while any(map(is_alive, workers)):
            assert time.monotonic() < deadline, workers
            time.sleep(0.05)

    def _kill_node(self, launcher: subprocess.Popen) -> subprocess.Popen:
        kill_all(launcher)
        return self._launch()


KINDS = {"ray": KilledCluster, "local": KilledMachine}


def run_killed(folder: Path, arguments: list[str], *, driver: str, kills: int, seed: int, epochs: int) -> KilledStudy:
    """A study in a new folder, to its end; `epochs`: about those that it will report, for the moments of the kills."""
    folder.mkdir()
    study = KINDS[driver](folder / "study", arguments, random.Random(seed))
    study.run(kills=kills, epochs=epochs)
    return study


def check_nothing_lost_or_doubled(folder: Path, cache: Path) -> dict[str, int]:
    """Holds a killed study against its plan and against its trials where nothing happens to them; counts of what was
    compared. AssertionErrors say what."""
    records = read_facts(folder).records
    arms = require_plan(folder).plan.arms
    search, confirm = ([r for r in records if r.phase == phase] for phase in ("search", "confirm"))
    assert len(search) == sum(arm.samples for arm in arms) and len(confirm) == sum(len(arm.seeds) for arm in arms)
    counts = check_as_alone(folder, cache)
    assert not counts["failed"], [record.error for record in records if record.status == "failed"]
    return {"records": len(records), "equal": counts["completed"], "rungs": check_rungs(folder)}


def check_rungs(folder: Path) -> int:
    """Replays ASHA's log; the number of decisions that came out the same."""
    plan, events = require_plan(folder).plan, read_events(folder)
    arm_of = {event.key: event.arm for event in events if isinstance(event, TrialStarted)}
    scores: dict[tuple[str, int], float] = {}
    rungs: dict[str, dict[int, dict[str, float]]] = {}
    number = 0
    for event in events:
        if isinstance(event, EpochReported):
            scores[event.key, event.row.epoch] = event.row.selection_score
        if not isinstance(event, AshaDecided):
            continue
        arm = plan.arm(arm_of[event.key])
        own, stopping = rungs.setdefault(arm.name, {}), plan.protocol.early_stopping
        score = scores[event.key, event.rung]
        where = {"epoch": event.rung, "score": score, "epochs": arm.epochs, "stopping": stopping}
        assert asha.decide(own, event.key, time=event.time, **where) == event
        own.setdefault(event.rung, {})[event.key] = score
        number += 1
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--driver", choices=KINDS, default="ray")
    options = parser.parse_args()
    arguments = ["--method", "albert,palbert", "--task", "rte,cola,sst2", "--sampler", "grid", "--samples", "6"]
    arguments += ["--seeds", "5", "--profile", "mini", "--max-failures", "1000"]
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        how = {"driver": options.driver, "kills": options.kills, "seed": options.seed}
        killed = run_killed(home / "killed", arguments, epochs=EPOCHS, **how)
        print(f"{sum(killed.killed.values())} kills {dict(killed.killed)}")
        print(check_nothing_lost_or_doubled(killed.folder, home / "cache"))
    if sum(killed.killed.values()) < options.kills:
        raise SystemExit(f"the study was done before it had been killed {options.kills} times")


if __name__ == "__main__":
    main()
    ray.shutdown()
