"""Run a pretraining in its folder, in one process or several, until the backbone is finished.

The folder contains

    pretraining.json                            configuration and progress; replaced after every epoch
    state.pt                                    the state from which to resume; removed at the end
    config.json, model.safetensors, tokenizer   the finished backbone
    mlflow.db                                   the MLflow run, unless --tracking-uri names another store

If a process is killed, the next run of the command resumes from `state.pt`. The finished weights are bit-identical to
those of an uninterrupted run. With a limit on the time, the number of steps depends on the machine's speed.
"""

from __future__ import annotations

import multiprocessing
import os
import shlex
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from msgspec.structs import replace
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import distributed

from study.cluster.resources import count_cores
from study.facts.events import utc_now
from study.facts.provenance import (
    Provenance,
    attest,
    join_code,
    list_contradictions,
    list_other_code,
    read_provenance,
)
from study.mlflow_mirror.run_content import Point, Run, to_milliseconds
from study.mlflow_mirror.tracking import Tracking, outages, prepare_environment, reason
from study.plans.pretrained_backbone import Epoch, PretrainingFile, read_pretraining, write_pretraining
from study.plans.resolved_plan import digest
from study.terminal.output import can_redraw, console_on
from study.terminal.processes import STOP_SIGNALS
from study.terminal.text import clock, masked, print_lines
from trainables import Departure
from trainables.configuration.schema import Typed, to_plain
from trainables.encoders.backbone_files import backbone_fingerprint
from trainables.encoders.backbone_names import PRETRAINING_FILE
from trainables.files.sources import cache_folder
from trainables.models.devices import device_and_threads
from trainables.pretraining.configuration import PretrainingSpec
from trainables.pretraining.run import PretrainingRun
from trainables.runs.trial import Unavailable, UnreadableState
from trainables.runs.trial_files import (
    STATE,
    has_state,
    read_state,
    readable,
)

LOCK = "pretrain.lock"
PATIENCE = timedelta(hours=1)  # how long processes wait while one tokenises the corpus or writes a state


class Job(Typed, frozen=True, kw_only=True):
    """A pretraining to start or to continue."""

    spec: PretrainingSpec
    file: PretrainingFile  # content of pretraining.json: new, or left by an earlier command
    folder: str
    tracking_uri: str | None  # None: no MLflow
    max_minutes: float | None = None  # None: no limit


@dataclass(frozen=True)
class Member:
    """One of the data-parallel processes of a pretraining."""

    rank: int = 0
    number: int = 1
    rank_on_node: int = 0
    rendezvous: str = ""  # address where the processes meet: init_method of torch.distributed

    @property
    def device(self) -> str:
        """Device of this process in torch's spelling: `cuda:N` or `cpu`."""
        return f"cuda:{self.rank_on_node}" if torch.cuda.is_available() else "cpu"

    @classmethod
    def from_torchrun(cls) -> Member | None:
        """Read the process's rank from torchrun's environment variables; return None outside torchrun."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            return None
        rank, number, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        return cls(rank, number, local_rank, "env://")


def pretrain(job: Job, *, processes: int) -> None:
    """Run the pretraining until its backbone is finished, and print its progress.

    Args:
        processes: number of processes on this machine; must be 1 under torchrun.

    Raises:
        ValueError: if another process pretrains in the folder, an input is missing, or the saved state is damaged.
        TrainingError: if the loss is not finite, or memory runs out.
        OSError: if a file cannot be written, or a process is lost.
    """
    member = Member.from_torchrun()
    if member is not None and processes > 1:
        raise ValueError(
            f"--processes is {processes}, but torchrun started {member.number} processes; leave out --processes"
        )
    if member is not None and member.rank > 0:
        _work(job, member)
        return
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK, timeout=0):
            job = replace(job, file=read_pretraining(folder) or job.file)  # read again under the lock
            if job.file.finished:
                (folder / STATE).unlink(missing_ok=True)  # still exists if the last command was killed
                if member is not None:
                    _work(job, member)  # ends the other processes, which may not see the folder
                done, wanted = job.file.made.steps, job.file.wanted_steps
                number = f"all {done:,} steps" if done == wanted else f"{done:,} of {wanted:,} steps (--max-minutes)"
                print_lines([f"{folder}: {number} are done already"], sys.stdout)
                _mirror(job, job.file)
            elif member is None and processes > 1:
                _pretrain_in_processes(job, processes)
            else:
                _work(job, member or Member())
        print(f"to start a study from this backbone, run: python -m study.launch --backbone {shlex.quote(str(folder))}")
    except Timeout:
        raise ValueError(
            f"--to {folder} is in use by another pretraining; choose another folder, or wait until it has ended"
        ) from None


def _work(job: Job, member: Member) -> None:
    """Run one process of the pretraining. Only the process of rank 0 saves files and prints.

    If rank 0 has a finished backbone, all processes return at once.
    """
    began = time.monotonic()
    with _join_group(member):
        if not _goes_on(not job.file.finished, member):
            return
        run = PretrainingRun(job.spec, device=member.device, cache=cache_folder())
        if member.number > 1:
            _check_same_content(run)
        _resume_state(run, Path(job.folder), member)
        if member.rank > 0:
            while _goes_on(not run.finished, member):
                run.run_epoch()
            return
        _Leader(job, run, member, began).work()


class _Leader:
    """The process of rank 0, which also saves all files and prints the progress."""

    def __init__(self, job: Job, run: PretrainingRun, member: Member, began: float) -> None:
        """Prepare the content of pretraining.json; `began` is the start of this process (`time.monotonic()`)."""
        self._job, self._run, self._folder, self._member = job, run, Path(job.folder), member
        self._gpus = member.number if member.device != "cpu" else 0
        self._began = began
        code = _join_earlier_code(job.file) if run.history else read_provenance()
        self._file = replace(
            job.file,
            made=replace(job.file.made, device=device_and_threads(member.device)),
            tokens_digest=run.content().tokens_digest,
            num_parameters=run.num_parameters,
            num_kept_parameters=run.num_kept_parameters,
            processes=member.number,
            versions=code.versions,
            git_commit=code.git_commit,
            code_digest=code.code_digest,
        )

    def work(self) -> None:
        """Run the remaining epochs and save the state after each epoch; at the end, save the backbone."""
        self._write_progress()
        screen = _Screen(self._file, self._job.max_minutes)
        if self._run.new_parts and not self._run.history:
            parts, backbone = ", ".join(self._run.new_parts), self._file.made.backbone
            print_lines([f"these start with random weights, because {backbone} has none that fit: {parts}"], sys.stdout)
        with screen.bar:
            while _goes_on(not self._run.finished and self._has_time(), self._member):
                self._run.run_epoch(screen.show_step)
                self._run.save_state(self._folder)
                self._write_progress()
                screen.show_epoch(self._file)
                _mirror(self._job, self._file)
        self._run.save_model(self._folder)
        fingerprint = backbone_fingerprint(str(self._folder.resolve()))
        if not self._run.finished:
            self._add_departure()
        self._write_progress(finished=True, model_fingerprint=fingerprint)
        (self._folder / STATE).unlink(missing_ok=True)
        _mirror(self._job, self._file)
        made = self._file.made
        size = f"{made.steps:,} steps, {made.tokens:,} tokens in {clock(made.wall_seconds)}"
        print_lines([f"finished: {size}; held-out scores: {format_scores(made.scores)}"], sys.stdout)

    def _add_departure(self) -> None:
        """Record that the time was over before all steps were done."""
        made = self._file.made
        here = f"{made.steps:,}, because of --max-minutes {self._job.max_minutes:g}"
        departure = Departure("steps", f"{self._file.wanted_steps:,}", here)
        self._file = replace(self._file, made=replace(made, departures=(*made.departures, departure)))

    def _has_time(self) -> bool:
        """Return whether another epoch, as long as the last one, ends within the limit. The first epoch always runs."""
        rows, limit = self._run.history, self._job.max_minutes
        if limit is None or not rows:
            return True
        ends = [0.0, *(row.train_seconds + row.eval_seconds for row in rows)]
        used = self._job.file.made.wall_seconds + time.monotonic() - self._began
        return used + ends[-1] - ends[-2] <= 60 * limit

    def _write_progress(self, **changes: object) -> None:
        """Write pretraining.json with the current progress and the fields in `changes`."""
        earlier, seconds = self._job.file.made, time.monotonic() - self._began
        made = replace(
            self._file.made,
            wall_seconds=earlier.wall_seconds + seconds,
            gpu_seconds=earlier.gpu_seconds + seconds * self._gpus,
        )
        rows = self._run.history
        if rows:
            made = replace(made, steps=rows[-1].steps, tokens=rows[-1].tokens, scores=rows[-1].scores)
        else:  # also if the state of an earlier command is gone
            made = replace(made, steps=0, tokens=0, scores={})
        epochs = self._file.epochs[: len(rows)]
        epochs += tuple(Epoch(ended=utc_now(), row=row) for row in rows[len(epochs) :])
        self._file = replace(self._file, made=made, epochs=epochs, **changes)
        write_pretraining(self._folder, self._file)


def _goes_on(wanted: bool, member: Member) -> bool:
    """Return rank 0's `wanted`, so that all processes end after the same epoch."""
    if member.number == 1:
        return wanted
    sent = [wanted]
    distributed.broadcast_object_list(sent, src=0)
    return sent[0]


def _resume_state(run: PretrainingRun, folder: Path, member: Member) -> None:
    """Load the saved state, if it exists. Rank 0 reads the file and broadcasts the state to the other processes."""
    try:
        state = read_state(folder) if member.rank == 0 and has_state(folder) else None
    except UnreadableState as error:
        raise UnreadableState(f"{error}; delete {folder / STATE} to start again") from error
    if member.number > 1:
        sent = [state]
        distributed.broadcast_object_list(sent, src=0)
        state = sent[0]
    if state is not None:
        with readable(folder):
            run.load(state)


def _join_earlier_code(file: PretrainingFile) -> Provenance:
    """Combine the code of earlier epochs with that of this process; print a line if they differ."""
    earlier = Provenance(versions=file.versions, git_commit=file.git_commit, code_digest=file.code_digest)
    code = read_provenance()
    if differences := list_other_code(code, earlier):
        note = f"the code has changed since the earlier epochs: {'; '.join(differences)}"
        print_lines([f"{note}; {PRETRAINING_FILE} names both"], sys.stderr)
    return join_code(file.made.objective, [earlier, code])


def _check_same_content(run: PretrainingRun) -> None:
    """Check that this process has the same data and code as rank 0, which may run on another node.

    Raises:
        Unavailable: if the data or the code differs.
    """
    attestation = attest(run.content(), method=run.spec.objective)
    sent = [attestation]
    distributed.broadcast_object_list(sent, src=0)
    if differences := list_contradictions(attestation, sent[0]):
        raise Unavailable(
            f"{socket.gethostname()} has other data or code than the first process: {'; '.join(differences)}"
        )


@contextmanager
def _join_group(member: Member) -> Iterator[None]:
    """Join torch's process group for the duration of the context. A single process joins no group."""
    if member.number == 1:
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(member.rank_on_node)
    else:
        torch.set_num_threads(max(1, count_cores() // member.number))
    distributed.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo",
        init_method=member.rendezvous,
        rank=member.rank,
        world_size=member.number,
        timeout=PATIENCE,
    )
    yield
    distributed.destroy_process_group()  # not after an error, which must be reported before the others fail


def _pretrain_in_processes(job: Job, number: int) -> None:
    """Pretrain in `number` processes of this machine, and wait until all have ended.

    Raises:
        ConnectionError: if a process is lost.
        Exception: the first exception that a process raised.
    """
    context = multiprocessing.get_context("spawn")
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, "lo")  # other machines must not connect
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # hides a warning about unused parameters
    errors, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="study-pretrain-") as meeting:
        members = [Member(rank, number, rank, f"file://{meeting}/rendezvous") for rank in range(number)]
        children = [context.Process(target=_run_member, args=(job, member, sender), daemon=True) for member in members]
        for child in children:
            child.start()
        try:
            while alive := [child for child in children if child.exitcode is None]:
                wait([child.sentinel for child in alive])
                if failed := {rank: child.exitcode for rank, child in enumerate(children) if child.exitcode}:
                    first = min(failed, key=lambda rank: failed[rank])  # the status of a killed process is negative
                    if failed[first] > 0 and errors.poll():
                        raise errors.recv()
                    raise ConnectionError(
                        f"the pretraining has ended early, because process {first} was killed or crashed"
                    )
        finally:
            for child in children:
                child.kill()
                child.join()


def _run_member(job: Job, member: Member, sender: Connection) -> None:
    """Run a child process of `_pretrain_in_processes`.

    The child sends an error to its parent process, and ends when the parent process ends.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the parent gets the signal too, and ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _work(job, member)
    except Exception as error:  # noqa: BLE001  # the parent reports it
        sender.send(error)
        os._exit(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class _Screen:
    """Prints the progress: a bar with the remaining time on a terminal, or else a line after every epoch."""

    def __init__(self, file: PretrainingFile, max_minutes: float | None) -> None:
        self._wanted, console = file.wanted_steps, console_on(sys.stdout)
        self._limit = float("inf") if max_minutes is None else 60 * max_minutes
        self._first, self._began = file.made.steps, time.monotonic()
        made, size = file.made, f"{file.wanted_steps:,} steps of {file.made.batch_size} examples"
        where = f"continues after {made.steps:,} of {size}" if made.steps else size
        words = f"{made.objective} on corpus {made.corpus}, from {made.backbone}: {where}"
        console.print(words, markup=False, soft_wrap=not console.is_terminal)
        steps = TextColumn("{task.completed:,.0f} of {task.total:,.0f} steps")
        columns = (BarColumn(), steps, TimeRemainingColumn(), TextColumn("{task.description}"))
        self.bar = Progress(*columns, console=console, disable=not can_redraw(console))
        self._task = self.bar.add_task("", total=self._wanted, completed=self._first)

    def show_step(self, step: int) -> None:
        self.bar.update(self._task, completed=step)

    def show_epoch(self, file: PretrainingFile) -> None:
        scores, steps = format_scores(file.made.scores), file.made.steps
        self.bar.update(self._task, completed=steps, description=scores)
        if not self.bar.disable:
            return
        left = (time.monotonic() - self._began) / max(1, steps - self._first) * (self._wanted - steps)
        left = max(0.0, min(left, self._limit - file.made.wall_seconds))
        rest = f"; about {clock(left)} left" if steps < self._wanted else ""
        loss = file.epochs[-1].row.train_loss
        print(f"{steps:,} of {self._wanted:,} steps: loss {loss:.3f}, {scores}{rest}", flush=True)


def format_scores(scores: Mapping[str, float]) -> str:
    """Format held-out scores: `mlm_loss 4.562, mlm_accuracy 0.300`."""
    return ", ".join(f"{name} {value:.3f}" for name, value in scores.items())


def _mirror(job: Job, file: PretrainingFile) -> None:
    """Send the parameters, scores and curves in `file` to MLflow; if the store is unreachable, print a warning."""
    if job.tracking_uri is None:
        return
    prepare_environment()
    folder = Path(job.folder).resolve()
    study_id = digest([file.created, file.made.corpus_fingerprint, to_plain(file.config), file.seed])
    try:
        tracking = Tracking(job.tracking_uri, experiment=folder.name, study_id=study_id, artifacts=folder / "artifacts")
        tracking.write(_build_mlflow_run(file))
    except outages() as error:
        fault = f"MLflow at {masked(job.tracking_uri)} is unreachable: {reason(error)}"
        print_lines([f"warning: {fault}; the next epoch, or the next run of this command, tries again"], sys.stderr)


def _build_mlflow_run(file: PretrainingFile) -> Run:
    """Build the MLflow run: its parameters, and curves with one point per epoch."""
    made, points = file.made, []
    for epoch in file.epochs:
        row = epoch.row
        values = {"train_loss": row.train_loss, "tokens": row.tokens, "train_seconds": row.train_seconds, **row.scores}
        points += [Point(name, float(value), to_milliseconds(epoch.ended), row.steps) for name, value in values.items()]
    ended = to_milliseconds(file.epochs[-1].ended) if file.finished else None
    versions = ", ".join(f"{name} {version}" for name, version in file.versions.items())
    note = f"After {made.steps:,} of {file.wanted_steps:,} steps, the held-out scores are {format_scores(made.scores)}."
    params = {"objective": made.objective, "corpus": made.corpus, "backbone": made.backbone, "seed": file.seed}
    return Run(
        key="pretraining",
        name=f"{made.objective} on {made.corpus}",
        parent=None,
        status="completed" if file.finished else "running",
        started=to_milliseconds(file.created),
        ended=ended,
        params={name: str(value) for name, value in {**file.config, **params}.items() if value is not None},
        tags={"device": made.device, "versions": versions, "mlflow.note.content": note},
        points=points,
    )
