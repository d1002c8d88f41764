"""Departures of a plan from the papers: of its rules, and of each of its methods."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from msgspec import UNSET

import trainables
from search_spaces.objectives import Recipe
from study import profiles
from study.facts.plain_words import columns, counted, wrapped
from study.plans.plan import Plan
from study.plans.ranges import is_searched, shorten
from study.plans.resolved_plan import Arm, ResolvedPlan, untrained_backbones
from trainables.schema import Configuration

SEEDS_OF_PAPERS = 5  # PALBERT, section 4.1; lmtuners
WIDTH = 120  # of the lines about departures if there is no terminal
OF_TINY_RECIPE = "steps, packing and optimiser are for a tiny random backbone, and of no publication"


def departures(asked: Plan, arms: Sequence[Arm]) -> dict[str, tuple[str, ...]]:
    """A line for each, under "protocol" and under each method's name."""
    methods = dict.fromkeys(arm.base_method for arm in arms)
    own = {method: trainables.departures(method) for method in methods}
    return {"protocol": _of_protocol(asked, arms)} | _of_pretraining(arms) | own


def departures_in_words(plan: ResolvedPlan) -> list[str]:
    """The departures of a plan for a screen: what all methods share once, then each method's own."""
    rules = ["protocol", *_of_pretraining(plan.arms)]
    own = {who: lines for who, lines in plan.departures.items() if who not in rules}
    shared = [line for line in next(iter(own.values()), ()) if all(line in lines for lines in own.values())]
    shown = {who: plan.departures[who] for who in rules}
    if len(own) > 1:
        shown["all methods"] = tuple(shared)
        own = {who: tuple(line for line in lines if line not in shared) for who, lines in own.items()}
    width = columns(sys.stdout) or WIDTH
    paragraphs = [f"  {who}: {'; '.join(lines)}" for who, lines in (shown | own).items() if lines]
    wrapped_lines = [wrapped(text, width) for text in paragraphs]
    return ["where this is not what the papers and their code did:", *wrapped_lines] if wrapped_lines else []


def pretraining_departures(recipe: Recipe, settings: Configuration, *, is_tiny: bool) -> tuple[str, ...]:
    """The recipe's; tiny random backbones have another."""
    lines = (OF_TINY_RECIPE,) if is_tiny else recipe.departures
    by_hand = f"set by hand, whatever is said of these fields here: {', '.join(settings)}"
    return (*lines, *([by_hand] if settings else []))


def _of_pretraining(arms: Sequence[Arm]) -> dict[str, tuple[str, ...]]:
    """Those of the recipe that a backbone was pretrained by here, by its name."""
    return {made.objective: made.departures for arm in arms if (made := arm.pretraining) is not UNSET}


def _of_protocol(asked: Plan, arms: Sequence[Arm]) -> tuple[str, ...]:
    of_profile = profiles.load(asked.profile).settings
    own = [key for key, setting in asked.settings.items() if (key, setting) not in of_profile.items()]
    searched = dict.fromkeys(shorten(key) for key in own if is_searched(asked.settings[key]))
    fixed = dict.fromkeys(shorten(key) for key in own if not is_searched(asked.settings[key]))
    kept = ", ".join(key for key in asked.settings if key not in own)
    lines = {
        f"profile {asked.profile}, which overrides what is said of these fields below: {kept}": bool(kept),
        f"set by hand, which overrides what is said of these fields below: {', '.join(fixed)}": bool(fixed),
        f"ranges by hand, which override what is said of these fields below: {', '.join(searched)}": bool(searched),
        "generated tasks and tiny random backbones: the numbers say nothing of GLUE": asked.is_generated,
        "ASHA stops search trials, which the papers run to their own stop": asked.early_stopping is not None,
        f"{asked.sampler} search over ranges, where the papers try a grid": asked.sampler != "grid",
        "part of the grid": asked.sampler == "grid" and any(arm.samples < len(arm.first) for arm in arms),
        "selected on a slice of train, where the papers select on dev": asked.selection == "holdout",
        "backbones with random weights, which nothing has pretrained": bool(untrained_backbones(asked, arms)),
        f"{counted(asked.seeds, 'seed')}, where the papers have {SEEDS_OF_PAPERS}": asked.seeds != SEEDS_OF_PAPERS,
        "fields that the papers tune have one value": asked.searched_alone is not UNSET,
        f"search trials compute in {asked.search_precision}, whatever is said of precision below": (
            asked.search_precision is not UNSET
        ),
        "variants fix fields of their own, whatever is said of these below": any(
            arm.method != arm.base_method for arm in arms
        ),
    }
    return tuple(line for line, holds in lines.items() if holds)
