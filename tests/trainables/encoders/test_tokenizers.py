"""Which tokenizers are accepted, and how they load: pytest tests/trainables/encoders/test_tokenizers.py"""

import json
import shutil

import pytest
from helpers.backbone_folders import saved
from helpers.families import bert_vocabulary, write_albert_pieces
from helpers.messages import one_line
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import NFC, BertNormalizer, Lowercase
from tokenizers.pre_tokenizers import BertPreTokenizer, WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import AlbertTokenizer, DebertaV2Tokenizer, RobertaTokenizer

from trainables.encoders.loading import load_tokenizer
from trainables.files.sources import Unusable

TEXTS = ["A man runs, fast!", "The dog isn't here.", "the man sleeps"]


def test_word_tokenizer_lowers_case_and_splits_punctuation():
    tokenizer = load_tokenizer("mini-bert", texts=lambda: TEXTS)
    assert tokenizer.tokenize("The MAN runs!") == ["the", "man", "runs", "!"]
    assert tokenizer.tokenize("a zebra") == ["a", "[UNK]"]


def test_word_tokenizer_marks_pairs():
    tokenizer = load_tokenizer("mini-bert", texts=lambda: TEXTS)
    encoded = tokenizer("the man", "dog")
    assert tokenizer.convert_ids_to_tokens(encoded["input_ids"]) == ["[CLS]", "the", "man", "[SEP]", "dog", "[SEP]"]
    assert encoded["token_type_ids"] == [0, 0, 0, 0, 1, 1]


def test_word_tokenizer_is_made_of_the_texts_alone():
    first, again = (load_tokenizer("mini-albert", texts=lambda: TEXTS).get_vocab() for _ in range(2))
    assert first == again
    assert [first[token] for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")] == [0, 1, 2, 3, 4]
    assert first["man"] == 5 and first["the"] == 6  # by frequency, then alphabet


def test_a_control_character_between_letters_is_no_space():
    tokenizer = load_tokenizer("mini-albert", texts=lambda: ["a\x1cb c\u3000d\te", "f\xa0g"])
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)[5:]
    assert words == ["ab", "c", "d", "e", "f", "g"]


def test_word_tokenizer_keeps_the_most_frequent_words():
    words = [f"w{number}" for number in range(9_000)]
    tokenizer = load_tokenizer("mini-bert", texts=lambda: [" ".join(words), "w8999 w8999"])
    assert len(tokenizer) == 8_005 and tokenizer.tokenize("w8999") == ["w8999"]


def test_tokenizer_files_beside_configuration_are_read(tmp_path):
    for family in ("albert", "bert"):
        saved(tmp_path / family, family, tokenizer=None)
    write_albert_pieces(tmp_path / "albert" / "spiece.model")
    assert "".join(load_tokenizer(str(tmp_path / "albert"), texts=list).tokenize("A dog")) == "▁a▁dog"
    shutil.copy(bert_vocabulary(), tmp_path / "bert")
    assert load_tokenizer(str(tmp_path / "bert"), texts=list).tokenize("A man sleeps") == ["a", "man", "sleeps"]


UNCASED, CASED = ["a", "man"], ["a", "[UNK]"]


@pytest.mark.parametrize(
    ("word", "configuration", "tokens"),
    [
        ("dog", None, UNCASED),
        ("Dog", None, CASED),
        ("dog", {"tokenizer_class": "BertTokenizer"}, UNCASED),
        ("Dog", {"tokenizer_class": "BertTokenizer"}, CASED),
        ("Dog", {"tokenizer_class": "DistilBertTokenizerFast"}, CASED),
        ("Dog", {"tokenizer_class": "BertTokenizer", "do_lower_case": True}, UNCASED),
        ("UNK", {"tokenizer_class": "BertTokenizer", "unk_token": "UNK"}, UNCASED),
    ],
)
def test_a_vocabulary_with_capitals_keeps_case_unless_told(word, configuration, tokens, tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "man", word]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    if configuration:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(configuration))
    tokenizer = load_tokenizer(str(tmp_path), texts=list)
    assert tokenizer.tokenize("a MAN") == tokens
    assert tokenizer.convert_ids_to_tokens(tokenizer("a").input_ids) == ["[CLS]", "a", "[SEP]"]


def test_vocabulary_files_of_bert_and_albert_load_alone(tmp_path):
    write_albert_pieces(tmp_path / "spiece.model")
    first, *pieces, last = load_tokenizer(str(tmp_path), texts=list)("a red dog").input_ids
    assert (first, last) == (2, 3) and pieces and min(pieces) > 4
    folder = tmp_path / "bert"
    folder.mkdir()
    shutil.copy(bert_vocabulary(), folder)
    assert load_tokenizer(str(folder), texts=list)("Hello world").input_ids == [101, 7592, 2088, 102]


@pytest.mark.parametrize("family", ["albert", "sharebert"])
def test_a_vocabulary_beside_a_configuration_is_what_its_name_says(family, tmp_path):
    tokenizer = load_tokenizer(saved(tmp_path, family), texts=list)
    assert tokenizer.tokenize("a man") == ["a", "man"]


def test_a_lone_vocabulary_in_the_cache_of_the_hub_loads(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    snapshot = tmp_path / "models--someone--vocabulary" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (snapshot / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "man"]))
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0123")
    assert load_tokenizer("someone/vocabulary", texts=list).tokenize("a MAN") == ["a", "man"]


@pytest.mark.parametrize(
    ("file", "content"), [("spiece.model", "no model"), ("tokenizer.json", "{"), ("vocab.json", "{}")]
)
def test_a_tokenizer_that_cannot_be_loaded_is_refused_in_one_line(file, content, tmp_path):
    (tmp_path / file).write_text(content)
    with pytest.raises(Unusable) as raised:
        load_tokenizer(str(tmp_path), texts=list)
    assert one_line(raised.value, tmp_path).startswith("tokenizer 'HERE' cannot be loaded: ")


def test_files_that_are_not_of_the_tokenizer_class_are_named(tmp_path, snapshot):
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "AlbertTokenizer"}')
    (tmp_path / "vocab.txt").write_text("[PAD]\nman")
    with pytest.raises(Unusable) as raised:
        load_tokenizer(str(tmp_path), texts=list)
    assert one_line(raised.value, tmp_path) == snapshot


def write_tokenizer_json(
    folder,
    *,
    single="[CLS] $A [SEP]",
    pair="[CLS] $A [SEP] $B [SEP]",
    lowercase=True,
    normalizer=None,
    splitter=None,
    **configuration,
):
    """BERT's words in a tokenizer.json, with `configuration` in tokenizer_config.json."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "man", "Man", "é", "e", "中国"]
    tokenizer = Tokenizer(WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizer or BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = splitter or BertPreTokenizer()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = TemplateProcessing(single=single, pair=pair, special_tokens=special)
    tokenizer.save(str(folder / "tokenizer.json"))
    if configuration:
        (folder / "tokenizer_config.json").write_text(json.dumps(configuration))


OWN_RULES = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "pad_token": "[PAD]"}


@pytest.mark.parametrize("pair", ["$A $B", "[CLS] $A $B [SEP]", "$A [SEP] $B [SEP]"])
def test_a_tokenizer_that_does_not_mark_pairs_is_refused(pair, tmp_path, snapshot):
    write_tokenizer_json(tmp_path, pair=pair, **OWN_RULES, cls_token="[CLS]", sep_token="[SEP]")
    with pytest.raises(Unusable) as raised:
        load_tokenizer(str(tmp_path), texts=list)
    assert one_line(raised.value, tmp_path) == snapshot


def test_a_text_without_the_cls_token_is_refused(tmp_path, snapshot):
    write_tokenizer_json(tmp_path, single="$A", **OWN_RULES, cls_token="[CLS]", sep_token="[SEP]")
    with pytest.raises(Unusable) as raised:
        load_tokenizer(str(tmp_path), texts=list)
    assert one_line(raised.value, tmp_path) == snapshot


def test_a_tokenizer_without_a_pad_token_is_refused(tmp_path, snapshot):
    write_tokenizer_json(tmp_path, **OWN_RULES | {"pad_token": None}, cls_token="[CLS]", sep_token="[SEP]")
    with pytest.raises(Unusable) as raised:
        load_tokenizer(str(tmp_path), texts=list)
    assert one_line(raised.value, tmp_path) == snapshot


def test_without_a_cls_token_a_pair_needs_only_a_separator(tmp_path):
    write_tokenizer_json(tmp_path, pair="$A [SEP] $B", **OWN_RULES, sep_token="[SEP]")
    assert load_tokenizer(str(tmp_path), texts=list)("man", "a").input_ids == [6, 3, 5]
    write_tokenizer_json(tmp_path, pair="$A $B", **OWN_RULES, sep_token="[SEP]")
    with pytest.raises(Unusable, match=r"allowed: a separator between the texts"):
        load_tokenizer(str(tmp_path), texts=list)


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra"])
@pytest.mark.parametrize(
    ("configuration", "tokens"),
    [
        ({}, ["[UNK]", "Man"]),
        ({"tokenizer_class": "BertTokenizer"}, ["[UNK]", "Man"]),
        ({"do_lower_case": True}, ["a", "man"]),
    ],
)
def test_tokenizer_json_says_whether_case_is_lowered(family, configuration, tokens, tmp_path):
    saved(tmp_path, family, tokenizer=None)
    write_tokenizer_json(tmp_path, lowercase=False, **configuration)
    assert load_tokenizer(str(tmp_path), texts=list).tokenize("A Man") == tokens
    write_tokenizer_json(tmp_path, lowercase=True)
    assert load_tokenizer(str(tmp_path), texts=list).tokenize("A Man") == ["a", "man"]


def test_tokenizer_json_says_whether_accents_and_chinese_stay(tmp_path):
    normalizer = BertNormalizer(strip_accents=False, handle_chinese_chars=False)
    write_tokenizer_json(tmp_path, normalizer=normalizer, tokenizer_class="BertTokenizer")
    assert load_tokenizer(str(tmp_path), texts=list).tokenize("É 中国") == ["é", "中国"]
    write_tokenizer_json(tmp_path, normalizer=normalizer, tokenizer_class="BertTokenizer", strip_accents=True)
    assert load_tokenizer(str(tmp_path), texts=list).tokenize("É") == ["e"]


@pytest.mark.parametrize(
    ("rules", "tokens"),
    [({"normalizer": NFC()}, ["[UNK]", "man", "[UNK]"]), ({"splitter": WhitespaceSplit()}, ["a", "[UNK]"])],
)
def test_rules_that_bert_s_class_would_replace_remain(rules, tokens, tmp_path):
    write_tokenizer_json(tmp_path, **rules, tokenizer_class="BertTokenizer")
    tokenizer = load_tokenizer(str(tmp_path), texts=list)
    assert tokenizer.tokenize("A man,") == tokens
    assert (tokenizer.pad_token, tokenizer.cls_token) == ("[PAD]", "[CLS]")


ALBERT = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁A"]


DEBERTA = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁A"]


ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a"]


@pytest.mark.parametrize(
    ("made", "part", "rule"),
    [
        (RobertaTokenizer({name: number for number, name in enumerate(ROBERTA)}, []), "normalizer", Lowercase()),
        (AlbertTokenizer([(name, 0.0) for name in ALBERT]), "normalizer", NFC()),
        (DebertaV2Tokenizer([(name, 0.0) for name in DEBERTA]), "pre_tokenizer", WhitespaceSplit()),
    ],
    ids=["roberta", "albert", "deberta"],
)
def test_rules_of_tokenizer_json_remain_in_every_class(made, part, rule, tmp_path):
    made.save_pretrained(tmp_path / "before")
    assert type(load_tokenizer(str(tmp_path / "before"), texts=list)) is type(made)
    setattr(made.backend_tokenizer, part, rule)
    made.save_pretrained(tmp_path / "after")
    tokenizer = load_tokenizer(str(tmp_path / "after"), texts=list)
    assert tokenizer.tokenize("A a") == made.tokenize("A a")
    assert tokenizer("a", "A").input_ids == made("a", "A").input_ids
    tokenizer.save_pretrained(tmp_path / "again")
    assert load_tokenizer(str(tmp_path / "again"), texts=list).tokenize("A a") == made.tokenize("A a")
