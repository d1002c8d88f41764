"""What a trial is computed on, in words. Scores depend on it: kernels add in the order that suits the processor."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

CPU_FACTS = Path("/proc/cpuinfo")


def device_name(device: str | torch.device) -> str:
    """A GPU's name; or the model of this machine's CPU, as far as the system tells it, and which of its instructions
    PyTorch uses: `AMD EPYC (AVX2)`."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_cpu_model()} ({torch.backends.cpu.get_cpu_capability()})"


def device_and_threads(device: str | torch.device) -> str:
    """The device's name and, of a CPU, how many threads compute: `AMD EPYC (AVX2), 1 thread`."""
    number = torch.get_num_threads()
    threads = f", {number} thread{'s' * (number != 1)}"
    return device_name(device) + threads * (torch.device(device).type == "cpu")


def _cpu_model() -> str:
    lines = CPU_FACTS.read_text().splitlines() if CPU_FACTS.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
