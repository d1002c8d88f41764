"""Follows a study's journal into one tracking store, while the study runs or afterwards."""

from __future__ import annotations

import hashlib
import sys
import time
from collections import defaultdict
from pathlib import Path

from study.decisions.progress import StudyProgress
from study.facts import events
from study.facts.events import EpochReported, Event
from study.facts.json_lines import Tail
from study.facts.study_facts import StudyFacts, TrialFacts, apply_line
from study.facts.study_folder import dev_table, journal_digest
from study.mlflow_mirror.run_content import Run, StudyRuns, milliseconds
from study.mlflow_mirror.tracking import Tracking, is_fatal, outages, reason
from study.mlflow_mirror.views import view_tags
from study.plans.plan_file import require_plan
from study.storage.addresses import masked

POLL_SECONDS = 1.0
LIVE_SECONDS = 5.0  # from one look at the trials that go on to the next: each is some dozen statements
LONGEST_PAUSE_SECONDS = 5.0
FILES = {"": ("plan.json", "report.html"), "tables": ("tables/*",), "pictures": ("pictures/*",)}


class Mirror:
    """One study folder on its way into one tracking store."""

    def __init__(self, folder: Path, uri: str) -> None:
        self.folder, self.uri = folder, uri
        self.facts = StudyFacts()
        self.tracking: Tracking | None = None
        self._tail = Tail(folder / events.FILE, events.READER)
        self.reports: defaultdict[str, list[EpochReported]] = defaultdict(list)  # of each trial, each epoch once
        self._changed: set[str] = set()  # keys of trials to be written
        self._next_live = 0.0

    def read(self) -> None:
        """Takes in what the journal says by now."""
        for number, event in self._tail.read():
            apply_line(self.facts, event, where=f"{self.folder / events.FILE}:{number}")
            if isinstance(event, EpochReported) and self.facts.trials[event.key].last is event:
                self.reports[event.key].append(event)
            self._changed |= self._about(event)

    def progress(self) -> StudyProgress:
        """How far the study is, by what was read."""
        return StudyProgress(require_plan(self.folder).plan, self.facts, max_gpu_hours=None)

    def launch_is_over(self) -> bool:
        return self.facts.last_launch is not None and self.facts.last_launch.is_over()

    def write(self, *, final: bool) -> None:
        """Writes what changed; with `final` also tables and report, and what became of trials that were cut off."""
        if self.facts.last_launch is None:
            return
        if final:
            self._changed |= set(self.facts.under_way)  # their status depends on whether the launch is over
        if self.tracking is None:
            self.tracking = self._connect()
            first = self.facts.launches[min(self.facts.launches)].began
            self.tracking.tag_experiment(view_tags(milliseconds(first.time)))
            self._changed = set(self.facts.trials)
        for run in self.runs(final=final):
            self.tracking.write(run)
            self._changed.discard(run.key)

    def runs(self, *, final: bool) -> list[Run]:
        """What is to be written: parents before children, because a child names its parent's id."""
        runs = StudyRuns(self.folder.resolve().name, require_plan(self.folder), self.facts, self.reports)
        changed = self._due(final=final)
        return [
            runs.study(
                files=self._files() if final else {},
                note=dev_table(self.folder),
                journal=journal_digest(self.folder) if final else None,
            ),
            *(runs.arm(name) for name in dict.fromkeys(trial.started.arm for trial in changed)),
            *(runs.trial(trial.key) for trial in changed),
        ]

    def _due(self, *, final: bool) -> list[TrialFacts]:
        """What changed of the trials that have ended and, once in a while, of those that go on."""
        changed = [trial for key, trial in self.facts.trials.items() if key in self._changed]
        if not final and time.monotonic() < self._next_live:
            return [trial for trial in changed if trial.record is not None]
        self._next_live = time.monotonic() + LIVE_SECONDS
        return changed

    def _about(self, event: Event) -> set[str]:
        """Keys of the trials whose runs an event may change."""
        match event:
            case events.LaunchBegan() | events.LaunchEnded():
                return set(self.facts.under_way)
            case events.TrialEnded() if event.record.phase in ("search", "confirm"):  # another winner, another best
                confirm = self.facts.arm(event.record.arm).confirm
                return {event.key, *(trial.key for trial in confirm)}
            case events.StartChosen() | events.SearchClosed() | events.ConfirmClosed():
                return set()
            case events.NodeLeftOut() | events.NodeTakenBack() | events.StudyPaused() | events.SmokeStepFailed():
                return set()
            case _:
                return {event.key}

    def _connect(self) -> Tracking:
        return Tracking(
            self.uri,
            experiment=self.folder.resolve().name,
            study_id=self._study_id(),
            artifacts=self.folder.resolve() / "mlartifacts",
        )

    def _study_id(self) -> str:
        """Tells this study from others of its name: a digest of the first line ever written to its journal."""
        with (self.folder / events.FILE).open("rb") as file:
            return hashlib.sha256(file.readline()).hexdigest()[:12]

    def _files(self) -> dict[str, tuple[str, ...]]:
        return {
            name: tuple(str(path) for pattern in patterns for path in sorted(self.folder.glob(pattern)))
            for name, patterns in FILES.items()
        }


def mirror(folder: Path, uri: str, *, follow: bool = False, patience: float = 60.0) -> Mirror:
    """Writes the study in `folder` to the store at `uri`; with `follow` until its launch is over.

    Says on standard error when the store is found to be away, and waits for it.

    Raises:
        TimeoutError: the store was away for `patience` seconds after that.
        ValueError: a broken journal, or a store that refuses.
    """
    mirrored, pause, deadline, is_away = Mirror(folder, uri), POLL_SECONDS, None, False
    while True:
        final = not follow or mirrored.launch_is_over()  # asked before reading: what came before the end is read below
        mirrored.read()
        try:
            mirrored.write(final=final)
        except outages() as error:
            if is_fatal(error):
                raise ValueError(f"{masked(uri)} refuses: {reason(error)}") from None
            deadline = deadline or (time.monotonic() + patience if final else None)
            if deadline and time.monotonic() > deadline:
                raise TimeoutError(f"{masked(uri)} is away: {reason(error)}") from None
            if not is_away:
                until = f"for {patience:g} s" if final else "while the study runs"
                print(f"{masked(uri)} is away: {reason(error)}; trying again {until}", file=sys.stderr, flush=True)
            mirrored.tracking, pause, is_away = None, min(2 * pause, LONGEST_PAUSE_SECONDS), True
        else:
            pause, is_away = POLL_SECONDS, False
            if final:
                return mirrored
        time.sleep(pause)
