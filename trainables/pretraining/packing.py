"""Tokenises a corpus and packs it into examples of one or two segments, once per machine.

A cache entry is a folder of plain arrays, which every run memory-maps. The entry's name is a hash of all inputs. Tokens
are written while documents are read, so a corpus need not fit into memory.

Examples are packed as in ALBERT, ELECTRA or lmtuners, or as single segments of full length. A segment is a sequence of
tokens from a single document. Every run makes the same random choices here. `batches.py` makes the choices
that change in each pass over the data.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from transformers import PreTrainedTokenizerBase

from trainables.encoders.loading import fingerprint_tokenizer
from trainables.files.sources import cached_folder
from trainables.pretraining.corpus import PAIRED, corpus_fingerprint, documents

CORPUS_FORMAT = 2  # version of a cache entry of tokens; raise it whenever the files change
HELD_OUT_SHARE = 0.05  # share of documents held out of training, for the held-out scores
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
    """Memory-mapped arrays of the concatenated tokens of all documents, without special tokens."""

    tokens: np.ndarray  # (all tokens,) int32
    begins_word: np.ndarray  # (all tokens,) bool, whether a token is the first of its word
    sentence_starts: np.ndarray  # (sentences + 1,) int64, each sentence's first token, then the number of tokens
    document_starts: np.ndarray  # (documents + 1,) int64, each document's first sentence, then the number of sentences
    document_hashes: np.ndarray  # (documents,) uint64, hash of each document's text

    @property
    def held_out(self) -> np.ndarray:
        """Boolean mask of the held-out documents, shape (documents,). They are the documents with the smallest hashes.

        Identical documents have the same hash, so they are in the same set.
        """
        return self.hold_out_among(np.ones(len(self.document_hashes), dtype=bool))

    def hold_out_among(self, eligible: np.ndarray) -> np.ndarray:
        """Choose the held-out documents in the same way, but only among the `eligible` ones (a boolean mask)."""
        hashes = self.document_hashes[eligible]
        number = max(1, round(HELD_OUT_SHARE * len(hashes)))
        return eligible & (self.document_hashes <= np.partition(hashes, number - 1)[number - 1])


def tokenise_corpus(corpus: str, tokenizer: PreTrainedTokenizerBase, *, cache: Path) -> TokenisedCorpus:
    """Load the tokens of a corpus from the cache; if they are missing, tokenise the corpus first.

    Raises:
        ValueError: if the corpus is missing; if a file is not UTF-8; or if there are no tokens or fewer than two
            documents.
    """
    content = f"corpus {CORPUS_FORMAT} {corpus_fingerprint(corpus)} {fingerprint_tokenizer(tokenizer)}"
    entry = cached_folder(cache, content, lambda folder: _write_corpus(folder, corpus, tokenizer))
    arrays = {name: np.memmap(entry / name, dtype=kind, mode="r") for name, kind in _ARRAYS.items()}
    return TokenisedCorpus(**arrays)


def _write_corpus(folder: Path, corpus: str, tokenizer: PreTrainedTokenizerBase) -> None:
    num_tokens = num_sentences = num_documents = 0
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,}"), TimeElapsedColumn())
    with ExitStack() as stack:
        bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        counted = stack.enter_context(bar).track(documents(corpus), description=f"documents of {corpus}")
        streams = {name: stack.enter_context((folder / name).open("wb")) for name in _ARRAYS}

        def append(name: str, values: Iterable[int] | np.ndarray) -> None:
            streams[name].write(np.asarray(values, dtype=_ARRAYS[name]).tobytes())

        append("sentence_starts", [0])
        append("document_starts", [0])
        for chunk in iter(lambda: list(islice(counted, _CHUNK)), []):
            sentences = [sentence for document in chunk for sentence in document]
            encoded = tokenizer(sentences, add_special_tokens=False, return_attention_mask=False)
            append("tokens", np.concatenate([np.array(row, np.int32) for row in encoded["input_ids"]]))
            for encoding in encoded.encodings or ():
                append("begins_word", _find_word_starts(encoding.word_ids))
            lengths = [len(row) for row in encoded["input_ids"]]
            append("sentence_starts", num_tokens + np.cumsum(lengths))
            append("document_starts", num_sentences + np.cumsum([len(document) for document in chunk]))
            digests = (sha256("\n".join(document).encode()).digest() for document in chunk)
            append("document_hashes", [int.from_bytes(digest[:8]) for digest in digests])
            num_tokens, num_sentences = num_tokens + sum(lengths), num_sentences + len(sentences)
            num_documents += len(chunk)
    if num_documents < 2 or not num_tokens:
        raise ValueError(
            f"corpus {corpus!r}: documents: {num_documents}, tokens: {num_tokens}; allowed: at least 2 documents, "
            "because one is held out; a blank line ends a document"
        )


def _find_word_starts(words: list[int | None]) -> np.ndarray:
    numbers = np.array([-1 if word is None else word for word in words])
    return np.diff(numbers, prepend=-2) != 0


# ---- examples

PACKED_FORMAT = 4  # version of a cache entry of examples; raise it whenever the examples change
PAIR_SPECIALS = 3  # number of special tokens in [CLS] first [SEP] second [SEP]
SINGLE_SPECIALS = 2  # number of special tokens in [CLS] first [SEP]

Span = tuple[int, int]  # start and end in the tokens of a corpus
_NOTHING: Span = (0, 0)


@dataclass(frozen=True)
class PackedExamples:
    """Memory-mapped arrays: where each example's segments are in `TokenisedCorpus.tokens`."""

    first_starts: np.ndarray  # (n,) int64
    first_lengths: np.ndarray  # (n,) int64, at least 1
    second_starts: np.ndarray  # (n,) int64
    second_lengths: np.ndarray  # (n,) int64, 0 if there is one segment

    def __len__(self) -> int:
        """Count the examples."""
        return len(self.first_starts)


def pack(
    corpus: str,
    tokenised: TokenisedCorpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    packing: str,
    max_length: int,
    cache: Path,
) -> tuple[PackedExamples, PackedExamples]:
    """Load the training and the held-out examples from the cache; if they are missing, pack them first.

    Raises:
        ValueError: if there are no training or no held-out examples.
    """
    source = f"{corpus_fingerprint(corpus)} {fingerprint_tokenizer(tokenizer)}"
    content = f"packed {PACKED_FORMAT} {source} {packing} {max_length}"
    entry = cached_folder(cache, content, lambda folder: _write_packed(folder, corpus, tokenised, packing, max_length))
    arrays = (np.load(entry / f"{part}.npy", mmap_mode="r", allow_pickle=False) for part in ("train", "held_out"))
    train, held_out = (PackedExamples(*array.T) for array in arrays)
    return train, held_out


def _write_packed(folder: Path, corpus: str, tokenised: TokenisedCorpus, packing: str, max_length: int) -> None:
    held_out, has_pair = tokenised.held_out, np.diff(tokenised.document_starts) > 1
    if packing in PAIRED and has_pair.sum() < 2:
        raise ValueError(f"corpus {corpus!r}: {has_pair.sum()} documents have two sentences, but {packing} needs two")
    if packing in PAIRED and not (has_pair[held_out].any() and has_pair[~held_out].any()):
        held_out = tokenised.hold_out_among(has_pair)  # because documents of one sentence make no example
    for name, wanted in {"train": ~held_out, "held_out": held_out}.items():
        packed = _pack_documents(tokenised, np.flatnonzero(wanted), packing, max_length)
        examples = np.fromiter(packed, np.dtype((np.int64, 4)))  # a list would take four times the memory
        if not len(examples):
            raise ValueError(f"corpus {corpus!r} has no {packing} example in its {name.replace('_', '-')} documents")
        np.save(folder / f"{name}.npy", examples, allow_pickle=False)


def _pack_documents(
    tokenised: TokenisedCorpus, numbers: np.ndarray, packing: str, max_length: int
) -> Iterator[tuple[int, int, int, int]]:
    """Pack the documents at the indices `numbers`. For each example, yield start and length of both segments."""
    draw = random.Random(f"{packing} {max_length}")
    for number in numbers:
        first, last = tokenised.document_starts[number : number + 2]
        bounds = tokenised.sentence_starts[first : last + 1].tolist()
        bounds = [bounds[0], *(later for earlier, later in pairwise(bounds) if later > earlier)]
        for one, two in _PACKINGS[packing](bounds, max_length, draw):
            yield one[0], one[1] - one[0], two[0], two[1] - two[0]


def _pack_sentence_pairs(bounds: list[int], max_length: int, draw: random.Random) -> Iterator[tuple[Span, Span]]:
    """Cut a document into chunks, and split each chunk at a random sentence boundary, as ALBERT does.

    A chunk has at least two sentences. A single last sentence is dropped; ALBERT pairs it with text from another
    document. Source: google-research/albert, create_pretraining_data.py.
    """
    longest = max_length - PAIR_SPECIALS
    target = draw.randint(2, longest) if draw.random() < 0.1 else longest
    begin = 0
    for end in range(1, len(bounds)):
        is_full = bounds[end] - bounds[begin] >= target or end == len(bounds) - 1
        if is_full and end - begin >= 2:
            cut = bounds[draw.randint(begin + 1, end - 1)]
            yield _cut_to(longest, (bounds[begin], cut), (cut, bounds[end]), draw)
            begin = end


def _pack_electra(bounds: list[int], max_length: int, draw: random.Random) -> Iterator[tuple[Span, Span]]:
    """Pack sentences as ELECTRA does: the first segment fills about half of the length.

    10 % of the examples have one segment, and 5 % have a random target length. Unlike in ELECTRA, the first segment is
    complete before the second begins. Source: google-research/electra, build_pretraining_dataset.py.
    """
    begin, target = 0, _draw_target(max_length, draw)
    for end in range(1, len(bounds)):
        if bounds[end] - bounds[begin] >= target or end == len(bounds) - 1:
            yield _cut_into_segments(bounds[begin : end + 1], target, max_length, draw)
            begin, target = end, _draw_target(max_length, draw)


def _draw_target(max_length: int, draw: random.Random) -> int:
    return draw.randint(5, max_length) if draw.random() < 0.05 else max_length


def _cut_into_segments(bounds: list[int], target: int, max_length: int, draw: random.Random) -> tuple[Span, Span]:
    is_single = draw.random() < 0.1
    aim = float("inf") if is_single else (target - PAIR_SPECIALS) // 2
    start, cut = bounds[0], bounds[1]
    for end in bounds[2:]:
        if end - start < aim or (cut - start < aim and draw.random() < 0.5):
            cut = end
        else:
            break
    first = (start, min(cut, start + max_length - SINGLE_SPECIALS))
    room = max(0, max_length - (first[1] - first[0]) - PAIR_SPECIALS)
    second = (cut, min(bounds[-1], cut + room))
    return first, second if second[1] > second[0] else _NOTHING


def _pack_random_lines(bounds: list[int], max_length: int, draw: random.Random) -> Iterator[tuple[Span, Span]]:
    """Pair a document's sentences at random, as lmtuners does.

    Each sentence is cut to half of the maximal length. If the number of sentences is odd, one is dropped.
    """
    longest = (max_length - PAIR_SPECIALS) // 2
    lines = [(start, min(end, start + longest)) for start, end in pairwise(bounds)]
    draw.shuffle(lines)
    yield from zip(lines[::2], lines[1::2], strict=False)


def _pack_full(bounds: list[int], max_length: int, draw: random.Random) -> Iterator[tuple[Span, Span]]:
    """Cut a document into segments of the maximal length, one per example. The last segment may be shorter."""
    longest = max_length - SINGLE_SPECIALS
    for start in range(bounds[0], bounds[-1], longest):
        yield (start, min(bounds[-1], start + longest)), _NOTHING


_PACKINGS: dict[str, Callable[[list[int], int, random.Random], Iterator[tuple[Span, Span]]]] = {
    "sentence_pairs": _pack_sentence_pairs,
    "electra": _pack_electra,
    "random_lines": _pack_random_lines,
    "full": _pack_full,
}


def _cut_to(longest: int, first: Span, second: Span, draw: random.Random) -> tuple[Span, Span]:
    """Cut tokens one by one from a random end of the longer segment, until both have at most `longest` in total."""
    spans = [first, second]
    while sum(end - start for start, end in spans) > longest:
        longer = 0 if spans[0][1] - spans[0][0] > spans[1][1] - spans[1][0] else 1
        start, end = spans[longer]
        spans[longer] = (start + 1, end) if draw.random() < 0.5 else (start, end - 1)
    return spans[0], spans[1]
