"""What every method must do on every backbone family. Run: pytest tests/trainables/test_methods.py

No method is named here: a new one is tested by existing.
"""

import functools

import pytest
import torch
from helpers.configurations import values_of
from safetensors.torch import load_file, save_file

import trainables
from trainables.data.glue import load_split
from trainables.data.tasks import TASKS
from trainables.encoders.backbones import MINI_BACKBONES
from trainables.encoders.loading import load_encoder, load_tokenizer
from trainables.models.exit_rules import apply_exit, sweep

pytestmark = [
    pytest.mark.parametrize("method", trainables.available()),
    pytest.mark.parametrize("backbone", MINI_BACKBONES),
]
NUM_EXAMPLES = 8


def config_of(method, task_name="rte", **changes):
    """The method's first grid point, with a learning rate for tiny untrained backbones."""
    values = values_of(method, task_name)
    values |= {field: 2e-3 for field, value in values.items() if field.endswith("learning_rate") and value is not None}
    return trainables.configure(method, values | {"max_length": 32} | changes)


@functools.cache
def examples(task_name):
    """A padded batch of mini-GLUE and the size of its vocabulary."""
    task = TASKS[task_name]
    split = load_split(task, task.train_split, "mini")
    columns = [list(column) for column in zip(*split.texts[:NUM_EXAMPLES])]
    tokenizer = load_tokenizer("mini-albert", texts=lambda: [text for column in columns for text in column])
    batch = dict(tokenizer(*columns, padding=True, truncation=True, max_length=32, return_tensors="pt"))
    return batch | {"labels": torch.tensor(split.labels[:NUM_EXAMPLES])}, len(tokenizer)


def model_of(method, backbone, task_name="rte", **changes):
    torch.manual_seed(0)
    config = config_of(method, task_name, **changes)
    encoder = load_encoder(backbone, config, vocab_size=examples(task_name)[1])
    return trainables.load(method).build(config, encoder, TASKS[task_name])


@functools.cache
def decisive_model(method, backbone, task_name="rte"):
    """A model with large random weights, so that examples differ and leave at different layers. Not to be changed."""
    model = model_of(method, backbone, task_name)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3, generator=generator)
    return model.eval()


def one_by_one(batch):
    return [{name: values[index : index + 1] for name, values in batch.items()} for index in range(NUM_EXAMPLES)]


def seeded():
    return torch.Generator().manual_seed(5)


def test_loss_decreases(method, backbone):
    """Without dropout, on one batch, from whatever the first draw of the weights says about it."""
    off = dict(hidden_dropout=0.0, classifier_dropout=0.0)
    model = model_of(method, backbone, "sst2", **off).train()
    batch, _ = examples("sst2")
    optimizer = torch.optim.AdamW(model.parameter_groups(config_of(method, "sst2", **off)), fused=True)
    losses = []
    for _ in range(20):
        loss = model.loss(batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.92 * losses[0]


def test_exit_layers_are_within_bounds(method, backbone):
    model = decisive_model(method, backbone)
    layers = model.infer(examples("rte")[0], seeded()).exit_layer
    assert 1 <= layers.min() and layers.max() <= model.encoder.num_layers


def test_examples_leave_at_different_layers_where_a_method_has_exits(method, backbone):
    model = decisive_model(method, backbone)
    results = sweep(model.sweep_rules(), model.all_exits(examples("rte")[0]))
    spreads = [len(result.exit_layer.unique()) for _, result in results]
    assert max(spreads, default=2) > 1


@pytest.mark.parametrize("task_name", ["rte", "stsb"])
def test_batched_equals_one_by_one(method, backbone, task_name):
    model = decisive_model(method, backbone, task_name)
    batch, _ = examples(task_name)
    batched = model.infer(batch, seeded())
    generator = seeded()
    alone = [model.infer(example, generator) for example in one_by_one(batch)]
    assert batched.exit_layer.tolist() == [result.exit_layer.item() for result in alone]
    torch.testing.assert_close(batched.logits, torch.cat([result.logits for result in alone]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("task_name", ["rte", "stsb"])
def test_compacted_equals_simulated(method, backbone, task_name):
    model = decisive_model(method, backbone, task_name)
    batch, _ = examples(task_name)
    compacted = model.infer(batch, seeded())
    simulated = apply_exit(model.exit_rule, model.all_exits(batch), seeded())
    assert compacted.exit_layer.tolist() == simulated.exit_layer.tolist()
    assert compacted.logits.argmax(dim=1).tolist() == simulated.logits.argmax(dim=1).tolist()
    torch.testing.assert_close(compacted.logits, simulated.logits, rtol=1e-4, atol=1e-4)


def test_every_setting_of_the_sweep_equals_inference_with_it(method, backbone, monkeypatch):
    model = decisive_model(method, backbone)
    batch, _ = examples("rte")
    for rule, simulated in sweep(model.sweep_rules(), model.all_exits(batch)):
        monkeypatch.setattr(model, "exit_rule", rule)
        assert model.infer(batch).exit_layer.tolist() == simulated.exit_layer.tolist()


def test_saved_weights_give_the_same_numbers(method, backbone, tmp_path):
    model = decisive_model(method, backbone)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = model_of(method, backbone).eval()
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    batch, _ = examples("rte")
    assert torch.equal(other.all_exits(batch).logits, model.all_exits(batch).logits)
    assert torch.equal(other.infer(batch, seeded()).exit_layer, model.infer(batch, seeded()).exit_layer)


def test_evaluation_has_no_dropout(method, backbone):
    model = model_of(method, backbone, hidden_dropout=0.5, classifier_dropout=0.5).eval()
    batch, _ = examples("rte")
    assert torch.equal(model.all_exits(batch).logits, model.all_exits(batch).logits)


def test_every_trained_parameter_is_in_one_group(method, backbone):
    model = model_of(method, backbone, weight_decay=0.01)
    groups = model.parameter_groups(config_of(method, weight_decay=0.01))
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(id(parameter) for parameter in model.parameters() if parameter.requires_grad)
    assert all(group["lr"] > 0 and group["name"] for group in groups)
    decayed = [parameter for group in groups if group["weight_decay"] for parameter in group["params"]]
    assert decayed and all(parameter.ndim > 1 for parameter in decayed)


def test_every_trained_parameter_has_a_gradient(method, backbone):
    model = model_of(method, backbone)
    batch, _ = examples("rte")
    logits, exit_logits = model.heads(batch)
    loss = model.task_losses(logits, batch["labels"]).mean()
    (loss if exit_logits is None else loss + exit_logits.sum()).backward()
    untouched = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert not untouched


def test_bfloat16_keeps_logits_and_lambdas_in_float32(method, backbone):
    model = model_of(method, backbone, precision="bfloat16")
    batch, _ = examples("rte")
    with model.computing(batch):
        loss = model.loss(batch)["loss"]
    loss.backward()
    outputs = model.eval().all_exits(batch)
    kept = [loss, outputs.logits] + ([] if outputs.lambdas is None else [outputs.lambdas])
    assert {tensor.dtype for tensor in kept} == {torch.float32}
    assert all(tensor.isfinite().all() for tensor in kept)


def test_first_layers_alone_can_be_trained(method, backbone):
    model = model_of(method, backbone, num_hidden_layers=2)
    batch, _ = examples("rte")
    model.loss(batch)["loss"].backward()
    assert model.eval().all_exits(batch).logits.shape == (2, NUM_EXAMPLES, 2)
