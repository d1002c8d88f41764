"""What the live view shows, laid out to fit a terminal: how far all is, the trials that run, and the arms."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from study.decisions.progress import ArmProgress, StudyProgress
from study.facts.durations import clock
from study.facts.plain_words import counted
from study.facts.study_facts import TrialFacts
from study.screen.arms_table import arms_table, table_of
from study.screen.words import points, trial_name

BAR = 24  # columns, at most
_RUNNING = ("running", "epoch", "score", "time")
_LEAST_ARMS = 3  # that are shown, however many trials run


def live_layout(
    progress: StudyProgress,
    *,
    seconds: Mapping[str, float],
    awaited: str,
    waits_for: str,
    time_line: str,
    draining: bool,
    width: int,
    height: int,
) -> Group:
    """At most `height` lines of `width` columns: the bar, trials that run, arms; of many a line says how many more.

    `seconds`: how long each trial has run that runs now, by key; `awaited`: what there is before the first;
    `waits_for`: what trials wait for that do not run.
    """
    parts: list[RenderableType] = [_overall(progress, time_line, draining=draining, width=width)]
    left = height - 1  # the bar is one line
    if awaited and left:
        parts.append(Text(awaited, style="dim"))
        left -= 1
    under_way = progress.under_way.values()
    running = [trial for trial in under_way if trial.key in seconds]
    waiting = len(under_way) - len(running)
    arms = len(progress.arms)
    room = left - 1 - min(arms, _LEAST_ARMS) - (arms > _LEAST_ARMS)  # under the arms' own header
    if room >= 2:
        shown = running if len(running) + 1 + bool(waiting) <= room else running[: room - 2]
        if shown:
            parts.append(_running_table(shown, progress, seconds, width=width))
            left -= 1 + len(shown)
        if others := _others(len(running) - len(shown), waiting, waits_for):
            parts.append(Text(others, style="dim"))
            left -= 1
    return Group(*parts, *_arms(progress, width=width, room=left - 1))


def _others(more: int, waiting: int, waits_for: str) -> str:
    """Trials that run and have no line, and those that wait."""
    words = [f"and {counted(more, 'trial')} more"] if more else []
    words += [f"{counted(waiting, 'trial')} {'wait' if waiting > 1 else 'waits'} for {waits_for}"] if waiting else []
    return "; ".join(words)


def _overall(progress: StudyProgress, time_line: str, *, draining: bool, width: int) -> Table:
    ended, total = progress.ended_trials, progress.total_trials
    words = f"{'saving and stopping, ' if draining else ''}{ended}/{total} trials  {time_line}"
    bar = ProgressBar(total=max(1, total), completed=ended, width=max(0, min(BAR, width - len(words) - 2)))
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_row(bar, Text(words, no_wrap=True, overflow="ellipsis"))
    return line


def _running_table(
    trials: list[TrialFacts], progress: StudyProgress, seconds: Mapping[str, float], *, width: int
) -> Table:
    rows = [(trial_name(trial), *_running_cells(trial, progress), clock(seconds[trial.key])) for trial in trials]
    return table_of(_RUNNING, rows, width=width, dispensable=("time", "score"))


def _running_cells(trial: TrialFacts, progress: StudyProgress) -> tuple[str, str]:
    epochs = progress.arm(trial.started.arm).arm.epochs
    if trial.last is None:
        return f"0/{epochs}", ""
    return f"{trial.epochs}/{epochs}", points(trial.last.row.selection_score)


def _arms(progress: StudyProgress, *, width: int, room: int) -> list[RenderableType]:
    """The table of as many arms as there is room for, those first that run, then those that have begun."""
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
