"""What a launch leaves in its storage while it runs, for every worker to find before it trains.

Where a share is not mounted, the same path is a folder of the node's own disk: what is written there is seen by nobody.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from study.storage.addresses import exists, is_uri, join, one_line_errors, open_uri
from study.storage.trial_places import through_outages

NAME = ".launch-"


class NotShared(OSError):
    """What is here is not the storage of the launch."""


@contextmanager
def launch_marks(storage: str, folder: Path) -> Iterator[tuple[str, ...]]:
    """The paths or URIs of the marks of this launch: with the trials and, where workers write there, the predictions.

    Those of launches that were killed are deleted.

    Raises:
        ValueError: they cannot be written.
    """
    places = [join(storage, "trials"), *([] if is_uri(storage) else [str(folder / "predictions")])]
    marks = tuple(join(place, f"{NAME}{uuid.uuid4().hex}") for place in places)
    try:
        for place, mark in zip(places, marks, strict=True):
            with one_line_errors(f"{place} cannot be written"):
                _delete_all(place)
                _write(mark)
        yield marks
    finally:
        for place in places:
            with suppress(OSError):
                _delete_all(place)


def check_marks(marks: Sequence[str]) -> None:
    """Passes if all that the launch has left is seen from here.

    Raises:
        NotShared: something is not.
    """
    for mark in marks:
        if not (_exists(mark) if is_uri(mark) else _is_listed(Path(mark))):
            place = mark.partition("?")[0].rpartition("/")[0]
            raise NotShared(f"{place} is not what the launch sees there; mount the shared storage on this node too")


_exists = through_outages(exists)


def _is_listed(mark: Path) -> bool:
    """Whether it is there. Opening its folder has a network's file system ask the server; a path may be remembered."""
    try:
        return mark.name in os.listdir(mark.parent)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _write(mark: str) -> None:
    if not is_uri(mark):
        Path(mark).touch()
        return
    files, path = open_uri(mark)
    files.open_output_stream(path).close()


def _delete_all(place: str) -> None:
    """Deletes the marks in a place."""
    if not is_uri(place):
        for mark in Path(place).glob(f"{NAME}*"):
            mark.unlink()
        return
    from pyarrow.fs import FileSelector

    files, path = open_uri(place)
    for info in files.get_file_info(FileSelector(path, allow_not_found=True)):
        if info.base_name.startswith(NAME):
            files.delete_file(info.path)
