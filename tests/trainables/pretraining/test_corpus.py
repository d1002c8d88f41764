"""Text to pretrain on: pytest tests/trainables/pretraining/test_corpus.py"""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.corpora import random_documents, write_corpus
from helpers.messages import one_line, says
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from trainables.data import mini_glue
from trainables.data.tasks import TASKS
from trainables.encoders.mini_backbones import word_tokenizer
from trainables.files.sources import HubUnreachable, Unusable
from trainables.pretraining import packing
from trainables.pretraining.corpus import (
    NUM_DOCUMENTS,
    PAIRED,
    check_corpus,
    corpus_fingerprint,
    documents,
    documents_of_lines,
    join_corpora,
    mini_documents,
    sentences_of_line,
    vocabulary_texts,
)
from trainables.pretraining.packing import HELD_OUT_SHARE, tokenise_corpus


def tokenizer_of(corpus: str):
    return word_tokenizer(text for document in documents(corpus) for text in document)


def test_generated_corpus_has_no_dev_or_test_text() -> None:
    splits = [(task, split) for task in TASKS.values() for split in task.splits if split != task.train_split]
    evaluated = {text for task, split in splits for _, texts, _ in mini_glue.generate(task, split) for text in texts}
    assert len(evaluated) > 3_000
    assert not evaluated.intersection(text for document in mini_documents() for text in document)


def test_the_generated_corpus_is_what_was_said_of_it() -> None:
    assert len(set(mini_documents())) == NUM_DOCUMENTS
    assert 2.2e6 < sum(len(text) + 1 for document in mini_documents() for text in document) < 2.4e6


def test_blank_lines_and_ends_of_files_end_documents(tmp_path: Path) -> None:
    write_corpus(tmp_path, [["one", "two"], ["three"]], "a.txt")
    write_corpus(tmp_path / "below", [["four"]], "b.txt")
    assert list(documents(str(tmp_path))) == [("one", "two"), ("three",), ("four",)]


def test_a_paragraph_is_cut_into_sentences() -> None:
    line = 'She left.  "Why?" he asked. It cost 3.50 (too much!) Then  nothing'
    assert sentences_of_line(line) == ["She left.", '"Why?" he asked.', "It cost 3.50 (too much!)", "Then nothing"]
    assert list(documents_of_lines(["", " \n", "one\n", "\t\n", "two\n"])) == [("one",), ("two",)]


def test_closing_quotes_and_brackets_stay_with_their_sentence() -> None:
    line = "“Go!” He went (she saw it.) [“Why?”] 'No.' It rained.”’)] ‘Yes?’ A.\r\n"
    ends = ["“Go!”", "He went (she saw it.)", "[“Why?”]", "'No.'", "It rained.”’)]", "‘Yes?’", "A."]
    assert sentences_of_line(line) == ends


def test_non_utf8_file_is_named_with_line(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (tmp_path / "text.txt").write_bytes(b"one\n\ntwo \xe9\n")
    with pytest.raises(ValueError) as raised:
        list(documents(str(tmp_path)))
    assert one_line(raised.value, tmp_path) == snapshot


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(b"\xef\xbb\xbfone\n")
    assert list(documents(str(tmp_path))) == [("one",)]


@pytest.mark.parametrize("corpus", ["nowhere", "empty"])
def test_a_folder_without_text_is_refused_before_anything_is_read(
    corpus: str, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError) as raised:
        check_corpus(str(tmp_path / corpus), "full")
    assert one_line(raised.value, tmp_path) == snapshot


@pytest.mark.parametrize("text", ["", "\n \n", "one\ntwo\n"])
def test_a_corpus_without_two_documents_is_refused_and_nothing_stays(
    text: str, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "text.txt").write_text(text)
    with pytest.raises(ValueError) as raised:
        tokenise_corpus(str(tmp_path), word_tokenizer(["one two"]), cache=tmp_path / "cache")
    assert one_line(raised.value, tmp_path) == snapshot
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_without_a_network_a_hub_corpus_is_refused_in_one_line(snapshot: SnapshotAssertion) -> None:
    messages = set()
    for read in (corpus_fingerprint, lambda corpus: list(documents(corpus))):
        with pytest.raises(HubUnreachable) as raised:
            read("hub:wikimedia/wikipedia:20231101.en")
        messages.add(one_line(raised.value))
    assert messages == snapshot


def test_rows_of_the_hub_are_documents(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    asked = []
    rows = [{"text": "One. Two.\nThree."}, {"text": " "}, {"text": None}, {"text": "Four"}]
    monkeypatch.setattr("datasets.load_dataset", lambda *names, **options: asked.append((names, options)) or rows)
    assert list(documents("hub:owner/name:part")) == [("One.", "Two.", "Three."), ("Four",)]
    assert list(documents("hub:owner/name@v2"))
    options = {"split": "train", "streaming": True}
    assert asked == [
        (("owner/name", "part"), options | {"revision": None}),
        (("owner/name", None), options | {"revision": "v2"}),
    ]
    rows[0] = {"words": ""}
    with pytest.raises(ValueError) as raised:
        list(documents("hub:owner/name"))
    assert one_line(raised.value) == snapshot


@pytest.mark.parametrize(
    "fault",
    ["Config name is missing.\nPlease pick one among the available configs: ['a', 'b']", "Bad split: train."],
)
def test_missing_configuration_is_not_blamed_on_the_network(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*names: str, **options: object) -> list[object]:
        raise ValueError(fault)

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    with pytest.raises(Unusable) as raised:
        list(documents("hub:owner/name"))
    first = fault.splitlines()[0].removesuffix(".")
    assert says(one_line(raised.value), f"cannot be read: {first}; allowed: hub:NAME:CONFIGURATION")


def test_column_without_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.load_dataset", lambda *names, **options: [{"text": ["One."]}])
    with pytest.raises(ValueError, match="column 'text' has a list; allowed: text"):
        list(documents("hub:owner/name"))


def test_a_data_set_of_the_hub_is_known_by_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def dataset_info(_: object, name: str, *, revision: str | None, timeout: float) -> SimpleNamespace:
        asked.append((name, revision))
        return SimpleNamespace(sha="a" * 40)

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", dataset_info)
    pinned = corpus_fingerprint("hub:owner/name:part")
    assert pinned == f"hub:owner/name@{'a' * 40}:part" and corpus_fingerprint("hub:owner/name@v2").endswith("a")
    assert corpus_fingerprint(pinned) == pinned, "a commit is not asked for"
    assert asked == [("owner/name", None), ("owner/name", "v2")]


def test_a_name_that_the_hub_cannot_have_is_refused(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(ValueError) as raised:
        corpus_fingerprint("hub:a/b/c")
    assert one_line(raised.value) == snapshot


@pytest.mark.parametrize("kind", PAIRED)
def test_documents_of_one_sentence_are_left_out_and_counted(
    tmp_path: Path, kind: str, snapshot: SnapshotAssertion
) -> None:
    corpus = write_corpus(tmp_path, [["One two. Three."], ["four"], ["five", "six"]])
    assert one_line(check_corpus(corpus, kind), tmp_path) == snapshot
    assert check_corpus(corpus, "full") == ""
    write_corpus(tmp_path, [["One two. Three."], ["four"]])
    with pytest.raises(ValueError) as raised:
        check_corpus(corpus, kind)
    assert one_line(raised.value, tmp_path) == snapshot


def test_hidden_files_are_no_text_and_endings_may_be_upper_case(tmp_path: Path) -> None:
    write_corpus(tmp_path, [["one"], ["two"]], "A.TXT")
    before = corpus_fingerprint(str(tmp_path))
    for name in ("._A.TXT", "._b.txt", ".DS_Store", ".cache/c.txt", "__MACOSX/._A.TXT"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\x00\x05\x16\x07\xff")
    assert list(documents(str(tmp_path))) == [("one",), ("two",)]
    assert corpus_fingerprint(str(tmp_path)) == before and check_corpus(str(tmp_path), "full") == ""


def test_a_single_file_is_a_corpus(tmp_path: Path) -> None:
    write_corpus(tmp_path, [["one"], ["two"]], "text.md")
    corpus = str(tmp_path / "text.md")
    assert check_corpus(corpus, "full") == "" and list(documents(corpus)) == [("one",), ("two",)]
    before = corpus_fingerprint(corpus)
    write_corpus(tmp_path, [["one"], ["three"]], "text.md")
    assert corpus_fingerprint(corpus) != before


def test_two_corpora_are_read_one_after_another(tmp_path: Path) -> None:
    parts = [write_corpus(tmp_path / name, random_documents(5, seed=at)) for at, name in enumerate(("one", "two"))]
    corpus = join_corpora(parts)
    assert list(documents(corpus)) == [*documents(parts[0]), *documents(parts[1])]
    assert [*vocabulary_texts(corpus)] == [text for part in parts for text in vocabulary_texts(part)]
    assert corpus_fingerprint(corpus) == " + ".join(map(corpus_fingerprint, parts))
    assert corpus_fingerprint(join_corpora(parts[::-1])) != corpus_fingerprint(corpus)
    tokenizer = tokenizer_of(corpus)
    whole = tokenise_corpus(corpus, tokenizer, cache=tmp_path / "cache")
    halves = [tokenise_corpus(part, tokenizer, cache=tmp_path / "cache") for part in parts]
    assert whole.tokens.tolist() == [token for half in halves for token in half.tokens.tolist()]
    assert whole.document_hashes.tolist() == [text for half in halves for text in half.document_hashes.tolist()]


def test_short_documents_of_all_corpora_are_counted_together(tmp_path: Path) -> None:
    one = write_corpus(tmp_path / "one", [["One two. Three."], ["four"]])
    two = write_corpus(tmp_path / "two", [["five"], ["six", "seven"]])
    for single in (one, two):
        with pytest.raises(ValueError, match=r"sentence_pairs needs: 1;"):
            check_corpus(single, "sentence_pairs")
    said = check_corpus(f"{one} + {two}", "sentence_pairs")
    assert says(said, f"corpus {one} + {two}: sentence_pairs ", "2 of 4")
    assert says(check_corpus(f"mini + {two}", "sentence_pairs"), f"corpus mini + {two}: ", "1 of 2")


def test_tokens_are_those_of_the_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_CHUNK", 7)  # entries are written in several parts
    corpus = write_corpus(tmp_path / "text", random_documents(20))
    tokenizer = tokenizer_of(corpus)
    tokenised = tokenise_corpus(corpus, tokenizer, cache=tmp_path / "cache")
    sentences = [text for document in documents(corpus) for text in document]
    bounds = tokenised.sentence_starts
    given_back = [tokenised.tokens[start:end].tolist() for start, end in itertools.pairwise(bounds)]
    assert given_back == tokenizer(sentences, add_special_tokens=False)["input_ids"]
    assert np.diff(tokenised.document_starts).tolist() == [len(document) for document in documents(corpus)]
    assert tokenised.begins_word.all() and len(tokenised.begins_word) == len(tokenised.tokens)


def test_the_second_call_reads_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path / "text", random_documents(5))
    tokenizer = tokenizer_of(corpus)
    first = tokenise_corpus(corpus, tokenizer, cache=tmp_path / "cache")
    monkeypatch.delattr("trainables.pretraining.packing.documents")
    second = tokenise_corpus(corpus, tokenizer, cache=tmp_path / "cache")
    assert (first.tokens == second.tokens).all() and isinstance(second.tokens, np.memmap)
    write_corpus(tmp_path / "text", random_documents(5, seed=1))
    with pytest.raises(NameError):  # other content is read anew
        tokenise_corpus(corpus, tokenizer, cache=tmp_path / "cache")


@pytest.mark.slow
@settings(deadline=None)
@given(order=st.permutations(range(60)))
def test_who_is_held_out_depends_on_what_documents_say(order: list[int]) -> None:
    hashes = np.random.default_rng(0).integers(2**63, size=60, dtype=np.uint64)
    hashes[7] = hashes[11]  # two that are alike

    def held_out(values: np.ndarray) -> set[int]:
        nothing = np.zeros(0)
        corpus = packing.TokenisedCorpus(nothing, nothing, nothing, nothing, values)
        return set(values[corpus.held_out].tolist())

    assert held_out(hashes) == held_out(hashes[order])
    assert 1 <= len(held_out(hashes)) <= HELD_OUT_SHARE * 60 + 1
