"""Turns exceptions and lost processes into `Failure`s with a cause, such as the method or the machine."""

from __future__ import annotations

import re
import socket
import sys
import traceback
from collections.abc import Mapping
from importlib.abc import ExecutionLoader
from pathlib import Path

from study.facts.events import TRACEBACK_CHARACTERS, Cause, Failure
from study.storage.trial_places import NotShared
from study.terminal.text import masked
from trainables.configuration.error_text import take_first_line
from trainables.files.atomic_files import FULL, DiskFull, name_full_disk
from trainables.files.method_files import format_error, is_missing_beside
from trainables.files.sources import Unusable
from trainables.runs.trial import OutOfMemory, TrainingError, Unavailable

_OF_THE_MACHINE = (OSError, Unavailable, ImportError)  # disk, network, missing folders, a broken installation
# Torch raises plain `RuntimeError`s and `AssertionError`s with these words if a GPU, a driver or the system fails.
_WORDS_OF_THE_MACHINE = re.compile(
    r"CUDA error|CUDA GPUs|CUDA initialization|CUDA unknown error|compiled with CUDA|cudaGetDeviceCount|NVIDIA driver"
    r"|cuDNN error|CUDNN_STATUS|CUBLAS_STATUS|NCCL|gloo|NVML|can't start new thread|unable to mmap"
)
# GPU errors with these words come from the method, for example from an index out of range.
_WORDS_OF_THE_METHOD = re.compile(r"device-side assert|illegal memory access|CUBLAS_STATUS_INVALID_VALUE")
# Ray's message about an actor whose node was lost, perhaps before the actor started there.
_LOST_NODE = re.compile(r"its node has died\. Node Id: (?P<node>\w+)\s*(?P<reason>[^\n]*)")
# Ray's message about an actor that it cannot reach, perhaps because its node is lost.
_UNAVAILABLE = "The actor is temporarily unavailable"


def build_failure(error: Exception | SystemExit, *, node: str | None, module: str | None = None) -> Failure:
    """Build the `Failure` for an exception that interrupted a trial or a pretraining in this process.

    `node` is the id of this node. `module` is the module of the method or objective. If the method is the cause, the
    error names a file and a line.
    """
    error = name_full_disk(error) if isinstance(error, OSError) else error
    cause = _find_cause(error)
    says_all = isinstance(error, (TrainingError, Unavailable, Unusable, NotShared, DiskFull))
    if isinstance(error, SystemExit):
        line = f"its code called sys.exit({error.code!r})"
    else:
        line = take_first_line(error) if says_all else format_error(error)
    place = f" ({format_place(error, module)})" if module and cause == "method" and not says_all else ""
    return Failure(
        cause=cause,
        error=masked(f"{line}{place}"),
        traceback=masked("".join(traceback.format_exception(error)))[-TRACEBACK_CHARACTERS:],
        host=socket.gethostname(),
        node=node,
    )


def format_place(error: BaseException, module: str) -> str:
    """Format where an error arose (folder, file and line); a place in the file of `module` is preferred."""
    frame = (select_frames(module, error) or traceback.extract_tb(error.__traceback__))[-1]
    return f"{Path(frame.filename).parent.name}/{Path(frame.filename).name}, line {frame.lineno}"


def lost_process(
    error: str,
    *,
    is_preempted: bool,
    node: str | None,
    lost_nodes: Mapping[str, str] = {},
    is_crash: bool = False,
) -> Failure:
    """Build the `Failure` for a lost process.

    The cause is "preemption" if `is_preempted` is true or the node was lost, else "crash" if `is_crash` is true, else
    "machine". The process last reported from `node`. `lost_nodes` maps the Ray id of each lost node to the host of this
    node.
    """
    match = _LOST_NODE.search(error)
    node = match["node"] if match else node
    host = lost_nodes.get(node or "")
    is_preempted = bool(is_preempted or match or host)
    cause: Cause = "preemption" if is_preempted else "crash" if is_crash else "machine"
    line = f"its node is lost: {match['reason']}" if match else error.strip().splitlines()[-1]
    return Failure(cause=cause, error=masked(line), host=host, node=node)


def is_unavailable(error: str) -> bool:
    """Check whether Ray says that it cannot reach the actor, without knowing why."""
    return _UNAVAILABLE in error


def breaks_process(error: BaseException) -> bool:
    """Check whether the exception is a CUDA error, which makes the process unusable."""
    return type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error)


def is_of_the_method(error: BaseException) -> bool:
    """Check whether the exception says that the method broke its process, for example by an index out of range."""
    return bool(_WORDS_OF_THE_METHOD.search(str(error)))


def select_frames(module: str, error: BaseException) -> list[traceback.FrameSummary]:
    """Select the frames of an exception's traceback that are in the file of the module."""
    loader = getattr(getattr(sys.modules.get(module), "__spec__", None), "loader", None)  # None if the import failed
    file = loader.get_filename(module) if isinstance(loader, ExecutionLoader) else None
    return [frame for frame in traceback.extract_tb(error.__traceback__) if file and Path(frame.filename) == Path(file)]


def _find_cause(error: BaseException) -> Cause:
    if isinstance(error, (OutOfMemory, MemoryError)) or type(error).__name__ == "OutOfMemoryError":  # torch's class
        return "memory"
    if isinstance(error, NotShared):
        return "node"
    if isinstance(error, TrainingError) or is_missing_beside(error):
        return "method"
    if isinstance(error, OSError) and error.errno in FULL:
        return "disk"
    is_by_words = _WORDS_OF_THE_MACHINE.search(str(error)) and not is_of_the_method(error)
    return "machine" if isinstance(error, _OF_THE_MACHINE) or is_by_words else "method"
