"""What the two files of a method must say of each other: a rule is a function that yields every fault, a line each.

A launch holds its methods against `RULES`, `study.check_method` and the tests against these and `POINT_RULES`. No
torch here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_type_hints

from optuna.distributions import BaseDistribution
from optuna.trial import create_trial

import search_spaces
import trainables
from search_spaces import SearchSpace
from trainables.configuration import TrainingConfig
from trainables.data.tasks import TASKS, TRAINABLE_TASKS
from trainables.encoders.backbones import MINI_BACKBONES, PUBLISHED_SIZES
from trainables.method_files import files_of, in_words
from trainables.schema import Configuration, Value
from trainables.spelling import nearest_in_words

MOST_IN_LINE = 100  # characters of a departure


@dataclass(frozen=True)
class Method:
    """A method and its two files."""

    name: str

    @cached_property
    def space(self) -> SearchSpace:
        return search_spaces.load(self.name)

    @cached_property
    def fields(self) -> set[str]:
        """Of its `Config`."""
        return set(trainables.load(self.name).Config.__struct_fields__)

    def in_space(self, name: str) -> str:
        """Where its search space says something."""
        return files_of(self.name)[1].place_of(name)

    def in_code(self, name: str) -> str:
        """Where the file that is trained says something."""
        return files_of(self.name)[0].place_of(name)

    def values(self, task: str) -> dict[str, Value]:
        """The first point of the paper's grid, of every field."""
        first = {field: menu[0] for field, menu in self.space.paper_grid.items()}
        return {**self.space.fixed, **self.space.fixed_by_task.get(task, {}), **first}

    def refuses(self, task: str) -> str | None:
        """Why the method is not for a task; None where it is for it."""
        try:
            trainables.configure(self.name, self.values(task)).check_task(TASKS[task])
        except ValueError as error:
            return str(error)
        return None


Rule = Callable[[Method], Iterator[str]]


def config_is_a_training_config(method: Method) -> Iterator[str]:
    """Config is a TrainingConfig whose fields have no defaults"""
    config = trainables.load(method.name).Config
    if not (isinstance(config, type) and issubclass(config, TrainingConfig)):
        yield f"{method.in_code('class Config')}: Config is {config!r:.60}; allowed: a class of TrainingConfig"
    elif config.__struct_defaults__:
        yield f"{method.in_code('class Config')}: fields of Config have defaults; allowed: none, the values are FIXED's"
    else:
        try:
            get_type_hints(config)
        except Exception as error:  # whatever a person's annotations may raise
            yield f"{method.in_code('class Config')}: {in_words(error)}"


def every_field_is_tuned_or_fixed(method: Method) -> Iterator[str]:
    """SPACE and FIXED have every field of Config, each one of the two"""
    tuned, fixed = set(method.space.space), set(method.space.fixed)
    for field in sorted((tuned | fixed) - method.fields):
        name, config = "SPACE" if field in tuned else "FIXED", method.in_code("class Config")
        near = nearest_in_words(field, method.fields)
        yield f"{method.in_space(name)}: {name} has {field}, which Config in {config} lacks{near}"
    for field in sorted(method.fields - tuned - fixed):
        yield f"{method.in_space('FIXED')}: {field} of Config is in neither SPACE nor FIXED"
    for field in sorted(tuned & fixed):
        yield f"{method.in_space('SPACE')}: {field} is in SPACE and in FIXED; allowed: one of the two"


def values_of_tasks_are_of_fixed_fields(method: Method) -> Iterator[str]:
    """FIXED_BY_TASK names tasks and fields of FIXED"""
    by_task = method.space.fixed_by_task
    yield from _known("FIXED_BY_TASK", by_task, TRAINABLE_TASKS, method)
    for task, fields in by_task.items():
        yield from _known(f"FIXED_BY_TASK[{task!r}]", fields, method.space.fixed, method)


def variants_fix_fields(method: Method) -> Iterator[str]:
    """VARIANTS fix fields of Config"""
    for variant in search_spaces.variants(method.name):
        fixed = search_spaces.load(variant).variant
        yield from _known(f"VARIANTS[{variant.partition(':')[2]!r}]", fixed, method.fields, method)


def grid_covers_the_ranges(method: Method) -> Iterator[str]:
    """PAPER_GRID has every field of SPACE, within its range"""
    yield from _same("PAPER_GRID", method.space.paper_grid, "SPACE", method.space.space, method)
    yield from _within("PAPER_GRID", method.space.paper_grid, method.space.space, method)


def published_points_are_whole(method: Method) -> Iterator[str]:
    """PUBLISHED names tasks, and whole points of SPACE"""
    yield from _known("PUBLISHED", method.space.published, TRAINABLE_TASKS, method)
    for task, points in method.space.published.items():
        for point in points:
            name = f"PUBLISHED[{task!r}]"
            yield from _same(name, point, "SPACE", method.space.space, method)
            yield from _within(name, {field: [value] for field, value in point.items()}, method.space.space, method)


def mini_ranges_are_of_tuned_fields(method: Method) -> Iterator[str]:
    """MINI_SPACE and MINI_GRID name fields of SPACE, MINI_FIXED others of Config"""
    space = method.space
    for name, fields in (("MINI_SPACE", space.mini_space), ("MINI_GRID", space.mini_grid)):
        yield from _known(name, fields, space.space, method)
        for field in sorted(set(fields) & set(space.mini_fixed)):
            yield f"{method.in_space(name)}: {field} is in {name} and in MINI_FIXED; allowed: one of the two"
    yield from _known("MINI_FIXED", space.mini_fixed, method.fields, method)


def mini_grid_lies_within_the_mini_ranges(method: Method) -> Iterator[str]:
    """MINI_GRID, and PAPER_GRID where it has no other values, lie within MINI_SPACE"""
    space = method.space
    narrowed = {
        name: menu for name, menu in space.paper_grid.items() if name in {*space.mini_space} - {*space.mini_grid}
    }
    yield from _within("MINI_GRID", space.mini_grid, mini_ranges(method), method)
    yield from _within("PAPER_GRID", narrowed, mini_ranges(method), method)


def backbones_are_named(method: Method) -> Iterator[str]:
    """BACKBONE has a tiny one for mini, and a folder or a hub name with its owner for paper"""
    backbone = method.space.backbone
    if backbone["mini"] not in MINI_BACKBONES:
        menu = ", ".join(MINI_BACKBONES)
        yield f"{method.in_space('BACKBONE')}: BACKBONE['mini'] is {backbone['mini']!r}; allowed: {menu}"
    if "/" not in backbone["paper"] and backbone["paper"] not in PUBLISHED_SIZES:
        allowed = f"OWNER/NAME, a folder, {', '.join(PUBLISHED_SIZES)}"
        yield f"{method.in_space('BACKBONE')}: BACKBONE['paper'] is {backbone['paper']!r}; allowed: {allowed}"


def departures_are_lines(method: Method) -> Iterator[str]:
    """DEPARTURES are short lines of their own"""
    lines = trainables.departures(method.name)
    if not isinstance(lines, tuple) or not all(isinstance(line, str) for line in lines):
        yield f"{method.in_code('DEPARTURES')}: DEPARTURES is {lines!r:.60}; allowed: a tuple of lines"
        return
    if len(set(lines)) < len(lines):
        yield f"{method.in_code('DEPARTURES')}: a line stands there twice"
    for line in lines:
        if not (0 < len(line) <= MOST_IN_LINE and line.isprintable() and line == line.strip() and line[-1] != "."):
            allowed = f"up to {MOST_IN_LINE} characters, without a full stop"
            yield f"{method.in_code('DEPARTURES')}: {line!r:.60}; allowed: {allowed}"


def some_task_is_studied(method: Method) -> Iterator[str]:
    """the values are a configuration, which some task takes"""
    refused = {task: method.refuses(task) for task in TRAINABLE_TASKS}
    if all(refused.values()):
        yield f"{method.in_space('FIXED')}: {refused[TRAINABLE_TASKS[0]]}"


def every_point_is_a_configuration(method: Method) -> Iterator[str]:
    """every point of PUBLISHED and PAPER_GRID, and every corner of SPACE, is a configuration"""
    grid, corners = combinations_of(method.space.paper_grid), corners_of(method.space.space)
    for task in _tasks(method):
        points = [*method.space.published.get(task, ()), *grid, *corners]
        yield from _refused("SPACE", task, points, method)


def every_mini_corner_is_a_configuration(method: Method) -> Iterator[str]:
    """every corner of the ranges on tiny backbones is a configuration"""
    for task in _tasks(method):
        points = [{**method.space.mini_fixed, **point} for point in corners_of(mini_ranges(method))]
        yield from _refused("MINI_FIXED", task, points, method)


# What all others build on: where one of these is broken, others may be too, and say nothing more.
FIRST: tuple[Rule, ...] = (config_is_a_training_config, every_field_is_tuned_or_fixed)
# Quick, and enough for a plan to be made.
RULES: tuple[Rule, ...] = (
    *FIRST,
    values_of_tasks_are_of_fixed_fields,
    variants_fix_fields,
    grid_covers_the_ranges,
    published_points_are_whole,
    mini_ranges_are_of_tuned_fields,
    mini_grid_lies_within_the_mini_ranges,
    backbones_are_named,
    departures_are_lines,
)
POINT_RULES: tuple[Rule, ...] = (
    some_task_is_studied,
    every_point_is_a_configuration,
    every_mini_corner_is_a_configuration,
)


def check_files(method: str) -> None:
    """Passes if the two files of a method fit each other.

    Raises:
        ValueError: they do not; the first fault is named.
    """
    for rule in RULES:
        for fault in rule(Method(trainables.base_method(method))):
            raise ValueError(fault)


def combinations_of(menus: Mapping[str, Sequence[Value]]) -> list[dict[str, Value]]:
    """Every way to take one value of each field's menu."""
    return [dict(zip(menus, values, strict=True)) for values in itertools.product(*menus.values())]


def corners_of(ranges: Mapping[str, BaseDistribution]) -> list[dict[str, Value]]:
    """Every combination of choices and ends of ranges."""
    return combinations_of({field: _ends(distribution) for field, distribution in ranges.items()})


def mini_ranges(method: Method) -> dict[str, BaseDistribution]:
    """Of the fields that are tuned on a tiny random backbone."""
    return _on_mini(method, method.space.space, method.space.mini_space)


def _ends(distribution: Any) -> Sequence[Value]:
    return getattr(distribution, "choices", None) or (distribution.low, distribution.high)


def _on_mini(method: Method, values: Mapping[str, Any], laid_over: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**values, **laid_over}.items() if name not in method.space.mini_fixed}


def _tasks(method: Method) -> list[str]:
    return [task for task in TRAINABLE_TASKS if method.refuses(task) is None]


def _known(name: str, found: Mapping[str, object], menu: Sequence[str] | Any, method: Method) -> Iterator[str]:
    for key in found:
        if key not in menu:
            place = method.in_space(name.partition("[")[0])
            yield f"{place}: {name} has {key!r}; allowed: {', '.join(sorted(menu)) or 'nothing'}"


def _same(name: str, found: Mapping[str, Any], other: str, wanted: Mapping[str, Any], method: Method) -> Iterator[str]:
    place = method.in_space(name.partition("[")[0])
    for field in sorted({*wanted} - {*found}):
        yield f"{place}: {name} lacks {field}, which is in {other}"
    for field in sorted({*found} - {*wanted}):
        yield f"{place}: {name} has {field}, which {other} lacks"


def _within(
    name: str, points: Mapping[str, Sequence[Value]], ranges: Mapping[str, Any], method: Method
) -> Iterator[str]:
    for field in [field for field in points if field in ranges]:
        for value in points[field]:
            if not _contains(ranges[field], value):
                place = method.in_space(name.partition("[")[0])
                yield f"{place}: {name} has {field} {value!r}, which is outside of {ranges[field]}"


def _contains(distribution: Any, value: Value) -> bool:
    """Whether Optuna takes the value for one of the distribution."""
    try:
        create_trial(value=0.0, params={"field": value}, distributions={"field": distribution})
    except ValueError:
        return False
    return True


def _refused(name: str, task: str, points: Sequence[Configuration], method: Method) -> Iterator[str]:
    for point in points:
        try:
            trainables.configure(method.name, {**method.values(task), **point}).check_task(TASKS[task])
        except ValueError as error:
            yield f"{method.in_space(name)}: on {task}: {error}"
            return
