"""Folders for transformers, and back: pytest tests/trainables/runs/test_trained_model.py"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.families import write_albert_pieces
from helpers.glue_folders import write_glue
from helpers.messages import one_line
from helpers.trials import spec_of
from helpers.walked_layers import padded, walk
from msgspec.structs import replace
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from trainables.data.examples import encode
from trainables.data.glue import Split
from trainables.models.classifiers import LastLayerModel
from trainables.runs.trained_model import TrainedModel, export_at_layer, export_trained, load_trained
from trainables.runs.training import TrainingRun
from trainables.runs.trial import UnreadableState
from trainables.runs.trial_files import read_state, write_state

pytestmark = pytest.mark.usefixtures("few_rows")

TEXTS = ["a dog sleeps", "the old cat near the tree sees a red bird"]


def unlike_any_other(cache: Path, method: str, task: str, *, config: dict | None = None, **spec) -> TrainedModel:
    """A model no two of whose weights are equal, not trained."""
    run = TrainingRun(spec_of(method, task, config={"hidden_dropout": 0.1, **(config or {})}, **spec), cache=cache)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in run._model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) / 10)
    return TrainedModel(run.spec, run._config, run._task, run._model.eval(), run._data.tokenizer)


def exported(trained: TrainedModel, folder: Path) -> Path:
    folder.mkdir()
    export_trained(trained, folder)
    return folder


def batch_of(folder: Path) -> dict[str, torch.Tensor]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return dict(tokenizer(TEXTS, padding=True, return_token_type_ids=True, return_tensors="pt"))


@torch.no_grad()
def last_states(trained: TrainedModel, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    encoder = trained.model.encoder
    *_, states = walk(encoder, **batch)
    return encoder.final_norm(padded(states))


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["mini-albert", "mini-bert", "mini-electra", "mini-roberta", "mini-sharebert"])
@pytest.mark.parametrize("method", ["albert", "palbert"])
def test_transformers_gives_the_hidden_states_of_the_model(method, backbone, cache, tmp_path):
    trained = unlike_any_other(cache, method, "rte", backbone=backbone)
    folder = exported(trained, tmp_path / "to")
    batch = batch_of(folder)
    with torch.no_grad():
        theirs = AutoModel.from_pretrained(folder)(**batch).last_hidden_state
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(theirs[real], last_states(trained, batch)[real], atol=1e-5, rtol=0)


@pytest.mark.slow
def test_export_and_its_loading_touch_no_gpu(cache, tmp_path, monkeypatch):
    trained = unlike_any_other(cache, "albert", "rte")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda *_: pytest.fail("a GPU is initialised"))
    assert load_trained(exported(trained, tmp_path / "model")).task is trained.task


@pytest.mark.slow
def test_export_with_exits_has_no_sequence_classifier(cache, tmp_path):
    folder = exported(unlike_any_other(cache, "palbert", "rte"), tmp_path / "to")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert model.config.num_labels == 0 and model(**batch_of(folder)).logits.shape[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "task", "backbone", "config"),
    [
        ("palbert", "rte", "mini-albert", {"lambda_layer_arch": "rnn", "num_lambda_layers": 2}),
        ("pabee", "stsb", "mini-electra", {}),
        ("electra-small", "mnli", "mini-electra", {"head": "first_token"}),
        ("albert", "stsb", "mini-roberta", {}),
        ("albert", "rte", "mini-sharebert", {}),
        ("palbert:a", "sst2", "mini-bert", {}),
    ],
)
def test_export_round_trips_weights_and_answers(method, task, backbone, config, cache, tmp_path):
    trained = unlike_any_other(cache, method, task, config=config, backbone=backbone)
    folder = exported(trained, tmp_path / "to")
    loaded, batch = load_trained(folder), batch_of(folder)
    ours, theirs = trained.model.state_dict(), loaded.model.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert loaded.spec == trained.spec
    assert torch.equal(loaded.model.infer(batch).exit_layer, trained.model.infer(batch).exit_layer)
    assert torch.equal(loaded.model.infer(batch).logits, trained.model.infer(batch).logits)


@pytest.mark.parametrize(
    ("method", "task", "backbone", "config"),
    [
        ("albert", "mnli", "mini-albert", {}),
        ("albert", "stsb", "mini-roberta", {}),
        ("electra-small", "rte", "mini-electra", {"head": "pooled"}),
    ],
)
def test_a_classifier_that_transformers_has_gives_its_logits(method, task, backbone, config, cache, tmp_path):
    trained = unlike_any_other(cache, method, task, config=config, backbone=backbone)
    folder = exported(trained, tmp_path / "to")
    plain, batch = AutoModelForSequenceClassification.from_pretrained(folder), batch_of(folder)
    with torch.no_grad():
        logits = plain(**batch).logits
    torch.testing.assert_close(logits, trained.model.infer(batch).logits, atol=1e-5, rtol=0)
    assert tuple(plain.config.id2label.values()) == (trained.task.labels or ("score",))
    assert plain.config.problem_type == ("regression" if task == "stsb" else "single_label_classification")


def twice_classified(model: LastLayerModel, index: int, pooled: torch.Tensor) -> torch.Tensor:
    return 2 * model.classifier(pooled)


def deep_classifier(model: LastLayerModel, *given: object) -> None:
    PLAIN_INIT(model, *given)
    model.classifier = torch.nn.Sequential(torch.nn.Tanh(), model.classifier)


PLAIN_INIT = LastLayerModel.__init__


@pytest.mark.parametrize(("name", "changed"), [("classified", twice_classified), ("__init__", deep_classifier)])
def test_logits_that_transformers_does_not_compute_have_no_class(name, changed, cache, tmp_path, monkeypatch):
    monkeypatch.setattr(LastLayerModel, name, changed)
    trained = unlike_any_other(cache, "albert", "rte", backbone="mini-bert")
    folder = exported(trained, tmp_path / "to")
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["BertModel"]
    batch = batch_of(folder)
    assert torch.equal(load_trained(folder).model.infer(batch).logits, trained.model.infer(batch).logits)
    with pytest.raises(ValueError, match="BertForSequenceClassification"):
        export_at_layer(trained, 2, tmp_path)


def test_heads_that_share_a_weight_are_exported(cache, tmp_path):
    trained = unlike_any_other(cache, "albert", "rte", backbone="mini-bert")
    trained.model.first, trained.model.second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    trained.model.second.weight = trained.model.first.weight
    heads = load_file(exported(trained, tmp_path / "to") / "heads.safetensors")
    assert torch.equal(heads["first.weight"], heads["second.weight"])


def test_another_loss_keeps_the_class_of_the_export(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(LastLayerModel, "loss", lambda model, batch: {"loss": model.classifier.weight.sum()})
    folder = exported(unlike_any_other(cache, "albert", "rte", backbone="mini-bert"), tmp_path / "to")
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["BertForSequenceClassification"]


@torch.no_grad()
def check_layer(trained: TrainedModel, layer: int, folder: Path) -> None:
    """Check that the export of the first layers has their logits in transformers, and no more layers."""
    folder.mkdir()
    export_at_layer(trained, layer, folder)
    batch = dict(AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt"))
    plain = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    torch.testing.assert_close(plain(**batch).logits, trained.model.heads(batch)[0][layer - 1], atol=1e-5, rtol=0)
    assert plain.config.num_hidden_layers == layer
    assert tuple(plain.config.id2label.values()) == (trained.task.labels or ("score",))
    assert not (folder / "model.json").exists() and not (folder / "heads.safetensors").exists()


@pytest.mark.parametrize("backbone", ["mini-albert", "mini-bert", "mini-electra", "mini-roberta"])
@pytest.mark.parametrize(("method", "task"), [("pabee", "mnli"), ("berxit", "rte"), ("palbert", "stsb")])
def test_first_layers_are_a_sequence_classifier(method, task, backbone, cache, tmp_path):
    if (method, task) == ("palbert", "stsb"):
        method = "pondernet"
    trained = unlike_any_other(cache, method, task, backbone=backbone)
    layers = trained.model.encoder.num_layers
    for layer in (1, layers):
        check_layer(trained, layer, tmp_path / str(layer))


def test_last_layer_of_a_plain_model_is_a_sequence_classifier(cache, tmp_path):
    trained = unlike_any_other(cache, "albert", "rte")
    check_layer(trained, trained.model.encoder.num_layers, tmp_path / "to")


@pytest.mark.parametrize("export", [export_trained, lambda trained, folder: export_at_layer(trained, 2, folder)])
def test_pair_has_token_types_in_an_exported_albert(export, cache, tmp_path):
    write_albert_pieces(tmp_path / "spiece.model")
    trained = unlike_any_other(cache, "albert", "rte", tokenizer=str(tmp_path))
    pair = encode(Split([0], [("a dog sleeps", "the cat sees a bird")], None), trained.tokenizer, max_length=128)
    batch = pair.batch(np.array([0]), torch.device("cpu"))
    (tmp_path / "to").mkdir()
    export(trained, tmp_path / "to")
    plain, tokenizer = (
        kind.from_pretrained(tmp_path / "to") for kind in (AutoModelForSequenceClassification, AutoTokenizer)
    )
    theirs = dict(tokenizer("a dog sleeps", "the cat sees a bird", return_tensors="pt"))
    assert batch["token_type_ids"].any() and theirs["token_type_ids"].equal(batch["token_type_ids"])
    with torch.no_grad():
        torch.testing.assert_close(plain(**theirs).logits, trained.model.infer(batch).logits, atol=1e-5, rtol=0)


NYSTROM = {"attention": "nystrom", "num_landmarks": 6, "conv_kernel_size": 3}


@pytest.mark.parametrize(
    ("method", "backbone", "config", "layer"),
    [
        ("albert", "mini-albert", {}, 1),
        ("pabee", "mini-albert", {}, 3),
        ("pabee", "mini-sharebert", {}, 2),
        ("pabee", "mini-bert", {"pooling": "mean"}, 2),
        ("pabee", "mini-bert", {"pooling": "first"}, 2),
        ("electra-small", "mini-electra", {"head": "first_token"}, 2),
        ("pabee", "mini-bert", NYSTROM, 2),
    ],
    ids=str,
)
def test_layers_that_transformers_cannot_hold_are_refused(method, backbone, config, layer, cache, tmp_path, snapshot):
    trained = unlike_any_other(cache, method, "rte", backbone=backbone, config=config)
    with pytest.raises(ValueError) as raised:
        export_at_layer(trained, layer, tmp_path)
    assert one_line(raised.value) == snapshot


def test_heads_of_another_form_are_refused_by_their_logits(cache, tmp_path, monkeypatch, snapshot):
    trained = unlike_any_other(cache, "pabee", "rte")
    heads = type(trained.model).classified
    monkeypatch.setattr(type(trained.model), "classified", lambda *given: 2 * heads(*given))
    with pytest.raises(ValueError) as raised:
        export_at_layer(trained, 2, tmp_path)
    assert one_line(raised.value) == snapshot


def test_no_place_of_this_machine_is_in_an_export(cache, tmp_path):
    data = str(write_glue(tmp_path / "glue", rows=40))
    trained = unlike_any_other(cache, "albert", "rte", data=data)
    places = {"backbone": f"{tmp_path}/trials/one/model-epoch-1", "start": f"{tmp_path}/trials/two/model-epoch-2"}
    trained = replace_spec(trained, tokenizer=f"{tmp_path}/words", **places)
    folder = exported(trained, tmp_path / "to")
    assert not [path for path in folder.iterdir() if str(tmp_path).encode() in path.read_bytes()]
    spec = load_trained(folder).spec
    assert (spec.data, spec.backbone, spec.tokenizer, spec.start) == ("glue", "model-epoch-1", "words", "model-epoch-2")


def replace_spec(trained: TrainedModel, **fields) -> TrainedModel:
    spec = replace(trained.spec, **fields)
    return TrainedModel(spec, trained.config, trained.task, trained.model, trained.tokenizer)


def test_what_transformers_cannot_express_is_refused(cache, tmp_path, snapshot):
    grouped = unlike_any_other(cache, "albert", "rte")
    grouped.model.encoder.configuration.num_hidden_groups = 2
    for trained in (unlike_any_other(cache, "albert", "rte", config=NYSTROM), grouped):
        with pytest.raises(ValueError) as raised:
            export_trained(trained, tmp_path)
        assert one_line(raised.value) == snapshot
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "config.json"])
@pytest.mark.parametrize("content", [None, b"{"])
def test_an_export_that_is_not_whole_is_refused_in_one_line(name, content, cache, tmp_path):
    folder = exported(unlike_any_other(cache, "palbert", "rte"), tmp_path / "to")
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    with pytest.raises(ValueError) as raised:
        load_trained(folder)
    assert one_line(raised.value).startswith(f"{folder}: the exported model cannot be read")


def test_heads_of_another_model_are_refused_in_one_line(cache, tmp_path, snapshot):
    one = exported(unlike_any_other(cache, "palbert", "rte"), tmp_path / "one")
    other = exported(unlike_any_other(cache, "pabee", "rte"), tmp_path / "other")
    (one / "heads.safetensors").write_bytes((other / "heads.safetensors").read_bytes())
    with pytest.raises(ValueError) as raised:
        load_trained(one)
    assert one_line(raised.value, tmp_path) == snapshot


def renamed(file: Path, rename: Callable[[str], str]) -> None:
    """Rename the weights of a file. `rename` returns "" for a weight to leave out."""
    weights = {rename(name): weight for name, weight in load_file(file).items()}
    save_file({name: weight for name, weight in weights.items() if name}, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    "changes",
    [{"num_hidden_layers": 1}, {"num_hidden_layers": 3}, {"vocab_size": 9}, {"auto_map": {"AutoModel": "own.Model"}}],
    ids=str,
)
def test_an_export_with_another_configuration_is_refused_in_one_line(changes, cache, tmp_path, snapshot):
    folder = exported(unlike_any_other(cache, "palbert", "rte", backbone="mini-bert"), tmp_path / "to")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(ValueError) as raised:
        load_trained(folder)
    assert one_line(raised.value, tmp_path) == snapshot


def test_an_export_with_a_prefix_is_refused_in_one_line(cache, tmp_path, snapshot):
    folder = exported(unlike_any_other(cache, "palbert", "rte"), tmp_path / "to")
    renamed(folder / "model.safetensors", lambda name: f"module.{name}")
    with pytest.raises(ValueError) as raised:
        load_trained(folder)
    assert one_line(raised.value, tmp_path) == snapshot


@pytest.fixture(scope="module")
def trained_folder(cache, tmp_path_factory):
    """The folder of a trial after its first epoch, and of its model."""
    run = TrainingRun(spec_of(task="rte"), cache=cache)
    run.run_epoch()
    folder = tmp_path_factory.mktemp("trial")
    run.save(folder)
    return folder, folder / "model-epoch-1"


@pytest.fixture
def trial(trained_folder, tmp_path):
    """A copy of that folder, and of its model."""
    folder = shutil.copytree(trained_folder[0], tmp_path / "trial")
    return folder, folder / trained_folder[1].name


RENAMING = pytest.mark.parametrize(
    "rename",
    [
        lambda name: f"module.{name}",
        lambda name: "" if name == "classifier.bias" else name,
        lambda name: "" if ".query." in name else name,
    ],
    ids=["prefix", "no classifier.bias", "no query"],
)


@RENAMING
def test_a_trials_model_under_other_names_is_refused_in_one_line(rename, trial, tmp_path, snapshot):
    _, model = trial
    renamed(model / "model.safetensors", rename)
    with pytest.raises(ValueError) as raised:
        load_trained(model)
    assert one_line(raised.value, tmp_path) == snapshot


@RENAMING
def test_a_trial_whose_selected_model_has_other_names_is_not_resumed(rename, trial, cache):
    folder, model = trial
    renamed(model / "model.safetensors", rename)
    with pytest.raises(UnreadableState, match=r"^[^\n]+ epoch 1 was damaged$"):
        TrainingRun.resume(folder, cache=cache)


@RENAMING
def test_a_trial_whose_state_has_other_names_is_not_resumed(rename, trial, cache, tmp_path, snapshot):
    folder, _ = trial
    state = read_state(folder)
    weights = {rename(name): weight for name, weight in state["model"].items()}
    write_state(folder, state | {"model": {name: weight for name, weight in weights.items() if name}})
    with pytest.raises(UnreadableState) as raised:
        TrainingRun.resume(folder, cache=cache)
    assert one_line(raised.value, tmp_path) == snapshot


def test_a_start_under_other_names_is_refused_in_one_line(trial, cache, tmp_path, snapshot):
    _, model = trial
    renamed(model / "model.safetensors", lambda name: f"module.{name}")
    with pytest.raises(ValueError) as raised:
        TrainingRun(spec_of("palbert", task="rte", start=str(model)), cache=cache)
    assert one_line(raised.value, tmp_path) == snapshot


@pytest.mark.parametrize(
    ("field", "value"), [("num_attention_heads", 4), ("hidden_act", "relu"), ("layer_norm_eps", 0.1)]
)
def test_a_start_from_another_architecture_is_refused(field, value, trial, cache, tmp_path, snapshot):
    _, model = trial
    description = json.loads((model / "model.json").read_text())
    description["encoder"][field] = value
    (model / "model.json").write_text(json.dumps(description))
    with pytest.raises(ValueError) as raised:
        TrainingRun(spec_of("palbert", task="rte", start=str(model)), cache=cache)
    assert one_line(raised.value, tmp_path) == snapshot
