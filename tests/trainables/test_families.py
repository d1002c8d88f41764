"""Every method on backbones whose layers run as whole blocks: pytest tests/trainables/test_families.py"""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.families import FAMILIES, NUM_LAYERS, TEXTS, write_backbone
from helpers.messages import one_line
from helpers.trials import spec_of
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import trainables
from study.contract.model_rules import RULES, Subject
from study.plans.arm_checks import check_family, fits
from trainables.data.tasks import TASKS
from trainables.encoders.loading import load_encoder
from trainables.models.answer_rules import FixedLayer
from trainables.runs.flops import count_flops
from trainables.runs.optimiser import training_words
from trainables.runs.trained_model import TrainedModel, export_at_layer, export_trained, load_trained
from trainables.runs.training import TrainingRun
from trainables.runs.trial import TrialSpec

pytestmark = pytest.mark.usefixtures("few_rows")

ROWS = 16
OF_ONE_FAMILY = ["sharebert", "electra-small", "alectra-small"]
METHODS = [method for method in trainables.list_methods() if method not in OF_ONE_FAMILY]
PAIRS = [(family, method) for family in FAMILIES for method in METHODS]
SHORT = {(family, METHODS[number % len(METHODS)]) for number, family in enumerate(FAMILIES)}  # each family once
EVERY_PAIR = pytest.mark.parametrize(
    ("family", "method"), [pytest.param(*pair, marks=() if pair in SHORT else pytest.mark.long) for pair in PAIRS]
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("backbones")
    return {family: str(write_backbone(root / family, family, vocab_size=3000)) for family in FAMILIES}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
@EVERY_PAIR
def test_every_rule_of_models_holds(family, method, tmp_path):
    folder = str(write_backbone(tmp_path / family, family, vocab_size=3000, num_hidden_layers=5))
    assert fits(method, folder)
    subject = Subject(method, folder)
    for rule in RULES:
        rule(subject)


@pytest.mark.parametrize("method", OF_ONE_FAMILY)
def test_methods_of_one_family_refuse_the_others_with_the_reason(method, folders, snapshot):
    with pytest.raises(ValueError) as raised:
        check_family(method, folders["distilbert"])
    assert one_line(raised.value, Path(folders["distilbert"])) == snapshot


@pytest.mark.slow
@EVERY_PAIR
def test_a_trial_resumes_and_its_export_predicts_equally(family, method, folders, cache, tmp_path):
    start = {}
    config = {"num_hidden_layers": 0, "max_length": 32}
    if method == "deebert":
        start = {"start": str(first_stage(family, folders, cache, tmp_path))}
    spec = spec_of(method, "rte", backbone=folders[family], config=config, **start)
    whole = short_run(spec, cache)
    whole.run_epoch()
    run = short_run(spec, cache)
    run.save(tmp_path / "state")
    run = TrainingRun.resume(tmp_path / "state", cache=cache, limit=ROWS)
    run.run_epoch()
    weights = whole._model.state_dict()
    assert all(weight.equal(weights[name]) for name, weight in run._model.state_dict().items())
    trained = TrainedModel(run.spec, run._config, run._task, run._model.eval(), run._data.tokenizer)
    (tmp_path / "to").mkdir()
    export_trained(trained, tmp_path / "to")
    loaded = load_trained(tmp_path / "to")
    batch = dict(AutoTokenizer.from_pretrained(tmp_path / "to")(TEXTS, padding=True, return_tensors="pt"))
    assert torch.equal(loaded.model.all_exits(batch).logits, trained.model.all_exits(batch).logits)
    with torch.no_grad():
        expected = AutoModel.from_pretrained(tmp_path / "to").eval()(**batch).last_hidden_state[:, 0]
        *_, first = loaded.model.encoder.first_tokens(**batch)
    torch.testing.assert_close(loaded.model.encoder.final_norm(first), expected, rtol=0, atol=1e-5)
    if method == "albert":
        plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "to").eval()
        torch.testing.assert_close(plain(**batch).logits, loaded.model.infer(batch).logits, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["pabee", *(pytest.param(name, marks=pytest.mark.long) for name in ("berxit", "palbert"))]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_first_layers_are_a_sequence_classifier(family, method, folders, cache, tmp_path):
    spec = spec_of(method, "rte", backbone=folders[family], config={"num_hidden_layers": 0, "max_length": 32})
    run = short_run(spec, cache)
    trained = TrainedModel(run.spec, run._config, run._task, run._model.eval(), run._data.tokenizer)
    for layer in range(1, NUM_LAYERS + 1):
        folder = tmp_path / str(layer)
        folder.mkdir()
        export_at_layer(trained, layer, folder)
        batch = dict(AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt"))
        plain = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        with torch.no_grad():
            ours, theirs = trained.model.heads(batch)[0][layer - 1], plain(**batch).logits
        torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)
        assert plain.config.num_hidden_layers == layer


def short_run(spec: TrialSpec, cache: Path) -> TrainingRun:
    """A trial on a few rows, after its first epoch."""
    run = TrainingRun(spec, cache=cache, limit=ROWS)
    run.run_epoch()
    return run


def first_stage(family, folders, cache, tmp_path) -> Path:
    config = {"num_hidden_layers": 0, "max_length": 32, "epochs": 1}
    run = short_run(spec_of("albert", "rte", backbone=folders[family], config=config), cache)
    run.save(tmp_path / "first")
    return tmp_path / "first" / "model-epoch-1"


@pytest.mark.parametrize("family", FAMILIES)
def test_flops_grow_by_the_same_number_in_each_layer(family, folders):
    torch.manual_seed(0)
    config = Subject("pabee", folders[family]).config("rte", pooling="mean")
    encoder = load_encoder(folders[family], config, vocab_size=3000)
    model = trainables.load_method("pabee").build(config, encoder, TASKS["rte"]).eval()
    ids = torch.arange(10, 26)[None]
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    rules = [FixedLayer(layer) for layer in range(1, NUM_LAYERS + 1)]
    counts = [count_flops(partial(model.infer, batch, rule=rule)) for rule in rules]
    steps = {after - before for before, after in pairwise(counts)}
    hidden, inner, tokens = 16, 24, 16
    products = 4 * hidden * hidden + (3 if family == "modernbert" else 2) * hidden * inner
    attention = 2 * tokens * hidden
    [step] = steps
    assert step >= 2 * tokens * (products + attention)
    if family != "deberta-v2":  # relative positions cost more
        assert step - 2 * tokens * (products + attention) <= 2 * hidden * 2 * 2  # the heads


@pytest.mark.parametrize("family", FAMILIES)
def test_training_only_the_used_words_changes_nothing(family, folders, cache):
    spec = spec_of("albert", "rte", backbone=folders[family], config={"num_hidden_layers": 0, "max_length": 32})
    run = TrainingRun(spec, cache=cache, limit=ROWS)
    holder, name = run._model.encoder.find_words()
    table = holder.get_submodule(name)
    with training_words(run._model, run._data.train, weight_decay=0.0)():
        assert holder.get_submodule(name) is not table
        assert len(holder.get_submodule(name).weight) < table.num_embeddings
    assert holder.get_submodule(name) is table


def test_used_words_keep_the_place_of_a_pad_that_is_not_the_tokenizers(folders, cache):
    spec = spec_of("albert", "rte", backbone=folders["distilbert"], config={"num_hidden_layers": 0, "max_length": 32})
    run = TrainingRun(spec, cache=cache, limit=ROWS)
    holder, name = run._model.encoder.find_words()
    tokens = np.unique(run._data.train.tokens)
    table = holder.get_submodule(name)
    table.padding_idx = next(token for token in range(table.num_embeddings) if token not in tokens and token)
    with training_words(run._model, run._data.train, weight_decay=0.0)():
        used = holder.get_submodule(name)
        used(torch.tensor([int(tokens.min())])).sum().backward()
        assert used.weight.grad.any()


def test_configurations_of_exports_have_a_type_for_each_layer(folders, cache, tmp_path):
    spec = spec_of("pabee", "rte", backbone=folders["modernbert"], config={"num_hidden_layers": 2, "max_length": 32})
    run = TrainingRun(spec, cache=cache, limit=ROWS)
    trained = TrainedModel(run.spec, run._config, run._task, run._model.eval(), run._data.tokenizer)
    export_trained(trained, tmp_path)
    assert len(json.loads((tmp_path / "config.json").read_text())["layer_types"]) == 2
    assert load_trained(tmp_path).model.encoder.num_layers == 2
