"""Backbones that were pretrained here: how one was made, and texts that its tokenizer mostly does not know.

`pretraining.json` of the folder that `study.pretrain` fills has this module as its one reader and writer. A folder with
this file is a backbone once `finished`; `made` is what a study keeps of it in its plan.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET

from study.plans.resolved_plan import Pretraining, ResolvedPlan
from trainables.atomic_files import write_json
from trainables.configuration import AtLeastOne, Count
from trainables.corpora.corpus import is_generated
from trainables.data import glue
from trainables.data.tasks import TASKS
from trainables.encoders.backbones import (
    MINI_BACKBONES,
    PRETRAINING_FILE,
    is_folder,
    local_tokenizer,
    unknown_share,
)
from trainables.pretraining_configuration import PretrainingRow
from trainables.schema import Configuration, Typed, from_json, to_plain

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LARGE_SHARE = 0.2  # of tokens that a tokenizer does not know


class Epoch(Typed, frozen=True, kw_only=True):
    """One epoch (a number of steps): when it ended, and its row."""

    ended: str  # UTC, ISO 8601
    row: PretrainingRow


class PretrainingFile(Typed, frozen=True, kw_only=True):
    """The content of the file."""

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
        """The number of steps after which the pretraining is finished."""
        steps = self.config["steps"]
        assert isinstance(steps, int)
        return steps


def read_pretraining(folder: Path) -> PretrainingFile | None:
    """Read the file of a folder; None if it has none.

    Raises:
        ValueError: it is damaged.
    """
    path = folder / PRETRAINING_FILE
    try:
        return from_json(PretrainingFile, path.read_bytes(), where=str(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_pretraining(folder: Path, content: PretrainingFile) -> None:
    """Replace the file, whole or not at all."""
    write_json(folder / PRETRAINING_FILE, to_plain(content))


def read_finished_pretraining(backbone: str) -> Pretraining | None:
    """Read how a backbone was pretrained here; None for any other.

    Raises:
        ValueError: its pretraining has not finished, or its file is damaged.
    """
    content = read_pretraining(Path(backbone)) if is_folder(backbone) else None
    if content is None:
        return None
    if not content.finished:
        steps = f"{content.made.steps:,} of {content.wanted_steps:,} steps"
        raise ValueError(
            f"backbone {backbone!r} is not finished: its pretraining has made {steps}; continue that first"
        )
    return content.made


def is_tiny(backbone: str) -> bool:
    """Check if a backbone is tiny and random, or was pretrained from such; errors as in `read_finished_pretraining`."""
    made = read_finished_pretraining(backbone)
    return backbone in MINI_BACKBONES if made is None else made.is_tiny


def warn_of_unknown_words(plan: ResolvedPlan) -> list[str]:
    """Warn of the tasks of whose words a pretrained backbone's tokenizer knows few; [] if there are none.

    Only backbones of `study.pretrain` are checked, on generated texts or those of a folder.

    Raises:
        ValueError: data that are not as they should be; see `load_split`.
    """
    arm, data = plan.arms[0], plan.asked.data  # all arms have one backbone, if that is a folder
    if arm.pretraining is UNSET or glue.kind_of(data) == "hub":
        return []
    if is_generated(arm.pretraining.corpus) and arm.pretraining.is_tiny and data == "mini":
        return []  # it is made of their words
    name = arm.tokenizer or arm.backbone
    tokenizer = local_tokenizer(name, texts=lambda: ())
    texts = {TASKS[task].title: _dev_texts(task, data) for task in plan.asked.tasks}
    return warn_of_unknown(name, tokenizer, texts)


def warn_of_unknown(name: str, tokenizer: Tokenizer | None, texts: Mapping[str, Iterable[str]]) -> list[str]:
    """Warn of those texts, by title, of whose words the tokenizer knows few; [] if there are none."""
    if tokenizer is None:
        return []
    shares = {title: unknown_share(tokenizer, sentences) for title, sentences in texts.items()}
    large = [f"about {share:.0%} of {title}" for title, share in shares.items() if share > LARGE_SHARE]
    warning = (
        f"warning: the tokenizer of {name} does not know {', '.join(large)} (share of tokens; limit "
        f"{LARGE_SHARE:.0%}); one of word pieces does: --tokenizer NAME_OR_FOLDER"
    )
    return [warning] if large else []


def _dev_texts(task: str, data: str) -> Iterable[str]:
    """Read the texts of dev, which is short and has the words of train."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers of rows: trials warn of them
        rows = glue.load_split(TASKS[task], TASKS[task].dev_splits[0], data).texts
    return (text for row in rows for text in row)
