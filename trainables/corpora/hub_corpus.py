"""A text data set of the Hugging Face hub as a corpus, streamed: `hub:NAME` or `hub:NAME:CONFIGURATION`.

`hub:wikimedia/wikipedia:20231101.en` and `hub:Skylion007/openwebtext` are two. A row of its train split is a document,
its column `text` holds the lines.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from trainables.corpora.sentences import Document, sentences_of_line
from trainables.hub import HubUnreachable

PREFIX = "hub:"
COLUMN = "text"


def hub_documents(corpus: str) -> Iterator[Document]:
    """All documents, as they arrive; rows without text are left out.

    Raises:
        HubUnreachable: the hub cannot be asked, or does not have it.
        ValueError: its rows have no column `text`.
    """
    from datasets import load_dataset

    name, configuration = _name(corpus)
    with _hub_errors(corpus):
        rows = iter(load_dataset(name, configuration, split="train", streaming=True))
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
    """What identifies its content: the revision that `datasets` has of it.

    Raises:
        HubUnreachable: the hub cannot be asked, or does not have it.
    """
    from datasets import load_dataset_builder

    name, configuration = _name(corpus)
    with _hub_errors(corpus):
        return str(load_dataset_builder(name, configuration).hash)


def _name(corpus: str) -> tuple[str, str | None]:
    name, _, configuration = corpus.removeprefix(PREFIX).partition(":")
    if not name:
        raise ValueError(f"corpus {corpus!r} names no data set; write hub:NAME or hub:NAME:CONFIGURATION")
    return name, configuration or None


@contextmanager
def _hub_errors(corpus: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # no network, or no such data set
        raise HubUnreachable(
            f"corpus {corpus!r} cannot be read from the hub ({(str(error).splitlines() or [''])[0]}); "
            "without a network give a folder of .txt files"
        ) from error
