"""The driver without Ray: it runs each trial in a local worker process."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from study.cluster.resources import Resources, list_visible_gpus
from study.decisions.scheduler import Scheduler
from study.drivers.driver import Driver
from study.drivers.trial_process import RELEASE, STEP, ProcessLost, TrialProcess
from study.facts.study_folder import WORKERS_LOG

WAIT_SECONDS = 0.2  # longest wait for a message before other checks run


@dataclass
class _Slot:
    """Room for one trial at a time; its process is reused for the next trial."""

    gpus: str  # CUDA_VISIBLE_DEVICES of the process
    process: TrialProcess | None = None
    work_id: str | None = None  # of the process's assignment; None if it is idle


class LocalDriver(Driver):
    """A driver whose workers are child processes; its work ids are consecutive numbers."""

    def __init__(self, scheduler: Scheduler, **arguments: Any):
        """Take the arguments of `Driver`."""
        super().__init__(scheduler, **arguments)
        self._slots = [_Slot(gpus=gpus) for gpus in assign_gpus(self._resources)]
        self._handed_out = 0

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
            processes = [slot.process for slot in self._slots if slot.process]
            for process in processes:
                process.end()
            for process in processes:
                process.wait()

    def _format_state(self) -> str:
        return f"{len(self._training)} trials are training"

    def _fill_slots(self) -> None:
        for slot in self._slots:
            if slot.work_id is not None:
                continue
            work_id = str(self._handed_out)
            assignment = self.next_assignment(work_id)
            if assignment is None:
                return
            self._handed_out += 1
            self._training.add(work_id)
            self._watchdog.moved()
            slot.work_id = work_id
            try:
                if slot.process is None:
                    slot.process = TrialProcess(
                        gpus=slot.gpus, threads=assignment.threads, log=self._folder / WORKERS_LOG
                    )
                slot.process.send(assignment)
            except (ProcessLost, OSError) as lost:
                self._lose(slot, str(lost))

    def _receive(self) -> None:
        """Process the messages that arrive within `WAIT_SECONDS`."""
        slots: dict[Any, _Slot] = {slot.process.connection: slot for slot in self._slots if slot.process}
        for slot in (slots[connection] for connection in wait(slots, timeout=WAIT_SECONDS)):
            assert slot.process is not None
            try:
                message = slot.process.receive()
                assert slot.work_id is not None, "an idle process sends no message"
                if not self.process_message(slot.work_id, message):
                    slot.process.send(STEP)
                    continue
                self._training.discard(slot.work_id)
                slot.work_id = None
                slot.process.send(RELEASE)
            except ProcessLost as lost:
                self._lose(slot, str(lost))

    def _lose(self, slot: _Slot, error: str) -> None:
        work_id, slot.work_id, slot.process = slot.work_id, None, None
        if work_id is not None:
            self.failed(work_id, error, preempted=False)


def assign_gpus(resources: Resources) -> list[str]:
    """Return CUDA_VISIBLE_DEVICES for each trial slot; slots with a fraction of a GPU are spread over all GPUs."""
    names, share, number = list_visible_gpus(), resources.gpus, resources.slots()
    if share == 0:
        return [""] * number
    if share < 1:
        return [names[slot % len(names)] for slot in range(number)]
    number_each = int(share)
    return [",".join(names[number_each * slot : number_each * (slot + 1)]) for slot in range(number)]
