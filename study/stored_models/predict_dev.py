"""Predict the dev set again with stored models.

    python -m study.stored_models.predict_dev runs/NAME KEY ... --to FOLDER

Writes `KEY.npz` for each trial, in the format of the study's own prediction files. `analysis.verify --again` runs this
command and compares the new predictions with the study's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from study.facts.plan_file import find_data, require_plan
from study.facts.record import Record
from study.storage.models import local_model
from study.stored_models.choice import ModelChoice, choose_model
from study.stored_models.own_methods import include_methods
from study.terminal.command_line import Command, argument, option
from trainables.configuration.schema import Typed
from trainables.data.tasks import TASKS
from trainables.files.sources import cache_folder


class Options(Typed, frozen=True, kw_only=True):
    """Options of `study.stored_models.predict_dev`."""

    study: Annotated[str, argument("runs/NAME", "the study's folder")]
    trials: Annotated[list[str], argument("KEY", "key of a completed confirm trial")]
    to: Annotated[str, option("an existing folder for the predictions", "FOLDER")]


def run(options: Options) -> int:
    """Write the predictions of all given trials and return 0; raise ValueError if a model or its data are missing."""
    folder = Path(options.study)
    for key in options.trials:
        record = choose_model(folder, ModelChoice(trial=key))
        include_methods(folder, [record], None)
        with local_model(record.model or "", record.model_digest) as model:
            _predict_dev(folder, record, model, Path(options.to) / f"{key}.npz")
    return 0


def _predict_dev(folder: Path, record: Record, model: Path, path: Path) -> None:
    """Predict the dev set with the model, and write the predictions to `path`."""
    import torch

    from trainables.data.examples import load_examples
    from trainables.runs.evaluation import evaluate, full_depth_outputs, write_predictions
    from trainables.runs.random_numbers import seeded_generator, seeded_random
    from trainables.runs.trained_model import load_trained
    from trainables.runs.training import EVALUATION, EVALUATION_FACTOR

    trained = load_trained(model, "cuda" if torch.cuda.is_available() else "cpu")
    spec, config, task = trained.spec, trained.config, TASKS[record.task]
    splits, length = task.dev_splits, config.max_length
    data = find_data(folder, require_plan(folder).plan, record.task, recorded=spec.data)
    dev = load_examples(task, splits, data, trained.tokenizer, max_length=length, cache=cache_folder())
    epoch, device = record.epoch or 0, next(trained.model.parameters()).device
    with seeded_random(spec.seed, EVALUATION, epoch, device):
        outputs = full_depth_outputs(trained.model, dev, EVALUATION_FACTOR * config.examples_at_once)
    generator = seeded_generator(spec.seed, "exits", epoch)
    evaluation = evaluate(trained.model.exit_rule, outputs, task, dev, generator=generator)
    write_predictions(path, trained.model, task, dev, evaluation)


main = Command("study.stored_models.predict_dev", Options, __doc__ or "", run)

if __name__ == "__main__":
    sys.exit(main())
