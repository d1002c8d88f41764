"""A pretraining run that can be trusted: pytest tests/trainables/pretraining/test_run.py"""

from __future__ import annotations

import math

import pytest
import torch
from helpers.corpora import WORDS, pretraining_spec, random_documents, write_corpus
from helpers.messages import one_line
from helpers.trials import assert_equal_weights, run_to_the_end, spec_of, untimed
from msgspec.structs import replace
from transformers import AlbertForSequenceClassification, AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel

from search_spaces import objectives as recipes
from trainables.pretraining.batches import PretrainingBatches
from trainables.pretraining.configuration import PretrainingSpec
from trainables.pretraining.run import PretrainingRun
from trainables.runs import random_numbers
from trainables.runs.trial import TrainingError, Unavailable, UnreadableState
from trainables.runs.trial_files import read_state, readable

pytestmark = pytest.mark.slow


def run_all(spec: PretrainingSpec, cache) -> PretrainingRun:
    run = PretrainingRun(spec, cache=cache)
    while not run.finished:
        run.run_epoch()
    return run


def resume(spec: PretrainingSpec, folder, cache) -> PretrainingRun:
    run = PretrainingRun(spec, cache=cache)
    with readable(folder):
        run.load(read_state(folder))
    return run


def weights_of(run: PretrainingRun, folder) -> dict[str, torch.Tensor]:
    run.save_state(folder)
    return read_state(folder)["model"]


@pytest.mark.parametrize(
    "objective", [pytest.param(name, marks=[pytest.mark.long] * (":" in name)) for name in recipes.list_recipes()]
)
def test_a_resumed_run_ends_as_one_that_never_stopped(objective, corpus, cache, tmp_path) -> None:
    spec = pretraining_spec(objective, corpus, hidden_dropout=0.1, steps=5)
    whole = run_all(spec, cache)
    run = PretrainingRun(spec, cache=cache)
    while not run.finished:
        run.run_epoch()
        run.save_state(tmp_path / "parts")
        torch.rand(3)
        run = resume(spec, tmp_path / "parts", cache)
    assert [row.steps for row in run.history] == [2, 4, 5]
    assert untimed(run.history) == untimed(whole.history)
    assert_equal_weights(weights_of(run, tmp_path / "one"), weights_of(whole, tmp_path / "two"))


@pytest.mark.parametrize(("objective", "scale_at_first"), [("albert-mlm", 2.0**18), ("electra-rtd", 2.0**14)])
def test_a_run_resumed_in_float16_ends_as_one_that_never_stopped(
    objective, scale_at_first, corpus, cache, tmp_path
) -> None:
    spec = pretraining_spec(objective, corpus, hidden_dropout=0.1, steps=6, precision="float16")
    whole, run = (PretrainingRun(spec, cache=cache) for _ in range(2))
    for each in (whole, run):
        each._optimiser._scaler._init_scale = scale_at_first  # so large that steps are skipped
    while not whole.finished:
        whole.run_epoch()
    while not run.finished:
        run.run_epoch()
        run.save_state(tmp_path / "parts")
        run = resume(spec, tmp_path / "parts", cache)
    scale = whole._optimiser.state()["scale"]
    assert 0 < scale["skipped"] < 6, scale
    assert run._optimiser.state()["scale"] == scale
    assert untimed(run.history) == untimed(whole.history) and whole.history[-1].steps == 6
    assert_equal_weights(weights_of(run, tmp_path / "one"), weights_of(whole, tmp_path / "two"))


def test_every_step_has_a_batch_of_its_own(corpus, cache, monkeypatch) -> None:
    steps, batch = [], PretrainingBatches.training_batch
    monkeypatch.setattr(
        PretrainingBatches,
        "training_batch",
        lambda self, step, seed: steps.append(step) or batch(self, step, seed=seed),
    )
    run_all(pretraining_spec("mlm", corpus, steps=5), cache)
    assert steps == [0, 1, 2, 3, 4]


def test_epochs_and_steps_draw_numbers_of_their_own(corpus, cache, monkeypatch) -> None:
    keys, derive = [], random_numbers._derive_seed
    monkeypatch.setattr(random_numbers, "_derive_seed", lambda *key: keys.append(key) or derive(*key))
    run_all(pretraining_spec("mlm", corpus, seed=7), cache)
    wanted = [("weights", 0), *(("masks", step) for step in range(4)), ("dropout", 1), ("dropout", 2)]
    assert sorted(key for key in keys if key[0] == 7 and key[1] != "order") == sorted((7, *key) for key in wanted)


def test_optimiser_has_the_settings_of_the_configuration(corpus, cache) -> None:
    settings = {"learning_rate": 3e-3, "adam_beta2": 0.98, "adam_epsilon": 1e-5, "weight_decay": 0.02}
    run = PretrainingRun(pretraining_spec("albert-mlm", corpus, optimizer="lamb", **settings), cache=cache)
    groups = run._optimiser._optimizer.param_groups
    assert {(own["initial_lr"], own["betas"], own["eps"]) for own in groups} == {(3e-3, (0.9, 0.98), 1e-5)}
    assert {(own["weight_decay"], own["max_weight_norm"]) for own in groups} == {(0.02, math.inf), (0.0, None)}


def test_another_seed_ends_elsewhere(corpus, cache, tmp_path) -> None:
    one, two = (run_all(pretraining_spec("mlm", corpus, seed=seed), cache) for seed in (1, 2))
    ours, theirs = weights_of(one, tmp_path / "one"), weights_of(two, tmp_path / "two")
    assert not any(torch.equal(ours[name], theirs[name]) for name in ours if name.endswith("dense.weight"))


def test_a_batch_in_parts_gives_the_same_steps(corpus, cache, tmp_path) -> None:
    whole, parts = (
        run_all(pretraining_spec("electra-rtd", corpus, gradient_accumulation=number), cache) for number in (1, 4)
    )
    ours, theirs = weights_of(whole, tmp_path / "one"), weights_of(parts, tmp_path / "two")
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], atol=1e-4, rtol=1e-3)
    assert [row.tokens for row in whole.history] == [row.tokens for row in parts.history]


@pytest.mark.parametrize("objective", recipes.list_recipes())
def test_the_model_that_is_left_is_one_of_transformers(objective, corpus, cache, tmp_path) -> None:
    run = run_all(pretraining_spec(objective, corpus), cache)
    folder = tmp_path / "model"
    run.save_model(folder)
    encoder, kept = AutoModel.from_pretrained(folder), run._model.kept.base_model.state_dict()
    assert all(torch.equal(value, kept[name]) for name, value in encoder.state_dict().items() if name in kept)
    assert len(AutoTokenizer.from_pretrained(folder)) == len(run._tokenizer)
    assert {path.name for path in folder.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert run.num_kept_parameters == sum(parameter.numel() for parameter in run._model.kept.parameters())


def test_a_trial_starts_from_the_model_that_is_left(corpus, cache, tmp_path) -> None:
    pretrained = run_all(pretraining_spec("albert-mlm", corpus, max_length=64), cache)
    pretrained.save_model(tmp_path)
    backbone = str(tmp_path)
    fine_tuned = run_to_the_end(
        spec_of("albert", backbone=backbone, config={"epochs": 1, "learning_rate": 1e-9}), cache
    )
    ours = fine_tuned._model.encoder.embeddings.word_embeddings.weight
    torch.testing.assert_close(ours, pretrained._model.kept.base_model.embeddings.word_embeddings.weight)


def test_sizes_that_cannot_be_shared_are_refused_before_the_corpus_is_tokenised(corpus, tmp_path) -> None:
    spec = pretraining_spec("alectra-rtd:bert-generator", corpus, generator_hidden_size=16)
    with pytest.raises(Unavailable, match="cannot be shared"):
        PretrainingRun(spec, cache=tmp_path)
    assert not [*tmp_path.iterdir()]


NYSTROM = {"attention": "nystrom", "num_landmarks": 4, "conv_kernel_size": 3}


def convolutions_of(model) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.named_parameters() if name.endswith(".convolution")}


@pytest.mark.parametrize("objective", recipes.list_recipes())
def test_every_encoder_is_pretrained_with_the_attention_that_is_asked_for(objective, corpus, cache) -> None:
    run = PretrainingRun(pretraining_spec(objective, corpus, **NYSTROM, learning_rate=1e-2), cache=cache)
    started = convolutions_of(run._model)
    assert {name.partition(".")[0] for name in started} == {name for name, _ in run._model.named_children()}
    assert all(not value.any() for value in started.values())
    run.run_epoch()
    assert all(value.any() for value in convolutions_of(run._model).values())
    models = [part for part in run._model.children() if isinstance(part, PreTrainedModel)]
    assert {model.config._attn_implementation for model in models} == {"nystrom"}


def test_trials_and_pretrainings_go_on_with_the_convolutions_that_are_left(corpus, cache, tmp_path, snapshot) -> None:
    spec = pretraining_spec("albert-mlm", corpus, **NYSTROM, max_length=64, learning_rate=1e-2)
    pretrained = run_all(spec, cache)
    pretrained.save_model(tmp_path)
    backbone, kept = str(tmp_path), convolutions_of(pretrained._model.kept.base_model)
    again = PretrainingRun(replace(spec, backbone=backbone), cache=cache)
    assert_equal_weights(convolutions_of(again._model.kept.base_model), kept)
    trial = spec_of("albert", backbone=backbone, config={"epochs": 1, "learning_rate": 1e-9, **NYSTROM})
    (ours,) = convolutions_of(run_to_the_end(trial, cache)._model).values()
    torch.testing.assert_close(ours, next(iter(kept.values())))
    with pytest.raises(Unavailable) as raised:
        PretrainingRun(replace(pretraining_spec("albert-mlm", corpus), backbone=backbone), cache=cache)
    assert one_line(raised.value, tmp_path) == snapshot


def test_resumed_nystrom_run_equals_uninterrupted(corpus, cache, tmp_path) -> None:
    spec = pretraining_spec("electra-rtd", corpus, **NYSTROM)
    whole, stopped = run_all(spec, cache), PretrainingRun(spec, cache=cache)
    stopped.run_epoch()
    stopped.save_state(tmp_path / "stopped")
    resumed = resume(spec, tmp_path / "stopped", cache)
    resumed.run_epoch()
    assert_equal_weights(weights_of(resumed, tmp_path / "one"), weights_of(whole, tmp_path / "two"))


def test_the_learning_rate_falls_as_the_configuration_says(corpus, cache) -> None:
    run = PretrainingRun(pretraining_spec("mlm", corpus, schedule="polynomial", decay_power=2.0), cache=cache)
    run.run_epoch()  # 2 of 4 steps, of which 1 is warm-up
    assert run._optimiser.learning_rate_after(2) == pytest.approx(run._config.learning_rate * (2 / 3) ** 2)


@pytest.mark.parametrize("objective", recipes.list_recipes())
def test_pretraining_goes_on_from_a_folder_with_its_heads(objective, corpus, cache, tmp_path) -> None:
    first = run_all(pretraining_spec(objective, corpus), cache)
    first.save_model(tmp_path)
    second = PretrainingRun(replace(first.spec, backbone=str(tmp_path)), cache=cache)
    assert_equal_weights(second._model.kept.state_dict(), first._model.kept.state_dict())
    assert second.new_parts == ["generator"] * ("rtd" in objective)


def test_heads_that_a_folder_lacks_stay_as_they_were_drawn(corpus, cache, tmp_path) -> None:
    run_all(pretraining_spec("electra-rtd", corpus), cache).save_model(tmp_path)
    spec = replace(pretraining_spec("mlm", corpus), backbone="mini-electra")
    drawn, run = PretrainingRun(spec, cache=cache), PretrainingRun(replace(spec, backbone=str(tmp_path)), cache=cache)
    assert run.new_parts == ["generator_predictions", "generator_lm_head"] and drawn.new_parts == []
    ours, theirs = (each._model.kept.generator_predictions.state_dict() for each in (run, drawn))
    assert_equal_weights(ours, theirs)


def test_a_pooler_that_a_folder_lacks_is_named_among_new_parts(corpus, cache, tmp_path) -> None:
    PretrainingRun(pretraining_spec("mlm", corpus), cache=cache).save_model(tmp_path)
    for objective, new_parts in {"albert-mlm": ["pooler", "sop_classifier"], "mlm": []}.items():
        spec = replace(pretraining_spec(objective, corpus), backbone=str(tmp_path))
        assert PretrainingRun(spec, cache=cache).new_parts == new_parts


@pytest.mark.parametrize("num_labels", [2, 3])
def test_classifier_of_another_task_is_not_loaded(num_labels, corpus, cache, tmp_path) -> None:
    first = PretrainingRun(pretraining_spec("alectra-rtd", corpus), cache=cache)
    first.save_model(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path, num_labels=num_labels)
    AlbertForSequenceClassification(config).save_pretrained(tmp_path)
    second = PretrainingRun(replace(first.spec, backbone=str(tmp_path)), cache=cache)
    assert second.new_parts == ["generator", "classifier"]
    assert_equal_weights(second._model.kept.classifier.state_dict(), first._model.kept.classifier.state_dict())


@pytest.mark.parametrize("objective", ["albert-mlm", "electra-rtd"])
def test_pretraining_learns(objective, tmp_path, cache) -> None:
    lengths = [(one, two) for one in range(3, 7) for two in range(3, 7)]
    documents = [[" ".join([word] * length) for length in pair] for word in WORDS for pair in lengths]  # one word each
    spec = pretraining_spec(
        objective, write_corpus(tmp_path, documents), **dict.fromkeys(("steps", "steps_per_epoch"), 80)
    )
    run = PretrainingRun(replace(spec, config={**spec.config, "learning_rate": 5e-3, "batch_size": 16}), cache=cache)
    assert run.run_epoch().score > {"albert-mlm": 2 / len(WORDS), "electra-rtd": 0.6}[objective]


def test_what_a_run_read_is_known(corpus, cache, tmp_path) -> None:
    run = PretrainingRun(pretraining_spec("mlm", corpus), cache=cache)
    other = PretrainingRun(pretraining_spec("mlm", write_corpus(tmp_path, random_documents(seed=1))), cache=cache)
    ours, theirs = run.content(), other.content()
    assert ours == PretrainingRun(run.spec, cache=cache).content()
    assert len(run._data.train) > 9 * len(run._data.held_out)
    assert ours.data_fingerprint != theirs.data_fingerprint and ours.tokens_digest != theirs.tokens_digest


def test_a_loss_that_is_not_finite_ends_the_run(corpus, cache) -> None:
    wild = {"learning_rate": 1e30, "gradient_clip": 0.0, "steps_per_epoch": 4}
    run = PretrainingRun(pretraining_spec("mlm", corpus, **wild), cache=cache)
    with pytest.raises(TrainingError, match=r"(nan|inf) at step \d .*; try a lower learning_rate$"):
        while not run.finished:
            run.run_epoch()


@pytest.mark.parametrize("objective", ["mlm", "electra-rtd"])
def test_weights_spoilt_by_the_last_step_end_the_run(objective, corpus, cache) -> None:
    wild = {"learning_rate": 1e30, "gradient_clip": 0.0, "schedule": "constant"}
    run = PretrainingRun(pretraining_spec(objective, corpus, steps=2, **wild), cache=cache)
    with pytest.raises(TrainingError, match=r"^held-out scores are not finite after step 2 "):
        run.run_epoch()
    assert run.history == []


def test_another_run_than_the_saved_one_is_refused(corpus, cache, tmp_path, snapshot) -> None:
    spec = pretraining_spec("mlm", corpus)
    PretrainingRun(spec, cache=cache).save_state(tmp_path)
    with pytest.raises(UnreadableState) as raised:
        resume(replace(spec, seed=2), tmp_path, cache)
    assert one_line(raised.value, tmp_path) == snapshot


def test_bad_input_is_refused_in_one_line(corpus, cache, tmp_path, snapshot) -> None:
    for spec in (
        pretraining_spec("mlm", str(tmp_path / "nowhere")),
        pretraining_spec("mlm", "hub:owner/name"),
        pretraining_spec("albert-mlm", write_corpus(tmp_path, [["one"], ["two"]])),
        replace(pretraining_spec("mlm", corpus), backbone="mini-gpt"),
        replace(pretraining_spec("albert-mlm", corpus), backbone="mini-bert"),
    ):
        with pytest.raises(Unavailable) as caught:
            PretrainingRun(spec, cache=cache)
        assert one_line(caught.value, tmp_path) == snapshot
