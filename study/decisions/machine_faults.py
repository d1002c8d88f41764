"""The rules for faults of the machine: which trial waits or is set aside, which node is left out, when all pause.

These are the memory of one launch: the next one looks at everything afresh. A trial *gets on* when it reports an epoch
that it has trained; earlier faults are judged by that:

- a trial waits after a fault, twice as long after each in a row;
- a trial that broke off, others got on, it broke off again, more often than `max_failures`, is set aside until the
  next launch;
- a node on which two trials broke off, one got on elsewhere, and one broke off again, is left out for a while; at once
  one that has other code or data than the launch;
- if every node was last heard of by a fault, all wait, twice as long each time, then one trial tries;
- a trial that broke off on a node that is lost, is not to blame for that;
- after `PATIENCE_SECONDS` in which no trial got on, the launch gives up; after `LASTING_PAUSES` before any trial got
  on, if all faults are one that no waiting mends, such as a folder that cannot be written. No trial fails by this.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from study.facts.events import Failure, NodeLeftOut, NodeTakenBack, StudyPaused

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
LEFT_OUT_SECONDS = 600.0
PATIENCE_SECONDS = 600.0
LASTING_PAUSES = 4  # time enough for every node to be heard of
_LASTING = re.compile(r"^(ImportError|ModuleNotFoundError)\b|\[Errno (1|13|30)\]")  # EPERM, EACCES, EROFS
DEFAULT_MAX_FAILURES = 3


@dataclass
class _TrialFaults:
    """The faults of one trial since it last got on."""

    failures: list[Failure] = field(default_factory=list)
    is_last_heard: bool = True  # no other trial got on since
    blamed: int = 0  # times that others got on after it broke off: those of an outage count as one
    not_before: float = 0.0

    def forget_node(self, node: str) -> None:
        """Forget the faults on a node, which say nothing about the trial."""
        others = [failure for failure in self.failures if failure.node != node]
        self.blamed, self.failures = min(self.blamed, len(others)), others
        self.is_last_heard = self.is_last_heard and bool(others)


class Faults:
    """The faults of a launch."""

    def __init__(self, *, max_failures: int = DEFAULT_MAX_FAILURES, clock: Callable[[], float] = time.monotonic):
        """`clock`: seconds; one that nobody sets."""
        self.max_failures = max_failures
        self._clock = clock
        self._trials: dict[str, _TrialFaults] = defaultdict(_TrialFaults)
        self._nodes: set[str | None] = set()  # that were heard of
        self._broken: dict[str, dict[str, Failure]] = defaultdict(dict)  # node -> trial -> last, since one got on there
        self._suspects: set[str] = set()  # of these nodes those after whose faults a trial got on elsewhere
        self._left_out: dict[str, tuple[float, str]] = {}  # node -> until, host
        self.differing: set[str] = set()  # of these nodes those with other code or data than the launch
        self._in_a_row: list[tuple[str, Failure]] = []  # since any trial got on
        self._since = 0.0  # when the first of these came
        self._pauses, self._paused_until = 0, 0.0
        self._has_got_on = False  # any trial, in this launch

    def add(self, key: str, failure: Failure, *, running: int, time: str) -> list[NodeLeftOut | StudyPaused]:
        """Take in that the trial broke off while `running` others go on; return what follows for node and study."""
        now, trial = self._clock(), self._trials[key]
        if not self._in_a_row:
            self._since = now
        trial.failures.append(failure)
        trial.not_before = now + pause_seconds(len(trial.failures))
        trial.is_last_heard = failure.node not in self._left_out
        self._in_a_row.append((key, failure))
        self._nodes.add(failure.node)
        if self._is_nodes_fault(key, failure):
            return [self._leave_out(failure, time)]
        if now < self._paused_until or not self._is_everywhere(running):
            return []
        self._pauses += 1
        seconds = pause_seconds(self._pauses)
        self._paused_until = now + seconds
        return [StudyPaused(time=time, seconds=seconds, faults=len(self._in_a_row), error=failure.error)]

    def got_on(self, key: str, node: str | None) -> None:
        """Take in that the trial trained an epoch on the node."""
        self._trials.pop(key, None)
        self._has_got_on = True
        self._nodes.add(node)
        self._broken.pop(node or "", None)
        self._suspects = set(self._broken)
        self._in_a_row, self._pauses, self._paused_until = [], 0, 0.0
        for trial in self._trials.values():
            trial.blamed += trial.is_last_heard
            trial.is_last_heard = False

    def forget(self, nodes: Iterable[str]) -> None:
        """Forget faults on nodes that are lost: they may have been heard of sooner than the loss."""
        for node in nodes:
            for trial in self._trials.values():
                trial.forget_node(node)

    def nodes_due(self, *, time: str) -> list[NodeTakenBack]:
        """Take back the nodes that were left out for long enough."""
        due = {node: host for node, (until, host) in self._left_out.items() if self._clock() >= until}
        for node in due:
            del self._left_out[node]
        self.differing -= due.keys()
        return [NodeTakenBack(time=time, node=node, host=host) for node, host in due.items()]

    def is_due(self, key: str) -> bool:
        """Check if the trial may be handed out now."""
        return not self.is_set_aside(key) and (key not in self._trials or self._clock() >= self._trials[key].not_before)

    def is_set_aside(self, key: str) -> bool:
        """Check if the trial waits for the next launch, since it broke off too often."""
        return key in self._trials and self._trials[key].blamed > self.max_failures

    def is_final(self, key: str, failure: Failure) -> bool:
        """Check if the trial is over with this failure: its method's, or too little memory for the last time."""
        if failure.cause == "memory":
            before = self._trials[key].failures if key in self._trials else []
            return sum(earlier.cause == "memory" for earlier in before) >= self.max_failures
        return failure.cause == "method"

    def room(self, *, running: int) -> bool:
        """Check if anything may be handed out now; after a second pause in a row one trial shows the way."""
        return self._clock() >= self._paused_until and (self._pauses < 2 or running == 0)

    @property
    def surrender(self) -> str | None:
        """The reason why nothing more is tried in this launch; None while something is."""
        if not self._in_a_row:
            return None
        if self._clock() - self._since >= PATIENCE_SECONDS:
            return f"no trial got on for {PATIENCE_SECONDS / 60:g} minutes, none has failed by that: {self._last_error}"
        is_lasting = len({failure.error for _, failure in self._in_a_row}) == 1 and _LASTING.search(self._last_error)
        if is_lasting and not self._has_got_on and self._pauses >= LASTING_PAUSES:
            return f"every trial meets the same fault, and no waiting mends it: {self._last_error}"
        return None

    @property
    def _last_error(self) -> str:
        return self._in_a_row[-1][1].error

    def avoided_by(self, key: str) -> frozenset[str]:
        """List the nodes that the trial should not run on, if there is another."""
        failures = self._trials[key].failures if key in self._trials else []
        return frozenset(self._left_out) | {failure.node for failure in failures if failure.node is not None}

    def _is_everywhere(self, running: int) -> bool:
        """Check if every node was last heard of by a fault; one trial's alone proves nothing while others run."""
        at_fault = {failure.node for _, failure in self._in_a_row}
        trials = {key for key, _ in self._in_a_row}
        several = len(self._in_a_row) > 1 and (len(trials) > 1 or running == 0)
        return several and at_fault >= self._nodes - self._left_out.keys()

    def _is_nodes_fault(self, key: str, failure: Failure) -> bool:
        """Take in a fault of a node, and return True if the node is to be left out."""
        node = failure.node
        if node is None or node in self._left_out:
            return False
        self._broken[node][key] = failure
        if failure.cause == "node":
            self.differing.add(node)
        return node in self.differing or (node in self._suspects and len(self._broken[node]) > 1)

    def _leave_out(self, failure: Failure, time: str) -> NodeLeftOut:
        node, host = failure.node or "", failure.host or "a host without a name"
        self._left_out[node] = self._clock() + LEFT_OUT_SECONDS, host
        trials = len(self._broken.pop(node))
        for trial in self._trials.values():
            trial.forget_node(node)
        return NodeLeftOut(
            time=time, node=node, host=host, trials=trials, seconds=LEFT_OUT_SECONDS, error=failure.error
        )


def pause_seconds(number: int) -> float:
    """Compute the seconds to wait after so many faults in a row."""
    return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(number - 1, 30))
