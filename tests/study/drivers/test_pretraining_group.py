"""A pretraining in several processes, without Ray: pytest tests/study/drivers/test_pretraining_group.py"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from helpers.corpora import pretraining_spec, random_documents, write_corpus
from helpers.journals import MadeJournal
from helpers.launched_studies import PRETRAINING, PROVENANCE, mini_plan
from msgspec.structs import replace
from ray.exceptions import ActorDiedError
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError

from study.cluster.ray_cluster import RayNodes
from study.cluster.resources import Resources
from study.decisions.machine_faults import Faults
from study.decisions.scheduler import Scheduler
from study.drivers import pretraining_group
from study.drivers.causes import failure_of
from study.drivers.messages import ASSIGNMENTS, AssignedTrial, Assignment, ProcessGroup
from study.drivers.pretraining_group import first_cause, run_epoch_in_group
from study.drivers.provenance import attest
from study.drivers.running_trial import RunningTrial
from study.drivers.trial_actor import MESSAGE
from study.drivers.tune_driver import TuneDriver, placement_of
from study.drivers.watchdog import Watchdog
from trainables.runs.pretraining_run import PretrainingRun, content_of_pretraining
from trainables.runs.pretraining_trial import PretrainingSpec
from trainables.runs.trial import OutOfMemory, TrainingError, Unavailable

GROUP = ProcessGroup(processes=2, cpus=1, gpus=1, threads=1, avoid=())
SILENT = RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:4003")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def spec(tmp_path) -> PretrainingSpec:
    """Four steps in two epochs."""
    return pretraining_spec("mlm", write_corpus(tmp_path / "text", random_documents()))


@pytest.fixture
def processes_here(monkeypatch):
    """What a group's first process does, done in this one."""
    monkeypatch.setattr(pretraining_group, "_result_of", lambda train, group: train())
    monkeypatch.setattr(pretraining_group, "get_device", lambda: "cpu")


def test_a_run_goes_through_a_group_as_through_epochs_of_its_own(spec, processes_here, tmp_path):
    alone, grouped = (PretrainingRun(spec, cache=tmp_path / "tokens") for _ in range(2))
    while not alone.finished:
        alone.run_epoch()
        run_epoch_in_group(grouped, GROUP)
    ours, theirs = grouped.state()["model"], alone.state()["model"]
    assert [row.scores for row in grouped.history] == [row.scores for row in alone.history]
    assert all((ours[name] == theirs[name]).all() for name in theirs)


@pytest.mark.parametrize(
    ("failure", "message"),
    [("code", "it has not what the first node of the pretraining has: code "), ("corpus", "/text' is not a folder")],
)
def test_a_node_with_other_code_or_data_trains_nothing_and_is_named(
    spec, processes_here, tmp_path, monkeypatch, failure, message
):
    run, trained = PretrainingRun(spec, cache=tmp_path / "tokens"), []
    monkeypatch.setattr(PretrainingRun, "run_epoch", trained.append)
    expected = attest(content_of_pretraining(run), method=spec.objective)
    if failure == "code":
        expected = replace(expected, code_digest="c0de")
    else:
        (tmp_path / "text").rename(tmp_path / "elsewhere")
    given = {"state": b"", "threads": 1, "expected": expected}
    with pytest.raises(Unavailable) as caught:
        pretraining_group._train_epoch(spec=run.spec, **given)
    assert str(caught.value).startswith(f"{socket.gethostname()}: ") and message in str(caught.value)
    assert not trained and "\n" not in str(caught.value)


def lost() -> Exception:
    return WorkerHealthCheckFailedError("a worker is gone", ActorDiedError())


@pytest.mark.parametrize(
    ("failures", "cause", "error"),
    [
        ({0: SILENT, 1: lost()}, "machine", "ConnectionError: the pretraining is broken off: process 1 is lost"),
        ({}, "machine", "ConnectionError: the pretraining is broken off: its group is lost"),
        ({0: SILENT, 1: OutOfMemory("out of memory with batch_size 32")}, "memory", "out of memory with batch_size 32"),
        ({0: TrainingError("loss is nan"), 1: TrainingError("loss is nan")}, "method", "loss is nan"),
        ({0: SILENT, 1: RuntimeError("shapes differ")}, "method", "RuntimeError: shapes differ"),
        ({0: SILENT}, "machine", f"RuntimeError: {SILENT}"),
        ({0: SILENT, 1: Unavailable("node-2: no corpus")}, "machine", "node-2: no corpus"),
    ],
)
def test_of_several_failures_the_one_that_brought_about_the_others_is_told(failures, cause, error):
    failure = failure_of(first_cause(failures), node=None)
    assert (failure.cause, failure.error) == (cause, error)


def test_gpu_seconds_are_those_of_all_processes(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining_group, "run_epoch_in_group", lambda run, group: run.run_epoch())
    content = content_of_pretraining(PretrainingRun(spec, cache=tmp_path / "tokens"))
    expected = attest(content, method=spec.objective)
    given = {"pretraining": spec, "expected": expected, "predictions": None}
    assigned = AssignedTrial(key="key", epochs=0, group=GROUP, place=str(tmp_path / "key"), **given)
    trial = RunningTrial(assigned, device="cpu", gpus=0)
    first, second = (trial.next_news().report for _ in range(2))
    trial.release()
    assert first.gpu_seconds == pytest.approx(2 * first.wall_seconds)
    assert second.gpu_seconds == pytest.approx(2 * second.wall_seconds) and second.wall_seconds > first.wall_seconds
    assert first.device == "cuda"


def handed_out(folder: Path, resources: Resources) -> tuple[Assignment, dict]:
    """The first assignment of a study that pretrains, and what Ray is told."""
    scheduler = Scheduler("s", mini_plan(tasks=("rte",), pretraining=PRETRAINING), MadeJournal(), PROVENANCE)
    scheduler.begin_launch(command="", host="", pid=0)
    given = {"storage": str(folder), "on_progress": lambda driver: None, "watchdog": Watchdog(say=print)}
    told = TuneDriver(scheduler, folder=folder, resources=resources, **given).suggest("ray-0")
    return ASSIGNMENTS.read(told[MESSAGE].encode(), where="an assignment"), told


def nodes_of_two(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """A cluster of nodes with two CPUs and two GPUs each."""
    nodes = [{"NodeID": name, "Alive": True, "Resources": {"CPU": 2.0, "GPU": 2.0}} for name in names]
    monkeypatch.setattr("study.cluster.ray_cluster.ray.nodes", lambda: nodes)


@pytest.mark.slow
def test_the_actor_of_a_group_leaves_all_cpus_and_gpus_to_its_processes(tmp_path, monkeypatch):
    nodes_of_two(monkeypatch, "a")
    assignment, told = handed_out(tmp_path, Resources(nodes=RayNodes(), cpus=1, gpus=0.5, processes=2))
    assert assignment.trials[0].group == GROUP and assignment.device == "cpu"
    assert placement_of(told).bundles == [{"memory": 1}]


def test_one_process_is_the_actor_itself(tmp_path, monkeypatch):
    nodes_of_two(monkeypatch, "a")
    assignment, told = handed_out(tmp_path, Resources(nodes=RayNodes(), cpus=1, gpus=0.5))
    assert assignment.trials[0].group is None and placement_of(told).bundles == [{"CPU": 1, "GPU": 0.5}]


@pytest.mark.parametrize(("processes", "avoided"), [(4, ("b",)), (5, ())])
def test_a_node_is_avoided_where_the_others_hold_the_whole_group(tmp_path, monkeypatch, processes, avoided):
    nodes_of_two(monkeypatch, "a", "b", "c")
    monkeypatch.setattr(Faults, "avoided_by", lambda self, key: frozenset({"b"}))
    assignment, _ = handed_out(tmp_path, Resources(nodes=RayNodes(), cpus=1, gpus=1.0, processes=processes))
    assert assignment.trials[0].group.avoid == assignment.avoid == avoided
