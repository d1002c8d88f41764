"""Runs a study on Ray: one `tune.Tuner` whose searcher and scheduler ask `study.state` what to do.

Ray places trials and keeps actors warm. What runs, what stops and what is known is in the journal, so nothing of Ray's
own state is kept: there is no `Tuner.restore`, and a trial whose actor or node died is handed out again.
"""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import ray
import yaml
from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from study.record import Record
from study.search import OptunaJournal
from study.state import StudyState, Trial
from study.storage import PREDICTIONS, is_uri, place_at, trial_address
from study.trainable import MESSAGE, StudyTrainable


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one trial holds while it runs. `gpus` may be a fraction; None packs by measured memory."""

    cpus: float
    gpus: float | None
    autoscaler: Path | None = None  # the configuration of the cluster's autoscaler, where there is one

    def slots(self) -> int:
        """Trials that the cluster can run at a time, as it is now."""
        return self._fit_in(ray.cluster_resources())

    def slots_to_come(self) -> int:
        """Trials at a time once the autoscaler has added every node that it may; 0 where there is no autoscaler."""
        if self.autoscaler is None:
            return 0
        cluster = yaml.safe_load(self.autoscaler.read_text())
        most = cluster["max_workers"]
        types = [kind for name, kind in cluster["available_node_types"].items() if name != cluster["head_node_type"]]
        slots = [
            self._fit_in(kind.get("resources", {})) for kind in types for _ in range(kind.get("max_workers", most))
        ]
        return sum(sorted(slots, reverse=True)[:most])

    def _fit_in(self, resources: dict[str, float]) -> int:
        wanted = {"CPU": self.cpus, "GPU": 1.0 if self.gpus is None else self.gpus}
        return int(min(resources.get(name, 0) / amount for name, amount in wanted.items() if amount))


class Engine:
    """One launch of a study: from its state to the end of what there is to do."""

    def __init__(
        self,
        state: StudyState,
        *,
        folder: Path,
        storage: str,
        resources: Resources,
        max_failures: int,
        on_progress: Callable[[], None],
        trainable: type[tune.Trainable] = StudyTrainable,
    ):
        self.state = state
        self.max_failures = max_failures
        self.on_progress = on_progress
        self._folder = folder
        self._storage = storage
        self._resources = resources
        self._trainable = trainable
        self._keys: dict[str, str] = {}  # Ray's trial id -> key
        self._waiting: set[str] = set()  # keys of trials that were handed to Ray and have no actor yet
        self._training: set[str] = set()  # keys of trials that have one
        self._to_come = resources.slots_to_come()
        self._known_slots, self._slots_asked = 0, -math.inf
        self._optuna = OptunaJournal(folder / "optuna.journal")
        for arm in state.arms:
            self._optuna.add_ended(arm.search)

    def run(self) -> None:
        """Runs until nothing is left to hand out, or until it is interrupted and the running trials are saved."""
        with tempfile.TemporaryDirectory(prefix="study-ray-") as ray_storage, _drain_on_interrupt(self.state):
            tuner = tune.Tuner(
                tune.with_resources(self._trainable, placement_of),
                tune_config=tune.TuneConfig(
                    search_alg=_Searcher(self),
                    scheduler=_Scheduler(self),
                    num_samples=-1,
                    reuse_actors=True,
                    trial_name_creator=lambda trial: trial.trial_id,
                    trial_dirname_creator=lambda trial: trial.trial_id,
                ),
                run_config=tune.RunConfig(
                    name="study",
                    storage_path=ray_storage,
                    verbose=0,
                    callbacks=[_Progress(self)],
                    stop=_StopWhenDrained(self),
                    checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                ),
            )
            try:
                tuner.fit()
            except tune.TuneError as error:
                raise _first_cause(error) from None

    # ---- what the searcher, the scheduler and the callback ask

    def suggest(self, ray_id: str) -> dict[str, Any] | str | None:
        """The next trial as a Ray configuration; None for "not now".

        One trial waits while all slots train, so that none stands idle; more only to fill slots, those that an
        autoscaler would add for them too. Ray alone would start one actor at a time and, where trials are shorter than
        that, throw each away for the one that is warm.
        """
        if len(self._waiting) >= max(1, self._slots() - len(self._training)):
            return None
        trial = self.state.next_trial()
        if trial is None:
            return Searcher.FINISHED if self.state.finished else None
        self._keys[ray_id] = trial.start["key"]
        self._waiting.add(trial.start["key"])
        return {MESSAGE: json.dumps(self._assignment(trial))}

    def reported(self, ray_id: str, row: dict[str, Any]) -> str:
        """Takes in a row of a trial and says whether Ray stops it."""
        key = self._keys[ray_id]
        if "error" in row:
            self._end(key, error=row["error"])
            return TrialScheduler.STOP
        decision = self.state.report(key, row)
        if row["finished"] or decision == "stop":
            self._end(key)
            return TrialScheduler.STOP
        if self.state.draining:  # its epoch is saved
            self._training.discard(key)
            return TrialScheduler.STOP
        return TrialScheduler.CONTINUE

    def begun(self, ray_id: str) -> None:
        """A trial has its actor now; one that gets it after Ctrl-C is not waited for."""
        self._waiting.discard(self._keys[ray_id])
        if not self.state.draining:
            self._training.add(self._keys[ray_id])

    @property
    def drained(self) -> bool:
        """Whether Ctrl-C was pressed, and every trial has saved the epoch that it was in."""
        return self.state.draining and not self._training

    def failed(self, ray_id: str, error: str, *, preempted: bool) -> None:
        """A trial's actor, process or node is gone: hand the trial out again, or give it up."""
        key = self._keys[ray_id]
        self._waiting.discard(key)
        self._training.discard(key)
        if self.state.retry(key, error, counts=not preempted) > self.max_failures:
            self._end(key, error=error)

    # ---- inside

    def _slots(self) -> int:
        """Trials that the cluster can run at a time, or could. Asked of Ray once a second: it takes milliseconds."""
        if time.monotonic() >= self._slots_asked + 1:
            self._known_slots, self._slots_asked = max(self._resources.slots(), self._to_come), time.monotonic()
        return self._known_slots

    def _end(self, key: str, *, error: str | None = None) -> None:
        self._training.discard(key)
        record = end_trial(self.state, self.state.trial(key), self._storage, self._folder, error=error)
        self._optuna.add_ended(self.state.arm(record.method, record.task).search)

    def _assignment(self, trial: Trial) -> dict[str, Any]:
        start = trial.start
        predictions = PREDICTIONS if is_uri(self._storage) else str(predictions_file(self._folder, start["key"]))
        gpus = self.state.gpu_share(trial) if self._resources.gpus is None else self._resources.gpus
        return {
            "spec": self.state.trial_spec(trial),
            "folder": trial_address(self._storage, start["key"]),
            "predictions": predictions if start["phase"] == "confirm" else None,
            "device": "cuda" if gpus else "cpu",
            "cpus": self._resources.cpus,
            "gpus": gpus,
            "threads": max(1, int(self._resources.cpus)),
        }


def placement_of(config: dict[str, Any]) -> tune.PlacementGroupFactory:
    """What Ray sets aside for the trial."""
    assignment = json.loads(config[MESSAGE])
    return tune.PlacementGroupFactory([{"CPU": assignment["cpus"], "GPU": assignment["gpus"]}])


def predictions_file(folder: Path, key: str) -> Path:
    """Where the study's folder holds the predictions of a confirm trial."""
    return folder / "predictions" / f"{key}.npz"


def end_trial(state: StudyState, trial: Trial, storage: str, folder: Path, *, error: str | None = None) -> Record:
    """The record of a trial that has ended. Its predictions are in the study's folder before, its state goes after."""
    key = trial.start["key"]
    place = place_at(trial_address(storage, key))
    if trial.phase == "confirm" and error is None:
        place.fetch_predictions(predictions_file(folder, key))
    record = state.end(key, error=error)
    place.prune(record)
    return record


def _first_cause(error: BaseException) -> BaseException:
    """What was raised here: Ray wraps, more than once, whatever comes out of a searcher, a scheduler or a callback."""
    while isinstance(error, tune.TuneError) and (inner := error.__cause__ or error.__context__):
        error = inner
    return error


class _StaysHere:
    """Ray pickles and copies what it is given; the engine's own state is in the journal and stays where it is."""

    def __init__(self, engine: Engine):
        super().__init__()
        self._engine = engine

    def __deepcopy__(self, memo: dict) -> _StaysHere:
        return self

    def __reduce__(self) -> tuple:
        return (object, ())


class _Searcher(_StaysHere, Searcher):
    def suggest(self, trial_id: str) -> Any:
        return self._engine.suggest(trial_id)

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        """The scheduler has ended the trial already, or `_Progress` is about to."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the journal is the state."""

    def restore(self, checkpoint_path: str) -> None:
        raise AssertionError("a study is rebuilt from its journal")


class _Scheduler(_StaysHere, FIFOScheduler):
    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        return self._engine.reported(trial.trial_id, json.loads(result[MESSAGE]))


class _StopWhenDrained(_StaysHere, tune.Stopper):
    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._engine.drained


class _Progress(_StaysHere, tune.Callback):
    def on_trial_start(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        self._engine.begun(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        error = Path(trial.error_file).read_text().strip().splitlines()[-1] if trial.error_file else "unknown error"
        self._engine.failed(trial.trial_id, error, preempted=trial.num_failures == 0)

    def on_step_end(self, iteration: int, trials: list, **info: Any) -> None:
        self._engine.on_progress()


@contextmanager
def _drain_on_interrupt(state: StudyState) -> Iterator[None]:
    """The first Ctrl-C lets running trials save their epoch and hands out nothing more; the second stops at once."""

    def interrupted(signal_number: int, frame: FrameType | None) -> None:
        if state.draining:
            raise KeyboardInterrupt
        state.draining = True
        print("saving the epochs under way, then stopping; Ctrl-C again stops at once", file=sys.stderr, flush=True)

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ray_cluster(address: str | None) -> Iterator[None]:
    """A connection to the Ray cluster at `address`, or to one started here on loopback for as long as it is needed."""
    os.environ.update(RAY_SETTINGS)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # a trial's error is in its record
    _check_reachable(address)
    try:
        ray.init(
            address=address or "local",
            num_cpus=None if address else len(os.sched_getaffinity(0)),  # Ray counts cores that are not ours
            include_dashboard=None if address else False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RuntimeError) as error:
        reason = f"{str(error).splitlines()[0]}; one that asks for a token needs RAY_AUTH_MODE=token here too"
        raise ValueError(f"--address {address}: no Ray cluster answers there ({reason})") from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str | None) -> None:
    """Ray itself waits for a minute and logs while it does."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            raise ValueError(f"--address {address}: no Ray cluster answers there ({error})") from None


# Read by Ray when its modules and workers start.
RAY_SETTINGS = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the journal holds the results
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ours drains
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",  # nothing of Ray's state is kept
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # the record holds the error
    "TUNE_MAX_PENDING_TRIALS_PG": "1000000",  # `Engine.suggest` says how many
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "1000000000",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
