"""Resolve a plan to its arms (one method on one task each), with the origin of every value.

If a field is in several of these layers, the last layer applies:

    fixed fields: FIXED, FIXED_BY_TASK, FIXED_BY_FAMILY, MINI_FIXED, VARIANTS of the method's search space
    tuned fields: SPACE, MINI_SPACE; with the grid sampler PAPER_GRID, MINI_GRID
    exit settings: POST_HOC; each search trial evaluates its model with all these values
    all fields: the plan's settings (`study.plans.settings`), first for all methods, then the method, then the arm

A field fixed by MINI_FIXED, VARIANTS or --set is no longer tuned; a field searched by --search is no longer fixed.
MINI_* apply only to tiny random backbones, and FIXED_BY_FAMILY only to backbones that are neither tiny nor the method's
default. --search-only lists the fields to tune; all others are fixed at a paper's value. If only exit settings are left
to tune, they are fixed too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_type_hints

from msgspec import UNSET
from msgspec.structs import replace

import search_spaces
import trainables
from search_spaces import SearchSpace
from study.contract.space_rules import check_files
from study.plans import profiles
from study.plans.arm_checks import (
    check_backbones,
    check_search_precision,
    check_select_by,
    check_start_models,
    check_starts,
)
from study.plans.departures import does_hold, list_departures
from study.plans.names_elsewhere import suggest_field
from study.plans.plan import (
    First,
    Layered,
    Layers,
    Plan,
    choose_backbone,
    complete_attention,
    format_columns,
    make_field_error,
    merge_layers,
)
from study.plans.pretrained_backbone import is_tiny, read_finished_pretraining
from study.plans.resolved_plan import (
    FIRST_SEARCH_SEED,
    FIRST_SEED,
    MOST_SEEDS,
    Arm,
    Protocol,
    ResolvedPlan,
    format_arm_name,
    list_confirm_seeds,
)
from study.plans.samplers import check_sampler, describe_sampler, describe_select_by, read_select_by
from study.plans.settings import (
    convert_option,
    convert_range,
    find_keys,
    format_option,
    is_searched,
    list_scopes,
    split_key,
)
from study.terminal.text import counted
from trainables.configuration import list_defaults
from trainables.configuration.ranges import (
    Choices,
    Interval,
    choose_middle,
    count_points,
    format_range,
    is_allowed,
    list_allowed,
    list_combinations,
    list_extremes,
)
from trainables.configuration.schema import Configuration, Value
from trainables.configuration.spelling import unknown_name_error
from trainables.data.glue import check_data, count_repeated_texts, count_train_rows, fingerprint, with_sizes
from trainables.data.tasks import TASKS, trainable_tasks
from trainables.encoders.backbone_files import backbone_fingerprint
from trainables.encoders.backbone_names import (
    hub_revision,
    is_folder,
    is_untrained,
    pinned,
)
from trainables.encoders.backbones import (
    check_spelling,
    find_family,
    has_new_pooler,
    is_trained_on_mean,
)
from trainables.files import method_files
from trainables.files.sources import checked

_NOT_SEARCHED = ", not searched"  # end of the origin of a value that replaces a range


@dataclass(frozen=True)
class Resolution:
    """The configurations of one arm, with the origin of every value and range."""

    fixed: dict[str, Layered[Value]]
    tuned: dict[str, Layered[Choices | Interval]]
    post_hoc: dict[str, Layered[Choices]]  # exit settings, each with at least two values
    first: list[dict[str, Value]]  # points of tuned fields to try first
    backbone: Layered[str]
    tokenizer: Layered[str | None]


def resolve(plan: Plan, *, unchecked: list[str] | None = None, pins: Mapping[str, str] | None = None) -> ResolvedPlan:
    """Resolve a plan to its arms and protocol, without creating any file.

    `pins` maps hub names to fingerprints from an earlier plan. A new hub name gets its current commit.

    If the hub is unreachable, the name is added to `unchecked`, and its fingerprint is "unknown". If `unchecked` is
    None, an unreachable hub is an error.

    Raises:
        ValueError: the plan is invalid or cannot be run.
    """
    _check_plan(plan)
    if plan.baseline is not None and plan.baseline not in plan.methods and len(plan.methods) > 1:
        plan = replace(plan, baseline="albert" if "albert" in plan.methods else plan.methods[0])
    for task in plan.tasks:
        check_data(TASKS[task], plan.data)
    places = {task: TASKS[task].place or plan.data for task in plan.tasks}
    data = {task: checked(partial(fingerprint, TASKS[task], at), at, unchecked) for task, at in places.items()}
    fingerprints = dict(pins or {})

    def find_fingerprint(name: str, kind: str) -> str:
        if name not in fingerprints:
            fingerprints[name] = checked(lambda: backbone_fingerprint(name, kind=kind), name, unchecked)
        return fingerprints[name]

    first = tuple(
        _resolve_arm(plan, method, task, data[task], find_fingerprint, pins=pins or {})
        for method in plan.methods
        for task in plan.tasks
    )
    arms = first + tuple(
        _repeat_arm(arm, n, first) for n in range(1, plan.search_repeats) for arm in first if arm.space
    )
    check_starts({arm.name: arm for arm in arms})
    check_search_precision(plan, arms)
    protocol = Protocol(
        metric="the task's GLUE metric at the selected epoch; the mean where it has several",
        aggregate=f"median over seeds from {FIRST_SEED}",
        **plan.protocol_fields,
    )
    counted_texts = {task: count_repeated_texts(TASKS[task], plan.data) for task in plan.tasks}
    counted_rows = {task: count_train_rows(TASKS[task], plan.data) for task in plan.tasks}
    resolved = ResolvedPlan(
        request=plan,
        arms=arms,
        protocol=protocol,
        departures={},
        own_tasks={task: with_sizes(TASKS[task]) for task in plan.tasks if TASKS[task].place} or UNSET,
        repeated_texts={task: number for task, number in counted_texts.items() if number is not None} or UNSET,
        train_rows={task: number for task, number in counted_rows.items() if number is not None} or UNSET,
    )
    check_backbones(resolved, unchecked)
    check_start_models(resolved, unchecked)
    resolved = replace(resolved, arms=tuple(_note_pooler(arm, unchecked) for arm in resolved.arms))
    if pins is None:  # in an earlier study, the rule can no longer change
        check_select_by(resolved, unchecked)
    return replace(resolved, departures=list_departures(resolved))


def _note_pooler(arm: Arm, unchecked: list[str] | None) -> Arm:
    """Return the arm with a note of whether its backbone lacks a pooler, or was trained without using it."""
    is_new = checked(partial(has_new_pooler, arm.pinned_backbone), arm.backbone, unchecked)
    on_mean = checked(partial(is_trained_on_mean, arm.pinned_backbone), arm.backbone, unchecked)
    return replace(arm, new_pooler=is_new is True or UNSET, trained_on_mean=on_mean is True or UNSET)


def resolve_configuration(plan: Plan, method: str, task: str, *, pins: Mapping[str, str] | None = None) -> Resolution:
    """Resolve every field of the method's configuration on this task, with the origin of its value or range.

    `pins` maps hub names to fingerprints from an earlier plan. They name the commit whose family counts.

    Raises:
        ValueError: --set or --search has an unknown field or an invalid value.
    """
    space, arm = search_spaces.load_space(method), f"{method}/{task}"
    kind = "mini" if "mini" in (plan.profile, plan.data) else "paper"
    backbone, tokenizer = choose_backbone(space, kind, backbone=plan.backbone, tokenizer=plan.tokenizer)
    is_mini = is_tiny(backbone.value)
    published, grid = () if is_mini else space.published.get(task, ()), _merge_grid(space, is_mini=is_mini)
    by_hand, searched = _collect_by_hand(plan, space, arm)
    commit = pinned(backbone.value, (pins or {}).get(backbone.value, ""))
    values = _merge_values(space, task, commit) | by_hand
    values = {name: value for name, value in values.items() if name not in searched}
    tunable = _merge_ranges(space, is_mini=is_mini) | searched
    tunable = {name: ranged for name, ranged in tunable.items() if name not in values}
    names = _choose_searched(plan, space, tunable)
    papers = [(f"{space.file} PUBLISHED[{task!r}]", point) for point in published[:1]]
    papers += [(menu.origin, {name: menu.value[0]}) for name, menu in grid.items()]
    unsearched = {name: _choose_papers_value(name, tunable[name], papers) for name in tunable if name not in names}
    ranges = {name: ranged for name, ranged in tunable.items() if name in names}
    menus = _list_menus(ranges, grid, searched) if plan.sampler == "grid" else ranges
    exits = {
        name: Layered(tuple(_list_values(name, ranged, what="an exit setting")), ranged.origin)
        for name, ranged in menus.items()
        if name in space.post_hoc
    }
    single = {name: Layered(menu.value[0], menu.origin) for name, menu in exits.items() if len(menu.value) == 1}
    tuned = {name: ranged for name, ranged in menus.items() if name not in exits}
    within = [point for point in published if _is_within(point, ranges)]
    return Resolution(
        fixed=values | unsearched | single,
        tuned=tuned,
        post_hoc={name: menu for name, menu in exits.items() if name not in single},
        first=_list_first_points(plan, arm, tuned, within),
        backbone=backbone,
        tokenizer=tokenizer,
    )


def _merge_values(space: SearchSpace, task: str, backbone: str) -> dict[str, Layered[Value]]:
    """Merge the values of the fields that the search space fixes for a task and a backbone."""
    return merge_layers(
        [
            *space.layers("fixed"),
            (f"{space.file} FIXED_BY_TASK[{task!r}]", space.fixed_by_task.get(task, {})),
            *(space.layers("mini_fixed") if is_tiny(backbone) else _list_family_values(space, backbone)),
            (_name_variant_origin(space), space.variant),
        ]
    )


def _name_variant_origin(space: SearchSpace) -> str:
    """Name where a variant's values come from: its entry in the method's file, or its own name (--vary)."""
    if trainables.is_value_variant(space.method):
        return f"the name {space.method}"
    return f"{space.file} VARIANTS[{space.method.partition(trainables.VARIANT)[2]!r}]"


def _merge_ranges(space: SearchSpace, *, is_mini: bool) -> dict[str, Layered[Choices | Interval]]:
    """Merge the ranges of the tuned fields and of the exit settings."""
    layers = [(f"{space.file} SPACE", space.space), (f"{space.file} POST_HOC", space.post_hoc)]
    return merge_layers([*layers, *(space.layers("mini_space") if is_mini else ())])


def _merge_grid(space: SearchSpace, *, is_mini: bool) -> dict[str, Layered[Sequence[Value]]]:
    """Merge the grids of the search space: the values of each field that the grid sampler tries."""
    layers = [(f"{space.file} PAPER_GRID", space.paper_grid)]
    return merge_layers([*layers, *(space.layers("mini_grid") if is_mini else ())])


def _choose_searched(plan: Plan, space: SearchSpace, tunable: Collection[str]) -> set[str]:
    """Choose the fields to search; none if only exit settings would be left."""
    names = set(tunable) if plan.searched_alone is UNSET else {*tunable} & {*plan.searched_alone}
    return set() if names <= space.post_hoc.keys() else names


def _list_menus(
    ranges: Mapping[str, Layered[Choices | Interval]],
    grid: Mapping[str, Layered[Sequence[Value]]],
    searched: Collection[str],
) -> dict[str, Layered[Choices | Interval]]:
    """List the values that the grid sampler tries: those of the grid, or every value of a range in `searched`."""
    return {
        name: Layered(tuple(_list_values(name, ranged, what="--sampler grid")), ranged.origin)
        if name in searched
        else Layered(tuple(grid[name].value), grid[name].origin)
        for name, ranged in ranges.items()
    }


def _is_within(point: Configuration, ranges: Mapping[str, Layered[Choices | Interval]]) -> bool:
    """Check if each value of a point is in its range; fields without a range are ignored."""
    return all(is_allowed(point[name], ranges[name].value) for name in point.keys() & ranges)


def _list_first_points(
    plan: Plan, arm: str, tuned: Mapping[str, Layered[Choices | Interval]], published: Collection[Configuration]
) -> list[dict[str, Value]]:
    """List the points that the arm's search tries first: those of --first-from, published ones, and the whole grid.

    Raises:
        ValueError: a value of --first-from is outside the arm's range.
    """
    for winner in plan.list_firsts(arm):
        _check_range(winner, tuned, arm)
    points = [*(winner.values for winner in plan.list_firsts(arm)), *published]
    first = _drop_repeats({name: point[name] for name in tuned if name in point} for point in points)
    if plan.sampler != "grid":
        return first
    grid = list_combinations({name: list_extremes(menu.value) for name, menu in tuned.items()})
    return _drop_repeats([*(point for known in first for point in grid if known.items() <= point.items()), *grid])


def _list_family_values(space: SearchSpace, backbone: str) -> Layers[Value]:
    """List the values of FIXED_BY_FAMILY for a backbone; [] for a default backbone, whose values are those of FIXED.

    If the backbone's configuration cannot be read, the list is empty; `check_backbones` then reports the backbone.

    Args:
        backbone: a hub name may be pinned to a commit, NAME@COMMIT.
    """
    if not space.fixed_by_family or {backbone, hub_revision(backbone)[0]} & {*space.backbone.values()}:
        return []
    try:
        family = find_family(backbone)
    except (ValueError, OSError):  # OSError: the hub cannot be reached
        return []
    return [(f"{space.file} FIXED_BY_FAMILY[{family!r}]", space.fixed_by_family.get(family, {}))]


def _is_among(values: Configuration, point: Configuration) -> bool:
    """Check whether a configuration agrees with a point of the search, in the fields that both have."""
    shared = values.keys() & point.keys()
    return bool(shared) and all(values[field] == point[field] for field in shared)


def explain(plan: ResolvedPlan, name: str, *, origins: Mapping[str, str]) -> str:
    """Describe an arm: its fields with values and origins, its search, and its departures.

    Args:
        origins: maps options that the user did not type, such as `--set epochs`, to their true origins.
    """
    arm, request = plan.arm(name), plan.request
    space = search_spaces.load_space(arm.method)
    resolution = resolve_configuration(request, arm.method, arm.task, pins=plan.pins)
    rows = [(field, json.dumps(layered.value), layered.origin) for field, layered in resolution.fixed.items()]
    rows += [(field, format_range(layered.value), layered.origin) for field, layered in resolution.tuned.items()]
    for field, settings in resolution.post_hoc.items():
        rows.append(
            (field, f"{format_range(settings.value)}, evaluated on the model of every search trial", settings.origin)
        )
    if arm.search_precision is not UNSET:
        rows.append(("precision of search trials", json.dumps(arm.search_precision), "--search-precision"))
    rows.append(("backbone", arm.backbone, resolution.backbone.origin))
    if arm.tokenizer is not None:
        rows.append(("tokenizer", arm.tokenizer, resolution.tokenizer.origin))
    if arm.start_from is not None:
        origin = f"{space.file} START" if arm.start_from == f"{space.start}/{arm.task}" else "--start-from"
        rows.append(("starts from", f"the best model of {arm.start_from}", origin))
    won, published = request.list_firsts(name), space.published.get(arm.task, ())
    first = list[str]()
    points = [point for point in arm.first if point]  # without those that have none of the tuned fields
    for point in points:
        winner = next((one for one in won if _is_among(one.values, point)), None)
        if winner or any(point.items() <= known.items() for known in published):
            values = ", ".join(f"{field} {json.dumps(value)}" for field, value in point.items())
            origin = winner.origin if winner else "PUBLISHED"
            first.append(f"  the search {'then' if first else 'first'} tries {values} ({origin})")
    if others := len(points) - len(first):
        first.append(f"  the search {'then' if first else 'first'} tries {counted(others, 'grid point')}")
    if arm.space:
        first.append(f"  sampler: {describe_sampler(request.sampler, arm.samples, request.early_stopping)}")
    if request.select_by is not UNSET:
        first.append(f"  {describe_select_by(request.select_by)}")
    fields = arm.fixed.keys() | arm.space.keys()
    notes = [
        f"  differs: {departure}"
        for departure in trainables.departures(arm.method)
        if fields & {*departure.what.replace(",", "").split()} and does_hold(departure, arm)
    ]
    rows = [(name, value, origins.get(origin, origin)) for name, value, origin in rows]
    return "\n".join([name, *format_columns(rows), *first, *notes])


def _resolve_arm(
    plan: Plan,
    method: str,
    task: str,
    data_fingerprint: str,
    find_fingerprint: Callable[[str, str], str],
    *,
    pins: Mapping[str, str],
) -> Arm:
    resolution = resolve_configuration(plan, method, task, pins=pins)
    tokenizer = resolution.tokenizer.value
    samples = len(resolution.first) if plan.samples is None else plan.samples
    space = {name: layered.value for name, layered in resolution.tuned.items()}
    samples = int(min(samples, count_points(space))) if space else 0
    arm = Arm(
        method=method,
        task=task,
        space=space,
        post_hoc={name: layered.value for name, layered in resolution.post_hoc.items()} or UNSET,
        fixed={name: layered.value for name, layered in resolution.fixed.items()},
        first=tuple(resolution.first[:samples]),
        samples=samples,
        seeds=list_confirm_seeds(plan.seeds),
        backbone=resolution.backbone.value,
        backbone_fingerprint=find_fingerprint(resolution.backbone.value, "backbone"),
        tokenizer=tokenizer,
        tokenizer_fingerprint=tokenizer and find_fingerprint(tokenizer, "tokenizer"),
        data_fingerprint=data_fingerprint,
        start_from=plan.find_start(method, task, search_spaces.load_space(method).start),
        pretraining=read_finished_pretraining(resolution.backbone.value) or UNSET,
        random_weights=(is_folder(resolution.backbone.value) and is_untrained(resolution.backbone.value)) or UNSET,
    )
    config = trainables.configure(method, arm.any_configuration)
    _check_ends(arm, resolution)
    try:
        config.check_task(TASKS[task])
    except ValueError:
        raise
    except Exception as error:  # a user's code may raise anything
        raise ValueError(method_files.describe_error(error, arm.base_method)) from error
    values = {name: getattr(config, name) for name in arm.fixed}  # with the field's types: 0 becomes 0.0
    fixed = {name: value for name, value in values.items() if (name, value) not in list_defaults().items()}
    is_same = not arm.space or plan.search_precision == fixed.get("precision")
    return replace(arm, fixed=fixed, search_precision=UNSET if is_same else plan.search_precision)


def _check_ends(arm: Arm, resolution: Resolution) -> None:
    """Check that the method accepts what --search allows: each choice of a list, both ends of an interval."""
    menus = {name: (layered.origin, list_extremes(arm.space[name])) for name, layered in resolution.tuned.items()}
    menus |= {name: (layered.origin, [*layered.value]) for name, layered in resolution.post_hoc.items()}
    for name, (origin, values) in menus.items():
        for value in values if origin.startswith("--search") else ():
            try:
                trainables.configure(arm.method, {**arm.any_configuration, name: value})
            except ValueError as error:
                raise ValueError(f"{origin}: {error}") from None


def _repeat_arm(arm: Arm, repeat: int, arms: Collection[Arm]) -> Arm:
    """Copy an arm for the repeated search with index `repeat`.

    If the arm starts from a searched arm such as `albert/rte`, the second search of the arm starts from `albert/rte@2`.
    """
    source = next((other for other in arms if other.name == arm.start_from), None)
    start_from = format_arm_name(source.method, source.task, repeat) if source and source.space else arm.start_from
    return replace(arm, repeat=repeat, seeds=list_confirm_seeds(len(arm.seeds), repeat=repeat), start_from=start_from)


def _collect_by_hand(
    plan: Plan, space: SearchSpace, arm: str
) -> tuple[dict[str, Layered[Value]], dict[str, Layered[Choices | Interval]]]:
    """Collect an arm's fixed values and ranges from the settings of the plan.

    Raises:
        ValueError: a setting has an unknown field or an invalid value.
    """
    profile = profiles.load_profile(plan.profile).settings
    config = trainables.load_method(space.method).Config
    kinds = get_type_hints(config, include_extras=True)
    fixed, searched = dict[str, Layered[Value]](), dict[str, Layered[Choices | Interval]]()
    for field, key in find_keys(plan.settings, arm).items():
        setting, named = plan.settings[key], format_option(key, plan.settings[key])
        is_from_profile = profile.get(key) == setting
        scope, is_of_values = split_key(key)[0], trainables.is_value_variant(space.method)
        if field in space.variant and (is_of_values or scope.partition("/")[0] != space.method):
            is_of_base = is_of_values and "/" in scope and trainables.base_method(space.method) in plan.methods
            if is_from_profile or is_of_base:
                continue
            raise ValueError(f"{named}: {space.method} already has a value of {field}; leave out one of the two")
        if field not in config.__struct_fields__:
            is_anothers = any(
                field in trainables.load_method(method).Config.__struct_fields__ for method in plan.methods
            )
            if is_from_profile or (key == field and is_anothers):
                continue
            departures = trainables.departures(space.method)
            raise make_field_error(named, field, space.method, config.__struct_fields__, departures=departures)
        origin = f"study/plans/profiles.py {plan.profile.upper()}" if is_from_profile else named
        if isinstance(setting, Interval | tuple):
            searched[field] = Layered(convert_range(setting, kinds[field], named=named), origin)
        else:
            fixed[field] = Layered(convert_option(kinds[field], setting, named=named), origin)
    return complete_attention(fixed), searched


def list_unsearched_fields(plan: Plan, method: str, task: str) -> list[str]:
    """List the tunable fields of an arm that the plan does not search."""
    return _select_unsearched(resolve_configuration(plan, method, task))


def _select_unsearched(resolution: Resolution) -> list[str]:
    return [name for name, layered in resolution.fixed.items() if layered.origin.endswith(_NOT_SEARCHED)]


def _choose_papers_value(field: str, ranged: Layered[Choices | Interval], points: Layers[Value]) -> Layered[Value]:
    """Choose the first value of `points` that is in the range. If there is none, choose the middle of the range."""
    for origin, point in points:
        if field in point and is_allowed(point[field], ranged.value):
            return Layered(point[field], f"{origin}{_NOT_SEARCHED}")
    return Layered(
        choose_middle(ranged.value), f"the middle of {format_range(ranged.value)}, {ranged.origin}{_NOT_SEARCHED}"
    )


def _list_values(field: str, ranged: Layered[Choices | Interval], *, what: str) -> Sequence[Value]:
    """List every value of a field.

    Raises:
        ValueError: the field is continuous; the message begins with `what`, such as `--sampler grid`.
    """
    values = list_allowed(ranged.value)
    if values is None:
        raise ValueError(
            f"{what}: {field} is {format_range(ranged.value)} ({ranged.origin}), which is continuous; allowed: choices "
            "(A,B,C), or whole numbers"
        )
    return values


def _check_range(first: First, tuned: Mapping[str, Layered[Choices | Interval]], arm: str) -> None:
    """Raise ValueError if a --first-from value is outside the arm's range."""
    for name in tuned.keys() & first.values.keys():
        if not is_allowed(first.values[name], tuned[name].value):
            raise ValueError(
                f"--first-from: {first.origin} has {name} {json.dumps(first.values[name])}, which is outside the range "
                f"of {arm}, {format_range(tuned[name].value)}; allowed: a range that contains this value, or no "
                "--first-from"
            )


def _drop_repeats(points: Iterable[dict[str, Value]]) -> list[dict[str, Value]]:
    unique: list[dict[str, Value]] = []
    for point in points:
        if point not in unique:
            unique.append(point)
    return unique


def _check_plan(plan: Plan) -> None:
    menus = ("method", plan.methods, search_spaces.list_methods()), ("task", plan.tasks, trainable_tasks())
    for noun, names, menu in menus:
        if not names:
            raise ValueError(f"no {noun} is given; available: {', '.join(menu)}")
    for name, kind in ((plan.backbone, "backbone"), (plan.tokenizer, "tokenizer")):
        if name is not None:
            check_spelling(name, kind=kind)
    for method in (*plan.methods, *([] if plan.baseline is None else [plan.baseline])):
        search_spaces.load_space(method)
        check_files(method)
    for task in plan.tasks:
        if task not in trainable_tasks():
            raise unknown_name_error("task", task, trainable_tasks())
    _check_settings(plan)
    check_sampler(plan.sampler)
    if plan.select_by is not UNSET:
        read_select_by(plan.select_by)
    if plan.samples is None and plan.sampler != "grid":
        raise ValueError(
            f"--sampler {plan.sampler} needs --samples; only the sampler grid has a default number of trials"
        )
    most = MOST_SEEDS if plan.search_repeats > 1 else FIRST_SEARCH_SEED - FIRST_SEED
    if plan.seeds > most:
        repeated = " with repeated searches" * (plan.search_repeats > 1)
        raise ValueError(f"--seeds is {plan.seeds}; allowed{repeated}: at most {most}")


def _check_settings(plan: Plan) -> None:
    """Check that each setting is for a method or an arm of the study, and each field of --search-only is tuned."""
    methods = dict.fromkeys(base for method in plan.methods for base in list_scopes(method))
    scopes = [*methods, *(f"{method}/{task}" for method in methods for task in plan.tasks)]
    for key, setting in plan.settings.items():
        scope, _ = split_key(key)
        if scope and scope not in scopes:
            method, _, task = scope.partition("/")
            missing = [f"--method {method}"] * (method not in plan.methods)
            missing += [f"--task {task}"] * (task not in ("", *plan.tasks))
            fault = f"this study has no method or arm {scope!r}; available: {', '.join(scopes)}"
            raise ValueError(
                f"{format_option(key, setting)}: {fault}; to add {scope} to the study: {' '.join(missing)}"
            )
    if plan.search_only is not UNSET:
        _check_search_only(plan, plan.search_only)


def _check_search_only(plan: Plan, names: Collection[str]) -> None:
    """Raise ValueError if no arm of the study tunes a field of --search-only."""
    arms = [(method, task) for method in plan.methods for task in plan.tasks]
    resolutions = {arm: resolve_configuration(plan, *arm) for arm in arms}
    tuned = {split_key(key)[1] for key, setting in plan.settings.items() if is_searched(setting)}
    for (method, _), resolution in resolutions.items():
        exit_settings = search_spaces.load_space(method).post_hoc.keys()
        tuned |= resolution.tuned.keys() | {*_select_unsearched(resolution)} - exit_settings
    for field in names:
        if field not in tuned:
            origins = [each.fixed[field].origin for each in resolutions.values() if field in each.fixed]
            fixed = f" ({origins[0]} fixes it)" if origins else ""
            menu = ", ".join(sorted(tuned)) + suggest_field(field, tuned)
            raise ValueError(
                f"--search-only {field}: the study tunes no such field{fixed}; available: {menu}; to tune another "
                "field: --search FIELD=LOW..HIGH"
            )
