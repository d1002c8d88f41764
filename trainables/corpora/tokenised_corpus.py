"""A corpus as token numbers: cut and tokenised once per machine, then memory-mapped by every run.

An entry of the cache is a folder of plain arrays, written as the documents arrive, so that a corpus need not fit into
memory. It is named by the content that it comes from: corpus and tokenizer.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from transformers import PreTrainedTokenizerBase

from trainables.corpora.corpus import corpus_fingerprint, documents
from trainables.corpora.sentences import Document
from trainables.encoders.loading import fingerprint_tokenizer
from trainables.sources import cached_folder

FORMAT = 1  # of an entry; raise it whenever what is written changes
HELD_OUT_SHARE = 0.05  # of the documents: for the held-out scores, never trained on
_CHUNK = 1_000  # documents tokenised at once
_ARRAYS = {
    "tokens": np.int32,
    "begins_word": np.bool_,
    "sentence_starts": np.int64,
    "document_starts": np.int64,
    "document_hashes": np.uint64,
}


@dataclass(frozen=True)
class TokenisedCorpus:
    """The tokens of all documents, end to end, memory-mapped. No special tokens are among them."""

    tokens: np.ndarray  # (all tokens,) int32
    begins_word: np.ndarray  # (all tokens,) bool, whether a token is the first of its word
    sentence_starts: np.ndarray  # (sentences + 1,) int64, place of a sentence's first token; last, the number of tokens
    document_starts: (
        np.ndarray
    )  # (documents + 1,) int64, number of a document's first sentence; last, that of sentences
    document_hashes: np.ndarray  # (documents,) uint64, of its text

    @property
    def held_out(self) -> np.ndarray:
        """Which documents are kept for held-out scores, (documents,) bool: those whose hashes are the smallest.

        So it depends on what the documents say alone, and of documents that are alike all are on one side.
        """
        number = max(1, round(HELD_OUT_SHARE * len(self.document_hashes)))
        return self.document_hashes <= np.partition(self.document_hashes, number - 1)[number - 1]


def tokenise_corpus(corpus: str, tokenizer: PreTrainedTokenizerBase, *, cache: Path) -> TokenisedCorpus:
    """The corpus as tokens, from the cache, or made and put there with a progress bar.

    Raises:
        ValueError: it is not there, is empty, or a file of it is not UTF-8; there is nothing to hold out.
    """
    content = f"corpus {FORMAT} {corpus_fingerprint(corpus)} {fingerprint_tokenizer(tokenizer)}"
    entry = cached_folder(cache, content, lambda folder: _write(folder, corpus, tokenizer))
    arrays = {name: np.memmap(entry / name, dtype=kind, mode="r") for name, kind in _ARRAYS.items()}
    return TokenisedCorpus(**arrays)


def _write(folder: Path, corpus: str, tokenizer: PreTrainedTokenizerBase) -> None:
    num_tokens = num_sentences = num_documents = 0
    with _Files(folder) as files:
        files.append("sentence_starts", [0])
        files.append("document_starts", [0])
        for chunk in _chunks(_with_progress(corpus, documents(corpus))):
            sentences = [sentence for document in chunk for sentence in document]
            encoded = tokenizer(sentences, add_special_tokens=False, return_attention_mask=False)
            files.append("tokens", np.concatenate([np.array(row, np.int32) for row in encoded["input_ids"]]))
            for encoding in encoded.encodings or ():
                files.append("begins_word", _first_of_words(encoding.word_ids))
            lengths = [len(row) for row in encoded["input_ids"]]
            files.append("sentence_starts", num_tokens + np.cumsum(lengths))
            files.append("document_starts", num_sentences + np.cumsum([len(document) for document in chunk]))
            files.append("document_hashes", [_hash(document) for document in chunk])
            num_tokens, num_sentences = num_tokens + sum(lengths), num_sentences + len(sentences)
            num_documents += len(chunk)
    if num_documents < 2 or not num_tokens:
        raise ValueError(
            f"corpus {corpus!r} has {num_documents} document(s) and {num_tokens} tokens; at least 2 documents are "
            "needed, for one is held out; a blank line ends a document"
        )


class _Files:
    """Arrays that grow on disk."""

    def __init__(self, folder: Path) -> None:
        self._streams = {name: (folder / name).open("wb") for name in _ARRAYS}

    def __enter__(self) -> "_Files":
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._streams.values():
            stream.close()

    def append(self, name: str, values: Iterable[int] | np.ndarray) -> None:
        self._streams[name].write(np.asarray(values, dtype=_ARRAYS[name]).tobytes())


def _first_of_words(words: list[int | None]) -> np.ndarray:
    numbers = np.array([-1 if word is None else word for word in words])
    return np.diff(numbers, prepend=-2) != 0


def _hash(document: Document) -> int:
    return int.from_bytes(sha256("\n".join(document).encode()).digest()[:8])


def _chunks(items: Iterator[Document]) -> Iterator[list[Document]]:
    while chunk := list(islice(items, _CHUNK)):
        yield chunk


def _with_progress(corpus: str, items: Iterator[Document]) -> Iterator[Document]:
    """The same, with a bar where somebody looks. How many there are is not known beforehand."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"documents of {corpus}", total=None)
        for item in items:
            yield item
            bar.advance(task)
