"""A text data set of the Hugging Face hub as a corpus, streamed: `hub:NAME[@REVISION][:CONFIGURATION]`.

`hub:wikimedia/wikipedia:20231101.en` and `hub:Skylion007/openwebtext` are two. A row of its train split is a document,
its column `text` holds the lines.
"""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager

from trainables.corpora.sentences import Document, sentences_of_line
from trainables.sources import HUB_SECONDS, hub_errors, reach_or_work_offline

PREFIX = "hub:"
COLUMN = "text"
_COMMIT = re.compile("[0-9a-f]{40}")


def hub_documents(corpus: str) -> Iterator[Document]:
    """All documents, as they arrive; rows without text are left out.

    Raises:
        HubUnreachable: the hub cannot be asked, or does not have it.
        ValueError: its rows have no column `text`.
    """
    from datasets import load_dataset

    name, revision, configuration = _parts(corpus)
    with _hub_errors(corpus):
        reach_or_work_offline()
        rows = iter(load_dataset(name, configuration, split="train", revision=revision, streaming=True))
    while True:
        with _hub_errors(corpus):
            row = next(rows, None)
        if row is None:
            return
        if COLUMN not in row:
            raise ValueError(f"corpus {corpus!r} has no column {COLUMN!r}; its columns are {', '.join(row)}")
        sentences = [sentence for line in row[COLUMN].split("\n") for sentence in sentences_of_line(line)]
        if sentences:
            yield tuple(sentences)


def hub_fingerprint(corpus: str) -> str:
    """What identifies its content: itself, at the commit that it stands for now.

    Raises:
        HubUnreachable: the hub cannot be asked.
        ValueError: it has no such data set, or no such revision of it.
    """
    from huggingface_hub import HfApi

    name, revision, configuration = _parts(corpus)
    if revision is None or not _COMMIT.fullmatch(revision):
        with _hub_errors(corpus):
            reach_or_work_offline()
            revision = str(HfApi().dataset_info(name, revision=revision, timeout=HUB_SECONDS).sha)
    return f"{PREFIX}{name}@{revision}" + (f":{configuration}" if configuration else "")


def _parts(corpus: str) -> tuple[str, str | None, str | None]:
    """Name, revision and configuration."""
    place, _, configuration = corpus.removeprefix(PREFIX).partition(":")
    name, _, revision = place.partition("@")
    if not name:
        raise ValueError(f"corpus {corpus!r} names no data set; write hub:NAME or hub:NAME:CONFIGURATION")
    return name, revision or None, configuration or None


def _hub_errors(corpus: str) -> AbstractContextManager[None]:
    menu = "hub:NAME, hub:NAME:CONFIGURATION, hub:NAME@REVISION, mini, a folder"
    return hub_errors(f"corpus {corpus!r}", allowed=menu, offline="give a folder of .txt files")
