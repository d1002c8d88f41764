"""Replaced token detection against a plain second writing. Run: pytest tests/trainables/pretraining -k plain

The models are those that google-research/electra and the scripts of shoarora/lmtuners make, at small sizes, and the
loss is that of lmtuners' `DiscLMTrainingModule`, with one number after another drawn. Nothing is shared between them: a
weight that is shared here has the sum of their gradients.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
import torch
from helpers.corpora import pretraining_config
from helpers.masked_batches import batch_of, inputs, totals_of
from helpers.messages import one_line
from torch import Tensor, nn
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertForTokenClassification,
    BertConfig,
    BertForMaskedLM,
    BertForTokenClassification,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
)

from trainables import base_method
from trainables.pretraining import objectives

BOTH: dict[str, Any] = {"vocab_size": 50, "max_position_embeddings": 32, "tie_word_embeddings": False}
NO_DROPOUT = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
LARGE = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 32}
ALBERT = AlbertConfig(**BOTH, **NO_DROPOUT, **LARGE, embedding_size=8)
TABLES = ("word", "position", "token_type")


def generator_sizes(hidden: int, intermediate: int) -> dict[str, int]:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": 2,
        "num_attention_heads": 1,
        "intermediate_size": intermediate,
    }


def albert_generator(intermediate: int) -> AlbertForMaskedLM:
    return AlbertForMaskedLM(AlbertConfig(**BOTH, **NO_DROPOUT, **generator_sizes(16, intermediate), embedding_size=8))


def bert_generator(hidden: int) -> BertForMaskedLM:
    return BertForMaskedLM(BertConfig(**BOTH, **NO_DROPOUT, **generator_sizes(hidden, 24)))


def electra(sizes: dict[str, int]) -> ElectraConfig:
    return ElectraConfig(**BOTH, **NO_DROPOUT, **sizes, embedding_size=8)


PLAIN = {
    "electra-rtd": (
        lambda: ElectraForMaskedLM(electra(generator_sizes(12, 24))),
        lambda: ElectraForPreTraining(electra(LARGE)),
    ),
    "electra-rtd:lmtuners": (
        lambda: bert_generator(16),
        lambda: BertForTokenClassification(BertConfig(**BOTH, **NO_DROPOUT, **LARGE)),
    ),
    "alectra-rtd": (lambda: albert_generator(24), lambda: AlbertForTokenClassification(ALBERT)),
    "alectra-rtd:bert-generator": (lambda: bert_generator(8), lambda: AlbertForTokenClassification(ALBERT)),
    "alectra-rtd:tied-encoders": (lambda: albert_generator(32), lambda: AlbertForTokenClassification(ALBERT)),
}


def places_of(mask: Tensor) -> list[list[int]]:
    """Row and place of each token in a mask."""
    return mask.nonzero().tolist()


def plain_samples(logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """All tokens, with samples in the masked places; `logits` are logarithms of probabilities."""
    tokens = batch["original_ids"].clone()
    for row, place in places_of(batch["labels"] != -100):
        sums = list(accumulate(logits[row, place].exp().tolist()))
        tokens[row, place] = next(token for token, total in enumerate(sums) if total > batch["noise"][row, place])
    return tokens


def plain_loss(generator: nn.Module, discriminator: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = generator(**inputs(batch)).logits.log_softmax(dim=-1)
    masked = places_of(batch["labels"] != -100)
    generator_losses = [-logits[row, place, batch["labels"][row, place]] for row, place in masked]
    tokens = plain_samples(logits, batch)
    answers = discriminator(**inputs(batch | {"input_ids": tokens})).logits
    discriminator_losses = []
    for row, place in places_of(batch["attention_mask"]):
        replaced = int(tokens[row, place] != batch["original_ids"][row, place])
        if answers.ndim == 3:
            discriminator_losses.append(-answers[row, place].log_softmax(dim=0)[replaced])
        else:
            sign = 1 if replaced else -1
            discriminator_losses.append(-nn.functional.logsigmoid(sign * answers[row, place]))
    return torch.stack(generator_losses).mean() + 50 * torch.stack(discriminator_losses).mean()


@torch.no_grad()
def plain_scores(generator: nn.Module, discriminator: nn.Module, batches: list[dict[str, Tensor]]) -> dict[str, float]:
    losses, hits, answers = [], [], {True: [], False: []}  # of replaced tokens, and of the others
    for batch in batches:
        logits = generator(**inputs(batch)).logits.log_softmax(dim=-1)
        for row, place in places_of(batch["labels"] != -100):
            losses.append(-logits[row, place, batch["labels"][row, place]].item())
            hits.append(int(logits[row, place].argmax()) == int(batch["labels"][row, place]))
        tokens = plain_samples(logits, batch)
        found = discriminator(**inputs(batch | {"input_ids": tokens})).logits
        for row, place in places_of(batch["attention_mask"]):
            answer = found[row, place] if found.ndim == 2 else found[row, place, 1] - found[row, place, 0]
            answers[bool(tokens[row, place] != batch["original_ids"][row, place])].append(answer.item())
    right = [answer > 0 for answer in answers[True]] + [answer <= 0 for answer in answers[False]]
    ordered = [one > other for one in answers[True] for other in answers[False]]
    return {
        "mlm_loss": sum(losses) / len(losses),
        "mlm_accuracy": sum(hits) / len(hits),
        "rtd_auc": sum(ordered) / len(ordered),
        "rtd_accuracy": sum(right) / len(right),
    }


def names_by_weight(model: nn.Module) -> dict[nn.Parameter, list[str]]:
    names: dict[nn.Parameter, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        names.setdefault(weight, []).append(name)
    return names


def ours_and_plain(recipe: str) -> tuple[Any, nn.ModuleDict]:
    """Our model of a recipe, with weights far from where they start, and untied ones with the same weights."""
    torch.manual_seed(0)
    generator, discriminator = (make().eval() for make in PLAIN[recipe])
    sizes = {f"generator_{name}": getattr(generator.config, name) for name in ("hidden_size", "intermediate_size")}
    config = pretraining_config(recipe, **sizes, generator_layers=2)
    model: Any = objectives.load_objective(base_method(recipe)).build(config, discriminator.config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    generator.load_state_dict(model.generator.state_dict())
    discriminator.load_state_dict(model.discriminator.state_dict())
    return model, nn.ModuleDict({"generator": generator, "discriminator": discriminator})


@pytest.mark.parametrize("recipe", PLAIN)
def test_loss_and_gradients_are_those_of_the_plain_writing(recipe: str) -> None:
    model, plain = ours_and_plain(recipe)
    batch = batch_of()
    ours, theirs = model(batch, totals_of(batch)), plain_loss(plain["generator"], plain["discriminator"], batch)
    torch.testing.assert_close(ours, theirs)
    ours.backward()
    theirs.backward()
    gradients = {name: weight.grad for name, weight in plain.named_parameters()}
    for weight, names in names_by_weight(model).items():
        expected = [gradients[name] for name in names if gradients[name] is not None]
        assert (weight.grad is None) == (not expected), names
        if expected:
            torch.testing.assert_close(weight.grad, sum(expected), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("recipe", ["electra-rtd", "alectra-rtd"])
def test_held_out_scores_are_those_of_the_plain_writing(recipe: str) -> None:
    model, plain = ours_and_plain(recipe)
    batches = [batch_of(), batch_of(size=3, seed=1)]
    expected = plain_scores(plain["generator"], plain["discriminator"], batches)
    assert model.scores(batches) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("recipe", PLAIN)
def test_exactly_these_weights_are_shared(recipe: str) -> None:
    model, plain = ours_and_plain(recipe)
    ours, theirs = (part.base_model_prefix for part in (model.generator, model.discriminator))
    shared = {f"embeddings.{table}_embeddings.weight" for table in TABLES}
    if recipe == "electra-rtd":
        shared |= {"embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"}
    if recipe == "alectra-rtd:tied-encoders":
        layers = dict(plain["discriminator"].albert.encoder.albert_layer_groups.named_parameters())
        shared |= {f"encoder.albert_layer_groups.{name}" for name in layers}
        assert len(layers) == 16
    found = {
        frozenset(names)
        for names in names_by_weight(model).values()
        if {name.partition(".")[0] for name in names} == {"generator", "discriminator"}
    }
    output = {
        "albert": "generator.predictions.decoder.weight",
        "bert": "generator.cls.predictions.decoder.weight",
        "electra": "generator.generator_lm_head.weight",
    }[ours]
    assert found == {
        frozenset(
            {f"generator.{ours}.{name}", f"discriminator.{theirs}.{name}"}
            | ({output} if name == "embeddings.word_embeddings.weight" else set())
        )
        for name in shared
    }


def test_sizes_that_cannot_be_shared_are_refused(snapshot) -> None:
    config = pretraining_config("alectra-rtd:bert-generator", generator_hidden_size=16)
    with pytest.raises(ValueError) as raised:
        objectives.load_objective("alectra-rtd").build(config, ALBERT)
    assert one_line(raised.value) == snapshot
