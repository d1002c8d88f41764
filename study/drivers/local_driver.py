"""The driver without Ray: processes of the launch on this machine, one a slot."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from study.cluster.resources import Resources, list_visible_gpus
from study.decisions.scheduler import Scheduler
from study.drivers.driver import Driver
from study.drivers.trial_process import RELEASE, STEP, ProcessLost, TrialProcess
from study.facts.study_folder import WORKERS_LOG

WAIT_SECONDS = 0.2  # for messages of processes, between two looks at everything else


@dataclass
class _Slot:
    """Room for one trial; its process stays for the next one."""

    gpus: str  # in the words of CUDA_VISIBLE_DEVICES
    process: TrialProcess | None = None
    work_id: str | None = None  # of what the process is at


class LocalDriver(Driver):
    """A launch whose workers are its own processes; a work id is the number of an assignment."""

    def __init__(self, scheduler: Scheduler, *, resources: Resources, **given: Any):
        """`given`: as `Driver` takes it."""
        super().__init__(scheduler, resources=resources, **given)
        self._slots = [_Slot(gpus=gpus) for gpus in assign_gpus(resources)]
        self._handed_out = 0

    def _run(self) -> None:
        try:
            while True:
                self.watch()
                self._fill_slots()
                if self.drained or (self.has_ended and not self._training):
                    return
                self._hear()
                self.on_progress(self)
        finally:
            processes = [slot.process for slot in self._slots if slot.process]
            for process in processes:
                process.end()
            for process in processes:
                process.wait()

    def _state(self) -> str:
        return f"{len(self._training)} trials are in an epoch"

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
                slot.process.tell(assignment)
            except (ProcessLost, OSError) as lost:
                self._lose(slot, str(lost))

    def _hear(self) -> None:
        """Take in the messages of processes, after waiting for a moment at most."""
        slots: dict[Any, _Slot] = {slot.process.connection: slot for slot in self._slots if slot.process}
        for slot in (slots[connection] for connection in wait(slots, timeout=WAIT_SECONDS)):
            assert slot.process is not None
            try:
                message = slot.process.hear()
                assert slot.work_id is not None, "an idle process says nothing"
                if not self.take_in(slot.work_id, message):
                    slot.process.tell(STEP)
                    continue
                self._training.discard(slot.work_id)
                slot.work_id = None
                slot.process.tell(RELEASE)
            except ProcessLost as lost:
                self._lose(slot, str(lost))

    def _lose(self, slot: _Slot, error: str) -> None:
        work_id, slot.work_id, slot.process = slot.work_id, None, None
        if work_id is not None:
            self.failed(work_id, error, preempted=False)


def assign_gpus(resources: Resources) -> list[str]:
    """Assign GPUs of this machine to slots, in the words of CUDA_VISIBLE_DEVICES.

    Trials that hold a part of a GPU are spread over all.
    """
    names, held, number = list_visible_gpus(), resources.gpus, resources.slots()
    if held == 0:
        return [""] * number
    if held < 1:
        return [names[slot % len(names)] for slot in range(number)]
    each = int(held)
    return [",".join(names[each * slot : each * (slot + 1)]) for slot in range(number)]
