"""NVIDIA's Multi-Process Service on this machine: kernels of trials that share a GPU run side by side, not in turns.

Its daemon has a folder of its own for sockets and logs, so one that others run is neither met nor stopped; processes
find it by `CUDA_MPS_PIPE_DIRECTORY`, and what a launch starts inherits that. A process that does not reach the daemon
runs as without it (NVIDIA's manual). No GPU has run this: the tests have a program in the daemon's place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from study.cluster.held_interrupts import interrupts_held

PROGRAM = "nvidia-cuda-mps-control"
SOCKETS, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
SECONDS = 60.0  # to start, and to stop
# Holds a GPU for a moment as a trial would, without loading PyTorch; exit status 0 if that is possible.
CLIENT = (
    sys.executable,
    "-c",
    "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); context = ctypes.c_void_p();"
    "raise SystemExit(bool(cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)))",
)


def is_of_use(*, gpus: int, per_trial: float | Literal["auto"] | None) -> bool:
    """Whether trials may share one of so many GPUs here, NVIDIA's program is there, and no daemon is given already."""
    is_shared = per_trial == "auto" or (per_trial is not None and 0 < per_trial < 1)
    return gpus > 0 and is_shared and shutil.which(PROGRAM) is not None and SOCKETS not in os.environ


@contextmanager
def multi_process_service(*, say: Callable[[str], None]) -> Iterator[bool]:
    """The service for all processes that are started within; whether it runs: where it does not start, or nobody can
    use it, all goes on without. Stopped at the end, however that comes about.

    A launcher that is killed, or ends at a second Ctrl-C while Ray or MPS stops, leaves it; nobody else meets it then.
    """
    with tempfile.TemporaryDirectory(prefix="study-mps-", ignore_cleanup_errors=True) as folder:  # 0700
        environment = _environment(Path(folder))
        fault: str | None = "not started"
        try:
            with interrupts_held("MPS is starting"):
                fault = _start(environment)
            say(f"trials share GPUs without MPS: {fault}" if fault else "trials share GPUs through MPS")
            if not fault:
                os.environ[SOCKETS] = environment[SOCKETS]
            yield not fault
        finally:
            os.environ.pop(SOCKETS, None)
            with interrupts_held("MPS is stopping"):
                if not fault and (left := _stop(environment)):
                    say(f"MPS is still there: {left}")


def _start(environment: Mapping[str, str]) -> str | None:
    """Why there is no service that can be used; None if there is."""
    fault = _fault([PROGRAM, "-d"], environment) or _fault(CLIENT, environment)
    if fault:
        _stop(environment)
    return fault


def _stop(environment: Mapping[str, str]) -> str | None:
    """Why the daemon may be there still; None if it is not."""
    return _fault([PROGRAM], environment, said="quit\n")


def _environment(folder: Path) -> Mapping[str, str]:
    """Without CUDA_VISIBLE_DEVICES: the daemon would number the GPUs anew for its clients, who number them too."""
    places = {SOCKETS: folder / "sockets", LOGS: folder / "logs"}
    for place in places.values():
        place.mkdir(mode=0o700)
    inherited = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return inherited | {name: str(place) for name, place in places.items()}


def _fault(command: Sequence[str], environment: Mapping[str, str], *, said: str = "") -> str | None:
    """What went wrong with a command that is told something, in a line; None if nothing did.

    Its output goes to a file: the end of a pipe would be the daemon's to close.
    """
    with tempfile.TemporaryFile("w+") as output:
        try:
            done = subprocess.run(
                command,
                input=said,
                text=True,
                env=environment,
                stdout=output,
                stderr=output,
                timeout=SECONDS,
                start_new_session=True,  # Ctrl-C is for the launcher
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        output.seek(0)
        lines = output.read().split("\n")
    if done.returncode == 0:
        return None
    last = next((line for line in reversed(lines) if line.strip()), f"exit status {done.returncode}")
    return f"{Path(command[0]).name}: {last.strip()}"
