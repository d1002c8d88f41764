"""Export a trained model as a folder for `transformers`: `python -m study.export runs/NAME --to FOLDER`.

`AutoModel.from_pretrained` loads the folder. `AutoModelForSequenceClassification` loads it too if `transformers` has a
class that computes the same logits. A separate file holds the exit heads, because `transformers` has no class for
them. `study.predict` uses the whole model. If the method is your own, its files are in the subfolder `methods`. The
folder's README.md describes the model.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from study.facts.plan_file import INCLUDE_NOW, include_for, require_plan
from study.facts.record import Record
from study.predict import ModelChoice, choose_model
from study.storage.addresses import check_new_folder
from study.storage.trial_places import local_model
from study.terminal.command_line import Command, argument, option
from trainables.data.tasks import TASKS
from trainables.encoders.backbone_names import find_licence, is_hub_name
from trainables.files.atomic_files import write_folder

REGISTERS = {"ShareBert": "trainables.encoders.sharebert"}  # first letters of a class's name -> its module
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
    include: Annotated[str | None, option(INCLUDE_NOW, "FOLDER")] = None


def run(options: Options) -> int:
    """Export the chosen model, print its class in `transformers`, and return 0."""
    check_new_folder("--to", Path(options.to))
    folder = Path(os.path.realpath(options.to))
    record = choose_model(Path(options.study), options)
    asked = require_plan(Path(options.study)).plan.asked
    include_for(record.method, asked, options.include)
    loaded_as = export(record, folder, data=asked.data)
    print(f"wrote {folder}: {loaded_as}, {record.arm}, seed {record.seed}, trial {record.key}")
    return 0


def export(record: Record, folder: Path, *, data: str = "") -> str:
    """Write the model of a trial into a new folder. Return the name of the model's class in `transformers`.

    Args:
        data: the study's --data.

    Raises:
        ValueError: if `transformers` has no class for the model's encoder.
    """
    from trainables.runs.trained_model import METHODS, export_trained, load_trained

    def fill(unfinished: Path) -> None:
        with local_model(record.model or "", record.model_digest) as model:
            try:
                export_trained(load_trained(model), unfinished)
            except ValueError as error:
                raise ValueError(f"trial {record.key} ({record.arm}) cannot be exported: {error}") from error
        methods = METHODS if (unfinished / METHODS).is_dir() else None
        card = format_model_card(record, _find_class(unfinished), data=data, methods=methods)
        (unfinished / "README.md").write_text(card, encoding="utf-8")

    write_folder(folder, fill)
    return _find_class(folder)


def _find_class(folder: Path) -> str:
    return str(json.loads((folder / "config.json").read_text())["architectures"][0])


def format_model_card(record: Record, loaded_as: str, *, data: str = "", methods: str | None = None) -> str:
    """Return the model card in Markdown, without host names, user names or paths.

    Args:
        loaded_as: the class of `transformers` that `config.json` names.
        data: the study's --data.
        methods: name of the subfolder with the method's files; None for a built-in method.
    """
    parts = [
        f"---\n{_format_front_matter(record, data)}\n---",
        f"# {record.method} on {record.task}",
        *_explain_loading(loaded_as, methods),
        "## Scores",
        *_format_scores(record),
        *_describe_data(record, data),
    ]
    return "\n\n".join(parts) + "\n"


def _format_front_matter(record: Record, data: str) -> str:
    """Format the metadata of the model card as YAML for the hub."""
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
        for metric, value in record.metrics.items()
        if is_glue and metric in task.metrics
    ]
    return ModelCardData(
        model_name=f"{record.method} on {record.task}",
        library_name="transformers",
        pipeline_tag="text-classification",
        license=find_licence(backbone or "") or "unknown",
        base_model=backbone,
        datasets=[GLUE] if is_glue else None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        eval_results=results or None,
    ).to_yaml()


def _explain_loading(loaded_as: str, methods: str | None) -> Iterator[str]:
    """Explain how to load the model, and name the parts that `transformers` does not load."""
    is_classifier = loaded_as.endswith("ForSequenceClassification")
    auto = "AutoModelForSequenceClassification" if is_classifier else "AutoModel"
    imports = [f"import {module}  # registers it" for name, module in REGISTERS.items() if loaded_as.startswith(name)]
    lines = ["```python", f"from transformers import {auto}, AutoTokenizer", *imports, ""]
    lines += [f'model = {auto}.from_pretrained("FOLDER")', 'tokenizer = AutoTokenizer.from_pretrained("FOLDER")', "```"]
    yield f"The model's class in `transformers` is `{loaded_as}`; FOLDER is the folder of this README.md."
    yield "\n".join(lines)
    if loaded_as.startswith(("Roberta", "XLMRoberta", "MPNet")):
        yield "`AutoModel` adds a pooler with random weights, which the trained model does not have."
    if not is_classifier:
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


def _describe_data(record: Record, data: str) -> Iterator[str]:
    """Say how the data differ from the official GLUE, whose scores these scores cannot be compared with."""
    task = TASKS[record.task]
    if task.place:
        return
    if data == "mini":
        yield f"The data are generated: they only have the form of {task.title}."
    elif record.data_differences is None:
        yield f"It is not known whether the data are those of the official {task.title}."
    elif record.data_differences:
        yield f"The data are not the official {task.title}: {'; '.join(record.data_differences)}."


def _format_scores(record: Record) -> Iterator[str]:
    """Tabulate the scores of this trial."""
    trial = f"trial {record.key} at epoch {record.epoch} of {record.epochs}"
    yield f"These are dev scores of {trial}. Seed {record.seed} may have been chosen because of these scores."
    values = {"score": record.score, **record.metrics, "mean layers": record.mean_layers}
    rows = [f"| {name} | {value:.4f} |" for name, value in values.items() if value is not None]
    yield "\n".join(["| what | value |", "| --- | --- |", *rows])


main = Command("study.export", Options, __doc__ or "", run)

if __name__ == "__main__":
    sys.exit(main())
