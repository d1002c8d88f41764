"""Finds and loads the two files of each method: the method's own file and the file of its search space.

The files of this project's methods are `trainables/NAME.py` and `search_spaces/NAME.py`. A folder that a user adds with
--include has `NAME.py` and `NAME_space.py` side by side, and perhaps other files that they read. All files of the
folder are read once, and each process that runs a method finds them as they were read, even if they change later: a
method's `__file__` lies in a copy of the folder in the cache. File names have `_` where the method's name has `-`.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import inspect
import os
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

from filelock import FileLock
from msgspec.structs import replace

from trainables.configuration.schema import Typed
from trainables.configuration.spelling import suggest_nearest
from trainables.files.atomic_files import write_folder
from trainables.files.sources import cache_folder, is_visible_file

PACKAGE = "included_methods"  # package name of the included folder's modules: `from included_methods._mine import ...`
SPACE = "_space"  # suffix of an included search space's file
MOST_MEGABYTES = 2  # of the other files in an included folder; each trial's assignment contains them
_IS_STEM = re.compile("[a-z][a-z0-9_]*")
_IS_METHOD = re.compile(r"^(def build|class Config)\b", re.MULTILINE)


class IncludedMethods(Typed, frozen=True, kw_only=True):
    """The files in an included folder, as they were when the folder was read."""

    folder: str  # absolute path; several are joined by `join_folders`
    sources: Mapping[str, str]  # name of a Python file -> its text
    files: Mapping[str, bytes] = {}  # name of another file -> its content
    places: Mapping[str, str] = {}  # name of a file -> its folder, if there are several folders

    @property
    def digests(self) -> dict[str, str]:
        """Map each method to a hash (16 hexadecimal digits) of the names and contents of its files."""
        return {_name(stem): _digest(self.for_method(stem)) for stem, both in self.pairs.items() if all(both)}

    def for_method(self, method: str) -> dict[str, bytes]:
        """Map the names of all files that a method may use to their contents.

        These are all files of the folder, without the two files of each other method that the method does not import.
        The result is empty if the folder lacks one of the method's own two files.
        """
        if not self.defines(method):
            return {}
        own = _name_files(_stem(method))
        others = {file for stem in self.pairs for file in _name_files(stem)} - {*own}
        others |= {name for name in self.sources if self.places.get(name) != self.places.get(own[0])}
        used = [name for name in self.sources if name not in others]
        for name in used:  # grows by what each file imports
            used += [other for other in _list_imports(self.sources[name]) if other in others and other not in used]
        places = {self.places.get(name) for name in used}
        files = {name: content for name, content in self.files.items() if self.places.get(name) in places}
        return {name: self.sources[name].encode() for name in sorted(used)} | files

    def locate(self, name: str) -> str:
        """Return the absolute path of a file, as it was when the folder was read."""
        return f"{self.places.get(name, self.folder)}/{name}"

    def copy(self, cache: Path) -> Path:
        """Return a folder in the cache with a copy of all files; write the copy if it is missing or has changed."""
        folder = self._locate_copy(cache)

        def fill(unfinished: Path) -> None:
            for name, content in self._contents.items():
                (unfinished / name).write_bytes(content)

        if not self.is_copied(cache):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{folder}.lock"):
                if not self.is_copied(cache):
                    write_folder(folder, fill)
        return folder

    def is_copied(self, cache: Path) -> bool:
        """Check whether the cache has a copy of all files, as it has once exactly these files were imported."""
        folder = self._locate_copy(cache)
        paths = [(folder / name, content) for name, content in self._contents.items()]
        return all(path.is_file() and path.read_bytes() == content for path, content in paths)

    @property
    def _contents(self) -> dict[str, bytes]:
        return {name: text.encode() for name, text in self.sources.items()} | dict(self.files)

    def _locate_copy(self, cache: Path) -> Path:
        return cache / "methods" / _digest(self._contents)

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
        match = re.search(rf"^{name}\b", inspect.getsource(self.import_module()), re.MULTILINE)
        return self.path if match is None else f"{self.path}:{match.string.count(chr(10), 0, match.start()) + 1}"

    def import_module(self) -> ModuleType:
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
_copy: Path | None = None  # copy of the included folder, made before the first import from it


def included() -> IncludedMethods | None:
    """Return the methods that this process has included, or None if it has not included any."""
    return _included


def compute_digest(method: str) -> str | None:
    """Return the digest of a method's files, or None if the method is not in the included folder."""
    return _included.digests.get(method) if _included else None


def read_methods(folder: str | Path, *, named: str = "--include", may_lack_methods: bool = False) -> IncludedMethods:
    """Read the methods in a folder.

    Args:
        named: name of the user's option, for error messages.
        may_lack_methods: accept a folder without methods.

    Raises:
        ValueError: if the folder is missing or has no method, if a Python file cannot be read or is not UTF-8, if the
            other files are too large, or if a method's name is invalid or already taken.
    """
    allowed = "a folder with methods (NAME.py and NAME_space.py) or tasks (NAME/task.toml)"
    try:
        paths = sorted(filter(is_visible_file, Path(folder).iterdir()))
    except OSError as error:
        raise ValueError(f"{named} {folder}: {error.strerror}; allowed: {allowed}{_suggest_folder(folder)}") from None
    sources = {path.name: _read_source(path, named=named) for path in paths if path.suffix == ".py"}
    methods = IncludedMethods(folder=str(Path(folder).resolve()), sources=sources)
    if not methods.pairs and not may_lack_methods:
        raise ValueError(f"{named} {folder}: the folder has no methods; allowed: {allowed}{_suggest_folder(folder)}")
    if methods.pairs:  # a folder of tasks alone may be large
        methods = replace(methods, files=_read_others([path for path in paths if path.suffix != ".py"], named=named))
    package_pairs = _list_package_pairs()
    for stem in methods.pairs:
        if not _IS_STEM.fullmatch(stem):
            allowed = "a lower-case letter, then lower-case letters, digits and _ (the method's name has - for _)"
            raise ValueError(f"{folder}/{stem}.py: {stem} is not a valid method name; allowed: {allowed}")
        if all(package_pairs.get(stem, (False,))):
            raise ValueError(f"{folder}/{stem}.py: the package has a method {_name(stem)!r}; choose another name")
    return methods


def join_folders(folders: Sequence[str]) -> str:
    """Join the paths of the folders of --include as one text, which `split_folders` splits again."""
    return os.pathsep.join(folders)


def join_absolute(folders: Sequence[str]) -> str:
    """Join the absolute paths of folders, or of such texts, as `join_folders` does."""
    return join_folders([str(Path(one).resolve()) for folder in folders for one in split_folders(folder)])


def split_folders(text: str) -> list[str]:
    """Split a text of `join_folders` into the paths of its folders."""
    return [text] if Path(text).is_dir() else text.split(os.pathsep)


def join_methods(parts: Sequence[IncludedMethods], *, named: str) -> IncludedMethods:
    """Join the methods of several folders, whose files are then one package.

    Raises:
        ValueError: if two folders have a file of the same name.
    """
    if len(parts) == 1:
        return parts[0]
    places = dict[str, str]()
    for part in parts:
        for name in (*part.sources, *part.files):
            if name in places:
                raise ValueError(
                    f"{named}: {places[name]} and {part.folder} both have {name}; allowed: each name in one folder"
                )
            places[name] = part.folder
    return IncludedMethods(
        folder=join_folders([part.folder for part in parts]),
        sources={name: text for part in parts for name, text in part.sources.items()},
        files={name: content for part in parts for name, content in part.files.items()},
        places=places,
    )


def _read_others(paths: Sequence[Path], *, named: str) -> dict[str, bytes]:
    """Read the files beside the methods.

    Raises:
        ValueError: if a file cannot be read, or the files are too large.
    """
    sizes = {path: path.stat().st_size / 1e6 for path in paths}
    if (total := sum(sizes.values())) > MOST_MEGABYTES:
        largest = max(paths, key=lambda path: sizes[path])
        raise ValueError(
            f"{named} {largest.parent}: the files beside the methods have {total:.1f} MB ({largest.name} has "
            f"{sizes[largest]:.1f} MB); allowed: at most {MOST_MEGABYTES} MB, because each trial gets a copy; keep "
            "larger files in another folder, and let the method read them by their absolute paths"
        )
    try:
        return {path.name: path.read_bytes() for path in paths}
    except OSError as error:
        raise ValueError(f"{named}: {error.filename} cannot be read: {error.strerror}") from None


def _read_source(file: Path, *, named: str) -> str:
    """Read a Python file in UTF-8, with or without a byte order mark. Errors begin with the option `named`."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = (
            f"byte {error.object[error.start]:#04x} is not UTF-8"
            if isinstance(error, UnicodeDecodeError)
            else error.strerror
        )
        raise ValueError(f"{named} {file}: {reason}; allowed: a Python file in UTF-8") from None


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
    global _included, _copy
    if methods == _included:
        return
    _copy = None
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
        return (
            MethodFile(f"{PACKAGE}.{stem}", _included.locate(f"{stem}.py")),
            MethodFile(f"{PACKAGE}.{stem}{SPACE}", _included.locate(f"{stem}{SPACE}.py")),
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


def describe_error(error: BaseException, method: str) -> str:
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
        return spec_from_file_location(fullname, _copy_folder() / self._file(fullname), loader=self)

    def get_filename(self, fullname: str) -> str:
        """Return the user's file, which tracebacks name. `__file__` is its copy."""
        assert _included is not None
        return _included.locate(self._file(fullname))

    def get_source(self, fullname: str) -> str:
        assert _included is not None
        return _included.sources[self._file(fullname)]

    @staticmethod
    def _file(fullname: str) -> str:
        return f"{fullname.partition('.')[2]}.py"


def _copy_folder() -> Path:
    global _copy
    assert _included is not None
    _copy = _copy or _included.copy(cache_folder())
    return _copy


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


def _name_files(stem: str) -> tuple[str, str]:
    return f"{stem}.py", f"{stem}{SPACE}.py"


def _list_imports(source: str) -> set[str]:
    """List the files of the included folder that a Python file imports."""
    try:
        nodes = [*ast.walk(ast.parse(source))]
    except SyntaxError:  # reported when the file is imported
        return set()
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            package = f"{PACKAGE}.{node.module}" if node.module else PACKAGE
            module = package if node.level else node.module or ""
            modules |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return {f"{name.split('.')[1]}.py" for name in modules if name.startswith(f"{PACKAGE}.")}


def _digest(contents: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        digest.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
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

    If the error is about an unknown name or module, suggest a known one.
    """
    lines = str(error).strip().splitlines()
    return ": ".join([type(error).__name__, *lines[:1]]) + _suggest_import(error) + _suggest_name(error)


def is_missing_beside(error: BaseException) -> bool:
    """Check whether a method wants to read a file beside it that the included folder does not have."""
    missing = error.filename if isinstance(error, FileNotFoundError) else None
    return _copy is not None and isinstance(missing, str | Path) and Path(missing).is_relative_to(_copy)


def _suggest_import(error: BaseException) -> str:
    """Explain how to import a file of the included folder, or which files a method can read there."""
    if is_missing_beside(error):
        return "; a method can read the files beside it, but not those in subfolders"
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    is_beside = name is not None and _included is not None and f"{name}.py" in _included.sources
    return f"; did you mean {PACKAGE}.{name}?" if is_beside else ""


def _suggest_name(error: BaseException) -> str:
    """Suggest the nearest known name, as in `; did you mean is_regression?`; return an empty text if none is near."""
    if isinstance(error, AttributeError) and error.name:
        return suggest_nearest(error.name, dir(error.obj))
    if isinstance(error, NameError) and error.name:
        frame = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
        names = {**frame.f_builtins, **frame.f_globals, **frame.f_locals}
        for kind in ("globals", "locals"):  # from Python 3.14 on, `annotationlib` looks up the names of annotations
            names |= names[kind] if isinstance(names[kind], dict) else {}
        return suggest_nearest(error.name, names)
    return ""
