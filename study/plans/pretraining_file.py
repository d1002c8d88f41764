"""`pretraining.json` of the folder that `study.pretrain` fills: how its backbone was made. Its one reader and writer.

A folder with this file is a backbone once `finished`; `made` is what a study keeps of it in its plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from study.plans.resolved_plan import Pretraining
from trainables.atomic_files import write_json
from trainables.configuration import AtLeastOne, Count
from trainables.encoders.backbones import MINI_BACKBONES, PRETRAINING_FILE, is_folder
from trainables.pretraining_configuration import PretrainingRow
from trainables.schema import Configuration, Typed, from_json, to_plain


class Epoch(Typed, frozen=True, kw_only=True):
    """One epoch, which is a number of steps, and when it ended."""

    ended: str  # UTC, ISO 8601
    row: PretrainingRow


class PretrainingFile(Typed, frozen=True, kw_only=True):
    """All that the file says."""

    made: Pretraining
    config: Configuration
    seed: int
    backbone_fingerprint: str
    tokenizer: str | None  # None: the backbone's own
    tokenizer_fingerprint: str | None
    tokens_digest: str | None = None  # of the tokenised corpus and how it is packed; None before it was read
    created: str  # UTC, ISO 8601
    finished: bool = False
    model_fingerprint: str | None = None  # of the folder as a backbone; None before the end
    num_parameters: Count = 0  # of all that is trained, shared ones once
    num_kept_parameters: Count = 0  # of the model that is left
    processes: AtLeastOne = 1  # that computed its last epoch together
    versions: Mapping[str, str] = {}
    git_commit: str | None = None
    code_digest: str = ""
    epochs: tuple[Epoch, ...] = ()

    @property
    def wanted_steps(self) -> int:
        steps = self.config["steps"]
        assert isinstance(steps, int)
        return steps


def read_pretraining(folder: Path) -> PretrainingFile | None:
    """The file of a folder; None if it has none.

    Raises:
        ValueError: it is damaged.
    """
    path = folder / PRETRAINING_FILE
    try:
        return from_json(PretrainingFile, path.read_bytes(), where=str(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_pretraining(folder: Path, content: PretrainingFile) -> None:
    """Replaces the file, whole or not at all."""
    write_json(folder / PRETRAINING_FILE, to_plain(content))


def pretraining_of(backbone: str) -> Pretraining | None:
    """How a backbone was pretrained here; None for any other.

    Raises:
        ValueError: its pretraining has not finished, or its file is damaged.
    """
    found = read_pretraining(Path(backbone)) if is_folder(backbone) else None
    if found is None:
        return None
    if not found.finished:
        steps = f"{found.made.steps:,} of {found.wanted_steps:,} steps"
        raise ValueError(
            f"backbone {backbone!r} is not finished: its pretraining has made {steps}; continue that first"
        )
    return found.made


def is_tiny(backbone: str) -> bool:
    """Whether a backbone is a tiny random one, or was pretrained from one here.

    Raises:
        ValueError: see `pretraining_of`.
    """
    made = pretraining_of(backbone)
    return backbone in MINI_BACKBONES if made is None else made.is_tiny
