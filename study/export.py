"""Export a trained model as a folder for `transformers`: `python -m study.export runs/NAME --to FOLDER`.

`AutoModel.from_pretrained` loads the folder. `AutoModelForSequenceClassification` loads it too if `transformers` has a
class that computes the same logits. A separate file holds the exit heads, because `transformers` has no class for
them. `study.predict` uses the whole model. If the method is your own, its files are in the subfolder `methods`. The
folder's README.md describes the model.

--at-layer 4 exports only the first four layers, with the classifier after the fourth: a model of `transformers` without
exits, which `AutoModelForSequenceClassification` loads and other programs run.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np

from study.decisions.progress import compute_progress
from study.facts.plan_file import INCLUDE_NOW, require_plan
from study.facts.record import Record
from study.facts.study_facts import read_facts
from study.facts.study_folder import compute_predictions_digest, predictions_file
from study.plans.resolved_plan import ResolvedPlan, chooses_epoch_on_dev
from study.storage.addresses import check_new_folder
from study.storage.models import local_model
from study.stored_models.choice import ModelChoice, choose_model
from study.stored_models.own_methods import include_methods
from study.terminal.command_line import Command, argument, option
from trainables.configuration import AtLeastOne
from trainables.data.metrics import compute_metrics, predictions_from_logits, score
from trainables.data.tasks import TASKS
from trainables.encoders.backbone_names import UNTRAINED, find_licence, is_hub_name
from trainables.files.atomic_files import write_folder

REGISTERS = {"ShareBert": "trainables.encoders.sharebert"}  # first letters of a class's name -> its module
CLASSIFIER = "ForSequenceClassification"  # last letters of the classes that compute the trained model's logits
GLUE = "nyu-mll/glue"  # name on the hub
HUB_SPLITS = {"accuracy_matched": "validation_matched", "accuracy_mismatched": "validation_mismatched"}  # of MNLI
HUB_METRICS = {  # our name -> the hub's; other metrics have the same name
    "accuracy_matched": "accuracy",
    "accuracy_mismatched": "accuracy",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}


class Options(ModelChoice, frozen=True, kw_only=True):
    """Options of `study.export`."""

    study: Annotated[str, argument("runs/NAME", "the study's folder")]
    to: Annotated[str, option("new or empty folder for the model", "FOLDER")]
    include: Annotated[list[str], option(INCLUDE_NOW, "FOLDER")] = []
    at_layer: Annotated[
        AtLeastOne | None,
        option("export the first N layers and the classifier after them, without exits", "N"),
    ] = None


def run(options: Options) -> int:
    """Export the chosen model, print its class in `transformers`, and return 0."""
    check_new_folder("--to", Path(options.to))
    folder = Path(os.path.realpath(options.to))
    study = Path(options.study)
    record, plan = choose_model(study, options), require_plan(study).plan
    include_methods(study, [record], options.include)
    layer = options.at_layer
    at = None if layer is None else read_layer_scores(study, record, layer)
    scores, limits = _list_scores(study, record), list_limits(plan, record)
    loaded_as = export(record, folder, data=plan.request.data, scores=scores, limits=limits, at=at)
    cut = f" with {at.layer} of {record.num_layers} layers" if at else ""
    print(f"wrote {folder}: {loaded_as}{cut}, {record.arm}, seed {record.seed}, trial {record.key}")
    return 0


@dataclass(frozen=True)
class LayerScores:
    """The dev scores of a trial's model if all examples leave after one layer."""

    layer: int
    score: float
    metrics: Mapping[str, float]


def read_layer_scores(study: Path, record: Record, layer: int) -> LayerScores:
    """Compute the dev scores of a layer from the trial's stored predictions, as the table `exits` does.

    Raises:
        ValueError: if the model has no such layer, or the predictions are missing or damaged.
    """
    path, task = predictions_file(study, record.key), TASKS[record.task]
    found = compute_predictions_digest(study, record.key)
    if found is None or record.predictions_digest not in (None, found):
        fault = "damaged" if path.exists() else "missing"
        command = f"study.rebuild {shlex.quote(str(study))}"
        raise ValueError(f"{path}, which has the scores of each layer, is {fault}; to repair it: {command}")
    with np.load(path, allow_pickle=False) as file:
        logits, labels, split = (file[name] for name in ("layer_logits", "labels", "split"))
    if layer > len(logits):
        raise ValueError(f"--at-layer is {layer}; allowed: 1 to {len(logits)}, the layers of the model")
    metrics = compute_metrics(task, predictions_from_logits(task, logits[layer - 1]), labels, split)
    return LayerScores(layer, score(task, metrics), metrics)


def _list_scores(study: Path, record: Record) -> list[float]:
    """List the dev scores of all final runs of the record's arm."""
    progress = compute_progress(require_plan(study).plan, read_facts(study))
    confirmed = [own for arm in progress.arms if arm.name == record.arm for own in arm.confirmed]
    return [own.score for own in confirmed if own.score is not None]


def list_limits(plan: ResolvedPlan, record: Record) -> list[str]:
    """List what limits the meaning of a trial's scores, in sentences, as the captions and notes of the tables do."""
    task, arms = TASKS[record.task], [arm for arm in plan.arms if arm.name == record.arm]
    is_untrained = record.backbone_fingerprint.partition("@")[0] in UNTRAINED or any(arm.random_weights for arm in arms)
    limits = ["The backbone had random weights before the training on this task."] * is_untrained
    if plan.protocol.selection == "dev":
        is_best_epoch = chooses_epoch_on_dev(record.config, plan.protocol)
        chosen = ["configuration"] * any(arm.searched_fields for arm in arms) + ["epoch"] * is_best_epoch
        verb = "were" if len(chosen) > 1 else "was"
        limits += [f"The {' and the '.join(chosen)} {verb} chosen by scores on the same dev rows."] * bool(chosen)
    repeated = (plan.repeated_texts or {}).get(record.task)
    if repeated and repeated.is_notable:
        limits.append(f"{repeated.describe_effect(task.title)}.")
    return limits


def export(
    record: Record,
    folder: Path,
    *,
    data: str = "",
    scores: Sequence[float] = (),
    limits: Sequence[str] = (),
    at: LayerScores | None = None,
) -> str:
    """Write the model of a trial into a new folder. Return the name of the model's class in `transformers`.

    Args:
        data: the study's --data.
        scores: dev scores of all final runs of the arm, for the model card.
        limits: sentences from `list_limits`.
        at: the layer after which the model is cut, with its scores; None exports the whole model.

    Raises:
        ValueError: if `transformers` has no class for the model's encoder or, with `at`, for its classifier.
    """
    from trainables.runs.trained_model import METHODS, export_at_layer, export_trained, load_trained

    def fill(unfinished: Path) -> None:
        with local_model(record.model or "", record.model_digest) as model:
            try:
                trained = load_trained(model)
                if at is None:
                    export_trained(trained, unfinished)
                else:
                    export_at_layer(trained, at.layer, unfinished)
            except ValueError as error:
                raise ValueError(f"trial {record.key} ({record.arm}) cannot be exported: {error}") from error
        methods = METHODS if (unfinished / METHODS).is_dir() else None
        loaded_as = _find_class(unfinished)
        card = format_model_card(record, loaded_as, data=data, methods=methods, scores=scores, limits=limits, at=at)
        (unfinished / "README.md").write_text(card, encoding="utf-8")

    write_folder(folder, fill)
    return _find_class(folder)


def _find_class(folder: Path) -> str:
    return str(json.loads((folder / "config.json").read_text())["architectures"][0])


def format_model_card(
    record: Record,
    loaded_as: str,
    *,
    data: str = "",
    methods: str | None = None,
    scores: Sequence[float] = (),
    limits: Sequence[str] = (),
    at: LayerScores | None = None,
) -> str:
    """Return the model card in Markdown, without host names, user names or paths.

    Args:
        loaded_as: the class of `transformers` that `config.json` names.
        data: the study's --data.
        methods: name of the subfolder with the method's files; None for a built-in method.
        scores: dev scores of all final runs of the arm.
        limits: sentences from `list_limits`.
        at: the layer after which the model was cut, with its scores; None for a whole model.
    """
    title = f"{record.method} on {TASKS[record.task].title}"
    title += f", first {at.layer} of {record.num_layers} layers" if at else ""
    parts = [
        f"---\n{_format_front_matter(record, title, data, at)}\n---",
        f"# {title}",
        *_explain_loading(loaded_as),
        *_explain_prediction(loaded_as, methods, at),
        *_explain_texts(record),
        "## Scores",
        *_format_scores(record, scores, at),
        *limits,
        *_describe_data(record, data),
    ]
    return "\n\n".join(parts) + "\n"


def _format_front_matter(record: Record, title: str, data: str, at: LayerScores | None) -> str:
    """Format the metadata of the model card as YAML for the hub. Only scores on the official GLUE are results."""
    from huggingface_hub import EvalResult, ModelCardData

    task, name = TASKS[record.task], record.backbone_fingerprint.partition("@")[0]
    backbone = name if is_hub_name(name) and ":" not in name else None
    is_glue = not task.place and data != "mini" and record.data_differences == ()
    results = [
        EvalResult(
            task_type="text-classification",
            dataset_type=GLUE,
            dataset_config=record.task,
            dataset_name=task.title,
            dataset_split=HUB_SPLITS.get(metric, "validation"),
            metric_type=HUB_METRICS.get(metric, metric),
            metric_value=round(value, 4),
        )
        for metric, value in (at or record).metrics.items()
        if is_glue and metric in task.metrics
    ]
    return ModelCardData(
        model_name=title,
        library_name="transformers",
        pipeline_tag="text-classification",
        license=find_licence(backbone or "") or "unknown",
        base_model=backbone,
        datasets=[GLUE] if is_glue else None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        eval_results=results or None,
    ).to_yaml()


def _explain_loading(loaded_as: str) -> Iterator[str]:
    """Explain how `transformers` loads the model."""
    auto = "AutoModelForSequenceClassification" if loaded_as.endswith(CLASSIFIER) else "AutoModel"
    imports = [f"import {module}  # registers it" for name, module in REGISTERS.items() if loaded_as.startswith(name)]
    lines = ["```python", f"from transformers import {auto}, AutoTokenizer", *imports, ""]
    lines += [f'model = {auto}.from_pretrained("FOLDER")', 'tokenizer = AutoTokenizer.from_pretrained("FOLDER")', "```"]
    yield f"The model's class in `transformers` is `{loaded_as}`; FOLDER is the folder of this README.md."
    yield "\n".join(lines)
    if auto == "AutoModel" and loaded_as.startswith(("Roberta", "XLMRoberta", "MPNet")):
        yield "`AutoModel` adds a pooler with random weights, which the trained model does not have."


def _explain_prediction(loaded_as: str, methods: str | None, at: LayerScores | None) -> Iterator[str]:
    """Explain how to predict, and name the parts that `transformers` does not load."""
    if at is not None:
        yield (
            f"This model has no early exits: every text leaves after layer {at.layer}, with the logits of the trained "
            "model there. Exits that depend on the text need the whole model (`study.export` without `--at-layer`) and "
            "the software that trained it. To convert this model to ONNX, install `optimum-onnx` and run this command "
            "in this folder:"
        )
        yield "```\noptimum-cli export onnx --model . --task text-classification onnx\n```"
        return
    if not loaded_as.endswith(CLASSIFIER):
        yield (
            "This code loads only the encoder. The other parts (classifiers, exits or a pooler) are in "
            "`heads.safetensors`, because `transformers` has no class for them. To predict with the whole model, "
            f"{_name_software()}, and run this command in this folder:"
        )
    else:
        yield (
            "This model computes the same logits as the trained model. You can also predict with the software that "
            f"trained the model. To do so, {_name_software()}, and run this command in this folder:"
        )
    include = f" --include {methods}" if methods else ""
    yield f"```\npython -m study.predict . input.tsv{include} --to answers.tsv\n```"
    if methods:
        yield (
            f"`--include` runs the method's files in the folder `{methods}`, so read these files first. Without "
            f'`--include`, they are not run. In Python, call `trainables.include("FOLDER/{methods}")` instead.'
        )


def _name_software() -> str:
    package = "glue-exit-study"
    release = f"{package} {importlib.metadata.version(package)}"
    return f"install {release} (`pip install FOLDER`, with the folder of its source code, or the file of its wheel)"


def _explain_texts(record: Record) -> Iterator[str]:
    """Say how the texts were cut in training and evaluation."""
    if length := record.config.get("max_length"):
        yield f"Texts were cut to {length} tokens: `tokenizer(..., truncation=True, max_length={length})`."


def _describe_data(record: Record, data: str) -> Iterator[str]:
    """Say how the data differ from the official GLUE, whose scores these scores cannot be compared with."""
    task = TASKS[record.task]
    if task.place:
        yield f"{task.title} is not a task of GLUE."
    elif data == "mini":
        yield f"The data are generated: they only have the form of {task.title}."
    elif record.data_differences is None:
        yield f"It is not known whether the data are those of the official {task.title}."
    elif record.data_differences:
        yield f"The data are not the official {task.title}: {'; '.join(record.data_differences)}."


def _format_scores(record: Record, scores: Sequence[float], at: LayerScores | None) -> Iterator[str]:
    """Tabulate the scores of this trial, and give those of all seeds, which the tables of the study show."""
    trial = f"trial {record.key} at epoch {record.epoch} of {record.epochs}"
    yield f"These are dev scores of {trial}. Seed {record.seed} may have been chosen because of these scores."
    if len(scores) > 1:
        spread = f"{min(scores):.4f} to {max(scores):.4f}"
        yield (
            f"The tables of the study have the median of {len(scores)} seeds, {median(scores):.4f} ({spread})"
            f"{', with all layers and exits' * (at is not None)}."
        )
    own, layers = (at, float(at.layer)) if at else (record, record.mean_layers)
    values = {"score": own.score, **own.metrics, f"mean layers, of {record.num_layers}": layers}
    rows = [f"| {name} | {value:.4f} |" for name, value in values.items() if value is not None]
    yield "\n".join(["| what | value |", "| --- | --- |", *rows])


main = Command("study.export", Options, __doc__ or "", run)

if __name__ == "__main__":
    sys.exit(main())
