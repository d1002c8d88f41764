"""The journal replayed: every event is what the plan and the events before it make of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from analysis.verification import trial_rules
from analysis.verification.differences import unlike
from analysis.verification.epoch_rules import EpochRules
from analysis.verification.fault_rules import FaultRules
from analysis.verification.journal_lines import JournalLine, read_journal
from study.decisions.budget import GpuBudget
from study.decisions.progress import StudyProgress
from study.facts.events import (
    FILE,
    AshaDecided,
    ConfirmClosed,
    EpochReported,
    Event,
    LaunchBegan,
    LaunchEnded,
    NodeLeftOut,
    NodeTakenBack,
    SearchClosed,
    SmokeStepFailed,
    StartChosen,
    StudyPaused,
    TrialEnded,
    TrialReopened,
    TrialRestarted,
    TrialRetried,
    TrialStarted,
)
from study.facts.plain_words import counted
from study.facts.study_facts import StudyFacts, TrialFacts
from study.plans.plan_file import PlanFile, plan_changes


class Replay:
    """The state of a study while its journal is read again."""

    def __init__(self, folder: Path, file: PlanFile) -> None:
        self._journal = read_journal(folder)
        lines = self._journal.lines
        self.facts = StudyFacts()
        self._file = file
        self._progress = StudyProgress(file.plan, self.facts, max_gpu_hours=None)
        self._machine = FaultRules()
        self._epochs = EpochRules(file.plan.protocol.selection)
        self._last_launch = max((line.event.launch for line in lines if isinstance(line.event, LaunchBegan)), default=0)
        self._settled = _settled_arms(lines)
        self._is_running = False  # between the two events of a launch
        self._time = ""

    def drift(self) -> Iterator[str]:
        """A line for every field that is not what it should be, as soon as it is found; at the end `facts` has all.

        What is wrong behind a line that cannot be read may follow from its absence, and is one line.
        """
        yield from self._journal.faults
        first_unread = min(self._journal.unread, default=None)
        later: list[str] = []
        for line in self._journal.lines:
            if first_unread is None or line.number < first_unread:
                yield from self.take(line)
            else:
                later += self.take(line)
        if later:
            others = f"; and {counted(len(later) - 1, 'other fault')} of later lines" * (len(later) > 1)
            yield f"what may follow from that line {first_unread} of {FILE} cannot be read: {later[0]}{others}"

    def take(self, line: JournalLine) -> list[str]:
        """What is wrong with the next event, and where; then it is a fact."""
        event = line.event
        faults = self._time_faults(event)
        try:
            faults += self._faults(line)
            self._machine.take(event)
            self.facts.apply(event)
        except ValueError as error:
            faults.append(str(error))
        except KeyError as error:
            faults.append(f"{error} is not there")
        drift = [f"{line.where}: {fault}" for fault in faults]
        if isinstance(event, LaunchBegan):
            self._progress = StudyProgress(self._file.plan, self.facts, max_gpu_hours=event.max_gpu_hours)
        return drift

    def _faults(self, line: JournalLine) -> list[str]:
        match event := line.event:
            case LaunchBegan():
                self._is_running = True
                number = unlike(event, {"launch": self.facts.launch_number + 1})
                return number + plan_changes(event.plan, self._file.plan, settled=self._settled[event.launch])
            case LaunchEnded():
                return self._launch_end_faults(event)
            case SearchClosed():
                return self._closing_faults(event)
            case ConfirmClosed():
                return self._unpaid_faults(event, GpuBudget(self._progress).confirms_to_close())
            case StartChosen():
                return self._arm_faults(event.arm) or trial_rules.choice_faults(event, self._progress)
            case TrialStarted():
                return self._arm_faults(event.arm) or [
                    *trial_rules.start_faults(event, self._progress),
                    *self._untimely_start(event),
                ]
            case NodeLeftOut() | NodeTakenBack() | StudyPaused():
                return self._machine.faults(event, self.facts)
            case SmokeStepFailed():
                return self._arm_faults(event.arm) or unlike(event.failure, {"cause": "method"})
            case TrialReopened():
                return trial_rules.reopening_faults(event, self._progress)
        return self._trial_faults(event, line)

    def _trial_faults(
        self, event: EpochReported | AshaDecided | TrialRetried | TrialRestarted | TrialEnded, line: JournalLine
    ) -> list[str]:
        trial = self.facts.trials.get(event.key)
        if trial is None:
            return []  # the facts will say so
        if trial.ended is not None:
            return [f"trial {event.key} has ended before"]
        match event:
            case EpochReported():
                stopped = [f"ASHA had stopped {event.key}"] * (trial.stopped_at is not None)
                undecided = trial_rules.undecided_rungs(trial, self._progress)
                lines = stopped + undecided + self._epochs.faults(trial, event)
                return lines + self._attestation_faults(event, trial)
            case AshaDecided():
                return trial_rules.asha_faults(event, trial, self._progress)
            case TrialRetried():
                wrong = event.failure.cause == "method"
                return ["failure cause is method, which ends a trial"] * wrong
            case TrialRestarted():
                return []
        faults = trial_rules.end_faults(event, trial, self._file, journal_head=line.head)
        if event.record.status != "failed":
            faults += trial_rules.undecided_rungs(trial, self._progress)
        return faults + trial_rules.provenance_faults(event, trial, self.facts)

    def _attestation_faults(self, event: EpochReported, trial: TrialFacts) -> list[str]:
        if self.facts.last_launch is None:
            return []  # said of the trial's start
        return trial_rules.attestation_faults(event, trial, self._progress, self.facts.last_launch.began)

    def _time_faults(self, event: Event) -> list[str]:
        before, self._time = self._time, max(self._time, event.time)
        try:
            moment = datetime.fromisoformat(event.time)
        except ValueError:
            return [f"time is {event.time!r}; should be UTC, ISO 8601 with microseconds"]
        if moment.tzinfo is None or moment.astimezone(UTC).isoformat(timespec="microseconds") != event.time:
            return [f"time is {event.time!r}; should be UTC, ISO 8601 with microseconds"]
        return [f"time is {event.time}; should be {before} or later, as the event before"] * (event.time < before)

    def _arm_faults(self, name: str) -> list[str]:
        names = [arm.name for arm in self._file.plan.all_arms]
        running = [] if self._is_running else ["no launch is running"]
        return running + ([] if name in names else [f"no arm named {name}; the plan has {', '.join(names)}"])

    def _launch_end_faults(self, event: LaunchEnded) -> list[str]:
        if not self._is_running:
            return ["no launch is running"]
        self._is_running = False
        lines = unlike(event, {"launch": self.facts.launch_number})
        is_last = event.launch == self._last_launch  # what an earlier one was asked for is known no more
        has_work = bool(self.facts.under_way) or (is_last and not self._progress.is_finished)
        wrong = (event.status == "complete" and has_work) or (
            event.status in ("partial", "drained", "paused") and self._progress.is_finished
        )
        return lines + [f"status is {event.status}; trials are {'left' if has_work else 'all done'}"] * wrong

    def _closing_faults(self, event: SearchClosed) -> list[str]:
        if faults := [fault for name in event.arms for fault in self._arm_faults(name)]:
            return faults
        lines = [
            f"arms has {name}, of which no search trial is left"
            for name in event.arms
            if not self._progress.arm(name).search_trials_to_start
        ]
        if event.max_gpu_hours is None:
            wrong = len(event.arms) != 1 or not self._file.plan.arm(event.arms[0]).space
            return lines + ["max_gpu_hours is null, for a spent space; should be of one arm"] * wrong
        return lines + self._unpaid_faults(event, GpuBudget(self._progress).searches_to_close())

    def _unpaid_faults(self, event: SearchClosed | ConfirmClosed, arms: list[str]) -> list[str]:
        """Whether the limit ends these arms' trials; of earlier launches the plan is not known."""
        lines = unlike(event, {"max_gpu_hours": self._progress.max_gpu_hours})
        return lines + (unlike(event, {"arms": arms}) if self.facts.launch_number == self._last_launch else [])

    def _untimely_start(self, event: TrialStarted) -> list[str]:
        """Whether it was the trial's turn, and was paid for; of earlier launches the plan is not known."""
        if self.facts.launch_number != self._last_launch:
            return []
        arm = self._progress.arm(event.arm)
        is_early = event.phase == "confirm" and arm.search_trials_to_start > 0
        budget = GpuBudget(self._progress)
        if event.phase == "pretrain":
            is_unpaid = not budget.allows_pretraining()
        else:
            is_unpaid = event.phase in ("search", "confirm") and not budget.allows(arm, event.phase)
        unpaid = f"the limit of {self._progress.max_gpu_hours} GPU hours had nothing left for it"
        return [f"a confirm trial of {event.arm} while its search goes on"] * is_early + [unpaid] * is_unpaid


def _settled_arms(lines: Sequence[JournalLine]) -> dict[int, set[str]]:
    """Number of each launch -> arms of which it or a launch before it started a trial: they may change no more."""
    settled: dict[int, set[str]] = {}
    arms: set[str] = set()
    for event in [line.event for line in lines]:
        if isinstance(event, LaunchBegan):
            arms = settled[event.launch] = set(arms)
        elif isinstance(event, TrialStarted):
            arms.add(event.arm)
    return settled
