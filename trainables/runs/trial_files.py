"""The files of one trial: its state, from which training goes on, and its trained model.

A trial's folder holds

    state.pt             everything that the next epoch depends on; replaced as a whole
    model-epoch-3/       the selected epoch so far: model.safetensors and model.json

Whatever moment the process is killed at, `state.pt` is a whole state whose model folder is there. Nothing here is
unpickled: `state.pt` is read with `weights_only`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from trainables.atomic_files import write_atomically, write_folder
from trainables.runs.trial import UnreadableState

STATE = "state.pt"
WEIGHTS = "model.safetensors"
DESCRIPTION = "model.json"
_DIGEST = "content_digest"  # in a state: of everything else in it


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Replace the state in `folder`, whole or not at all. `state` holds tensors, numbers, strings, lists and dicts."""
    sealed = {**state, _DIGEST: _hash_state(state)}
    write_atomically(folder / STATE, lambda file: torch.save(sealed, file))


def read_state(folder: Path) -> dict[str, Any]:
    """Read the state that `write_state` left in `folder`, on the CPU.

    Raises:
        UnreadableState: the state is missing or damaged.
    """
    if not has_state(folder):
        raise UnreadableState(f"{folder}: no saved trial, {STATE} is missing")
    try:
        state: dict[str, Any] = torch.load(folder / STATE, map_location="cpu", weights_only=True)
        digest = state.pop(_DIGEST, None)  # a state of an earlier version has none
    except OSError:
        raise
    except Exception as error:  # whatever torch makes of foreign bytes
        raise UnreadableState(f"{folder}: {STATE} is damaged: {_take_first_line(error)}") from error
    if digest not in (None, _hash_state(state)):
        raise UnreadableState(f"{folder}: {STATE} is damaged: its numbers are not those that were saved")
    return state


def _hash_state(state: object) -> str:
    """Hash all that a state holds: torch notices flipped bytes of its file, but not a file written anew."""
    digest = hashlib.sha256()

    def add(value: object) -> None:
        if isinstance(value, Tensor):
            digest.update(f"{value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
        elif isinstance(value, Mapping):
            add([*value.items()])
        elif isinstance(value, (list, tuple)):
            digest.update(f"{len(value)} of".encode())
            for each in value:
                add(each)
        else:
            digest.update(f"{value!r} ".encode())

    add(state)
    return digest.hexdigest()


def state_as_bytes(state: dict[str, Any]) -> bytes:
    """Write a state as `write_state` does, for another process."""
    file = BytesIO()
    torch.save(state, file)
    return file.getvalue()


def state_of_bytes(data: bytes) -> dict[str, Any]:
    """Read the state in these bytes, on the CPU."""
    return torch.load(BytesIO(data), map_location="cpu", weights_only=True)


def has_state(folder: Path) -> bool:
    """Tell whether `write_state` left a file in `folder`."""
    return (folder / STATE).is_file()


def model_folder(folder: Path, epoch: int) -> Path:
    """Name the folder of an epoch's model in a trial's folder."""
    return folder / f"model-epoch-{epoch}"


def write_model(
    folder: Path,
    save_weights: Callable[[Path], object],
    description: dict[str, Any],
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    """Make, or replace, the folder of a trained model: its weights, `model.json` and the tokenizer's files.

    Args:
        save_weights: puts `model.safetensors` into the folder that it is given.
    """

    def fill(unfinished: Path) -> None:
        save_weights(unfinished)
        (unfinished / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n")
        tokenizer.save_pretrained(unfinished)

    write_folder(folder, fill)


def read_model(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read weights and description of a trained model.

    Raises:
        ValueError: the folder holds no trained model, or a damaged one.
    """
    for name in (WEIGHTS, DESCRIPTION):
        if not (folder / name).is_file():
            raise ValueError(f"{folder}: no trained model, {name} is missing")
    try:
        return load_file(folder / WEIGHTS), json.loads((folder / DESCRIPTION).read_text())
    except SafetensorError as error:
        raise ValueError(f"{folder}: {WEIGHTS} is damaged: {_take_first_line(error)}") from error


def remove_other_models(folder: Path, keep: Path | None) -> None:
    """Delete every model in a trial's folder but `keep`, and what a killed process left half written."""
    for path in [*folder.glob("model-epoch-*"), *folder.glob(".model-epoch-*")]:
        if path != keep:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn torch's and safetensors' errors of a file that cannot be written into `OSError`s."""
    try:
        yield
    except (RuntimeError, SafetensorError) as error:
        raise OSError(f"{folder}: cannot be written: {_take_first_line(error)}") from error


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """Turn errors of a saved trial that does not fit into `UnreadableState`, but not those of a disk or GPU."""
    try:
        yield
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        raise UnreadableState(f"{folder}: the saved trial cannot be used: {_take_first_line(error)}") from error


def check_same(saved: object, wanted: object, names: Sequence[str]) -> None:
    """Check that these fields of a saved spec and of the requested one are equal.

    Raises:
        ValueError: one differs.
    """
    for name in names:
        if getattr(saved, name) != getattr(wanted, name):
            raise ValueError(f"its {name} is {getattr(saved, name)!r}; should be {getattr(wanted, name)!r}")


def _take_first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
