"""A driver whose cluster and workers are the test's words."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.journals import MadeJournal
from helpers.launched_studies import PROVENANCE, mini_plan
from helpers.simulation import report
from msgspec.structs import replace

from study.cluster.ray_cluster import RayNodes
from study.cluster.resources import Resources
from study.decisions.scheduler import Scheduler
from study.drivers.driver import Watchdog
from study.drivers.messages import Message, Steps
from study.drivers.tune_driver import TuneDriver
from study.facts.provenance import Attestation
from study.facts.study_facts import TrialFacts


class Cluster:
    """A driver of a study on nodes of one CPU each, without Ray."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *nodes: str) -> None:
        monkeypatch.setattr("study.cluster.ray_cluster.ray.nodes", lambda: self._nodes)
        self.nodes_are(*nodes)
        plan = mini_plan(methods=("albert",), tasks=("rte",))
        self.scheduler = Scheduler(plan, MadeJournal(), PROVENANCE)
        self.scheduler.begin_launch(command="", host="", pid=0)
        self.driver = TuneDriver(
            self.scheduler,
            folder=folder,
            storage=str(folder),
            resources=Resources(nodes=RayNodes(), cpus=1, gpus=0),
            on_progress=lambda driver: None,
            watchdog=Watchdog(say=print),
        )
        self.driver._smoke.parts.clear()

    def nodes_are(self, *nodes: str) -> None:
        self._nodes = [{"NodeID": node, "Alive": True, "Resources": {"CPU": 1.0}} for node in nodes]

    def lose(self, node: str) -> None:
        """Ray finds that the node is dead."""
        living = [other for other in self._nodes if other["NodeID"] != node]
        self._nodes = [*living, {"NodeID": node, "Alive": False, "NodeManagerHostname": f"host-{node}"}]

    def hand_out(self) -> list[str]:
        """Ray's numbers of the trials that go to Ray now."""
        before = len(self.driver._keys)
        while self.driver.suggest(f"ray-{len(self.driver._keys)}") is not None:
            pass
        return list(self.driver._keys)[before:]

    def refuse(self, ray_id: str, node: str | None, **found: str) -> str:
        """A worker on the node found something else than was expected of the trial; what Ray is told."""
        self.driver.begun(ray_id)
        key = self.driver._keys[ray_id]
        refused = replace(self.expected(key), **found)
        return self.driver.reported(ray_id, Message(key=key, host=f"host-{node}", node=node, refused=refused))

    def steps(self, ray_id: str, *, done: int, node: str = "a") -> str:
        """A worker says how far the trial's epoch is; what Ray is told."""
        steps = Steps(key=self.trial_of(ray_id).key, done=done, of=10, seconds=float(done))
        return self.driver.reported(ray_id, Message(steps=steps, node=node))

    def trial_of(self, ray_id: str) -> TrialFacts:
        key = self.driver._keys[ray_id]
        return self.scheduler.facts.trials[key]

    def end(self, ray_id: str, *, node: str) -> None:
        """A worker on the node tells the last epoch of the trial at once; nothing of it is on disk."""
        self.driver.begun(ray_id)
        trial = self.trial_of(ray_id)
        last = report(trial, trial.config["epochs"])
        message = Message(key=trial.key, host=f"host-{node}", node=node, report=last)
        assert self.driver.reported(ray_id, message) == "STOP"

    def expected(self, key: str) -> Attestation:
        return self.scheduler.make_expected_attestation(self.scheduler.facts.trials[key])

    def events(self, kind: type) -> list:
        return [event for event in self.scheduler._journal.events if isinstance(event, kind)]
