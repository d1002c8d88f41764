"""The ponder loss and the parts that PonderNet and PALBERT share. Run: pytest tests/trainables/models/test_ponder.py"""

import math

import pytest
import torch
from helpers.configurations import config_of

import trainables
from trainables.data.tasks import TASKS
from trainables.encoders.loading import load_encoder
from trainables.models import ponder
from trainables.models.exit_rules import Expectation, LastLayer, Sampled, Threshold, apply_exit
from trainables.models.ponder import (
    Lambda,
    LambdaHead,
    divergence,
    log_geometric_prior,
    truncated_posterior,
)

EPSILON, PRIOR_LAMBDA = 0.05, 0.1
POSTERIOR_TAILS = ("constant", "drop", "remainder")


def logits_of(*lambdas):
    """Logits (layers, 1) of an example's λ."""
    return torch.logit(torch.tensor(lambdas, dtype=torch.float32))[:, None]


def cut(exit_logits, tail, num_layers=None):
    config = config_of("pondernet", epsilon=EPSILON, posterior_tail=tail, prior_lambda=PRIOR_LAMBDA)
    return truncated_posterior(exit_logits, config, num_layers or len(exit_logits))


def model_of(method="palbert", **changes):
    config = config_of(method, max_length=16, **changes)
    torch.manual_seed(0)
    encoder = load_encoder("mini-albert", config, vocab_size=30)
    return trainables.load_method(method).build(config, encoder, TASKS["rte"])


def batch_of(size=8):
    ids = torch.randint(5, 30, (size, 9), generator=torch.Generator().manual_seed(2))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[:, 0] % 2}


def test_prior_is_geometric_with_the_rest_at_the_last_layer():
    prior = log_geometric_prior(0.1, 12).exp()
    assert prior[0].item() == pytest.approx(0.1) and prior[1].item() == pytest.approx(0.09)
    assert prior[-1].item() == pytest.approx(0.314, abs=1e-3)  # papers: p_12 at λ = 0.1
    assert prior.sum().item() == pytest.approx(1.0)


def test_constant_tail_is_epsilon_by_layers_behind_the_cut():
    # CDF 0.5, 0.98: the third layer lies behind the cut.
    probabilities = cut(logits_of(0.5, 0.96, 0.3, 0.3), "constant").probabilities()[:, 0]
    assert probabilities.tolist() == pytest.approx([0.5, 0.48, EPSILON / 4, EPSILON / 4])


def test_constant_tail_has_no_gradient():
    exit_logits = logits_of(0.5, 0.96, 0.3).requires_grad_()
    cut(exit_logits, "constant").probabilities()[2].sum().backward()
    assert exit_logits.grad.abs().sum() == 0


def test_dropped_tail_does_not_count():
    probabilities = cut(logits_of(0.5, 0.96, 0.3, 0.3), "drop").probabilities()[:, 0]
    assert probabilities.tolist() == pytest.approx([0.5, 0.48, 0, 0])


def test_remainder_goes_to_the_last_layer_that_counts():
    probabilities = cut(logits_of(0.5, 0.96, 0.3, 0.3), "remainder").probabilities()[:, 0]
    assert probabilities.tolist() == pytest.approx([0.5, 0.5, 0, 0])


def test_remainder_goes_to_the_last_layer_when_nothing_is_cut():
    probabilities = cut(logits_of(0.1, 0.1, 0.1), "remainder").probabilities()[:, 0]
    assert probabilities.tolist() == pytest.approx([0.1, 0.09, 0.81])


@pytest.mark.parametrize("tail", POSTERIOR_TAILS)
def test_layers_that_are_not_computed_are_behind_the_cut(tail):
    whole = cut(logits_of(0.5, 0.96, 0.3, 0.3), tail)
    computed = cut(logits_of(0.5, 0.96), tail, num_layers=4)
    torch.testing.assert_close(computed.probabilities(), whole.probabilities())
    for direction in ("prior_posterior", "posterior_prior"):
        torch.testing.assert_close(divergence(computed, direction), divergence(whole, direction))


@pytest.mark.parametrize("direction", ["prior_posterior", "posterior_prior"])
def test_divergence_is_zero_when_the_posterior_is_the_prior(direction):
    posterior = cut(torch.logit(torch.full((12, 1), PRIOR_LAMBDA)), "remainder")
    assert divergence(posterior, direction).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("direction", ["prior_posterior", "posterior_prior"])
def test_divergence_with_remainder_is_never_negative(direction):
    exit_logits = torch.randn(12, 200, generator=torch.Generator().manual_seed(0)) * 3
    assert divergence(cut(exit_logits, "remainder"), direction).min() > -1e-6


def test_directions_of_the_divergence():
    # Two layers: prior (0.1, 0.9); posterior (0.5, 0.5) with the remainder.
    posterior = cut(logits_of(0.5, 0.5), "remainder")
    prior_first = 0.1 * math.log(0.1 / 0.5) + 0.9 * math.log(0.9 / 0.5)
    posterior_first = 0.5 * math.log(0.5 / 0.1) + 0.5 * math.log(0.5 / 0.9)
    assert divergence(posterior, "prior_posterior").item() == pytest.approx(prior_first)
    assert divergence(posterior, "posterior_prior").item() == pytest.approx(posterior_first)


@pytest.mark.parametrize("tail", POSTERIOR_TAILS)
@pytest.mark.parametrize("direction", ["prior_posterior", "posterior_prior"])
@pytest.mark.parametrize("extreme", [-200.0, 200.0])
def test_saturated_lambdas_give_finite_gradients(extreme, direction, tail):
    exit_logits = torch.full((6, 3), extreme, requires_grad=True)
    posterior = cut(exit_logits, tail)
    (divergence(posterior, direction).sum() + posterior.probabilities().sum()).backward()
    assert exit_logits.grad.isfinite().all()


def test_loss_is_task_loss_and_weighted_divergence():
    terms = model_of(beta=0.25).loss(batch_of())
    assert terms["loss"].item() == pytest.approx(terms["task_loss"].item() + 0.25 * terms["kl"].item())


def test_layers_behind_every_cut_are_not_computed(monkeypatch):
    # As released, λ starts near 0.5: the CDF passes 0.95 after five layers.
    monkeypatch.setattr(ponder, "LAYERS_PER_LOOK", 5)
    assert len(model_of().heads_until_truncation(batch_of())[0]) == 5
    monkeypatch.setattr(ponder, "LAYERS_PER_LOOK", 4)
    assert len(model_of().heads_until_truncation(batch_of())[0]) == 6


@pytest.mark.parametrize("tail", POSTERIOR_TAILS)
@pytest.mark.parametrize("arch", ["linear_cat", "rnn"])
def test_loss_does_not_depend_on_how_often_one_looks(arch, tail, monkeypatch):
    model = model_of(lambda_layer_arch=arch, posterior_tail=tail, hidden_dropout=0.0, classifier_dropout=0.0)
    batch, losses, gradients = batch_of(), [], []
    for layers in (1, 6, 100):
        monkeypatch.setattr(ponder, "LAYERS_PER_LOOK", layers)
        model.zero_grad()
        loss = model.loss(batch)["loss"]
        loss.backward()
        losses.append(loss)
        gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]))
    for loss, gradient in zip(losses[1:], gradients[1:], strict=True):
        torch.testing.assert_close(loss, losses[0])
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-4, atol=1e-6)


def test_bias_from_the_prior_starts_lambda_at_the_prior():
    model = model_of(lambda_bias_init="prior", prior_lambda=0.08).eval()
    with torch.no_grad():
        model.lambda_head.output.weight.zero_()
    lambdas = model.all_exits(batch_of()).lambdas
    torch.testing.assert_close(lambdas, torch.full_like(lambdas, 0.08))


@pytest.mark.parametrize(
    ("arch", "num_lambda_layers", "num_parameters"),
    [
        ("linear", 0, 768 + 1),
        ("linear_diff", 3, 3 * (768 * 768 + 768) + 768 + 1),
        ("linear_cat", 3, 7_084_033),  # four linear layers, 60% of the parameters of ALBERT-base
        ("rnn", 0, 768 + 1),
        ("rnn", 1, 2 * (768 * 768 + 768) + 768 + 1),
    ],
)
def test_size_of_lambda(arch, num_lambda_layers, num_parameters):
    head = LambdaHead(768, config_of("palbert"), Lambda(arch, num_lambda_layers, None))
    assert sum(parameter.numel() for parameter in head.parameters()) == num_parameters


def test_lambda_has_its_own_learning_rate_and_no_weight_decay():
    model = model_of(learning_rate=1e-5, lambda_learning_rate=3e-5, weight_decay=0.1)
    groups = {group["name"]: group for group in model.parameter_groups(model.config)}
    assert (groups["lambda"]["lr"], groups["lambda"]["weight_decay"]) == (3e-5, 0.0)
    assert len(groups["lambda"]["params"]) == len(list(model.lambda_head.parameters()))
    assert (groups["model"]["lr"], groups["model"]["weight_decay"]) == (1e-5, 0.1)


def test_lambda_without_own_learning_rate_is_trained_as_the_rest():
    model = model_of(lambda_learning_rate=None)
    assert {group["lr"] for group in model.parameter_groups(model.config)} == {model.config.learning_rate}


def test_posterior_under_autocast_is_that_of_float32():
    batch = batch_of()
    model = model_of(precision="bfloat16", classifier_dropout=0.0)
    with model.computing(batch):
        exit_logits = model.heads_until_truncation(batch)[1]
    assert exit_logits.dtype == torch.float32
    assert truncated_posterior(exit_logits, model.config, 6).log_probabilities.dtype == torch.float32


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"exit": "threshold", "q": 0.3}, Threshold(0.3)),
        ({"exit": "sample", "q": None, "sample_draws": 5}, Sampled(draws=5)),
        ({"exit": "expectation", "q": None}, Expectation(legacy=False)),
        ({"exit": "expectation_legacy", "q": None}, Expectation(legacy=True)),
        ({"exit": "last", "q": None}, LastLayer()),
    ],
)
def test_exit_rule_of_the_configuration(changes, rule):
    assert model_of(**changes).exit_rule == rule


def test_pondernet_is_palbert_with_its_parts_taken_back():
    bare = {"lambda_layer_arch": "linear", "num_lambda_layers": 0, "lambda_learning_rate": None}
    palbert = model_of(**bare, exit="sample", q=None, sample_draws=7).eval()
    pondernet = model_of("pondernet", sample_draws=7).eval()
    assert pondernet.exit_rule == palbert.exit_rule == Sampled(draws=7)
    ours, theirs = pondernet.state_dict(), palbert.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert torch.equal(pondernet.loss(batch_of())["loss"], palbert.loss(batch_of())["loss"])
    assert rates(pondernet) == rates(palbert) == {"model": 1e-5}


def rates(model):
    return {group["name"]: group["lr"] for group in model.parameter_groups(model.config)}


@pytest.mark.parametrize("arch", ["linear", "linear_cat", "linear_diff", "rnn"])
@pytest.mark.parametrize("exit_rule", [Threshold(0.5), Sampled(draws=1), Expectation(legacy=False), LastLayer()])
def test_compacted_equals_simulated_for_every_lambda_and_exit(arch, exit_rule):
    model = model_of(lambda_layer_arch=arch, num_lambda_layers=2).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3, generator=torch.Generator().manual_seed(parameter.numel()))
    model.exit_rule = exit_rule
    batch = batch_of(32)
    compacted = model.infer(batch, torch.Generator().manual_seed(1))
    simulated = apply_exit(exit_rule, model.all_exits(batch), torch.Generator().manual_seed(1))
    assert compacted.exit_layer.tolist() == simulated.exit_layer.tolist()
    torch.testing.assert_close(compacted.logits, simulated.logits, rtol=1e-4, atol=1e-4)
