"""Rules for the two files of a method, its model and its search space. Each rule is a function that yields faults.

A launch checks its methods against `RULES`; `study.check_method` and the tests also check `POINT_RULES`. This module
does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import get_type_hints

import search_spaces
import trainables
from search_spaces import SearchSpace
from trainables import Departure
from trainables.configuration import TrainingConfig, list_defaults
from trainables.configuration.ranges import (
    Choices,
    Interval,
    format_range,
    is_allowed,
    list_combinations,
    list_extremes,
)
from trainables.configuration.schema import Configuration, Value, from_plain
from trainables.configuration.spelling import suggest_nearest
from trainables.data.tasks import GLUE_TASKS, TASKS, trainable_tasks
from trainables.encoders.architectures import FAMILIES
from trainables.encoders.backbone_names import MINI_BACKBONES, PUBLISHED_SIZES
from trainables.files.method_files import format_error, locate_files

CONFIG, DEPARTURES = "class Config", "DEPARTURES"  # names in the model's file; all others are in the space's file


@dataclass(frozen=True)
class Method:
    """A method, defined by two files: its model and its search space."""

    name: str

    @cached_property
    def space(self) -> SearchSpace:
        """The search space of the method."""
        return search_spaces.load_space(self.name)

    @cached_property
    def fields(self) -> set[str]:
        """The field names of the method's `Config`."""
        return set(trainables.load_method(self.name).Config.__struct_fields__)

    def format_place(self, name: str) -> str:
        """Return the file and line that define a name; an index such as `['rte']` is ignored."""
        model, space = locate_files(self.name)
        file = model if name in (CONFIG, DEPARTURES) else space
        return file.format_place(name.partition("[")[0])

    def values(self, task: str) -> dict[str, Value]:
        """Return a value for every field: the first value in PAPER_GRID, or else the fixed value for the task."""
        first = {field: menu[0] for field, menu in self.space.paper_grid.items()}
        return {**self.space.fixed, **self.space.fixed_by_task.get(task, {}), **first}

    def refuses(self, task: str) -> str | None:
        """Return the reason why the method does not accept a task; None if it accepts the task."""
        try:
            trainables.configure(self.name, self.values(task)).check_task(TASKS[task])
        except ValueError as error:
            return str(error)
        return None


class RuleBroken(AssertionError):
    """The error for a model that breaks one of the rules."""

    def __init__(self, fault: str, function: Callable[..., object] | None = None) -> None:
        """Store the description of the fault and the function that causes the fault.

        `function` is None if the cause can be in several functions.
        """
        super().__init__(fault)
        self.function = function


def require(holds: bool, fault: str, function: Callable[..., object] | None = None) -> None:
    """Raise RuleBroken unless `holds` is true; `function` is the function at fault, if it is known."""
    if not holds:
        raise RuleBroken(fault, function)


Fault = tuple[str, str]  # the faulty name in a file, and a description of the fault
Rule = Callable[[Method], Iterator[Fault]]


def config_is_a_training_config(method: Method) -> Iterator[Fault]:
    """Check that Config is a subclass of TrainingConfig, and that the fields that it adds have no defaults."""
    config = trainables.load_method(method.name).Config
    if not (isinstance(config, type) and issubclass(config, TrainingConfig)):
        yield CONFIG, f"Config is {config!r:.60}; allowed: a subclass of TrainingConfig"
        return
    try:
        get_type_hints(config)
    except Exception as error:  # noqa: BLE001  # a user's annotations may raise anything
        yield CONFIG, format_error(error)
        return
    if missing := sorted(list_defaults().keys() - list_defaults(config).keys()):
        yield CONFIG, f"Config redefines {missing[0]}, which TrainingConfig defines; allowed: another name"
    elif list_defaults(config) != list_defaults():
        yield CONFIG, "fields of Config have defaults; allowed: values in FIXED instead of defaults"


def every_field_is_tuned_or_fixed(method: Method) -> Iterator[Fault]:
    """Check that each field of Config is in SPACE, POST_HOC or FIXED, and not in both SPACE and FIXED."""
    tuned, fixed = set(method.space.space), set(method.space.fixed)
    for field in sorted((tuned | fixed) - method.fields):
        name = "FIXED" if field in fixed else "POST_HOC" if field in method.space.post_hoc else "SPACE"
        config = method.format_place(CONFIG)
        yield name, f"{name} has {field}, which Config in {config} lacks{suggest_nearest(field, method.fields)}"
    for field in sorted(method.fields - tuned - fixed):
        yield "FIXED", f"{field} of Config is not in SPACE, POST_HOC or FIXED"
    for field in sorted(tuned & fixed):
        yield "SPACE", f"{field} is in SPACE and in FIXED; allowed: one of the two"


def replaced_values_are_of_fixed_fields(method: Method) -> Iterator[Fault]:
    """Check that FIXED_BY_TASK and FIXED_BY_FAMILY have only known tasks and families, and only fields of FIXED."""
    space = method.space
    for name, replaced, menu in (
        ("FIXED_BY_TASK", space.fixed_by_task, trainable_tasks()),
        ("FIXED_BY_FAMILY", space.fixed_by_family, FAMILIES),
    ):
        yield from _find_unknown(name, replaced, menu)
        for key, fields in replaced.items():
            yield from _find_unknown(f"{name}[{key!r}]", fields, space.fixed)


def variants_fix_fields(method: Method) -> Iterator[Fault]:
    """Check that VARIANTS names only fields of Config."""
    for variant in search_spaces.variants(method.name):
        name = f"VARIANTS[{variant.partition(trainables.VARIANT)[2]!r}]"
        yield from _find_unknown(name, search_spaces.load_space(variant).variant, method.fields)


def grid_covers_the_ranges(method: Method) -> Iterator[Fault]:
    """Check that PAPER_GRID has exactly the fields of SPACE, and that all values are within the ranges of SPACE."""
    yield from _compare_fields("PAPER_GRID", method.space.paper_grid, method.space.space)
    yield from _find_outside("PAPER_GRID", method.space.paper_grid, method.space.space)


def published_points_are_whole(method: Method) -> Iterator[Fault]:
    """Check that PUBLISHED names only known tasks, and that each point has a valid value of every field of SPACE."""
    yield from _find_unknown("PUBLISHED", method.space.published, trainable_tasks())
    for task, points in method.space.published.items():
        for point in points:
            yield from _compare_fields(f"PUBLISHED[{task!r}]", point, method.space.space)
            menus = {field: [value] for field, value in point.items()}
            yield from _find_outside(f"PUBLISHED[{task!r}]", menus, method.space.space)


def mini_ranges_are_of_tuned_fields(method: Method) -> Iterator[Fault]:
    """Check that MINI_SPACE and MINI_GRID name only fields that are in SPACE and not in MINI_FIXED."""
    space = method.space
    for name, fields in (("MINI_SPACE", space.mini_space), ("MINI_GRID", space.mini_grid)):
        yield from _find_unknown(name, fields, space.space)
        for field in sorted(set(fields) & set(space.mini_fixed)):
            yield name, f"{field} is in {name} and in MINI_FIXED; allowed: one of the two"
    yield from _find_unknown("MINI_FIXED", space.mini_fixed, method.fields)


def mini_grid_lies_within_the_mini_ranges(method: Method) -> Iterator[Fault]:
    """Check that the grid for tiny backbones (MINI_GRID, else PAPER_GRID) is within the ranges of MINI_SPACE."""
    space = method.space
    narrowed = {*space.mini_space} - {*space.mini_grid}
    paper = {field: menu for field, menu in space.paper_grid.items() if field in narrowed}
    yield from _find_outside("MINI_GRID", space.mini_grid, list_mini_ranges(space))
    yield from _find_outside("PAPER_GRID", paper, list_mini_ranges(space))


def backbones_are_named(method: Method) -> Iterator[Fault]:
    """Check that BACKBONE has allowed values for 'mini' and 'paper'."""
    mini, paper = method.space.backbone["mini"], method.space.backbone["paper"]
    if mini not in MINI_BACKBONES:
        yield "BACKBONE", f"BACKBONE['mini'] is {mini!r}; allowed: {', '.join(MINI_BACKBONES)}"
    if "/" not in paper and paper not in PUBLISHED_SIZES:
        allowed = f"OWNER/NAME, a folder, {', '.join(PUBLISHED_SIZES)}"
        yield "BACKBONE", f"BACKBONE['paper'] is {paper!r}; allowed: {allowed}"


def departures_are_triples(method: Method) -> Iterator[Fault]:
    """Check that DEPARTURES has triples: a subject, the choice in the paper or its code, and the choice here."""
    lines = trainables.load_method(method.name).DEPARTURES
    try:
        from_plain(tuple[Departure, ...], lines, where=DEPARTURES)
    except ValueError:
        yield DEPARTURES, f'DEPARTURES is {lines!r:.60}; allowed: (("what", "in the paper or its code", "here"), ...)'


def some_task_is_studied(method: Method) -> Iterator[Fault]:
    """Check that FIXED and the first values of PAPER_GRID are a valid configuration for at least one task."""
    refused = {task: method.refuses(task) for task in GLUE_TASKS}
    if all(refused.values()):
        yield "FIXED", str(refused[GLUE_TASKS[0]])


def every_point_is_a_configuration(method: Method) -> Iterator[Fault]:
    """Check that all points of PUBLISHED and PAPER_GRID, and all corners of SPACE, are valid configurations."""
    space = method.space
    points = [*list_combinations(space.paper_grid), *list_corners(space.space)]
    yield from _find_refused("SPACE", lambda task: [*space.published.get(task, ()), *points], method)


def every_mini_corner_is_a_configuration(method: Method) -> Iterator[Fault]:
    """Check that all corners of the search space for tiny backbones are valid configurations."""
    points = [{**method.space.mini_fixed, **point} for point in list_corners(list_mini_ranges(method.space))]
    yield from _find_refused("MINI_FIXED", lambda _: points, method)


# All other rules assume these two: if either is broken, the faults that other rules find are meaningless.
FIRST: tuple[Rule, ...] = (config_is_a_training_config, every_field_is_tuned_or_fixed)
# Fast, and sufficient for making a plan.
RULES: tuple[Rule, ...] = (
    *FIRST,
    replaced_values_are_of_fixed_fields,
    variants_fix_fields,
    grid_covers_the_ranges,
    published_points_are_whole,
    mini_ranges_are_of_tuned_fields,
    mini_grid_lies_within_the_mini_ranges,
    backbones_are_named,
    departures_are_triples,
)
POINT_RULES: tuple[Rule, ...] = (
    some_task_is_studied,
    every_point_is_a_configuration,
    every_mini_corner_is_a_configuration,
)


def describe(rule: Callable[..., object]) -> str:
    """Return the description of a rule: its docstring without the words "Check that"."""
    return (rule.__doc__ or "").removeprefix("Check that ").removesuffix(".")


def find_first_fault(rule: Rule, method: Method) -> str | None:
    """Return a rule's first fault, with the file and line of the faulty name; None if the method satisfies the rule."""
    return next((f"{method.format_place(name)}: {fault}" for name, fault in rule(method)), None)


def check_files(method: str) -> None:
    """Raise ValueError with the first fault if the two files of a method break a rule of `RULES`."""
    for rule in RULES:
        if fault := find_first_fault(rule, Method(trainables.base_method(method))):
            raise ValueError(fault)


def list_corners(ranges: Mapping[str, Choices | Interval]) -> list[dict[str, Value]]:
    """List the corners of a search space: every combination of choices and of the ends of numeric ranges."""
    return list_combinations({field: list_extremes(allowed) for field, allowed in ranges.items()})


def list_mini_ranges(space: SearchSpace) -> dict[str, Choices | Interval]:
    """Return the ranges of the fields that are tuned on tiny random backbones."""
    ranges = {**space.space, **space.mini_space}
    return {field: allowed for field, allowed in ranges.items() if field not in space.mini_fixed}


def _find_unknown(name: str, keys: Iterable[str], menu: Collection[str]) -> Iterator[Fault]:
    for key in keys:
        if key not in menu:
            yield name, f"{name} has {key!r}; allowed: {', '.join(sorted(menu)) or 'nothing'}"


def _compare_fields(name: str, fields: Collection[str], space: Collection[str]) -> Iterator[Fault]:
    for field in sorted({*space} - {*fields}):
        yield name, f"{name} lacks {field}, which is in SPACE"
    for field in sorted({*fields} - {*space}):
        yield name, f"{name} has {field}, which SPACE lacks"


def _find_outside(
    name: str, points: Mapping[str, Sequence[Value]], ranges: Mapping[str, Choices | Interval]
) -> Iterator[Fault]:
    for field in [field for field in points if field in ranges]:
        for value in points[field]:
            if not is_allowed(value, ranges[field]):
                yield name, f"{name} has {field} {value!r}, which is outside of {format_range(ranges[field])}"


def _find_refused(name: str, points: Callable[[str], Sequence[Configuration]], method: Method) -> Iterator[Fault]:
    """Yield the error of the first invalid point on each task; tasks that the method refuses are skipped."""
    for task in [task for task in GLUE_TASKS if method.refuses(task) is None]:
        for point in points(task):
            try:
                trainables.configure(method.name, {**method.values(task), **point}).check_task(TASKS[task])
            except ValueError as error:
                yield name, f"on {task}: {error}"
                break
