"""Departures: how the protocol, the pretrainings and the methods of a plan differ from the papers."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from msgspec import UNSET

import search_spaces
import trainables
from search_spaces.objectives import Recipe
from study.plans import profiles
from study.plans.resolved_plan import Arm, Departures, ResolvedPlan, list_poolings
from study.plans.settings import is_searched, shorten
from study.terminal.text import read_width, wrap_line
from trainables import Departure
from trainables.configuration import PonderConfig, list_defaults
from trainables.configuration.schema import Configuration

SEEDS_OF_PAPERS = 5  # PALBERT, section 4.1; lmtuners
WIDTH = 120  # columns of the list of departures if there is no terminal
OF_TINY_RECIPE = Departure("steps, packing, optimiser", "", "unpublished, for tiny random backbones")


def list_departures(plan: ResolvedPlan) -> dict[str, Departures]:
    """Map "protocol", each pretraining objective and each method to its departures from the papers."""
    by_method: dict[str, Departures] = {
        name: tuple(
            departure
            for departure in trainables.departures(name)
            if any(does_hold(departure, arm) for arm in plan.arms if _choose_name(arm) == name)
        )
        for name in dict.fromkeys(map(_choose_name, plan.arms))
    }
    return {"protocol": _list_protocol(plan)} | _list_pretraining(plan.arms) | by_method


def _choose_name(arm: Arm) -> str:
    """Return the name under which an arm's departures are listed.

    This is the variant (`palbert:a`) if the variant has departures of its own, else the method.
    """
    is_special = trainables.departures(arm.method) != trainables.departures(arm.base_method)
    return arm.method if is_special else arm.base_method


def does_hold(departure: Departure, arm: Arm) -> bool:
    """Check if a method's departure applies to an arm of the method.

    The arm must search each field that the departure names, or fix it at the value in the method's file. A field may
    have its default in both.
    """
    space = search_spaces.load_space(arm.base_method)
    in_file = {**list_defaults(), **space.fixed, **space.fixed_by_task.get(arm.task, {})}
    menus = {**space.paper_grid, **{field: [value] for field, value in in_file.items()}}
    fields, tuned = menus.keys() & {*departure.what.split(", ")}, {*arm.searched_fields} & {*space.space}
    return all(field in tuned or menus[field] == [arm.read_field(field)] != [None] for field in fields)


def describe_departures(plan: ResolvedPlan) -> list[str]:
    """Format the departures from the papers as lines, in groups.

    The groups are the protocol, each pretraining, all methods together, and each method.
    """
    rules = ["protocol", *_list_pretraining(plan.arms)]
    by_method = {name: lines for name, lines in plan.departures.items() if name not in rules}
    shared = [line for line in next(iter(by_method.values()), ()) if all(line in lines for lines in by_method.values())]
    shown = {name: plan.departures[name] for name in rules}
    if len(by_method) > 1:
        shown["all methods"] = tuple(shared)
        by_method = {name: tuple(line for line in lines if line not in shared) for name, lines in by_method.items()}
    width, text = read_width(sys.stdout) or WIDTH, list[str]()
    for name, lines in (shown | by_method).items():
        if lines:
            text += [f"  {name}:", *(wrap_line(f"    {line}", width) for line in lines)]
    return ["differences from the papers and their code:", *text] if text else []


def list_pretraining_departures(recipe: Recipe, settings: Configuration, *, is_tiny: bool) -> Departures:
    """List how a pretraining differs from the papers. `settings` contains the values set by hand.

    A departure of `recipe` is omitted if `settings` changes a field that the departure names. For a tiny backbone,
    `OF_TINY_RECIPE` replaces the departures of `recipe`.
    """
    changed = {field for field, value in settings.items() if value != recipe.fixed[field]}
    unchanged = [departure for departure in recipe.departures if not changed & {*departure.what.split(", ")}]
    by_hand = [Departure("set by hand", "", ", ".join(settings))] if settings else []
    return (*([OF_TINY_RECIPE] if is_tiny else unchanged), *by_hand)


def _list_pretraining(arms: Sequence[Arm]) -> dict[str, Departures]:
    """Map each pretraining objective to its departures from the papers."""
    departures = dict[str, Departures]()
    for arm in arms:
        for made in arm.pretraining.stages if arm.pretraining is not UNSET else ():
            departures[made.objective] = tuple(dict.fromkeys([*departures.get(made.objective, ()), *made.departures]))
    return departures


def _list_protocol(plan: ResolvedPlan) -> Departures:
    request, arms = plan.request, plan.arms
    profile = profiles.load_profile(request.profile).settings
    by_hand = [key for key, setting in request.settings.items() if (key, setting) not in profile.items()]
    searched = dict.fromkeys(shorten(key) for key in by_hand if is_searched(request.settings[key]))
    fixed = dict.fromkeys(shorten(key) for key in by_hand if not is_searched(request.settings[key]))
    kept = ", ".join(key for key in request.settings if key not in by_hand)
    precision = request.search_precision
    differences = {  # (subject, in the papers, here) -> whether the departure holds
        (f"set by profile {request.profile}", "", kept): bool(kept),
        ("set by hand", "", ", ".join(fixed)): bool(fixed),
        ("ranges by hand", "", ", ".join(searched)): bool(searched),
        (
            "data and backbones",
            "GLUE",
            "generated and tiny, so the numbers say nothing about GLUE",
        ): request.is_generated,
        ("search trials", "run to the end", "stopped by ASHA"): request.early_stopping is not None,
        ("search", "a grid", f"{request.sampler} over ranges"): request.sampler != "grid",
        ("grid", "all points", "some of the points"): (
            request.sampler == "grid" and any(arm.can_search_more for arm in arms)
        ),
        ("selection", "on dev", "on a slice of train"): request.selection == "holdout",
        ("selection by", "the score", str(request.select_by)): request.select_by is not UNSET,
        ("weights of backbones", "pretrained", "random, not pretrained"): bool(plan.untrained),
        ("poolers of backbones", "pretrained", "random, in methods that use a pooler"): bool(plan.without_pooler),
        ("poolers of backbones", "pretrained", "not trained, in methods that use a pooler"): bool(
            plan.without_trained_pooler
        ),
        ("seeds", str(SEEDS_OF_PAPERS), str(request.seeds)): request.seeds != SEEDS_OF_PAPERS,
        ("fields that the papers tune", "searched", "one value"): request.searched_alone is not UNSET,
        ("precision of search trials", "", str(precision)): precision is not UNSET,
        ("variants", "", "fix some fields, even if a difference below names them"): (
            len({arm.method for arm in arms}) > len({*map(_choose_name, arms)})
        ),
    }
    pooled = [
        Departure(f"pooling of {', '.join(names)}", "[CLS] through the backbone's pooler", words)
        for words, names in list_poolings(plan).items()
    ]
    lines = [Departure(*line) for line, holds in differences.items() if holds]
    return (*lines, *pooled, *_list_truncations(plan))


def _list_truncations(plan: ResolvedPlan) -> list[Departure]:
    """List the methods that truncate posteriors in each part of a batch, because gradients are accumulated."""
    names = [
        arm.method
        for arm in plan.arms
        if issubclass(trainables.load_method(arm.method).Config, PonderConfig)
        and arm.find_most("gradient_accumulation") > 1
    ]
    if not names:
        return []
    what = f"end of the posteriors of {', '.join(dict.fromkeys(names))}"
    return [Departure(what, "where all of the batch are truncated", "where all of its part are")]
