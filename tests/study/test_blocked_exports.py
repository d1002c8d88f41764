"""Folders in the place of exports, and damaged predictions: pytest tests/study/test_blocked_exports.py"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from helpers.launched_studies import launched_study, mini_plan
from helpers.launches_here import launching_here
from helpers.messages import says
from helpers.trained_studies import trained_study
from msgspec.structs import replace

from study import launch, rebuild
from study.facts.study_facts import read_facts
from study.facts.study_folder import predictions_file
from study.rebuild import check_places
from trainables.files import atomic_files

FILES = ["records.jsonl", "optuna.journal", "best.toml", "report.html", "tables/dev.md", "tables/answer.md"]


@pytest.mark.parametrize("name", [*FILES, "mlflow.db", "browse.txt", "workers.log", "mirror.log", "pictures/seeds.svg"])
def test_folder_in_place_of_file_is_refused_early(tmp_path, name):
    (tmp_path / name).mkdir(parents=True)
    with pytest.raises(ValueError) as raised:
        check_places(tmp_path, mlflow=True)
    assert says(str(raised.value), f"{tmp_path / name} is a folder, ", "move or delete ", "run the same command")


@pytest.mark.parametrize("name", ["tables", "pictures"])
def test_file_in_the_place_of_a_folder_is_named_too(tmp_path, name):
    (tmp_path / name).write_text("")
    with pytest.raises(ValueError, match=f"{tmp_path / name} is not a folder; move"):
        check_places(tmp_path, mlflow=False)


def test_own_folders_are_allowed(tmp_path):
    for name in ("notes", "tables/old", "mlflow.db"):
        (tmp_path / name).mkdir(parents=True)
    check_places(tmp_path, mlflow=False)


def test_other_files_are_written_if_one_is_blocked(tmp_path):
    (tmp_path / "b").mkdir()
    contents = {tmp_path / name: name.encode() for name in "abc"}
    with pytest.raises(OSError, match=f"^{tmp_path / 'b'} is a folder, .*; move"):
        atomic_files.write_files(contents)
    assert [(tmp_path / name).read_text() for name in "ac"] == ["a", "c"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "tables/dev.md" else pytest.mark.long) for name in FILES]
)
def test_rebuild_writes_the_others_and_names_the_blocked_one(tmp_path, capfd, name):
    folder = launched_study(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",), seeds=1))
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir(parents=True)
    with launching_here():
        assert rebuild.main([str(folder), "--tracking-uri", "none"]) == 1
    assert says(capfd.readouterr().err, f"{folder / name} is a folder, ", "move or delete ")
    assert all((folder / other).is_file() for other in FILES if other != name)
    (folder / name).rmdir()
    with launching_here():
        assert rebuild.main([str(folder), "--tracking-uri", "none"]) == 0 and (folder / name).is_file()


@pytest.mark.long
@pytest.mark.slow
def test_predictions_are_made_again_by_the_stored_model(tmp_path, capfd):
    record = trained_study(tmp_path / "s", "albert", "rte", config={"epochs": 1})
    folder = Path(record.model or "").parents[2]
    path = predictions_file(folder, record.key)
    whole = path.read_bytes()
    records = [replace(one, predictions_digest=hashlib.sha256(whole).hexdigest()) for one in read_facts(folder).records]
    path.write_bytes(whole[:100])
    assert rebuild.repair_predictions(folder, records) and path.read_bytes() == whole
    assert says(capfd.readouterr().err, f"{path} was damaged; ", "predicted dev again")
    path.unlink()
    (Path(record.model or "") / "model.safetensors").unlink()
    assert not rebuild.repair_predictions(folder, records)
    assert f"{path} is missing, and cannot " in capfd.readouterr().err


@pytest.mark.long
@pytest.mark.slow
def test_launch_of_a_finished_study_repairs_its_predictions(tmp_path, capfd):
    study = ["--method", "albert", "--task", "rte", "--profile", "mini", "--samples", "1", "--seeds", "1"]
    study += ["--epochs", "1", "--driver", "local", "--tracking-uri", "none", "--name", "s", "--out", str(tmp_path)]
    assert launch.main(study) == 0
    (path,) = (tmp_path / "s" / "predictions").glob("*.npz")
    whole = path.read_bytes()
    path.write_bytes(whole[:60])
    assert launch.main(study) == 0 and path.read_bytes() == whole
    assert says(capfd.readouterr().err, f"{path} was damaged; ", "predicted dev again")
    path.write_bytes(whole[:60])
    for weights in (tmp_path / "s" / "trials").glob("*/model-epoch-1/model.safetensors"):
        weights.unlink()
    assert launch.main(study) == 1
    assert f"{path} is damaged, and cannot " in capfd.readouterr().err
