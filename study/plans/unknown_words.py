"""Texts that a tokenizer mostly does not know, as a warning: a backbone learns little of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import UNSET

from study.plans.resolved_plan import ResolvedPlan
from trainables.corpora.corpus import is_generated
from trainables.data import glue
from trainables.data.tasks import TASKS
from trainables.encoders.backbones import local_tokenizer, unknown_share

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LARGE_SHARE = 0.2  # of tokens


def unknown_in_words(plan: ResolvedPlan) -> list[str]:
    """A warning that names the tasks of which a pretrained backbone's tokenizer knows little; nothing otherwise.

    Looked at are backbones of `study.pretrain`, and texts that are here, generated or in a folder.

    Raises:
        ValueError: data that are not as they should be; see `load_split`.
    """
    arm, data = plan.arms[0], plan.asked.data  # all have one backbone, where that is a folder
    if arm.pretraining is UNSET or glue.kind_of(data) == "hub":
        return []
    if is_generated(arm.pretraining.corpus) and arm.pretraining.is_tiny and data == "mini":
        return []  # it is made of their words
    name = arm.tokenizer or arm.backbone
    tokenizer = local_tokenizer(name, texts=lambda: ())
    texts = {TASKS[task].title: _dev_texts(task, data) for task in plan.asked.tasks}
    return warn_of_unknown(name, tokenizer, texts)


def warn_of_unknown(name: str, tokenizer: Tokenizer | None, texts: Mapping[str, Iterable[str]]) -> list[str]:
    """A warning that names each of these texts of which the tokenizer knows little, by its title; nothing otherwise."""
    if tokenizer is None:
        return []
    shares = {title: unknown_share(tokenizer, own) for title, own in texts.items()}
    large = [f"about {share:.0%} of {title}" for title, share in shares.items() if share > LARGE_SHARE]
    if not large:
        return []
    return [
        f"warning: the tokenizer of {name} does not know {', '.join(large)} (share of tokens; more than "
        f"{LARGE_SHARE:.0%} is told); one of word pieces does: --tokenizer NAME_OR_FOLDER"
    ]


def _dev_texts(task: str, data: str) -> Iterable[str]:
    """Of dev, which is short and in the words of train."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers of rows: trials tell it
        rows = glue.load_split(TASKS[task], TASKS[task].dev_splits[0], data).texts
    return (text for row in rows for text in row)
