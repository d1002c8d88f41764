"""NVIDIA's MPS around a launch: pytest tests/study/cluster/test_mps.py

There is no GPU here. A shell script stands in the place of `nvidia-cuda-mps-control`: with `-d` it leaves a process and
its number in the folder for sockets, told `quit` it ends that one and waits for it.
What a real daemon does is not tested.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from study import launch_trials
from study.cluster import mps
from study.cluster.nodes import local_gpus
from study.launch_options import build_parser

CONTROL = """#!/bin/sh
number="$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
if [ "$1" = -d ]; then
    if [ -e {folder}/broken ]; then echo "some GPU is lost"; echo "cannot start"; exit 1; fi
    sleep 300 &
    echo $! > "$number"
    echo "$! $CUDA_MPS_PIPE_DIRECTORY ${{CUDA_VISIBLE_DEVICES-all}}" > {folder}/started
    exit 0
fi
read word
[ -e "$number" ] || exit 1
[ "$word" = quit ] || exit 1
daemon=$(cat "$number")
kill "$daemon" && rm "$number"
while grep -qs "^State:.[^Z]" "/proc/$daemon/status"; do sleep 0.01; done
"""


@pytest.fixture
def control(tmp_path: Path, monkeypatch) -> Iterator[Path]:
    """The folder of the program, which notes in `started` what it was started with."""
    program = tmp_path / mps.PROGRAM
    program.write_text(CONTROL.format(folder=tmp_path))
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv(mps.SOCKETS, raising=False)
    monkeypatch.setattr(mps, "CLIENT", ("true",))
    yield tmp_path
    if runs(tmp_path):
        os.kill(started(tmp_path)[0], signal.SIGKILL)


def started(folder: Path) -> tuple[int, Path, str]:
    """Number of the daemon's process, its folder for sockets, and the GPUs that it sees."""
    number, sockets, gpus = (folder / "started").read_text().split()
    return int(number), Path(sockets), gpus


def runs(folder: Path) -> bool:
    if not (folder / "started").exists():
        return False
    try:
        return psutil.Process(started(folder)[0]).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_starts_within_finds_the_daemon_in_a_folder_of_its_own(control, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    said: list[str] = []
    with mps.multi_process_service(say=said.append) as is_there:
        _, sockets, gpus = started(control)
        assert is_there and runs(control) and os.environ[mps.SOCKETS] == str(sockets)
        assert sockets.parent.stat().st_mode & 0o777 == 0o700
        assert gpus == "all" and os.environ["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert said == ["trials share GPUs through MPS"]
    assert not runs(control) and not sockets.parent.exists() and mps.SOCKETS not in os.environ


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_it_stops_however_the_launch_ends(control, kind):
    with pytest.raises(kind), mps.multi_process_service(say=print):
        assert runs(control)
        raise kind
    assert not runs(control) and mps.SOCKETS not in os.environ


def test_ctrl_c_while_it_starts_leaves_nothing_behind(control, monkeypatch, capsys):
    monkeypatch.setattr(mps, "CLIENT", ("sh", "-c", f"kill -INT {os.getpid()}"))
    with pytest.raises(KeyboardInterrupt), mps.multi_process_service(say=print):
        raise AssertionError("nothing is run")
    assert (control / "started").exists() and not runs(control)
    assert "MPS is starting; interrupted as soon as that is done" in capsys.readouterr().err


def test_where_it_does_not_start_the_study_goes_on_and_a_line_says_why(control):
    (control / "broken").touch()
    said: list[str] = []
    with mps.multi_process_service(say=said.append) as is_there:
        assert not is_there and mps.SOCKETS not in os.environ
    assert said == ["trials share GPUs without MPS: nvidia-cuda-mps-control: cannot start"]


def test_a_daemon_that_nobody_can_use_is_stopped_at_once(control, monkeypatch):
    monkeypatch.setattr(mps, "CLIENT", ("sh", "-c", "echo no context; exit 3"))
    said: list[str] = []
    with mps.multi_process_service(say=said.append) as is_there:
        assert not is_there and not runs(control) and mps.SOCKETS not in os.environ
    assert said == ["trials share GPUs without MPS: sh: no context"]


def test_a_daemon_that_stays_is_told(control):
    said: list[str] = []
    with mps.multi_process_service(say=said.append):
        (started(control)[1] / "nvidia-cuda-mps-control.pid").unlink()
    assert said[1:] == ["MPS is still there: nvidia-cuda-mps-control: exit status 1"]


@pytest.mark.skipif(local_gpus() > 0, reason="there is a GPU")
def test_without_a_driver_no_client_can_use_it():
    fault = mps._fault(mps.CLIENT, os.environ)
    assert fault is not None and "libcuda.so.1" in fault


@pytest.mark.parametrize(
    ("gpus", "per_trial", "is_of_use"),
    [
        (1, "auto", True),
        (2, 0.25, True),
        (0, "auto", False),
        (1, None, False),
        (1, 1.0, False),
        (1, 0.0, False),
        (2, 2.0, False),
    ],
)
def test_it_is_of_use_where_trials_share_a_gpu(control, gpus, per_trial, is_of_use):
    assert mps.is_of_use(gpus=gpus, per_trial=per_trial) == is_of_use


def test_a_daemon_that_is_given_is_left_alone_and_a_machine_without_the_program_too(control, monkeypatch):
    monkeypatch.setenv(mps.SOCKETS, "/somewhere")
    assert not mps.is_of_use(gpus=1, per_trial="auto")
    monkeypatch.delenv(mps.SOCKETS)
    (control / mps.PROGRAM).unlink()
    assert not mps.is_of_use(gpus=1, per_trial="auto")


@pytest.mark.parametrize(
    ("arguments", "is_there"),
    [(["--gpus-per-trial", "auto"], True), (["--gpus-per-trial", "1"], False), (["--address", "10.0.0.1:6379"], False)],
)
def test_a_launch_starts_it_before_ray_and_stops_it_after(control, monkeypatch, capsys, arguments, is_there):
    """Ray is not started: whether its processes would find the daemon is asked in its place."""
    found: list[bool] = []

    @contextmanager
    def ray_cluster(address):
        found.append(mps.SOCKETS in os.environ)
        yield
        found.append(runs(control))

    monkeypatch.setattr("study.cluster.ray_connection.ray_cluster", ray_cluster)
    monkeypatch.setattr(launch_trials, "local_gpus", lambda: 1)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with launch_trials._machines(build_parser().options(arguments)):
        pass
    assert found == ([] if "--address" in arguments else [is_there, is_there]) and not runs(control)
    assert capsys.readouterr().err == ("trials share GPUs through MPS\n" if is_there else "")
