"""Rules for the training of a method: a trial depends only on its specification, its data and the method's files.

`study.check_method` and the tests check methods against `RULES`. Each rule compares short trials on a few rows of
mini-GLUE. One of them continues in a new process, where nothing of the method has run before.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from study.contract.model_rules import Subject
from study.contract.new_processes import NewProcess, ProcessEnded
from study.contract.space_rules import require
from trainables.configuration.schema import to_plain
from trainables.files import method_files
from trainables.files.method_files import IncludedMethods, include
from trainables.files.sources import cache_folder
from trainables.runs.training import TrainingRun
from trainables.runs.trial import TrialSpec
from trainables.runs.trial_files import read_state

ROWS = 16  # for training, and for evaluation
SMALL = {"epochs": 2, "stop_after": 0, "batch_size": 8, "num_hidden_layers": 2}
SEED, OTHER_SEED = 1, 2
MOST_NAMED = 3  # changes in a message
# Packages whose functions a method may use but not replace.
GUARDED = ("torch", "transformers", "trainables", "search_spaces", "study", "numpy", "random", "math")


@dataclass(frozen=True)
class Trained:
    """The results of a trial that must be equal if the trial is repeated."""

    weights: str  # digest
    losses: tuple[float, ...]  # mean of each epoch

    def describe_difference(self, other: Trained) -> str:
        """Describe the first difference between the mean losses of two trials."""
        pairs = enumerate(zip(self.losses, other.losses, strict=True), 1)
        differing = ((epoch, *losses) for epoch, losses in pairs if losses[0] != losses[1])
        epoch, one, another = next(differing, (0, 0.0, 0.0))
        return f" (mean loss of epoch {epoch}: {one:.6g} and {another:.6g})" if epoch else ""


@dataclass(frozen=True)
class Continued:
    """What a new process has found while it continued a trial of a method."""

    trained: Trained | None
    error: str = ""  # why the trial could not continue
    changes: tuple[str, ...] = ()  # functions and settings outside of the method's modules that have changed
    is_other_method_equal: bool = True  # whether another method's trial, before and after, gave equal weights


@dataclass
class ShortTrials:
    """Short trials of a method. The first one is saved after an epoch, and continued in a new process too."""

    subject: Subject
    folder: Path  # for the saved state
    _process: NewProcess | None = field(default=None, init=False)

    def start(self) -> None:
        """Train the first trial, and start the process that continues it."""
        self.first  # noqa: B018

    @cached_property
    def first(self) -> Trained:
        """The results of the first trial."""
        run = self.begin(SEED)
        run.run_epoch()
        run.save(self.folder)
        self._process = NewProcess(continue_trial, self.folder, method_files.included(), run.spec.method)
        return finish(run)

    @cached_property
    def continued(self) -> Continued:
        """What the new process has found."""
        assert self.first
        assert self._process is not None
        try:
            found: Continued = self._process.receive()
        except ProcessEnded as ended:
            found = Continued(None, f"the new process {ended}")
        return found

    def begin(self, seed: int) -> TrainingRun:
        """Prepare a trial."""
        return begin(self.subject, seed)

    def close(self) -> None:
        """End the process, if it is still running."""
        if self._process:
            self._process.end()


def begin(subject: Subject, seed: int) -> TrainingRun:
    """Prepare a short trial of the subject's method."""
    task, backbone = subject.tasks[0], subject.backbone
    config = to_plain(subject.config(task, **SMALL))
    spec = TrialSpec(method=subject.method, task=task, config=config, seed=seed, data="mini", backbone=backbone)
    return TrainingRun(spec, cache=cache_folder(), limit=ROWS)


def finish(run: TrainingRun) -> Trained:
    """Run the epochs of a trial that are left, and return the results."""
    while not run.finished:
        run.run_epoch()
    digest = hashlib.sha256()
    with TemporaryDirectory() as folder:
        run.save(Path(folder))
        weights: dict[str, torch.Tensor] = read_state(Path(folder))["model"]
    for name, weight in sorted(weights.items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(weight.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return Trained(digest.hexdigest(), tuple(row.train_loss for row in run.history))


def continue_trial(
    send: Callable[[Continued], None], folder: Path, included: IncludedMethods | None, method: str
) -> None:
    """Continue a saved trial in this new process, and send what was found."""
    torch.set_num_threads(1)
    include(included)
    before = train_other_method()
    functions, settings = list_functions(), read_torch_settings()
    try:
        trained = finish(TrainingRun.resume(folder, cache=cache_folder(), limit=ROWS))
    except Exception as error:  # noqa: BLE001  # a user's method may raise anything
        send(Continued(None, method_files.describe_error(error, method)))
        return
    now = list_functions()
    changes = [f"replaces {name}" for name, function in functions.items() if now.get(name) is not function]
    changes += [f"sets {name} to {value}" for name, value in read_torch_settings().items() if value != settings[name]]
    send(Continued(trained, changes=tuple(changes), is_other_method_equal=train_other_method() == before))


def train_other_method() -> Trained:
    """Train a short trial of a built-in method."""
    return finish(begin(Subject("albert", "mini-albert"), SEED))


def list_functions() -> dict[str, object]:
    """Map the dotted names of all functions in the imported modules of `GUARDED` to the functions."""
    return {name: value for name, value in _list_members() if callable(value) or _is_a(value, _DESCRIPTORS)}


_DESCRIPTORS = (staticmethod, classmethod, property)


def _list_members() -> Iterator[tuple[str, object]]:
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] not in GUARDED or not inspect.ismodule(module):
            continue
        for name, value in list(vars(module).items()):
            if not _is_a(value, type):
                yield f"{module_name}.{name}", value
            elif getattr(value, "__module__", None) == module_name:
                yield from ((f"{module_name}.{name}.{part}", member) for part, member in list(vars(value).items()))


def _is_a(value: object, kinds: type | tuple[type, ...]) -> bool:
    """Check the type of a value, without its `__class__`: asking some deprecated objects for it prints a warning."""
    return issubclass(type(value), kinds)


def read_torch_settings() -> dict[str, object]:
    """Read PyTorch's global settings that can change numbers."""
    backends = torch.backends
    return {
        "torch.get_default_dtype()": torch.get_default_dtype(),
        "torch.get_num_threads()": torch.get_num_threads(),
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
        "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
        "torch.backends.cudnn.benchmark": backends.cudnn.benchmark,
        "torch.backends.cudnn.deterministic": backends.cudnn.deterministic,
        "torch.backends.mkldnn.enabled": backends.mkldnn.enabled,
    }


def repeated_trial_gets_equal_weights(trials: ShortTrials) -> None:
    """Check that a trial that is repeated in the same process gets equal weights."""
    again = finish(trials.begin(SEED))
    require(
        again.weights == trials.first.weights,
        f"two trials with the same seed got different weights{trials.first.describe_difference(again)}; allowed: equal "
        "weights, so keep no state outside of the model, and draw only from the global generators",
    )


def other_trial_changes_nothing(trials: ShortTrials) -> None:
    """Check that a trial gets equal weights if another trial runs between two of its epochs."""
    run = trials.begin(SEED)
    run.run_epoch()
    finish(trials.begin(OTHER_SEED))
    beside = finish(run)
    require(
        beside.weights == trials.first.weights,
        f"another trial between two epochs changed the weights{trials.first.describe_difference(beside)}; allowed: "
        "equal weights, so keep no state outside of the model",
    )


def continued_trial_gets_equal_weights(trials: ShortTrials) -> None:
    """Check that a trial that is saved after an epoch and continued in a new process gets equal weights."""
    continued = trials.continued
    require(continued.trained is not None, f"a saved trial cannot continue: {continued.error}")
    assert continued.trained is not None
    require(
        continued.trained.weights == trials.first.weights,
        "a trial that continued in a new process got different weights"
        f"{trials.first.describe_difference(continued.trained)}; allowed: equal weights, so keep everything that "
        "training needs in parameters and buffers (register_buffer), which are saved",
    )


def nothing_outside_is_changed(trials: ShortTrials) -> None:
    """Check that import, build and training change no function or setting outside of the method's own modules."""
    found = trials.continued
    listed = ", ".join(found.changes[:MOST_NAMED]) + f" and {len(found.changes) - MOST_NAMED} others" * (
        len(found.changes) > MOST_NAMED
    )
    require(not found.changes, f"the method {listed}; allowed: changes to its own model only")
    require(found.is_other_method_equal, "after the method has trained, albert gets other weights than before")


RULES: tuple[Callable[[ShortTrials], None], ...] = (
    repeated_trial_gets_equal_weights,
    other_trial_changes_nothing,
    continued_trial_gets_equal_weights,
    nothing_outside_is_changed,
)
