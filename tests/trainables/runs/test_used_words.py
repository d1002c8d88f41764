"""Embeddings that no training example uses stay out of training: pytest tests/trainables/runs/test_used_words.py"""

from contextlib import nullcontext

import pytest
import torch
from helpers.configurations import config_of, values_of

import trainables
from trainables.data.examples import load_examples, tokenizer_of
from trainables.data.tasks import TASKS
from trainables.encoders.loading import load_encoder
from trainables.runs import training
from trainables.runs.optimiser import training_words
from trainables.runs.training import TrainingRun
from trainables.runs.trial import TrialSpec
from trainables.runs.trial_files import read_state


def trained(cache, folder, backbone="mini-albert"):
    config = values_of("palbert", "rte") | {"epochs": 1, "batch_size": 128, "max_length": 32}
    run = TrainingRun(
        TrialSpec(method="palbert", task="rte", config=config, seed=1, data="mini", backbone=backbone), cache=cache
    )
    row = run.run_epoch()
    run.save(folder)
    return row, read_state(folder)


def words_of(model, cache, *, weight_decay=0.0):
    task = TASKS["rte"]
    tokenizer = tokenizer_of("mini-bert", task, "mini")
    examples = load_examples(task, ("dev",), "mini", tokenizer, max_length=32, cache=cache)
    return examples, training_words(model, examples, weight_decay=weight_decay)


def model_of(family):
    torch.manual_seed(0)
    config = config_of("palbert", max_length=32)
    vocab_size = len(tokenizer_of("mini-bert", TASKS["rte"], "mini"))
    return trainables.load("palbert").build(
        config, load_encoder(f"mini-{family}", config, vocab_size=vocab_size), TASKS["rte"]
    )


@pytest.mark.slow
def test_a_trial_is_the_same_as_with_all_words(tmp_path, monkeypatch):
    row, ours = trained(tmp_path / "cache", tmp_path / "used")
    monkeypatch.setattr(training, "training_words", lambda *_, **__: nullcontext)
    row_of_all, with_all = trained(tmp_path / "cache", tmp_path / "all")
    assert row.train_loss == pytest.approx(row_of_all.train_loss, rel=1e-6)
    assert ours["model"].keys() == with_all["model"].keys()
    for name, weight in with_all["model"].items():
        torch.testing.assert_close(ours["model"][name], weight, rtol=0, atol=1e-6, msg=name)


def test_only_words_of_the_examples_are_trained_and_come_back(tmp_path):
    model = model_of("bert")
    examples, words = words_of(model, tmp_path)
    used = sorted({*examples.tokens.tolist(), examples.pad_token})
    table = model.encoder.embeddings.word_embeddings
    before, batch = table.weight.detach().clone(), examples.batch(torch.arange(8).numpy(), torch.device("cpu"))
    expected = model.eval().all_exits(batch).logits
    with words():
        weight = dict(model.named_parameters())["encoder.embeddings.word_embeddings.weight"]
        assert weight.shape == (len(used), before.shape[1]) and len(used) < len(before)
        assert torch.equal(model.all_exits(batch).logits, expected)
        with torch.no_grad():
            weight += 1
    assert model.encoder.embeddings.word_embeddings is table
    assert torch.equal(table.weight[used], before[used] + 1)
    rest = sorted(set(range(len(before))) - set(used))
    assert torch.equal(table.weight[rest], before[rest])


@pytest.mark.parametrize(("family", "weight_decay"), [("bert", 0.01), ("sharebert", 0.0)])
def test_all_words_are_trained_where_they_have_a_gradient_or_a_decay(family, weight_decay, tmp_path):
    model = model_of(family)
    table = model.encoder.embeddings.word_embeddings
    with words_of(model, tmp_path, weight_decay=weight_decay)[1]():
        assert model.encoder.embeddings.word_embeddings is table
