"""The models without a Λ head: ALBERT, PABEE, ELECTRA-small. Run: pytest tests/trainables/models/test_classifiers.py"""

import pytest
import torch
from helpers.configurations import config_of
from helpers.walked_layers import walk
from transformers import AutoConfig, BertConfig, BertForSequenceClassification
from transformers.models.electra.modeling_electra import ElectraClassificationHead
from transformers.models.roberta.modeling_roberta import RobertaClassificationHead

import trainables
from trainables.data.tasks import TASKS
from trainables.encoders.loading import load_encoder


def model_of(method, backbone="mini-electra", task="rte", **changes):
    config = config_of(method, task, max_length=16, **changes)
    torch.manual_seed(0)
    encoder = load_encoder(backbone, config, vocab_size=30)
    return trainables.load_method(method).build(config, encoder, TASKS[task]).eval(), config


def batch_of(labels):
    ids = torch.randint(5, 30, (len(labels), 9), generator=torch.Generator().manual_seed(2))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.tensor(labels)}


def rates(model, config):
    """Learning rate by depth, of the groups with weight decay."""
    return {
        int(group["name"].removeprefix("depth ")): group["lr"]
        for group in model.parameter_groups(config)
        if "no decay" not in group["name"]
    }


def test_learning_rates_of_the_paper_s_layer_decay():
    model, config = model_of("electra-small", learning_rate=1.0, layer_decay_convention="paper")
    assert rates(model, config) == pytest.approx({depth: 0.8 ** (7 - depth) for depth in range(8)})


def test_released_layer_decay_is_one_step_further_down_below_the_head():
    model, config = model_of("electra-small", learning_rate=1.0, layer_decay_convention="released")
    assert rates(model, config) == pytest.approx({7: 1.0} | {depth: 0.8 ** (8 - depth) for depth in range(7)})


def test_shared_layers_take_the_learning_rate_of_their_last_use():
    model, config = model_of("electra-small", "mini-albert", learning_rate=1.0, layer_decay_convention="paper")
    assert rates(model, config) == pytest.approx({7: 1.0, 6: 0.8, 0: 0.8**7})


def test_without_layer_decay_all_learn_at_one_rate():
    model, config = model_of("albert")
    assert {group["lr"] for group in model.parameter_groups(config)} == {config.learning_rate}


def test_electra_s_first_token_head_leaves_the_pooler_alone():
    model, _ = model_of("electra-small", head="first_token")
    batch = batch_of([0, 1])
    *_, states = walk(model.encoder, input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    torch.testing.assert_close(model.all_exits(batch).logits[-1], model.classifier(states.first()))
    assert not any(parameter.requires_grad for parameter in model.encoder.pooler.parameters())


def test_electra_s_pooled_head_is_that_of_transformers():
    model, _ = model_of("electra-small", head="pooled")
    other, _ = model_of("albert")
    other.load_state_dict(model.state_dict())
    batch = batch_of([0, 1])
    assert torch.equal(model.all_exits(batch).logits, other.all_exits(batch).logits)


def test_lmtuners_electra_is_read_as_by_bert_for_sequence_classification(tmp_path):
    """As the README loads it: the pooler is the checkpoint's."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    other = BertForSequenceClassification(BertConfig(vocab_size=30, max_position_embeddings=16, **sizes)).eval()
    other.base_model.save_pretrained(tmp_path)
    model, _ = model_of("electra-small:lmtuners", str(tmp_path))
    model.classifier.load_state_dict(other.classifier.state_dict())
    batch = batch_of([0, 1])
    theirs = other(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    torch.testing.assert_close(model.all_exits(batch).logits[-1], theirs)
    assert all(parameter.requires_grad for parameter in model.encoder.pooler.parameters())


@pytest.mark.parametrize(
    ("backbone", "kind"), [("electra", ElectraClassificationHead), ("roberta", RobertaClassificationHead)]
)
def test_pooled_heads_in_training_are_those_of_transformers(backbone, kind):
    """Dropout below the dense layer and above it, of the configuration's rate."""
    model, _ = model_of("electra-small", f"mini-{backbone}", head="pooled", classifier_dropout=0.4)
    head = kind(AutoConfig.for_model(backbone, hidden_size=32, num_labels=2, classifier_dropout=0.4)).train()
    head.dense.load_state_dict(model.encoder.pooler.state_dict())
    head.out_proj.load_state_dict(model.classifier.state_dict())
    hidden = torch.randn(16, 5, 32, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(3)
    expected = head(hidden)
    torch.manual_seed(3)
    logits, _, _ = model.train().exit_heads(5, hidden[None, :, 0], None)
    assert torch.equal(logits[0], expected)


@pytest.mark.parametrize("seed", range(3))
def test_electra_first_token_head_is_a_tensorflow_dense(seed):
    """Uniform within sqrt(6 / (inputs + outputs)), bias 0; `transformers`' normal of 0.02 is a fifth as wide."""
    config = config_of("electra-small", "rte", max_length=16, head="first_token")
    torch.manual_seed(seed)
    model = trainables.load_method("electra-small").build(
        config, load_encoder("mini-electra", config, vocab_size=30), TASKS["rte"]
    )
    bound = (6 / (32 + 2)) ** 0.5
    weights = model.classifier.weight
    assert 0.9 * bound < weights.abs().max() <= bound and not model.classifier.bias.any()
    assert weights.std().item() == pytest.approx(bound / 3**0.5, rel=0.25)


@pytest.mark.parametrize(("task", "labels"), [("rte", [0, 1, 1]), ("stsb", [0.5, 5.0, 2.0])])
def test_pabee_weighs_layers_by_their_depth(task, labels):
    model, _ = model_of("pabee", task=task)
    batch = batch_of(labels)
    expected = 0.0
    for layer, logits in enumerate(model.all_exits(batch).logits, start=1):
        if task == "rte":
            expected += layer * torch.nn.functional.cross_entropy(logits, batch["labels"]).item()
        else:
            expected += layer * torch.nn.functional.mse_loss(logits[:, 0], batch["labels"]).item()
    assert model.loss(batch)["loss"].item() == pytest.approx(expected / 21)


def test_albert_s_loss_is_of_the_last_layer():
    model, _ = model_of("albert")
    batch = batch_of([0, 1, 1])
    expected = torch.nn.functional.cross_entropy(model.all_exits(batch).logits[-1], batch["labels"])
    torch.testing.assert_close(model.loss(batch)["loss"], expected)


def test_classifier_dropout_is_on_the_pooled_output_in_training_only():
    model, _ = model_of("albert", classifier_dropout=0.5)
    batch = batch_of([0, 1, 1])
    assert torch.equal(model.loss(batch)["loss"], model.loss(batch)["loss"])
    model.train()
    assert not torch.equal(model.loss(batch)["loss"], model.loss(batch)["loss"])


def test_heads_of_layers_after_which_nobody_may_leave_are_run_together(monkeypatch):
    model, _ = model_of("pabee", "mini-albert", patience=4)
    calls, heads = [], model.exit_heads
    monkeypatch.setattr(model, "exit_heads", lambda *given: calls.append((given[0], len(given[1]))) or heads(*given))
    model.infer(batch_of([0, 1]))
    assert calls[0] == (0, 5) and calls[1:] in ([], [(5, 1)])
