"""Includes the users' own methods whose stored models a command runs.

A study that somebody sent can name any folder. Without --include, a folder is therefore included only if exactly its
files have run on this machine before, of which `IncludedMethods.copy` keeps a copy.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec import UNSET

import trainables
from study.facts.code_history import list_edited_methods
from study.facts.plan_file import include_folder, require_plan
from study.facts.record import Record
from study.facts.study_facts import read_facts
from study.terminal.text import print_lines, python
from trainables import base_method
from trainables.files import method_files
from trainables.files.sources import cache_folder


def include_methods(study: Path, records: Collection[Record], folders: Sequence[str] | None) -> None:
    """Register the users' methods that trained `records`, from `folders` or else from the folders of the study's plan.

    Warn if the methods' files have changed since. A command without an option for folders gives None.

    Raises:
        ValueError: a folder is missing, is not a folder of methods, or has files that have not run on this machine.
    """
    _include(study, records, folders)
    print_lines([f"warning: {line}" for line in _describe_edits(study, records)], sys.stderr)


def include_unchanged_methods(study: Path, records: Collection[Record], folders: Sequence[str] | None) -> None:
    """Register methods as `include_methods` does; raise ValueError if their files have changed since the training."""
    _include(study, records, folders)
    for line in _describe_edits(study, records):
        raise ValueError(f"{line}; allowed: --include with a folder of the files that trained them")


def _describe_edits(study: Path, records: Collection[Record]) -> list[str]:
    """Describe in a line which methods' files have changed since they trained `records`; [] if none has."""
    if (methods := method_files.included()) is None:
        return []
    facts = read_facts(study)
    edited = list_edited_methods(facts, [facts.trials[record.key] for record in records])
    where = f"the files of {', '.join(edited)} in {methods.folder}"
    return [f"{where} have changed since they trained the study's models"] if edited else []


def _include(study: Path, records: Collection[Record], folders: Sequence[str] | None) -> None:
    if folders:
        trainables.include(method_files.join_folders(folders), named="--include")
    elif (folder := require_plan(study).plan.request.include) is not UNSET:
        for method in {record.method for record in records}:
            _include_planned(method, folder, study if folders is None else None)


def _include_planned(method: str, folder: str, continued: Path | None) -> None:
    """Register a method from the folder in a plan; `continued` is the study of a command without --include."""
    known = method_files.included()
    if known is None or known.folder != folder:
        method_files.include(None)
        if base_method(method) in method_files.names():  # of this package
            return
    option = "--include" if continued is None else "study.launch --continue with --include"
    include_folder([method], folder, option=option)
    _check_ran_here(method, folder, continued)


def _check_ran_here(method: str, folder: str, continued: Path | None) -> None:
    """Check that the included files have run on this machine; otherwise forget them, and raise ValueError."""
    methods = method_files.included()
    if methods is None or methods.is_copied(cache_folder()):
        return
    method_files.include(None)
    options = " ".join(f"--include {shlex.quote(one)}" for one in method_files.split_folders(folder))
    advice = f"add {options}"
    if continued:
        advice = f"run: {python()} -m study.launch --continue {shlex.quote(str(continued))} {options} --dry-run"
    raise ValueError(
        f"the plan of the study takes {method} from {folder}, whose files have not run on this machine as they are; "
        f"read them, and if you trust them, {advice}"
    )
