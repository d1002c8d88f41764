"""The files of one trial: the state, from which training can resume, and the trained model.

The folder of a trial holds:

    state.pt             everything that the next epoch depends on; replaced atomically
    model-epoch-3/       model of the epoch selected so far: model.safetensors, model.json and the tokenizer

If the process is killed at any moment, `state.pt` is complete and the model that belongs to it exists. Reading
`state.pt` runs no code from the file (`weights_only`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import EINVAL
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from trainables.configuration.error_text import take_first_line
from trainables.files.atomic_files import write_atomically, write_folder
from trainables.files.sources import hash_folder
from trainables.runs.trial import UnreadableState

STATE = "state.pt"
WEIGHTS = "model.safetensors"
DESCRIPTION = "model.json"


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Replace the state in `folder` atomically. A state may hold tensors, numbers, strings, lists and dicts."""
    write_atomically(folder / STATE, lambda file: torch.save(state, file))


def read_state(folder: Path) -> dict[str, Any]:
    """Read the state that `write_state` wrote into `folder`. The tensors are on the CPU.

    Raises:
        UnreadableState: the state is missing or damaged.
    """
    if not has_state(folder):
        raise UnreadableState(f"{folder} has no saved trial: {STATE} is missing")
    try:
        with ZipFile(folder / STATE) as archive:
            if damaged := archive.testzip():  # torch writes checksums, but does not check them
                raise BadZipFile(f"wrong checksum of {damaged}")
        state: dict[str, Any] = torch.load(folder / STATE, map_location="cpu", weights_only=True)
    except Exception as error:  # torch may raise any error on foreign bytes
        if isinstance(error, OSError) and error.errno != EINVAL:  # EINVAL: a damaged place in the zip file
            raise
        raise UnreadableState(f"{folder}: {STATE} is damaged: {take_first_line(error)}") from error
    return state


def has_state(folder: Path) -> bool:
    """Return whether `folder` has a state file."""
    return (folder / STATE).is_file()


def model_folder(folder: Path, epoch: int) -> Path:
    """Return the path of an epoch's model in a trial's folder."""
    return folder / f"model-epoch-{epoch}"


def write_model(
    folder: Path, weights: dict[str, Tensor], description: dict[str, Any], tokenizer: PreTrainedTokenizerBase
) -> str:
    """Create or replace a trained model's folder, with weights, `model.json` and the tokenizer's files.

    Return the digest of the folder, see `hash_folder`.
    """

    def fill(unfinished: Path) -> None:
        save_file(weights, unfinished / WEIGHTS)
        (unfinished / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n")
        if isinstance(tokenizer, PreTrainedTokenizerFast):  # what the last call has set is not part of the model
            tokenizer.backend_tokenizer.no_truncation()
            tokenizer.backend_tokenizer.no_padding()
        tokenizer.save_pretrained(unfinished)

    write_folder(folder, fill)
    return hash_folder(folder)


def read_model(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the weights and the description of a trained model.

    Raises:
        ValueError: the folder has no trained model, or the trained model is damaged.
    """
    for name in (WEIGHTS, DESCRIPTION):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} has no trained model: {name} is missing")
    try:
        weights = load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise ValueError(f"{folder}: {WEIGHTS} is damaged: {take_first_line(error)}") from error
    try:
        return weights, json.loads((folder / DESCRIPTION).read_text())
    except ValueError as error:
        raise ValueError(f"{folder}: {DESCRIPTION} is damaged: {take_first_line(error)}") from error


def remove_other_models(folder: Path, keep: Path | None) -> None:
    """Delete every model in a trial's folder except `keep`, including unfinished ones of killed processes."""
    for path in [*folder.glob("model-epoch-*"), *folder.glob(".model-epoch-*")]:
        if path != keep:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn the errors that torch and safetensors raise on a failed write into `OSError`s."""
    try:
        yield
    except (RuntimeError, SafetensorError) as error:
        raise OSError(f"{folder} cannot be written: {take_first_line(error)}") from error


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """Turn errors in reading a saved trial into `UnreadableState`; raise errors of the disk or the GPU unchanged."""
    try:
        yield
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        raise UnreadableState(f"{folder}: the saved trial cannot be used: {take_first_line(error)}") from error


def check_same(saved: object, wanted: object, names: Sequence[str]) -> None:
    """Check that both specs have the same values in the fields `names`.

    Raises:
        ValueError: a field differs.
    """
    for name in names:
        if getattr(saved, name) != getattr(wanted, name):
            raise ValueError(f"its {name} is {getattr(saved, name)!r}, but should be {getattr(wanted, name)!r}")
