"""slurm/study.sbatch on a real SLURM: python -m pytest tests/cluster/test_slurm.py"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster.slurm_on_hosts import CONTROLLER, NODES, SlurmOnHosts, missing, slurm_on_hosts
from cluster.study_on_hosts import hosts_under_way
from filelock import Timeout
from helpers.kills import check_nothing_lost_or_doubled

from study.facts.events import EpochReported, Event, LaunchEnded, TrialRetried, read_events
from study.facts.study_facts import read_facts

STUDY = "--method palbert --task rte --profile mini"


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmOnHosts]:
    if reason := missing():
        pytest.skip(reason)
    try:
        with slurm_on_hosts() as slurm:
            yield slurm
    except Timeout as timeout:
        pytest.skip(f"another run has the hosts: {timeout}")


@dataclass
class StudyOnSlurm:
    """A study in `runs` of a user's checkout, from outside."""

    slurm: SlurmOnHosts
    name: str
    samples: int
    seeds: int
    epochs: int
    user: str = "student"

    def submit(self, options: str = "") -> int:
        """The number of the job that begins or continues it."""
        size = f"--samples {self.samples} --seeds {self.seeds} --epochs {self.epochs}"
        return self.slurm.submit(f"{STUDY} {size} --name {self.name}", options=options, name=self.user)

    def wait_for_another_epoch(self, job: int) -> None:
        """Until a trial has reported one epoch more and goes on."""
        seen = len(self._reports())
        self.slurm.wait(lambda: len(self._reports()) > seen and self.busy(), lambda: self.printed(job), every=0.2)

    def busy(self) -> set[str]:
        """Names of the hosts where trials are under way that have reported an epoch."""
        return hosts_under_way(self.events())

    def events(self) -> list[Event]:
        """The journal so far."""
        return read_events(self.folder) if self.folder.exists() else []

    def launches_ended(self) -> list[str]:
        """How its launches have ended, but for those that were killed."""
        return [event.status for event in self.events() if isinstance(event, LaunchEnded)]

    def printed(self, job: int) -> str:
        """The end of what a job has printed."""
        log = self.folder.parents[1] / f"study-{job}.log"
        return log.read_text()[-4000:] if log.exists() else ""

    @property
    def folder(self) -> Path:
        """Where it lies, as this machine sees it."""
        return self.slurm.hosts.shared / self.user / "glue-exit-study" / "runs" / self.name

    def check_whole(self, cache: Path) -> None:
        """Nothing is lost, nothing there twice, and every number is that of the trial where nothing happens to it."""
        records = read_facts(self.folder).records
        assert Counter(record.phase for record in records) == {"search": self.samples, "confirm": self.seeds}
        counts = check_nothing_lost_or_doubled(self.folder, cache)  # what ASHA has stopped is held against its log
        assert counts["records"] == self.samples + self.seeds
        assert counts["equal"] == sum(record.status == "completed" for record in records) > self.seeds
        epochs = [(event.key, event.row.epoch) for event in self._reports()]
        assert len(epochs) == len(set(epochs))
        table = (self.folder / "tables" / "dev.md").read_text()
        assert re.search(r"^\| palbert +\| +\d+\.\d \|$", table, re.M), table
        verified = f".venv/bin/python -m analysis.verify runs/{self.name}"
        self.slurm.user(verified, name=self.user)  # exit status 0

    def _reports(self) -> list[EpochReported]:
        return [event for event in self.events() if isinstance(event, EpochReported)]


def test_two_users_share_nodes_and_learn_nothing_of_each_other(slurm: SlurmOnHosts) -> None:
    users = ("student", "colleague")
    studies = [StudyOnSlurm(slurm, "shared", samples=4, seeds=5, epochs=50, user=user) for user in users]
    same_nodes = f"--nodelist={slurm.hosts.name(2)},{slurm.hosts.name(3)}"
    jobs = [study.submit(same_nodes) for study in studies]
    for study, job in zip(studies, jobs, strict=True):
        study.wait_for_another_epoch(job)
    for host in (2, 3):
        environments = "for p in $(pgrep -u student); do tr '\\0' '\\n' < /proc/$p/environ; done 2>/dev/null"
        find = f"{environments} | sed -n 's/^RAY_AUTH_TOKEN=//p'"
        tokens = set(slurm.hosts.run(host, find).stdout.split())
        assert len(tokens) == 1, "of the student's job"
        token = tokens.pop()
        assert re.fullmatch("[0-9a-f]{64}", token)
        assert token not in slurm.hosts.run(host, "ps -eww -o args=").stdout
        written = slurm.hosts.run(host, f"grep -rlF {token} /tmp /var/log /var/tmp /shared/student", check=False)
        assert written.returncode == 1, written.stdout
        others = "cat $(ls -d /proc/[0-9]*/environ) 2>/dev/null | tr '\\0' '\\n'; ls -R /tmp/study-* 2>&1"
        seen = slurm.user(others, name="colleague", host=host, check=False)
        assert token not in seen and "Permission denied" in seen
        listening = slurm.hosts.run(host, "ss -Hltn").stdout
        assert not re.search(r":(8265|52365|10001|6379|44217|44227)\s", listening), listening
    status = f".venv/bin/ray status --address={slurm.hosts.address(2)}:{20000 + jobs[0] % 5000 * 2} 2>&1"
    for stranger in ("RAY_AUTH_MODE=disabled", "RAY_AUTH_MODE=token RAY_AUTH_TOKEN=guess"):
        answer = slurm.user(f"{stranger} {status}", name="colleague", check=False)
        assert "InvalidAuthToken" in answer and "node_" not in answer
    assert [slurm.job(job)["JobState"] for job in jobs] == ["RUNNING", "RUNNING"]
    slurm.hosts.run(CONTROLLER, f"scancel {jobs[0]} {jobs[1]}")
    slurm.wait(lambda: not slurm.left(), slurm.left)


def test_a_study_is_cancelled_twice_requeued_once_and_complete(slurm: SlurmOnHosts, tmp_path: Path) -> None:
    study = StudyOnSlurm(slurm, "cancelled", samples=3, seeds=5, epochs=6)
    job = study.submit("--cpus-per-task=2")
    study.wait_for_another_epoch(job)
    assert slurm.cpus_of_steps(job) == [4], "on two nodes"
    slurm.user(f"scancel {job}")
    assert slurm.wait_for_end(job)["JobState"] == "CANCELLED"
    slurm.wait(lambda: not slurm.left(), slurm.left)

    job = study.submit()
    study.wait_for_another_epoch(job)
    slurm.user(f"scancel --batch --signal=INT {job}")
    ended = slurm.wait_for_end(job)
    assert (ended["JobState"], ended["Restarts"]) == ("FAILED", "0"), study.printed(job)
    assert study.launches_ended()[-1] == "drained"

    job = study.submit("--nodes=1")  # one trial at a time: there is more to do than SLURM takes to look at the time
    study.wait_for_another_epoch(job)
    minutes = sum(
        int(part) * unit for part, unit in zip(slurm.job(job)["RunTime"].split(":")[-3:], (60, 1, 0), strict=False)
    )
    soon = minutes + 4  # less than the five minutes of --signal are left
    slurm.user(f"scontrol update JobId={job} TimeLimit={soon}")
    slurm.wait(lambda: slurm.job(job)["Restarts"] == "1", lambda: study.printed(job))
    slurm.hosts.run(CONTROLLER, f"scontrol update JobId={job} TimeLimit=60")
    ended = slurm.wait_for_end(job)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "1"), study.printed(job)
    assert study.launches_ended()[-3:] == ["drained", "drained", "complete"]
    study.check_whole(tmp_path)
    slurm.wait(lambda: not slurm.left(), slurm.left)


def test_study_survives_loss_of_head_and_worker(slurm: SlurmOnHosts, tmp_path: Path) -> None:
    study = StudyOnSlurm(slurm, "lost", samples=2, seeds=12, epochs=6)  # more than one node does meanwhile
    job = study.submit()
    study.wait_for_another_epoch(job)
    first = slurm.host_of(slurm.job(job)["BatchHost"])
    slurm.hosts.off(first)
    slurm.wait(lambda: slurm.job(job)["Restarts"] == "1", lambda: slurm.job(job))
    slurm.wait(lambda: slurm.job(job)["JobState"] == "RUNNING", lambda: slurm.job(job))
    head = slurm.job(job)["BatchHost"]
    seen = len(study.events())
    slurm.wait(lambda: len(study.events()) > seen and study.busy() - {head, slurm.hosts.name(first)}, study.busy)
    second = slurm.host_of((study.busy() - {head, slurm.hosts.name(first)}).pop())
    slurm.hosts.off(second)
    ended = slurm.wait_for_end(job)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "1"), study.printed(job)
    lost_on = {event.failure.host for event in study.events() if isinstance(event, TrialRetried)}
    assert lost_on == {slurm.hosts.name(second)}
    study.check_whole(tmp_path)
    for host in (first, second):
        slurm.hosts.on(host)
        slurm.boot(host)
    slurm.wait(lambda: slurm.nodes() == f"{len(NODES)}:idle\n", slurm.nodes)
