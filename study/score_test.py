"""Score a finished study on test labels: `python -m study.score_test runs/NAME --labels FOLDER`.

FOLDER has label files, such as FOLDER/MRPC/test_full.tsv. A label file has the rows of GLUE's test set in GLUE's
order, and a column `label` (or GLUE's name for this column, such as `Quality`). The texts must be those of the test
set; only letters and digits are compared. The final runs (confirm trials) of all tasks with a label file are scored,
except those of MNLI, which has two test sets.

The scores are written to the journal. After that, no launch can add trials to the study, so test scores cannot
influence any choice. The table `scores_on_test` shows the scores.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

from study.decisions.progress import StudyProgress, compute_progress
from study.facts.events import ModelOnTest, ScoredOnTest
from study.facts.journal import Journal
from study.facts.plan_file import INCLUDE_NOW, require_plan
from study.facts.record import Record
from study.plans.resolved_plan import ResolvedPlan
from study.storage.models import local_model
from study.stored_models.choice import with_current_model_address
from study.stored_models.own_methods import include_unchanged_methods
from study.submit import predict_split
from study.terminal.command_line import Command, argument, option
from study.terminal.text import python
from trainables.configuration.schema import Typed
from trainables.data.glue import Split, load_split, read_labelled
from trainables.data.metrics import compute_metrics, score
from trainables.data.tasks import TASKS, Task
from trainables.files.sources import hash_now

FILE = "test_full.tsv"
MOST_UNEQUAL = 0.01  # share of the rows whose text may differ between copies of the test set


class Options(Typed, frozen=True, kw_only=True):
    """Options of `study.score_test`."""

    study: Annotated[str, argument("runs/NAME", "the study's folder; all trials must have ended")]
    labels: Annotated[str, option("folder with the label files TASK/test_full.tsv", "FOLDER")]
    data: Annotated[str | None, option("source of the test sets; default: the study's data", "mini|hub|FOLDER")] = None
    include: Annotated[list[str], option(INCLUDE_NOW, "FOLDER")] = []


def run(options: Options) -> int:
    """Score the models, write the scores to the journal, and return 0. If an error is raised, nothing is written."""
    folder = Path(options.study)
    plan = require_plan(folder).plan
    with closing(Journal(folder)) as journal:
        progress = compute_progress(plan, journal.facts)
        if not progress.is_finished:
            raise ValueError(
                f"the study {folder} is not finished; use test labels only after its last trial (see study.status)"
            )
        files = _find_label_files(Path(options.labels), plan)
        times = {event.task: event.time for event in journal.facts.scored_on_test}
        if not (files.keys() - times):
            raise ValueError(f"{folder} already has test scores of {', '.join(files)}, from {times[next(iter(files))]}")
        data = options.data or plan.request.data
        rows = {task: load_labelled_test(TASKS[task], files[task], data) for task in files if task not in times}
        models = {task: _list_models(progress, task, folder) for task in rows}
        if without := [task for task, records in models.items() if not records]:
            raise ValueError(
                f"{folder} has no confirm trial of {', '.join(without)} that completed; allowed: a task with models"
            )
        include_unchanged_methods(
            folder, [record for records in models.values() for record in records], options.include
        )
        answers = {task: [_score_model(record, rows[task], data) for record in models[task]] for task in rows}
        journal.append(*(_make_event(journal.now(), files[task], rows[task], task, answers[task]) for task in rows))
    for task, scores in answers.items():
        print(*_format_lines(TASKS[task], models[task], scores), sep="\n")
    for name in [name for name in plan.request.tasks if name not in {*times, *rows}]:
        print(f"{TASKS[name].title}: not scored, because {_explain_unscored(TASKS[name], Path(options.labels))}")
    print(f"to write the table scores_on_test, run: {python()} -m study.rebuild {shlex.quote(str(folder))}")
    return 0


def _make_event(time: str, file: Path, rows: Split, task: str, models: list[ModelOnTest]) -> ScoredOnTest:
    return ScoredOnTest(time=time, task=task, rows=len(rows.ids), labels_digest=hash_now(file), models=models)


def load_labelled_test(task: Task, file: Path, data: str) -> Split:
    """Return the task's test set with the labels in `file`.

    Raises:
        ValueError: if the file cannot be read, or its rows differ from those of the test set.
    """
    test, labelled = load_split(task, task.test_splits[0], data), read_labelled(task, file)
    if len(labelled.ids) != len(test.ids):
        raise ValueError(f"{file} has {len(labelled.ids):,} rows; give all {len(test.ids):,} rows of the test set")
    pairs = zip(labelled.texts, test.texts, strict=True)
    unequal = [row for row, (copy, text) in enumerate(pairs) if _keep_letters(copy) != _keep_letters(text)]
    if len(unequal) > MOST_UNEQUAL * len(test.ids):
        raise ValueError(
            f"{file} differs from the test set of {task.title} in the text of {len(unequal):,} rows (first: row "
            f"{unequal[0]}); give the rows of the test set in their order"
        )
    return Split(test.ids, test.texts, labelled.labels)


def _keep_letters(texts: Sequence[str]) -> list[str]:
    return ["".join(filter(str.isalnum, text.casefold())) for text in texts]


def _find_label_files(labels: Path, plan: ResolvedPlan) -> dict[str, Path]:
    """Find the label file of each task of the study in the folder `labels`. Tasks without a file are left out.

    Raises:
        ValueError: if no task of the study has a label file.
    """
    tasks = [TASKS[name] for name in plan.request.tasks]
    wanted = {task.name: labels / task.folder / FILE for task in tasks if len(task.test_splits) == 1}
    files = {task: file for task, file in wanted.items() if file.is_file()}
    if not files:
        menu = ", ".join(map(str, wanted.values())) or "a study of tasks with one test set"
        raise ValueError(f"--labels {labels} has no labels for the study's tasks; allowed: {menu}")
    return files


def _explain_unscored(task: Task, labels: Path) -> str:
    """Explain why a task without test scores could not be scored."""
    number = len(task.test_splits)
    return f"there is no {labels / task.folder / FILE}" if number == 1 else f"the task has {number or 'no'} test sets"


def _list_models(progress: StudyProgress, task: str, folder: Path) -> list[Record]:
    """List the task's confirm trials, with the current addresses of their models. Repeated searches are left out."""
    arms = [arm for arm in progress.arms if arm.planned.task == task and not arm.planned.repeat]
    return [with_current_model_address(record, folder) for arm in arms for record in arm.confirmed]


def _score_model(record: Record, rows: Split, data: str) -> ModelOnTest:
    """Score the model of a trial on the labelled rows, with early exits."""
    task = TASKS[record.task]
    with local_model(record.model or "", record.model_digest) as model:
        _, predictions, mean_layers = predict_split(model, task, task.test_splits[0], data)
    assert rows.labels is not None
    metrics = compute_metrics(task, predictions, rows.labels)
    return ModelOnTest(key=record.key, score=score(task, metrics), metrics=metrics, mean_layers=mean_layers)


def _format_lines(task: Task, records: list[Record], answers: list[ModelOnTest]) -> Iterator[str]:
    for record, model in zip(records, answers, strict=True):
        scores = f"test {100 * model.score:.1f}, dev {100 * (record.score or 0):.1f}"
        yield f"{task.title}: {record.method}, seed {record.seed}: {scores}, {model.mean_layers:.2f} layers"


main = Command("study.score_test", Options, __doc__ or "", run)

if __name__ == "__main__":
    sys.exit(main())
