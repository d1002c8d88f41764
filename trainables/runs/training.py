"""One trial in a plain Python process: train, evaluate after every epoch, keep the selected model, save and resume.

On a CPU, the same spec and number of threads give the same weights bit for bit, even after a resume. On a GPU, rounding
may differ, because kernels add up gradients in varying order.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from torch import Tensor
from transformers import PreTrainedTokenizerBase

import trainables
from trainables.configuration.ranges import list_combinations
from trainables.configuration.schema import Configuration, from_plain, to_plain
from trainables.data.examples import (
    ARRAYS,
    Examples,
    choose_spread,
    load_examples,
    prepare_tokenizer,
    split_off_holdout,
)
from trainables.data.glue import fingerprint
from trainables.data.metrics import differences_from_official
from trainables.data.tasks import Task
from trainables.encoders.backbone_files import backbone_digest, backbone_fingerprint
from trainables.encoders.loading import load_encoder
from trainables.encoders.weights import check_fit
from trainables.files.method_files import compute_digest
from trainables.files.sources import hash_folder, hash_now
from trainables.models.answer_rules import check_rules
from trainables.models.devices import backward_precision, check_precision
from trainables.models.early_exit import EarlyExitModel
from trainables.models.exit_rules import LayerOutputs, with_setting
from trainables.runs.evaluation import (
    Evaluation,
    Swept,
    evaluate,
    full_depth_in_steps,
    run_to_end,
    select_exit,
    swept,
    write_predictions,
)
from trainables.runs.flops import count_flops_of_texts
from trainables.runs.loss_curve import LossCurve
from trainables.runs.optimiser import Optimiser, training_words
from trainables.runs.random_numbers import seeded_generator, seeded_random
from trainables.runs.trained_model import start_from
from trainables.runs.training_errors import FiniteLosses, naming_memory_errors
from trainables.runs.trial import Content, EpochRow, Outcome, TextFlops, TrialSpec, reading_inputs
from trainables.runs.trial_files import (
    check_same,
    disk_errors,
    model_folder,
    read_model,
    read_state,
    readable,
    remove_other_models,
    write_model,
    write_state,
)

SAME_SCORE = 1e-6  # largest tolerated difference of a score computed on another processor
EVALUATION_FACTOR = 4  # evaluation batches are this much larger than training batches; without gradients, they fit
EVALUATION = "evaluation"  # the purpose of the global generators' numbers, if a method draws while it is evaluated

# The fields of a spec that identify the trial; the remaining fields locate its inputs.
_IDENTITY = ("method", "task", "config", "post_hoc", "seed", "selection", "select_by", "report_dev")


class TrialData:
    """The tokenised examples of a trial: training rows, rows for selecting the epoch, and dev rows."""

    def __init__(self, spec: TrialSpec, task: Task, *, max_length: int, cache: Path, limit: int | None = None) -> None:
        """Read the rows for training and for selecting the epoch.

        If `spec.selection` is "holdout", the epoch is selected on a part of train.

        Args:
            cache: folder of tokenised data, shared by all trials.
            limit: largest number of rows to use from each of train and dev, evenly spread. None means all rows.

        Raises:
            Unavailable: the data or the tokenizer is missing.
        """
        with reading_inputs():
            self.tokenizer: PreTrainedTokenizerBase = prepare_tokenizer(
                spec.tokenizer or spec.backbone, task, spec.data
            )
        self._task, self._data, self._max_length, self._cache = task, spec.data, max_length, cache
        self._limit = limit
        self._labels: dict[str, np.ndarray] = {}  # labels by split, for every split read so far
        train = self._load(task.train_split)
        self.train, self.selection = split_off_holdout(train) if spec.selection == "holdout" else (train, self.dev)

    @cached_property
    def dev(self) -> Examples:
        """The rows of all dev splits."""
        return self._load(*self._task.dev_splits)

    @property
    def differences(self) -> tuple[str, ...]:
        """The differences between the official GLUE data and the splits read so far."""
        return differences_from_official(self._task, self._labels)

    @cached_property
    def tokens_digest(self) -> str:
        """Hash (16 hexadecimal digits) of the tokens and labels in the training and selection rows."""
        digest = hashlib.sha256()
        for examples in (self.train, self.selection):
            for name in ARRAYS:
                array = np.ascontiguousarray(getattr(examples, name))  # no copy if a memory map is contiguous
                digest.update(f"{name} {array.dtype} {array.shape}".encode())
                digest.update(array.data)
        return digest.hexdigest()[:16]

    def _load(self, *splits: str) -> Examples:
        length, cache = self._max_length, self._cache
        with reading_inputs():
            examples = load_examples(self._task, splits, self._data, self.tokenizer, max_length=length, cache=cache)
        self._labels |= {split: examples.labels[examples.splits == split] for split in splits}
        if self._limit is None:
            return examples
        return examples.take(choose_spread(len(examples), self._limit))


class TrainingRun:
    """A trial in progress. It can be saved after each epoch and resumed in another process.

    `history` holds one row per finished epoch.
    """

    def __init__(self, spec: TrialSpec, *, device: str = "cpu", cache: Path, limit: int | None = None) -> None:
        """Prepare a new trial.

        Args:
            device: `cpu`, `cuda` or `cuda:N`.
            cache: folder of tokenised data, shared by all trials of a machine.
            limit: largest number of rows to use from each of train and dev. None means all rows.

        Raises:
            Unavailable: data, backbone or start model are missing, or the device does not support the precision.
            ValueError: the spec has an invalid value, or results under the model's exit rules cannot be stored.
        """
        self.spec = from_plain(TrialSpec, to_plain(spec), where="a trial's spec")
        self.history: list[EpochRow] = []
        self._device = torch.device(device)
        self._task = self.spec.find_task()
        settings = list_combinations(spec.post_hoc or {})
        self._config = trainables.configure(spec.method, {**spec.config, **settings[0]})
        with reading_inputs():
            check_precision(self._config.precision, self._device)
        self._data = TrialData(spec, self._task, max_length=self._config.max_length, cache=cache, limit=limit)
        self._model = self._make_model().to(self._device)
        check_rules(self._model)
        rule, depth = self._model.exit_rule, self._model.encoder.num_layers
        early = [setting for setting in settings if with_setting(rule, setting).earliest(depth) < depth]
        self._exit_settings = early or settings  # a setting without early exits is evaluated only if there is no other
        self.steps_per_epoch = math.ceil(len(self._data.train) / self._config.batch_size)
        self._words = training_words(self._model, self._data.train, weight_decay=self._config.weight_decay)
        steps = self._config.epochs * self.steps_per_epoch
        warmup = self._config.warmup_steps or round(self._config.warmup_ratio * steps)
        with self._words():
            groups = self._model.parameter_groups(self._config)
            self._optimiser = Optimiser(self._model, groups, self._config, num_steps=steps, warmup_steps=warmup)
        self._selected_weights: dict[str, Tensor] = {}
        self._selected_evaluation: Evaluation | None = None  # None before the first epoch has ended
        self._saved_model: Path | None = None
        self._method_files = compute_digest(trainables.base_method(spec.method))
        self._model_digest: str | None = None  # of the saved model's folder

    @classmethod
    def resume(
        cls,
        folder: Path,
        *,
        spec: TrialSpec | None = None,
        device: str = "cpu",
        cache: Path,
        limit: int | None = None,
        reported: int = 0,
    ) -> TrainingRun:
        """Load the trial that was saved in `folder`; the trial continues as if it had never stopped.

        Args:
            spec: the spec of the trial, with the current paths of data, backbone and start model. None means the
                saved spec.
            limit: as for a new trial; the saved trial must have had the same limit.
            reported: number of epochs that the trial has reported. The saved trial must have them all.

        Raises:
            UnreadableState: the folder has no saved trial, or the saved trial is damaged, outdated or does not match
                `spec`.
            Unavailable: the data or the backbone is missing.
        """
        state = read_state(folder)
        with readable(folder):
            saved = from_plain(TrialSpec, state["spec"], where="the saved spec")
            history = from_plain(list[EpochRow], state["history"], where="the saved history")
            check_same(saved, spec or saved, _IDENTITY)
            if len(history) < reported:
                raise ValueError(f"it has {len(history)} of the {reported} epochs that were reported")
        spec = spec or saved
        # The saved weights replace the start model's.
        run = cls(replace(spec, start=None), device=device, cache=cache, limit=limit)
        run.spec, run.history = spec, history
        with readable(folder):
            if state.get("method_files", run._method_files) != run._method_files:  # older states lack it
                raise ValueError("the files of its method have changed since")
            check_fit(run._model, state["model"], has="the saved trial")
            run._model.load_state_dict(state["model"])
            run._optimiser.load(state)
            if run.best_epoch:
                run._saved_model = model_folder(folder, run.best_epoch)
                run._selected_weights, _ = read_model(run._saved_model)
                run._model_digest = state.get("model_digest")  # missing in a state of an older version
                if run._model_digest not in (None, hash_folder(run._saved_model)):
                    raise ValueError(f"the model of epoch {run.best_epoch} was damaged")
                check_fit(run._model, run._selected_weights, has=str(run._saved_model))
                run._restore_evaluation(state.get("outputs"))
        return run

    def _restore_evaluation(self, outputs: dict[str, Tensor] | None) -> None:
        """Set the exit and the evaluation of the selected epoch, from the saved outputs of its model.

        A state of an older version has no outputs; the model then computes them again.

        Raises:
            ValueError: the evaluation differs from the epoch's row.
        """
        row, examples = self.history[self.best_epoch - 1], self._data.selection
        self._set_exit(row.exit_setting)
        if outputs is None:
            with _with_weights(self._model, self._selected_weights):
                evaluation = run_to_end(self._evaluate(examples, row.epoch))
        else:
            rule, exits = self._model.exit_rule, seeded_generator(self.spec.seed, "exits", row.epoch)
            evaluation = evaluate(rule, LayerOutputs(**outputs), self._task, examples, generator=exits)
        if not math.isclose(evaluation.score, row.reported.score, abs_tol=SAME_SCORE):
            raise ValueError(f"the model of epoch {row.epoch} scores {evaluation.score}, not {row.reported.score}")
        self._selected_evaluation = evaluation

    @property
    def best_epoch(self) -> int:
        """Number of the epoch that is selected so far; 0 before the first epoch has ended.

        The selected epoch is the first with the highest selection score, or the latest epoch if `select` is "last".
        """
        return self.history[-1].best_epoch if self.history else 0

    @property
    def finished(self) -> bool:
        """True once all epochs are done, or `stop_after` epochs in a row brought no improvement."""
        return self._is_over(len(self.history), self.best_epoch)

    @property
    def steps_done(self) -> int:
        """Number of training steps done in the current epoch; 0 between two epochs."""
        return self._optimiser.steps - len(self.history) * self.steps_per_epoch

    @property
    def rows(self) -> tuple[int, int]:
        """Number of rows for training, and number of rows for scoring each epoch."""
        return len(self._data.train), len(self._data.selection)

    def run_epoch(self) -> EpochRow:
        """Train for one epoch, evaluate on the selection split, and return the row of this epoch.

        Raises:
            TrainingError: loss, outputs or score are not finite, or memory runs out.
        """
        return run_to_end(self.epoch_in_steps())

    def epoch_in_steps(self) -> Generator[None, None, EpochRow]:
        """Do the same as `run_epoch`, but yield after each step, so that the caller can stop."""
        assert not self.finished
        epoch = len(self.history) + 1
        began = time.monotonic()
        curve = LossCurve(self.steps_per_epoch)
        train_loss = yield from self.train_on(self._draw_batches(epoch), epoch, curve)
        trained = time.monotonic()
        evaluation = yield from self._evaluate(self._data.selection, epoch, self._exit_settings, self.spec.select_by)
        best_score = self.history[self.best_epoch - 1].selection_score if self.best_epoch else -math.inf
        improved = self._config.select == "last" or evaluation.selection_score > best_score  # a tie does not count
        if improved:
            self._selected_weights, self._selected_evaluation = _copy_to_cpu(self._model.state_dict()), evaluation
            self._set_exit(evaluation.exit_setting)
        before = self.history[-1] if self.history else None
        best_epoch = epoch if improved else self.best_epoch
        row = evaluation.row(
            epoch=epoch,
            train_loss=train_loss,
            losses=curve.read(),
            train_examples=epoch * len(self._data.train),
            train_seconds=(before.train_seconds if before else 0.0) + trained - began,
            eval_seconds=(before.eval_seconds if before else 0.0) + time.monotonic() - trained,
            best_epoch=best_epoch,
            finished=self._is_over(epoch, best_epoch),
        )
        self.history.append(row)
        return row

    def _set_exit(self, setting: Configuration) -> None:
        self._model.exit_rule = with_setting(self._model.exit_rule, setting)

    def _is_over(self, epochs: int, best_epoch: int) -> bool:
        return epochs >= self._config.epochs or 0 < self._config.stop_after <= epochs - best_epoch

    @property
    def model_bytes(self) -> int:
        """Size of the model's weights on disk, in bytes."""
        return sum(weight.numel() * weight.element_size() for weight in self._model.state_dict().values())

    def measure_epoch_seconds(self, *, steps: int) -> float:
        """Estimate the seconds of an epoch, by timing `steps` training steps and `steps` evaluation steps.

        The steps change the model, so the run must be discarded afterwards.
        """
        first, *others = self._draw_batches(1)[: steps + 1]
        timed = others or [first]
        self._model.train()
        with self._words():
            # Untimed, because the first step has one-time costs; on a GPU, it may go on after the call.
            self._step(self._data.train.batch(first, self._device)).item()
            began = time.monotonic()
            for rows in timed:
                self._step(self._data.train.batch(rows, self._device)).item()
            trained = time.monotonic()
        evaluated = choose_spread(len(self._data.selection), steps * EVALUATION_FACTOR * self._config.batch_size)
        run_to_end(self._evaluate(self._data.selection.take(evaluated), 1))
        train_share = sum(map(len, timed)) / len(self._data.train)
        eval_share = len(evaluated) / len(self._data.selection)
        return (trained - began) / train_share + (time.monotonic() - trained) / eval_share

    def save(self, folder: Path) -> None:
        """Replace the saved state and selected model in `folder` atomically.

        Raises:
            OSError: the state or the model cannot be written.
        """
        selected = model_folder(folder, self.best_epoch)
        with disk_errors(folder):
            if self.best_epoch and selected != self._saved_model:
                self._model_digest = self.write_model(selected)
                self._saved_model = selected
            state = {
                "spec": to_plain(self.spec),
                "history": to_plain(self.history),
                "method_files": self._method_files,
                "model": self._model.state_dict(),
                "model_digest": self._model_digest,
                "outputs": self._selected_evaluation and self._selected_evaluation.outputs.present,
                **self._optimiser.state(),
            }
            write_state(folder, state)
        remove_other_models(folder, keep=self._saved_model)

    def write_model(self, folder: Path) -> str:
        """Write the selected epoch's model into a folder that `load_trained` can read; return the folder's digest."""
        selected = self.history[self.best_epoch - 1]
        spec = replace(self.spec, config={**self.spec.config, **selected.exit_setting}, post_hoc=UNSET)
        description = {
            "spec": to_plain(spec),
            "epoch": selected.epoch,
            "selection_score": selected.selection_score,
            "encoder": json.loads(self._model.encoder.configuration.to_json_string(use_diff=False)),
        }
        return write_model(folder, self._selected_weights, description, self._data.tokenizer)

    def outcome(self, predictions: Path | None = None) -> Outcome:
        """Return the trial's results, with the selected epoch's scores on the reported split.

        The reported split is usually the split on which the epoch was selected. If `selection` is "holdout" and
        `report_dev` is true, the reported split is dev, which training and selection have not used.

        Args:
            predictions: file for the predictions on the reported split (npz, see `write_predictions`); None means no
                file.
        """
        selected = self.history[self.best_epoch - 1]
        reported = selected.reported
        if self._reported_examples is not self._data.selection:
            reported = self._report(self._reported_examples, predictions).reported
        elif predictions is not None:
            self._report(self._data.selection, predictions)
        return Outcome(
            reported=reported,
            num_parameters=sum(parameter.numel() for parameter in self._model.parameters()),
            data_differences=self._data.differences,
            model=None if self._saved_model is None else str(self._saved_model),
            model_digest=self._model_digest,
            predictions_digest=None if predictions is None else hash_now(predictions),
        )

    @property
    def _reported_examples(self) -> Examples:
        """The reported split; see `outcome`."""
        reads_dev = self.spec.selection == "holdout" and self.spec.report_dev
        return self._data.dev if reads_dev else self._data.selection

    def _report(self, examples: Examples, predictions: Path | None) -> Evaluation:
        """Evaluate the selected epoch's model on `examples`, and write the file `predictions`, if given."""
        evaluation = self._selected_evaluation if examples is self._data.selection else None
        if evaluation is None:
            with _with_weights(self._model, self._selected_weights):  # restores the run's weights afterwards
                evaluation = run_to_end(self._evaluate(examples, self.best_epoch))
        if predictions is not None:
            write_predictions(predictions, self._model, self._task, examples, evaluation)
        return evaluation

    def swept(self) -> list[Swept]:
        """Evaluate the selected epoch's model under each rule of `sweep_rules`, on the selection split."""
        examples = self._data.selection
        return swept(self._model, self._task, examples, self._report(examples, None).outputs)

    def content(self) -> Content:
        """Return fingerprints of the data, tokens, backbone and tokenizer."""
        spec = self.spec
        return Content(
            data_fingerprint=fingerprint(self._task, spec.data),
            tokens_digest=self._data.tokens_digest,
            backbone_fingerprint=backbone_fingerprint(spec.backbone),
            backbone_digest=backbone_digest(spec.backbone),
            tokenizer_fingerprint=spec.tokenizer and backbone_fingerprint(spec.tokenizer, kind="tokenizer"),
        )

    def count_flops(self) -> tuple[TextFlops, ...]:
        """Count the FLOPs of the selected epoch's model for a few texts of the reported split."""
        return count_flops_of_texts(self._model, self._reported_examples)  # weights do not change them

    def try_out(self) -> None:
        """Test the method's code on two rows. The run must be discarded afterwards."""
        run_to_end(self.train_on([self._draw_batches(1)[0][:2]], 1))
        examples = self._data.selection.take(choose_spread(len(self._data.selection), 2))
        evaluation = run_to_end(self._evaluate(examples, 1, self._exit_settings))
        swept(self._model, self._task, examples, evaluation.outputs)

    def train_on(
        self, batches: Iterable[np.ndarray], epoch: int, curve: LossCurve | None = None
    ) -> Generator[None, None, float]:
        """Train on each batch of rows, yield after each step, and return the mean loss.

        Args:
            curve: collects the parts of the loss.

        Raises:
            TrainingError: the loss is not finite, or memory runs out.
        """
        losses = FiniteLosses(self._optimiser)
        dropout = seeded_random(self.spec.seed, "dropout", epoch, self._device)
        self._model.train()
        with self._words(), dropout, naming_memory_errors(self._config.batch_size):
            for rows in batches:
                losses.add(self._step(self._data.train.batch(rows, self._device), curve))
                yield
        return losses.mean()

    def _step(self, batch: dict[str, Tensor], curve: LossCurve | None = None) -> Tensor:
        with backward_precision(self._config.precision):
            loss = self._optimiser.step(self._compute_losses(batch, curve))
        self._model.after_step()
        if curve:
            curve.end_step()
        return loss

    def _compute_losses(self, batch: dict[str, Tensor], curve: LossCurve | None = None) -> Iterator[Tensor]:
        """Compute the loss of each part of a batch, weighted by the part's share of the examples."""
        size = len(batch["labels"])
        parts = min(self._config.gradient_accumulation, size)
        for number, rows in enumerate(torch.arange(size, device=batch["labels"].device).tensor_split(parts)):
            part = batch if parts == 1 else {name: values[rows] for name, values in batch.items()}
            with self._model.computing(part):
                losses = self._model.loss(part)
            share = len(rows) / size
            if curve:
                curve.add(losses, share=share, is_first=number == 0)
            loss = losses["loss"]
            yield loss if parts == 1 else loss * share  # its gradients are computed before the next loss

    def _draw_batches(self, epoch: int) -> list[np.ndarray]:
        order = torch.randperm(len(self._data.train), generator=seeded_generator(self.spec.seed, "order", epoch))
        return [rows.numpy() for rows in order.split(self._config.batch_size)]

    def _evaluate(
        self,
        examples: Examples,
        epoch: int,
        exit_settings: Sequence[Configuration] = ({},),
        select_by: str | UnsetType = UNSET,
    ) -> Generator[None, None, Evaluation]:
        """Evaluate the model under each exit setting, and return the evaluation that `select_exit` chooses."""
        draws = seeded_random(self.spec.seed, EVALUATION, epoch, self._device)
        with draws, naming_memory_errors(self._config.batch_size):
            size = EVALUATION_FACTOR * self._config.examples_at_once
            outputs = yield from full_depth_in_steps(self._model, examples, size)
        if not outputs.logits.isfinite().all():
            raise self._optimiser.diverged("outputs are not finite")
        evaluations = []
        for setting in exit_settings:
            rule, exits = with_setting(self._model.exit_rule, setting), seeded_generator(self.spec.seed, "exits", epoch)
            evaluation = evaluate(rule, outputs, self._task, examples, generator=exits)
            evaluations.append(dataclasses.replace(evaluation, exit_setting=setting))
        evaluation = select_exit(evaluations, select_by, model=self._model, task=self._task, examples=examples)
        if not math.isfinite(evaluation.selection_score):  # the correlation of large finite outputs can overflow
            raise self._optimiser.diverged(f"the score is {evaluation.selection_score}")
        return evaluation

    def _make_model(self) -> EarlyExitModel:
        with seeded_random(self.spec.seed, "weights", 0, self._device):
            with reading_inputs():
                encoder = load_encoder(self.spec.backbone, self._config, vocab_size=len(self._data.tokenizer))
            model = trainables.load_method(self.spec.method).build(self._config, encoder, self._task)
        if self.spec.start is not None:
            start_from(model, Path(self.spec.start))
        return model


@contextmanager
def _with_weights(model: EarlyExitModel, weights: dict[str, Tensor]) -> Iterator[None]:
    """Load `weights` into the model inside the context; restore the previous weights afterwards."""
    present = _copy_to_cpu(model.state_dict())
    model.load_state_dict(weights)
    try:
        yield
    finally:
        model.load_state_dict(present)


def _copy_to_cpu(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.to("cpu", copy=True) for name, value in weights.items()}
