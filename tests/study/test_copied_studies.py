"""Studies that were copied or moved: pytest tests/study/test_copied_studies.py"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.glue_folders import write_glue
from helpers.launched_studies import launched_study, mini_plan
from helpers.made_studies import write_records
from msgspec.structs import replace
from safetensors.torch import load_file, save_file

from study import export, launch, predict, submit
from study.facts.plan_file import find_data, require_plan
from study.facts.study_facts import read_facts
from study.stored_models import time_models

pytestmark = pytest.mark.slow


@pytest.fixture
def original(trained, tmp_path) -> Path:
    """A copy at its own place: the addresses in its journal are those of this folder."""
    folder = shutil.copytree(trained, tmp_path / "original")
    records = read_facts(folder).records
    moved = [replace(one, model=(one.model or "").replace(str(trained.resolve()), str(folder))) for one in records]
    write_records(folder, moved)
    return folder


@pytest.fixture
def rows(tmp_path) -> Path:
    file = tmp_path / "rows.tsv"
    file.write_text("sentence1\tsentence2\n" + "".join(f"the dog sees {n} cats .\ta cat runs .\n" for n in range(20)))
    return file


def answers(study: Path, rows: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert predict.main([str(study), str(rows)]) == 0
    return capsys.readouterr().out


def refusal(main, *arguments: object, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1, printed
    return printed.err.strip()


def change_models(study: Path) -> None:
    """Replace every weight of the study's models by its negative."""
    for file in study.glob("trials/*/*/model.safetensors"):
        save_file({name: -weight for name, weight in load_file(file).items()}, file)


def without_digests(study: Path) -> None:
    """Make the journal that of an older version, which stored no digests of models."""
    write_records(study, [replace(record, model_digest=None) for record in read_facts(study).records])


def test_copy_predicts_with_its_own_models(original, rows, tmp_path, capsys):
    without_digests(original)
    copy = shutil.copytree(original, tmp_path / "copy")
    before = answers(original, rows, capsys)
    change_models(original)
    assert answers(copy, rows, capsys) == before != answers(original, rows, capsys)


@pytest.mark.parametrize("has_digests", [True, False])
@pytest.mark.parametrize("is_changed", [True, False])
def test_copy_without_models_never_uses_those_of_the_original(
    original, rows, tmp_path, capsys, has_digests, is_changed
):
    if not has_digests:
        without_digests(original)
    copy = shutil.copytree(original, tmp_path / "copy", ignore=shutil.ignore_patterns("trials"))
    if is_changed:
        change_models(original)
    reason = (
        f"{copy} is a copy without this model, and the models in {original} are not used, because they may have "
        f"changed; copy {original}/trials to {copy} too"
    )
    assert refusal(predict.main, copy, rows, capsys=capsys).endswith(f"no longer exists: {place_in(copy)}; {reason}")
    assert refusal(export.main, copy, "--to", tmp_path / "to", capsys=capsys).endswith(reason)
    assert refusal(submit.main, copy, capsys=capsys).endswith(reason)
    assert f"{place_in(copy).parent.name} (albert/rte, seed 43)" in refusal(time_models.main, copy, capsys=capsys)
    shutil.copytree(original / "trials", copy / "trials")
    if not (is_changed and has_digests):  # a changed model is refused by its digest
        assert answers(copy, rows, capsys)


def place_in(study: Path) -> Path:
    best = max(read_facts(study).records, key=lambda record: (record.phase == "confirm", record.score or 0))
    return study / "trials" / best.key / Path(best.model or "").name


def test_moved_study_uses_its_models(original, rows, tmp_path, capsys):
    before = answers(original, rows, capsys)
    assert answers(original.rename(tmp_path / "moved"), rows, capsys) == before


def test_moved_study_without_models_names_both_places(original, rows, tmp_path, capsys):
    old, moved = place_in(original), original.rename(tmp_path / "moved")
    shutil.rmtree(moved / "trials")
    assert refusal(predict.main, moved, rows, capsys=capsys).endswith(
        f"no longer exists: {old}; it is not in {moved}/trials/{old.parent.name} either; restore {moved}/trials from a "
        "copy of the study"
    )


def test_launch_names_a_missing_model_from_which_trials_start(tmp_path, capsys):
    plan = mini_plan(methods=("albert",), tasks=("rte", "mrpc"))
    original = launched_study(tmp_path / "original", plan)
    start = read_facts(original).arms["albert/mrpc"].start_key
    copy = shutil.copytree(original, tmp_path / "copy", ignore=shutil.ignore_patterns("trials"))
    assert launch.main(["--continue", str(copy), "--seeds", "3", "--tracking-uri", "none", "--driver", "local"]) == 2
    error = capsys.readouterr().err
    assert f"albert/mrpc starts from a trained model, but the model of trial {start} (rte) no longer exists" in error
    assert f"copy {original}/trials to {copy} too" in error


# ---- data


@pytest.fixture
def studied(tmp_path, monkeypatch) -> Path:
    """A study that began in its parent folder with the data `glue`, and now lies elsewhere, as do the data."""
    monkeypatch.chdir(tmp_path)
    write_glue(tmp_path / "glue", rows=8)
    launched_study(Path("s"), mini_plan(tasks=("rte",), seeds=1, samples=1, data="glue"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "glue").rename(tmp_path / "elsewhere" / "rows")
    (tmp_path / "s").rename(tmp_path / "elsewhere" / "s")
    monkeypatch.chdir(tmp_path / "elsewhere")
    return Path("s")


@pytest.mark.long
def test_data_of_a_moved_study_are_asked_for(studied, tmp_path, capsys):
    here, plan = tmp_path / "elsewhere", require_plan(studied).plan
    fault = (
        f"there is no folder glue in {here}; data is glue in the plan of the study, relative to the folder where the "
        "study began; run the command there, or "
    )
    with pytest.raises(ValueError, match=r"^there is no folder") as raised:
        find_data(studied, plan, "rte", recorded=str(tmp_path / "glue"))
    assert str(raised.value) == f"{fault}first run study.launch --continue s --data with the current path"
    assert refusal(submit.main, studied, "--method", "albert", capsys=capsys) == (
        f"study.submit: {fault}add --data with the current path"
    )
    assert launch.main(["--continue", "s", "--data", "rows", "--tracking-uri", "none"]) == 0
    assert find_data(studied, require_plan(studied).plan, "rte", recorded="") == f"{here}/rows"


def test_absolute_path_of_moved_data_is_asked_for(tmp_path, capsys):
    place = write_glue(tmp_path / "glue", rows=8)
    study = launched_study(tmp_path / "s", mini_plan(tasks=("rte",), seeds=1, samples=1, data=str(place)))
    place.rename(tmp_path / "rows")
    fault = f"there is no folder {place}; data is {place} in the plan of the study; "
    assert refusal(launch.main, "--continue", study, capsys=capsys) == (
        f"study.launch: {fault}add --data with the current path"
    )
    with pytest.raises(ValueError, match=f"^{fault}first run study.launch --continue {study} --data with"):
        find_data(study, require_plan(study).plan, "rte", recorded="")


def test_other_rows_are_not_taken_for_those_of_the_study(studied, tmp_path):
    plan = require_plan(studied).plan
    write_glue(tmp_path / "elsewhere" / "glue", rows=12)
    with pytest.raises(
        ValueError, match=r"^glue has other rows of rte than those of the study; first run study.launch"
    ):
        find_data(studied, plan, "rte", recorded="")
    assert find_data(studied, plan, "rte", recorded=str(tmp_path / "elsewhere" / "rows")).endswith("/rows")
