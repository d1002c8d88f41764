"""What tables, report and checks say of a pretraining: pytest tests/analysis/test_pretraining_tables.py"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace as replaced
from pathlib import Path

import pytest
from helpers.launched_studies import PRETRAINING, launched_study, mini_plan, with_pretraining
from msgspec.structs import replace

from analysis import report
from analysis.explain import explain
from analysis.layouts.published_numbers import explain_not_comparable, read_published_rows
from analysis.statistics.costs import (
    Compute,
    LedgerEntry,
    PretrainingCost,
    pretraining_cost,
    row_ledger,
    warn_of_unlike_compute,
)
from analysis.studies.cells import make_rows
from analysis.studies.load import Study, load_studies, load_study
from analysis.tables import write_tables
from analysis.verify import verify
from study.facts.record import compute_ledger
from study.plans.departures import _list_pretraining

pytestmark = pytest.mark.slow

SMALL = {"methods": ("albert",), "tasks": ("rte",), "seeds": 1}
HELD_OUT = "mlm_loss 4.562, mlm_accuracy 0.300, sop_accuracy 0.530"
SENTENCE = (
    "mini-albert, which was pretrained with albert-mlm on corpus mini (30 steps of 32 examples, 23,310 tokens; "
    f"2.5 s of GPU, shared by 1 arm; held-out scores, in no table here: {HELD_OUT})."
)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return launched_study(tmp_path_factory.mktemp("runs") / "pretrained", with_pretraining(mini_plan(**SMALL)))


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    return launched_study(tmp_path_factory.mktemp("runs") / "plain", mini_plan(**SMALL))


@pytest.fixture
def study(made: Path) -> Study:
    return load_study(made)


@pytest.fixture(scope="module")
def two_methods(tmp_path_factory) -> Study:
    plan = with_pretraining(mini_plan(**SMALL | {"methods": ("albert", "pondernet")}))
    return load_study(launched_study(tmp_path_factory.mktemp("runs") / "two", plan))


def test_dev_table_names_pretraining_once(made, two_methods):
    text = (two_methods.folder / "tables" / "dev.md").read_text()
    assert text.count("Every row uses backbone mini-albert, which was pretrained with albert-mlm") == 1
    assert text.count("albert-mlm") == 1
    assert f"Every row uses backbone {SENTENCE}" in (made / "tables" / "dev.md").read_text()


def test_every_arm_pays_the_same_part_of_it(two_methods):
    rows = make_rows([two_methods])
    whole, entries = pretraining_cost(two_methods, rows), row_ledger(rows)
    assert whole and (whole.whole, whole.arms) == (Compute(2.5, 0.0), 2)
    assert [entry.pretraining for entry in entries] == [Compute(1.25, 0.0)] * 2
    for entry in entries:
        parts = entry.search.gpu_seconds + entry.confirm.gpu_seconds
        assert entry.total.gpu_seconds == parts + 1.25 and entry.on({"rte"}).gpu_seconds == parts
    text = (two_methods.folder / "tables" / "dev.md").read_text()
    assert "2.5 s of GPU, shared by 2 arms" in text
    told = json.loads((two_methods.folder / "tables" / "dev.json").read_text())
    compute = json.loads((two_methods.folder / "tables" / "compute.json").read_text())
    assert [line["pretraining_gpu_seconds"] for line in compute["lines"]] == [1.25, 1.25]
    assert told["pretraining"]["two"]["shared_by"] == 2


def test_a_backbone_costs_all_its_pretrainings(tmp_path):
    first = replace(PRETRAINING, objective="mlm", gpu_seconds=0.0, wall_seconds=60.0, departures=("on a CPU",))
    plan = with_pretraining(mini_plan(**SMALL), replace(PRETRAINING, backbone="/models/first", earlier=first))
    study = load_study(launched_study(tmp_path / "chain", plan))
    (entry,) = row_ledger(make_rows([study]))
    assert entry.pretraining == Compute(2.5, 60.0)
    assert (
        "mini-albert, which was pretrained with mlm on corpus mini (30 steps of 32 examples, 23,310 tokens) and then "
        "with albert-mlm on corpus mini (30 steps of 32 examples, 23,310 tokens; 0.0417 min of GPU and 1 min on CPU "
        f"together, shared by 1 arm; held-out scores, in no table here: {HELD_OUT})."
    ) in (study.folder / "tables" / "dev.md").read_text()
    assert _list_pretraining(plan.arms) == {"mlm": ("on a CPU",), "albert-mlm": ("set by hand",)}


def test_arms_of_all_studies_share_a_pretraining_and_copied_arms_pay_once(made, two_methods, tmp_path):
    copy = load_study(shutil.copytree(two_methods.folder, tmp_path / "copy"))
    studies = [load_study(made), two_methods, copy]
    entries = row_ledger(make_rows(studies))
    assert [entry.pretraining for entry in entries] == [Compute(1.25, 0.0)] * 2
    apart = row_ledger(make_rows(studies, separate=True))
    assert [entry.pretraining for entry in apart] == [Compute(0.5, 0.0)] * 5
    caption = write_tables([study.folder for study in studies], tmp_path / "tables")[0].caption
    assert caption.count("2.5 s of GPU, shared by 2 arms") == 3


def test_a_dear_pretraining_that_rows_share_does_not_hide_unlike_searches(two_methods):
    shared = [PretrainingCost(PRETRAINING, Compute(1e6, 0.0), arms=2)]
    trial = two_methods.records[0]
    own = [compute_ledger([replace(trial, gpu_seconds=seconds)]) for seconds in (100.0, 130.0)]
    (warning,) = warn_of_unlike_compute(
        [LedgerEntry("albert", own[0], shared), LedgerEntry("pondernet", own[1], shared)]
    )
    assert warning.startswith("compute on the tasks that all rows have finished differs by more than 20 %")
    assert (
        warn_of_unlike_compute([LedgerEntry("albert", own[0], shared), LedgerEntry("pondernet", own[0], shared)]) == []
    )


def test_unlike_compute_of_rows_is_told(made, plain):
    notes = warn_of_unlike_compute(row_ledger(make_rows(load_studies([made, plain]), separate=True)))
    assert (
        "the pretraining of the rows' backbones differs by more than 20 %: albert (pretrained) "
        "used 2.5 s of GPU, but albert (plain) used 0 s"
    ) in notes


def test_rows_with_same_compute_are_not_warned(made, two_methods):
    notes = warn_of_unlike_compute(row_ledger(make_rows([load_study(made), two_methods], separate=True)))
    assert not any("pretraining of the rows" in note for note in notes)


def test_the_page_has_what_every_method_pays_of_it(made, tmp_path):
    page = report.write_report(shutil.copytree(made, tmp_path / "pretrained")).read_text()
    assert '<th scope="col">pretraining</th>' in page and "2.5 s of GPU</td>" in page


def test_a_cell_is_explained_with_the_making_of_its_backbone(two_methods, plain):
    assert f"Every row uses backbone {SENTENCE}".replace("1 arm", "2 arms") in explain(two_methods, "albert/rte")
    assert "pretrain" not in explain(load_study(plain), "albert/rte")


def test_its_numbers_in_full_stand_beside_every_table(made):
    told = json.loads((made / "tables" / "dev.json").read_text())["pretraining"]["pretrained"]
    assert told["corpus"] == "mini" and told["cost"]["gpu_seconds"] == 2.5 and told["shared_by"] == 1
    assert told["tokens"] == 23310 and told["scores"]["mlm_accuracy"] == 0.3


def test_a_row_of_it_and_one_without_are_told_apart(made, plain, tmp_path):
    with pytest.raises(ValueError, match=r"albert/rte is not the same in .*: backbone_fingerprint "):
        write_tables([made, plain], tmp_path)
    write_tables([made, plain], tmp_path, separate=True)
    text = (tmp_path / "dev.md").read_text()
    assert f"Every row of pretrained uses backbone {SENTENCE}" in text
    assert "Every row of plain uses backbone mini-albert, which was not pretrained here." in text


def test_tables_without_one_say_nothing_of_it(plain):
    assert "pretrain" not in "".join(path.read_text() for path in (plain / "tables").iterdir())


def test_published_number_of_same_backbone_is_comparable(study):
    (row,) = make_rows([study])
    asked = replace(study.plan.request, data="folder")
    object.__setattr__(study, "file", replace(study.file, plan=replace(study.plan, request=asked)))
    cells = {task: _real(cell, study) for task, cell in row.cells.items()}
    other = next(one for one in read_published_rows("PALBERT Tab.2") if one.method == "albert")
    reasons = explain_not_comparable(type(row)(row.label, row.method, cells), other, {"rte": "accuracy"})
    assert reasons["rte"] == "on the authors' backbone; here pretrained by study.pretrain albert-mlm"


def _real(cell, study):
    return replaced(cell, studies=(study,), records=tuple(replace(one, data_differences=()) for one in cell.records))


def test_all_of_it_is_verified(made):
    assert verify(made) == []


def test_several_studies_may_have_been_pretrained_alike(made, tmp_path):
    other = shutil.copytree(made, tmp_path / "again")
    assert len(load_studies([made, other])) == 2
    assert write_tables([made, other], tmp_path / "tables")[0].sidecar["incomplete"] == []


def test_a_backbone_without_a_pooler_is_named_in_the_caption(tmp_path, plain):
    plan = mini_plan(**SMALL)
    plan = replace(plan, arms=tuple(replace(arm, new_pooler=True) for arm in plan.arms))
    study = launched_study(tmp_path / "study", plan)
    sentence = "Backbone mini-albert has no pooler, so methods that use a pooler start with a random one; --set pooling"
    assert sentence in (study / "tables" / "dev.md").read_text()
    assert "pooler" not in (plain / "tables" / "dev.md").read_text()
