"""Encoders without pads equal encoders with them: pytest tests/trainables/encoders/test_token_states.py"""

import pytest
import torch
from helpers.walked_layers import LENGTHS, At, model_of, padded, recorded_halves, texts, walk
from torch.nn.functional import scaled_dot_product_attention

from trainables.encoders import layerwise
from trainables.encoders.token_states import Places, softmax_attention
from trainables.models import early_exit
from trainables.models.exit_rules import apply_exit

FAMILIES = ["albert", "bert", "electra", "roberta", "sharebert"]
NYSTROM = {"attention": "nystrom", "num_landmarks": 4, "conv_kernel_size": 3}
both = pytest.mark.parametrize("attention", [{}, NYSTROM], ids=["softmax", "nystrom"])


def families_with(attention):
    return [family for family in FAMILIES if not attention or family in ("albert", "bert", "electra")]


@pytest.fixture(params=["cpu", "gpu"])
def without_pads(request, monkeypatch):
    """As on the device, where attention gets the examples of each length, or all with pads."""
    monkeypatch.setattr(layerwise, "PADDING_FREE_WIDTH", 0)
    monkeypatch.setattr(Places, "of", Places._split_by_length if request.param == "cpu" else Places._keep_order)


def test_places_there_and_back():
    mask = texts()["attention_mask"][:, None, None, :].bool()
    places = Places.of(mask)
    states = torch.randn(5, 32, 4) * mask[:, 0, 0, :, None]
    assert places.packed(states).shape == (1, sum(LENGTHS), 4)
    assert torch.equal(places.padded(places.packed(states)), states)
    assert torch.equal(places.packed(states)[0, places.firsts], states[:, 0])


def test_cpu_attention_groups_equal_lengths_without_pads():
    lengths = [20, 3, 40, 20, 16]
    mask = texts(lengths, 40)["attention_mask"][:, None, None, :].bool()
    places = Places.of(mask)
    assert [(part.examples, part.tokens, part.mask) for part in places.parts] == [
        (1, 3, None),
        (1, 16, None),
        (2, 20, None),
        (1, 40, None),
    ]
    states = torch.randn(5, 40, 4) * mask[:, 0, 0, :, None]
    assert torch.equal(places.padded(places.packed(states)), states)
    assert torch.equal(places.packed(states)[0, places.firsts], states[:, 0])


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
def test_cpu_attention_computes_half_precision_in_float32(kind):
    half = torch.randn(3, 2, 4, 7, 8, generator=torch.Generator().manual_seed(0)).to(kind)
    query, key, value = half.float()
    exact = scaled_dot_product_attention(query, key, value).transpose(1, 2).to(kind)
    with torch.autocast("cpu", dtype=kind):
        mixed, _ = softmax_attention(torch.nn.Module(), *half, None)
    assert mixed.dtype == kind
    assert torch.equal(mixed, exact)


@pytest.mark.parametrize("width", [10**9, 0], ids=["pads", "no pads"])
def test_the_last_layer_is_asked_for_the_first_token_alone(width, monkeypatch):
    monkeypatch.setattr(layerwise, "PADDING_FREE_WIDTH", width)
    for family in FAMILIES:
        encoder = model_of(family).encoder
        seen = recorded_halves(encoder)
        firsts = list(encoder.first_tokens(**texts()))
        assert (seen["attend"][-1] == len(LENGTHS)) == (family != "sharebert"), family
        assert seen["feed_forward"][-1] == len(LENGTHS), family
        for first, states in zip(firsts, walk(encoder, **texts()), strict=True):
            torch.testing.assert_close(first, states.first(), rtol=0, atol=1e-5, msg=family)


@pytest.mark.slow
@both
def test_states_and_gradients_are_those_with_pads(attention, monkeypatch):
    for family in families_with(attention):
        model, batch = model_of(family, **attention), texts() | {"labels": torch.tensor([0, 1, 1, 0, 1])}
        found = []
        for width in (10**9, 0):
            monkeypatch.setattr(layerwise, "PADDING_FREE_WIDTH", width)
            *_, states = walk(model.encoder, **texts())
            assert (states.hidden.shape[:2] == (1, sum(LENGTHS))) == (width == 0)
            model.zero_grad()
            loss = model.loss(batch)["loss"]
            loss.backward()
            gradients = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
            real = batch["attention_mask"].bool()
            found.append((padded(states)[real], states.first(), loss, torch.cat(gradients)))
        for ours, theirs in zip(found[1], found[0], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, msg=f"{family}: {{}}".format)


@pytest.mark.slow
@pytest.mark.parametrize("width", [10**9, 0], ids=["pads", "no pads"])
@pytest.mark.parametrize("halved_from", [10**9, 1], ids=["whole", "halved"])
@pytest.mark.parametrize("method", ["palbert", "pabee", "electra-small"])
@pytest.mark.parametrize("family", FAMILIES)
def test_inference_is_the_rule_on_all_layers(family, method, halved_from, width, monkeypatch):
    """Examples leave at different layers, so that what is left is packed anew."""
    model = model_of(family, method)
    if method != "electra-small":
        model.exit_rule = At(3, 2, 6, 2, 5)
    expected = apply_exit(model.exit_rule, model.all_exits(texts()))
    monkeypatch.setattr(layerwise, "PADDING_FREE_WIDTH", width)
    monkeypatch.setattr(early_exit, "HALVED_FROM", halved_from)
    found = model.infer(texts())
    assert torch.equal(found.exit_layer, expected.exit_layer)
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_leaving_examples_use_first_token_half_layer(family, monkeypatch, without_pads):
    model = model_of(family)
    model.exit_rule = At(3, 1, 4, 1, 3)
    monkeypatch.setattr(early_exit, "HALVED_FROM", 1)
    seen = recorded_halves(model.encoder)
    model.infer(texts())
    stays = sum(LENGTHS) - LENGTHS[1] - LENGTHS[3]
    # The first tokens of who is there, then all tokens of who stays; these at once where nobody left a layer before.
    assert seen["feed_forward"] == [5, stays, 3, stays, stays, 1]


def test_batch_mates_do_not_matter(without_pads):
    model = model_of("albert")
    together = model.all_exits(texts()).logits
    for row, length in enumerate(LENGTHS):
        alone = {name: values[row : row + 1, :length] for name, values in texts().items()}
        torch.testing.assert_close(model.all_exits(alone).logits[:, 0], together[:, row], rtol=0, atol=1e-5)


def test_pads_stay_where_there_are_hardly_any(without_pads):
    encoder = model_of("bert").encoder
    assert encoder.embed(**texts([32, 32, 32, 32, 31])).hidden.shape[:2] == (5, 32)
    assert encoder.embed(**texts([32, 32, 32, 9, 31])).hidden.shape[:2] == (1, 136)
