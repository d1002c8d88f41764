"""Texts that a pretraining's tokenizer mostly does not know, as a warning: its backbone learns little of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import UNSET

from study.plans.resolved_plan import Arm, ResolvedPlan
from trainables.corpora.corpus import documents, is_generated, kind_of, vocabulary_texts
from trainables.data import glue
from trainables.data.tasks import TASKS
from trainables.encoders.backbones import MINI_BACKBONES
from trainables.encoders.unknown_tokens import local_tokenizer, unknown_share

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LARGE_SHARE = 0.2  # of tokens
MOST_SENTENCES = 5_000  # of a corpus, to see which words are its most frequent ones


def unknown_in_words(plan: ResolvedPlan) -> list[str]:
    """A line that names the corpus and the tasks of which a large share of tokens is unknown; none where there is none.

    Looked at is the beginning of texts that are here, generated or in a folder, with a tokenizer that is made of the
    corpus's words or lies in a folder.

    Raises:
        ValueError: data that are not as they should be; see `load_split`.
    """
    first = plan.pretraining
    if first is UNSET or (tokenizer := _tokenizer(first, plan.asked.data)) is None:
        return []
    shares = {what: unknown_share(tokenizer, texts) for what, texts in _texts(first, plan)}
    large = [f"about {share:.0%} of {what}" for what, share in shares.items() if share > LARGE_SHARE]
    if not large:
        return []
    return [
        f"warning: the tokenizer of {first.name}, {_in_words(first)}, does not know {', '.join(large)} (share of "
        f"tokens; more than {LARGE_SHARE:.0%} is told); one of word pieces does: --tokenizer NAME_OR_FOLDER"
    ]


def _tokenizer(first: Arm, data: str) -> Tokenizer | None:
    """None: it is not here, or the texts are generated and it is made of their words."""
    corpus = _corpus_of(first)
    if _is_made_of_words(first) and (kind_of(corpus) == "hub" or is_generated(corpus) and data == "mini"):
        return None
    most = None if is_generated(corpus) else MOST_SENTENCES
    return local_tokenizer(first.tokenizer or first.backbone, texts=lambda: islice(vocabulary_texts(corpus), most))


def _texts(first: Arm, plan: ResolvedPlan) -> Iterator[tuple[str, Iterable[str]]]:
    """What is read with the tokenizer, and is here."""
    corpus = _corpus_of(first)
    if kind_of(corpus) != "hub":
        yield f"corpus {corpus}", (text for document in documents(corpus) for text in document)
    if glue.kind_of(plan.asked.data) != "hub":
        for task in plan.asked.tasks:
            yield TASKS[task].title, _dev_texts(task, plan.asked.data)


def _dev_texts(task: str, data: str) -> Iterator[str]:
    """Of dev, which is short and in the words of train."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers of rows: trials tell it
        rows = glue.load_split(TASKS[task], TASKS[task].dev_splits[0], data).texts
    return (text for row in rows for text in row)


def _corpus_of(first: Arm) -> str:
    assert first.corpus is not UNSET
    return first.corpus


def _is_made_of_words(first: Arm) -> bool:
    return (first.tokenizer or first.backbone) in MINI_BACKBONES


def _in_words(first: Arm) -> str:
    if not _is_made_of_words(first):
        return str(first.tokenizer or first.backbone)
    return "made of mini-GLUE's words" if is_generated(_corpus_of(first)) else "made of the corpus's own words"
