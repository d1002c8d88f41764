"""Whether a trial fits on a node, and what is said if not: pytest tests/study/cluster/test_room.py"""

import os
import signal
import subprocess
import sys
from functools import partial

import pytest
import yaml
from helpers.places import ROOT
from ray._private import worker

from study.cluster import ray_cluster, ray_internals
from study.cluster.ray_cluster import RayNodes, interrupts_held
from study.cluster.resources import Autoscaler, Resources, check_room, count_local_gpus
from study.launching.options import LaunchOptions
from study.launching.running import measure_resources

resources_of = partial(Resources, nodes=RayNodes())

AUTOSCALER = Autoscaler.from_configuration(yaml.safe_load((ROOT / "cluster.yaml").read_text()))


@pytest.fixture
def nodes(monkeypatch):
    """Two nodes of one CPU each, and one that is gone."""
    there = [{"NodeID": name, "Alive": True, "Resources": {"CPU": 1.0}} for name in ("a", "b")]
    gone = {"NodeID": "c", "Alive": False, "Resources": {"CPU": 8.0, "GPU": 8.0}}
    monkeypatch.setattr("study.cluster.ray_cluster.ray.nodes", lambda: [*there, gone])


def test_a_trial_has_to_fit_on_one_node(nodes):
    assert resources_of(cpus=1, gpus=0.0).slots() == 2
    assert resources_of(cpus=0.5, gpus=0.0).slots() == 4
    assert resources_of(cpus=2, gpus=0.0).slots() == 0


def test_gpu_limit_is_refused_on_nodes_without_gpus(nodes):
    options = LaunchOptions(address="auto", driver="ray", max_gpu_hours=2)
    with pytest.raises(ValueError, match=r"--max-gpu-hours is 2, but .*allowed: --gpus-per-trial above 0"):
        measure_resources(options)


def test_a_node_that_is_left_out_has_no_slots(nodes):
    assert resources_of(cpus=0.5, gpus=0.0).slots(without={"b"}) == 2
    assert resources_of(cpus=1, gpus=0.0).slots(without={"a", "b"}) == 0


@pytest.mark.parametrize(("cpus", "gpus", "asked"), [(2, 0.0, "2 CPUs and 0 GPUs"), (1, 1.0, "1 CPUs and 1 GPUs")])
def test_unplaceable_trials_are_refused_with_resources(nodes, cpus, gpus, asked):
    resources = resources_of(cpus=cpus, gpus=gpus)
    with pytest.raises(ValueError, match=f"^a trial needs {asked} on one node; there are nodes with 1 CPUs and 0"):
        check_room(resources, address=None)
    assert check_room(resources_of(cpus=1, gpus=0.0), address=None) is None


def test_a_cluster_may_still_grow(nodes):
    waiting = check_room(resources_of(cpus=2, gpus=0.0), address="10.0.0.1:6379")
    assert waiting is not None and waiting.endswith("waiting for an autoscaler to add a suitable node")
    grown = resources_of(cpus=1, gpus=1.0, autoscaler=AUTOSCALER)
    assert check_room(grown, address="auto") is not None
    with pytest.raises(ValueError, match="a trial needs 999 CPUs"):
        check_room(resources_of(cpus=999, gpus=1.0, autoscaler=AUTOSCALER), address="auto")


@pytest.mark.parametrize(("visible", "gpus"), [(None, 2), ("", 0), ("-1", 0), ("0", 1), ("0,1,2", 2)])
def test_gpus_that_are_hidden_are_not_there(monkeypatch, tmp_path, visible, gpus):
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    patterns = tuple(f"{tmp_path}/{pattern}" for pattern in ("gpus/*", "nvidia[0-9]*"))
    monkeypatch.setattr("study.cluster.resources.GPUS", patterns)  # of a sandbox that does not show the driver's folder
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert count_local_gpus() == gpus


def test_an_interrupt_while_ray_starts_is_heard_when_it_has(capsys):
    done, before = [], signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts_held("Ray is starting"):
        os.kill(os.getpid(), signal.SIGINT)
        done.append("started")
    assert done and "Ray is starting; the interrupt takes effect afterwards" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_one_ends_the_process_without_a_clean_up(monkeypatch):
    class Ended(BaseException):
        pass

    def end(status):
        raise Ended(status)

    monkeypatch.setattr("study.cluster.ray_cluster.os._exit", end)
    with pytest.raises(Ended, match="1"), interrupts_held("Ray is starting"):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)


def test_ray_prints_nothing_of_lost_processes_on_standard_output(capfd):
    said = {"lines": ["Raylet is terminated.\n[state-dump]"], "pid": "raylet", "is_err": False}
    with ray_internals.nothing_printed():
        worker.print_to_stdstream(said, ignore_prefix=False)
    assert capfd.readouterr().out == ""
    worker.print_to_stdstream(said, ignore_prefix=False)
    assert "state-dump" in capfd.readouterr().out  # what Ray does, and where


@pytest.mark.long
@pytest.mark.slow
def test_a_ray_of_our_own_listens_on_loopback_only():
    import psutil
    import ray

    with ray_cluster.ray_cluster(None):
        ray.get(ray.remote(lambda: os.getpid()).remote())  # so that there is a worker
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        listening = [
            (process.name(), connection.laddr.ip)
            for process in processes
            for connection in process.net_connections(kind="inet")
            if connection.status == psutil.CONN_LISTEN
        ]
    assert len(listening) > 3
    assert [found for found in listening if found[1].removeprefix("::ffff:") != "127.0.0.1"] == []


@pytest.mark.long
@pytest.mark.slow
def test_temporary_folder_too_long_for_sockets_names_the_variable(tmp_path):
    long = tmp_path / ("a" * 100)
    long.mkdir()
    code = "from study.cluster.ray_cluster import ray_cluster\nwith ray_cluster(None): pass"
    own = {"cwd": ROOT, "env": os.environ | {"RAY_TMPDIR": str(long)}}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **own)
    assert done.stderr.strip().endswith("; set RAY_TMPDIR=/tmp to shorten the paths of its sockets")
