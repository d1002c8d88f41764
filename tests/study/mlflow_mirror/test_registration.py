"""Confirm models in MLflow's registry, really trained: pytest tests/study/mlflow_mirror/test_registration.py"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from helpers.made_studies import arm, write_study
from helpers.places import ROOT
from helpers.trials import run_to_the_end, spec_of
from msgspec.structs import replace

import trainables
from study.facts.record import Record
from study.facts.study_facts import read_facts
from study.mirror import main
from study.mlflow_mirror.tracking import build_default_uri
from study.storage.models import locate_model
from trainables.files import method_files

pytestmark = pytest.mark.usefixtures("few_rows")

# Run in a process of its own and away from the checkout: MLflow puts the model's copy of the code before all other.
LOADING = """
import json, sys
import mlflow, pandas as pd
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model(f"models:/{sys.argv[2]}@best")
answers = model.predict(pd.DataFrame(json.loads(sys.argv[3])))
print(json.dumps([model.metadata.signature.to_dict(), answers.to_dict("list")]))
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A finished study of one confirm trial, whose model was trained for an epoch."""
    run = run_to_the_end(spec_of("pabee", "rte", config={"epochs": 1}), tmp_path / "cache")
    run.save(tmp_path / "trial")
    return study_with_model(tmp_path / "mine", run.outcome().model)


def study_with_model(folder: Path, model: str, method: str = "pabee") -> Path:
    records = arm(method, "rte", [0.6], model=model)
    return write_study(folder, records, seeds=1)


def the_confirm_record(study: Path) -> Record:
    (row,) = (row for row in read_facts(study).records if row.phase == "confirm")
    return row


def test_model_is_found_in_a_moved_folder(tmp_path: Path) -> None:
    model = tmp_path / "old" / "trials" / "k" / "model-epoch-2"
    (record,) = arm("pabee", "rte", [0.6], model=str(model))[-1:]
    record = replace(record, key="k")
    (tmp_path / "new" / "trials" / "k" / "model-epoch-2").mkdir(parents=True)
    assert locate_model(record, tmp_path / "new").model == str(tmp_path / "new" / "trials" / "k" / "model-epoch-2")
    assert locate_model(record, tmp_path / "other").model == str(model)


@pytest.mark.slow
def test_served_model_draws_other_exits_in_each_batch(tmp_path: Path) -> None:
    from mlflow.pyfunc.model import PythonModelContext

    from study.mlflow_mirror.served_model import BATCH_SIZE, EarlyExitClassifier

    run = run_to_the_end(spec_of("pondernet", "cola", config={"epochs": 1}), tmp_path / "cache")
    run.save(tmp_path / "trial")
    context = PythonModelContext({"model": run.outcome().model}, {})
    model = EarlyExitClassifier()
    model.load_context(context)
    with torch.no_grad():
        model._trained.model.lambda_head.output.weight.zero_()
        model._trained.model.lambda_head.output.bias.fill_(math.log(0.25 / 0.75))  # a quarter leaves at each layer
    words = ("dog", "cat", "boy", "girl", "house", "old", "sees", "likes")
    single = [pd.DataFrame({"sentence": [f"the {one} {other} ."]}) for one in words for other in words]
    alone = pd.concat([model.predict(context, one) for one in single])["exit_layer"]
    assert abs(alone.mean() - 1.75) < 0.25  # of two layers; 1.75 is expected, give or take 0.05
    texts = pd.DataFrame({"sentence": ["the dog sees a cat ."] * 2 * BATCH_SIZE})
    layers = model.predict(context, texts)["exit_layer"].tolist()
    assert layers[:BATCH_SIZE] != layers[BATCH_SIZE:]
    assert layers == model.predict(context, texts)["exit_layer"].tolist()


@pytest.mark.long
@pytest.mark.slow
def test_registered_model_answers_as_the_trained_one(study: Path, tmp_path: Path) -> None:
    from trainables.runs.trained_model import load_trained

    assert main([str(study), "--register"]) == 0
    texts = {
        "sentence1": ["the dog sees a cat .", "every girl sleeps .", "no boy likes the old house ."],
        "sentence2": ["an animal sees a cat .", "a girl runs .", "a boy likes the house ."],
    }
    command = [sys.executable, "-c", LOADING, build_default_uri(study), "mine.pabee.rte", json.dumps(texts)]
    loaded = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert loaded.returncode == 0, loaded.stderr
    signature, answers = json.loads(loaded.stdout)
    assert [column["name"] for column in json.loads(signature["inputs"])] == ["sentence1", "sentence2"]
    assert [column["name"] for column in json.loads(signature["outputs"])] == ["prediction", "exit_layer"]

    trained = load_trained(Path(the_confirm_record(study).model))
    for row, (first, second) in enumerate(zip(texts["sentence1"], texts["sentence2"], strict=True)):
        encoded = trained.tokenizer([first], [second], return_token_type_ids=True, return_tensors="pt")
        alone = trained.model.infer(dict(encoded))
        assert answers["prediction"][row] == trained.task.labels[int(alone.logits.argmax())]
        assert answers["exit_layer"][row] == int(alone.exit_layer)


@pytest.mark.long
@pytest.mark.slow
def test_registered_model_carries_its_own_method(tmp_path: Path) -> None:
    methods = tmp_path / "methods"
    methods.mkdir()
    for package, name in (("trainables", "pabee"), ("search_spaces", "pabee_space")):
        text = (ROOT / package / "pabee.py").read_text()
        (methods / f"{name.replace('pabee', 'patient')}.py").write_text(text)
    trainables.include(methods)
    try:
        run = run_to_the_end(spec_of("patient", "rte", config={"epochs": 1}), tmp_path / "cache")
        run.save(tmp_path / "trial")
        study = study_with_model(tmp_path / "mine", run.outcome().model, "patient")
        assert main([str(study), "--register", "--include", str(methods)]) == 0
    finally:
        method_files.include(None)
    shutil.rmtree(methods)
    texts = json.dumps({"sentence1": ["the dog sees a cat ."], "sentence2": ["an animal sees a cat ."]})
    command = [sys.executable, "-c", LOADING, build_default_uri(study), "mine.patient.rte", texts]
    loaded = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert loaded.returncode == 0, loaded.stderr
    assert len(json.loads(loaded.stdout)[1]["prediction"]) == 1


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mine", "it's", 'it\'s "mine"'])
def test_registering_again_adds_no_version(study: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    study = study.rename(study.with_name(name))
    assert main([str(study), "--register"]) == 0
    registered = name.replace('"', "'")
    assert f"registered {registered}.pabee.rte version 1" in capsys.readouterr().out
    assert main([str(study), "--register"]) == 0
    assert "registered" not in capsys.readouterr().out


@pytest.mark.slow
def test_missing_model_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = study_with_model(tmp_path / "mine", "/nowhere")
    assert main([str(study), "--register"]) == 2
    key = the_confirm_record(study).key
    assert capsys.readouterr().err == f"study.mirror: the model of record {key} is gone: /nowhere\n"
