"""What the live view shows, laid out to fit a terminal: how far all is, the trials that run, and the arms."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from study.decisions.progress import ArmProgress, StudyProgress
from study.facts.durations import clock
from study.facts.plain_words import counted
from study.facts.record import epochs_in_words
from study.facts.study_facts import TrialFacts
from study.screen.arms_table import arms_table, table_of
from study.screen.words import points, trial_name

BAR = 24  # columns, at most
_RUNNING = ("running", "epoch", "score", "time")
_LEAST_ARMS = 3  # that are shown, however many trials run


def live_layout(progress: StudyProgress, *, time_line: str, draining: bool, width: int, height: int) -> Group:
    """At most `height` lines of `width` columns: the bar, trials that run, arms; of many a line says how many more."""
    parts: list[RenderableType] = [_overall(progress, time_line, draining=draining, width=width)]
    running = list(progress.under_way.values())
    left = height - 1  # the bar is one line
    arms = len(progress.arms) + (progress.pretraining is not None)
    room = left - 1 - min(arms, _LEAST_ARMS) - (arms > _LEAST_ARMS)  # under the arms' own header
    if running and room >= 2:
        shown = running if len(running) + 1 <= room else running[: room - 2]
        parts.append(_running_table(shown, progress, width=width) if shown else Text())
        left -= 1 + len(shown)
        if len(shown) < len(running):
            parts.append(Text(f"and {len(running) - len(shown)} trials more", style="dim"))
            left -= 1
    return Group(*parts, *_arms(progress, width=width, room=left - 1))


def _overall(progress: StudyProgress, time_line: str, *, draining: bool, width: int) -> Table:
    ended, total = progress.ended_trials, progress.total_trials
    words = f"{'saving and stopping, ' if draining else ''}{ended}/{total} trials  {time_line}"
    bar = ProgressBar(total=max(1, total), completed=ended, width=max(0, min(BAR, width - len(words) - 2)))
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_row(bar, Text(words, no_wrap=True, overflow="ellipsis"))
    return line


def _running_table(trials: list[TrialFacts], progress: StudyProgress, *, width: int) -> Table:
    rows = [(trial_name(trial), *_running_cells(trial, progress)) for trial in trials]
    return table_of(_RUNNING, rows, width=width, dispensable=("time", "score"))


def _running_cells(trial: TrialFacts, progress: StudyProgress) -> tuple[str, str, str]:
    epochs = progress.arm(trial.started.arm).arm.epochs
    if trial.last is None:
        return f"0/{epochs}", "", ""
    report = trial.last.report
    score = "" if trial.phase == "pretrain" else points(report.row.selection_score)
    return f"{epochs_in_words(trial.epochs)}/{epochs}", score, clock(report.wall_seconds)


def _arms(progress: StudyProgress, *, width: int, room: int) -> list[RenderableType]:
    """The table of as many arms as there is room for, those first that run, then those that have begun."""
    room -= progress.pretraining is not None
    if room < 1:
        return []
    if len(progress.arms) <= room:
        return [arms_table(progress, width=width)]
    first = sorted(progress.arms, key=_rank)[: room - 1]
    shown = [arm for arm in progress.arms if arm in first]
    rest = [arm for arm in progress.arms if arm not in first]
    complete = sum(1 for arm in rest if not arm.missing)
    words = ", ".join(
        f"{n} {word}" for n, word in ((complete, "complete"), (len(rest) - complete, "not complete")) if n
    )
    return [
        arms_table(progress, width=width, arms=shown),
        Text(f"and {counted(len(rest), 'arm')} more: {words}", style="dim"),
    ]


def _rank(arm: ArmProgress) -> int:
    if arm.facts.under_way:
        return 0
    if not arm.missing:
        return 3
    return 1 if arm.facts.trials else 2
