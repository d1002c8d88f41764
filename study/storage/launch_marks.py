"""The marks of a launch: files that every worker must find in the storage before it trains.

On a node without the share, the same path is a folder on the node's own disk.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from study.plans.resolved_plan import digest
from study.storage.addresses import exists, is_uri, join, one_line_errors, open_uri, retry_outages
from study.storage.study_storage import StudyStorage
from study.storage.trial_places import NotShared

MARK = ".launch-"  # prefix of the names of marks


@contextmanager
def launch_marks(storage: str, folder: Path) -> Iterator[tuple[str, ...]]:
    """Write a mark (an empty file) to each folder that workers write to; yield the paths or URIs of the marks.

    A killed launch leaves its marks behind; see `delete_marks`.

    Raises:
        ValueError: if a mark cannot be written.
    """
    places = _list_places(storage, folder)
    marks = tuple(join(place, f"{_prefix_marks(folder)}{uuid.uuid4().hex}") for place in places)
    try:
        for place, mark in zip(places, marks, strict=True):
            with one_line_errors(f"{place} cannot be written"):
                _write(mark)
        yield marks
    finally:
        for mark in marks:
            with suppress(OSError):
                _delete(mark)


def delete_marks(storage: StudyStorage, folder: Path) -> None:
    """Delete the marks of the study's earlier launches, which were killed, perhaps on other hosts.

    The launch must hold the study's lock. If studies of an earlier version share a storage without areas, only marks
    of this study from this host are deleted there.

    Raises:
        ValueError: if a mark cannot be deleted.
    """
    shared = join(storage.address, "trials") if not storage.area and storage.place != str(folder.resolve()) else None
    for place in _list_places(storage.address, folder):
        prefix = _prefix_marks(folder) if place == shared else MARK
        with one_line_errors(f"{place} cannot be written"):
            for name in _list_names(place):
                if name.startswith(prefix):
                    with suppress(FileNotFoundError):  # a launch that woke has deleted its own mark
                        _delete(join(place, name))


def _list_places(storage: str, folder: Path) -> list[str]:
    return [join(storage, "trials"), *([] if is_uri(storage) else [str(folder / "predictions")])]


def _prefix_marks(folder: Path) -> str:
    return f"{MARK}{digest([socket.gethostname(), str(folder.resolve())])}-"


def check_marks(marks: Sequence[str]) -> None:
    """Check that this node sees all marks of the launch; raise NotShared if one is missing."""
    for mark in marks:
        if not (retry_outages(exists)(mark) if is_uri(mark) else _is_listed(Path(mark))):
            place = mark.partition("?")[0].rpartition("/")[0]
            raise NotShared(f"{place} is not the launch's folder; mount the shared storage on this node too")


def _is_listed(mark: Path) -> bool:
    """List the mark's folder to check if the mark exists. A network file system may cache `Path.exists`."""
    try:
        return mark in mark.parent.iterdir()
    except (FileNotFoundError, NotADirectoryError):
        return False


def _write(mark: str) -> None:
    if not is_uri(mark):
        Path(mark).touch()
        return
    files, path = open_uri(mark)
    files.open_output_stream(path).close()


def _delete(mark: str) -> None:
    if not is_uri(mark):
        Path(mark).unlink()
        return
    files, path = open_uri(mark)
    files.delete_file(path)


def _list_names(place: str) -> list[str]:
    """List the names of the files and folders in a folder or under a URI; [] if it does not exist."""
    if not is_uri(place):
        return [path.name for path in Path(place).glob("*")]
    from pyarrow.fs import FileSelector

    files, path = open_uri(place)
    return [info.base_name for info in files.get_file_info(FileSelector(path, allow_not_found=True))]
