"""Encoders taken apart by their structure: pytest tests/trainables/encoders/test_blocks.py"""

from __future__ import annotations

import json
import re

import pytest
import torch
from helpers.configurations import config_of
from helpers.families import FAMILIES, NUM_LAYERS, SIZES, TEXTS, configuration_of, model_of, write_backbone
from helpers.messages import one_line, says
from helpers.walked_layers import padded, walk
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification
from transformers.models.distilbert import modeling_distilbert

from trainables.encoders.backbones import (
    check_backbone,
    check_positions,
    count_layers,
    has_new_pooler,
)
from trainables.encoders.block_check import _require_equal, check_blocks
from trainables.encoders.blocks import Stem, find_blocks
from trainables.encoders.family_options import choose_attention, dropout_options
from trainables.encoders.layerwise import layerwise
from trainables.encoders.loading import load_encoder, load_tokenizer
from trainables.files.sources import Unusable
from trainables.models.classifiers import LastLayerModel

BY_STRUCTURE = [family for family in FAMILIES if family != "xlm-roberta"]
VARIANTS = [
    *((family, {}) for family in BY_STRUCTURE),
    ("deberta-v2", {"position_buckets": -1, "share_att_key": False, "norm_rel_ebd": "none"}),
    ("deberta-v2", {"relative_attention": False, "pos_att_type": None, "position_biased_input": True}),
    ("deberta-v2", {"type_vocab_size": 2, "embedding_size": 8, "pos_att_type": ["c2p"]}),
    ("modernbert", {"norm_bias": True, "attention_bias": True, "mlp_bias": True}),
    ("modernbert", {"local_attention": 6, "layer_types": ["sliding_attention"] * NUM_LAYERS}),
]


def padded_texts(side: str = "right") -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    real = torch.arange(12) < torch.tensor([[12], [9], [1]])
    real = real.flip(1) if side == "left" else real
    ids = torch.randint(5, 50, (3, 12), generator=generator).masked_fill(~real, 1)
    return {"input_ids": ids, "attention_mask": real.long()}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("family", "changes"), VARIANTS)
@torch.no_grad()
def test_every_layer_equals_the_hidden_states_of_transformers(family, changes, side):
    model, batch = model_of(family, **changes), padded_texts(side)
    real = batch["attention_mask"].bool()
    theirs = model(**batch, output_hidden_states=True)
    encoder = layerwise(model).eval()
    assert isinstance(encoder.embeddings, Stem)
    ours = [padded(states) for states in walk(encoder, **batch)]
    for mine, expected in zip(ours[:-1], theirs.hidden_states[1:-1], strict=True):
        torch.testing.assert_close(mine[real], expected[real], rtol=0, atol=1e-5)
    last = encoder.final_norm(ours[-1])
    torch.testing.assert_close(last[real], theirs.last_hidden_state[real], rtol=0, atol=1e-5)
    check_blocks(encoder, model)


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_logits_equal_the_sequence_classifier_of_transformers(family, mode):
    """In training with dropout everywhere, so every number must be drawn in the same order."""
    config = config_of("albert", max_length=32, hidden_dropout=0.3, classifier_dropout=0.3)
    torch.manual_seed(0)
    options = {"num_labels": 3, **dropout_options(config, family)}
    theirs = AutoModelForSequenceClassification.from_config(
        configuration_of(family, **options), attn_implementation=choose_attention(family)
    )
    model = LastLayerModel(layerwise(theirs), 3, config).train(mode == "training")
    model.classifier.load_state_dict(getattr(theirs.classifier, "out_proj", theirs.classifier).state_dict())
    batch = padded_texts()
    torch.manual_seed(5)
    expected = theirs.train(mode == "training")(**batch).logits
    torch.manual_seed(5)
    *_, states = walk(model.encoder, **batch)
    logits, _, _ = model.exit_heads(NUM_LAYERS - 1, states.first()[None], None)
    torch.testing.assert_close(logits[0], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["camembert", "ernie", "electra", "bert"])
def test_families_that_no_code_names_are_taken_apart_too(family, monkeypatch):
    monkeypatch.setattr("trainables.encoders.layerwise._ADAPTERS", {})
    torch.manual_seed(0)
    model = AutoModel.from_config(AutoConfig.for_model(family, **SIZES, embedding_size=16), attn_implementation="sdpa")
    check_blocks(layerwise(model), model)


@torch.no_grad()
def test_examples_that_leave_take_their_masks_and_positions_along():
    model, batch = model_of("modernbert"), padded_texts()
    encoder = layerwise(model).eval()
    stays = torch.tensor([1, 2])
    whole, fewer = encoder.embed(**batch), encoder.embed(**batch).of(stays)
    for index in range(NUM_LAYERS):
        whole, fewer = encoder.layer(index, whole), encoder.layer(index, fewer)
    real = batch["attention_mask"][stays].bool()
    torch.testing.assert_close(fewer.hidden[real], whole.hidden[stays][real], rtol=0, atol=1e-6)


def test_first_layers_are_those_of_the_whole_backbone(tmp_path):
    folder = write_backbone(tmp_path / "backbone", "deberta-v2")
    encoder = load_encoder(str(folder), config_of("albert", max_length=32, num_hidden_layers=2), vocab_size=40)
    assert encoder.num_layers == 2
    assert not [name for name in encoder.state_dict() if name.startswith("layers.2.")]


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_held_once_and_have_depths(family):
    encoder = layerwise(model_of(family))
    storages = [weight.data_ptr() for weight in encoder.state_dict().values()]
    assert len(storages) == len({*storages})
    of_model = {id(weight) for weight in model_of(family).parameters()}
    assert len([*encoder.parameters()]) - len([*encoder.pooler.parameters()]) == len(of_model)
    depths = encoder.parameter_depths()
    assert {*depths.values()} == {0, *range(1, NUM_LAYERS + 2)}
    assert {depth for name, depth in depths.items() if name.startswith("embeddings.")} == {0}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_published_backbone_is_loaded_with_its_weights_and_tokenizer(family, tmp_path):
    folder = str(write_backbone(tmp_path / "backbone", family))
    check_backbone(folder)
    tokenizer = load_tokenizer(folder, texts=list)
    batch = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))
    config = config_of("albert", max_length=32)
    encoder = load_encoder(folder, config, vocab_size=len(tokenizer)).eval()
    with torch.no_grad():
        expected = AutoModel.from_pretrained(folder).eval()(**batch).last_hidden_state
        *_, states = walk(encoder, **batch)
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(encoder.final_norm(padded(states))[real], expected[real], rtol=0, atol=1e-5)
    assert count_layers(folder) == NUM_LAYERS and has_new_pooler(folder)


@pytest.mark.parametrize(("family", "positions"), [("mpnet", 58), ("xlm-roberta", 58), ("distilbert", 60)])
def test_positions_that_no_token_uses_are_not_allowed(family, positions, tmp_path):
    folder = str(write_backbone(tmp_path / "backbone", family))
    check_positions(folder, positions, of="albert")
    with pytest.raises(ValueError, match=f"max_length of albert is 61; .* {positions} positions"):
        check_positions(folder, 61, of="albert")


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_is_the_configuration_s(family, tmp_path):
    folder = str(write_backbone(tmp_path / "backbone", family))
    encoder = load_encoder(folder, config_of("albert", max_length=32, hidden_dropout=0.25), vocab_size=40)
    rates = [module.p for module in encoder.modules() if isinstance(module, nn.Dropout)]
    rates += [part.attention_dropout for part in encoder.modules() if hasattr(part, "attention_dropout")]
    assert {*rates} == {0.25} and len(rates) > 3


# Models that cannot be taken apart.


def fault_of(folder) -> str:
    with pytest.raises(Unusable) as raised:
        load_encoder(str(folder), config_of("albert", max_length=32), vocab_size=40)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def change_before_second_block(forward):
    def changed(self, hidden_states, attention_mask=None, **others):
        for index, block in enumerate(self.layer):
            hidden_states = block(hidden_states if index != 1 else 2 * hidden_states, attention_mask)
        return modeling_distilbert.BaseModelOutput(last_hidden_state=hidden_states)

    return changed


def change_the_end(forward):
    def changed(self, *arguments, **others):
        output = forward(self, *arguments, **others)
        output.last_hidden_state = 2 * output.last_hidden_state
        return output

    return changed


def index_the_states(forward):
    def changed(self, hidden_states, attention_mask=None, **others):
        for block in self.layer:
            hidden_states = block(hidden_states, attention_mask) + 1
        return modeling_distilbert.BaseModelOutput(last_hidden_state=hidden_states)

    return changed


def leave_out_the_last_block(forward):
    def changed(self, hidden_states, attention_mask=None, **others):
        for block in self.layer[:-1]:
            hidden_states = block(hidden_states, attention_mask)
        return modeling_distilbert.BaseModelOutput(last_hidden_state=hidden_states)

    return changed


def without_numbers(message: str) -> str:
    return re.sub(r"(differs by|allowed:) \S+", r"\1 NUMBER", message)


@pytest.mark.parametrize("change", [change_before_second_block, change_the_end, leave_out_the_last_block])
def test_model_with_more_than_blocks_is_refused(change, monkeypatch, tmp_path, snapshot):
    folder = write_backbone(tmp_path / "backbone", "distilbert")
    transformer = modeling_distilbert.Transformer
    monkeypatch.setattr(transformer, "forward", change(transformer.forward))
    assert without_numbers(fault_of(folder)).replace(str(tmp_path), "HERE") == snapshot


def test_model_that_does_more_with_the_states_is_refused(monkeypatch, tmp_path):
    folder = write_backbone(tmp_path / "backbone", "distilbert")
    transformer = modeling_distilbert.Transformer
    monkeypatch.setattr(transformer, "forward", index_the_states(transformer.forward))
    assert says(fault_of(folder), f"backbone '{folder}' ", "blocks cannot be run alone: ", "tuple")


def test_the_layer_that_differs_is_named(snapshot):
    model = model_of("mpnet")
    encoder = layerwise(model)
    model.encoder.layer[2] = find_blocks(model_of("mpnet", initializer_range=0.4))[1][2]
    with pytest.raises(ValueError) as raised:
        check_blocks(encoder, model)
    assert without_numbers(one_line(raised.value)) == snapshot


def test_a_model_without_a_list_of_blocks_is_refused(snapshot):
    model = model_of("distilbert")
    model.config.n_layers = 2
    with pytest.raises(ValueError) as raised:
        layerwise(model)
    assert one_line(raised.value) == snapshot


# config.json.


def configured(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("distilbert", {"dim": 0}),
        ("distilbert", {"n_heads": 3}),
        ("distilbert", {"n_layers": 2}),
        ("deberta-v2", {"conv_kernel_size": 3}),
        ("deberta-v2", {"norm_rel_ebd": "batch"}),
        ("deberta-v2", {"pos_att_type": ["p2p"]}),
        ("deberta-v2", {"position_buckets": "4"}),
        ("deberta-v2", {"position_buckets": 8}),
        ("modernbert", {"norm_eps": 0}),
        ("modernbert", {"mlp_bias": True}),
        ("xlm-roberta", {"pad_token_id": -1}),
        ("mpnet", {"relative_attention_num_buckets": 0}),
    ],
    ids=str,
)
def test_a_configuration_that_does_not_fit_is_refused_before_torch(family, changes, tmp_path, snapshot):
    folder = configured(write_backbone(tmp_path / "backbone", family), **changes)
    with pytest.raises(Unusable) as raised:
        check_backbone(str(folder))
    assert one_line(raised.value, tmp_path) == snapshot


@pytest.mark.parametrize(
    ("size", "difference", "fits"), [(1, 9e-6, True), (1, 2e-5, False), (1e4, 0.05, True), (1e4, 0.2, False)]
)
def test_large_states_may_differ_by_their_rounding(size, difference, fits):
    theirs = torch.tensor([[[size, 0.0]]])
    ours, real = theirs + torch.tensor([difference, 0.0]), torch.tensor([[True]])
    if fits:
        _require_equal(ours, theirs, real, "layer 1")
    else:
        allowed = {1: "1e-05", 1e4: "0.1"}[size]
        with pytest.raises(ValueError, match=f"^layer 1 differs by .*; allowed: {allowed}$"):
            _require_equal(ours, theirs, real, "layer 1")
