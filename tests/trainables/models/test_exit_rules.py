"""Exit rules against a plain loop over single examples. Run: pytest tests/trainables/models/test_exit_rules.py"""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.models.exit_rules import (
    SWEPT_QUANTILES,
    Expectation,
    LastLayer,
    LayerOutputs,
    LearnedExit,
    Patience,
    Sampled,
    Threshold,
    apply_exit,
    every_patience,
    every_threshold,
    read_setting,
)

# A shared machine may stall for longer than hypothesis' deadline.
settings.register_profile("exits", deadline=None, max_examples=40)
settings.load_profile("exits")

# Extremes and numbers whose sums fall on a quantile exactly (0.5, 0.25 + ...), beside any others.
LAMBDAS = st.one_of(st.sampled_from([0.0, 1.0, 0.5, 0.25, 0.75]), st.floats(0, 1, width=32))
# Few different values, so that classes tie and layers agree.
LOGITS = st.sampled_from([-1.0, 0.0, 0.25, 1.0])
QUANTILES = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.floats(0, 1))


ANY_LABELS = st.integers(1, 3)


@st.composite
def layer_outputs(draw, num_labels=ANY_LABELS):
    layers, examples, labels = draw(st.integers(1, 7)), draw(st.integers(1, 5)), draw(num_labels)
    flat = st.lists(LOGITS, min_size=layers * examples * labels, max_size=layers * examples * labels)
    lambdas = st.lists(LAMBDAS, min_size=layers * examples, max_size=layers * examples)
    return LayerOutputs(
        torch.tensor(draw(flat)).reshape(layers, examples, labels),
        torch.tensor(draw(lambdas)).reshape(layers, examples),
    )


def threshold_layer(lambdas, q):
    cdf, remaining = 0.0, 1.0
    for layer, value in enumerate(lambdas, start=1):
        cdf += value * remaining
        remaining *= 1 - value
        if (cdf > q and q < 1) or q == 0:
            return layer
    return len(lambdas)


def patience_layer(logits, patience, regression_threshold):
    counter, before = 0, None
    for layer, row in enumerate(logits, start=1):
        if before is None:
            agrees = False
        elif len(row) == 1:
            agrees = abs(before[0] - row[0]) < regression_threshold
        else:
            agrees = row.index(max(row)) == before.index(max(before))
        counter = counter + 1 if agrees else 0
        if counter == patience:
            return layer
        before = row
    return len(logits)


def assert_layers(result, outputs, expected):
    assert result.exit_layer.tolist() == expected
    for example, layer in enumerate(expected):
        assert result.logits[example].tolist() == outputs.logits[layer - 1, example].tolist()


@given(layer_outputs(), QUANTILES)
def test_threshold_equals_a_loop_over_examples(outputs, q):
    expected = [threshold_layer(column, q) for column in outputs.lambdas.T.tolist()]
    assert_layers(apply_exit(Threshold(q), outputs), outputs, expected)


@given(layer_outputs(), st.integers(1, 7), st.sampled_from([0.2, 0.25, 0.5, 10.0]))
def test_patience_equals_a_loop_over_examples(outputs, patience, regression_threshold):
    examples = outputs.logits.transpose(0, 1).tolist()
    expected = [patience_layer(logits, patience, regression_threshold) for logits in examples]
    assert_layers(apply_exit(Patience(patience, regression_threshold), outputs), outputs, expected)


@given(layer_outputs(), st.integers(0, 2**31))
def test_sampled_equals_a_loop_over_examples(outputs, seed):
    uniform = torch.rand(outputs.lambdas.T.shape, generator=torch.Generator().manual_seed(seed))
    expected = []
    for lambdas, draws in zip(outputs.lambdas.T.tolist(), uniform.tolist(), strict=True):
        leaving = [
            layer for layer, (value, draw) in enumerate(zip(lambdas, draws, strict=True), start=1) if draw < value
        ]
        expected.append(([*leaving, len(lambdas)])[0])
    result = apply_exit(Sampled(draws=1), outputs, torch.Generator().manual_seed(seed))
    assert_layers(result, outputs, expected)


@pytest.mark.parametrize("legacy", [False, True])
@given(outputs=layer_outputs())
def test_expectation_equals_a_loop_over_examples(legacy, outputs):
    result = apply_exit(Expectation(legacy), outputs)
    for example, lambdas in enumerate(outputs.lambdas.T.tolist()):
        total, remaining = 0.0, 1.0
        for layer, value in enumerate(lambdas):
            logits = outputs.logits[layer, example].tolist()
            weight = value * remaining
            if layer == len(lambdas) - 1:
                weight = 1 - weight if legacy else remaining
            remaining *= 1 - value
            if len(logits) == 1:
                total = total + weight * logits[0]
            else:
                scale = sum(math.exp(logit) for logit in logits)
                total = total + weight * torch.tensor([math.exp(logit) / scale for logit in logits])
        expected = torch.as_tensor(total).reshape(-1)
        answer = result.logits[example] if len(expected) == 1 else result.logits[example].exp()
        torch.testing.assert_close(answer, expected.float(), rtol=1e-5, atol=1e-6)


@given(layer_outputs(num_labels=st.integers(2, 3)))
def test_expected_answer_is_a_probability_distribution(outputs):
    total = apply_exit(Expectation(legacy=False), outputs).logits.exp().sum(dim=1)
    torch.testing.assert_close(total, torch.ones_like(total))


def test_legacy_expectation_weighs_by_more_than_one():
    # papers: total weight 1.65 at λ = 0.1 and 12 layers.
    outputs = LayerOutputs(torch.ones(12, 1, 1), torch.full((12, 1), 0.1))
    assert apply_exit(Expectation(legacy=True), outputs).logits.item() == pytest.approx(1.65, abs=0.01)
    assert apply_exit(Expectation(legacy=False), outputs).logits.item() == pytest.approx(1.0)


@pytest.mark.parametrize(("prior_lambda", "layer"), [(0.1, 7), (0.08, 9), (0.15, 5), (0.25, 3), (0.5, 2)])
def test_median_of_a_geometric_posterior(prior_lambda, layer):
    outputs = LayerOutputs(torch.zeros(12, 1, 2), torch.full((12, 1), prior_lambda))
    assert apply_exit(Threshold(0.5), outputs).exit_layer.item() == layer


def test_cdf_that_equals_q_does_not_leave():
    outputs = LayerOutputs(torch.zeros(3, 1, 2), torch.tensor([[0.5], [0.0], [0.5]]))
    assert apply_exit(Threshold(0.5), outputs).exit_layer.item() == 3


def test_uncertainty_that_equals_the_threshold_does_not_leave():
    outputs = LayerOutputs(torch.zeros(3, 1, 2), uncertainties=torch.tensor([[0.5], [0.25], [0.0]]))
    assert apply_exit(LearnedExit(0.5), outputs).exit_layer.item() == 2


@given(layer_outputs())
def test_q_zero_is_the_first_layer_and_q_one_the_last(outputs):
    assert set(apply_exit(Threshold(0.0), outputs).exit_layer.tolist()) == {1}
    assert set(apply_exit(Threshold(1.0), outputs).exit_layer.tolist()) == {len(outputs.logits)}


@given(layer_outputs())
def test_higher_q_never_leaves_earlier(outputs):
    layers = [apply_exit(rule, outputs).exit_layer for rule in every_threshold()]
    assert all((later >= earlier).all() for earlier, later in itertools.pairwise(layers))


@given(layer_outputs())
def test_more_patience_never_leaves_earlier(outputs):
    rules = every_patience(len(outputs.logits), regression_threshold=0.2)
    layers = [apply_exit(rule, outputs).exit_layer for rule in rules]
    assert all((later >= earlier).all() for earlier, later in itertools.pairwise(layers))


def test_patience_leaves_one_layer_later_than_its_number_at_the_earliest():
    outputs = LayerOutputs(torch.tensor([0.0, 1.0]).expand(12, 1, 2), None)
    assert apply_exit(Patience(6, regression_threshold=0.2), outputs).exit_layer.item() == 7


@given(layer_outputs())
def test_last_layer_runs_everything(outputs):
    assert_layers(apply_exit(LastLayer(), outputs), outputs, [len(outputs.logits)] * outputs.logits.shape[1])


def test_uniform_numbers_do_not_depend_on_how_examples_are_batched():
    outputs = LayerOutputs(torch.randn(12, 37, 2), torch.rand(12, 37))
    whole = apply_exit(Sampled(draws=1), outputs, torch.Generator().manual_seed(3)).exit_layer
    generator = torch.Generator().manual_seed(3)
    parts = []
    for start in range(0, 37, 5):
        rows = slice(start, start + 5)
        part = LayerOutputs(outputs.logits[:, rows], outputs.lambdas[:, rows])
        parts.append(apply_exit(Sampled(draws=1), part, generator).exit_layer)
    assert whole.tolist() == torch.cat(parts).tolist()


def test_sampled_layers_follow_the_posterior():
    lambdas = torch.full((12, 20_000), 0.1)
    result = apply_exit(
        Sampled(draws=1), LayerOutputs(torch.zeros(12, 20_000, 2), lambdas), torch.Generator().manual_seed(0)
    )
    assert result.exit_layer.float().mean().item() == pytest.approx(7.18, abs=0.1)  # papers: expected layers at λ = 0.1


def test_sweeps_cover_the_settings():
    assert SWEPT_QUANTILES[:2] == (0.05, 0.1) and SWEPT_QUANTILES[-2:] == (0.95, 1.0) and len(SWEPT_QUANTILES) == 20
    assert [read_setting(rule) for rule in every_threshold()] == list(SWEPT_QUANTILES)
    assert [read_setting(rule) for rule in every_patience(3, 0.2)] == [1, 2, 3]


@pytest.mark.slow
@given(layer_outputs())
def test_nobody_leaves_before_a_rules_earliest_layer(outputs):
    num_layers = len(outputs.logits)
    others = [LastLayer(), Expectation(legacy=False), Sampled(draws=1), Threshold(0.0)]
    for rule in [*every_threshold(), *every_patience(num_layers, 0.5), *others]:
        result = apply_exit(rule, outputs, torch.Generator().manual_seed(0))
        assert result.exit_layer.min() >= rule.earliest(num_layers)


def test_the_earliest_layer_is_the_one_that_is_reached_at_best():
    rules = {Threshold(0.95): 1, Threshold(1.0): 6, Patience(2, None): 3, Patience(6, None): 6, Sampled(draws=1): 1}
    assert {rule: rule.earliest(6) for rule in rules} == rules
