"""Check your own methods against the rules that every method must satisfy: `python -m study.check_method FOLDER`.

Prints one line for each rule that holds and one for each fault. The line of a fault gives the file, the line number
and the broken rules. Each method runs in a process of its own, so that it can end only this process. The project's
tests check the built-in methods against the same rules.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import trainables
from study.contract import space_rules
from study.contract.new_processes import ProcessEnded, new_process
from study.plans.arm_checks import fits
from study.terminal.command_line import Command, argument
from study.terminal.text import counted
from trainables.configuration.schema import Typed
from trainables.encoders.backbone_names import MINI_BACKBONES
from trainables.files import method_files
from trainables.files.method_files import IncludedMethods

FILES = "the method's two files exist and can be loaded"


class Options(Typed, frozen=True, kw_only=True):
    """The options of this command."""

    folder: Annotated[str, argument("FOLDER", "folder with your own methods, each in NAME.py and NAME_space.py")]


def run(options: Options) -> int:
    """Check every method in the folder and print the results; return 0 if all rules hold, else 1."""
    methods = method_files.read_methods(options.folder, named="FOLDER")
    method_files.include(methods)
    if methods.files:
        print(f"these files belong to every method: {', '.join(methods.files)}", flush=True)
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
    """Check a method in a new process. Yield each rule's description, and the fault (None if the rule holds)."""
    rule = FILES
    with new_process(_check_here, method_files.included(), method) as process:
        try:
            while (received := process.receive()) is not None:
                rule, is_over, fault = received
                if is_over:
                    yield rule, fault
        except ProcessEnded as ended:
            yield rule, f"{method_files.locate_files(method)[0].path}: its process {ended}"


def _check_here(send: Callable[[tuple[str, bool, str | None]], None], included: IncludedMethods, method: str) -> None:
    """Check a method in this process. Send each rule twice: before the check, and after it with the fault."""
    method_files.include(included)

    def judge(rule: str, check_rule: Callable[[], object]) -> str | None:
        send((rule, False, None))
        fault = _find_fault(method, check_rule)
        send((rule, True, fault))
        return fault

    _check_rules(method, judge)


Judge = Callable[[str, Callable[[], object]], str | None]


def _check_rules(method: str, judge: Judge) -> None:
    """Check a method against each rule. The rules that need a model are left out if the files break a rule."""
    subject = space_rules.Method(method)
    if judge(FILES, lambda: (trainables.load_method(method), subject.space)) is not None:
        return
    is_sound = True
    for rule in (*space_rules.RULES, *space_rules.POINT_RULES):
        fault = judge(space_rules.describe(rule), partial(space_rules.find_first_fault, rule, subject))
        is_sound &= fault is None
        if fault is not None and rule in space_rules.FIRST:
            return
    if is_sound:
        _check_model(method, judge)


def _check_model(method: str, judge: Judge) -> None:
    import torch

    from study.contract import model_rules, training_rules

    torch.set_num_threads(1)  # equal in all processes, so that weights can be equal
    subjects = [model_rules.Subject(method, backbone) for backbone in MINI_BACKBONES if fits(method, backbone)]
    first, *others = model_rules.RULES  # the others depend on the first one

    def check_all(rule: Callable[[model_rules.Subject], None]) -> str | None:
        faults = ((subject, _find_fault(method, partial(rule, subject))) for subject in subjects)
        return next((f"{fault} ({subject.describe()})" for subject, fault in faults if fault), None)

    if judge(space_rules.describe(first), partial(check_all, first)) is not None:
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(training_rules.ShortTrials(subjects[0], Path(folder))) as trials,
    ):
        with suppress(Exception):  # raised again when a rule needs it
            trials.start()  # its new process works during the other rules
        for rule in others:
            judge(space_rules.describe(rule), partial(check_all, rule))
        for training_rule in training_rules.RULES:
            judge(space_rules.describe(training_rule), partial(training_rule, trials))


def _find_fault(method: str, check_rule: Callable[[], object]) -> str | None:
    """Describe the fault that `check_rule` returns or raises; return None if there is no fault.

    The description of an exception begins with the file and the line number.
    """
    try:
        fault = check_rule()
    except space_rules.RuleBroken as error:
        function, (file, _) = error.function, method_files.locate_files(method)
        place = function and method_files.place_of_function(function, method)
        return f"{place or file.format_place('def build')}: {error}"
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a user's method may raise anything
        return method_files.describe_error(error, method)
    return fault if isinstance(fault, str) else None


main = Command(
    "study.check_method", Options, "Check your own methods against the rules that every method must satisfy.", run
)

if __name__ == "__main__":
    sys.exit(main())
