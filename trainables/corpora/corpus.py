"""What an encoder can be pretrained on: `mini`, `mini-shuffled`, a data set of the hub, or a folder of text."""

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal

from trainables.corpora import hub_corpus, mini_corpus, text_folder
from trainables.corpora.sentences import Document
from trainables.data import glue
from trainables.data.tasks import TASKS

Kind = Literal["mini", "mini-shuffled", "hub", "folder"]
PAIRED = ("sentence_pairs", "random_lines")  # ways of packing that make pairs of a document's sentences


def kind_of(corpus: str) -> Kind:
    """What kind of place a corpus is."""
    if corpus == "mini" or corpus == "mini-shuffled":
        return corpus  # type: ignore[return-value]
    return "hub" if corpus.startswith(hub_corpus.PREFIX) else "folder"


def is_generated(corpus: str) -> bool:
    """Whether its words are mini-GLUE's."""
    return kind_of(corpus) in ("mini", "mini-shuffled")


def check_corpus(corpus: str) -> None:
    """Passes if a corpus may be there. Of a folder the files are read; no hub is asked.

    Raises:
        ValueError: a folder is none, has no text file, or none with two documents; a file is not UTF-8.
    """
    if kind_of(corpus) == "folder":
        text_folder.check_folder(Path(corpus))


def check_pairs(corpus: str, packing: str) -> None:
    """Passes if every document of a folder has two sentences, where this packing makes pairs of them.

    Raises:
        ValueError: one has fewer; the line has its number and its beginning.
    """
    if packing not in PAIRED or kind_of(corpus) != "folder":  # nobody can edit the others
        return
    for number, document in enumerate(documents(corpus), start=1):
        if len(document) < 2:
            what = f"corpus {corpus!r}: document {number}, {document[0][:40]!r}"
            raise ValueError(f"{what}, has one sentence; {packing} needs two in each")


def pinned(corpus: str, fingerprint: str) -> str:
    """A corpus that stays what it is: one of the hub at the commit of its fingerprint."""
    return fingerprint if kind_of(corpus) == kind_of(fingerprint) == "hub" else corpus


def seen_from_anywhere(corpus: str) -> str:
    """A corpus with the whole path of a folder: whoever reads it may stand elsewhere."""
    return str(Path(corpus).resolve()) if kind_of(corpus) == "folder" else corpus


def corpus_fingerprint(corpus: str) -> str:
    """Hash of what a corpus holds: a folder's files, the generated text, or a data set's revision.

    Raises:
        ValueError: it is not there.
    """
    if is_generated(corpus):
        return _generated_fingerprint(corpus)
    if kind_of(corpus) == "hub":
        return hub_corpus.hub_fingerprint(corpus)
    return text_folder.folder_fingerprint(Path(corpus))


def documents(corpus: str) -> Iterator[Document]:
    """All documents in a fixed order, each a tuple of sentences.

    Raises:
        ValueError: it is not there, or a file of it is not UTF-8.
    """
    match kind_of(corpus):
        case "mini":
            yield from mini_corpus.mini_documents()
        case "mini-shuffled":
            yield from mini_corpus.shuffled_documents()
        case "hub":
            yield from hub_corpus.hub_documents(corpus)
        case "folder":
            yield from text_folder.folder_documents(Path(corpus))


def vocabulary_texts(corpus: str) -> Iterator[str]:
    """The texts whose words a tiny backbone's tokenizer knows: the corpus's; of a generated one mini-GLUE's, as its
    tasks have them.

    Raises:
        ValueError: see `documents`.
    """
    if is_generated(corpus):
        return glue.vocabulary_texts(TASKS["rte"], "mini")
    return (text for document in documents(corpus) for text in document)


@lru_cache(maxsize=None)
def _generated_fingerprint(corpus: str) -> str:
    return hashlib.sha256(repr(list(documents(corpus))).encode()).hexdigest()[:16]
