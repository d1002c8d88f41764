"""Print the best configuration of each arm: `python -m study.winners runs/NAME`.

`--format toml` prints a plan that repeats these configurations without a search, for `study.launch --plan`. A launch
writes the same plan to `best.toml` in the study's folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

from msgspec import UNSET
from msgspec.structs import replace

from study.decisions.progress import ArmProgress, StudyProgress, read_progress
from study.decisions.winners import list_arms_with_winner, searched_values
from study.facts.plan_file import format_plan
from study.facts.record import Record
from study.plans.settings import is_searched
from study.terminal.command_line import Command, argument, option
from study.terminal.text import counted, points
from trainables import find_varied_field, is_value_variant
from trainables.configuration import list_defaults
from trainables.configuration.schema import Typed

BEST = "best.toml"  # one of the study's exports


def _best_trial(arm: ArmProgress) -> Record:
    """Return the best trial of the arm's search, by selection score."""
    assert arm.winner is not None and arm.winner.search is not None
    return arm.winner.search


def as_toml(progress: StudyProgress) -> str:
    """Format a plan that uses the winners' values instead of a search. Comments at the top give the scores."""
    request = progress.plan.request
    settings = {key: setting for key, setting in request.settings.items() if not is_searched(setting)}
    won = {arm.name: searched_values(arm) for arm in list_arms_with_winner(progress)}
    for arm in progress.plan.first_arms:
        values = won.get(arm.name, {})
        if is_value_variant(arm.method) and not arm.space:  # its method's key would change the values that it had
            fields = {*won.get(f"{arm.base_method}/{arm.task}", {})} - {find_varied_field(arm.method)}
            values = {name: value for name, value in {**list_defaults(), **arm.fixed}.items() if name in fields}
        settings |= {f"{arm.name}:{name}": value for name, value in values.items()}
    unset = {"search_only": UNSET, "search_precision": UNSET, "first": UNSET}
    plan = replace(request, samples=0, search_repeats=1, settings=settings, **unset)
    undecided = [arm for arm in progress.arms if arm.planned.space and not arm.planned.repeat and not arm.winner]
    lines = [
        "These are the winners of a study. `study.launch --plan` repeats them without a search.",
        *as_text(progress).splitlines(),
    ]
    for each in undecided:  # a value of a method has the keys of its method, too
        is_of_values = is_value_variant(each.planned.method)
        source = f"the values of {each.planned.base_method}" if is_of_values else "the paper's values"
        lines.append(f"{each.name} has no winner yet, so this plan has {source}")
    return "".join(f"# {line}\n" for line in lines) + format_plan(plan)


def as_json(progress: StudyProgress) -> str:
    """Format a JSON list of arms, with their searched values, fixed values and scores in [-1, 1]."""
    arms = [
        {
            "arm": arm.name,
            "searched": searched_values(arm),
            "fixed": arm.planned.fixed,
            "selection_score": _best_trial(arm).selection_score,
            "scores": {record.seed: record.score for record in arm.confirmed},
            "median": arm.median,
        }
        for arm in list_arms_with_winner(progress)
    ]
    return json.dumps(arms, indent=1) + "\n"


def as_text(progress: StudyProgress) -> str:
    """Format a line for each arm: the winner's values, its search score, and the median score over seeds.

    The values come first: `palbert/rte: learning_rate 2.1e-05, beta 0.31`.
    """
    return "".join(
        f"{arm.name}: {_format_values(arm)} ({_format_scores(arm)})\n" for arm in list_arms_with_winner(progress)
    )


def _format_values(arm: ArmProgress) -> str:
    values = {
        name: f"{value:.3g}" if isinstance(value, float) else value for name, value in searched_values(arm).items()
    }
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _format_scores(arm: ArmProgress) -> str:
    search = f"search score {points(_best_trial(arm).selection_score)}"
    if arm.median is None:
        return f"{search}; no seed is finished"
    return f"{search}; median of {counted(len(arm.confirmed), 'seed')}: {points(arm.median)}"


FORMATS = {"text": as_text, "toml": as_toml, "json": as_json}


class Options(Typed, frozen=True, kw_only=True):
    """Options of `study.winners`."""

    folder: Annotated[str, argument("runs/NAME", "the study's folder")]
    format: Annotated[Literal["text", "toml", "json"], option("output format; default: text")] = "text"


def run(options: Options) -> int:
    """Print the winners. Return 0 if at least one search has a winner, else 1."""
    progress = read_progress(Path(options.folder))
    if not list_arms_with_winner(progress):
        print("no search of this study has completed a trial", file=sys.stderr)
        return 1
    print(FORMATS[options.format](progress), end="")
    return 0


main = Command("study.winners", Options, __doc__ or "", run)

if __name__ == "__main__":
    sys.exit(main())
