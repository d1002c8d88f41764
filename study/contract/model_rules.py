"""Rules that a method's model must satisfy on every backbone family. Each rule is a function that raises `RuleBroken`.

`study.check_method` and the tests check methods against `RULES`, on generated data and tiny untrained backbones.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import trainables
from study.contract.space_rules import Method, RuleBroken, require
from trainables.configuration import TrainingConfig
from trainables.data.glue import load_split
from trainables.data.tasks import GLUE_TASKS, TASKS
from trainables.encoders.loading import load_encoder, load_tokenizer
from trainables.models.answer_rules import check_rules
from trainables.models.early_exit import Batch, EarlyExitModel
from trainables.models.exit_rules import ExitResult, Step, apply_exit, describe_rule
from trainables.runs.random_numbers import seeded_random

NUM_EXAMPLES = 8


@dataclass(frozen=True)
class Subject:
    """A method to check, and a tiny untrained backbone for its models."""

    method: str
    backbone: str
    _decisive: dict[str, EarlyExitModel] = field(default_factory=dict, compare=False)  # by task
    _tasks: list[str] = field(default_factory=list, compare=False)  # tasks of the models so far

    def describe(self) -> str:
        """Name the task of the latest model, and the backbone."""
        return f"on {' with '.join([*self._tasks[-1:], self.backbone])}"

    @property
    def tasks(self) -> list[str]:
        """Up to two tasks that the method accepts: a classification task (RTE if possible) and STS-B."""
        method = Method(self.method)
        fitting = [task for task in GLUE_TASKS if method.refuses(task) is None]
        classes = [task for task in ("rte", *fitting) if task in fitting and not TASKS[task].is_regression]
        return [*classes[:1], *(task for task in fitting if TASKS[task].is_regression)]

    def config(self, task: str, **changes: Any) -> TrainingConfig:
        """Build a configuration for a tiny backbone; `changes` maps fields to other values."""
        values = Method(self.method).values(task)
        values |= {name: 2e-3 for name, value in values.items() if name.endswith("learning_rate") and value is not None}
        return trainables.configure(self.method, values | {"max_length": 32} | changes)

    def model(self, task: str, **changes: Any) -> EarlyExitModel:
        """Build the method's model with weights from seed 0."""
        self._tasks.append(task)
        torch.manual_seed(0)
        config = self.config(task, **changes)
        encoder = load_encoder(self.backbone, config, vocab_size=examples(task)[1])
        return trainables.load_method(self.method).build(config, encoder, TASKS[task])

    def decisive_model(self, task: str) -> EarlyExitModel:
        """Return a model with large random weights, so that examples exit at different layers.

        The model is cached and must not be modified.
        """
        self._tasks.append(task)
        if task in self._decisive:
            return self._decisive[task]
        model = self._decisive[task] = self.model(task)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(std=0.3, generator=generator)
        return model.eval()


@functools.cache
def examples(task_name: str) -> tuple[Batch, int]:
    """Return a padded batch from the task's generated data (mini-GLUE), and the size of the vocabulary."""
    task = TASKS[task_name]
    split = load_split(task, task.train_split, "mini")
    columns = [list(column) for column in zip(*split.texts[:NUM_EXAMPLES], strict=True)]
    tokenizer = load_tokenizer("mini-albert", texts=lambda: [text for column in columns for text in column])
    batch = dict(tokenizer(*columns, padding=True, truncation=True, max_length=32, return_tensors="pt"))
    assert split.labels is not None
    return batch | {"labels": torch.tensor(split.labels[:NUM_EXAMPLES])}, len(tokenizer)


def what_is_returned_can_be_used(subject: Subject) -> None:
    """Check that build returns a model, loss returns a dict with a finite loss, and rule.step returns a Step."""
    for task in subject.tasks:
        model, batch = subject.model(task), examples(task)[0]
        require(isinstance(model, EarlyExitModel), f"build returned {_kind(model)}; allowed: an EarlyExitModel")
        outcome, allowed = model.loss(batch), 'allowed: a dict with "loss"'
        require(isinstance(outcome, dict), f"loss returned {_kind(outcome)}; {allowed}", model.loss)
        require("loss" in outcome, f"loss returned a dict with {sorted(outcome)}; {allowed}", model.loss)
        loss = outcome["loss"]
        is_scalar = isinstance(loss, torch.Tensor) and loss.ndim == 0
        shape = f" of shape {tuple(loss.shape)}" * isinstance(loss, torch.Tensor)
        require(is_scalar, f"loss is {_kind(loss)}{shape}; allowed: a Tensor with a single number", model.loss)
        is_finite = bool(loss.isfinite())
        require(
            is_finite, f"loss is {loss.item()} on {task} before any training step; allowed: a finite loss", model.loss
        )
        outputs = model.eval().all_exits(batch)
        first, lambdas = outputs.logits[0], None if outputs.exit_head is None else outputs.exit_head[0]
        try:
            check_rules(model)
        except ValueError as error:
            raise RuleBroken(str(error)) from None
        for rule in (model.exit_rule, *model.sweep_rules()):
            state = rule.start(len(outputs.logits), first, _seeded())
            step = rule.step(state, 1, len(outputs.logits), first, lambdas)
            require(
                isinstance(step, Step), f"step of {rule.name} returned {_kind(step)}; allowed: a Step", type(rule).step
            )


def loss_decreases(subject: Subject) -> None:
    """Check that training on one batch without dropout decreases the loss."""
    task = subject.tasks[0] if Method(subject.method).refuses("sst2") else "sst2"
    off = {"hidden_dropout": 0.0, "classifier_dropout": 0.0}
    model = subject.model(task, **off)
    batch, _ = examples(task)
    optimizer = torch.optim.AdamW(model.parameter_groups(subject.config(task, **off)), fused=True)
    first = _seeded_loss(model, batch)
    for _ in range(20):
        loss = model.train().loss(batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.after_step()
    last = _seeded_loss(model, batch)
    require(last < 0.92 * first, f"loss was {first:.3f} before and is {last:.3f} after 20 training steps on one batch")


def _seeded_loss(model: EarlyExitModel, batch: Batch) -> float:
    """Compute the loss in evaluation mode, from the same random numbers at each call."""
    with seeded_random(0, "loss", 0, torch.device("cpu")):
        return model.eval().loss(batch)["loss"].item()


def examples_exit_at_different_layers(subject: Subject) -> None:
    """Check that examples exit at different layers under at least one rule of sweep_rules."""
    model = subject.decisive_model(subject.tasks[0])
    outputs = model.all_exits(examples(subject.tasks[0])[0])
    spreads = [len(apply_exit(rule, outputs).exit_layer.unique()) for rule in model.sweep_rules()]
    require(max(spreads, default=2) > 1, f"all examples exit at the same layer under each of the {len(spreads)} rules")


def batched_equals_one_by_one(subject: Subject) -> None:
    """Check that inference on a batch gives the same logits and exit layers as inference on each example alone."""
    for task in subject.tasks:
        model = subject.decisive_model(task)
        batch, _ = examples(task)
        generator = _seeded()
        examples_alone = ({name: values[n : n + 1] for name, values in batch.items()} for n in range(NUM_EXAMPLES))
        results = [model.infer(example, generator) for example in examples_alone]
        alone = ExitResult(
            *(torch.cat([getattr(result, name) for result in results]) for name in ("logits", "exit_layer"))
        )
        _require_same(model.infer(batch, _seeded()), alone, f"on {task}, in a batch and one by one")


def inference_equals_the_exit_on_all_layers(subject: Subject) -> None:
    """Check that inference gives the same logits and exit layers as running all layers and then choosing the exits."""
    for task in subject.tasks:
        model, (batch, _) = subject.decisive_model(task), examples(task)
        outputs = model.all_exits(batch)
        for rule in (model.exit_rule, *model.sweep_rules()):
            case = f"on {task} with {describe_rule(rule)}, in inference and from the outputs of all layers"
            _require_same(model.infer(batch, _seeded(), rule), apply_exit(rule, outputs, _seeded()), case)


def saved_weights_give_the_same_numbers(subject: Subject) -> None:
    """Check that saved weights, loaded into a new model, give the same logits and exit layers."""
    task = subject.tasks[0]
    model, other, batch = subject.decisive_model(task), subject.model(task).eval(), examples(task)[0]
    with tempfile.TemporaryDirectory() as folder:
        weights = {name: weight.clone() for name, weight in model.state_dict().items()}  # tied weights share memory
        save_file(weights, Path(folder) / "model.safetensors")
        other.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    require(
        torch.equal(other.all_exits(batch).logits, model.all_exits(batch).logits),
        "the saved model and the loaded model give different logits",
    )
    layers = [loaded.infer(batch, _seeded()).exit_layer for loaded in (other, model)]
    require(torch.equal(*layers), "the saved model and the loaded model give different exit layers")


def evaluation_has_no_dropout(subject: Subject) -> None:
    """Check that dropout is off in evaluation mode."""
    task = subject.tasks[0]
    model = subject.model(task, hidden_dropout=0.5, classifier_dropout=0.5).eval()
    first, second = (model.all_exits(examples(task)[0]).logits for _ in range(2))
    require(torch.equal(first, second), "two evaluations of the same batch give different logits")


def every_trained_parameter_is_in_one_group(subject: Subject) -> None:
    """Check that every trained parameter is in one optimizer group, and every group has a learning rate and a name."""
    task = subject.tasks[0]
    model = subject.model(task, weight_decay=0.01)
    groups = model.parameter_groups(subject.config(task, weight_decay=0.01))
    grouped = sorted(id(parameter) for group in groups for parameter in group["params"])
    trained = sorted(id(parameter) for parameter in model.parameters() if parameter.requires_grad)
    require(
        grouped == trained,
        f"optimizer groups have {len(grouped)} parameters; allowed: the {len(trained)} trained parameters, each once",
    )
    require(
        all(group["lr"] > 0 and group["name"] for group in groups), "an optimizer group has no learning rate or no name"
    )
    decayed = [parameter for group in groups if group["weight_decay"] for parameter in group["params"]]
    require(
        bool(decayed) and all(parameter.ndim > 1 for parameter in decayed),
        "weight decay applies to no parameter, or to a parameter that is not a matrix",
    )


def every_trained_parameter_has_a_gradient(subject: Subject) -> None:
    """Check that every trained parameter has a gradient."""
    model = subject.model(subject.tasks[0])
    batch, _ = examples(subject.tasks[0])
    logits, exit_logits = model.heads(batch)
    loss = model.task_losses(logits, batch["labels"]).mean()
    (loss if exit_logits is None else loss + exit_logits.sum()).backward()
    untouched = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    require(not untouched, f"these parameters have no gradient: {', '.join(untouched)}")


def half_precision_keeps_logits_and_lambdas_in_float32(subject: Subject) -> None:
    """Check that losses, logits and λ are float32 and finite when the model computes in bfloat16 or float16."""
    task = subject.tasks[0]
    batch, _ = examples(task)
    for precision in ("bfloat16", "float16"):
        model = subject.model(task, precision=precision)
        with model.computing(batch):
            loss = model.loss(batch)["loss"]
        loss.backward()
        outputs = model.eval().all_exits(batch)
        kept = [loss, outputs.logits] + ([] if outputs.exit_head is None else [outputs.exit_head])
        require(
            {tensor.dtype for tensor in kept} == {torch.float32},
            f"in {precision}, the loss, the logits and λ have types {[str(t.dtype) for t in kept]}; allowed: float32",
        )
        for name, tensor in zip(("a loss", "a logit", "a λ"), kept, strict=False):
            require(bool(tensor.isfinite().all()), f"in {precision}, {name} is not finite")


def first_layers_alone_can_be_trained(subject: Subject) -> None:
    """Check that num_hidden_layers=2 gives a model of two layers that can be trained."""
    task = subject.tasks[0]
    model = subject.model(task, num_hidden_layers=2)
    batch, _ = examples(task)
    model.loss(batch)["loss"].backward()
    shape, expected = tuple(model.eval().all_exits(batch).logits.shape), (2, NUM_EXAMPLES, TASKS[task].num_labels)
    require(shape == expected, f"logits have shape {shape}; allowed: {expected} (layers, batch, labels)")


def heads_read_what_pooling_says(subject: Subject) -> None:
    """Check that the model can be trained, and exits as on all layers, with pooling=first and pooling=mean."""
    task, rows = subject.tasks[0], examples(subject.tasks[0])[0]
    for pooling in ("first", "mean"):
        try:
            subject.config(task, pooling=pooling)
        except ValueError:  # the method's Config refuses it
            continue
        model = subject.model(task, pooling=pooling)
        model.loss(rows)["loss"].backward()
        outputs = model.eval().all_exits(rows)
        case = f"on {task} with pooling {pooling}, in inference and from the outputs of all layers"
        _require_same(model.infer(rows, _seeded()), apply_exit(model.exit_rule, outputs, _seeded()), case)


RULES: tuple[Callable[[Subject], None], ...] = (
    what_is_returned_can_be_used,
    loss_decreases,
    examples_exit_at_different_layers,
    batched_equals_one_by_one,
    inference_equals_the_exit_on_all_layers,
    saved_weights_give_the_same_numbers,
    evaluation_has_no_dropout,
    every_trained_parameter_is_in_one_group,
    every_trained_parameter_has_a_gradient,
    half_precision_keeps_logits_and_lambdas_in_float32,
    first_layers_alone_can_be_trained,
    heads_read_what_pooling_says,
)


def _kind(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def _require_same(result: ExitResult, expected: ExitResult, case: str) -> None:
    layers = result.exit_layer.tolist(), expected.exit_layer.tolist()
    require(layers[0] == layers[1], f"{case}, examples exit at layers {layers[0]} and {layers[1]}")
    is_close = torch.allclose(result.logits, expected.logits, rtol=1e-4, atol=1e-4)
    require(is_close, f"{case}, logits differ by {float((result.logits - expected.logits).abs().max()):.2g}")
