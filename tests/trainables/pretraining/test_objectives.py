"""Losses, shared weights and sizes of objectives: pytest tests/trainables/pretraining/test_objectives.py"""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest
import torch
from helpers.corpora import pretraining_config
from helpers.departures import join_departures
from helpers.masked_batches import VOCABULARY, batch_of, inputs, totals_of
from helpers.messages import one_line
from helpers.places import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion
from transformers import AutoConfig

from search_spaces import objectives as recipes
from trainables import base_method
from trainables.pretraining import models as pretraining_models
from trainables.pretraining import objectives
from trainables.pretraining.batches import IGNORED
from trainables.pretraining.models import encoder_configuration, filled, predict_masked
from trainables.runs.optimiser import decay_groups

SIZES = {
    "vocab_size": VOCABULARY,
    "embedding_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout_prob": 0.0,
}
RECIPES = recipes.list_recipes()
PAGE = (ROOT / "docs" / "pretraining.md").read_text().splitlines()
TWO_CLASSES = ("alectra-rtd", "alectra-rtd:bert-generator", "alectra-rtd:tied-encoders", "electra-rtd:lmtuners")
REPLACED = ("electra-rtd", *TWO_CLASSES)
WIDTHS = {  # of the generator
    "alectra-rtd:bert-generator": {"generator_hidden_size": 8},
    "alectra-rtd:tied-encoders": {"generator_hidden_size": 16, "generator_intermediate_size": 32},
    "electra-rtd:lmtuners": {"generator_hidden_size": 16},
}


def model_of(recipe: str, seed: int = 0, **changes):
    """A small model of a recipe, in evaluation mode."""
    torch.manual_seed(seed)
    config = pretraining_config(recipe, **WIDTHS.get(recipe, {}), **changes)
    family = recipes.load_recipe(recipe).backbone["mini"].removeprefix("mini-")
    return objectives.load_objective(base_method(recipe)).build(config, AutoConfig.for_model(family, **SIZES)).eval()


def test_masked_words_and_order_cost_what_transformers_says() -> None:
    model, batch = model_of("albert-mlm"), batch_of()
    theirs = model.model(**inputs(batch, labels=batch["labels"], sentence_order_label=batch["sentence_order"])).loss
    torch.testing.assert_close(model(batch, totals_of(batch)), theirs)


def test_scores_of_masked_words_and_order_are_those_of_all_batches_together() -> None:
    model, batches = model_of("albert-mlm"), [batch_of(), batch_of(size=3, seed=1)]
    outputs = [model.model(**inputs(batch)) for batch in batches]
    logits = torch.cat(
        [own.prediction_logits[batch["labels"] != IGNORED] for own, batch in zip(outputs, batches, strict=True)]
    )
    labels = torch.cat([batch["labels"][batch["labels"] != IGNORED] for batch in batches])
    orders = torch.cat([own.sop_logits.argmax(dim=1) for own in outputs])
    assert model.scores(batches) == pytest.approx(
        {
            "mlm_loss": torch.nn.functional.cross_entropy(logits, labels).item(),
            "mlm_accuracy": (logits.argmax(dim=1) == labels).float().mean().item(),
            "sop_accuracy": (orders == torch.cat([batch["sentence_order"] for batch in batches])).float().mean().item(),
        }
    )


@pytest.mark.parametrize("family", objectives.load_objective("mlm").FAMILIES)
def test_masked_words_cost_what_transformers_says(family: str) -> None:
    sizes = {"vocab_size": 512, "intermediate_size": 16} if family == "sharebert" else {}
    config = AutoConfig.for_model(family, **{**SIZES, "type_vocab_size": 2, "pad_token_id": 0, **sizes})
    model, batch = objectives.load_objective("mlm").build(pretraining_config("mlm"), config).eval(), batch_of()
    theirs = model.model(**inputs(batch, labels=batch["labels"])).loss
    torch.testing.assert_close(model(batch, totals_of(batch)), theirs)


def test_replaced_tokens_cost_what_transformers_says() -> None:
    model, batch = model_of("electra-rtd"), batch_of()
    generated = model.generator(**inputs(batch, labels=batch["labels"]))
    tokens = filled(batch, generated.logits[batch["labels"] != IGNORED])
    replaced = (tokens != batch["original_ids"]).long()
    assert replaced.any() and not replaced.all()
    theirs = model.discriminator(**inputs(batch | {"input_ids": tokens}, labels=replaced)).loss
    torch.testing.assert_close(model(batch, totals_of(batch)), generated.loss + 50 * theirs)


@pytest.mark.parametrize("recipe", TWO_CLASSES)
def test_two_classes_cost_what_transformers_says(recipe: str) -> None:
    model, batch = model_of(recipe), batch_of()
    generated = model.generator(**inputs(batch, labels=batch["labels"]))
    tokens = filled(batch, generated.logits[batch["labels"] != IGNORED])
    labels = (tokens != batch["original_ids"]).long().masked_fill(batch["attention_mask"] == 0, IGNORED)
    theirs = model.discriminator(**inputs(batch | {"input_ids": tokens}, labels=labels)).loss
    torch.testing.assert_close(model(batch, totals_of(batch)), generated.loss + 50 * theirs)


@pytest.mark.parametrize("objective", RECIPES)
def test_parts_of_a_batch_add_up_to_it(objective: str) -> None:
    model, batch = model_of(objective), batch_of()
    totals = totals_of(batch)
    parts = [{name: value[start : start + 2] for name, value in batch.items()} for start in (0, 2, 4)]
    torch.testing.assert_close(sum(model(part, totals) for part in parts), model(batch, totals))


@pytest.mark.parametrize("objective", RECIPES)
def test_what_padding_holds_changes_nothing(objective: str) -> None:
    model, batch = model_of(objective), batch_of()
    garbage = {name: batch[name].masked_fill(batch["attention_mask"] == 0, 7) for name in ("input_ids", "original_ids")}
    torch.testing.assert_close(model(batch | garbage, totals_of(batch)), model(batch, totals_of(batch)))


@pytest.mark.parametrize("objective", REPLACED)
def test_shared_embeddings_are_one_object(objective: str) -> None:
    model = model_of(objective)
    generator, discriminator = (part.base_model.embeddings for part in (model.generator, model.discriminator))
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        assert getattr(generator, name).weight is getattr(discriminator, name).weight
    assert (generator.LayerNorm.weight is discriminator.LayerNorm.weight) == (objective == "electra-rtd")
    assert model.generator.get_output_embeddings().weight is discriminator.word_embeddings.weight


@pytest.mark.parametrize("objective", REPLACED)
def test_no_gradient_goes_through_sampling(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = model_of(objective), batch_of()
    predicted = predict_masked(model.generator, batch)
    logits, labels, _ = predicted
    alone = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / totals_of(batch).predictions
    (expected,) = torch.autograd.grad(alone, logits, retain_graph=True)
    logits.retain_grad()
    monkeypatch.setattr(pretraining_models, "predict_masked", lambda *_: predicted)
    model(batch, totals_of(batch)).backward()
    torch.testing.assert_close(logits.grad, expected)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), sharpness=st.floats(0, 30))
def test_samples_that_are_the_original_are_no_replacements(seed: int, sharpness: float) -> None:
    batch = batch_of(seed=seed)
    masked = batch["labels"] != IGNORED
    logits = sharpness * torch.nn.functional.one_hot(batch["labels"][masked], VOCABULARY).float()
    tokens = filled(batch, logits)
    assert (tokens[~masked] == batch["original_ids"][~masked]).all()  # nothing else, and no [MASK] is left
    model = model_of("electra-rtd")
    _, replaced, is_token = model._detected(batch, logits)
    assert (replaced == (tokens != batch["original_ids"])).all()
    assert (is_token == batch["attention_mask"].bool()).all()
    if sharpness == 30:
        assert not replaced.any()


def test_samples_follow_the_generator() -> None:
    size, probabilities = 20_000, torch.tensor([0.5, 0.2, 0.3, 0.0])
    batch = {
        "original_ids": torch.zeros(size, 1, dtype=torch.long),
        "labels": torch.zeros(size, 1, dtype=torch.long),
        "noise": torch.from_numpy(np.random.default_rng(0).random((size, 1), dtype=np.float32)),
    }
    found = torch.bincount(filled(batch, probabilities.log().expand(size, -1)).flatten(), minlength=4) / size
    assert (abs(found - probabilities) <= 3 * (probabilities * (1 - probabilities) / size).sqrt()).all()
    batch["noise"] = torch.ones(size, 1).nextafter(torch.zeros(1))  # the largest there is
    assert (filled(batch, probabilities.log().expand(size, -1)) == 2).all()


def published_model(recipe: recipes.Recipe):
    """The model of a recipe at its published size, without weights."""
    config = objectives.configure(recipe.objective, recipe.fixed)
    with torch.device("meta"):
        encoder = encoder_configuration(recipe.backbone["paper"], config, vocab_size=30_000)
        return objectives.load_objective(recipe.objective).build(config, encoder)


def test_pretraining_models_have_the_published_sizes() -> None:
    models = {name: published_model(recipes.load_recipe(name)) for name in RECIPES}
    assert {name: [count(part) for part in (model, *model.children())] for name, model in models.items()} == {
        "albert-mlm": [11_813_810, 11_813_810],
        "electra-rtd": [14_196_219, 4_620_026, 13_549_057],
        "electra-rtd:lmtuners": [18_609_724, 9_131_578, 17_325_058],
        "alectra-rtd": [5_633_724, 4_810_170, 4_747_010],
        "alectra-rtd:bert-generator": [5_191_996, 4_368_442, 4_747_010],
        "alectra-rtd:tied-encoders": [4_843_964, 4_810_170, 4_747_010],
        "mlm": [71_691_776, 71_691_776],
        "mlm:bert-small": [17_421_370, 17_421_370],
    }


def test_tied_layers_are_listed_twice_in_the_original_and_once_here() -> None:
    """shoarora/lmtuners at 86f31ba, discriminative_lm.py: the generator's parameters, then the discriminator's."""
    model = model_of("alectra-rtd:tied-encoders")
    theirs = Counter(id(weight) for part in (model.generator, model.discriminator) for weight in part.parameters())
    ours = Counter(id(weight) for group in decay_groups(model, 0.01) for weight in group["params"])
    tied = {id(weight) for weight in model.discriminator.albert.encoder.albert_layer_groups.parameters()}
    assert {theirs[weight] for weight in tied} == {2} and {*ours.values()} == {1} and tied <= ours.keys()


@pytest.mark.parametrize("name", TWO_CLASSES)
def test_departures_count_what_is_tied_and_what_the_original_clones(name: str) -> None:
    recipe = recipes.load_recipe(name)
    model = published_model(recipe)
    original = sum(count(part) for part in model.children())
    if model.generator.config.model_type == "bert":  # the scripts clone its output too
        original += model.generator.get_input_embeddings().weight.numel()
    if name == "alectra-rtd:tied-encoders":  # these are one object there too
        original -= count(model.discriminator.albert.encoder.albert_layer_groups)
    sizes = f"tied: {count(model):,} parameters (paper: cloned: {original:,} parameters)"
    assert sizes in join_departures(recipe.departures)


@pytest.mark.parametrize("name", RECIPES)
def test_page_has_the_recipe_with_its_values_and_sizes(name: str) -> None:
    recipe = recipes.load_recipe(name)
    tables = [[cell.strip(" `") for cell in line.split(" | ")] for line in PAGE if line.startswith("| ")]
    (titles,) = (row for row in tables if row[:2] == ["| recipe", "steps"])
    sizes, values = (row[1:] for row in tables if row[0] == f"| `{name}")
    model = published_model(recipe)
    assert sizes[1:3] == [f"{count(model):,}", f"{count(model.kept.base_model):,}"]
    assert [value.strip(" |`").replace(",", "") for value in values] == [
        value if isinstance(value := recipe.fixed[title.strip(" |`")], str) else f"{value:.10g}" for title in titles[1:]
    ]


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("mini", [True, False])
def test_a_recipe_fills_the_configuration_exactly(name: str, mini: bool) -> None:
    recipe = recipes.load_recipe(name)
    values = {**recipe.fixed, **(recipe.mini_fixed if mini else {})}
    assert set(values) == set(objectives.load_objective(recipe.objective).Config.__struct_fields__)
    assert msgspec.to_builtins(objectives.configure(recipe.objective, values)) == dict(values)


@pytest.mark.parametrize(
    ("name", "words", "fields"),
    [
        (
            "albert-mlm",
            "max_predictions: 77, 15 %",
            {"mask_probability": 0.15, "max_predictions": 77},
        ),
        ("albert-mlm", "hidden_dropout: 0, with version 1's steps", {"hidden_dropout": 0.0}),
        ("albert-mlm", "from 97.5 % of it", {"schedule": "linear", "warmup_steps": 3_125, "steps": 125_000}),
        ("alectra-rtd", "two random lines: of one document", {"packing": "random_lines"}),
        ("alectra-rtd:tied-encoders", "heads of the discriminator: 4", {"generator_heads": 1}),
        ("alectra-rtd:tied-encoders", "shared layers: one per step", {"tie_encoder": True}),
        ("electra-rtd", "second segment: stays in the second", {"packing": "electra"}),
        ("mlm", "running text, cut every 126 tokens", {"packing": "full", "max_length": 128}),
        ("mlm:bert-small", "two random lines: of one document", {"packing": "random_lines", "masking": "bernoulli"}),
    ],
)
def test_departure_about_a_value_is_true(name: str, words: str, fields: dict) -> None:
    recipe = recipes.load_recipe(name)
    assert len([departure for departure in recipe.departures if words in str(departure)]) == 1
    assert {field: recipe.fixed[field] for field in fields} == fields


def test_every_objective_has_a_recipe_and_says_how_it_differs() -> None:
    assert list(dict.fromkeys(base_method(name) for name in RECIPES)) == objectives.list_objectives()
    for name in RECIPES:
        here = {departure.what: departure.here for departure in recipes.load_recipe(name).departures}
        assert len(here) == len(recipes.load_recipe(name).departures)
        assert here["held out"] and here["precision"] == recipes.load_recipe(name).fixed["precision"] == "bfloat16"
    for load in (objectives.load_objective, recipes.load_recipe):
        with pytest.raises(ValueError, match="no objective named 'sop'; available: albert-mlm, "):
            load("sop")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mlm", {"gradient_accumulation": 3}),
        ("mlm", {"random_token_share": 0.3}),
        ("mlm", {"masking": "bernoulli"}),
        ("mlm", {"masking": "words"}),
        ("mlm", {"learning_rate": float("inf")}),
        ("albert-mlm", {"packing": "full"}),
        ("electra-rtd", {"generator_heads": 3}),
        ("alectra-rtd:bert-generator", {"tie_encoder": True}),
    ],
    ids=str,
)
def test_a_value_that_is_not_allowed_is_refused(name: str, changes: dict, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(ValueError) as raised:
        pretraining_config(name, **changes)
    assert one_line(raised.value) == snapshot


def test_a_family_that_an_objective_cannot_use_is_refused(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(ValueError) as raised:
        objectives.check_family("electra-rtd", "albert")
    assert one_line(raised.value) == snapshot
