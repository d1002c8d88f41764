"""A worker: it runs trials, one after another, and keeps their states in the study's storage.

A worker that continues a trial resumes from the stored state. It first reports the rows of earlier epochs again.
"""

from __future__ import annotations

import functools
import gc
import itertools
import json
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

import trainables
from study.drivers.causes import breaks_process, build_failure, format_place, select_frames
from study.drivers.messages import AssignedTrial, Assignment, Message, SmokeReport, Steps
from study.facts.events import Failure, Report, add_checksum, remove_checksum, utc_now
from study.facts.provenance import attest, list_contradictions, read_loaded_provenance
from study.storage.launch_marks import check_marks
from study.storage.models import local_model
from study.storage.trial_places import TrialPlace, open_place
from study.terminal.text import to_second
from trainables.files.atomic_files import write_bytes
from trainables.files.method_files import include
from trainables.files.sources import cache_folder
from trainables.runs.trial import Outcome, TrainingError, TrialSpec, UnreadableState, reading_inputs

if TYPE_CHECKING:
    from trainables.runs.training import TrainingRun

PAUSE_SECONDS = 1.0  # training time between two reports; the driver can stop the trial at each report


class Worker:
    """A worker in a Ray actor or a local process; it runs one assignment after another."""

    def __init__(self, write_place: Callable[[str], None] = lambda words: None) -> None:
        """Begin without an assignment. `write_place` is called with what the worker is about to do."""
        self._write_place = write_place
        self._trial: Generator[Message, None, None] | None = None
        self._smoke: Assignment | None = None  # smoke steps that have not run yet
        self._node: str | None = None

    def begin(self, assignment: Assignment, *, node: str | None) -> None:
        """Take an assignment; call `release` before the next one. `node` is the id of this node in the journal."""
        self._node = node
        include(assignment.included)
        _set_threads(assignment.threads)
        if assignment.trial is None:
            self._smoke = assignment
        else:
            self._trial = run_trial(
                assignment.trial,
                device=assignment.device,
                gpus=assignment.gpus,
                node=node,
                write_place=self._write_place,
            )

    def step(self) -> Message:
        """Run an epoch of the trial, or part of a long epoch; without a trial, run the smoke steps."""
        if self._trial:
            return replace(next(self._trial, Message()), node=self._node)
        smoke, self._smoke = self._smoke, None
        report = run_smoke_steps(smoke.smoke, device=smoke.device, node=self._node) if smoke else None
        return Message(node=self._node, smoke=report)

    def release(self) -> None:
        """Free the memory of the trial, and release its folder."""
        has_trained = self._trial is not None
        if self._trial:
            self._trial.close()
        self._trial = self._smoke = None
        self._write_place("")
        gc.collect()
        if has_trained and not gc.get_freeze_count():
            gc.freeze()  # only once; later collections skip the half a million objects of modules
        if torch := sys.modules.get("torch"):
            torch.cuda.empty_cache()


def _set_threads(number: int) -> None:
    """Set the number of torch's threads; do nothing if torch cannot be imported."""
    try:
        import torch
    except (ImportError, OSError):
        return
    torch.set_num_threads(number)


def run_smoke_steps(specs: Mapping[str, TrialSpec], *, device: str, node: str | None) -> SmokeReport:
    """Try one training step of each arm, and report the failures that methods caused.

    After a CUDA error, which makes the process unusable, the other arms are not tried.
    """
    failures = dict[str, Failure]()
    for arm, spec in specs.items():
        print(f"{to_second(utc_now())} {arm}: its first training step", flush=True)
        failure, is_broken = _try_step(spec, device, node)
        if failure:
            failures[arm] = failure
        if is_broken:
            break
    code = read_loaded_provenance()
    return SmokeReport(failures=failures, code_digest=code.code_digest, versions=code.versions)


def _try_step(spec: TrialSpec, device: str, node: str | None) -> tuple[Failure | None, bool]:
    """Try one training step; return a failure that the method caused, or None, and whether the process is unusable."""
    try:
        from trainables.runs.training import TrainingRun

        TrainingRun(spec, device=device, cache=cache_folder()).try_out()
    except TrainingError:  # depends on the configuration, so the trials report it
        return None, False
    except (Exception, SystemExit) as error:  # noqa: BLE001  # it becomes a failure
        module, is_broken = trainables.build_module_name(spec.method), breaks_process(error)
        failure = build_failure(error, node=node, module=module)
        if failure.cause == "method":
            return failure, is_broken
        if isinstance(error, ImportError) and select_frames(module, error):
            failure = replace(failure, cause="method", error=f"{failure.error} ({format_place(error, module)})")
            return failure, is_broken
        return None, is_broken
    return None, False


def run_trial(
    assigned: AssignedTrial,
    *,
    device: str,
    gpus: float,
    node: str | None = None,
    write_place: Callable[[str], None] = lambda words: None,
) -> Generator[Message, None, None]:
    """Run a trial, and yield a message after each epoch. Within an epoch, yield the progress every `PAUSE_SECONDS`.

    A resumed trial first yields the messages of its earlier epochs again. An exception becomes a failure in the last
    message. Only CUDA errors are raised, because they make the process unusable.

    The trial's folder stays locked until the generator is closed.

    Args:
        assigned: the trial.
        device: "cpu" or "cuda".
        gpus: the number or fraction of GPUs that the trial holds.
        node: the id of this node.
        write_place: called with what the trial is about to do.
    """
    spec, host = assigned.spec, socket.gethostname()
    make_message = functools.partial(Message, key=assigned.key, host=host)
    restarted = None  # why the saved state was not used, until reported
    clock: Clock | None = None
    print(f"{to_second(utc_now())} {spec.method}/{spec.task}, seed {spec.seed}: trial {assigned.key}", flush=True)
    write_place("while it loaded data and model")
    try:
        from trainables.models.devices import device_and_threads
        from trainables.runs.training import TrainingRun
        from trainables.runs.trial_files import has_state

        check_marks(assigned.marks)
        place = open_place(assigned.place)
        with place.work() as folder:
            clock = Clock(folder / "clock.json", gpus=gpus, recorded=assigned.seconds)
            try:
                run = TrainingRun.resume(
                    folder, spec=spec, device=device, cache=cache_folder(), reported=assigned.epochs
                )
            except UnreadableState as error:
                # Nothing is deleted here: if this actor belongs to a killed launcher, the trial may have ended in a
                # later launch, and these files are the trial's result. The first saved epoch replaces the files.
                if has_state(folder) or assigned.epochs:
                    restarted = str(error)
                with ExitStack() as stack:
                    with reading_inputs():
                        start = spec.start and str(stack.enter_context(local_model(spec.start, assigned.start_digest)))
                    run = TrainingRun(replace(spec, start=start), device=device, cache=cache_folder())
            attested = attest(run.content(), method=spec.method)
            if list_contradictions(attested, assigned.expected):
                yield make_message(refused=attested)
                return
            run.spec = spec  # the state must have the `start` that all nodes see, not the local copy
            known = len(run.history)
            for epoch in itertools.count(1):
                if epoch > known:
                    yield from _train_epoch(run, assigned.key, epoch, write_place)
                    write_place(f"while it saved epoch {epoch}")
                    place.check_held(folder)
                    run.save(folder)
                    clock.save()
                    place.send_state(folder, epoch=epoch)
                row = run.history[epoch - 1]
                if row.finished:
                    write_place("while it computed the result")
                outcome = _compute_outcome(run, place, folder, assigned.predictions) if row.finished else None
                wall_seconds, gpu_seconds = clock.read()
                report = Report(
                    row=row,
                    outcome=outcome,
                    wall_seconds=wall_seconds,
                    gpu_seconds=gpu_seconds,
                    host=host,
                    device=device_and_threads(device),
                    attested=attested if epoch <= known + 1 else None,
                )
                yield make_message(report=report, restarted=restarted)
                if row.finished:
                    return
                restarted = None
    except (Exception, SystemExit) as error:  # it becomes a failure in the journal
        if breaks_process(error):
            raise
        failure = build_failure(error, node=node, module=trainables.build_module_name(spec.method))
    yield make_message(failure=failure, restarted=restarted, seconds=clock.read() if clock else assigned.seconds)


def _train_epoch(run: TrainingRun, key: str, epoch: int, write_place: Callable[[str], None]) -> Iterator[Message]:
    """Train for one epoch, and yield the progress every `PAUSE_SECONDS`."""
    began = resumed = time.monotonic()
    write_place(f"in step 1 of epoch {epoch}")
    for _ in run.epoch_in_steps():
        next_step = run.steps_done + 1
        is_training = next_step <= run.steps_per_epoch
        write_place(f"in step {next_step} of epoch {epoch}" if is_training else f"in the evaluation of epoch {epoch}")
        now = time.monotonic()
        if now - resumed >= PAUSE_SECONDS:
            yield Message(steps=Steps(key=key, done=run.steps_done, of=run.steps_per_epoch, seconds=now - began))
            resumed = time.monotonic()


def _compute_outcome(run: TrainingRun, place: TrialPlace, folder: Path, predictions: str | None) -> Outcome:
    """Return the run's outcome. If `predictions` is given, store predictions and model, and count FLOPs."""
    if predictions is None:
        return replace(run.outcome(), model=None, model_digest=None)
    target = folder / predictions
    place.check_held(target.parent)
    outcome = run.outcome(target)
    assert outcome.model is not None
    return replace(outcome, model=place.send_outcome(Path(outcome.model)), text_flops=run.count_flops())


class Clock:
    """Measures the wall-clock seconds and the GPU seconds (seconds times GPUs) of all processes of a trial."""

    def __init__(self, path: Path, *, gpus: float, recorded: tuple[float, float] = (0.0, 0.0)):
        """Continue from the times in the file, or from those recorded so far if these are longer.

        The recorded times are longer if an attempt failed after it saved the file, and if the file is missing or
        damaged. `gpus` is the trial's number or fraction of GPUs.
        """
        self._path, self._gpus = path, gpus
        try:
            before = json.loads(remove_checksum(path.read_bytes(), where=str(path)))
            saved = float(before["wall_seconds"]), float(before["gpu_seconds"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):  # a new trial, or a damaged file
            saved = 0.0, 0.0
        self._before = max(saved[0], recorded[0]), max(saved[1], recorded[1])
        self._started = time.monotonic()

    def read(self) -> tuple[float, float]:
        """Return wall-clock seconds and GPU seconds so far."""
        seconds = time.monotonic() - self._started
        return self._before[0] + seconds, self._before[1] + seconds * self._gpus

    def save(self) -> None:
        """Write the wall-clock seconds and the GPU seconds to the file."""
        wall_seconds, gpu_seconds = self.read()
        seconds = json.dumps({"wall_seconds": wall_seconds, "gpu_seconds": gpu_seconds})
        write_bytes(self._path, add_checksum(seconds.encode()))
