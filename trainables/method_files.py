"""Finds and loads the two files of each method: the method's own file and the file of its search space.

The files of this project's methods are `trainables/NAME.py` and `search_spaces/NAME.py`. A folder that a user adds with
--include has `NAME.py` and `NAME_space.py` side by side. These files are read once. All machines run the text that was
read, even if the files change later. File names have `_` where the method's name has `-`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from trainables.schema import Typed
from trainables.spelling import suggest_nearest

PACKAGE = "included_methods"  # package name of the included folder's modules: `from included_methods._mine import ...`
SPACE = "_space"  # suffix of an included search space's file
_IS_STEM = re.compile("[a-z][a-z0-9_]*")
_IS_METHOD = re.compile(r"^(def build|class Config)\b", re.MULTILINE)


class IncludedMethods(Typed, frozen=True, kw_only=True):
    """The names and texts of the Python files in an included folder, as they were when the folder was read."""

    folder: str  # absolute path
    sources: Mapping[str, str]  # name of a file -> its text

    @property
    def digests(self) -> dict[str, str]:
        """Map each method to a hash (16 hexadecimal digits) of the names and contents of its files."""
        return {_name(stem): _digest(self.for_method(stem)) for stem, both in self.pairs.items() if all(both)}

    def for_method(self, method: str) -> dict[str, str]:
        """Map the method's two files and all `_*.py` files to their texts.

        The result is empty if the folder lacks one of the two files.
        """
        if not self.defines(method):
            return {}
        stem = _stem(method)
        files = (f"{stem}.py", f"{stem}{SPACE}.py")
        return {name: text for name, text in self.sources.items() if name in files or name[0] == "_"}

    def defines(self, method: str) -> bool:
        """Check whether the folder has both files of a method."""
        return all(self.pairs.get(_stem(method), (False,)))

    @property
    def pairs(self) -> dict[str, tuple[bool, bool]]:
        """Map each method NAME to two flags: whether the folder has `NAME.py`, and whether it has `NAME_space.py`."""
        stems = {name.removesuffix(".py") for name in self.sources if not name.startswith("_")}
        spaces = {stem.removesuffix(SPACE) for stem in stems if stem.endswith(SPACE)}
        return _pair(stems, spaces, lambda stem: self.sources[f"{stem}.py"])


@dataclass(frozen=True)
class MethodFile:
    """A method's file, or the file of its search space."""

    module: str  # import name of the module
    path: str  # path as messages print it

    def format_place(self, name: str) -> str:
        """Format `path:line` of the definition of `name`, or only the path if `name` is not defined."""
        match = re.search(rf"^{name}\b", inspect.getsource(self.load()), re.MULTILINE)
        return self.path if match is None else f"{self.path}:{match.string.count(chr(10), 0, match.start()) + 1}"

    def load(self) -> ModuleType:
        """Import the file's module.

        Raises:
            ValueError: if the code raises an error; the message gives the line.
        """
        try:
            return importlib.import_module(self.module)
        except (Exception, SystemExit) as error:  # a user's file can raise anything
            kind = CannotImport if isinstance(error, ImportError) else ValueError
            if isinstance(error, SyntaxError):
                reason = f"{error.filename or self.path}:{error.lineno}: {type(error).__name__}: {error.msg}"
            else:
                reason = f"{_find_place(error, self.path) or self.path}: {format_error(error)}"
            raise kind(reason) from error


class CannotImport(ValueError, ImportError):
    """Raised when an import in a method's file fails."""


_included: IncludedMethods | None = None


def included() -> IncludedMethods | None:
    """Return the methods that this process has included, or None if it has not included any."""
    return _included


def read_methods(folder: str | Path, *, named: str = "--include", may_lack_methods: bool = False) -> IncludedMethods:
    """Read the methods in a folder.

    Args:
        named: name of the user's option, for error messages.
        may_lack_methods: accept a folder without methods.

    Raises:
        ValueError: if the folder is missing or has no method, if a file is not a text, or if a method's name is invalid
            or already taken.
    """
    allowed = "a folder with methods (NAME.py and NAME_space.py) or tasks (NAME/task.toml)"
    try:
        files = sorted(path for path in Path(folder).iterdir() if path.suffix == ".py" and path.is_file())
        sources = {path.name: path.read_text(encoding="utf-8") for path in files}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"{named} {folder}: {reason}; allowed: {allowed}{_suggest_folder(folder)}") from None
    methods = IncludedMethods(folder=str(Path(folder).resolve()), sources=sources)
    if not methods.pairs and not may_lack_methods:
        raise ValueError(f"{named} {folder}: the folder has no methods; allowed: {allowed}{_suggest_folder(folder)}")
    package_pairs = _list_package_pairs()
    for stem in methods.pairs:
        if not _IS_STEM.fullmatch(stem):
            allowed = "a lower-case letter, then lower-case letters, digits and _ (the method's name has - for _)"
            raise ValueError(f"{folder}/{stem}.py: {stem} is not a valid method name; allowed: {allowed}")
        if all(package_pairs.get(stem, (False,))):
            raise ValueError(f"{folder}/{stem}.py: the package has a method {_name(stem)!r}; choose another name")
    return methods


def _suggest_folder(place: str | Path) -> str:
    """Suggest the folder that the user probably meant, as in `; did you mean mine/methods?`.

    This is the parent of a task's folder, or a nearby folder with methods. If there is none, return "".
    """
    folder = Path(place)
    if (folder / "task.toml").is_file():
        return f"; did you mean {folder.parent}?"
    near = [folder.parent] if folder.is_file() else sorted(folder.glob("*/"))
    nearest = next((path for path in near if any(path.glob(f"[a-z]*{SPACE}.py"))), None)
    return f"; did you mean {nearest}?" if nearest else ""


def include(methods: IncludedMethods | None) -> None:
    """Replace this process's included methods by `methods`; None removes all of them."""
    global _included
    if methods == _included:
        return
    for module in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[module]
    if not any(isinstance(finder, _Included) for finder in sys.meta_path):
        sys.meta_path.append(_Included())
    _included = methods


def names() -> list[str]:
    """List all methods that have a file and a search space, in alphabetical order."""
    return sorted(_name(stem) for stem, both in _list_pairs().items() if all(both))


def check_both_files(method: str) -> None:
    """Check that a method has both of its files, or neither of them.

    Raises:
        ValueError: if only one of the two files exists; the message names both files.
    """
    has_method, has_space = _list_pairs().get(_stem(method), (False, False))
    if has_method != has_space:
        present, missing = (file.path for file in locate_files(method)[:: 1 if has_method else -1])
        raise ValueError(f"method {method!r} needs two files: {present} exists, {missing} is missing")


def locate_files(method: str) -> tuple[MethodFile, MethodFile]:
    """Locate the file of a method and the file of its search space."""
    stem = _stem(method)
    if _included is not None and stem in _included.pairs:
        path = f"{_included.folder}/{stem}"
        return (
            MethodFile(f"{PACKAGE}.{stem}", f"{path}.py"),
            MethodFile(f"{PACKAGE}.{stem}{SPACE}", f"{path}{SPACE}.py"),
        )
    return (
        MethodFile(f"trainables.{stem}", f"trainables/{stem}.py"),
        MethodFile(f"search_spaces.{stem}", f"search_spaces/{stem}.py"),
    )


def place_of_function(function: Callable[..., object], method: str) -> str | None:
    """Return `path:line` of a function, or None if it is not defined in the method's two files."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    file = next((each for each in locate_files(method) if code and _is_same_file(code.co_filename, each.path)), None)
    return f"{file.path}:{code.co_firstlineno}" if file and code else None


def describe_error(error: Exception, method: str) -> str:
    """Describe an error in a method's code in one line of text, with `path:line` if known."""
    place = next((place for file in locate_files(method) if (place := _find_place(error, file.path))), None)
    if place is None:
        return str(error) if isinstance(error, ValueError) else f"{locate_files(method)[0].path}: {format_error(error)}"
    return f"{place}: {format_error(error)}"


class _Included(MetaPathFinder, ExecutionLoader):
    """Imports the modules of the included folder from the texts in `IncludedMethods`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if _included is None or fullname.partition(".")[0] != PACKAGE:
            return None
        if fullname == PACKAGE:
            return ModuleSpec(PACKAGE, None, is_package=True)
        if self._file(fullname) not in _included.sources:
            return None
        return spec_from_file_location(fullname, self.get_filename(fullname), loader=self)

    def get_filename(self, fullname: str) -> str:
        assert _included is not None
        return f"{_included.folder}/{self._file(fullname)}"

    def get_source(self, fullname: str) -> str:
        assert _included is not None
        return _included.sources[self._file(fullname)]

    @staticmethod
    def _file(fullname: str) -> str:
        return f"{fullname.partition('.')[2]}.py"


def _list_pairs() -> dict[str, tuple[bool, bool]]:
    """Return all methods, this project's and the included ones, in the form of `IncludedMethods.pairs`."""
    return _list_package_pairs() | ({} if _included is None else _included.pairs)


def _list_package_pairs() -> dict[str, tuple[bool, bool]]:
    return _read_pairs(tuple(sys.modules["trainables"].__path__))


@functools.cache
def _read_pairs(packages: tuple[str, ...]) -> dict[str, tuple[bool, bool]]:
    folders = [Path(package).parent for package in packages]
    files = {file.stem: file for folder in folders for file in (folder / "trainables").glob("[!_]*.py")}
    spaces = {file.stem for folder in folders for file in (folder / "search_spaces").glob("[!_]*.py")}
    return _pair(set(files), spaces, lambda stem: files[stem].read_text(encoding="utf-8"))


def _pair(stems: set[str], spaces: set[str], read: Callable[[str], str]) -> dict[str, tuple[bool, bool]]:
    """Map each method to two flags: whether it has a file (`stems`), and whether it has a search space (`spaces`).

    A file without a search space counts only if its text, `read(stem)`, defines a method.
    """
    methods = {stem for stem in stems if stem in spaces or _IS_METHOD.search(read(stem))}
    return {stem: (stem in stems, stem in spaces) for stem in sorted(spaces | methods)}


def _digest(sources: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for name, text in sorted(sources.items()):
        digest.update(f"{name} {hashlib.sha256(text.encode()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def _name(stem: str) -> str:
    return stem.replace("_", "-")


def _stem(method: str) -> str:
    return method.replace("-", "_")


def _find_place(error: BaseException, path: str) -> str | None:
    """Find the last traceback entry in the file `path`; return `path:line`, or None if there is no entry."""
    frames = traceback.extract_tb(error.__traceback__)
    numbers = [frame.lineno for frame in frames if _is_same_file(frame.filename, path)]
    return f"{path}:{numbers[-1]}" if numbers else None


def _is_same_file(path: str, other: str) -> bool:
    return Path(path).parts[-2:] == Path(other).parts[-2:]


def format_error(error: BaseException) -> str:
    """Format the type of an error and the first line of its message.

    If the error is about an unknown name, suggest the nearest known name.
    """
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}{_suggest_name(error)}"


def _suggest_name(error: BaseException) -> str:
    """Suggest the nearest known name, as in `; did you mean is_regression?`; return an empty text if none is near."""
    if isinstance(error, AttributeError) and error.name:
        return suggest_nearest(error.name, dir(error.obj))
    if isinstance(error, NameError) and error.name:
        frame = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
        return suggest_nearest(error.name, {**frame.f_builtins, **frame.f_globals, **frame.f_locals})
    return ""
