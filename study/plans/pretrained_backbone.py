"""Read and write `pretraining.json`, the file that `study.pretrain` keeps in the folder of a pretraining.

If the field `finished` is true, the folder can be used as a backbone. A study copies the field `made` into its plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from study.plans.resolved_plan import Pretraining
from trainables.configuration import AtLeastOne, Count
from trainables.configuration.schema import Configuration, Typed, from_json, to_plain
from trainables.encoders.backbone_files import backbone_fingerprint
from trainables.encoders.backbone_names import MINI_BACKBONES, PRETRAINING_FILE, is_folder
from trainables.files.atomic_files import write_json
from trainables.pretraining.configuration import PretrainingRow


class Epoch(Typed, frozen=True, kw_only=True):
    """One epoch of a pretraining (a fixed number of steps): its end time and its metrics."""

    ended: str  # UTC, ISO 8601
    row: PretrainingRow


class PretrainingFile(Typed, frozen=True, kw_only=True):
    """The content of `pretraining.json`."""

    made: Pretraining
    config: Configuration
    seed: int
    backbone_fingerprint: str
    tokenizer: str | None  # None: the backbone's tokenizer
    tokenizer_fingerprint: str | None
    tokens_digest: str | None = None  # of the tokenised, packed corpus; None before the corpus is read
    created: str  # UTC, ISO 8601
    finished: bool = False
    model_fingerprint: str | None = None  # of the folder as a backbone; None until finished
    num_parameters: Count = 0  # of all trained parts; shared parameters count once
    num_kept_parameters: Count = 0  # of the model that is kept at the end
    processes: AtLeastOne = 1  # number of processes in the last epoch
    versions: Mapping[str, str] = {}
    git_commit: str | None = None
    code_digest: str = ""
    epochs: tuple[Epoch, ...] = ()

    @property
    def wanted_steps(self) -> int:
        """The number of steps after which the pretraining is finished."""
        steps = self.config["steps"]
        assert isinstance(steps, int)
        return steps


def read_pretraining(folder: Path) -> PretrainingFile | None:
    """Read the pretraining file of a folder; None if the folder has no such file.

    Raises:
        ValueError: the file is damaged.
    """
    path = folder / PRETRAINING_FILE
    try:
        return from_json(PretrainingFile, path.read_bytes(), where=str(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_pretraining(folder: Path, content: PretrainingFile) -> None:
    """Replace the pretraining file of a folder atomically."""
    write_json(folder / PRETRAINING_FILE, to_plain(content))


def read_finished_pretraining(backbone: str) -> Pretraining | None:
    """Read the record of a backbone's pretraining; None for a backbone that `study.pretrain` did not make.

    Raises:
        ValueError: the pretraining has not finished, its file is damaged, or the model has changed since.
    """
    content = read_pretraining(Path(backbone)) if is_folder(backbone) else None
    if content is None:
        return None
    if not content.finished:
        steps = f"{content.made.steps:,} of {content.wanted_steps:,} steps"
        raise ValueError(
            f"backbone {backbone!r} is not finished: its pretraining has made {steps}; finish the pretraining first"
        )
    if content.model_fingerprint not in (None, backbone_fingerprint(backbone)):
        raise ValueError(
            f"backbone {backbone!r} has changed since its pretraining, so {PRETRAINING_FILE} does not describe it; "
            f"restore its files, or delete {PRETRAINING_FILE} to use the folder as one that was not pretrained here"
        )
    return content.made


def is_tiny(backbone: str) -> bool:
    """Check if a backbone is tiny and random, or if its pretraining started from such a backbone.

    Raises:
        ValueError: as `read_finished_pretraining`.
    """
    made = read_finished_pretraining(backbone)
    return backbone in MINI_BACKBONES if made is None else made.is_tiny
