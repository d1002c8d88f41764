"""What tables, report and checks say of a pretraining: pytest tests/analysis/test_pretraining_tables.py"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers.launched_studies import PRETRAINING, launched_study, mini_plan
from msgspec.structs import replace

from analysis.layouts.beside_published import reasons_apart
from analysis.layouts.published_numbers import published_rows
from analysis.studies.load import Study, load_studies, load_study
from analysis.studies.record_checks import check_record
from analysis.tables import write_tables
from analysis.verify import verify

SMALL = {"methods": ("albert",), "tasks": ("rte",), "seeds": 1}
SENTENCE = (
    "mini-albert, pretrained by albert-mlm/pretraining on corpus mini (30 steps of 32 examples, 23,310 tokens; 2 s of "
    "GPU, shared by 1 arm; held out, in no number here: mlm_loss 4.562, mlm_accuracy 0.300, sop_accuracy 0.530)."
)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return launched_study(tmp_path_factory.mktemp("runs") / "pretrained", mini_plan(**SMALL, pretraining=PRETRAINING))


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    return launched_study(tmp_path_factory.mktemp("runs") / "plain", mini_plan(**SMALL))


@pytest.fixture
def study(made: Path) -> Study:
    return load_study(made)


def test_the_caption_names_it_with_steps_tokens_cost_and_held_out_scores(made):
    assert f"Backbone of every row: {SENTENCE}" in (made / "tables" / "dev.md").read_text()


def test_its_numbers_in_full_stand_beside_every_table(made):
    told = json.loads((made / "tables" / "dev.json").read_text())["pretraining"]["pretrained"]
    assert told["arm"]["corpus"] == "mini" and told["cost"]["gpu_seconds"] == 2.5
    assert told["records"][0]["metrics"]["tokens"] == 23310.0


def test_its_record_is_in_no_number(study):
    assert [record.phase for record in study.pretrained] == ["pretrain"]
    assert {record.phase for record in study.records} == {"search", "confirm"}
    assert set(study.frame["task"]) == {"rte"}


def test_a_row_of_it_and_one_without_are_told_apart(made, plain, tmp_path):
    with pytest.raises(ValueError, match="albert/rte is not the same in .*; pretrained_by "):
        write_tables([made, plain], tmp_path)
    write_tables([made, plain], tmp_path, separate=True)
    text = (tmp_path / "dev.md").read_text()
    assert f"Backbone of every row of pretrained: {SENTENCE}" in text
    assert "Backbone of every row of plain: mini-albert, not pretrained here." in text


def test_tables_without_one_say_nothing_of_it(plain):
    assert "pretrain" not in "".join(path.read_text() for path in (plain / "tables").iterdir())


def test_a_published_number_of_the_same_backbone_is_not_held_against_it(study):
    from analysis.studies.joined import rows_of

    (row,) = rows_of([study])
    asked = replace(study.file.plan.asked, data="folder")
    object.__setattr__(study, "file", replace(study.file, plan=replace(study.file.plan, asked=asked)))
    cells = {task: _real(cell, study) for task, cell in row.cells.items()}
    other = next(one for one in published_rows("PALBERT Tab.2") if one.method == "albert")
    reasons = reasons_apart(type(row)(row.label, row.method, cells), other, {"rte": "accuracy"})
    assert reasons["rte"] == "on a backbone that its authors pretrained; here by albert-mlm/pretraining"


def _real(cell, study):
    from dataclasses import replace as replaced

    return replaced(cell, studies=(study,), records=tuple(replace(one, data_differences=()) for one in cell.records))


def test_all_of_it_is_verified(made):
    assert verify(made) == []


def test_weights_that_were_swapped_are_found(made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "pretrained")
    (record,) = load_study(folder).pretrained
    (folder / "trials" / record.key / "model-epoch-2" / "model.safetensors").write_bytes(b"other weights")
    (line,) = [line for line in verify(folder) if "model-epoch-2" in line]
    assert "content is sha256:" in line and line.endswith("as its trial left it")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": 1.5}, None),
        ({"metrics": {"mlm_accuracy": 0.3}}, "metrics lack steps, tokens; a pretraining has steps, tokens"),
        ({"metrics": {"steps": 29.0, "tokens": 1.0}}, "metrics.steps is 29; its configuration has 30"),
    ],
)
def test_a_record_that_cannot_be_is_refused(study, changes, message):
    record = replace(study.pretrained[0], **changes)
    assert any(
        line.startswith(message or "score is 1.5; allowed: a number in [-1, 1]") for line in check_record(record)
    )


def test_several_studies_may_have_been_pretrained_alike(made, tmp_path):
    other = shutil.copytree(made, tmp_path / "again")
    assert len(load_studies([made, other])) == 2
    assert write_tables([made, other], tmp_path / "tables").incomplete == []
