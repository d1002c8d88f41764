"""Which backbones are accepted, and how they load: pytest tests/trainables/encoders/test_backbones.py"""

import json
from pathlib import Path

import pytest
import torch
from helpers import configurations
from helpers.backbone_folders import saved
from helpers.configurations import SIZES
from helpers.families import write_albert_pieces
from helpers.messages import one_line, says
from huggingface_hub.errors import EntryNotFoundError
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoConfig, AutoModel

from trainables.encoders.backbone_names import MINI_BACKBONES, is_untrained, whole_name
from trainables.encoders.backbones import (
    FAMILIES,
    check_backbone,
    check_spelling,
    is_trained_on_mean,
)
from trainables.encoders.loading import load_encoder
from trainables.files.sources import Unusable


def config_of(**changes):
    return configurations.config_of("albert", **({"max_length": 32} | changes))


# Backbones that are refused before anything runs.


@pytest.mark.parametrize("backbone", MINI_BACKBONES)
def test_mini_backbones_pass_the_check(backbone):
    check_backbone(backbone)


def test_folder_passes_the_check(tmp_path):
    check_backbone(saved(tmp_path))


def test_backbone_without_tokenizer_is_refused(tmp_path, snapshot):
    with pytest.raises(ValueError) as raised:
        check_backbone(saved(tmp_path, tokenizer=None))
    assert one_line(raised.value, tmp_path) == snapshot


@pytest.mark.parametrize(
    "beside", ["tf_model.h5", "model.ckpt-10.index", "model.pt", "model.pth", "flax.index.json", "pretraining.json"]
)
def test_backbone_whose_weights_cannot_be_read_here_is_refused(beside, tmp_path, snapshot):
    folder = saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / beside).touch()
    with pytest.raises(ValueError) as raised:
        check_backbone(folder)
    assert one_line(raised.value, tmp_path) == snapshot


@pytest.mark.parametrize("whole", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize(
    "content", ['{"weight_map": {"a": "part-1", "b": "part-2", "c": "part-3"}}', '{"weight_map": {}}']
)
def test_interrupted_download_is_refused_as_a_backbone(whole, content, tmp_path, snapshot):
    folder = saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "part-1").touch()
    (tmp_path / f"{whole}.index.json").write_text(content)
    assert not is_untrained(folder)
    with pytest.raises(Unusable) as caught:
        check_backbone(folder)
    assert one_line(caught.value, tmp_path) == snapshot
    (tmp_path / f"{whole}.index.json").write_text('{"weight_map": {"a": "par')
    with pytest.raises(Unusable, match=f": {whole}.index.json: Unterminated string"):
        check_backbone(folder)


def test_weights_in_several_files_pass_the_check(tmp_path):
    folder = saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    AutoModel.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder, max_shard_size="10KB")
    assert not is_untrained(folder)
    check_backbone(folder)


def test_folder_of_a_configuration_alone_is_an_untrained_backbone(tmp_path):
    folder = saved(tmp_path)
    assert not is_untrained(folder)
    (tmp_path / "model.safetensors").unlink()
    check_backbone(folder)
    assert is_untrained(folder)
    torch.manual_seed(1)
    first, second = (load_encoder(folder, config_of(), vocab_size=7) for _ in range(2))
    assert first.num_layers == SIZES["num_hidden_layers"]
    assert not torch.equal(first_hidden(first), first_hidden(second))


def test_backbone_of_another_family_is_refused(tmp_path, snapshot):
    with pytest.raises(ValueError) as raised:
        check_backbone(saved(tmp_path, model_type="gpt2"))
    assert one_line(raised.value, tmp_path) == snapshot


@pytest.mark.parametrize("content", ["{}", "[]"])
def test_configuration_without_a_model_type_is_refused(content, tmp_path, snapshot):
    folder = saved(tmp_path)
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(Unusable) as raised:
        check_backbone(folder)
    assert one_line(raised.value, tmp_path) == snapshot


@pytest.mark.parametrize("heads", [0, 5])
@pytest.mark.parametrize("family", ["albert", "electra", "roberta"])
def test_heads_that_do_not_divide_the_hidden_size_are_refused(family, heads, tmp_path, snapshot):
    folder = saved(tmp_path, family)
    content = json.loads((tmp_path / "config.json").read_text()) | {"num_attention_heads": heads}
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(Unusable) as raised:
        check_backbone(folder)
    assert one_line(raised.value, tmp_path) == snapshot


def test_missing_folder_is_refused(snapshot):
    with pytest.raises(ValueError) as raised:
        check_backbone("./nowhere")
    assert one_line(raised.value) == snapshot


def test_backbone_needs_no_tokenizer_where_another_is_given(tmp_path):
    backbone = saved(tmp_path / "backbone", tokenizer=None)
    check_backbone(backbone, saved(tmp_path / "tokenizer"))
    check_backbone("mini-albert", saved(tmp_path / "tokenizer"))
    load_encoder(backbone, config_of(), vocab_size=7)


@pytest.mark.parametrize("tokenizer", ["empty", "./nowhere", "nobody/nothing-uncased", "mini-bert"])
def test_tokenizer_that_is_given_is_checked(tokenizer, tmp_path, snapshot):
    given = saved(tmp_path / "empty", tokenizer=None) if tokenizer == "empty" else tokenizer
    messages = set()
    for backbone in ("mini-albert", saved(tmp_path / "folder")):
        with pytest.raises(ValueError) as raised:
            check_backbone(backbone, given)
        messages.add(one_line(raised.value, tmp_path))
    assert messages == snapshot


@pytest.mark.parametrize("backbone", ["nobody/nothing-base", "mini-gpt"])
def test_unreachable_name_says_how_to_work_offline(backbone, snapshot):
    with pytest.raises(ValueError) as error:
        check_backbone(backbone)
    assert one_line(error.value) == snapshot


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("albert-bsae", "backbone"),
        ("mini-abert", "backbone"),
        ("sharebert-smal", "backbone"),
        ("bert-base-uncasd@main", "backbone"),
        ("bert-base-uncasd", "tokenizer"),
    ],
)
def test_near_miss_of_a_name_is_refused_with_the_nearest(name, kind, snapshot):
    with pytest.raises(ValueError) as raised:
        check_spelling(name, kind=kind)
    assert one_line(raised.value) == snapshot


@pytest.mark.parametrize(
    "name", ["albert-base", "mini-bert", "albert-base-v2", "roberta-base@main", "albert/albert-bsae", "gpt2", "/a/b"]
)
def test_names_that_may_be_meant_pass(name):
    check_spelling(name)


def test_near_miss_that_is_in_the_cache_is_what_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("trainables.encoders.backbones.find_cached_files", lambda name: {"config.json": tmp_path})
    check_spelling("albert-bsae")


def test_cached_hub_backbone_passes_the_check_offline(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--someone--tiny-bert"
    saved(repository / "snapshots" / "0123")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123")
    check_backbone("someone/tiny-bert")


# Loading.


def first_hidden(encoder):
    torch.manual_seed(0)
    ids = torch.tensor([[2, 5, 6, 3]])
    return encoder.layer(0, encoder.eval().embed(ids, torch.ones_like(ids))).hidden


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_safetensors_and_bin_load_the_same_weights(family, tmp_path):
    folder = saved(tmp_path, family)
    from_safetensors = first_hidden(load_encoder(folder, config_of(), vocab_size=7))
    weights = AutoModel.from_pretrained(folder).state_dict()
    (tmp_path / "model.safetensors").unlink()
    torch.save(weights, tmp_path / "pytorch_model.bin")
    from_bin = first_hidden(load_encoder(folder, config_of(), vocab_size=7))
    torch.testing.assert_close(from_bin, from_safetensors, rtol=1e-4, atol=1e-4)  # rounding differs by their alignment


def test_bin_with_code_in_it_is_not_executed(tmp_path):
    folder = saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({"embeddings.word_embeddings.weight": Executes(tmp_path / "executed")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(Exception, match="does not contain only weights"):
        load_encoder(folder, config_of(), vocab_size=7)
    assert not (tmp_path / "executed").exists()


class Executes:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize(("max_length", "vocab_size"), [(512, 7), (32, 99)])
def test_more_positions_or_tokens_than_the_backbone_has_are_refused(max_length, vocab_size, tmp_path, snapshot):
    with pytest.raises(ValueError) as raised:
        load_encoder(saved(tmp_path), config_of(max_length=max_length), vocab_size=vocab_size)
    assert one_line(raised.value, tmp_path) == snapshot


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("albert-base-v2", "albert/albert-base-v2"),
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
        ("roberta-base@main", "FacebookAI/roberta-base"),
        ("distilroberta-base", "distilbert/distilroberta-base"),
        ("roberta-base-openai-detector", "openai-community/roberta-base-openai-detector"),
        ("albert/albert-base-v2@" + "a" * 40, "albert/albert-base-v2"),
        ("someone/albert-base-v2", "someone/albert-base-v2"),
        ("mini-albert", "mini-albert"),
        ("albert-base", "albert-base"),
        ("./albert-base-v2", "./albert-base-v2"),
    ],
)
def test_full_hub_name_has_owner_without_revision(name, whole):
    assert whole_name(name) == whole


def fault_of_damaged(file, content, folder):
    backbone = saved(folder, tokenizer="vocab.txt" if file == "model.safetensors" else None)
    (folder / file).write_bytes(content)
    with pytest.raises(Unusable) as raised:
        check_backbone(backbone)
    return one_line(raised.value, folder)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("spiece.model", b""),
        ("spiece.model", b"garbage"),
        ("spiece.model", b"\n\x0e\n\x05<unk>\x15\x00"),
        ("vocab.txt", b"hello\nworld\n"),
    ],
)
def test_damaged_file_is_named_before_loading(file, content, tmp_path, snapshot):
    assert fault_of_damaged(file, content, tmp_path) == snapshot


@pytest.mark.parametrize(
    ("file", "content", "place"),
    [
        ("tokenizer.json", b'{"version": "1.0", ', "line 1 column 19"),
        ("tokenizer.json", b'{"version": "1.0"}', "line 1 column 18"),
        ("vocab.json", b'{"a": 0, ', "(char 9)"),
        ("vocab.txt", b"\xff\xfe", "byte 0xff in position 0: "),
        ("model.safetensors", b"garbage" * 9, ": header too large"),
    ],
)
def test_libraries_name_the_place_in_a_damaged_file(file, content, place, tmp_path):
    assert says(fault_of_damaged(file, content, tmp_path), f"backbone 'HERE' cannot be loaded: {file}: ", place)


@pytest.mark.parametrize(("file", "content"), [("pytorch_model.bin", b"garbage"), ("config.json", None)])
def test_weights_that_cannot_be_loaded_are_refused_in_one_line(file, content, tmp_path, snapshot):
    folder = saved(tmp_path)
    if content is None:
        content = json.dumps(json.loads((tmp_path / file).read_text()) | {"intermediate_size": 24}).encode()
    else:
        (tmp_path / "model.safetensors").unlink()
    (tmp_path / file).write_bytes(content)
    with pytest.raises(Unusable) as raised:
        load_encoder(folder, configurations.config_of("albert"), vocab_size=7)
    assert one_line(raised.value, tmp_path) == snapshot


@pytest.mark.parametrize("file", ["vocab.txt", "vocab.json", "tokenizer.json"])
def test_vocabulary_larger_than_the_embeddings_is_refused_before_anything_is_loaded(file, tmp_path, snapshot):
    backbone, tokenizer = saved(tmp_path / "backbone"), tmp_path / "tokenizer"
    tokenizer.mkdir()
    words = ["[UNK]", *(f"w{number}" for number in range(50))]
    vocabulary = {word: number for number, word in enumerate(words)}
    if file == "tokenizer.json":
        Tokenizer(WordLevel(vocabulary, unk_token="[UNK]")).save(str(tokenizer / file))
    else:
        (tokenizer / file).write_text(json.dumps(vocabulary) if file == "vocab.json" else "\n".join(words) + "\n")
    with pytest.raises(Unusable) as raised:
        check_backbone(backbone, str(tokenizer))
    assert one_line(raised.value, tmp_path) == snapshot


def test_sentencepiece_model_is_counted_and_refused_if_cut(tmp_path, snapshot):
    write_albert_pieces(tmp_path / "spiece.model")
    content = (tmp_path / "spiece.model").read_bytes()
    check_backbone("albert-base", str(tmp_path))
    with pytest.raises(Unusable, match=r" \d+ tokens; .* 50 embeddings"):
        check_backbone(saved(tmp_path / "backbone"), str(tmp_path))
    (tmp_path / "spiece.model").write_bytes(content[: len(content) // 3])
    with pytest.raises(Unusable) as raised:
        check_backbone("albert-base", str(tmp_path))
    assert one_line(raised.value, tmp_path) == snapshot


@pytest.mark.parametrize(("answer", "known"), [("mean", True), ("cls", False), (None, False)])
def test_pooling_of_a_hub_name_is_read_from_the_hub(answer, known, tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": answer == "mean"}))

    def download(repository, file, *, revision):
        assert (repository, file, revision) == ("lab/sentences", "1_Pooling/config.json", "abc")
        if answer is None:
            raise EntryNotFoundError("no such file")
        return str(tmp_path / "config.json")

    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *names, **named: None)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    monkeypatch.setattr("trainables.encoders.backbone_files.go_offline_if_unreachable", lambda: None)
    assert is_trained_on_mean("lab/sentences@abc") is known
