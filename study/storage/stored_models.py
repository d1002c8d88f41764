"""Models that trials left in the storage, for whoever loads them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from study.facts.record import Record
from study.storage.addresses import exists, is_uri, join, one_line_errors, open_uri
from study.storage.trial_places import DESCRIPTION


def model_exists(model: str | None) -> bool:
    """Whether the model of a record's `model` is still there.

    Raises:
        ValueError: nobody answers.
    """
    if model is None or not is_uri(model):
        return model is not None and Path(model).is_dir()
    with one_line_errors(f"{model} cannot be read"):
        return exists(join(model, DESCRIPTION))


@contextmanager
def local_model(model: str) -> Iterator[Path]:
    """A folder on this machine, for a while, with the model of a record's `model`."""
    if not is_uri(model):
        yield Path(model)
        return
    from pyarrow.fs import LocalFileSystem, copy_files

    with tempfile.TemporaryDirectory(prefix="glue-exit-study-") as temporary:
        with one_line_errors(f"{model} cannot be read"):
            files, path = open_uri(model)
            copy_files(path, temporary, files, LocalFileSystem())
        yield Path(temporary)


def lies_now(model: str, *, folder: Path, key: str) -> str:
    """The address of a trial's model: in this study folder, where the folder was moved or copied with it."""
    beside = folder / "trials" / key / Path(model).name
    return str(beside) if beside.is_dir() else model


def where_it_lies(record: Record, folder: Path) -> Record:
    """The record with the address that its model has now."""
    return replace(record, model=record.model and lies_now(record.model, folder=folder, key=record.key))
