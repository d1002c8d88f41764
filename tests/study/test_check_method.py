"""What `study.check_method` says of a method's mistakes. Run: pytest tests/study/test_check_method.py"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.edited_files import replace_in
from helpers.faulty_methods import (
    write_counting,
    write_counting_in_buffer,
    write_drawing,
    write_dying,
    write_leaky,
    write_method,
    write_reading,
    write_remembering,
)

from study import check_method
from study.contract import training_rules
from study.contract.model_rules import RULES
from study.contract.space_rules import describe
from trainables.files import method_files

pytestmark = pytest.mark.slow


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Harmless methods are checked in the process of the tests, and not trained: a new one takes seconds to start."""

    @contextmanager
    def run_here(function: Callable[..., None], *arguments: object) -> Iterator[SimpleNamespace]:
        received: list[object] = []
        function(received.append, *arguments)
        yield SimpleNamespace(receive=iter([*received, None]).__next__)

    monkeypatch.setattr(check_method, "new_process", run_here)
    monkeypatch.setattr(training_rules, "RULES", [])
    monkeypatch.setattr(training_rules.ShortTrials, "start", lambda trials: None)


@pytest.mark.long
def test_the_page_s_method_keeps_every_rule(methods: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_method.main([str(methods)]) == 0
    *rules, last = capsys.readouterr().out.splitlines()
    assert last == "every rule holds" and len(rules) > 20
    assert all(line.startswith("ok    entropy: ") for line in rules)
    assert any("exits as on all layers, with pooling=first" in rule for rule in rules)


@pytest.mark.usefixtures("in_this_process")
def test_an_error_in_build_is_a_fault_with_its_line(methods: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replace_in(methods / "entropy.py", "task.num_labels", "task.number_of_labels")
    assert check_method.main([str(methods)]) == 1
    (fault,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAULT")]
    lines = (methods / "entropy.py").read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if "number_of_labels" in line)
    assert fault.startswith(f"FAULT entropy: {methods}/entropy.py:{number}: AttributeError: ")
    told, _, rule = fault.partition("; broken rules: ")
    assert "number_of_labels'; did you mean num_labels?" in told and rule == describe(RULES[0])


RETURNED = {  # what stands there -> what is put there, the function that is named, and what is said
    "step": (
        "return Step(entropy",
        "return (entropy",
        "def step",
        "step of entropy_in_nats returned a tuple; allowed: a Step",
    ),
    "rule": (
        'name = "entropy_in_nats"',
        'name = "entropy"',
        "def build",
        "exit rule Entropy has the name of a built-in rule, entropy; allowed: another name",
    ),
    "build": ("return Mine(", "Mine(", "def build", "build returned None; allowed: an EarlyExitModel"),
    "loss": ("return loss", 'return loss["loss"]', "def loss", 'loss returned a Tensor; allowed: a dict with "loss"'),
    "name": ("return loss", 'return {"los": 1}', "def loss", "loss returned a dict with ['los']; allowed: a dict with"),
    "shape": ("return loss", 'return {"loss": loss["loss"][None]}', "def loss", "loss is a Tensor of shape (1,); all"),
    "nan": (
        "return loss",
        'return {"loss": loss["loss"] * float("nan")}',
        "def loss",
        "loss is nan on rte before any ",
    ),
}


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("part", RETURNED)
def test_what_cannot_be_used_is_one_fault(methods: Path, capsys: pytest.CaptureFixture[str], part: str) -> None:
    file, (old, new, function, told) = methods / "entropy.py", RETURNED[part]
    own = "class Mine(ClassifierPerLayer):\n        def loss(self, batch):\n            loss = super().loss(batch)\n"
    replace_in(file, "    rules = [", f"    {own}            return loss\n\n    rules = [")
    replace_in(file, "return ClassifierPerLayer(", "return Mine(")
    replace_in(file, old, new)
    assert check_method.main([str(methods)]) == 1
    (fault,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAULT")]
    lines = file.read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.strip().startswith(function))
    assert fault.startswith(f"FAULT entropy: {file}:{number}: {told}")


@pytest.mark.usefixtures("in_this_process")
def test_what_never_leaves_early_breaks_a_rule(methods: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replace_in(methods / "entropy.py", "entropy < self.threshold", "entropy < -1")
    assert check_method.main([str(methods)]) == 1
    (fault,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAULT")]
    assert re.match(
        rf"FAULT entropy: {methods}/entropy.py:\d+: all examples exit at the same layer under each of the 20", fault
    )
    assert fault.endswith("; broken rules: examples exit at different layers under at least one rule of sweep_rules")


# ---- what a trial's key does not cover

FAULTS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "counting": (
        write_counting,
        r"counting.py:\d+: a trial that continued in a new process got different weights \(mean loss of epoch 2: .*"
        r"register_buffer.*; broken rules: a trial that is saved after an epoch and continued in a new process gets ",
    ),
    "remembering": (
        write_remembering,
        r"remembering.py:\d+: two trials with the same seed got different weights \(mean loss of epoch 1: .*; broken "
        "rules: a trial that is repeated in the same process gets equal weights",
    ),
    "leaky": (
        write_leaky,
        r"leaky.py:\d+: the method replaces torch.nn.modules.normalization.LayerNorm.forward; allowed: changes to its "
        "own model only; broken rules: import, build and training change no function or setting outside ",
    ),
    "setting": (
        lambda folder: write_method(folder, "setting", build="torch.set_float32_matmul_precision('high')"),
        r"setting.py:\d+: the method sets torch.get_float32_matmul_precision\(\) to high; allowed: changes to its ",
    ),
    "dying": (write_dying, "dying.py: its process ended with status 3; broken rules: build returns a model, loss "),
    "exiting": (
        lambda folder: write_method(folder, "exiting", top="import sys", loss="sys.exit('no')"),
        r"exiting.py:\d+: SystemExit: no \(on rte with mini-albert\); broken rules: build returns a model, loss ",
    ),
    "killed": (
        lambda folder: write_method(folder, "killed", top="import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"),
        "killed.py: its process was killed by SIGKILL; broken rules: the method's two files exist and can be loaded",
    ),
    "asserting": (
        lambda folder: write_method(folder, "asserting", loss="assert not task.is_regression"),
        r"asserting.py:\d+: AssertionError \(on stsb with mini-albert\); broken rules: build returns a model, loss ",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_hidden_inputs_of_a_method_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    write, expected = FAULTS[name]
    assert check_method.main([str(write(tmp_path / "methods"))]) == 1
    faults = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAULT")]
    assert re.match(f"FAULT {name}: {tmp_path}/methods/{expected}", faults[0]), faults
    method_files.include(None)


@pytest.mark.long
@pytest.mark.parametrize(
    ("write", "files"), [(write_counting_in_buffer, ""), (write_drawing, ""), (write_reading, "factor.json")]
)
def test_global_generators_files_beside_a_method_and_buffers_are_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], write: Callable[[Path], Path], files: str
) -> None:
    assert check_method.main([str(write(tmp_path / "methods"))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "every rule holds"
    assert (f"these files belong to every method: {files}" in lines) is bool(files)
    method_files.include(None)
