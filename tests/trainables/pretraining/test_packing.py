"""Documents cut into examples: pytest tests/trainables/pretraining/test_packing.py"""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from helpers.corpora import random_documents, write_corpus
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.encoders.mini_backbones import word_tokenizer
from trainables.pretraining.corpus import documents
from trainables.pretraining.packing import (
    _PACKINGS,
    PAIR_SPECIALS,
    SINGLE_SPECIALS,
    PackedExamples,
    TokenisedCorpus,
    _pack_documents,
    _write_packed,
    pack,
    tokenise_corpus,
)

pytestmark = pytest.mark.slow

LENGTHS = st.lists(st.lists(st.integers(1, 40), min_size=2, max_size=12), min_size=1, max_size=8)  # tokens of sentences
PAIRED = ("sentence_pairs", "random_lines")


def corpus_of(lengths: list[list[int]]) -> TokenisedCorpus:
    """A corpus whose sentences have so many tokens."""
    sentences = [length for document in lengths for length in document]
    return TokenisedCorpus(
        tokens=np.arange(sum(sentences)),
        begins_word=np.ones(sum(sentences), bool),
        sentence_starts=np.cumsum([0, *sentences]),
        document_starts=np.cumsum([0, *map(len, lengths)]),
        document_hashes=np.arange(len(lengths), dtype=np.uint64),
    )


def packed(corpus: TokenisedCorpus, packing: str, max_length: int) -> PackedExamples:
    numbers = np.arange(len(corpus.document_hashes))
    return PackedExamples(*np.array(list(_pack_documents(corpus, numbers, packing, max_length))).reshape(-1, 4).T)  # type: ignore[arg-type]


def spans(examples: PackedExamples) -> list[list[range]]:
    """The tokens of both segments of each example, the second left out where there is none."""
    first = zip(examples.first_starts, examples.first_lengths, strict=True)
    second = zip(examples.second_starts, examples.second_lengths, strict=True)
    return [[range(s, s + n) for s, n in pair if n] for pair in zip(first, second, strict=True)]


@pytest.mark.parametrize("packing", _PACKINGS)
@settings(deadline=None)
@given(lengths=LENGTHS, max_length=st.integers(8, 64))
def test_no_example_crosses_documents_or_is_too_long(packing: str, lengths: list[list[int]], max_length: int) -> None:
    corpus = corpus_of(lengths)
    document_of = np.repeat(np.arange(len(lengths)), [sum(document) for document in lengths])
    for segments in spans(packed(corpus, packing, max_length)):
        assert all(len(segment) >= 1 for segment in segments)
        assert len({document_of[token] for segment in segments for token in segment}) == 1
        specials = PAIR_SPECIALS if len(segments) == 2 else SINGLE_SPECIALS
        assert sum(map(len, segments)) + specials <= max_length
        assert len(segments) == 2 or packing not in PAIRED


@settings(deadline=None)
@given(lengths=LENGTHS, max_length=st.integers(8, 64))
def test_pairs_are_consecutive_sentences_cut_between_two(lengths: list[list[int]], max_length: int) -> None:
    corpus = corpus_of(lengths)
    sentence_of = np.repeat(np.arange(len(corpus.sentence_starts) - 1), np.diff(corpus.sentence_starts))
    for first, second in spans(packed(corpus, "sentence_pairs", max_length)):
        assert first[-1] < second[0]
        assert sentence_of[first[-1]] < sentence_of[second[0]]


@settings(deadline=None)
@given(lengths=LENGTHS, max_length=st.integers(8, 64))
def test_full_examples_hold_every_token_once(lengths: list[list[int]], max_length: int) -> None:
    corpus = corpus_of(lengths)
    (taken,) = zip(*spans(packed(corpus, "full", max_length)), strict=True)
    assert [token for segment in taken for token in segment] == list(range(len(corpus.tokens)))


@settings(deadline=None)
@given(lengths=LENGTHS)
def test_every_line_is_in_one_random_pair_at_most(lengths: list[list[int]]) -> None:
    taken = [segment.start for pair in spans(packed(corpus_of(lengths), "random_lines", 32)) for segment in pair]
    assert len(taken) == len(set(taken)) == sum(len(document) // 2 * 2 for document in lengths)


def test_the_first_segment_aims_at_half_and_a_tenth_has_one() -> None:
    examples = packed(corpus_of([[8] * 400] * 40), "electra", 128)
    single = examples.second_lengths == 0
    assert abs(single.mean() - 0.1) < 3 * (0.1 * 0.9 / len(examples)) ** 0.5
    whole = ~single & (examples.first_lengths + examples.second_lengths > 115)
    assert 55 <= examples.first_lengths[whole].mean() <= 65  # (128 - 3) // 2 is 62


def test_one_example_in_twenty_has_a_random_length_also_in_short_documents() -> None:
    number = 2_000
    examples = packed(corpus_of([[2] * 32] * number), "electra", 128)
    rate = 0.05 * 59 / 124  # of lengths from 5 to 128, those below the 64 tokens of a document cut it
    cut = len(examples) / number - 1
    assert abs(cut - rate) < 3 * (rate / number) ** 0.5


def test_a_tenth_of_the_documents_has_short_pairs() -> None:
    number = 600
    examples = packed(corpus_of([[1] * 120] * number), "sentence_pairs", 64)
    longest = np.zeros(number)
    np.maximum.at(longest, examples.first_starts // 120, examples.first_lengths + examples.second_lengths)
    assert set(longest) >= {61} and abs((longest < 61).mean() - 0.1) < 3 * (0.1 * 0.9 / number) ** 0.5


def test_tokens_are_cut_from_the_longer_segment() -> None:
    for sentences, lengths in ([40, 4], (25, 4)), ([4, 40], (4, 25)), ([40, 40], (15, 14)):
        examples = packed(corpus_of([sentences] * 9), "sentence_pairs", 32)
        assert {*zip(examples.first_lengths.tolist(), examples.second_lengths.tolist(), strict=True)} == {lengths}


@pytest.mark.parametrize("packing", PAIRED)
def test_documents_shorter_than_a_pair_make_no_example(packing: str, tmp_path: Path) -> None:
    titles = [[f"chapter {number}"] for number in range(9)]
    corpus = write_corpus(tmp_path / "text", [["one", "two"], *titles, ["three", "four"]])
    tokenizer = word_tokenizer(text for document in documents(corpus) for text in document)
    tokenised = tokenise_corpus(corpus, tokenizer, cache=tmp_path)
    parts = pack(corpus, tokenised, tokenizer, packing=packing, max_length=16, cache=tmp_path)
    assert [len(part) for part in parts] == [1, 1]


def test_packed_examples_come_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path / "text", random_documents(30))
    tokenizer = word_tokenizer(text for document in documents(corpus) for text in document)
    tokenised = tokenise_corpus(corpus, tokenizer, cache=tmp_path)
    first = pack(corpus, tokenised, tokenizer, packing="full", max_length=16, cache=tmp_path)
    monkeypatch.delitem(_PACKINGS, "full")
    second = pack(corpus, tokenised, tokenizer, packing="full", max_length=16, cache=tmp_path)
    for ours, theirs in zip(first, second, strict=True):
        assert (ours.first_starts == theirs.first_starts).all() and isinstance(theirs.first_starts, np.memmap)
    with pytest.raises(KeyError):  # another length is packed anew
        pack(corpus, tokenised, tokenizer, packing="full", max_length=17, cache=tmp_path)


def test_packing_takes_little_memory_per_example(tmp_path: Path) -> None:
    corpus = corpus_of([[1] * 40] * 400)  # makes 8,000 examples
    tracemalloc.start()
    try:
        _write_packed(tmp_path, "corpus", corpus, "random_lines", 16)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100 * 8_000  # bytes


def test_held_out_documents_are_not_trained_on(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "text", random_documents(60))
    tokenizer = word_tokenizer(text for document in documents(corpus) for text in document)
    tokenised = tokenise_corpus(corpus, tokenizer, cache=tmp_path)
    parts = pack(corpus, tokenised, tokenizer, packing="full", max_length=16, cache=tmp_path)
    bounds = tokenised.sentence_starts[tokenised.document_starts]
    trained, held_out = (set(np.searchsorted(bounds, part.first_starts, side="right") - 1) for part in parts)
    assert held_out == set(np.flatnonzero(tokenised.held_out)) and not trained & held_out
