"""Show the progress of a launch, as a live table if the terminal can overwrite lines, else as plain lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, TextIO

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from study.decisions.progress import StudyProgress
from study.decisions.scheduler import Scheduler
from study.drivers.messages import Steps
from study.facts.study_facts import TrialFacts
from study.launching.forecast import remaining_seconds
from study.launching.screen import arms_table, build_table, describe_notice, describe_record, describe_step, name_trial
from study.terminal.output import can_redraw, console_on
from study.terminal.text import clock, counted, list_first, points, wrap_text
from trainables.runs.trial import blocked_exit

if TYPE_CHECKING:
    from study.drivers.driver import Driver

_REFRESH_SECONDS = 0.5
_SIGN_OF_LIFE_SECONDS = 30.0  # without a live table: print a line this often while no trial ends
_NAMED = 3  # at most so many trials are named for each epoch
BAR = 24  # maximum width of the progress bar, in columns
_RUNNING = ("running", "epoch", "score", "time")
_LEAST_ARMS = 3  # minimum number of rows for arms, if many trials run
_A_SLOT, _THE_NEXT_LAUNCH = "a slot", "the next launch"  # what a trial that is not running waits for


class LiveView:
    """Shows the progress of a study. `update` may be called often, but draws at most twice a second."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        slots: Callable[[Collection[str]], int],
        output: TextIO,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Prepare the view. `slots(nodes)` counts the trials that can run at once on all nodes except `nodes`."""
        self._scheduler = scheduler
        self._progress = scheduler.progress
        self._slots = slots
        self._output, self._console = output, console_on(output)
        self._clock, self._started = clock, clock()
        self._at_work, self._awaited = frozenset[str](), ""
        self._steps: Mapping[str, Steps] = {}
        self._waits_for = _A_SLOT
        self._next_refresh = 0.0
        self._next_sign_of_life = self._started + _SIGN_OF_LIFE_SECONDS
        self._printed = len(scheduler.facts.records)  # number of records already printed, by this or earlier launches
        self._noticed = 0  # number of notices already printed
        self._blocked = set[str]()  # arms for which the lack of early exits was reported
        self._live = Live(console=self._console, auto_refresh=False) if can_redraw(self._console) else None

    def __enter__(self) -> LiveView:
        """Start the live table if the terminal can show it."""
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Draw the final state, which stays on the screen."""
        self._at_work, self._awaited, self._waits_for = frozenset(), "", _THE_NEXT_LAUNCH
        if self._live:
            self._live.update(self._table(), refresh=True)
            self._live.stop()
        else:
            self._print_ended()

    def update(self, driver: Driver) -> None:
        """Show the driver's progress, unless the last update was less than half a second ago."""
        now = self._clock()
        if now < self._next_refresh:
            return
        self._next_refresh = now + _REFRESH_SECONDS
        self._at_work, self._awaited, self._steps = frozenset(driver.at_work), driver.awaited, driver.steps
        self._waits_for = _THE_NEXT_LAUNCH if self._scheduler.draining else _A_SLOT
        self._print_notices()
        if self._live:
            self._live.update(self._table(), refresh=True)
        else:
            self._print_ended()

    def _print_notices(self) -> None:
        notices = self._progress.facts.notices
        for notice in notices[self._noticed :]:
            self.say(describe_notice(notice))
        self._noticed = len(notices)
        for trial in self._progress.under_way.values():
            reason = blocked_exit(trial.last.row.metrics, trial.config) if trial.last else ""
            if reason and trial.started.arm not in self._blocked:
                self._blocked.add(trial.started.arm)
                self.say(f"{name_trial(trial.started)}, epoch {trial.epochs}: {reason}")

    def say(self, line: str) -> None:
        """Print a line. If there is a live table, the line appears above it."""
        self._console.print(wrap_text(line, self._output), markup=False, soft_wrap=True)

    def _print_ended(self) -> None:
        now = self._clock()
        if now > self._next_sign_of_life:
            self._next_sign_of_life = now + _SIGN_OF_LIFE_SECONDS
            self.say(f"{self._describe_under_way()}  {self._time_line()}")
        new = self._progress.facts.records[self._printed :]
        time_line = self._time_line() if new else ""  # computed once, because it takes milliseconds
        for record in new:
            self._printed += 1
            self._next_sign_of_life = now + _SIGN_OF_LIFE_SECONDS
            ended = self._progress.ended_trials - (len(self._progress.facts.records) - self._printed)
            place = f"{ended}/{self._progress.total_trials}"
            self.say(f"[{place}] {describe_record(record)}  {time_line}")

    def _describe_under_way(self) -> str:
        """List the running trials, grouped by number of completed epochs, and then the waiting trials."""
        running: dict[int, list[str]] = {}
        waiting: list[str] = []
        for trial in self._progress.under_way.values():
            names = running.setdefault(trial.epochs, []) if trial.key in self._at_work else waiting
            names.append(f"{name_trial(trial.started)}{describe_step(trial, self._steps, ' ({})')}")
        words = list[str]()
        for epochs, names in sorted(running.items()):
            place = f"past epoch {epochs}" if epochs else f"in {'their' if len(names) > 1 else 'its'} first epoch"
            words.append(f"{place}: {list_first(names, _NAMED)}")
        words += [f"waiting for {self._waits_for}: {list_first(waiting, _NAMED)}"] if waiting else []
        return f"under way: {'; '.join(words) or self._awaited or 'nothing yet'}"

    def _table(self) -> Group:
        size = self._console.size
        return live_layout(
            self._progress,
            at_work=self._at_work,
            steps=self._steps,
            awaited=self._awaited,
            waits_for=self._waits_for,
            time_line=self._time_line(),
            draining=self._scheduler.draining,
            width=size.width,
            height=size.height - 1,  # one line is for the cursor
        )

    def _time_line(self) -> str:
        elapsed = self._clock() - self._started
        left = remaining_seconds(self._progress, self._steps)
        slots = max(1, min(self._slots(self._progress.facts.left_out), self._progress.trials_left))
        eta = f", about {clock(left / slots)} left" if left is not None else ""
        return f"elapsed {clock(elapsed)}{eta}"


# ---- the live table, laid out to fit the terminal


def live_layout(
    progress: StudyProgress,
    *,
    at_work: Collection[str],
    steps: Mapping[str, Steps],
    awaited: str,
    waits_for: str,
    time_line: str,
    draining: bool,
    width: int,
    height: int,
) -> Group:
    """Lay out the progress bar, the running trials and the arms.

    Trials and arms that do not fit on the screen are counted but not listed.

    Args:
        at_work: keys of the running trials.
        steps: steps done in each running trial's current epoch, by key.
        awaited: what the launch waits for before its first trial; "" afterwards.
        waits_for: what waiting trials need: `a slot` (room to run) or `the next launch`.
        draining: whether the launch is saving its trials and stopping.
        width: number of columns of the terminal.
        height: number of lines of the terminal.
    """
    parts: list[RenderableType] = [_build_bar(progress, steps, time_line, draining=draining, width=width)]
    left = height - 1  # the bar is one line
    if awaited and left:
        parts.append(Text(awaited, style="dim"))
        left -= 1
    under_way = progress.under_way.values()
    running = [trial for trial in under_way if trial.key in at_work]
    waiting = len(under_way) - len(running)
    arms = len(progress.arms)
    room = left - 1 - min(arms, _LEAST_ARMS) - (arms > _LEAST_ARMS)  # number of lines for running trials
    if room >= 2:
        shown = running if len(running) + 1 + bool(waiting) <= room else running[: room - 2]
        if shown:
            parts.append(_build_running_table(shown, steps, width=width))
            left -= 1 + len(shown)
        if others := _count_others(len(running) - len(shown), waiting, waits_for):
            parts.append(Text(others, style="dim"))
            left -= 1
    return Group(*parts, *_build_arms(progress, width=width, room=left - 1))


def _count_others(others: int, waiting: int, waits_for: str) -> str:
    """Describe how many running trials have no row in the table, and how many trials are waiting."""
    words = [f"and {counted(others, 'more trial')}"] if others else []
    words += [f"{counted(waiting, 'trial')} {'wait' if waiting > 1 else 'waits'} for {waits_for}"] if waiting else []
    return "; ".join(words)


def _build_bar(
    progress: StudyProgress, steps: Mapping[str, Steps], time_line: str, *, draining: bool, width: int
) -> Table:
    """Build the bar, which also moves with the epochs and steps of unfinished trials, and the words behind it."""
    ended, total = progress.ended_trials, progress.total_trials
    done = ended + sum(_compute_share(trial, steps.get(trial.key)) for trial in progress.under_way.values())
    words = f"{'saving and stopping, ' if draining else ''}{ended}/{total} trials  {time_line}"
    bar = ProgressBar(total=max(1, total), completed=done, width=max(0, min(BAR, width - len(words) - 2)))
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_row(bar, Text(words, no_wrap=True, overflow="ellipsis"))
    return line


def _compute_share(trial: TrialFacts, steps: Steps | None) -> float:
    """Compute the share of a trial's epochs that are done. Steps of the current epoch count in part."""
    epochs = trial.config["epochs"]
    assert isinstance(epochs, int)
    return min(1.0, (trial.epochs + (steps.done / steps.of if steps else 0.0)) / epochs)


def _build_running_table(trials: list[TrialFacts], steps: Mapping[str, Steps], *, width: int) -> Table:
    rows = []
    for trial in trials:
        seconds = trial.last.wall_seconds if trial.last else 0.0
        seconds += steps[trial.key].seconds if trial.key in steps else 0.0
        epochs = f"{trial.epochs}/{trial.config['epochs']}{describe_step(trial, steps, ', {}')}"
        score = "" if trial.last is None else points(trial.last.row.selection_score)
        rows.append((name_trial(trial.started), epochs, score, clock(seconds)))
    return build_table(_RUNNING, rows, width=width, dispensable=("time", "score"))


def _build_arms(progress: StudyProgress, *, width: int, room: int) -> list[RenderableType]:
    """Build the table of arms. If some arms do not fit, add a line that counts them.

    Arms with unfinished trials have the highest priority, complete arms the lowest. The arms that fit are listed in
    the plan's order.
    """
    if room < 1:
        return []
    if len(progress.arms) <= room:
        return [arms_table(progress.arms, width=width)]
    ranked = sorted(progress.arms, key=lambda arm: (not arm.facts.under_way, not arm.missing, not arm.facts.trials))
    shown, rest = [arm for arm in progress.arms if arm in ranked[: room - 1]], ranked[room - 1 :]
    complete = sum(1 for arm in rest if not arm.missing)
    words = f"and {counted(len(rest), 'more arm')}: {complete} complete, {len(rest) - complete} incomplete"
    return [arms_table(shown, width=width), Text(words, style="dim")]
