"""Write a submission to the GLUE server: `python -m study.submit runs/NAME`.

For each task, the final run (confirm trial) with the best dev score predicts the test set. The PALBERT paper
chooses models in the same way (section 4). The MNLI model also predicts the diagnostic set AX. --all-seeds writes one
submission per seed, as sub_zipper.py of tinkoff-ai/palbert does.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import numpy as np

import trainables
from study.decisions.progress import StudyProgress, compute_progress
from study.facts.plan_file import INCLUDE_NOW, describe_lost_folder, require_plan
from study.facts.record import Record
from study.facts.study_facts import read_facts
from study.predict import INFERENCE_BATCH, label_text
from study.storage.addresses import check_file
from study.storage.models import local_model
from study.stored_models.choice import list_best_records, with_current_model_address
from study.stored_models.own_methods import include_unchanged_methods
from study.terminal.command_line import Command, argument, option
from trainables.configuration import Count
from trainables.configuration.schema import Typed
from trainables.configuration.spelling import resolve_name
from trainables.data.glue import classify_data, load_split
from trainables.data.metrics import predictions_from_logits
from trainables.data.tasks import TASKS, Task
from trainables.files.atomic_files import write_atomically


@dataclass(frozen=True)
class SubmissionFile:
    """One of the eleven files of a submission."""

    name: str
    task: str
    split: str
    predicted_by: str  # task whose model predicts the rows


FILES = (
    SubmissionFile("AX.tsv", "ax", "test", "mnli"),
    SubmissionFile("CoLA.tsv", "cola", "test", "cola"),
    SubmissionFile("MNLI-m.tsv", "mnli", "test_matched", "mnli"),
    SubmissionFile("MNLI-mm.tsv", "mnli", "test_mismatched", "mnli"),
    SubmissionFile("MRPC.tsv", "mrpc", "test", "mrpc"),
    SubmissionFile("QNLI.tsv", "qnli", "test", "qnli"),
    SubmissionFile("QQP.tsv", "qqp", "test", "qqp"),
    SubmissionFile("RTE.tsv", "rte", "test", "rte"),
    SubmissionFile("SST-2.tsv", "sst2", "test", "sst2"),
    SubmissionFile("STS-B.tsv", "stsb", "test", "stsb"),
    SubmissionFile("WNLI.tsv", "wnli", "test", "wnli"),
)


class Options(Typed, frozen=True, kw_only=True):
    """Options of `study.submit`."""

    study: Annotated[str, argument("runs/NAME", "the study's folder")]
    method: Annotated[str | None, option("method that provides the models, if the study has several", "NAME")] = None
    include: Annotated[list[str], option(INCLUDE_NOW, "FOLDER")] = []
    data: Annotated[str | None, option("source of the test sets; default: the study's data", "mini|hub|FOLDER")] = None
    any_length: Annotated[bool, option("accept test sets with an unofficial number of rows")] = False
    seed: Annotated[Count | None, option("use the models of this seed; default: the best seed of each task", "K")] = (
        None
    )
    all_seeds: Annotated[bool, option("write one zip file for each seed, such as submission-42.zip")] = False
    out: Annotated[str | None, option("zip file to write; default: submission.zip in the study's folder", "FILE")] = (
        None
    )


def run(options: Options) -> int:
    """Write the submissions and return 0; raise ValueError if one cannot be written."""
    folder = Path(options.study)
    plan = require_plan(folder).plan
    progress = compute_progress(plan, read_facts(folder))
    if options.seed is not None and options.all_seeds:
        raise ValueError("--seed and --all-seeds exclude each other; leave one of them out")
    seeds = list_seeds(progress, options.method) if options.all_seeds else [options.seed]
    chosen = [choose_models(progress, options.method, folder, seed=seed) for seed in seeds]
    data, name = options.data or plan.request.data, Path(options.out) if options.out else folder / "submission.zip"
    outs = [name.with_stem(f"{name.stem}-{seed}") if options.all_seeds else name for seed in seeds]
    for best, out in zip(chosen, outs, strict=True):
        if not best.keys() & {file.predicted_by for file in FILES}:
            raise ValueError(f"{folder} has models only for {', '.join(best)}; the GLUE server scores only GLUE tasks")
        check_file("--out", out)
    if options.data is None and classify_data(data) == "folder" and not Path(data).is_dir():
        raise ValueError(describe_lost_folder("data", data, remedy="add --data with the current path"))
    check_rows(data, studied={task for best in chosen for task in best}, any_length=options.any_length)
    include_unchanged_methods(folder, [record for best in chosen for record in best.values()], options.include)
    for best, out in zip(chosen, outs, strict=True):
        _write_submission(out, best, data)
        if classify_data(data) == "mini":
            print(f"warning: {out} is for generated tasks, which the GLUE server does not score", file=sys.stderr)
        elif classify_data(plan.request.data) == "mini":
            print(f"warning: {out} has predictions of models that were trained on generated sentences", file=sys.stderr)
    return 0


def _write_submission(out: Path, best: Mapping[str, Record], data: str) -> None:
    with ExitStack() as stack:  # a model under a URI is copied once, although MNLI's model predicts three files
        models = {
            task: stack.enter_context(local_model(record.model or "", record.model_digest))
            for task, record in best.items()
        }
        texts = {file.name: _format_file(file, best, models, data) for file in FILES}
    write_atomically(out, lambda path: _write_zip(path, texts))
    print(f"wrote {out}")


def check_rows(data: str, *, studied: Collection[str], any_length: bool) -> None:
    """Check that each test set has the official number of rows. Generated test sets are not checked.

    Raises:
        ValueError: if a number differs and `any_length` is false, or the test set of a studied task cannot be read.
    """
    for file in sorted(FILES, key=lambda file: file.predicted_by not in studied):
        task = TASKS[file.task]
        try:
            rows, size = len(load_split(task, file.split, data).ids), task.sizes[file.split]
        except ValueError:
            if file.predicted_by in studied:
                raise
            continue  # `_predict_constantly` reports the error
        if rows != size and not any_length and classify_data(data) != "mini":
            raise ValueError(
                f"{data}: {file.name} would have {rows:,} rows, but the official {task.title} {file.split} has {size:,}"
                "; add --any-length to write it anyway"
            )


def choose_models(
    progress: StudyProgress, method: str | None, folder: Path, *, seed: int | None = None
) -> dict[str, Record]:
    """Return the record of the confirm trial with the highest dev score, for each task.

    If scores are equal, the trial with the lowest seed is chosen.

    Args:
        method: method of the models; may be None if only one method has models.
        seed: seed of the models; None chooses the best seed of each task.

    Raises:
        ValueError: if no confirm trial is completed, `method` is missing or unknown, no confirm trial has the seed, or
            a model no longer exists.
    """
    method = _choose_method(progress, method)
    if seed is None:
        records = [record for record in list_best_records(progress) if record.method == method]
    elif not (records := [record for record in _list_confirmed(progress, method) if record.seed == seed]):
        seeds = ", ".join(map(str, list_seeds(progress, method)))
        raise ValueError(
            f"--seed is {seed}, but no completed confirm trial of {method} has this seed; allowed: {seeds}"
        )
    return {record.task: with_current_model_address(record, folder) for record in records}


def list_seeds(progress: StudyProgress, method: str | None) -> list[int]:
    """List the seeds of the method's completed confirm trials; the arguments are those of `choose_models`."""
    return sorted({record.seed for record in _list_confirmed(progress, _choose_method(progress, method))})


def _list_confirmed(progress: StudyProgress, method: str) -> list[Record]:
    """List the method's completed confirm trials. Arms that repeat a search are left out."""
    arms = [arm for arm in progress.arms if arm.planned.method == method and not arm.planned.repeat]
    return [record for arm in arms for record in arm.confirmed]


def _choose_method(progress: StudyProgress, method: str | None) -> str:
    """Resolve --method; raise ValueError if it is unknown, or missing although several methods have models."""
    methods = sorted({record.method for record in list_best_records(progress)})
    if method is None and len(methods) > 1:
        raise ValueError(f"the study has several methods; choose one with --method: {', '.join(methods)}")
    return resolve_name(
        method or methods[0], methods, what="method with completed confirm trials", known=trainables.list_methods()
    )


def _format_file(file: SubmissionFile, best: Mapping[str, Record], models: Mapping[str, Path], data: str) -> str:
    """Format a submission file: the predictions of the model, or constant predictions if there is no model.

    `best` maps tasks to records, and `models` maps tasks to model folders.
    """
    if file.predicted_by not in best:
        ids, predictions = _predict_constantly(file, data)
    else:
        record = best[file.predicted_by]
        ids, predictions, _ = predict_split(models[file.predicted_by], TASKS[file.task], file.split, data)
        print(f"{file.name}: {record.method}, seed {record.seed}, dev score {100 * (record.score or 0):.1f}")
    rows = sorted(zip(ids, predictions, strict=True), key=itemgetter(0))
    lines = (f"{index}\t{label_text(TASKS[file.task], value)}" for index, value in rows)
    return "\n".join(["index\tprediction", *lines]) + "\n"


def predict_split(model: Path, task: Task, split: str, data: str) -> tuple[Sequence[int], np.ndarray, float]:
    """Predict a test set with the model in a folder; return row ids, predictions and the mean number of layers."""
    import torch

    from trainables.data.examples import load_examples
    from trainables.runs.evaluation import infer
    from trainables.runs.random_numbers import seeded_generator
    from trainables.runs.trained_model import load_trained

    trained = load_trained(model, "cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as cache:  # tokenised test sets are not kept
        examples = load_examples(
            task, (split,), data, trained.tokenizer, max_length=trained.config.max_length, cache=Path(cache)
        )
        generator = seeded_generator(trained.spec.seed, "submission", 0)
        result = infer(trained.model, examples, INFERENCE_BATCH, generator)
    predictions = predictions_from_logits(task, result.logits.numpy())
    return examples.ids.tolist(), predictions, result.exit_layer.double().mean().item()


def _predict_constantly(file: SubmissionFile, data: str) -> tuple[Sequence[int], np.ndarray]:
    """Predict the majority class of train for every row (STS-B: the mean score). Return row ids and predictions.

    If train cannot be read, predict the first class (STS-B: the middle of the range). If the test set cannot be read,
    use the official row numbers.
    """
    task, source = TASKS[file.task], TASKS[file.predicted_by]
    notes = [f"{file.name}: warning: no chosen model is for {file.predicted_by}"]
    try:
        ids: Sequence[int] = load_split(task, file.split, data).ids
    except ValueError as error:
        ids = range(task.sizes[file.split])
        notes.append(f"{_remove_advice(error)}, so the file has the official {len(ids):,} rows")
    try:
        labels = load_split(source, source.train_split, data).labels
        assert labels is not None
        value = float(labels.mean() if task.is_regression else np.bincount(labels).argmax())
        title = "the mean score of train" if task.is_regression else "the majority class of train"
        notes.append(f"every prediction is {title}, {label_text(task, value)}")
    except ValueError as error:
        value = sum(task.score_range or ()) / 2  # class 0, or the middle of the range
        notes.append(f"{_remove_advice(error)}, so every prediction is {label_text(task, value)}")
    print(*notes, sep="; ")
    return ids, np.full(len(ids), value)


def _remove_advice(error: ValueError) -> str:
    """Format an error without its advice on --data."""
    return str(error).partition("; ")[0]


def _write_zip(path: Path, texts: dict[str, str]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            # A ZipInfo without a time makes the zip of a study reproducible.
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)


main = Command("study.submit", Options, (__doc__ or "").split("\n\n")[0], run)

if __name__ == "__main__":
    sys.exit(main())
