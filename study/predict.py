"""Predict the rows of a file with a trained model and early exits: `python -m study.predict MODEL FILE`.

MODEL is the folder of a study or of an exported model (`study.export`). FILE is TSV, CSV, JSON Lines or Parquet; its
text columns have GLUE's names, so GLUE's own files work unchanged. The output has a line for each row. The columns
`index` and `prediction` are as in a GLUE submission; `exit_layer` is the layer at which the row exited. The index comes
from the input's column `index`; without this column, it is the row number. The command also prints layers, milliseconds
and FLOPs per example, with early exits and with all layers. If the predictions go to standard output, these numbers go
to standard error.

--risk 0.01 chooses the earliest exit that is safe on the stored dev predictions: at most 1 % of new examples are
answered wrongly there although all layers would answer them correctly (95 % confidence). The guarantee does not hold
for the dev rows themselves. It is for one rule, chosen beforehand: the fastest of several rules, chosen by hand, loses
more in 6 to 18 % of cases. The command says if the model's epoch or seed was chosen on these rows.
--set rule=entropy replaces the model's exit rule.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import trainables
from study.decisions.progress import compute_progress
from study.facts.plan_file import FILE as PLAN
from study.facts.plan_file import INCLUDE_NOW, require_plan
from study.facts.record import Record
from study.facts.study_facts import read_facts
from study.facts.study_folder import predictions_file
from study.plans.resolved_plan import chooses_epoch_on_dev
from study.storage.addresses import check_new_file
from study.storage.models import DESCRIPTION, WEIGHTS, local_model
from study.stored_models.choice import ModelChoice, choose_model
from study.stored_models.own_methods import include_methods
from study.terminal.command_line import Command, argument, option, read_settings
from study.terminal.text import counted
from trainables.configuration import Inside
from trainables.configuration.schema import Configuration, Value, from_plain
from trainables.configuration.spelling import resolve_name, suggest_nearest
from trainables.data.glue import read_texts
from trainables.data.metrics import predictions_from_logits
from trainables.data.tasks import TASKS, Task
from trainables.files.atomic_files import write_text
from trainables.files.method_files import join_folders

if TYPE_CHECKING:
    from trainables.data.examples import Examples
    from trainables.models.exit_rules import ExitResult, ExitRule
    from trainables.runs.trained_model import TrainedModel

INFERENCE_BATCH = 128  # examples per batch
TIMED = {1: 20, 8: 8, 32: 4, INFERENCE_BATCH: 4}  # batch size -> most batches to time


class Options(ModelChoice, frozen=True, kw_only=True):
    """Options of `study.predict`."""

    model: Annotated[str, argument("MODEL", "folder of a study (runs/NAME), or of an exported model")]
    input: Annotated[
        str,
        argument("FILE", "UTF-8 file: TSV or .csv with a header line, .jsonl or .parquet; -: TSV from standard input"),
    ]
    to: Annotated[str | None, option("new file for the predictions; default: standard output", "FILE")] = None
    settings: Annotated[
        list[str],
        option(
            "change a setting of the exit rule (patience=4), or replace the rule (rule=entropy and entropy=0.3)",
            "FIELD=VALUE",
            flag="--set",
        ),
    ] = []
    risk: Annotated[
        Inside | None,
        option("choose a safe exit: at most this share of examples loses a correct answer", "SHARE"),
    ] = None
    include: Annotated[
        list[str], option(f"{INCLUDE_NOW}; for an exported model, its subfolder `methods`", "FOLDER")
    ] = []


def run(options: Options) -> int:
    """Predict every row of the input, and return 0; raise ValueError if the model or the input cannot be used."""
    if options.to is not None:
        check_new_file("--to", Path(options.to))
    with _open_input(options.input) as file:
        return _predict_file(file, options)


@contextmanager
def _open_input(name: str) -> Iterator[Path]:
    """Yield the path of the input; standard input (`-`) or another pipe is copied into a temporary file first.

    Raises:
        ValueError: if the input cannot be used; the message has the name that the user gave.
    """
    path = Path("/dev/stdin" if name == "-" else name)
    if not (path.is_fifo() or path.is_char_device() or path.is_socket()):
        yield path
        return
    with TemporaryDirectory(prefix="glue-exit-study-") as folder:
        copied = Path(folder) / "input.tsv"
        with path.open("rb") as pipe, copied.open("wb") as file:
            shutil.copyfileobj(pipe, file)
        try:
            yield copied
        except ValueError as error:
            raise ValueError(str(error).replace(str(copied), name)) from error


def _predict_file(file: Path, options: Options) -> int:
    """Predict every row of the file, and print or write the predictions; return 0."""
    trained, safe = _load_model(options, file)
    from trainables.data.examples import encode  # imports torch
    from trainables.models.exit_rules import describe_rule
    from trainables.runs.evaluation import infer
    from trainables.runs.random_numbers import seeded_generator

    rows = read_texts(trained.task, file)
    _warn_of_another_task(trained.task, file)
    examples = encode(rows, trained.tokenizer, max_length=trained.config.max_length)
    # A sampled exit draws the same layers each time for a file; the trial's evaluation drew other layers.
    generator = seeded_generator(trained.spec.seed, f"predict {rows.texts}", 0)
    result = infer(trained.model, examples, INFERENCE_BATCH, generator)
    answers = answers_text(trained.task, examples.ids.tolist(), result)
    if options.to is None:
        print(answers, end="", flush=True)
    else:
        write_text(Path(options.to), answers)
    facts = sys.stderr if options.to is None else sys.stdout
    summary = f"{len(examples):,} predictions of {trained.spec.method} for {trained.task.title}"
    print(f"wrote {options.to}: {summary}" if options.to else summary, file=facts)
    mean_layers, layers = result.exit_layer.double().mean(), trained.model.encoder.num_layers
    rule = describe_rule(trained.model.exit_rule)
    print(f"mean number of layers run: {mean_layers:.2f} of {layers}, with exit {rule}", file=facts)
    if safe is not None:
        print(safe, file=facts)
    print(*_measure_costs(trained, examples), sep="\n", file=facts)
    return 0


def label_text(task: Task, value: float) -> str:
    """Format a prediction: the name of a label, or, for a regression, a score within the task's range."""
    if task.is_regression:
        low, high = task.score_range or (value, value)
        return f"{min(max(value, low), high):.3f}"
    return task.file_labels[int(value)]


def answers_text(task: Task, ids: Sequence[int], result: ExitResult) -> str:
    """Format the output file: a header line, then the index, prediction and exit layer of each row."""
    values = predictions_from_logits(task, result.logits.numpy())
    rows = zip(ids, values, result.exit_layer.tolist(), strict=True)
    lines = (f"{index}\t{label_text(task, value)}\t{layer}" for index, value, layer in rows)
    return "\n".join(["index\tprediction\texit_layer", *lines]) + "\n"


def _load_model(options: Options, file: Path) -> tuple[TrainedModel, str | None]:
    """Load the model and set its exit rule. Return the model and a line that states the guarantee of --risk.

    Without --risk, the line is None.
    """
    settings = read_settings(options.settings)
    if options.risk is not None and (fixed := next((text for text in settings if text != "rule"), None)):
        raise ValueError(f"--risk and --set {fixed} both set the exit; with --risk, give only --set rule=NAME")
    with _find_model_folder(options) as (folder, predictions, chosen):
        if not file.is_file():
            raise ValueError(
                f"there is no input file {options.input}; allowed: a file in TSV, .csv, .jsonl or .parquet"
            )
        import torch  # takes seconds, so after the checks

        from trainables.models.exit_rules import LastLayer
        from trainables.runs.trained_model import load_trained

        trained = load_trained(folder, "cuda" if torch.cuda.is_available() else "cpu")
    if options.risk is not None:
        safe = set_safe_exit(trained, predictions, options.risk, rule=settings.get("rule"))
        limits = _list_limits(chosen, is_other_rule="rule" in settings)
        runs_all_layers = isinstance(trained.model.exit_rule, LastLayer)  # then nothing is lost
        return trained, "; ".join([safe, *([] if runs_all_layers else limits)])
    set_exit(trained, settings)
    return trained, None


def set_exit(trained: TrainedModel, settings: Configuration) -> None:
    """Change the settings of the model's exit rule, or replace the rule if `settings` has a `rule`.

    Raises:
        ValueError: if the rule has no such setting, or the method does not allow the value.
    """
    from trainables.models.exit_rules import with_setting

    if "rule" in settings:
        trained.model.exit_rule = _choose_rule(trained, settings)
        return
    method, config = trained.spec.method, trained.spec.config
    known = [name for name in vars(trained.model.exit_rule) if config.get(name) is not None]
    if unknown := next((name for name in settings if name not in known), None):
        menu = f"this model's exit settings are {', '.join(known)}" if known else "this model has no exit settings"
        raise ValueError(f"--set {unknown} is not an exit setting; {menu}{suggest_nearest(unknown, known)}")
    trainables.configure(method, {**config, **settings}).check_task(trained.task)
    trained.model.exit_rule = with_setting(trained.model.exit_rule, settings)


def _choose_rule(trained: TrainedModel, settings: Configuration) -> ExitRule:
    """Return the exit rule named `rule` with the other settings; raise ValueError if the model cannot use the rule."""
    from trainables.models.answer_rules import KEPT
    from trainables.models.exit_rules import rule_as_json, with_setting

    rule, others = settings["rule"], {name: value for name, value in settings.items() if name != "rule"}
    chosen = _find_rule(trained, rule)
    if chosen is not trained.model.exit_rule and chosen.field not in others:
        raise ValueError(f"--set rule={rule} needs a value for the rule's setting; add --set {chosen.field}=NUMBER")
    changed = with_setting(chosen, others)
    if type(changed) in KEPT.values():
        from_plain(type(changed), json.loads(rule_as_json(changed)), where=f"--set rule={rule}")
    return changed


def _find_rule(trained: TrainedModel, name: Value) -> ExitRule:
    """Return the exit rule named `name`; raise ValueError if the model cannot use a rule of this name."""
    from trainables.models.answer_rules import list_rules

    model = trained.model
    swept = model.sweep_rules()  # empty if only the last layer has a classifier
    known = list_rules(model.encoder.num_layers, trained.task.num_labels) if swept else []
    rules = {rule.name: rule for rule in [*known, *swept, model.exit_rule]}
    note = " (a regression task)" * trained.task.is_regression
    title = f"exit rule of {trained.spec.method} on {trained.task.title}{note}"
    return rules[resolve_name(str(name), rules, what=title)]


def set_safe_exit(trained: TrainedModel, predictions: Path | None, risk: float, *, rule: Value) -> str:
    """Set the earliest exit that is safe on dev, and return a line with the guarantee.

    If no exit is safe, the model runs all layers.

    Args:
        predictions: the file of the trial's dev predictions; None for an exported model.
        risk: largest share of examples that may lose a correct answer; see `trainables.models.safe_exits`.
        rule: name of the exit rule; if None, the model's rule.

    Raises:
        ValueError: if the rule has no setting to choose, the task is a regression, or dev predictions are missing.
    """
    from trainables.models.exit_rules import LastLayer, describe_rule
    from trainables.models.safe_exits import CONFIDENCE, find_safe_setting, read_evaluated_settings

    task = trained.task
    chosen = trained.model.exit_rule if rule is None else _find_rule(trained, rule)
    if task.is_regression or chosen.field is None:
        fault = f"{task.title} is not a classification" if task.is_regression else f"exit {chosen.name} has no setting"
        raise ValueError(f"--risk {risk:g}: {fault}, so there is no guarantee; leave out --risk")
    if predictions is None or not predictions.exists():
        missing = f"{predictions} does not exist" if predictions else "an exported model has no dev predictions"
        raise ValueError(f"--risk {risk:g}: {missing}; give the folder of a study that stored its dev predictions")
    settings, labels = read_evaluated_settings(predictions, chosen.name)
    place = find_safe_setting(settings.lost(labels), risk)
    claim = (
        f"at most {100 * risk:g} % of new rows lose a correct answer compared with all layers "
        f"({100 * CONFIDENCE:.0f} % confidence, {len(labels):,} labelled rows of {predictions})"
    )
    if place is None or settings.mean_layers[place] == trained.model.encoder.num_layers:
        trained.model.exit_rule = LastLayer()
        return f"no exit is safe on dev, so all layers run; safe means that {claim}"
    trained.model.exit_rule = settings.rules[place]
    return f"exit {describe_rule(settings.rules[place])} is safe on dev: {claim}"


def _list_limits(chosen: Sequence[str], *, is_other_rule: bool) -> list[str]:
    """List what makes the guarantee of --risk weaker than it says; `chosen` is from `_list_choices`."""
    best = f"the model's {' and '.join(chosen)} scored best on these rows, so more may be lost"
    by_hand = "the fastest of several rules, chosen by hand, has no such guarantee"
    return [*[best] * bool(chosen), *[by_hand] * is_other_rule]


@contextmanager
def _find_model_folder(options: Options) -> Iterator[tuple[Path, Path | None, list[str]]]:
    """Yield the model's folder, the file of its dev predictions (None for an exported model), and `_list_choices`."""
    folder = Path(options.model)
    if (folder / PLAN).exists():
        record = choose_model(folder, options)
        include_methods(folder, [record], options.include)
        with local_model(record.model or "", record.model_digest) as model:
            yield model, predictions_file(folder, record.key), _list_choices(record, folder, options)
    elif any((options.trial, options.method, options.task)):
        raise ValueError(f"--trial, --method and --task choose a model of a study, but {folder} has no {PLAN}")
    elif not (folder / WEIGHTS).is_file():
        raise ValueError(f"{folder} is neither a study (no {PLAN}) nor a model (no {WEIGHTS})")
    elif not (folder / DESCRIPTION).is_file() and (folder / "config.json").is_file():
        raise ValueError(
            f"{folder} is a model of transformers without exits (no {DESCRIPTION}), as study.export --at-layer writes "
            "it; allowed: a whole model, or AutoModelForSequenceClassification for this one"
        )
    else:
        if options.include:
            trainables.include(join_folders(options.include), named="--include")
        yield folder, None, []


def _list_choices(record: Record, folder: Path, choice: ModelChoice) -> list[str]:
    """List what was chosen by scores on the dev rows that also give the guarantee: "epoch", "seed"."""
    plan = require_plan(folder).plan
    arm = next(arm for arm in compute_progress(plan, read_facts(folder)).arms if arm.name == record.arm)
    return [
        *["epoch"] * chooses_epoch_on_dev(record.config, plan.protocol),
        *["seed"] * (choice.trial is None and len(arm.confirmed) > 1),
    ]


def _warn_of_another_task(task: Task, file: Path) -> None:
    """Warn if the file is in the folder of a GLUE task with different labels."""
    place = file.resolve().parent.name
    other = next((other for other in TASKS.values() if other.folder == place), task)
    if other.labels != task.labels:
        print(f"warning: {file} is in the folder of {other.title}, but the model is for {task.title}", file=sys.stderr)


def _measure_costs(trained: TrainedModel, examples: Examples) -> Iterator[str]:
    import torch

    from trainables.models.devices import device_name
    from trainables.models.exit_rules import LastLayer
    from trainables.runs.timing import compare_rules

    model = trained.model
    rules = list(dict.fromkeys([model.exit_rule, LastLayer()]))
    for size, costs in compare_rules(model, examples, rules, TIMED).items():
        early, whole = costs[0], costs[-1]
        yield (
            f"batches of {size}: {early.milliseconds:.2f} ms per example with exits, "
            f"{whole.milliseconds:.2f} ms with all layers (means over {early.examples:,} examples)"
        )
    yield f"{early.flops / 1e6:,.3f} MFLOPs per example with exits, {whole.flops / 1e6:,.3f} with all layers"
    device = next(model.parameters()).device
    yield f"measured on {device_name(device)}, {counted(torch.get_num_threads(), 'thread')}"


main = Command("study.predict", Options, __doc__ or "", run)

if __name__ == "__main__":
    sys.exit(main())
