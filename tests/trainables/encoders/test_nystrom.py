"""Nystrom attention, alone and in models: pytest tests/trainables/encoders/test_nystrom.py"""

import math

import pytest
import torch
from helpers import configurations
from helpers.messages import one_line
from helpers.plain_pretraining import plain_nystrom
from helpers.walked_layers import padded, walk
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from study import launch
from trainables.encoders.layerwise import layerwise
from trainables.encoders.loading import load_encoder
from trainables.encoders.nystrom import load_convolutions, nystrom_attention, pseudo_inverse, with_attention

HEADS, SIZE = 2, 4
KERNEL = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.3, -0.7]])[:, None, :, None]  # of each head
NYSTROM = {"attention": "nystrom", "num_landmarks": 4, "conv_kernel_size": 3}


def states_of(seed, batch, tokens, dtype=torch.float64):
    """Queries (scaled), keys and values."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(3, batch, HEADS, tokens, SIZE, generator=generator, dtype=dtype)
    return draw[0] / SIZE**0.5, draw[1], draw[2]


def real_of(lengths, tokens):
    return torch.arange(tokens) < torch.tensor(lengths)[:, None, None]


def attended(query, key, value, real, segment_length):
    return nystrom_attention(query, key, value, real, segment_length=segment_length, convolution=KERNEL.to(query.dtype))


seeds = st.integers(0, 2**31)
segments = st.integers(1, 5)


@st.composite
def padded_lengths(draw):
    """Tokens of each example, and to which all are padded."""
    lengths = draw(st.lists(st.integers(1, 20), min_size=1, max_size=4))
    return lengths, max(lengths) + draw(st.integers(0, 7))


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(seeds, segments, padded_lengths())
def test_every_example_is_what_the_formula_says_of_it_alone(seed, segment_length, sizes):
    """So neither batch mates nor pads nor empty landmarks matter, and the last landmark is a mean of what there is."""
    lengths, tokens = sizes
    states = states_of(seed, len(lengths), tokens)
    ours = attended(*states, real_of(lengths, tokens), segment_length)
    for row, length in enumerate(lengths):
        for head in range(HEADS):
            alone = [part[row, head, :length] for part in states]
            expected = plain_nystrom(*alone, segment_length, KERNEL[head, 0, :, 0].double())
            assert torch.allclose(ours[row, head, :length], expected, atol=1e-8, rtol=1e-8)


@settings(deadline=None, max_examples=20)
@given(seeds, segments, padded_lengths(), st.sampled_from([1e4, math.inf, math.nan]))
def test_garbage_in_pads_changes_nothing(seed, segment_length, sizes, garbage):
    lengths, tokens = sizes
    real = real_of(lengths, tokens)
    clean = [part.requires_grad_() for part in states_of(seed, len(lengths), tokens)]
    dirty = [part.detach().masked_fill(~real[..., None], garbage).requires_grad_() for part in clean]
    outputs = [attended(*states, real, segment_length)[real.expand(-1, HEADS, -1)] for states in (clean, dirty)]
    assert torch.equal(*outputs)
    for output in outputs:
        output.square().sum().backward()
    for ours, theirs in zip(clean, dirty, strict=True):
        assert torch.equal(ours.grad, theirs.grad)


@settings(deadline=None, max_examples=20)
@given(seeds, st.integers(1, 6))
def test_two_empty_landmarks_equal_fewer_landmarks(seed, segment_length):
    states = states_of(seed, 3, 8 * segment_length)
    six = 6 * segment_length
    eight = attended(*states, real_of([six] * 3, 8 * segment_length), segment_length)
    cut = attended(*(part[..., :six, :] for part in states), real_of([six] * 3, six), segment_length)
    assert torch.allclose(eight[..., :six, :], cut, atol=1e-12)


@pytest.mark.parametrize(("iterations", "least", "most"), [(6, 1e-6, 0.1), (20, 0, 1e-10)])
def test_as_many_landmarks_as_tokens_become_softmax_attention_by_iterating(iterations, least, most):
    query, key, value = states_of(0, 2, 16)
    real = real_of([16, 16], 16)
    ours = nystrom_attention(query, key, value, real, segment_length=1, iterations=iterations)
    exact = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=1.0)
    assert least <= (ours - exact).abs().max() < most


@pytest.mark.parametrize("seed", range(5))
def test_values_of_one_stay_one(seed):
    """As near as six iterations come: with 32 landmarks of 16 tokens, padded or not."""
    query, key, value = torch.randn(3, 2, HEADS, 512, 64, generator=torch.Generator().manual_seed(seed))
    real = real_of([512, 389], 512)
    ones = nystrom_attention(query / 8, key, torch.ones_like(value), real, segment_length=16)
    assert (ones[real.expand(-1, HEADS, -1)] - 1).abs().max() < 0.005


def test_every_matrix_is_inverted_on_its_own():
    matrices = torch.randn(5, 6, 6, generator=torch.Generator().manual_seed(0))
    matrices = matrices.mul(torch.tensor([0.1, 1, 2, 4, 8])[:, None, None]).softmax(-1)
    alone = torch.stack([pseudo_inverse(matrix) for matrix in matrices])
    assert torch.allclose(pseudo_inverse(matrices), alone, atol=1e-5)


def test_bfloat16_inverts_in_float32():
    matrices = torch.randn(4, 16, 16, generator=torch.Generator().manual_seed(0)).mul(2).softmax(-1).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inverses = pseudo_inverse(matrices)
    assert torch.equal(inverses, pseudo_inverse(matrices.float()).bfloat16())


def test_an_example_of_pads_alone_has_finite_gradients():
    states = [part.requires_grad_() for part in states_of(0, 2, 6)]
    attended(*states, real_of([0, 6], 6), 2).sum().backward()
    assert all(part.grad.isfinite().all() for part in states)


SIZES = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
SIZES |= {"embedding_size": 16, "max_position_embeddings": 40, "pad_token_id": 0, "initializer_range": 0.3}


def config_of(**changes):
    return configurations.config_of("albert", **({"max_length": 16} | NYSTROM | changes))


def model_of(family, kind=AutoModel):
    torch.manual_seed(0)
    sizes = SIZES if family in ("albert", "electra") else {**SIZES, "embedding_size": SIZES["hidden_size"]}
    return kind.from_config(AutoConfig.for_model(family, **sizes), attn_implementation="sdpa").eval()


def with_random_convolutions(model):
    with_attention(model, config_of())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("convolution"):
                parameter.normal_()
    return model


def batch_of(lengths, tokens):
    input_ids = torch.randint(5, 50, (len(lengths), tokens), generator=torch.Generator().manual_seed(1))
    return {"input_ids": input_ids, "attention_mask": real_of(lengths, tokens)[:, 0].long()}


families = pytest.mark.parametrize("family", ["albert", "bert", "electra"])


@families
def test_all_weights_stay_and_the_convolution_adds_nothing_yet(family):
    before = model_of(family).state_dict()
    model = model_of(family)
    with_attention(model, config_of())
    after = model.state_dict()
    added = after.keys() - before.keys()
    assert len(added) == (1 if family == "albert" else 3) and not any(after[name].any() for name in added)
    assert all(torch.equal(after[name], value) for name, value in before.items())


@families
def test_every_convolution_of_a_model_is_trained(family):
    model = model_of(family)
    with_attention(model, config_of())
    model(**batch_of([13, 9, 4], 13)).last_hidden_state.square()[..., 0].sum().backward()
    gradients = [value.grad for name, value in model.named_parameters() if name.endswith("convolution")]
    assert gradients and all(gradient is not None and gradient.any() for gradient in gradients)


@families
@torch.no_grad()
def test_a_model_asks_nystrom_attention_for_its_segments(family):
    """Against softmax in the same model: equal where each token is a landmark, another thing where four share one."""
    softmax, model = model_of(family).double(), model_of(family).double()
    batch = batch_of([12, 12], 12)
    exact = softmax(**batch).last_hidden_state
    with_attention(model, config_of(max_length=12, num_landmarks=12, conv_kernel_size=1))
    close = (model(**batch).last_hidden_state - exact).abs().max()
    model.config.num_landmarks = 3
    far = (model(**batch).last_hidden_state - exact).abs().max()
    assert close < 0.3 < far


@families
@torch.no_grad()
def test_the_walk_over_layers_equals_transformers(family):
    model = with_random_convolutions(model_of(family).double())
    batch = batch_of([13, 9, 4], 13)
    expected = model(**batch).last_hidden_state
    encoder = layerwise(model)
    *_, states = walk(encoder, **batch)
    assert torch.allclose(padded(states), expected, atol=1e-10)


@families
@torch.no_grad()
def test_prediction_depends_on_its_text_only(family):
    """In double precision: the inverses make much of a rounding, and that differs with the shape."""
    model = with_random_convolutions(model_of(family).double())
    batch = batch_of([13, 9, 4], 13)
    together = model(**batch).last_hidden_state
    for row, length in enumerate([13, 9, 4]):
        alone = model(input_ids=batch["input_ids"][row : row + 1, :length]).last_hidden_state[0]
        assert torch.allclose(together[row, :length], alone, atol=1e-10)


@families
def test_convolutions_come_back_from_a_folder(family, tmp_path):
    """That of a model for pretraining, whose names have a prefix."""
    saved = with_random_convolutions(model_of(family, AutoModelForMaskedLM))
    saved.save_pretrained(tmp_path)
    encoder = load_encoder(str(tmp_path), config_of(), vocab_size=50).eval().double()
    batch = batch_of([13, 9, 4], 13)
    with torch.no_grad():
        expected = saved.base_model.double()(**batch).last_hidden_state
        *_, states = walk(encoder, **batch)
    assert torch.allclose(padded(states), expected, atol=1e-10)


def test_a_softmax_backbone_can_be_given_nystrom_attention(tmp_path):
    model_of("bert").save_pretrained(tmp_path)
    encoder = load_encoder(str(tmp_path), config_of(conv_kernel_size=5), vocab_size=50)
    shapes = {tuple(value.shape) for name, value in encoder.named_parameters() if "convolution" in name}
    assert shapes == {(4, 1, 5, 1)} and encoder.configuration._attn_implementation == "nystrom"


@pytest.mark.parametrize(
    "changes",
    [{"conv_kernel_size": 5}, {"attention": "softmax", "num_landmarks": None, "conv_kernel_size": None}],
    ids=str,
)
def test_a_backbone_pretrained_with_nystrom_is_not_used_without(changes, tmp_path, snapshot):
    with_random_convolutions(model_of("albert")).save_pretrained(tmp_path)
    with pytest.raises(ValueError) as raised:
        load_encoder(str(tmp_path), config_of(**changes), vocab_size=50)
    assert one_line(raised.value, tmp_path) == snapshot


def test_convolutions_that_are_missing_are_named(tmp_path, snapshot):
    model_of("albert").save_pretrained(tmp_path)
    model = with_random_convolutions(model_of("albert"))
    with pytest.raises(ValueError) as raised:
        load_convolutions(model, str(tmp_path), "main")
    assert one_line(raised.value, tmp_path) == snapshot


@pytest.mark.parametrize(
    "changes",
    [
        {"attention": "linear"},
        {"num_landmarks": None},
        {"attention": "softmax"},
        {"num_landmarks": 17},
        {"conv_kernel_size": 4},
    ],
    ids=str,
)
def test_settings_that_do_not_fit_are_refused(changes, snapshot):
    with pytest.raises(ValueError) as raised:
        config_of(**changes)
    assert one_line(raised.value) == snapshot


def test_a_family_without_it_is_refused_before_anything_is_made(tmp_path, capsys, snapshot):
    arguments = ["--method", "albert", "--task", "rte", "--backbone", "mini-roberta", "--set", "attention=nystrom"]
    assert launch.main([*arguments, "--out", str(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err == snapshot
    assert not (tmp_path / "runs").exists()
