"""Reference cases of what pretraining adds, by the `kind` in their `case.json`: Nystrom attention, LAMB, ShareBERT."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from torch import Tensor

from trainables.reference_files import Comparison, read_description, read_tensors
from trainables.sharebert_case import compare_sharebert
from trainables.tensor_cases import compare_lamb, compare_nystrom


def compare_by_kind(folder: Path) -> Iterator[Comparison]:
    """Every expected tensor beside ours.

    Raises:
        ValueError: the case is of no known kind, damaged or incomplete.
    """
    description, where = read_description(folder), f"{folder}/case.json"
    kind = description["kind"]
    if kind not in _KINDS:
        raise ValueError(f"{folder}: unknown kind {kind!r}; known: {', '.join(_KINDS)}")
    file, compared = _KINDS[kind]
    yield from compared(description, read_tensors(folder, file), where)


_KINDS: dict[str, tuple[str, Callable[[object, dict[str, Tensor], str], Iterator[Comparison]]]] = {
    "nystrom_attention": ("tensors.safetensors", compare_nystrom),
    "lamb": ("tensors.safetensors", compare_lamb),
    "sharebert": ("weights.safetensors", compare_sharebert),
}
