"""The folder of methods that a study was launched with, for whoever needs these methods later."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import UNSET

from study.plans.plan import Plan
from trainables import base_method, method_files

INCLUDE = "the one folder of all your own methods, each NAME.py and NAME_space.py; the study remembers it"
INCLUDE_NOW = "where the folder of your own methods is now, if it was moved; of an exported model: its folder methods"


def include_folder(methods: Iterable[str], folder: str) -> None:
    """Makes the methods of the folder known; it may have gone where the package has all of these methods.

    Raises:
        ValueError: it has gone, or is no folder of methods.
    """
    known = method_files.included()
    if known is not None and known.folder == folder:
        return
    method_files.include(None)
    needed = [method for method in methods if base_method(method) not in method_files.names()]
    if Path(folder).is_dir():
        method_files.include(method_files.read_methods(folder))
    elif needed:
        raise ValueError(
            f"{needed[0]} is a method of the folder {folder}, which is gone; allowed: put it back, or say where it is "
            "now by --include FOLDER"
        )


def check_in_one_folder(methods: Iterable[str], asked: Plan, earlier: Plan) -> None:
    """Passes unless a study has a method of another folder than the one that it is to go on with.

    Raises:
        ValueError: it has; a study has one folder.
    """
    if UNSET in (asked.include, earlier.include) or asked.include == earlier.include:
        return
    missing = [method for method in methods if base_method(method) not in method_files.names()]
    if missing:
        raise ValueError(
            f"the study's method {missing[0]} is of the folder {earlier.include}, and not in {asked.include}; allowed: "
            "one folder with the files of all methods"
        )


def include_for(method: str, asked: Plan | None, given: str | None) -> None:
    """Makes known what a study's method is: from the folder that is given, or else the one that its plan names.

    Raises:
        ValueError: the folder has gone, or is no folder of methods.
    """
    if given is not None:
        method_files.include(method_files.read_methods(given))
    elif asked is not None and asked.include is not UNSET:
        include_folder([method], asked.include)
