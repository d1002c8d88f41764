"""A worker: it runs trials, one after another, and keeps their states in the study's storage.

A worker that continues a trial resumes from the stored state. It first reports the rows of earlier epochs again.
"""

from __future__ import annotations

import gc
import json
import socket
import sys
import time
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

import trainables
from study.drivers.causes import breaks_process, build_failure, format_place, select_frames
from study.drivers.messages import AssignedTrial, Assignment, Message, News, SmokeReport, Steps
from study.facts.attestation import Attestation, attest, list_contradictions, provenance
from study.facts.events import Failure, Report
from study.storage.trial_places import check_marks, local_model, open_place
from trainables.atomic_files import write_json
from trainables.method_files import include
from trainables.runs.trial import EpochRow, Outcome, TrainingError, TrialSpec, UnreadableState, reading_inputs

PAUSE_SECONDS = 1.0  # training time between two reports; the driver can stop the trial at each report


class Worker:
    """A worker in a Ray actor or a local process; it runs one assignment after another."""

    def __init__(self) -> None:
        """Begin without an assignment."""
        self._trial: RunningTrial | None = None
        self._smoke: Assignment | None = None  # smoke steps that have not run yet
        self._node: str | None = None

    def begin(self, assignment: Assignment, *, node: str | None) -> None:
        """Take the first assignment, or the next one after `release`; `node` is the id of this node in the journal."""
        self._node = node
        include(assignment.included)
        _set_threads(assignment.threads)
        if assignment.trial is None:
            self._smoke = assignment
        else:
            self._trial = RunningTrial(assignment.trial, device=assignment.device, gpus=assignment.gpus, node=node)

    def step(self) -> Message:
        """Run an epoch of the trial, or part of a long epoch; without a trial, run the smoke steps."""
        news = self._trial.go_on() if self._trial and not self._trial.is_over else None
        if isinstance(news, Steps):
            return Message(steps=news, node=self._node)
        smoke, self._smoke = self._smoke, None
        report = run_smoke_steps(smoke.smoke, device=smoke.device, node=self._node) if smoke else None
        return Message(news=news, node=self._node, smoke=report)

    def release(self) -> None:
        """Free the memory of the trial, and release its folder."""
        has_trained = self._trial is not None
        if self._trial:
            self._trial.release()
        self._trial = self._smoke = None
        gc.collect()
        if has_trained and not gc.get_freeze_count():
            gc.freeze()  # only once; later collections skip the half a million objects of modules
        if torch := sys.modules.get("torch"):
            torch.cuda.empty_cache()


def _set_threads(number: int) -> None:
    """Set the number of torch's threads; if torch is missing, do nothing, because each trial reports the error."""
    try:
        import torch
    except (ImportError, OSError):
        return
    torch.set_num_threads(number)


def run_smoke_steps(specs: Mapping[str, TrialSpec], *, device: str, node: str | None) -> SmokeReport:
    """Try one training step of each arm, and report the arms whose method failed."""
    failures = {arm: failure for arm, spec in specs.items() if (failure := _try_step(spec, device, node))}
    code = provenance()
    return SmokeReport(failures=failures, code_digest=code.code_digest, versions=code.versions)


def _try_step(spec: TrialSpec, device: str, node: str | None) -> Failure | None:
    """Try one training step. Return the failure if the method caused a failure, or else None."""
    try:
        from trainables.runs.training import TrainingRun
        from trainables.sources import cache_folder

        TrainingRun(spec, device=device, cache=cache_folder()).try_out()
    except TrainingError:  # depends on the configuration, so the trials report it
        return None
    except Exception as error:  # noqa: BLE001  # it becomes a failure
        module = trainables.build_module_name(spec.method)
        failure = build_failure(error, node=node, module=module)
        if failure.cause == "method":
            return failure
        if isinstance(error, ImportError) and select_frames(module, error):
            return replace(failure, cause="method", error=f"{failure.error} ({format_place(error, module)})")
    return None


class RunningTrial:
    """A trial that runs in this process; the process holds the trial's folder from the first `go_on` until `release`.

    The constructor does not lock the folder, because Ray discards some actors before they train.
    """

    def __init__(self, assigned: AssignedTrial, *, device: str, gpus: float, node: str | None = None):
        """`gpus` is the number or fraction of GPUs that the trial holds; `node` is the id of this node."""
        self.key = assigned.key
        self.is_over = False  # no more news will come
        self._assigned = assigned
        self._device, self._gpus, self._node = device, gpus, node
        self._is_begun = False
        self._held = ExitStack()
        self._known: deque[EpochRow] = deque()  # rows of earlier epochs, to be reported again
        self._restarted: str | None = None  # why the saved state was not used, until reported
        self._attested: Attestation | None = None  # reported until an epoch is trained
        self._epochs_before = 0
        self._epoch: Generator[None, None, EpochRow] | None = None  # the current epoch

    def go_on(self) -> News | Steps:
        """Train for at most `PAUSE_SECONDS`, or, after a resumption, report the row of an earlier epoch again.

        Exceptions become failures in the news, except those after which the process is unusable.
        """
        try:
            if not self._is_begun:
                self._is_begun = True
                self._take_up()
            if self._attested and list_contradictions(self._attested, self._assigned.expected):
                self.is_over = True
                return News(key=self.key, host=socket.gethostname(), refused=self._attested)
            row = self._known.popleft() if self._known else self._train()
            if row is None:
                seconds = time.monotonic() - self._epoch_began
                return Steps(key=self.key, done=self._run.steps_done, of=self._run.steps_per_epoch, seconds=seconds)
            report = self._build_report(row, self._compute_outcome() if row.finished else None)
        except Exception as error:  # it becomes a failure in the journal
            if breaks_process(error):
                raise
            self.is_over = True
            failure = build_failure(
                error, node=self._node, module=trainables.build_module_name(self._assigned.spec.method)
            )
            return News(key=self.key, host=socket.gethostname(), failure=failure, restarted=self._restarted)
        self.is_over = row.finished
        if row.epoch > self._epochs_before:
            self._attested = None
        restarted, self._restarted = self._restarted, None
        return News(key=self.key, host=report.host, report=report, restarted=restarted)

    def release(self) -> None:
        """Free the model, and release the folder."""
        if self._epoch:
            self._epoch.close()
        self._epoch = None
        vars(self).pop("_run", None)
        self._held.close()

    def _take_up(self) -> None:
        """Resume the trial from its saved state, or begin it if there is no readable state."""
        from trainables.runs.training import TrainingRun
        from trainables.sources import cache_folder

        check_marks(self._assigned.marks)
        self._place = open_place(self._assigned.place)
        self._folder = self._held.enter_context(self._place.work())
        self._clock = Clock(self._folder / "clock.json", gpus=self._gpus)
        spec = self._assigned.spec
        try:
            self._run = TrainingRun.resume(self._folder, spec=spec, device=self._device, cache=cache_folder())
        except UnreadableState as error:
            from trainables.runs.trial_files import has_state

            # Nothing is deleted here: if this actor belongs to a killed launcher, the trial may have ended in a later
            # launch, and these files are its result. The first saved epoch replaces them.
            if has_state(self._folder) or self._assigned.epochs:
                self._restarted = str(error)
            with ExitStack() as stack:
                with reading_inputs():
                    start = str(stack.enter_context(local_model(spec.start))) if spec.start else None
                begun = replace(spec, start=start)
                self._run = TrainingRun(begun, device=self._device, cache=cache_folder())
        self._attested = attest(self._run.content(), method=spec.method)
        self._run.spec = spec  # the state must have the `start` that all nodes see, not the local copy
        self._known.extend(self._run.history)
        self._epochs_before = len(self._known)

    def _train(self) -> EpochRow | None:
        """Train for at most `PAUSE_SECONDS`; return the row of the saved epoch, or None if the epoch is not over."""
        if self._epoch is None:
            self._epoch, self._epoch_began = self._run.epoch_in_steps(), time.monotonic()
        pause = time.monotonic() + PAUSE_SECONDS
        try:
            next(self._epoch)
            while time.monotonic() < pause:
                next(self._epoch)
            return None
        except StopIteration as end:
            row: EpochRow = end.value
        self._epoch = None
        self._place.check_held(self._folder)
        self._run.save(self._folder)
        self._clock.save()
        self._place.send_state(self._folder, epoch=row.epoch)
        return row

    def _compute_outcome(self) -> Outcome:
        """Return the run's outcome; for a confirm trial, store the model and add its address and latency."""
        predictions = None
        if self._assigned.predictions is not None:
            predictions = self._folder / self._assigned.predictions
            self._place.check_held(predictions.parent)
        outcome = self._run.outcome(predictions)
        if predictions is None:
            return replace(outcome, model=None)
        assert outcome.model is not None
        latency = self._run.measure_latency()
        return replace(outcome, model=self._place.send_outcome(Path(outcome.model)), latency=latency)

    def _build_report(self, row: EpochRow, outcome: Outcome | None) -> Report:
        from trainables.devices import device_and_threads

        wall_seconds, gpu_seconds = self._clock.read()
        return Report(
            row=row,
            outcome=outcome,
            wall_seconds=wall_seconds,
            gpu_seconds=gpu_seconds,
            host=socket.gethostname(),
            device=device_and_threads(self._device),
            attested=self._attested,
        )


class Clock:
    """Measures wall-clock seconds and GPU seconds (seconds times GPUs) of a trial, over all its processes."""

    def __init__(self, path: Path, *, gpus: float):
        """Continue from the file, if it exists; `gpus` is the number or fraction of GPUs held."""
        self._path, self._gpus = path, gpus
        try:
            before = json.loads(path.read_text())
            self._before = float(before["wall_seconds"]), float(before["gpu_seconds"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):  # a new trial, or a damaged file
            self._before = 0.0, 0.0
        self._started = time.monotonic()

    def read(self) -> tuple[float, float]:
        """Return wall-clock seconds and GPU seconds so far."""
        seconds = time.monotonic() - self._started
        return self._before[0] + seconds, self._before[1] + seconds * self._gpus

    def save(self) -> None:
        """Write both times to the file."""
        wall_seconds, gpu_seconds = self.read()
        write_json(self._path, {"wall_seconds": wall_seconds, "gpu_seconds": gpu_seconds})
