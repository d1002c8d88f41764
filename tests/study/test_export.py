"""Exported models of studies: pytest tests/study/test_export.py"""

from __future__ import annotations

import os
import shutil
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.launched_studies import launched_study, mini_plan
from helpers.made_studies import write_records
from helpers.messages import says
from helpers.trained_studies import trained_study
from huggingface_hub import ModelCard
from msgspec import UNSET
from msgspec.structs import replace
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from analysis.studies.load import load_study
from analysis.studies.stored_predictions import read_predictions
from study import predict
from study.export import export, format_model_card, list_limits, main
from study.facts.plan_file import require_plan
from study.facts.study_facts import read_facts
from study.stored_models.choice import ModelChoice, choose_model
from trainables.data.glue import load_split
from trainables.data.repeated_texts import RepeatedTexts
from trainables.data.tasks import TASKS
from trainables.models.answer_rules import FixedLayer
from trainables.models.exit_rules import apply_exit
from trainables.runs.trained_model import load_trained


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """A study of one classifier that was really trained."""
    folder = tmp_path_factory.mktemp("runs") / "trained"
    trained_study(folder, "albert", "rte", config={"epochs": 1})
    return folder


@pytest.fixture(scope="module")
def launched(tmp_path_factory) -> Path:
    """A study of two methods on two tasks; its models are not real."""
    return launched_study(tmp_path_factory.mktemp("runs") / "launched", mini_plan())


def choice(trial: str | None = None, method: str | None = None, task: str | None = None) -> ModelChoice:
    return ModelChoice(trial=trial, method=method, task=task)


def refused(capsys, *arguments: str) -> str:
    """The one line with which the command refused."""
    assert main(list(arguments)) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1, printed
    return printed.err.removeprefix("study.export: ").strip()


def test_best_model_is_exported_for_transformers(study, tmp_path, capsys):
    best = max(read_facts(study).records, key=lambda row: (row.phase == "confirm", row.score))
    assert main([str(study), "--to", str(tmp_path / "to")]) == 0
    what = f"AlbertForSequenceClassification, albert/rte, seed 43, trial {best.key}"
    assert capsys.readouterr().out == f"wrote {tmp_path}/to: {what}\n"
    trained = load_trained(Path(best.model or ""))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "to")
    batch = dict(tokenizer(["a dog sleeps"], ["an animal"], return_tensors="pt"))
    with torch.no_grad():
        logits = AutoModelForSequenceClassification.from_pretrained(tmp_path / "to")(**batch).logits
    torch.testing.assert_close(logits, trained.model.infer(batch).logits, atol=1e-5, rtol=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["to"]


def test_trial_and_export_files_are_group_readable(tmp_path):
    umask = os.umask(0o027)
    try:
        trained_study(tmp_path / "study", "albert", "rte", config={"epochs": 1})
        exported(tmp_path / "study", tmp_path / "to")
    finally:
        os.umask(umask)
    files = [path for folder in ("study", "to") for path in (tmp_path / folder).rglob("*") if path.is_file()]
    assert len([path for path in files if path.suffix == ".safetensors"]) == 3
    assert {str(path): oct(path.stat().st_mode & 0o777) for path in files} == {str(path): "0o640" for path in files}


def test_card_names_trial_and_scores_but_not_the_machine(study, tmp_path):
    row = choose_model(study, choice())
    export(row, tmp_path / "to")
    card = (tmp_path / "to" / "README.md").read_text()
    for fact in (f"trial {row.key}", "Seed 43 may have been chosen", "| accuracy | 0.7000 |"):
        assert fact in card, fact
    assert 'AutoModelForSequenceClassification.from_pretrained("FOLDER")' in card
    assert row.host not in card and str(study) not in card and "/tmp" not in card


@pytest.fixture(scope="module")
def early(tmp_path_factory) -> Path:
    """A study of one model with exits that was really trained."""
    folder = tmp_path_factory.mktemp("runs") / "early"
    trained_study(folder, "pabee", "mnli", config={"epochs": 1, "learning_rate": 2e-3, "num_hidden_layers": 3})
    return folder


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_model_of_the_first_layers_has_the_scores_of_the_tables(early, tmp_path, capsys, layer):
    row, to = choose_model(early, choice()), tmp_path / "to"
    assert main([str(early), "--to", str(to), "--at-layer", str(layer)]) == 0
    what = f"AlbertForSequenceClassification with {layer} of 12 layers, pabee/mnli, seed 43, trial {row.key}"
    assert capsys.readouterr().out == f"wrote {to}: {what}\n"
    stored, task = read_predictions(load_study(early), row), TASKS["mnli"]
    tokenizer, model = AutoTokenizer.from_pretrained(to), AutoModelForSequenceClassification.from_pretrained(to).eval()
    texts = [load_split(task, split, "mini").texts for split in task.dev_splits]
    first, second = zip(*(pair for split in texts for pair in split), strict=True)
    with torch.no_grad():
        batch = tokenizer([*first], [*second], padding=True, truncation=True, return_tensors="pt")
        logits = model(**batch).logits.numpy()
    np.testing.assert_allclose(logits, stored.outputs.logits[layer - 1], atol=2e-3)  # stored in float16
    of_table = stored.scored(apply_exit(FixedLayer(layer), stored.outputs).logits)
    assert stored.scored(logits) == of_table
    card = (to / "README.md").read_text()
    assert f"| score | {of_table:.4f} |" in card and f"| mean layers, of 12 | {layer:.4f} |" in card
    assert f"# pabee on MNLI, first {layer} of 12 layers" in card and "study.predict . input.tsv" not in card
    assert "optimum-cli export onnx --model . --task text-classification onnx" in card
    assert not (to / "model.json").exists()


def test_model_of_the_first_layers_cannot_predict_with_exits(early, tmp_path, capsys):
    assert main([str(early), "--to", str(tmp_path / "to"), "--at-layer", "2"]) == 0
    (tmp_path / "in.tsv").write_text("sentence1\tsentence2\na dog sleeps\tan animal sleeps\n")
    capsys.readouterr()
    assert predict.main([str(tmp_path / "to"), str(tmp_path / "in.tsv")]) == 2
    error = capsys.readouterr().err
    assert (
        error.startswith(f"study.predict: {tmp_path}/to is a model of transformers without exits")
        and error.count("\n") == 1
    )


def test_layer_that_cannot_be_exported_is_refused_in_one_line(early, study, tmp_path, capsys):
    to = ["--to", str(tmp_path / "to")]
    assert refused(capsys, str(early), *to, "--at-layer", "4") == (
        "--at-layer is 4; allowed: 1 to 3, the layers of the model"
    )
    assert refused(capsys, str(early), *to, "--at-layer", "0").startswith("--at-layer is 0; allowed: ")
    key = choose_model(study, choice()).key
    assert refused(capsys, str(study), *to, "--at-layer", "1") == (
        f"trial {key} (albert/rte) cannot be exported: layer 1 has no linear classifier after a pooler, as the "
        "sequence classifiers of transformers have it"
    )
    copy = shutil.copytree(early, tmp_path / "copy", ignore=shutil.ignore_patterns("*.npz"))
    assert "which has the scores of each layer, is missing; to repair it: study.rebuild" in refused(
        capsys, str(copy), *to, "--at-layer", "1"
    )
    assert not (tmp_path / "to").exists()


def front_of(row, data):
    return ModelCard(format_model_card(row, "AlbertForSequenceClassification", data=data)).data


def test_hub_reads_model_card(launched):
    row = choose_model(launched, choice(method="albert", task="mrpc"))
    name = "albert/albert-base-v2@8e2f239c5f8a2c0f253781ca60135db913e5c80c"
    hub = replace(row, backbone_fingerprint=name, data_differences=())
    data = front_of(hub, "hub")
    assert (data.license, data.base_model, data.datasets) == ("apache-2.0", "albert/albert-base-v2", ["nyu-mll/glue"])
    assert {(own.metric_type, own.dataset_config) for own in data.eval_results} == {
        ("accuracy", "mrpc"),
        ("f1", "mrpc"),
    }
    assert {round(own.metric_value, 3) for own in data.eval_results} == {round(v, 3) for v in row.metrics.values()}
    assert data.pipeline_tag == "text-classification"


def test_card_names_both_dev_sets_of_mnli(launched):
    row = choose_model(launched, choice(method="albert", task="rte"))
    metrics = {"accuracy_matched": 0.8, "accuracy_mismatched": 0.7}
    matched = replace(row, task="mnli", metrics=metrics, data_differences=())
    found = {(own.dataset_split, own.metric_type, own.metric_value) for own in front_of(matched, "hub").eval_results}
    assert found == {("validation_matched", "accuracy", 0.8), ("validation_mismatched", "accuracy", 0.7)}


def test_card_of_generated_data_and_an_unknown_backbone_claims_neither(launched):
    data = front_of(choose_model(launched, choice(method="albert", task="rte")), "mini")
    assert (data.license, data.base_model, data.datasets) == ("unknown", None, None)
    assert data.eval_results is None


@pytest.mark.parametrize(
    ("differences", "sentence"),
    [
        (("train has 100 rows, the official 2,490",), "are not the official RTE: train has 100"),
        (None, "It is not known whether "),
    ],
)
def test_card_of_unofficial_rows_has_no_result_for_the_hub(launched, differences, sentence):
    row = replace(choose_model(launched, choice(method="albert", task="rte")), data_differences=differences)
    assert sentence in format_model_card(row, "AlbertForSequenceClassification", data="/rows")
    data = front_of(row, "/rows")
    assert (data.datasets, data.eval_results) == (None, None)


def test_card_names_the_package(launched):
    card = format_model_card(choose_model(launched, choice(method="albert", task="rte")), "AlbertModel")
    assert f"install glue-exit-study {version('glue-exit-study')} (`pip install FOLDER`" in card


def test_card_says_what_the_tables_say_of_the_scores(launched, tmp_path):
    row, plan = choose_model(launched, choice(method="albert", task="rte")), require_plan(launched).plan
    repeated = RepeatedTexts(dev_rows=100, dev_in_train=7, contradictory_in_train=0, contradictory_in_dev=0)
    on_dev = replace(plan, protocol=replace(plan.protocol, selection="dev"), repeated_texts={"rte": repeated})
    assert list_limits(on_dev, row) == [
        "The backbone had random weights before the training on this task.",
        "The configuration and the epoch were chosen by scores on the same dev rows.",
        "7 of 100 (7.0 %) dev rows of RTE have texts that occur in train; on these rows, a score shows memory, not "
        "generalisation.",
    ]
    fixed = replace(on_dev, arms=tuple(replace(arm, space={}, post_hoc=UNSET) for arm in plan.arms))
    assert list_limits(fixed, row)[1] == "The epoch was chosen by scores on the same dev rows."
    last = replace(row, config={**row.config, "select": "last"})
    assert not any("chosen" in sentence for sentence in list_limits(fixed, last))
    on_holdout = replace(plan, protocol=replace(plan.protocol, selection="holdout"), repeated_texts={})
    assert list_limits(on_holdout, row)[1:] == []
    card = format_model_card(row, "AlbertModel", scores=[0.5, 0.75, 0.625], limits=list_limits(on_dev, row))
    assert "The tables of the study have the median of 3 seeds, 0.6250 (0.5000 to 0.7500)." in card
    assert all(sentence in card for sentence in list_limits(on_dev, row))
    length = replace(row, config={**row.config, "max_length": 64})
    assert "tokenizer(..., truncation=True, max_length=64)" in format_model_card(length, "AlbertModel")


def exported(study: Path, folder: Path) -> Path:
    export(choose_model(study, choice()), folder)
    return folder


def test_a_model_under_a_uri_is_fetched(study, tmp_path):
    row = choose_model(study, choice())
    under_uri = replace(row, model=f"file://{row.model}")
    assert export(under_uri, tmp_path / "one") == export(row, tmp_path / "two")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_an_arm_is_named_by_method_and_task(launched):
    row = choose_model(launched, choice(method="albert", task="rte"))
    assert row.arm == "albert/rte"
    kept = [other for other in read_facts(launched).records if (other.arm, other.phase) == (row.arm, row.phase)]
    assert row.score == max(other.score or 0 for other in kept)


def test_a_study_without_a_completed_confirm_trial_has_no_model(tmp_path):
    launched_study(tmp_path, mini_plan(methods=("albert",), tasks=("rte",)))
    write_records(tmp_path, [])
    with pytest.raises(ValueError, match="no completed confirm trial yet"):
        choose_model(tmp_path, choice())


def test_any_trial_that_kept_its_model_is_named_by_its_key(launched):
    for row in read_facts(launched).records:
        if row.phase == "confirm":
            assert choose_model(launched, choice(trial=row.key)).key == row.key


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], ["several arms ", "--method and --task: albert/rte, albert/mrpc, ponder"]),
        (["--method", "pabee"], ["'pabee' is not a method ", "available: albert, pondernet"]),
        (["--method", "pondrnet"], ["'pondrnet'; available: albert, pondernet; ", "did you mean pondernet?"]),
        (["--task", "mrcp"], ["'mrcp'; available: rte, mrpc; ", "did you mean mrpc?"]),
        (["--trial", "feed"], ["no trial 'feed' has ended; ", "have a model: "]),
        (["--trial", "feed", "--task", "rte"], ["--trial already chooses ", "--trial, or --method and"]),
    ],
)
def test_what_names_no_model_is_answered_with_what_there_is(launched, tmp_path, capsys, arguments, message):
    assert says(refused(capsys, str(launched), *arguments, "--to", str(tmp_path / "to")), *message)
    assert not list(tmp_path.iterdir())


def test_trial_without_model_lists_those_with_one(launched, tmp_path, capsys):
    records = read_facts(launched).records
    searched = next(row for row in records if row.phase == "search" and row.arm == "albert/rte")
    confirmed = [row for row in records if row.phase == "confirm" and row.arm == "albert/rte"]
    error = refused(capsys, str(launched), "--trial", searched.key, "--to", str(tmp_path / "to"))
    assert says(error, f"trial {searched.key} has no model: ", f"{searched.status} search trial of albert/rte")
    assert error.endswith(", ".join(f"{row.key} (albert/rte, seed {row.seed})" for row in confirmed))


def test_non_study_folder_and_missing_model_are_refused(study, tmp_path, capsys):
    to = ["--to", str(tmp_path / "to")]
    assert says(refused(capsys, str(tmp_path), *to), f"{tmp_path} has no plan.json; ", "folder of a study")
    gone = next(row for row in read_facts(study).records if row.phase == "confirm" and row.seed == 42)
    assert says(refused(capsys, str(study), "--trial", gone.key, *to), f"trial {gone.key} (rte) ", ": /gone")


@pytest.mark.parametrize("there", ["a file", "a folder that holds something"])
def test_what_is_there_is_not_replaced(study, tmp_path, capsys, there):
    to = tmp_path / "to"
    if there == "a file":
        to.write_text("mine")
    else:
        (to / "mine").mkdir(parents=True)
    assert says(refused(capsys, str(study), "--to", str(to)), f"--to {to} exists; ", "an empty folder")
    assert list(to.iterdir()) == [to / "mine"] if to.is_dir() else to.read_text() == "mine"


def test_an_export_that_cannot_be_made_leaves_nothing(study, tmp_path):
    row = choose_model(study, choice())
    folder = tmp_path / "model"
    folder.mkdir()
    for path in Path(row.model or "").iterdir():
        content = path.read_bytes()
        (folder / path.name).write_bytes(content[: len(content) // 2] if path.suffix == ".safetensors" else content)
    message = rf"^trial {row.key} \(albert/rte\) .*: .*model.safetensors is damaged"
    with pytest.raises(ValueError, match=message):
        export(replace(row, model=str(folder), model_digest=None), tmp_path / "to")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
