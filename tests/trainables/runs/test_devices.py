"""What a trial is computed on, in words: pytest tests/trainables/runs/test_devices.py"""

import pytest
import torch

from trainables import devices


@pytest.fixture
def cpu_facts(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "CPU_FACTS", tmp_path / "cpuinfo")
    return tmp_path / "cpuinfo"


def test_a_cpu_is_named_as_the_system_does_with_the_instructions_that_are_used_of_it(cpu_facts, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    cpu_facts.write_text("processor\t: 0\nmodel name\t: A Processor @ 2.5GHz\nprocessor\t: 1\nmodel name\t: Another\n")
    assert devices.device_name("cpu") == "A Processor @ 2.5GHz (AVX2)"


def test_a_cpu_has_a_name_where_the_system_tells_no_model(cpu_facts):
    name, capability = devices.device_name(torch.device("cpu")).rsplit(" ", 1)
    assert name and capability == f"({torch.backends.cpu.get_cpu_capability()})"


@pytest.mark.parametrize(("number", "words"), [(1, "1 thread"), (2, "2 threads")])
def test_the_threads_that_compute_are_counted(number, words, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: number)
    assert devices.device_and_threads("cpu") == f"{devices.device_name('cpu')}, {words}"
