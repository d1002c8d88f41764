"""Stored models of ended trials: where they are, whether they are whole, and how to read or delete them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from study.facts.events import FILE
from study.facts.record import Record
from study.storage.addresses import exists, is_uri, join, one_line_errors, open_uri, retry_outages
from trainables.files.sources import hash_folder
from trainables.runs.trial import Unavailable

DESCRIPTION = "model.json"  # in a model's folder
WEIGHTS = "model.safetensors"  # there too


class OutcomeGone(ValueError):
    """Raised if the model or the predictions of an ended trial are missing or damaged. The trial runs again."""


class DamagedModel(Unavailable):
    """Raised if a stored model differs from the digest that its trial recorded."""


def check_model(model: str) -> None:
    """Raise OutcomeGone if there is no model at `model`, a path or URI."""
    if not retry_outages(exists)(join(model, DESCRIPTION)):
        raise OutcomeGone(f"the model is not in {model}")


def keeps_model(record: Record) -> bool:
    """Check whether the trial's model is kept. Only completed or dropped confirm trials keep their models."""
    return record.phase == "confirm" and record.status in ("completed", "dropped")


def model_exists(model: str | None) -> bool:
    """Check whether there is still a model with weights at `model`, a path or URI.

    Raises:
        ValueError: if the storage cannot be read.
    """
    if model is None:
        return False
    with one_line_errors(f"{model} cannot be read"):
        return exists(join(model, WEIGHTS))


def check_undamaged(model: str, digest: str | None) -> None:
    """Raise OutcomeGone if the model at `model`, a path or URI, is missing or damaged. All of its files are read."""
    check_model(model)
    try:
        with local_model(model, digest):
            pass
    except DamagedModel as error:
        raise OutcomeGone(str(error)) from None


@contextmanager
def local_model(model: str, digest: str | None) -> Iterator[Path]:
    """Yield a folder on this machine with the model; if `model` is a URI, the folder is a temporary copy.

    Args:
        digest: digest of the model's folder, which is checked; None if its trial recorded none.

    Raises:
        DamagedModel: the files differ from those that the trial wrote.
    """
    with _local_folder(model) as folder:
        if digest is not None and folder.is_dir() and hash_folder(folder) != digest:
            raise DamagedModel(
                f"{model} was damaged: its files do not match the digest in the journal; restore the folder from a copy"
            )
        yield folder


@contextmanager
def _local_folder(model: str) -> Iterator[Path]:
    if not is_uri(model):
        yield Path(model)
        return
    from pyarrow.fs import LocalFileSystem, copy_files

    with tempfile.TemporaryDirectory(prefix="glue-exit-study-") as temporary:
        with one_line_errors(f"{model} cannot be read"):
            files, path = open_uri(model)
            copy_files(path, temporary, files, LocalFileSystem())
        yield Path(temporary)


def find_model_address(model: str, *, folder: Path, key: str) -> str:
    """Return the path of the model in the study's `folder`. If the model is not there, return `model`.

    The folder may have been moved or copied with its models. If it was copied without them, the path in `folder` is
    returned all the same: models in the folder of another study are never used.
    """
    path = folder / "trials" / key / Path(model).name
    return str(path) if path.is_dir() or _find_other_study(model, folder) else model


def _find_other_study(model: str, folder: Path) -> Path | None:
    """Return the folder of another study that contains the model; None if there is none."""
    parents = Path(model).parents
    if is_uri(model) or len(parents) < 3:
        return None
    study = parents[2]  # STUDY/trials/KEY/MODEL
    is_other = (study / FILE).exists() and os.path.realpath(study) != os.path.realpath(folder)
    return study if is_other else None


def locate_model(record: Record, folder: Path) -> Record:
    """Return the record with the current path or URI of its model."""
    return replace(record, model=record.model and find_model_address(record.model, folder=folder, key=record.key))


def explain_missing_model(record: Record, folder: Path) -> str:
    """Explain why the model of a record is not stored, and give the remedy; "" if the reason is unknown."""
    if record.model is None:
        return ""
    address = find_model_address(record.model, folder=folder, key=record.key)
    with one_line_errors(f"{address} cannot be read"):
        if exists(join(address, DESCRIPTION)):
            return "only the description is left, as after study.drop --models; restore the folder from a copy"
    if original := _find_other_study(record.model, folder):
        copied = f"{folder} is a copy without this model, and the models in {original} are not used"
        return f"{copied}, because they may have changed; copy {original / 'trials'} to {folder} too"
    own = folder / "trials" / record.key / Path(record.model).name
    is_elsewhere = not is_uri(address) and os.path.realpath(address) != os.path.realpath(own)
    if is_elsewhere and len(Path(address).parts) > 3:
        return f"it is not in {own.parent} either; restore {folder / 'trials'} from a copy of the study"
    return ""


def delete_weights(model: str) -> int:
    """Delete the files of a model at a path or URI, except its description; return their size in bytes."""
    if not is_uri(model):
        files = [path for path in Path(model).glob("*") if path.name != DESCRIPTION and path.is_file()]
        sizes = {path: path.stat().st_size for path in sorted(files, key=lambda path: path.name != WEIGHTS)}
        for path in sizes:  # the weights first: without them, nobody takes the rest for a model
            path.unlink()
        return sum(sizes.values())
    from pyarrow.fs import FileSelector

    with one_line_errors(f"{model} cannot be changed"):
        system, place = open_uri(model)
        listed = system.get_file_info(FileSelector(place, allow_not_found=True))
        found = [info for info in listed if info.is_file and info.base_name != DESCRIPTION]
        for info in sorted(found, key=lambda info: info.base_name != WEIGHTS):
            system.delete_file(info.path)
    return sum(info.size for info in found)
