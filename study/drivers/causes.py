"""The cause of a break-off: exceptions and lost processes as `Failure`s of the journal."""

from __future__ import annotations

import re
import socket
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from study.facts.events import TRACEBACK_CHARACTERS, Cause, Failure
from study.storage.addresses import masked
from study.storage.trial_places import NotShared
from trainables.runs.trial import OutOfMemory, TrainingError, Unavailable
from trainables.sources import Unusable

_OF_THE_MACHINE = (OSError, Unavailable, ImportError)  # disk, network, folders that are away, a broken installation
# Words in plain `RuntimeError`s and `AssertionError`s of torch when a GPU, a driver or an operating system fails.
_WORDS_OF_THE_MACHINE = re.compile(
    r"CUDA error|CUDA GPUs|CUDA initialization|CUDA unknown error|compiled with CUDA|cudaGetDeviceCount|NVIDIA driver"
    r"|cuDNN error|CUDNN_STATUS|CUBLAS_STATUS|NCCL|gloo|NVML|can't start new thread|unable to mmap"
)
# Words in errors of a GPU that the method causes, by an index that is out of range.
_WORDS_OF_THE_METHOD = re.compile(r"device-side assert|illegal memory access|CUBLAS_STATUS_INVALID_VALUE")
# Ray's message about an actor whose node was lost, perhaps before the actor started there.
_LOST_NODE = re.compile(r"its node has died\. Node Id: (?P<node>\w+)\s*(?P<reason>[^\n]*)")


def failure_of(error: Exception, *, node: str | None, module: str | None = None) -> Failure:
    """Make the failure for an exception that ended the work on a trial here, on this node of Ray's.

    `module`: of the method, or of the objective; the place of its exceptions is added to the line.
    """
    lines, cause = str(error).strip().splitlines() or [""], _find_cause(error)
    says_all = isinstance(error, (TrainingError, Unavailable, Unusable, NotShared))
    name = "" if says_all else f"{type(error).__name__}: "
    place = f" ({place_of(error, module)})" if module and cause == "method" and not says_all else ""
    return Failure(
        cause=cause,
        error=masked(f"{name}{lines[0]}{place}"),
        traceback=masked("".join(traceback.format_exception(error)))[-TRACEBACK_CHARACTERS:],
        host=socket.gethostname(),
        node=node,
    )


def place_of(error: Exception, module: str) -> str:
    """Name folder, file and line of the deepest frame in the module's own file, or else of the deepest one."""
    frame = (frames_in(module, error) or traceback.extract_tb(error.__traceback__))[-1]
    return f"{Path(frame.filename).parent.name}/{Path(frame.filename).name}, line {frame.lineno}"


def lost_process(
    error: str, *, is_preempted: bool, node: str | None, lost_nodes: Mapping[str, str] | None = None
) -> Failure:
    """Make the failure for a process that is gone, from Ray's message; a lost node is nobody's fault.

    `node` is the last that the process was heard of from; `lost_nodes` maps Ray's numbers of lost nodes to their hosts.
    """
    lost_nodes, match = lost_nodes or {}, _LOST_NODE.search(error)
    node = match["node"] if match else node
    host = lost_nodes.get(node or "")
    cause: Cause = "preemption" if is_preempted or match or host else "machine"
    line = f"its node is lost: {match['reason']}" if match else error.strip().splitlines()[-1]
    return Failure(cause=cause, error=masked(line), host=host, node=node)


def breaks_process(error: Exception) -> bool:
    """Check if nothing can work in this process after the exception: an error of a GPU stays."""
    return type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error)


def frames_in(module: str, error: Exception) -> list[traceback.FrameSummary]:
    """Select the frames of the module's own file from the traceback of an exception."""
    file = getattr(sys.modules.get(module), "__file__", None)  # one that could not be loaded is not there
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if file and Path(frame.filename) == Path(file)]


def _find_cause(error: Exception) -> Cause:
    if isinstance(error, (OutOfMemory, MemoryError)) or type(error).__name__ == "OutOfMemoryError":  # torch's
        return "memory"
    if isinstance(error, NotShared):
        return "node"
    if isinstance(error, TrainingError):
        return "method"
    is_by_words = _WORDS_OF_THE_MACHINE.search(str(error)) and not _WORDS_OF_THE_METHOD.search(str(error))
    return "machine" if isinstance(error, _OF_THE_MACHINE) or is_by_words else "method"
