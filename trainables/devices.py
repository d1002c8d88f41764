"""The device of a trial, and the numbers that matrices are multiplied in: `precision` of a configuration.

Parameters and optimiser states stay float32. The settings are the whole process's, and are read when a kernel starts:
a gradient is computed after its loss, so its computation sets them anew.

    float32         IEEE, also if cuDNN would multiply convolutions and recurrent layers in TF32 by default
    tensorfloat32   float32 whose factors a GPU rounds to 10 bits of mantissa; on a device without, float32
    bfloat16        by autocast; what autocast leaves in float32 is IEEE
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from trainables.configuration import Precision

# The settings of torch 2.9 and later; reading the older ones while these differ from them is an error.
_CUDNN: Any = torch.backends.cudnn  # torch's types do not know its `conv`
_OF_FLOAT32 = (torch.backends.cuda.matmul, _CUDNN.conv, _CUDNN.rnn)


@contextmanager
def computing_in(precision: Precision, device: torch.device) -> Iterator[None]:
    """Set the precision of losses and answers."""
    with gradients_in(precision), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        yield


@contextmanager
def gradients_in(precision: Precision) -> Iterator[None]:
    """Set the precision of a loss's gradients: they have the types of its own computation, outside of autocast."""
    before = [backend.fp32_precision for backend in _OF_FLOAT32]
    _set(["tf32" if precision == "tensorfloat32" else "ieee"] * len(before))
    try:
        yield
    finally:
        _set(before)


def check_precision(precision: Precision, device: torch.device) -> None:
    """Check that the device has the precision, so that no record names another than was computed in.

    Raises:
        ValueError: the device lacks it.
    """
    if precision == "tensorfloat32" and not has_tensorfloat32(device):
        raise ValueError(
            f"precision is tensorfloat32, which {device} does not have; allowed: a GPU that has it (NVIDIA's since "
            "Ampere), or float32, bfloat16"
        )


def has_tensorfloat32(device: torch.device) -> bool:
    """Tell whether the device multiplies in TF32."""
    if device.type != "cuda":
        return False
    with torch.cuda.device(device):
        return torch.cuda.is_tf32_supported()


def _set(values: list[str]) -> None:
    for backend, value in zip(_OF_FLOAT32, values, strict=True):
        backend.fp32_precision = value


CPU_FACTS = Path("/proc/cpuinfo")


def device_name(device: str | torch.device) -> str:
    """Name a GPU; or this machine's CPU, with the instructions that PyTorch uses of it: `AMD EPYC (AVX2)`."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    lines = CPU_FACTS.read_text().splitlines() if CPU_FACTS.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.processor() or platform.machine()
    return f"{model} ({torch.backends.cpu.get_cpu_capability()})"


def device_and_threads(device: str | torch.device) -> str:
    """Name the device and, if it is a CPU, count the threads that compute: `AMD EPYC (AVX2), 1 thread`."""
    number = torch.get_num_threads()
    threads = f", {number} thread{'s' * (number != 1)}"
    return device_name(device) + threads * (torch.device(device).type == "cpu")
