"""The rules for machine faults: which trials wait, which nodes get no trials, and when the launch gives up.

Each launch starts without faults. The epochs that trials complete after a fault show whether the trial, its node or the
whole study is affected:

- After a fault, a trial waits; the wait doubles with each further fault until the trial completes an epoch.
- A trial with more than `max_failures` counted faults waits for the next launch. The trial's faults between two epochs
  that other trials complete count as one.
- A node gets no trials for a while if several trials fail on it, and other nodes complete epochs between these faults.
  If the code or data of a node differ from the launch's, one fault is enough.
- If the last report from every node is a fault, the study pauses. Each further pause is twice as long, until a trial
  completes an epoch. After the second pause, only one trial runs at a time.
- Faults on a lost node do not count against a trial.
- If the process of a trial crashes again and again in the same way at the same step, the trial has failed. So it has if
  it runs out of memory again and again.
- The launch gives up if no epoch is completed within `PATIENCE_SECONDS` of a machine fault. Crashes and memory faults
  that may still turn out to be the trial's do not count. If the launch completed no epoch, and all faults have the same
  lasting cause (such as a missing write permission), it gives up after `LASTING_PAUSES` pauses. A launch that gives up
  marks no trial as failed.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from study.facts.events import Failure, NodeLeftOut, NodeTakenBack, StudyPaused

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
LEFT_OUT_SECONDS = 600.0
PATIENCE_SECONDS = 600.0
LASTING_PAUSES = 4  # enough for every node to report once
# EPERM, EACCES, EROFS; the last one is the error of a damaged start model.
_LASTING = re.compile(r"^(ImportError|ModuleNotFoundError)\b|\[Errno (1|13|30)\]| was damaged: ")
DEFAULT_MAX_FAILURES = 3
_COUNTED = ("crash", "memory")  # causes that are the trial's if they repeat


@dataclass
class _TrialFaults:
    """The faults of one trial since its last completed epoch."""

    failures: list[Failure] = field(default_factory=list)
    is_last_heard: bool = False  # False if any trial has completed an epoch after the last fault
    counted_faults: int = 0  # faults after which another trial completed an epoch; an outage counts once
    not_before: float = 0.0


@dataclass(frozen=True)
class _Fault:
    """A fault since any trial completed an epoch."""

    time: float
    key: str  # of the trial
    failure: Failure


class Faults:
    """The machine faults of a launch, and what follows for trials and nodes."""

    def __init__(self, *, max_failures: int = DEFAULT_MAX_FAILURES, clock: Callable[[], float] = time.monotonic):
        """Start without faults; `clock` returns seconds and never goes back."""
        self.max_failures = max_failures
        self._clock = clock
        self._trials: dict[str, _TrialFaults] = defaultdict(_TrialFaults)
        self._nodes: set[str | None] = set()  # nodes with a reported epoch or fault
        self._broken: dict[str, dict[str, Failure]] = defaultdict(dict)  # node -> trial -> last fault
        self._suspects: set[str] = set()  # nodes with faults after which an epoch was completed elsewhere
        self._left_out: dict[str, tuple[float, str]] = {}  # node -> (time of its return, host)
        self.differing: set[str] = set()  # left-out nodes with other code or data than the launch
        self._in_a_row: list[_Fault] = []  # faults since any trial completed an epoch
        self._pauses, self._paused_until = 0, 0.0
        self._has_got_on = False  # True if any trial completed an epoch in this launch

    def add(self, key: str, failure: Failure, *, running: int, time: str) -> list[NodeLeftOut | StudyPaused]:
        """Record a fault of a trial and return the resulting events; `running` counts the other running trials."""
        now, trial = self._clock(), self._trials[key]
        trial.failures.append(failure)
        trial.not_before = now + compute_pause(len(trial.failures))
        trial.is_last_heard = failure.node not in self._left_out
        self._in_a_row.append(_Fault(now, key, failure))
        self._nodes.add(failure.node)
        if self._is_nodes_fault(key, failure):
            return [self._leave_out(failure, time)]
        if now < self._paused_until or not self._is_everywhere(running):
            return []
        self._pauses += 1
        seconds = compute_pause(self._pauses)
        self._paused_until = now + seconds
        return [StudyPaused(time=time, seconds=seconds, faults=len(self._in_a_row), error=failure.error)]

    def note_progress(self, key: str, node: str | None) -> None:
        """Record that the trial completed an epoch on the node."""
        self._trials.pop(key, None)
        self._has_got_on = True
        self._nodes.add(node)
        self._broken.pop(node or "", None)
        self._suspects = set(self._broken)
        self._in_a_row, self._pauses, self._paused_until = [], 0, 0.0
        for trial in self._trials.values():
            trial.counted_faults += trial.is_last_heard
            trial.is_last_heard = False

    def forget(self, nodes: Collection[str]) -> None:
        """Discard the faults on `nodes`, because the trials did not cause these faults."""
        for trial in self._trials.values():
            trial.failures = [failure for failure in trial.failures if failure.node not in nodes]
            trial.counted_faults = min(trial.counted_faults, len(trial.failures))
            trial.is_last_heard = trial.is_last_heard and bool(trial.failures)

    def take_back_nodes(self, *, time: str) -> list[NodeTakenBack]:
        """Let nodes get trials again after `LEFT_OUT_SECONDS`; return the resulting events."""
        due = {node: host for node, (until, host) in self._left_out.items() if self._clock() >= until}
        for node in due:
            del self._left_out[node]
        self.differing -= due.keys()
        return [NodeTakenBack(time=time, node=node, host=host) for node, host in due.items()]

    def is_due(self, key: str) -> bool:
        """Check if the trial may run now: its wait is over, and it is not set aside."""
        return not self.is_set_aside(key) and self._clock() >= self._trials[key].not_before

    def is_set_aside(self, key: str) -> bool:
        """Check if the trial had too many faults and therefore waits for the next launch."""
        return self._trials[key].counted_faults > self.max_failures and not self._may_be_trials_fault(key)

    def is_final(self, key: str, failure: Failure) -> bool:
        """Check if the failure ends the trial.

        This is so for a method error, for more than `max_failures` memory faults, and for more than `max_failures`
        crashes (at least two) with the same error, which names the step.
        """
        if failure.cause in _COUNTED:
            return self._count_alike(key, failure) >= self._retries_of(failure)
        return failure.cause == "method"

    def count_crashes(self, key: str) -> int:
        """Count the crashes of a trial since its last completed epoch."""
        return sum(failure.cause == "crash" for failure in self._trials[key].failures)

    @property
    def failing(self) -> set[str]:
        """The keys of the trials with a fault since any trial completed an epoch."""
        return {fault.key for fault in self._in_a_row}

    def has_room(self, *, running: int) -> bool:
        """Check if any trial may start now; after two pauses in a row, only one trial may run at a time."""
        return self._clock() >= self._paused_until and (self._pauses < 2 or running == 0)

    @property
    def give_up_reason(self) -> str | None:
        """The reason why the launch gives up; None if the launch continues."""
        machine = [fault for fault in self._in_a_row if not self._may_be_trials_fault(fault.key)]
        if not machine:
            return None
        if self._clock() - machine[0].time >= PATIENCE_SECONDS:
            return (
                f"no trial completed an epoch for {PATIENCE_SECONDS / 60:g} minutes; no trial was marked as failed; "
                f"the last error was {self._last_error}"
            )
        is_lasting = len({fault.failure.error for fault in self._in_a_row}) == 1 and _LASTING.search(self._last_error)
        if is_lasting and not self._has_got_on and self._pauses >= LASTING_PAUSES:
            return f"every trial fails with the same error, which waiting cannot fix: {self._last_error}"
        return None

    @property
    def _last_error(self) -> str:
        return self._in_a_row[-1].failure.error

    def list_avoided_nodes(self, key: str) -> frozenset[str]:
        """Return the nodes that the trial should avoid if another node is available."""
        failed_on = {failure.node for failure in self._trials[key].failures if failure.node is not None}
        return frozenset(self._left_out) | failed_on

    def _may_be_trials_fault(self, key: str) -> bool:
        """Check if further faults like those of the trial may end it; False if more did not, or they differ."""
        failures = self._trials[key].failures
        if not failures or failures[-1].cause not in _COUNTED:
            return False
        return self._count_alike(key, failures[-1]) == len(failures) <= self._retries_of(failures[-1])

    def _count_alike(self, key: str, failure: Failure) -> int:
        """Count the trial's faults with the cause of `failure`; those of crashes must also name the same step."""
        alike = [each for each in self._trials[key].failures if each.cause == failure.cause]
        return sum(failure.cause != "crash" or each.error == failure.error for each in alike)

    def _retries_of(self, failure: Failure) -> int:
        return max(1, self.max_failures) if failure.cause == "crash" else self.max_failures

    def _is_everywhere(self, running: int) -> bool:
        """Check if the last report from every node is a fault.

        Faults of a single trial do not count while other trials run.
        """
        at_fault = {fault.failure.node for fault in self._in_a_row}
        several = len(self._in_a_row) > 1 and (len(self.failing) > 1 or running == 0)
        return several and at_fault >= self._nodes - self._left_out.keys()

    def _is_nodes_fault(self, key: str, failure: Failure) -> bool:
        """Record that a trial failed on a node; return True if the node must get no trials for a while."""
        node = failure.node
        if node is None or node in self._left_out:
            return False
        self._broken[node][key] = failure
        if failure.cause == "node":
            self.differing.add(node)
        return node in self.differing or (node in self._suspects and len(self._broken[node]) > 1)

    def _leave_out(self, failure: Failure, time: str) -> NodeLeftOut:
        node, host = failure.node or "", failure.host or "an unknown host"
        self._left_out[node] = self._clock() + LEFT_OUT_SECONDS, host
        trials = len(self._broken.pop(node))
        self.forget([node])
        return NodeLeftOut(
            time=time, node=node, host=host, trials=trials, seconds=LEFT_OUT_SECONDS, error=failure.error
        )


def compute_pause(number: int) -> float:
    """Return the seconds to wait after `number` faults or pauses in a row."""
    return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(number - 1, 30))
