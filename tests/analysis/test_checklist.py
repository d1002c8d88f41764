"""Checklists, filled in with what a study shows: python -m pytest tests/analysis/test_checklist.py"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.made_studies import arm, evidence_of, predicted_study, write_records, write_study
from msgspec import UNSET
from msgspec.structs import replace

from analysis.layouts.checklist import _read_checklists, answers, data_table
from analysis.layouts.evidence import Evidence
from analysis.layouts.table import Entry, Table
from analysis.studies.load import load_study
from analysis.tables import write_tables
from study.facts.plan_file import require_plan, write_plan
from trainables.data.repeated_texts import RepeatedTexts
from trainables.data.tasks import LICENCES, TASKS
from trainables.encoders.backbone_names import find_licence

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "s"
    return predicted_study(folder, {"albert": 0.6, "palbert": 0.8}, ["rte", "qnli"], num_examples=60)


@pytest.fixture(scope="module")
def written(study: Path) -> dict[str, Table]:
    return {table.name: table for table in write_tables([study], study / "tables")}


def holds(evidence: Evidence, key: str) -> bool | None:
    return answers(evidence, ["winners"])[key].holds


def test_every_item_of_the_four_lists_has_an_answer(written: dict[str, Table]) -> None:
    assert {name: len(own["items"]) for name, own in _read_checklists().items()} == {
        "ARR": 10,
        "NeurIPS": 8,
        "Dodge": 10,
        "AutoRL": 17,
    }
    lines = written["checklist"].lines
    assert len(lines) == 45
    assert {line.entries["answer"].text for line in lines} == {"Yes", "No", "n/a"}
    assert all(line.entries["evidence"].text for line in lines)


def test_every_answer_is_asked_for_by_an_item(study: Path) -> None:
    asked = {key for own in _read_checklists().values() for _, _, keys in own["items"] for key in keys.split()}
    assert asked == answers(evidence_of(study), ["winners"]).keys()


def test_every_table_that_is_evidence_is_written(study: Path, written: dict[str, Table]) -> None:
    text = (study / "tables" / "checklist.md").read_text()
    named = set(re.findall(r"tables/(\w+)\.md", text))
    assert named >= {"dev", "data", "compute", "winners"}
    assert named <= written.keys()


def test_item_is_no_if_any_answer_is_no(written: dict[str, Table]) -> None:
    texts = {
        line.label: {name: entry.text for name, entry in line.entries.items()} for line in written["checklist"].lines
    }
    assert (
        texts["NeurIPS 8"]["answer"] == "No"
        and "memory of the machines is not recorded" in texts["NeurIPS 8"]["evidence"]
    )
    assert texts["Dodge 4"]["answer"] == "n/a"
    assert texts["AutoRL 11"] == {"asked": "seeds of testing", "answer": "Yes", "evidence": "42, 43, 44, 45, 46"}


def test_what_a_study_lacks_is_no(tmp_path: Path, study: Path) -> None:
    whole = evidence_of(study)
    few = evidence_of(write_study(tmp_path / "few", arm("palbert", "rte", [0.7]), tasks=["rte", "cola"]))
    for key in ("spread", "splits", "all_seeds"):
        assert (holds(whole, key), holds(few, key)) == (True, False), key
    assert holds(whole, "held_out") is False
    records = arm("palbert", "rte", [0.7] * 5)
    assert holds(evidence_of(write_study(tmp_path / "out", records, protocol={"selection": "holdout"})), "held_out")


def test_splits_of_a_task_are_known_from_any_method(tmp_path: Path) -> None:
    folder = predicted_study(tmp_path / "s", {"albert": 0.6, "palbert": 0.6}, ["rte"], num_examples=60)
    records = [row for row in load_study(folder).records if row.method == "albert" or row.phase == "search"]
    write_records(folder, records)
    assert holds(evidence_of(folder), "splits")


def test_unlike_searches_are_no(tmp_path: Path) -> None:
    records = arm("palbert", "rte", [0.7] * 5) + [
        row for row in arm("albert", "rte", [0.7] * 5) if row.phase == "confirm"
    ]
    found = answers(evidence_of(write_study(tmp_path, records)), ["winners"])
    assert found["same_budget"] == (False, "search trials: palbert 1, albert 0 on RTE")
    assert found["same_ranges"].holds


def test_data_of_all_studies_are_named(tmp_path: Path) -> None:
    data = {"rte": "hub", "mrpc": "/data/GLUE"}
    folders = [write_study(tmp_path / task, arm("palbert", task, [0.7] * 5), data=own) for task, own in data.items()]
    words = "nyu-mll/glue on the hub and files in a folder; plan.json has their fingerprints"
    assert answers(evidence_of(*folders), ["winners"])["data"] == (False, words)


def test_what_the_search_maximised_is_the_protocols(tmp_path: Path, study: Path) -> None:
    records = arm("palbert", "rte", [0.7] * 5)
    by_area = write_study(tmp_path, records, protocol={"select_by": "area"})
    texts = [answers(evidence_of(folder), ["winners"])["metric"].evidence for folder in (study, by_area)]
    assert texts[0] == "the task's GLUE metric: tables/data.md, column metric"
    assert texts[1].startswith("selected by the mean score over the front of exit settings")
    assert "GLUE metric" not in texts[1]


def test_looks_at_a_dev_set_that_selects_nothing_are_counted(tmp_path: Path) -> None:
    held_out = {"protocol": {"selection": "holdout"}, "num_examples": 60, "seeds": 3}
    once = predicted_study(tmp_path / "once", {"albert": 0.6}, ["rte"], **held_out)
    twice = predicted_study(tmp_path / "twice", {"albert": 0.6}, ["rte"], **held_out, seen_with={"seeds": 2})
    texts = [answers(evidence_of(folder), ["winners"])["held_out"].evidence for folder in (once, twice)]
    ends = ["dev is read once", "dev is read 2 times: with 2 seeds, then 3 seeds"]
    assert texts == [f"a slice of train selects; {end}" for end in ends]


def test_data_have_their_rows_here_beside_the_official_ones(written: dict[str, Table], study: Path) -> None:
    (rte, qnli) = data_table(evidence_of(study)).lines
    assert {name: rte.entries[name].text for name in ("train", "dev", "official_train", "official_test")} == {
        "train": "2,500",  # 20,000 examples in 8 epochs
        "dev": "60",
        "official_train": "2,490",
        "official_test": "3,000",
    }
    assert (rte.entries["licence"].text, qnli.entries["licence"].text) == ("unknown", "CC BY-SA 4.0")


def test_repeated_texts_of_the_plan_are_in_table_checklist_and_notes(tmp_path: Path) -> None:
    folder = predicted_study(tmp_path / "s", {"albert": 0.6}, ["rte", "qnli"], num_examples=60)
    counts = {
        "rte": RepeatedTexts(dev_rows=60, dev_in_train=3, contradictory_in_train=4, contradictory_in_dev=1),
        "qnli": RepeatedTexts(dev_rows=60, dev_in_train=0, contradictory_in_train=0, contradictory_in_dev=0),
    }
    file = require_plan(folder)
    write_plan(folder, replace(file, plan=replace(file.plan, repeated_texts=counts)))
    evidence = evidence_of(folder)
    rte, qnli = data_table(evidence).lines
    assert (rte.entries["dev_in_train"].text, rte.entries["contradictory"].text) == ("3 (5.0 %)", "4 + 1")
    assert (qnli.entries["dev_in_train"].text, qnli.entries["contradictory"].text) == ("0 (0.0 %)", "0 + 0")
    assert answers(evidence, ["winners"])["overlap"] == (
        False,
        "dev rows whose texts occur in train: RTE 3 of 60 (5.0 %), QNLI 0 of 60 (0.0 %); rows with contradictory "
        "labels: RTE 4 in train, 1 in dev",
    )
    note = (
        "3 of 60 (5.0 %) dev rows of RTE have texts that occur in train (1 of them with another label); on these rows"
    )
    assert [line for line in evidence.limits if "occur in train" in line] == [
        f"{note}, a score shows memory, not generalisation"
    ]
    written = {table.name: table for table in write_tables([folder], folder / "tables")}
    assert any(line.startswith(note) for line in written["dev"].notes)
    assert note in (folder / "tables" / "answer.md").read_text()


def test_repeated_texts_are_a_gap_if_no_plan_has_them(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "s", arm("palbert", "rte", [0.7] * 5))
    file = require_plan(folder)
    write_plan(folder, replace(file, plan=replace(file.plan, repeated_texts=UNSET)))
    (rte,) = data_table(evidence_of(folder)).lines
    assert rte.entries["dev_in_train"] == rte.entries["contradictory"] == Entry()
    assert holds(evidence_of(folder), "overlap") is None


def test_ranges_stand_beside_the_winners_of_their_method(written: dict[str, Table]) -> None:
    labels = [line.label for line in written["winners"].lines]
    assert labels[-2:] == ["albert, searched in", "palbert, searched in"]
    assert written["winners"].lines[-1].entries["learning_rate"].text == "2e-06 to 5e-05 log"


def test_licences_are_of_tasks_and_of_backbones_on_the_hub() -> None:
    assert LICENCES.keys() <= TASKS.keys()
    assert find_licence("albert/albert-base-v2") == "apache-2.0"
    assert find_licence("/models/ours") is None
