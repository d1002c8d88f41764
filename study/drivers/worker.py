"""What a process does for a driver, a Ray actor or a process of the launch: one assignment after another."""

from __future__ import annotations

import gc
import sys

from msgspec.structs import replace

from study.drivers.messages import Assignment, Message
from study.drivers.running_trial import RunningTrial
from study.drivers.smoke_steps import smoke_report
from trainables.method_files import include


class Worker:
    """Runs the trials of an assignment side by side."""

    def __init__(self) -> None:
        self._trials: list[RunningTrial] = []
        self._smoke: Assignment | None = None  # whose steps are to be taken first
        self._node: str | None = None

    def begin(self, assignment: Assignment, *, node: str | None) -> None:
        """Takes it up, in the place of the one before; `node` is its number in the journal."""
        self.release()
        self._node = node
        include(assignment.included)
        _set_threads(assignment.threads)
        self._smoke = None if assignment.trials else assignment
        gpus = assignment.gpus / max(1, len(assignment.trials))
        for assigned in assignment.trials:
            self._trials.append(RunningTrial(assigned, device=assignment.device, gpus=gpus, node=node))

    def step(self) -> Message:
        """An epoch of each trial that is not over, or the steps before any trial."""
        news = tuple(trial.next_news() for trial in self._trials if not trial.is_over)
        message = Message(news=news, node=self._node)
        if smoke := self._smoke:
            message = replace(message, smoke=smoke_report(smoke.smoke, device=smoke.device, node=self._node))
            self._smoke = None
        return message

    def release(self) -> None:
        """Lets go of the models, their memory and their folders."""
        has_trained = bool(self._trials)
        for trial in self._trials:
            trial.release()
        self._trials = []
        gc.collect()
        if has_trained and not gc.get_freeze_count():
            gc.freeze()  # modules, once: half a million objects that need not be looked through after each trial
        if torch := sys.modules.get("torch"):
            torch.cuda.empty_cache()


def _set_threads(number: int) -> None:
    """Of torch; where it cannot be loaded, the trials say so as theirs."""
    try:
        import torch
    except (ImportError, OSError):
        return
    torch.set_num_threads(number)
