"""Names of devices, and the settings for the precision of matrix products.

The configuration field `precision` has one of four values:

    float32         IEEE float32, also in cuDNN's convolutions and recurrent layers (PyTorch's default there is TF32)
    tensorfloat32   TF32: the factors of a product are rounded to 10-bit mantissas; only on GPUs that support TF32
    bfloat16        autocast to bfloat16; operations that remain in float32 use IEEE float32, on a CPU also attention
    float16         autocast to float16, with a scaled loss (runs/optimiser.py); for GPUs without bfloat16

Parameters and optimiser states are always float32. PyTorch's precision settings are global, so they are set for the
forward pass and again for the backward pass.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, get_args

import torch

from trainables.configuration import Precision

# The precision settings of torch 2.9 and later. Reading an older setting that disagrees with them raises an error.
_CUDNN: Any = torch.backends.cudnn  # missing from torch's type hints
_OF_FLOAT32 = (torch.backends.cuda.matmul, _CUDNN.conv, _CUDNN.rnn)
_AUTOCAST: dict[Precision, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@contextmanager
def forward_precision(precision: Precision, device: torch.device) -> Iterator[None]:
    """Set the precision of the forward pass."""
    kind = _AUTOCAST.get(precision)
    with backward_precision(precision), torch.autocast(device.type, kind, enabled=kind is not None):
        yield


@contextmanager
def backward_precision(precision: Precision) -> Iterator[None]:
    """Set the precision of the backward pass.

    The backward pass needs no autocast, because it uses the same data types as the forward pass.
    """
    before = [backend.fp32_precision for backend in _OF_FLOAT32]
    _set(["tf32" if precision == "tensorfloat32" else "ieee"] * len(before))
    try:
        yield
    finally:
        _set(before)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context that computes in the tensors' own precision, also within autocast.

    Entering `torch.autocast` costs as much as several small operations, so it is left out where it changes nothing.
    """
    enabled = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if enabled else nullcontext()


def check_precision(precision: Precision, device: torch.device) -> None:
    """Check that the device supports the precision.

    Raises:
        ValueError: if the device does not support the precision.
    """
    if precision not in list_precisions(device):
        raise ValueError(
            f"precision is {precision}, which {device} does not support; allowed: float32, bfloat16 or float16, or a "
            "GPU with TF32 (NVIDIA Ampere or later)"
        )


def list_precisions(device: torch.device) -> list[Precision]:
    """List the precisions that the device supports, float32 first."""
    return [name for name in get_args(Precision) if name != "tensorfloat32" or has_tensorfloat32(device)]


def has_tensorfloat32(device: torch.device) -> bool:
    """Check whether the device supports TF32."""
    if device.type != "cuda":
        return False
    with torch.cuda.device(device):
        return torch.cuda.is_tf32_supported()


def _set(values: list[str]) -> None:
    for backend, value in zip(_OF_FLOAT32, values, strict=True):
        backend.fp32_precision = value


CPU_FACTS = Path("/proc/cpuinfo")


def device_name(device: str | torch.device) -> str:
    """Return a device's name; for a CPU, add the instruction set that PyTorch uses, as in `AMD EPYC (AVX2)`."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    lines = CPU_FACTS.read_text().splitlines() if CPU_FACTS.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.processor() or platform.machine()
    return f"{model} ({torch.backends.cpu.get_cpu_capability()})"


def device_and_threads(device: str | torch.device) -> str:
    """Return a device's name; for a CPU, add PyTorch's number of threads, as in `AMD EPYC (AVX2), 1 thread`."""
    number = torch.get_num_threads()
    threads = f", {number} thread{'s' * (number != 1)}"
    return device_name(device) + threads * (torch.device(device).type == "cpu")
