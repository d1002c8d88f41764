"""The driver without Ray: it runs each trial in a local worker process."""

from __future__ import annotations

from multiprocessing.connection import wait
from typing import Any

from study.cluster.resources import Resources, list_visible_gpus
from study.decisions.scheduler import Scheduler
from study.drivers.driver import Driver
from study.drivers.trial_process import RELEASE, STEP, ProcessLost, TrialProcess
from study.facts.study_folder import WORKERS_LOG

WAIT_SECONDS = 0.2  # longest wait for a message before other checks run


class LocalDriver(Driver):
    """A driver that runs each worker in a child process.

    The machine has one slot for each trial that can run at the same time. A work id is the number of a slot. The
    process of a slot is reused for the next trial, unless it has run a user's own method.
    """

    def __init__(self, scheduler: Scheduler, **arguments: Any):
        """Take the arguments of `Driver`."""
        super().__init__(scheduler, **arguments)
        self._gpus = {str(slot): gpus for slot, gpus in enumerate(assign_gpus(self._resources))}
        self._processes: dict[str, TrialProcess] = {}
        self._spent: set[str] = set()  # slots whose process must not get another assignment
        self._ending: list[TrialProcess] = []

    def _run(self) -> None:
        try:
            while True:
                self.watch()
                self._fill_slots()
                if self.drained or (self.has_ended and not self._training):
                    return
                self._receive()
                self.on_progress(self)
        finally:
            for process in self._processes.values():
                process.end()
            for process in (*self._processes.values(), *self._ending):
                process.wait()

    def _format_state(self) -> str:
        return f"{len(self._training)} trials are training"

    def _fill_slots(self) -> None:
        for slot, gpus in self._gpus.items():
            if slot in self._training:
                continue
            assignment = self.next_assignment(slot)
            if assignment is None:
                return
            self._training.add(slot)
            self._watchdog.moved()
            try:
                if slot not in self._processes:
                    log = self._folder / WORKERS_LOG
                    self._processes[slot] = TrialProcess(gpus=gpus, threads=assignment.threads, log=log)
                if assignment.runs_own_methods:
                    self._spent.add(slot)
                self._processes[slot].send(assignment)
            except (ProcessLost, OSError) as lost:
                self._lose(slot, str(lost))

    def _receive(self) -> None:
        """Process the messages that arrive within `WAIT_SECONDS`."""
        slots: dict[Any, str] = {process.connection: slot for slot, process in self._processes.items()}
        for slot in [slots[connection] for connection in wait(slots, timeout=WAIT_SECONDS)]:
            process = self._processes[slot]
            try:
                is_over = self.process_message(slot, process.receive())
                if is_over:
                    self._training.discard(slot)
                process.send(RELEASE if is_over else STEP)
                if is_over and slot in self._spent:
                    self._end_process(slot)
            except ProcessLost as lost:
                self._lose(slot, str(lost))

    def _end_process(self, slot: str) -> None:
        """Let the process of a slot end; the next assignment of the slot starts another."""
        self._spent.discard(slot)
        process = self._processes.pop(slot)
        process.end()
        self._ending.append(process)

    def _lose(self, slot: str, error: str) -> None:
        self._processes.pop(slot, None)
        self._spent.discard(slot)
        if slot in self._training:
            self.failed(slot, error, preempted=False)


def assign_gpus(resources: Resources) -> list[str]:
    """Return CUDA_VISIBLE_DEVICES for each trial slot; slots with a fraction of a GPU are spread over all GPUs."""
    names, share, number = list_visible_gpus(), resources.gpus, resources.slots()
    if share == 0:
        return [""] * number
    if share < 1:
        return [names[slot % len(names)] for slot in range(number)]
    number_each = int(share)
    return [",".join(names[number_each * slot : number_each * (slot + 1)]) for slot in range(number)]
