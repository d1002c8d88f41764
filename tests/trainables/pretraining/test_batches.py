"""Batches as functions of seed and step: pytest tests/trainables/pretraining/test_batches.py"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from helpers.corpora import pretraining_config, pretraining_spec, random_documents, write_corpus
from helpers.messages import one_line
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from trainables.encoders.mini_backbones import word_tokenizer
from trainables.pretraining.batches import IGNORED, PretrainingBatches, load_pretraining_tokenizer
from trainables.pretraining.corpus import documents
from trainables.pretraining.packing import pack, tokenise_corpus
from trainables.runs.trial import Unavailable


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A function that makes the training batches of an order, and what they are made of."""
    folder = tmp_path_factory.mktemp("batches")
    corpus = write_corpus(folder / "text", random_documents(40))
    tokenizer = word_tokenizer(text for document in documents(corpus) for text in document)
    tokenised = tokenise_corpus(corpus, tokenizer, cache=folder)

    def make(order="random", **changes):
        config = pretraining_config("mlm", **changes)
        packing, length = config.packing, config.max_length
        train, _ = pack(corpus, tokenised, tokenizer, packing=packing, max_length=length, cache=folder)
        return PretrainingBatches(tokenised, train, tokenizer, config, order=order), tokenised, train

    return make, tokenizer


def equal(one, other) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), step=st.integers(0, 50))
def test_a_batch_is_a_function_of_seed_and_step(made, seed: int, step: int) -> None:
    make, _ = made
    (used, _, _), (fresh, _, _) = make(), make()
    for earlier in range(3):
        used.training_batch(earlier, seed=seed + 1)
    assert equal(used.training_batch(step, seed=seed), fresh.training_batch(step, seed=seed))
    assert not equal(used.training_batch(step, seed=seed), used.training_batch(step, seed=seed + 1))


def test_epoch_covers_each_example_once_with_new_masks(made) -> None:
    make, _ = made
    batches, _, _ = make("kept", batch_size=1)
    passes = []
    for number in range(2):
        steps = range(number * len(batches), (number + 1) * len(batches))
        arrays = [batches.training_batch(step, seed=1) for step in steps]
        passes.append({tuple(batch["original_ids"][0]): tuple(batch["labels"][0]) for batch in arrays})
        assert [sum(tokens == found for found in passes[-1]) for tokens in passes[0]] == [1] * len(passes[0])
    assert passes[0].keys() == passes[1].keys() and len(passes[0]) > 0.9 * len(batches)
    assert [*passes[0]] != [*passes[1]]  # another order
    differ = [passes[0][tokens] != passes[1][tokens] for tokens in passes[0]]
    assert np.mean(differ) > 0.8


def test_an_example_is_laid_out_as_the_tokenizer_does_it(made) -> None:
    make, tokenizer = made
    batches, tokenised, train = make("kept", batch_size=8)
    given_back = batches._lay_out(np.arange(8), np.zeros(8, bool))[0]
    for row in range(8):
        places = [
            (train.first_starts[row], train.first_lengths[row]),
            (train.second_starts[row], train.second_lengths[row]),
        ]
        texts = [tokenizer.decode(tokenised.tokens[start : start + number]) for start, number in places]
        whole = tokenizer(*texts, padding="max_length", max_length=given_back["input_ids"].shape[1])
        for name in ("input_ids", "attention_mask", "token_type_ids"):
            assert given_back[name][row].tolist() == whole[name]


def test_one_segment_is_laid_out_as_the_tokenizer_does_it(made) -> None:
    make, tokenizer = made
    batches, tokenised, train = make("kept", packing="full")
    given_back = batches._lay_out(np.arange(3), np.zeros(3, bool))[0]
    for row in range(3):
        start, number = train.first_starts[row], train.first_lengths[row]
        text = tokenizer.decode(tokenised.tokens[start : start + number])
        whole = tokenizer(text, padding="max_length", max_length=given_back["input_ids"].shape[1])
        for name in ("input_ids", "attention_mask", "token_type_ids"):
            assert given_back[name][row].tolist() == whole[name]


def test_a_segment_that_is_cut_within_a_word_begins_one(made) -> None:
    make, tokenizer = made
    _, tokenised, train = make()
    within = replace(tokenised, begins_word=np.zeros(len(tokenised.tokens), bool))
    batches = PretrainingBatches(within, train, tokenizer, pretraining_config(), order="kept")
    arrays, text, begins_word = batches._lay_out(np.arange(8), np.zeros(8, bool))
    rows, places = np.nonzero(text & begins_word)
    assert rows.tolist() == [row for row in range(8) for _ in range(2)]
    before = arrays["input_ids"][rows, places - 1].tolist()
    assert before == [tokenizer.cls_token_id, tokenizer.sep_token_id] * 8


def test_label_1_is_swapped_and_half_are(made) -> None:
    make, tokenizer = made
    random, _, _ = make("random", batch_size=512)
    kept, _, _ = make("kept", batch_size=512)
    ours, plain = random.training_batch(0, seed=3), kept.training_batch(0, seed=3)
    assert abs(ours["sentence_order"].mean() - 0.5) < 3 * 0.5 / 512**0.5
    assert not plain["sentence_order"].any()
    for swapped, tokens, in_order in zip(
        ours["sentence_order"], ours["original_ids"], plain["original_ids"], strict=True
    ):
        assert (segments(tokens, tokenizer) == segments(in_order, tokenizer)[:: -1 if swapped else 1]) is True


def segments(tokens: np.ndarray, tokenizer) -> list[list[int]]:
    first, second, _ = np.split(tokens, np.flatnonzero(tokens == tokenizer.sep_token_id) + 1)
    return [first[1:-1].tolist(), second[:-1].tolist()]


def test_labels_are_the_tokens_that_were_there(made) -> None:
    make, _ = made
    batch = make()[0].training_batch(0, seed=1)
    predicted = batch["labels"] != IGNORED
    assert (batch["labels"][predicted] == batch["original_ids"][predicted]).all()
    assert (batch["input_ids"][~predicted] == batch["original_ids"][~predicted]).all()
    assert (batch["input_ids"][predicted] != batch["original_ids"][predicted]).any()


def test_held_out_batches_never_change(made) -> None:
    make, _ = made
    one, other = make()[0].held_out_batches(7), make()[0].held_out_batches(7)
    assert len(one) > 1 and all(equal(*pair) for pair in zip(one, other, strict=True))


def test_held_out_examples_are_of_the_whole_corpus(made, monkeypatch) -> None:
    make, _ = made
    batches, _, examples = make("kept")
    monkeypatch.setattr("trainables.pretraining.batches.HELD_OUT_EXAMPLES", 3)
    (found,) = batches.held_out_batches(3)
    rows = np.array([0, (len(examples) - 1) // 2, len(examples) - 1])
    assert np.array_equal(found["original_ids"], batches._lay_out(rows, np.zeros(3, bool))[0]["input_ids"])


@pytest.mark.parametrize("masking", ["bernoulli", "n_gram", "token"])
def test_held_out_masks_do_not_depend_on_batch_size(made, masking: str) -> None:
    make, _ = made
    changes = {"max_predictions": 0} if masking == "bernoulli" else {}
    batches = make(masking=masking, **changes)[0]
    (whole,) = batches.held_out_batches(len(batches))
    for size in (7, 16):
        parts = batches.held_out_batches(size)
        assert sum(len(part["labels"]) for part in parts) == len(batches)
        for start, part in zip(range(0, len(batches), size), parts, strict=True):
            width = part["attention_mask"].sum(axis=1).max()
            assert part["labels"].shape[1] == width
            rows = {name: array[start : start + size] for name, array in whole.items()}
            cut = {name: array[:, :width] if array.ndim == 2 else array for name, array in rows.items()}
            assert equal(part, cut) and not rows["attention_mask"][:, width:].any()


def test_a_tokenizer_without_a_mask_is_refused(tmp_path, snapshot) -> None:
    spec = pretraining_spec("mlm", write_corpus(tmp_path / "text", random_documents(2)))
    words = word_tokenizer(["a b"])
    special = {name: getattr(words, name) for name in ("cls_token", "sep_token", "pad_token", "unk_token")}
    PreTrainedTokenizerFast(tokenizer_object=words.backend_tokenizer, **special).save_pretrained(tmp_path / "bare")
    with pytest.raises(Unavailable) as raised:
        load_pretraining_tokenizer(msgspec.structs.replace(spec, tokenizer=str(tmp_path / "bare")))
    assert one_line(raised.value) == snapshot
