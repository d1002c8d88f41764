"""What a study would have cost and chosen under other rules of its search: `python -m study.replay runs/NAME`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from study.command_line import Parser, guarded
from study.counterfactual.audits import Audit, audit_of
from study.counterfactual.curves import epochs_of
from study.counterfactual.searches import Bounds, Choice, Search, search_under
from study.decisions.progress import StudyProgress
from study.facts.durations import clock
from study.facts.events import FILE, read_events
from study.facts.plan_on_disk import require_plan
from study.facts.study_facts import StudyFacts
from study.plans.plan import AtLeastTwo, EarlyStopping
from study.plans.resolved_plan import Protocol
from trainables.configuration import AtLeastOne
from trainables.schema import Typed, to_plain

EPILOG = """Trials reach a rung in the order of the journal. A number that the journal does not decide is given by the
lowest and the highest that it can be. Without an option the study's own rules are replayed."""


class Options(Typed, frozen=True, kw_only=True):
    """The options of this command; None: as the study was."""

    folder: str
    asha_factor: AtLeastTwo | None
    asha_grace: AtLeastOne | None
    early_stopping: Literal["none", "asha"] | None
    sampler: Literal["random"] | None
    json: bool


class ArmReplay(Typed, frozen=True, kw_only=True):
    """One arm as it was and as it would have been."""

    arm: str
    was: Search
    would_be: Search
    audit: Audit | None  # None: none of its stopped trials was trained to its end


class Replay(Typed, frozen=True, kw_only=True):
    """The answer as `--json` gives it."""

    study: str
    protocol_hash: str
    early_stopping: EarlyStopping | None
    sampler: str
    arms: list[ArmReplay]
    assumptions: list[str]


def main(argv: Sequence[str] | None = None) -> int:
    """0, or 2 if the folder is no study or the rule is none."""
    return guarded("study.replay", lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    options = build_parser().options(Options, argv)
    replay = replay_of(Path(options.folder), options)
    if options.json:
        print(json.dumps(to_plain(replay), indent=1))
    else:
        _print(replay)
    return 0


def build_parser() -> Parser:
    parser = Parser("study.replay", "What a study's searches would have cost and chosen by other rules.", epilog=EPILOG)
    parser.add_argument("folder", metavar="runs/NAME")
    parser.add_argument("--asha-factor", type=int, metavar="F", help="one trial in F goes on from a rung to the next")
    parser.add_argument("--asha-grace", type=int, metavar="G", help="epochs before a search trial can be stopped")
    parser.add_argument("--early-stopping", metavar="none|asha", help="none: no trial is stopped")
    parser.add_argument("--sampler", metavar="random", help="configurations as random search would have drawn them")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    return parser


def replay_of(folder: Path, options: Options) -> Replay:
    """The searches of the study by the rules that the options name.

    Raises:
        ValueError: the folder is no study, has no journal, or no rule follows from the options.
    """
    file = require_plan(folder)
    if not (folder / FILE).exists():
        raise ValueError(f"no {FILE} in {folder}, which has the scores of all epochs; allowed: the folder of a launch")
    events, facts = read_events(folder), StudyFacts()
    own = file.plan.protocol.early_stopping
    if own is not None and own.part is not None:
        raise ValueError(f"{folder} has a rung within the first epoch; allowed: a study whose rungs are whole epochs")
    stopping = stopping_from(options, file.plan.protocol)
    for event in events:
        facts.apply(event)
    progress, epochs = StudyProgress(file.plan, facts, max_gpu_hours=None), epochs_of(events)
    arms = [
        ArmReplay(
            arm=arm.arm.name,
            was=search_under(arm, epochs, stopping=own, is_random=False),
            would_be=search_under(arm, epochs, stopping=stopping, is_random=options.sampler == "random"),
            audit=audit_of(arm),
        )
        for arm in progress.arms
        if arm.facts.search
    ]
    return Replay(
        study=file.name,
        protocol_hash=file.plan.protocol_hash,
        early_stopping=stopping,
        sampler=options.sampler or file.plan.protocol.sampler,
        arms=arms,
        assumptions=_assumptions(progress, stopping, options),
    )


def stopping_from(options: Options, protocol: Protocol) -> EarlyStopping | None:
    """The rule that the options lay over the study's.

    Raises:
        ValueError: they contradict each other.
    """
    given = {"factor": options.asha_factor, "grace": options.asha_grace}
    given = {name: value for name, value in given.items() if value is not None}
    if options.early_stopping == "none":
        if given:
            raise ValueError(f"--asha-{next(iter(given))} is of ASHA, which --early-stopping none leaves out")
        return None
    if protocol.early_stopping is None and not (given or options.early_stopping):
        return None
    fields = to_plain(protocol.early_stopping or EarlyStopping())
    return EarlyStopping(**(fields | given))


def _assumptions(progress: StudyProgress, stopping: EarlyStopping | None, options: Options) -> list[str]:
    """What the answer takes for granted."""
    protocol = progress.plan.protocol
    lines = []
    if stopping != protocol.early_stopping and protocol.sampler == "tpe" and options.sampler is None:
        lines.append("configurations as the study drew them; TPE would have drawn others after its first ten")
    if stopping is not None and stopping != protocol.early_stopping:
        lines.append("trials reach a rung in the order of the journal; on slots that are free earlier it may differ")
    if options.sampler is not None:
        lines.append("a configuration that the study tried too has its seed")
    running = [trial for trial in progress.facts.under_way.values() if trial.phase == "search"]
    if running:
        lines.append(f"{len(running)} search trials are under way: their later epochs are not known")
    return lines


def _print(replay: Replay) -> None:
    console, rule = Console(highlight=False), replay.early_stopping
    asha = f"ASHA with grace {rule.grace} and factor {rule.factor}" if rule else "no early stopping"
    console.print(f"study {replay.study} ({replay.protocol_hash}) by {asha}, sampler {replay.sampler}", markup=False)
    table = Table(box=None, pad_edge=False)
    for column in ("arm", "epochs were", "would be", "slot time was", "would be"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for arm in replay.arms:
        was, would_be = arm.was, arm.would_be
        times = [_in_words(bounds, seconds=True) for bounds in (was.seconds, would_be.seconds)]
        table.add_row(arm.arm, _in_words(was.epochs), _in_words(would_be.epochs), *times)
    console.print(table)
    for arm in replay.arms:
        console.print(f"{arm.arm} would have chosen: {chosen_in_words(arm)}", markup=False, soft_wrap=True)
        if arm.audit:
            console.print(f"{arm.arm}: {arm.audit.in_words()}", markup=False, soft_wrap=True)
    for line in replay.assumptions:
        console.print(f"assumed: {line}", markup=False, soft_wrap=True)


def chosen_in_words(arm: ArmReplay) -> str:
    """What would have been chosen, beside what was; what is not known is said."""
    chosen, rivals = arm.would_be.chosen, arm.would_be.rivals
    if chosen is None:
        return f"not known: one of {rivals} trials" if rivals else "none: no trial completes"
    same = arm.was.chosen is not None and chosen.trial == arm.was.chosen.trial
    words = "the same" if same else _choice_in_words(chosen)
    return f"{words}, unless {_rivals_in_words(rivals)} would have been better" if rivals else words


def _rivals_in_words(rivals: int) -> str:
    """Trials that were stopped or are under way, and configurations that were never tried."""
    which = "1 trial" if rivals == 1 else f"one of {rivals} trials"
    return f"{which} whose end by these rules is not known"


def _choice_in_words(chosen: Choice) -> str:
    score = f"search {chosen.trial}, search score {100 * chosen.selection_score:.1f}"
    if chosen.median is None:
        return f"{score}; its confirm score is not known"
    return f"{score}, confirm median {100 * chosen.median:.1f}"


def _in_words(bounds: Bounds, *, seconds: bool = False) -> str:
    low, high = (clock(bound) if seconds else f"{bound:.0f}" for bound in (bounds.low, bounds.high))
    return low if low == high else f"{low} to {high}"


if __name__ == "__main__":
    sys.exit(main())
