"""Access to data, corpora and backbones on the Hugging Face hub, and the cache of tokenised data."""

import errno
import hashlib
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from trainables.files.atomic_files import FULL, write_folder

T = TypeVar("T")
NOT_CHECKED = "these were not checked, because the hub cannot be reached: "  # a dry run prints this first
_LOCAL_FAULTS = (*FULL, errno.EACCES, errno.EROFS)  # of the cache folder, not of the hub
HUB_SECONDS = 5  # seconds to wait for the hub's answer
_OFFLINE_SECONDS = 60  # seconds after which an unreachable hub is tried again
_DIGESTS = "digests.json"  # file with the digests of a cache entry's files
_next_attempt = 0.0  # monotonic time before which the hub is not tried; infinite once it has answered


class HubUnreachable(ValueError):
    """Raised when something is not in the local cache and the hub cannot be reached."""


class Unusable(ValueError):
    """Raised when a backbone, tokenizer or corpus exists but cannot be used on any machine."""


def checked(look: Callable[[], T], what: str, unchecked: list[str] | None) -> T | str:
    """Return the result of `look`, or "unknown" if the hub is unreachable.

    If the hub is unreachable, the name `what` is added to the list `unchecked`. If `what` is already on the list,
    `look` is not called.

    Raises:
        HubUnreachable: if the hub is unreachable and `unchecked` is None.
    """
    if unchecked is not None and what in unchecked:
        return "unknown"
    try:
        return look()
    except HubUnreachable:
        if unchecked is None:
            raise
        unchecked.append(what)
        return "unknown"


def go_offline_if_unreachable() -> None:
    """Check whether the hub can be reached. Call this before any other request to the hub.

    If the hub does not answer within a few seconds, this process uses only the local cache for a minute, as with
    HF_HUB_OFFLINE=1. Without this check, the libraries would retry each request for up to half a minute.
    """
    global _next_attempt
    from huggingface_hub import constants, get_session

    if time.monotonic() < _next_attempt:
        return
    if _next_attempt:  # the last attempt failed, and its minute is over
        _work_offline(False)
    if constants.HF_HUB_OFFLINE:  # the user's choice
        return
    try:
        get_session().head(constants.ENDPOINT, timeout=HUB_SECONDS)
        _next_attempt = math.inf
    except Exception:  # noqa: BLE001 - network libraries raise many types
        _next_attempt = time.monotonic() + _OFFLINE_SECONDS
        _work_offline(True)


@contextmanager
def from_cache_only() -> Iterator[None]:
    """Use only the local cache of the hub inside the `with` statement, as with HF_HUB_OFFLINE=1.

    Raises:
        ModuleNotFoundError: if `datasets` is not installed.
    """
    import datasets  # noqa: F401  # `_work_offline` changes its setting too
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    _work_offline(True)
    try:
        yield
    finally:
        _work_offline(before)


def _work_offline(offline: bool) -> None:
    from huggingface_hub import constants

    constants.HF_HUB_OFFLINE = offline
    if datasets := sys.modules.get("datasets"):  # `datasets` copied the setting when it was imported
        datasets.config.HF_HUB_OFFLINE = datasets.config.HF_DATASETS_OFFLINE = offline


@contextmanager
def hub_errors(what: str, *, allowed: str, offline: str) -> Iterator[None]:
    """Turn any error of a request to the hub into a one-line error.

    Args:
        what: kind and name of the requested thing, as in `backbone 'NAME'`.
        allowed: values that the user can give instead.
        offline: what the user can do on a machine without a network.

    Raises:
        ValueError: if the name is invalid, or the hub does not have the repository or the revision.
        Unusable: unchanged.
        HubUnreachable: if the request fails for any other reason, usually a missing network.
        OSError: if the disk is full or the cache cannot be written.
    """
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        yield
    except RevisionNotFoundError as error:
        raise ValueError(f"{what}: the hub does not have this revision; allowed: {allowed}") from error
    except (HFValidationError, RepositoryNotFoundError) as error:
        raise ValueError(f"{what} is not on the hub; allowed: {allowed}") from error
    except Exception as error:  # HF_HUB_OFFLINE, or any error of a network library
        if isinstance(error, MemoryError | Unusable) or (isinstance(error, OSError) and error.errno in _LOCAL_FAULTS):
            raise
        reason = f"{what} is not in the local cache, and the hub cannot be reached"
        raise HubUnreachable(f"{reason}; allowed: {allowed}; to work offline, {offline}") from error


def is_visible_file(path: Path) -> bool:
    """Check for a file that is not hidden: macOS writes `._NAME` beside each NAME on foreign disks and in archives."""
    return not path.name.startswith(".") and path.is_file()


def hash_of_file(file: Path) -> str:
    """Hash a file's content (SHA-256, hexadecimal). The hash is cached until the file's size or date changes."""
    status = file.stat()
    return _hash(file, status.st_size, status.st_mtime_ns)


@cache
def _hash(file: Path, size: int, modified: int) -> str:
    return hash_now(file)


def hash_now(file: Path) -> str:
    """Hash a file's content as `hash_of_file` does, but without a cache: damage changes neither size nor date."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def hash_folder(folder: Path) -> str:
    """Hash the names and contents of a folder's files (SHA-256, hexadecimal), without a cache; skip hidden files."""
    files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
    lines = (f"{hash_now(files[name])}  {name}\n" for name in sorted(files) if not name.startswith("."))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def cache_folder() -> Path:
    """Find the cache folder for tokenised data. All trials and studies of a machine share this folder.

    The folder is in the first writable folder among $XDG_CACHE_HOME, ~/.cache and the temporary folder.

    Raises:
        OSError: if none of these folders is writable.
    """
    user = os.getuid()
    chosen, home = os.environ.get("XDG_CACHE_HOME"), os.path.expanduser("~/.cache")  # noqa: PTH111  # keeps ~ without a home
    places = [Path(place) / "glue-exit-study" for place in (chosen, home) if place and Path(place).is_absolute()]
    places.append(Path(tempfile.gettempdir()) / f"glue-exit-study-{user}")
    for number, place in enumerate(places):
        with suppress(OSError):
            place.mkdir(mode=0o700 if place == places[-1] else 0o777, parents=True, exist_ok=True)
            if os.access(place, os.W_OK) and (place != places[-1] or place.stat().st_uid == user):
                if number:
                    _print_once(f"{places[0]} is not writable; tokenised data are stored in {place}")
                return place
    raise PermissionError(f"tokenised data cannot be stored: none of {', '.join(map(str, places))} is writable")


@cache
def _print_once(line: str) -> None:
    print(line, file=sys.stderr)


def cached_folder(cache: Path, content: str, fill: Callable[[Path], object]) -> Path:
    """Return the cache's folder for `content`. If the folder is missing or damaged, `fill` writes it first.

    Other processes that need the folder wait until it is complete. The folder's name is a hash of `content`. Digests in
    the folder show whether a file is damaged.
    """

    def fill_with_digests(folder: Path) -> None:
        fill(folder)
        (folder / _DIGESTS).write_text(json.dumps(_hash_all_files(folder)))

    entry = cache / hashlib.sha256(content.encode()).hexdigest()[:32]
    if not _is_undamaged(entry):
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{entry}.lock"):
            if not _is_undamaged(entry):
                if (entry / _DIGESTS).exists():
                    print(f"{entry} was damaged; its tokens are computed again", file=sys.stderr)
                write_folder(entry, fill_with_digests)
    return entry


def _is_undamaged(entry: Path) -> bool:
    """Check whether a cache entry exists and its files are unchanged."""
    try:
        return _hash_all_files(entry) == json.loads((entry / _DIGESTS).read_text())
    except (OSError, ValueError):
        return False


def _hash_all_files(folder: Path) -> dict[str, str]:
    return {file.name: hash_of_file(file) for file in sorted(folder.iterdir()) if file.name != _DIGESTS}
