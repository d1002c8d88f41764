"""Check your own methods against the rules for every method: `python -m study.check_method FOLDER`.

Prints a line for each rule that holds, and one for each fault, with its file, its line and the rules that it breaks.
The tests of this package check its own methods against the same rules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import trainables
from study.command_line import Command, argument
from study.contract import space_rules
from study.facts.plain_words import counted
from study.plans.resolution import fits
from trainables import method_files
from trainables.encoders.backbones import MINI_BACKBONES
from trainables.schema import Typed


class Options(Typed, frozen=True, kw_only=True):
    """The options of this command."""

    folder: Annotated[str, argument("FOLDER", "folder with your own methods, each NAME.py and NAME_space.py")]


def run(options: Options) -> int:
    """Return 0 if every method keeps every rule, 1 if a rule is broken, 2 if the folder has no methods."""
    methods = method_files.read_methods(options.folder, named="FOLDER")
    method_files.include(methods)
    faults = 0
    for stem in methods.pairs:
        method = stem.replace("_", "-")
        broken: dict[str, list[str]] = {}  # fault -> rules
        for rule, fault in check(method):
            if fault is None:
                print(f"ok    {method}: {rule}", flush=True)
            else:
                broken.setdefault(fault, []).append(rule)
        for fault, rules in broken.items():
            print(f"FAULT {method}: {fault}; broken: {'; '.join(rules)}", flush=True)
        faults += len(broken)
    print("every rule holds" if not faults else counted(faults, "fault"))
    return 1 if faults else 0


def check(method: str) -> Iterator[tuple[str, str | None]]:
    """Check the rules in order; yield each rule's text with its fault, or with None if the method keeps the rule.

    No model is built if a rule on the method's files is broken.
    """
    files = "both files are there and can be read"
    subject = space_rules.Method(method)
    fault = _fault_of(method, lambda: (trainables.load(method), subject.space))
    yield files, fault
    if fault is not None:
        return
    is_sound = True
    for rule in (*space_rules.RULES, *space_rules.POINT_RULES):
        fault = _fault_of(method, partial(space_rules.first_fault, rule, subject))
        is_sound &= fault is None
        yield space_rules.describe(rule), fault
        if fault is not None and rule in space_rules.FIRST:
            return
    if is_sound:
        yield from _model_rules(method)


def _model_rules(method: str) -> Iterator[tuple[str, str | None]]:
    from study.contract.model_rules import RULES, Subject  # imports torch

    subjects = [Subject(method, backbone) for backbone in MINI_BACKBONES if fits(method, backbone)]
    for rule in RULES:
        found = ((subject.backbone, _fault_of(method, partial(rule, subject))) for subject in subjects)
        fault = next((f"{fault} (on {backbone})" for backbone, fault in found if fault), None)
        yield space_rules.describe(rule), fault
        if fault is not None and rule is RULES[0]:  # the other rules depend on the first one
            return


def _fault_of(method: str, look: Callable[[], object]) -> str | None:
    """Describe the fault that a check returns or raises, with its place in the method's file; None without a fault."""
    try:
        found = look()
    except AssertionError as error:
        function, (file, _) = getattr(error, "function", None), method_files.files_of(method)
        place = function and method_files.place_of_function(function, method)
        return f"{place or file.place_of('def build')}: {error or 'an assertion fails'}"
    except Exception as error:  # noqa: BLE001  # a user's method may raise anything
        return method_files.describe_error(error, method)
    return found if isinstance(found, str) else None


main = Command("study.check_method", Options, "Check your own methods against the rules for every method.", run)

if __name__ == "__main__":
    sys.exit(main())
