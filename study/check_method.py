"""Check your own methods against the rules that every method must satisfy: `python -m study.check_method FOLDER`.

Prints one line for each rule that holds and one for each fault. The line of a fault gives the file, the line number
and the broken rules. The project's tests check the built-in methods against the same rules.
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

    folder: Annotated[str, argument("FOLDER", "folder with your own methods, each in NAME.py and NAME_space.py")]


def run(options: Options) -> int:
    """Check every method in the folder and print the results; return 0 if all rules hold, else 1."""
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
            print(f"FAULT {method}: {fault}; broken rules: {'; '.join(rules)}", flush=True)
        faults += len(broken)
    print("every rule holds" if not faults else counted(faults, "fault"))
    return 1 if faults else 0


def check(method: str) -> Iterator[tuple[str, str | None]]:
    """Check a method against each rule. Yield the rule's description, and the fault (None if the rule holds).

    The rules that need a model are checked only if the method's files break no rule.
    """
    files = "the method's two files exist and can be loaded"
    subject = space_rules.Method(method)
    fault = _find_fault(method, lambda: (trainables.load(method), subject.space))
    yield files, fault
    if fault is not None:
        return
    is_sound = True
    for rule in (*space_rules.RULES, *space_rules.POINT_RULES):
        fault = _find_fault(method, partial(space_rules.find_first_fault, rule, subject))
        is_sound &= fault is None
        yield space_rules.describe(rule), fault
        if fault is not None and rule in space_rules.FIRST:
            return
    if is_sound:
        yield from _check_model(method)


def _check_model(method: str) -> Iterator[tuple[str, str | None]]:
    from study.contract.model_rules import RULES, Subject  # imports torch

    subjects = [Subject(method, backbone) for backbone in MINI_BACKBONES if fits(method, backbone)]
    for rule in RULES:
        faults = ((subject.backbone, _find_fault(method, partial(rule, subject))) for subject in subjects)
        fault = next((f"{fault} (on {backbone})" for backbone, fault in faults if fault), None)
        yield space_rules.describe(rule), fault
        if fault is not None and rule is RULES[0]:  # the other rules depend on the first one
            return


def _find_fault(method: str, check_rule: Callable[[], object]) -> str | None:
    """Describe the fault that `check_rule` returns or raises; return None if there is no fault.

    The description of an exception begins with the file and the line number.
    """
    try:
        fault = check_rule()
    except AssertionError as error:
        function, (file, _) = getattr(error, "function", None), method_files.locate_files(method)
        place = function and method_files.place_of_function(function, method)
        return f"{place or file.format_place('def build')}: {error or 'an assertion fails'}"
    except Exception as error:  # noqa: BLE001  # a user's method may raise anything
        return method_files.describe_error(error, method)
    return fault if isinstance(fault, str) else None


main = Command(
    "study.check_method", Options, "Check your own methods against the rules that every method must satisfy.", run
)

if __name__ == "__main__":
    sys.exit(main())
