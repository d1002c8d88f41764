"""The benchmark of trials that share a device, in small: pytest tests/house/test_gpu_sharing.py"""

from __future__ import annotations

import os
from contextlib import contextmanager

import pytest
import torch

from benchmarks import gpu_sharing
from benchmarks.gpu_sharing import ALONE, Timed, Way
from study.cluster import mps

SMALL = ["--device", "cpu", "--backbone", "mini-albert", "--batch-size", "2", "--steps", "2", "--rounds", "1"]


def at(*spans: tuple[float, float]) -> list[Timed]:
    return [Timed(began, began, ended, cpu_seconds=1.0) for began, ended in spans]


def test_trials_per_hour_are_those_of_the_whole_device():
    assert gpu_sharing.trials_per_hour(at((0, 8), (1, 10))) == 720


def test_a_ratio_is_the_median_of_those_within_rounds():
    four = Way(4, with_mps=True)
    rounds = {
        ALONE: [at((0, 1)), at((0, 10)), at((0, 2))],
        four: [at(*[(0, 2)] * 4), at(*[(0, 10)] * 4), at(*[(0, 2)] * 4)],
    }
    row = gpu_sharing.row_of(four, rounds)
    assert row["ratio"] == 4 and row["trials_per_hour"] == 7200 and row["way"] == "4 at once, MPS"
    assert gpu_sharing.row_of(ALONE, rounds)["ratio"] == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr("sys.argv", ["gpu_sharing", "--device", "cuda"])
    with pytest.raises(SystemExit, match="^--device is cuda, but this machine has no GPU; allowed: cpu$"):
        gpu_sharing.main()


def test_without_one_at_a_time_there_is_nothing_to_compare_with():
    arguments = gpu_sharing.build_parser().parse_args([*SMALL, "--at-once", "2", "4"])
    with pytest.raises(ValueError, match=r"^--at-once is \[2, 4\]; allowed: 1, which others are compared with"):
        gpu_sharing.measure(arguments)


class NoPool:
    """Notes the environment that processes would have."""

    def __init__(self, *_, **__):
        self.environment = dict(os.environ)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def map(self, *_):
        return [self.environment]


@pytest.mark.parametrize("with_mps", [True, False])
@pytest.mark.parametrize("given", [None, "/of/others"])
def test_trials_meet_a_daemon_of_their_own_or_none(monkeypatch, given, with_mps):
    """No daemon is started: a context in its place says where one would be."""

    @contextmanager
    def service(*, say):
        os.environ[mps.SOCKETS] = "/of/ours"
        yield True
        del os.environ[mps.SOCKETS]

    monkeypatch.setattr(mps, "multi_process_service", service)
    monkeypatch.setattr(gpu_sharing, "ProcessPoolExecutor", NoPool)
    with gpu_sharing.environment(mps.SOCKETS, given), gpu_sharing.environment("CUDA_VISIBLE_DEVICES", "3"):
        (on_gpu,) = gpu_sharing.trained(Way(2, with_mps), gpu_sharing.build_parser().parse_args(["--device", "cuda"]))
        (on_cpu,) = gpu_sharing.trained(Way(2, with_mps), gpu_sharing.build_parser().parse_args(["--device", "cpu"]))
        assert os.environ.get(mps.SOCKETS) == given and os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    assert (on_gpu[mps.SOCKETS] == "/of/ours") == with_mps and on_gpu[mps.SOCKETS] != given
    assert on_gpu["CUDA_VISIBLE_DEVICES"] == "3" and on_cpu["CUDA_VISIBLE_DEVICES"] == ""


def test_where_mps_does_not_start_it_is_not_measured(monkeypatch, capsys):
    @contextmanager
    def service(*, say):
        say("trials share GPUs without MPS: broken")
        yield False

    monkeypatch.setenv("PATH", "/nowhere")
    assert not gpu_sharing.has_mps() and "there is no nvidia-cuda-mps-control" in capsys.readouterr().err
    monkeypatch.setattr(gpu_sharing, "which", lambda name: name)
    monkeypatch.setattr(mps, "multi_process_service", service)
    assert not gpu_sharing.has_mps() and "broken" in capsys.readouterr().err
    monkeypatch.setattr(gpu_sharing, "ProcessPoolExecutor", NoPool)
    with pytest.raises(ValueError, match="^MPS has started before and does not now; allowed: "):
        gpu_sharing.trained(Way(1, with_mps=True), gpu_sharing.build_parser().parse_args(SMALL))


@pytest.mark.long
@pytest.mark.slow
def test_trials_that_share_a_cpu_train_at_the_same_time():
    arguments = gpu_sharing.build_parser().parse_args([*SMALL, "--at-once", "1", "2"])
    rounds = gpu_sharing.measure(arguments)
    ((one, other),) = rounds[Way(2, with_mps=False)]
    assert max(one.ready, other.ready) <= min(one.began, other.began) and one.cpu_seconds > 0
    assert gpu_sharing.row_of(ALONE, rounds)["ratio"] == 1
