"""How a layer's states become the vector that the heads read: pytest tests/trainables/test_pooling.py"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from helpers.configurations import SIZES, config_of
from helpers.messages import one_line
from helpers.trials import run_to_the_end, spec_of
from helpers.walked_layers import LENGTHS, At, model_of, padded, recorded_halves, texts, walk
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

import trainables
from trainables.encoders import layerwise
from trainables.encoders.token_states import Places, TokenStates
from trainables.models import early_exit
from trainables.models.answer_rules import FixedLayer
from trainables.models.early_exit import EarlyExitModel
from trainables.models.exit_rules import apply_exit
from trainables.runs.flops import count_flops
from trainables.runs.trained_model import TrainedModel, export_trained, load_trained
from trainables.runs.training import TrainingRun

pytestmark = pytest.mark.usefixtures("few_rows")

FAMILIES = ["albert", "bert", "electra", "roberta", "sharebert"]
each_family = pytest.mark.parametrize("family", FAMILIES)


def pooled(model: EarlyExitModel, batch: dict[str, Tensor]) -> list[Tensor]:
    """What the heads read after each layer."""
    return [model.encoder.pool(read) for read in model.encoder.first_tokens(**batch)]


@pytest.fixture(params=["pads", "packed", "packed on a GPU"])
def packing(request, monkeypatch):
    monkeypatch.setattr(layerwise, "PADDING_FREE_WIDTH", 10**9 if request.param == "pads" else 0)
    split = Places._keep_order if request.param == "packed on a GPU" else Places._split_by_length
    monkeypatch.setattr(Places, "of", split)


@each_family
@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_heads_read_the_first_state_or_the_mean_of_real_tokens(family, pooling, packing):
    model, batch = model_of(family, pooling=pooling), texts()
    with torch.no_grad():
        layers = [model.encoder.final_norm(padded(states)) for states in walk(model.encoder, **batch)]
    for read, states in zip(pooled(model, batch), layers, strict=True):
        examples = [one[:length] for one, length in zip(states, LENGTHS, strict=True)]
        wanted = torch.stack([one.mean(0) if pooling == "mean" else one[0] for one in examples])
        torch.testing.assert_close(read, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["albert", "bert", "electra"])
def test_the_mean_is_that_of_the_states_that_transformers_gives(family, tmp_path):
    folder = saved(tmp_path, family)
    batch = texts()
    batch["attention_mask"][:, 0] = 1
    with torch.no_grad():
        theirs = AutoModel.from_pretrained(folder)(**batch, output_hidden_states=True).hidden_states[1:]
    real = batch["attention_mask"][:, :, None]
    for read, states in zip(pooled(model_of(family, backbone=str(folder), pooling="mean"), batch), theirs, strict=True):
        torch.testing.assert_close(read, (states * real).sum(1) / real.sum(1), rtol=0, atol=1e-5)


def test_the_mean_is_equal_with_left_and_right_pads():
    states, real = torch.randn(3, 8, 4), torch.arange(8) < torch.tensor([[5], [8], [1]])
    right = TokenStates(states, real[:, None, None, :]).mean()
    left = TokenStates(states.flip(1), real.flip(1)[:, None, None, :]).mean()
    torch.testing.assert_close(left, right)
    torch.testing.assert_close(right[2], states[2, 0])


def test_token_derived_positions_allow_left_padding(packing):
    model, right = model_of("roberta", pooling="mean"), texts()  # the other families count pads as positions
    left = {name: torch.zeros_like(values) for name, values in right.items()}
    for name, values in right.items():
        for row, length in enumerate(LENGTHS):
            left[name][row, 32 - length :] = values[row, :length]
    torch.testing.assert_close(model.all_exits(left).logits, model.all_exits(right).logits, rtol=0, atol=1e-5)


@pytest.mark.slow
@each_family
@pytest.mark.parametrize("pooling", ["first", "mean", "fresh"])
def test_a_batch_equals_its_examples_one_by_one(family, pooling, packing):
    if (family, pooling) == ("sharebert", "fresh"):
        return  # refused, see below
    model, batch = model_of(family, pooling=pooling), texts()
    together = model.all_exits(batch)
    for row, length in enumerate(LENGTHS):
        alone = {name: values[row : row + 1, :length] for name, values in batch.items()}
        torch.testing.assert_close(model.all_exits(alone).logits[:, 0], together.logits[:, row], rtol=0, atol=1e-5)
    model.exit_rule = At(3, 2, 6, 2, 5)
    found, wanted = model.infer(batch), apply_exit(model.exit_rule, together)
    assert torch.equal(found.exit_layer, wanted.exit_layer)
    torch.testing.assert_close(found.logits, wanted.logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("pooling", ["first", "mean", "fresh"])
@pytest.mark.parametrize("method", [name for name in trainables.list_methods() if name != "sharebert"])
def test_every_method_trains_and_exits_as_on_all_layers(method, pooling):
    head = {"head": "pooled"} if method in ("electra-small", "alectra-small") else {}
    model = model_of("bert" if not head else "electra", method, pooling=pooling, **head).train()
    batch = texts() | {"labels": torch.tensor([0, 1, 1, 0, 1])}
    model.loss(batch)["loss"].backward()
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert any("pooler" in name for name in trained) == (pooling == "fresh")
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    wanted = apply_exit(model.eval().exit_rule, model.all_exits(texts()), generators[0])
    torch.testing.assert_close(model.infer(texts(), generators[1]).logits, wanted.logits, rtol=0, atol=1e-5)


@each_family
def test_mean_pooling_runs_each_half_layer_once(family, monkeypatch):
    monkeypatch.setattr(layerwise, "PADDING_FREE_WIDTH", 0)
    monkeypatch.setattr(early_exit, "HALVED_FROM", 1)
    model = model_of(family, pooling="mean")
    model.exit_rule = At(3, 1, 4, 1, 3)
    seen = recorded_halves(model.encoder)
    model.infer(texts())
    assert seen == {half: [61, 26, 26, 1] for half in seen}


@each_family
def test_flops_of_the_mean_are_those_of_whole_layers(family, monkeypatch):
    monkeypatch.setattr(early_exit, "HALVED_FROM", 1)
    batch = texts((32,))

    def count(pooling: str) -> list[int]:
        model = model_of(family, pooling=pooling)
        model.infer(batch)  # ShareBERT computes its matrices once
        return [count_flops(lambda rule=rule: model.infer(batch, rule=rule)) for rule in map(FixedLayer, range(1, 7))]

    mean, first = count("mean"), count("first")
    steps = [after - before for before, after in itertools.pairwise(mean)]
    assert len({*steps}) == 1  # every layer costs the same, the last one too
    assert all(whole > half for whole, half in zip(mean, first, strict=True))


def test_first_token_alone_needs_no_other_reader(monkeypatch):
    model = model_of("bert", "albert", pooling="mean")
    seen = recorded_halves(model.encoder)
    model.loss(texts() | {"labels": torch.tensor([0, 1, 1, 0, 1])})
    assert seen["feed_forward"] == [5 * 32] * 6


def saved(folder: Path, family: str) -> Path:
    torch.manual_seed(3)
    AutoModel.from_config(AutoConfig.for_model(family, **SIZES, embedding_size=32)).save_pretrained(folder / family)
    return folder / family


@pytest.mark.parametrize("family", ["albert", "bert"])
def test_fresh_pooler_depends_on_seed_encoder_on_backbone(family, tmp_path):
    folder = str(saved(tmp_path, family))
    plain, *fresh = (
        model_of(family, backbone=folder, pooling=pooling, seed=seed).encoder.state_dict()
        for pooling, seed in (("pooler", 0), ("fresh", 0), ("fresh", 0), ("fresh", 1))
    )
    for encoder in fresh:
        assert {name for name, weight in encoder.items() if not weight.equal(plain[name])} == {"pooler.weight"}
    weights = [encoder["pooler.weight"] for encoder in fresh]
    assert weights[0].equal(weights[1]) and not weights[0].equal(weights[2])


@pytest.mark.parametrize("family", ["electra", "roberta"])
def test_new_pooler_families_equal_fresh_pooler(family):
    first, second = (model_of(family, pooling=pooling).state_dict() for pooling in ("pooler", "fresh"))
    assert all(weight.equal(second[name]) for name, weight in first.items())


def test_a_pooler_that_cannot_be_new_is_refused(snapshot):
    with pytest.raises(ValueError) as raised:
        model_of("sharebert", pooling="fresh")
    assert one_line(raised.value) == snapshot


def test_head_without_pooler_reads_mean(snapshot):
    with pytest.raises(ValueError) as raised:
        config_of("electra-small", pooling="fresh")
    assert one_line(raised.value) == snapshot
    first, same = (model_of("electra", "electra-small", pooling=pooling) for pooling in ("pooler", "first"))
    assert torch.equal(first.all_exits(texts()).logits, same.all_exits(texts()).logits)
    mean = model_of("electra", "electra-small", pooling="mean")
    wanted = mean.classifier(pooled(mean, texts())[-1])
    torch.testing.assert_close(mean.all_exits(texts()).logits[-1], wanted)


@pytest.mark.parametrize("method", ["berxit", "deebert"])
def test_layers_have_copies_of_the_pooler_that_is_read(method):
    assert not model_of("bert", method, pooling="mean").poolers
    model = model_of("bert", method, pooling="fresh")
    assert len(model.poolers) == 5
    assert all(copy.weight.equal(model.encoder.pooler.weight) for copy in model.poolers)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["pabee", "albert"])
@pytest.mark.parametrize("pooling", ["first", "mean", "fresh"])
def test_a_saved_trial_resumes_and_its_export_answers_equally(method, pooling, cache, tmp_path):
    spec = spec_of(method, config={"pooling": pooling})
    whole = run_to_the_end(spec, cache)
    run = TrainingRun(spec, cache=cache)
    run.run_epoch()
    run.save(tmp_path / "state")
    run = TrainingRun.resume(tmp_path / "state", cache=cache)
    run.run_epoch()
    assert all(weight.equal(whole._model.state_dict()[name]) for name, weight in run._model.state_dict().items())
    trained = TrainedModel(run.spec, run._config, run._task, run._model.eval(), run._data.tokenizer)
    (tmp_path / "to").mkdir()
    export_trained(trained, tmp_path / "to")
    loaded, batch = load_trained(tmp_path / "to"), texts()
    assert loaded.config.pooling == pooling and "pooling" in loaded.spec.config
    assert torch.equal(loaded.model.infer(batch).logits, trained.model.infer(batch).logits)
    has_classifier = "classifier.weight" in load_file(tmp_path / "to" / "model.safetensors")
    assert has_classifier == (method == "albert" and pooling == "fresh")  # transformers has no other classifier
    if has_classifier:
        theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "to").eval()(**batch).logits
        torch.testing.assert_close(theirs, loaded.model.infer(batch).logits, rtol=0, atol=1e-5)
