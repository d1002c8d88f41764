"""An epoch of a pretraining in several processes: a group of Ray Train's, on one node or several.

The trial's actor has the run, on its CPU, between epochs; a group takes its state, trains for an epoch and gives the
state back. So saving, resuming and reporting are those of any trial, a group needs no folder that its nodes share, and
one that broke off has changed nothing. Its start (processes, torch, the tokenised corpus) is paid once per epoch.
"""

from __future__ import annotations

import re
import socket
import tempfile
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from ray.train.torch import get_device
from ray.train.v2.api.config import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.exceptions import TrainingFailedError
from ray.train.v2.torch.torch_trainer import TorchTrainer

from study.drivers.messages import ProcessGroup
from study.drivers.provenance import attest
from study.facts.attestation import Attestation, contradictions
from trainables.data.tokenised import cache_folder
from trainables.runs.pretraining_run import PretrainingRun, content_of_pretraining
from trainables.runs.pretraining_trial import PretrainingSpec
from trainables.runs.processes import Processes
from trainables.runs.trial import Unavailable
from trainables.runs.trial_files import state_as_bytes, state_of_bytes

# How gloo and NCCL say, as `RuntimeError`s, that a process does not answer any more.
_MISSES_OTHERS = re.compile(r"gloo|NCCL|[Cc]onnection (closed|reset)")


def run_epoch_in_group(run: PretrainingRun, group: ProcessGroup) -> None:
    """Takes the run on by an epoch.

    Raises:
        Unavailable: a node of the group has other data or code than this one.
        ConnectionError: a process of the group is lost.
        Exception: whatever the epoch raises, in the process that is to blame.
    """
    expected, state = _attested(run), state_as_bytes(run.state())
    train = partial(_train_epoch, spec=run.spec, state=state, threads=group.threads, expected=expected)
    run.load(state_of_bytes(_result_of(train, group)))


def _result_of(train: partial[bytes | None], group: ProcessGroup) -> bytes:
    """The state that the first process returns."""
    elsewhere = {"ray.io/node-id": f"!in({','.join(group.avoid)})"} if group.avoid else None
    with tempfile.TemporaryDirectory(prefix="study-ray-") as ray_storage:
        trainer = TorchTrainer(
            train,
            scaling_config=ScalingConfig(
                num_workers=group.processes,
                use_gpu=group.gpus > 0,
                resources_per_worker={"CPU": group.cpus, **({"GPU": group.gpus} if group.gpus else {})},
                label_selector=elsewhere,
            ),
            run_config=RunConfig(name="group", storage_path=ray_storage, failure_config=FailureConfig(max_failures=0)),
        )
        try:
            result: Any = trainer.fit()  # typed as the result of the former Ray Train
        except TrainingFailedError as error:
            raise first_cause(getattr(error, "worker_failures", {})) from error
    return result.return_value


def first_cause(failures: Mapping[int, Exception]) -> Exception:
    """The failure that brought about the others, of rank -> failure; where one is lost or raises, others miss it."""
    lost = [rank for rank, error in failures.items() if hasattr(error, "health_check_failure")]
    if lost or not failures:
        which = f"process {lost[0]}" if lost else "its group"
        return ConnectionError(f"the pretraining is broken off: {which} is lost")
    return min(failures.values(), key=lambda error: bool(_MISSES_OTHERS.search(str(error))))


def _train_epoch(*, spec: PretrainingSpec, state: bytes, threads: int, expected: Attestation) -> bytes | None:
    """In each process of the group: the state after the epoch, from the first."""
    torch.set_num_threads(threads)
    try:
        run = PretrainingRun(spec, device=str(get_device()), cache=cache_folder())
        if found := contradictions(_attested(run), expected):
            raise Unavailable(f"it has not what the first node of the pretraining has: {'; '.join(found)}")
    except Unavailable as error:
        raise Unavailable(f"{socket.gethostname()}: {error}") from error
    run.load(state_of_bytes(state))
    run.run_epoch()
    return state_as_bytes(run.state()) if Processes.here().rank == 0 else None


def _attested(run: PretrainingRun) -> Attestation:
    return attest(content_of_pretraining(run), method=run.spec.objective)
