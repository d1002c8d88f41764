"""The driver without Ray: it runs each trial in a local worker process."""

from __future__ import annotations

from multiprocessing.connection import wait
from typing import Any

from study.cluster.resources import Resources, list_visible_gpus
from study.decisions.scheduler import Scheduler
from study.drivers.driver import Driver
from study.drivers.messages import Loss, Message
from study.drivers.trial_process import LEAVE_SECONDS, RELEASE, STEP, ProcessLost, TrialProcess
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
        self._ending: list[TrialProcess] = []  # spent processes
        self._has_ended_a_worker = False  # that did not end by itself

    def _run(self) -> None:
        try:
            while True:
                self.watch()
                self._fill_slots()
                if self.drained or (self.has_ended and not self._training):
                    return
                self._receive()
                for process in [process for process in self._ending if not process.is_leaving]:
                    self._ending.remove(process)
                    self._wait_for_end(process)
                self.on_progress(self)
        finally:
            for process in self._processes.values():
                process.end()
            for process in (*self._processes.values(), *self._ending):
                self._wait_for_end(process)

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
                self._processes[slot].send(assignment)
            except ProcessLost as lost:
                self._lose(slot, lost.loss)
            except OSError as error:
                self._lose(slot, Loss(error=str(error)))

    def _receive(self) -> None:
        """Process the messages that arrive within `WAIT_SECONDS`, and end the processes that hang."""
        handles: dict[Any, str] = {
            handle: slot for slot, process in self._processes.items() for handle in process.handles
        }
        ready = {handles[handle] for handle in wait([*handles], timeout=WAIT_SECONDS)}
        for slot, process in [*self._processes.items()]:
            try:
                if slot not in ready:
                    process.check_silence()
                elif message := process.receive():
                    self._answer(slot, process, message)
            except ProcessLost as lost:
                self._lose(slot, lost.loss)

    def _answer(self, slot: str, process: TrialProcess, message: Message) -> None:
        is_over = self.process_message(slot, message)
        if is_over:
            self._training.discard(slot)
        process.send(RELEASE if is_over else STEP)
        if is_over and process.is_spent:
            process.end()
            self._ending.append(self._processes.pop(slot))

    def _wait_for_end(self, process: TrialProcess) -> None:
        if not process.wait() and not self._has_ended_a_worker:
            self._has_ended_a_worker = True
            self._watchdog.say(
                f"a worker did not end within {LEAVE_SECONDS:g} seconds after its last trial, and was ended; "
                f"a method may have left a thread behind: see {WORKERS_LOG}"
            )

    def _lose(self, slot: str, loss: Loss) -> None:
        self._processes.pop(slot, None)
        if slot in self._training:
            self.failed(slot, loss.error, preempted=False, is_crash=loss.is_crash)


def assign_gpus(resources: Resources) -> list[str]:
    """Return CUDA_VISIBLE_DEVICES for each trial slot; slots with a fraction of a GPU are spread over all GPUs."""
    names, share, number = list_visible_gpus(), resources.gpus, resources.slots()
    if share == 0:
        return [""] * number
    if share < 1:
        return [names[slot % len(names)] for slot in range(number)]
    number_each = int(share)
    return [",".join(names[number_each * slot : number_each * (slot + 1)]) for slot in range(number)]
