"""Backbones by name at their published sizes, untrained: pytest tests/trainables/encoders/test_published_sizes.py"""

import shutil

import pytest
import torch
import transformers
from helpers.configurations import config_of
from helpers.families import bert_vocabulary
from helpers.messages import one_line
from transformers import AutoConfig

from trainables.encoders.backbone_names import PUBLISHED_SIZES, is_folder, is_hub_name
from trainables.encoders.backbones import check_backbone, check_depth, find_family
from trainables.encoders.loading import load_encoder
from trainables.encoders.sharebert import ShareBertForMaskedLM, ShareBertModel

# google-research/albert, google-research/electra, shoarora/lmtuners and jchenghu/sharebert, built and counted.
# Discriminators of lmtuners are models for token classification, with two classes for each token.
COUNTS = [
    ("albert-base", transformers.AlbertModel, 11_683_584),
    ("albert-base", transformers.AlbertForPreTraining, 11_813_810),
    ("albert-large", transformers.AlbertModel, 17_683_968),
    ("albert-xlarge", transformers.AlbertModel, 58_724_864),
    ("albert-xxlarge", transformers.AlbertModel, 222_595_584),
    ("electra-small", transformers.ElectraForPreTraining, 13_549_057),
    ("alectra-small", transformers.AlbertForTokenClassification, 4_747_010),
    ("bert-small", transformers.BertForTokenClassification, 17_325_058),
    ("sharebert-small", ShareBertModel, 4_982_272),
    ("sharebert-base", ShareBertModel, 13_844_992),
    ("sharebert-large", ShareBertModel, 27_003_904),
    ("sharebert-small", ShareBertForMaskedLM, 71_691_776),  # 71.7 million while it is pretrained
]


def model_on_meta(name, kind, **more):
    with torch.device("meta"):
        return kind(AutoConfig.for_model(**(dict(PUBLISHED_SIZES[name]) | more)))


@pytest.mark.parametrize(("name", "kind", "count"), COUNTS)
def test_number_of_parameters_is_the_published_one(name, kind, count):
    assert model_on_meta(name, kind).num_parameters() == count


@pytest.mark.parametrize(
    ("name", "count"), [("sharebert-small", 4_983_040), ("sharebert-base", 13_847_296), ("sharebert-large", 27_008_512)]
)
def test_sharebert_with_the_rows_it_was_trained_with(name, count):
    assert model_on_meta(name, ShareBertModel, vocab_size=30_528).num_parameters() == count


def test_every_name_has_a_count():
    assert {name for name, _, _ in COUNTS} == set(PUBLISHED_SIZES)


@pytest.mark.parametrize("name", PUBLISHED_SIZES)
def test_encoder_has_the_published_depth_and_width(name):
    config = config_of("albert", max_length=128)
    with torch.device("meta"):
        encoder = load_encoder(name, config, vocab_size=30_000)
    depth, width = {
        "albert-base": (12, 768),
        "albert-large": (24, 1024),
        "albert-xlarge": (24, 2048),
        "albert-xxlarge": (12, 4096),
        "sharebert-small": (12, 2048),
        "sharebert-base": (12, 2048),
        "sharebert-large": (6, 2048),
    }.get(name, (12, 256))
    assert (encoder.num_layers, encoder.hidden_size) == (depth, width)


def test_dropout_and_depth_are_the_configuration_s():
    config = config_of("albert", hidden_dropout=0.25, num_hidden_layers=3)
    with torch.device("meta"):
        encoder = load_encoder("bert-small", config, vocab_size=9)
    rates = {module.p for module in encoder.modules() if isinstance(module, torch.nn.Dropout)}
    assert rates == {0.25} and encoder.num_layers == 3


def test_weights_are_a_function_of_the_seed():
    def weights(seed):
        torch.manual_seed(seed)
        encoder = load_encoder("alectra-small", config_of("albert", max_length=128), vocab_size=9)
        return torch.cat([parameter.flatten() for parameter in encoder.parameters()])

    first = weights(1)
    assert torch.equal(first, weights(1))
    assert not torch.equal(first, weights(2))


@pytest.mark.parametrize(
    ("name", "max_length", "vocab_size"), [("alectra-small", 512, 9), ("albert-base", 128, 30_522)]
)
def test_what_a_published_size_cannot_hold_is_refused(name, max_length, vocab_size, snapshot):
    with torch.device("meta"), pytest.raises(ValueError) as raised:
        load_encoder(name, config_of("albert", max_length=max_length), vocab_size=vocab_size)
    assert one_line(raised.value) == snapshot


# Before anything runs.


def test_a_tokenizer_must_be_named(snapshot):
    messages = set()
    for name in PUBLISHED_SIZES:
        with pytest.raises(ValueError) as raised:
            check_backbone(name)
        messages.add(one_line(raised.value).replace(f"'{name}'", "NAME"))
    assert messages == snapshot


def test_a_tokenizer_s_folder_is_enough(tmp_path):
    shutil.copy(bert_vocabulary(), tmp_path)
    check_backbone("sharebert-small", str(tmp_path))


def test_depth_is_known_without_the_model(snapshot):
    check_depth("albert-large", 24, of="albert")
    with pytest.raises(ValueError) as raised:
        check_depth("sharebert-large", 7, of="albert")
    assert one_line(raised.value) == snapshot


def test_backbone_name_is_not_a_folder_or_hub_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "electra-small").mkdir()
    assert not is_folder("electra-small") and not is_hub_name("electra-small")
    assert find_family("electra-small") == "electra" and find_family("alectra-small") == "albert"
