"""The methods, one file each, and the parts that they share. Importing this package does not import torch.

Each method has a file in this package, and a file of the same name in `search_spaces/`. File names have `_` where the
method's name has `-`. A variant of a method, such as `palbert:a`, runs the code of the method with fixed values for
some configuration fields. `include` adds the methods and tasks in a user's folder.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from trainables.configuration import TrainingConfig
from trainables.configuration.schema import Configuration, from_plain
from trainables.configuration.spelling import unknown_name_error
from trainables.files import method_files

VARIANT = ":"  # separates a method's name from its variant's
VALUE = "="  # separates a field from its value in the name of a variant


class Departure(NamedTuple):
    """A difference between a method, recipe or plan and its original paper or code, in short phrases."""

    what: str  # name of the configuration field, or a free description
    paper: str  # value in the paper or the paper's code; empty if nothing there is comparable
    here: str

    def __str__(self) -> str:
        """Format the difference, e.g. `weight_decay: 0 (paper: 0.01)`."""
        names_source = self.paper.endswith((" in the paper", " in the code"))
        paper = self.paper if names_source else f"paper: {self.paper}"
        return f"{self.what}: {self.here}" + f" ({paper})" * bool(self.paper)


def base_method(method: str) -> str:
    """Remove the variant from a method's name: `palbert:a` becomes `palbert`."""
    return method.partition(VARIANT)[0]


def is_value_variant(method: str) -> bool:
    """Check if a method's name is that of a variant which fixes one field, such as `palbert:beta=0.1`."""
    return bool(find_varied_field(method))


def find_varied_field(method: str) -> str:
    """Return the field that a variant such as `palbert:beta=0.1` fixes; empty for any other method."""
    field, separator, _ = method.partition(VARIANT)[2].partition(VALUE)
    return field if separator else ""


def build_module_name(method: str) -> str:
    """Build the import name of a method's module; variants of a method share its module."""
    return method_files.locate_files(base_method(method))[0].module


def list_methods() -> list[str]:
    """List all methods, in alphabetical order."""
    return method_files.names()


def include(folder: str | Path, *, named: str = "folder") -> None:
    """Add the methods and tasks in a user's folder, or in several that `method_files.join_folders` has joined.

    A method consists of the files `NAME.py` and `NAME_space.py`. A task is a folder `NAME` with `task.toml`, `train`
    and `dev`.

    Args:
        named: name of the user's option, for error messages.

    Raises:
        ValueError: if the folder has no methods or tasks, or one of them is invalid or has a name that is taken.
    """
    from trainables.data.own_tasks import read_tasks
    from trainables.data.tasks import TASKS, Task

    tasks, parts = dict[str, Task](), list[method_files.IncludedMethods]()
    for one in method_files.split_folders(str(folder)):
        for task in (here := read_tasks(one)):
            if task.name in tasks:
                raise ValueError(f"{named}: {tasks[task.name].place} and {task.place} are tasks of the same name")
            tasks[task.name] = task
        parts.append(method_files.read_methods(one, named=named, may_lack_methods=bool(here)))
    method_files.include(method_files.join_methods(parts, named=named))
    TASKS.update(tasks)


def load_method(method: str) -> ModuleType:
    """Import the module of a method or variant, and check that it defines `Config`, `build` and `DEPARTURES`.

    Raises:
        ValueError: if the method is unknown, its name ends with a colon, or one of its files is missing or invalid.
    """
    name = base_method(method)
    method_files.check_both_files(name)
    if name not in list_methods() or method == f"{name}{VARIANT}":
        raise unknown_name_error("method", method, list_methods())
    file, _ = method_files.locate_files(name)
    module = file.import_module()
    if absent := [part for part in ("DEPARTURES", "Config", "build") if not hasattr(module, part)]:
        raise ValueError(
            f"{file.path} does not define {', '.join(absent)}; a method must define DEPARTURES, Config and build"
        )
    return module


def configure(method: str, values: Configuration) -> TrainingConfig:
    """Build the configuration of a method or variant, and check every field.

    Raises:
        ValueError: if the method is unknown, or a field is missing, unknown or out of range.
    """
    return from_plain(load_method(method).Config, values, where=method)


def departures(method: str) -> tuple[Departure, ...]:
    """List the differences between a method here and its original, the most important first.

    If VARIANT_DEPARTURES in the method's file lists differences for the variant, return these instead.

    Raises:
        ValueError: if the method is unknown.
    """
    module = load_method(method)
    lines = getattr(module, "VARIANT_DEPARTURES", {}).get(method.partition(VARIANT)[2], module.DEPARTURES)
    return tuple(Departure(*line) for line in lines)
