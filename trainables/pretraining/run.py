"""One pretraining run, in a plain Python process. After each epoch, the model is scored on held-out text.

On a CPU, the same spec and number of threads give the same weights bit for bit, even if the run is resumed. Batches,
masks and samples depend only on the seed and the step. Dropout depends only on the seed and the epoch.

If `torch.distributed` is initialised, each process computes the losses of an equal share of the batch. Every process
makes the whole batch, has the same state and computes all held-out scores, so any process can save the run. The number
of processes affects the weights only through rounding and dropout.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from trainables.configuration.schema import from_plain, to_plain
from trainables.data.examples import on_device
from trainables.encoders.backbone_files import backbone_digest, backbone_fingerprint
from trainables.encoders.loading import quiet_transformers
from trainables.encoders.weights import check_fit
from trainables.files.atomic_files import add_files
from trainables.models.devices import backward_precision, check_precision, forward_precision
from trainables.models.early_exit import Batch
from trainables.pretraining import objectives
from trainables.pretraining.batches import Arrays, PretrainingData, load_pretraining_tokenizer
from trainables.pretraining.configuration import PretrainingRow, PretrainingSpec
from trainables.pretraining.corpus import corpus_fingerprint
from trainables.pretraining.models import PretrainingModel, Totals, begin_with, encoder_configuration
from trainables.runs.optimiser import Optimiser, decay_groups
from trainables.runs.random_numbers import seeded_random
from trainables.runs.training_errors import FiniteLosses, naming_memory_errors
from trainables.runs.trial import Content, reading_inputs
from trainables.runs.trial_files import check_same, disk_errors, write_state

# The fields of a spec that identify the run; the remaining fields locate its inputs.
_IDENTITY = ("objective", "config", "seed")

# Models that are shared by several processes, kept until this process ends. Their destructor holds Python's global lock
# while it waits for a thread of Gloo; this thread may need the lock to release its last tensors.
_KEPT: list[DistributedDataParallel] = []


class PretrainingRun:
    """A pretraining run in progress. It can be saved after each epoch and resumed in another process.

    `history` holds one row per finished epoch. `new_parts` names the parts of the model that a pretrained backbone
    lacks.
    """

    def __init__(self, spec: PretrainingSpec, *, device: str = "cpu", cache: Path) -> None:
        """Prepare a new run.

        Args:
            device: `cpu`, `cuda` or `cuda:N`.
            cache: folder of tokenised corpora, shared by all runs of a machine.

        Raises:
            Unavailable: the corpus or the backbone is missing, or the device does not support the precision.
            ValueError: the spec has an invalid value, or the processes cannot share a batch equally.
        """
        self.spec = from_plain(PretrainingSpec, to_plain(spec), where="a pretraining run's spec")
        self.history: list[PretrainingRow] = []
        self._device = torch.device(device)
        self._config = objectives.configure(spec.objective, spec.config)
        with reading_inputs():
            check_precision(self._config.precision, self._device)
        is_shared = distributed.is_available() and distributed.is_initialized()
        self._num_processes = distributed.get_world_size() if is_shared else 1
        self._rank = distributed.get_rank() if is_shared else 0
        self._examples_at_once = self._config.examples_at_once(self._num_processes)
        self._tokenizer = load_pretraining_tokenizer(spec)
        self._model, self.new_parts = self._new_model()  # before the corpus, which may take hours to tokenise
        order = objectives.load_objective(spec.objective).ORDER
        self._data = PretrainingData(spec.corpus, self._tokenizer, self._config, order=order, cache=cache)
        self._model.to(self._device)
        self._loss: PretrainingModel | DistributedDataParallel = self._model
        if self._num_processes > 1:
            # Some parameters are unused, e.g. ShareBERT's pooler. Buffers are constants, so they need no broadcast.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # broadcast_buffers is deprecated, but only it skips the first sync too
                self._loss = DistributedDataParallel(self._model, find_unused_parameters=True, broadcast_buffers=False)
            _KEPT.append(self._loss)
        self._optimiser = Optimiser(
            self._model,
            decay_groups(self._model, self._config.weight_decay),
            self._config,
            num_steps=self._config.steps,
            warmup_steps=self._config.warmup_steps,
            kind=self._config.optimizer,
            betas=(0.9, self._config.adam_beta2),
        )

    def state(self) -> dict[str, Any]:
        """Return all state that the next epoch needs, as tensors, numbers, strings, lists and dicts."""
        return {
            "spec": to_plain(self.spec),
            "history": to_plain(self.history),
            "model": self._model.state_dict(),
            **self._optimiser.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore the run from the result of the method `state`.

        Raises:
            ValueError, KeyError, RuntimeError: the state belongs to another run.
        """
        check_same(from_plain(PretrainingSpec, state["spec"], where="the saved spec"), self.spec, _IDENTITY)
        history = from_plain(list[PretrainingRow], state["history"], where="the saved history")
        check_fit(self._model, state["model"], has="the saved run")
        self._model.load_state_dict(state["model"])
        self._optimiser.load(state)
        self.history = history

    @property
    def finished(self) -> bool:
        """True once all steps are done."""
        return bool(self.history) and self.history[-1].finished

    @property
    def num_parameters(self) -> int:
        """Number of trained parameters. A parameter that is shared counts once."""
        return sum(parameter.numel() for parameter in self._model.parameters())

    @property
    def num_kept_parameters(self) -> int:
        """Number of parameters that are saved as the backbone."""
        return sum(parameter.numel() for parameter in self._model.kept.parameters())

    def run_epoch(self, on_step: Callable[[int], object] = lambda step: None) -> PretrainingRow:
        """Train for at most `steps_per_epoch` steps, and return the epoch's row with held-out scores.

        Args:
            on_step: called after each step with the number of steps so far.

        Raises:
            TrainingError: the loss or a held-out score is not finite, or memory runs out.
        """
        assert not self.finished
        before = self.history[-1] if self.history else None
        steps = min(self._config.steps, (before.steps if before else 0) + self._config.steps_per_epoch)
        began = time.monotonic()
        train_loss, tokens = self._train(steps, on_step)
        trained = time.monotonic()
        scores = self.held_out_scores()
        if not all(map(math.isfinite, scores.values())):  # the last step may have spoilt the weights
            raise self._optimiser.diverged("held-out scores are not finite")
        row = PretrainingRow(
            epoch=len(self.history) + 1,
            score=scores[self._model.score_name],
            scores=scores,
            steps=steps,
            examples=steps * self._config.batch_size,
            tokens=(before.tokens if before else 0) + tokens,
            train_loss=train_loss,
            train_seconds=(before.train_seconds if before else 0.0) + trained - began,
            eval_seconds=(before.eval_seconds if before else 0.0) + time.monotonic() - trained,
            finished=steps == self._config.steps,
        )
        self.history.append(row)
        return row

    @torch.no_grad()
    def held_out_scores(self) -> dict[str, float]:
        """Compute the held-out scores of the current model, by name. This also works before the first step."""
        self._model.eval()
        size = self._examples_at_once
        batches = self._data.held_out.held_out_batches(size * self._num_processes)
        parts = (_take(arrays, start, size) for arrays in batches for start in range(0, len(arrays["labels"]), size))
        with naming_memory_errors(size), self._computing():
            return self._model.scores(self._make_batch(part) for part in parts)

    def content(self) -> Content:
        """Return fingerprints of the corpus, tokens, backbone and tokenizer."""
        spec = self.spec
        return Content(
            data_fingerprint=corpus_fingerprint(spec.corpus),
            tokens_digest=self._data.digest,
            backbone_fingerprint=backbone_fingerprint(spec.backbone),
            backbone_digest=backbone_digest(spec.backbone),
            tokenizer_fingerprint=spec.tokenizer and backbone_fingerprint(spec.tokenizer, kind="tokenizer"),
        )

    def save_state(self, folder: Path) -> None:
        """Replace the saved state in `folder` atomically.

        Raises:
            OSError: the state cannot be written.
        """
        with disk_errors(folder):
            write_state(folder, self.state())

    def save_model(self, folder: Path) -> None:
        """Save weights, configuration and tokenizer in `folder`, in the format of `transformers`.

        Raises:
            OSError: the model cannot be written.
        """

        def fill(unfinished: Path) -> None:
            with quiet_transformers():
                self._model.kept.save_pretrained(unfinished)
            self._tokenizer.save_pretrained(unfinished)

        with disk_errors(folder):
            add_files(folder, fill)

    def _train(self, until: int, on_step: Callable[[int], object]) -> tuple[float, int]:
        """Train until `until` steps are done. Return the mean loss of these steps, and their number of tokens."""
        self._model.train()
        losses, tokens = FiniteLosses(self._optimiser), 0
        with (
            seeded_random(self.spec.seed, dropout_purpose(self._rank), len(self.history) + 1, self._device),
            naming_memory_errors(self._config.batch_size),
        ):
            for step in range(self._optimiser.steps, until):
                loss, seen = self._step(step)
                losses.add(loss)
                tokens += seen
                on_step(step + 1)
        return losses.mean(), tokens

    def _step(self, step: int) -> tuple[Tensor, int]:
        """Take step number `step`, counted from 0. Return the batch's loss and number of tokens."""
        arrays = self._data.train.training_batch(step, seed=self.spec.seed)
        totals = Totals.of(arrays)
        with backward_precision(self._config.precision):
            loss = self._optimiser.step(self._compute_losses(arrays, totals)) / self._num_processes
        if self._num_processes > 1:
            distributed.all_reduce(loss)
        return loss, totals.tokens

    def _compute_losses(self, arrays: Arrays, totals: Totals) -> Iterator[Tensor]:
        """Compute the losses of this process, one for each part of the batch.

        Each loss is multiplied by the number of processes, because `DistributedDataParallel` averages the gradients.
        """
        size = self._examples_at_once
        starts = range(self._rank * size, self._config.batch_size, self._num_processes * size)
        for start in starts:
            part = self._make_batch(_take(arrays, start, size))
            # Gradients accumulate within a process. The backward pass of the last part exchanges them.
            is_last, model = start == starts[-1], self._loss
            with nullcontext() if is_last or not isinstance(model, DistributedDataParallel) else model.no_sync():
                with self._computing():
                    loss = model(part, totals) * self._num_processes
                yield loss  # the caller computes its gradients before it asks for the next loss

    def _make_batch(self, arrays: Arrays) -> Batch:
        return {name: on_device(np.ascontiguousarray(array), self._device) for name, array in arrays.items()}

    def _computing(self) -> AbstractContextManager[object]:
        return forward_precision(self._config.precision, self._device)

    def _new_model(self) -> tuple[PretrainingModel, list[str]]:
        with seeded_random(self.spec.seed, "weights", 0, self._device), reading_inputs():
            vocab_size = len(self._tokenizer)
            encoder = encoder_configuration(self.spec.backbone, self._config, vocab_size=vocab_size)
            objectives.check_family(self.spec.objective, encoder.model_type)
            model = objectives.load_objective(self.spec.objective).build(self._config, encoder)
            new_parts = begin_with(self.spec.backbone, model, self._config)
        return model, new_parts


def dropout_purpose(rank: int) -> str:
    """Name the random numbers for the dropout of process `rank`. A run with one process has only rank 0."""
    return "dropout" if rank == 0 else f"dropout in process {rank}"


def _take(arrays: Arrays, start: int, number: int) -> Arrays:
    return {name: array[start : start + number] for name, array in arrays.items()}
