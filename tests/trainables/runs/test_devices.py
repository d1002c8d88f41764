"""What a trial is computed on, and in which numbers: pytest tests/trainables/runs/test_devices.py"""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from helpers.corpora import pretraining_spec
from helpers.trials import spec_of

from trainables.models import devices
from trainables.models.devices import (
    backward_precision,
    check_precision,
    forward_precision,
    has_tensorfloat32,
    list_precisions,
)
from trainables.pretraining import run as pretraining_run
from trainables.pretraining.run import PretrainingRun
from trainables.runs import training
from trainables.runs.evaluation import run_to_end
from trainables.runs.training import TrainingRun
from trainables.runs.trial import Unavailable

CPU = torch.device("cpu")
SET = {"float32": ["ieee"] * 3, "tensorfloat32": ["tf32"] * 3, "bfloat16": ["ieee"] * 3, "float16": ["ieee"] * 3}
TENSORFLOAT32 = {"precision": "tensorfloat32"}
REFUSED = r"^precision is tensorfloat32, which cpu does not support; allowed: float32, bfloat16 or float16, or a GPU w"


def settings_now() -> list[str]:
    """Of float32 matrix products, convolutions and recurrent layers."""
    backends = torch.backends
    return [part.fp32_precision for part in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)]


@pytest.fixture
def believed(monkeypatch):
    """Runs on this CPU that believe to have TF32."""
    for module in (training, pretraining_run):
        monkeypatch.setattr(module, "check_precision", lambda *asked: None)


@pytest.mark.parametrize("name", SET)
def test_a_computation_has_its_precision_and_puts_back_what_was(name):
    before = settings_now()
    with pytest.raises(KeyError), forward_precision(name, CPU):
        assert settings_now() == SET[name]
        assert torch.is_autocast_enabled("cpu") == (name in ("bfloat16", "float16"))
        assert torch.is_autocast_enabled("cpu") is False or torch.get_autocast_dtype("cpu") == getattr(torch, name)
        raise KeyError
    assert settings_now() == before != SET[name]


def test_gradients_are_outside_of_autocast_and_in_tensorfloat32():
    with backward_precision("tensorfloat32"):
        assert settings_now() == ["tf32"] * 3
    with backward_precision("bfloat16"):
        assert not torch.is_autocast_enabled("cpu")


def test_one_computation_inside_another_goes_back_to_that():
    with backward_precision("tensorfloat32"):
        with forward_precision("float32", CPU):
            assert settings_now() == ["ieee"] * 3
        assert settings_now() == ["tf32"] * 3


@pytest.mark.parametrize("name", SET)
def test_gradients_of_a_trial_are_computed_in_its_precision(name, believed, cache):
    run = TrainingRun(spec_of(config={"precision": name, "epochs": 1}), cache=cache)
    seen, before = [], settings_now()
    [*run._model.parameters()][-1].register_hook(lambda gradient: seen.append(settings_now()))
    run_to_end(run.train_on(run._draw_batches(1)[:2], 1))
    assert seen == [SET[name]] * 2 and settings_now() == before


@pytest.mark.parametrize("name", SET)
def test_gradients_of_a_pretraining_are_computed_in_its_precision(name, believed, corpus, cache):
    run = PretrainingRun(pretraining_spec("mlm", corpus, precision=name), cache=cache)
    seen, before = [], settings_now()
    [*run._model.parameters()][-1].register_hook(lambda gradient: seen.append(settings_now()))
    run._step(0)
    assert seen == [SET[name]] * len(seen) != [] and settings_now() == before


@pytest.mark.slow
def test_where_a_device_has_none_tensorfloat32_is_float32(believed, cache):
    specs = [spec_of("palbert", config={"precision": name, "epochs": 1}) for name in ("float32", "tensorfloat32")]
    runs = [TrainingRun(spec, cache=cache) for spec in specs]
    rows = [run.run_epoch() for run in runs]
    assert rows[0].train_loss == rows[1].train_loss and rows[0].metrics == rows[1].metrics


def test_a_trial_does_not_claim_what_its_device_does_not_have(corpus, cache):
    with pytest.raises(Unavailable, match=REFUSED):
        TrainingRun(spec_of(config=TENSORFLOAT32), cache=cache)
    with pytest.raises(Unavailable, match=REFUSED):
        PretrainingRun(pretraining_spec("mlm", corpus, **TENSORFLOAT32), cache=cache)
    check_precision("float32", CPU)
    check_precision("bfloat16", CPU)
    check_precision("float16", CPU)


@pytest.mark.parametrize("has_all", [True, False])
def test_only_tensorfloat32_depends_on_the_device(has_all, monkeypatch):
    monkeypatch.setattr(devices, "has_tensorfloat32", lambda device: has_all)
    assert list_precisions(CPU) == ["float32", *["tensorfloat32"] * has_all, "bfloat16", "float16"]


@pytest.mark.parametrize("answer", [True, False])
def test_a_gpu_is_asked_whether_it_has_tensorfloat32(answer, monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: asked.append(device) or nullcontext())
    monkeypatch.setattr(torch.cuda, "is_tf32_supported", lambda: answer)
    assert has_tensorfloat32(torch.device("cuda:1")) is answer
    assert asked == [torch.device("cuda:1")] and not has_tensorfloat32(CPU)


# Names.


@pytest.fixture
def cpu_facts(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "CPU_FACTS", tmp_path / "cpuinfo")
    return tmp_path / "cpuinfo"


def test_cpu_name_includes_used_instructions(cpu_facts, monkeypatch):
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
