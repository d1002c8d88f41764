"""python -m pytest tests/trainables/data/test_examples.py"""

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from helpers.messages import one_line
from syrupy.assertion import SnapshotAssertion
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from trainables.data.examples import Examples, split_off_holdout, tokenise
from trainables.data.glue import load_split
from trainables.data.tasks import TASKS
from trainables.encoders.loading import fingerprint_tokenizer
from trainables.files.sources import cache_folder

RTE, SST2, STSB = TASKS["rte"], TASKS["sst2"], TASKS["stsb"]


def word_tokenizer(*extra_words: str) -> PreTrainedTokenizerFast:
    texts = [text for row in load_split(RTE, "train", "mini").texts for text in row]
    words = [
        "[PAD]",
        "[CLS]",
        "[SEP]",
        "[UNK]",
        *sorted({word for text in texts for word in text.split()}),
        *extra_words,
    ]
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")


def row_of(split: Examples, row: int) -> tuple[list[int], list[int]]:
    place = slice(split.starts[row], split.starts[row] + split.lengths[row])
    return split.tokens[place].tolist(), split.token_types[place].tolist()


def write_rte(folder: Path, *rows: str) -> str:
    (folder / "RTE").mkdir(parents=True, exist_ok=True)
    (folder / "RTE" / "train.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows, ""]))
    return str(folder)


def test_every_row_is_what_the_tokenizer_says(tmp_path: Path) -> None:
    tokenizer, texts = word_tokenizer(), load_split(RTE, "dev", "mini").texts
    split = tokenise(RTE, "dev", "mini", tokenizer, max_length=64, cache=tmp_path)
    for row, (first, second) in enumerate(texts):
        alone = tokenizer(first, second, return_token_type_ids=True)
        assert row_of(split, row) == (alone["input_ids"], alone["token_type_ids"])


def test_ids_and_labels_are_those_of_the_data(tmp_path: Path) -> None:
    split, data = (
        tokenise(STSB, "dev", "mini", word_tokenizer(), max_length=64, cache=tmp_path),
        load_split(STSB, "dev", "mini"),
    )
    assert split.ids.tolist() == data.ids
    assert data.labels is not None
    assert split.labels.dtype == np.float32 and (split.labels == data.labels).all()


def test_test_split_has_no_labels(tmp_path: Path) -> None:
    assert len(tokenise(SST2, "test", "mini", word_tokenizer(), max_length=64, cache=tmp_path).labels) == 0


def test_longest_text_is_cut_first(tmp_path: Path) -> None:
    data = write_rte(tmp_path / "data", "0\tthe the the the the the\tnot\tentailment")
    split = tokenise(RTE, "train", data, word_tokenizer(), max_length=7, cache=tmp_path / "cache")
    assert split.lengths.tolist() == [7]
    assert row_of(split, 0)[1] == [0, 0, 0, 0, 0, 1, 1]


def test_held_out_rows_and_rest_are_all_rows(tmp_path: Path) -> None:
    train = tokenise(RTE, "train", "mini", word_tokenizer(), max_length=64, cache=tmp_path)
    kept, held = split_off_holdout(train)
    assert len(held) == 100 and sorted([*kept.ids, *held.ids]) == train.ids.tolist()
    _, held_of_reversed = split_off_holdout(train.take(np.arange(len(train))[::-1]))
    assert set(held_of_reversed.ids) == set(held.ids)


def test_second_call_reads_the_cache_instead_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tokenise(RTE, "dev", "mini", word_tokenizer(), max_length=64, cache=tmp_path)
    monkeypatch.delattr("trainables.data.examples.load_split")
    second = tokenise(RTE, "dev", "mini", word_tokenizer(), max_length=64, cache=tmp_path)
    assert (first.tokens == second.tokens).all()
    assert isinstance(second.tokens, np.memmap)


def test_changed_file_is_tokenised_anew(tmp_path: Path) -> None:
    def tokens(sentence: str) -> list[int]:
        data = write_rte(tmp_path / "data", f"0\t{sentence}\tnot\tentailment")
        cache = tmp_path / "cache"
        return tokenise(RTE, "train", data, word_tokenizer(), max_length=64, cache=cache).tokens.tolist()

    assert tokens("the not") != tokens("not the")


@pytest.mark.parametrize("tokenizer, max_length", [(word_tokenizer("more"), 64), (word_tokenizer(), 8)])
def test_other_tokenizer_or_length_has_an_entry_of_its_own(
    tokenizer: PreTrainedTokenizerFast, max_length: int, tmp_path: Path
) -> None:
    tokenise(RTE, "dev", "mini", word_tokenizer(), max_length=64, cache=tmp_path)
    tokenise(RTE, "dev", "mini", tokenizer, max_length=max_length, cache=tmp_path)
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2


def test_fingerprint_of_a_tokenizer_outlives_its_calls() -> None:
    used, fresh = word_tokenizer(), word_tokenizer()
    used(["the", "not the"], truncation=True, max_length=3, padding=True)
    assert fingerprint_tokenizer(used) == fingerprint_tokenizer(fresh)


def test_half_written_entry_is_not_taken_for_one(tmp_path: Path) -> None:
    tokens = tokenise(RTE, "dev", "mini", word_tokenizer(), max_length=64, cache=tmp_path).tokens.tolist()
    (entry,) = (path for path in tmp_path.iterdir() if path.is_dir())
    unfinished = entry.rename(entry.with_name(f".{entry.name}.1"))
    (unfinished / "lengths.npy").unlink()
    assert tokenise(RTE, "dev", "mini", word_tokenizer(), max_length=64, cache=tmp_path).tokens.tolist() == tokens
    assert not unfinished.exists()


def _flip_a_byte(entry: Path) -> None:
    content = bytearray((entry / "tokens.npy").read_bytes())
    content[-1] ^= 1
    (entry / "tokens.npy").write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped byte": _flip_a_byte,
    "truncated": lambda entry: os.truncate(entry / "tokens.npy", 200),
    "emptied": lambda entry: os.truncate(entry / "lengths.npy", 0),
    "a part removed": lambda entry: (entry / "token_types.npy").unlink(),
    "without digests": lambda entry: (entry / "digests.json").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_entry_is_made_anew(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    def tokens() -> list[int]:
        return tokenise(RTE, "dev", "mini", word_tokenizer(), max_length=64, cache=tmp_path).tokens.tolist()

    right = tokens()
    (entry,) = (path for path in tmp_path.iterdir() if path.is_dir())
    damage(entry)
    assert tokens() == right
    assert tokens() == right


def test_cache_is_where_it_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "chosen"))
    assert cache_folder() == tmp_path / "chosen" / "glue-exit-study"
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "glue-exit-study"
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    last = tmp_path / f"glue-exit-study-{os.getuid()}"
    assert cache_folder() == cache_folder() == last
    assert last.stat().st_mode & 0o777 == 0o700
    assert capsys.readouterr().err.replace(str(tmp_path), "HERE").replace(last.name, "LAST") == snapshot
    last.rmdir()
    last.touch()
    with pytest.raises(PermissionError) as raised:
        cache_folder()
    assert one_line(raised.value, tmp_path).replace(last.name, "LAST") == snapshot


def _builder(cache: Path) -> tuple[bool, list[int]]:
    """Whether this process read the data itself, and what it got."""
    from trainables.data import examples

    read = []
    examples.load_split = lambda *arguments: read.append(arguments) or load_split(*arguments)  # type: ignore[func-returns-value]
    split = tokenise(RTE, "train", "mini", word_tokenizer(), max_length=64, cache=cache)
    return bool(read), split.tokens.tolist()


@pytest.mark.slow
def test_of_processes_that_want_it_at_once_one_makes_it(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        results = list(pool.map(_builder, [tmp_path] * 2))
    assert [read for read, _ in results].count(True) == 1
    assert all(tokens == results[0][1] for _, tokens in results)
