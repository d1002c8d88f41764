"""Data are read before anything is created: pytest tests/study/test_checked_data.py"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from helpers.glue_folders import write_glue
from helpers.journals import CONFIG
from helpers.plan_files import options_from, plan_from, write_plan_of_launch
from helpers.simulation import NO_PROVENANCE

from study import launch
from study.decisions.scheduler import Scheduler
from study.facts.events import TrialStarted
from study.facts.journal import Journal
from study.launching.options import LaunchOptions
from study.launching.planned_study import prepare
from study.plans.plan import Plan
from study.plans.resolution import resolve
from trainables.data.glue import choose_holdout


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_glue(tmp_path / "glue", rows=40)


def said(capsys: pytest.CaptureFixture, tmp_path: Path, data: Path, *arguments: str) -> list[str]:
    """The lines of a refusal, which leaves nothing behind."""
    out = tmp_path / "runs"
    status = launch.main(["--task", "rte", "--data", str(data), "--out", str(out), *arguments])
    printed = capsys.readouterr()
    assert status == 2 and printed.out == "" and not out.exists()
    return printed.err.strip().splitlines()


@pytest.mark.parametrize("dry", [["--dry-run"], []])
@pytest.mark.parametrize(
    "content, told",
    [
        (bytes(range(256)), "line 2: byte 0x80 is not UTF-8; allowed: UTF-8"),
        (b"", "no rows; the official RTE dev has 277"),
        (b"index\tsentence1\tsentence2\tlabel\n", "no rows; the official RTE dev has 277"),
        (b"index\tsentence1\tlabel\n0\tOne .\tentailment\n", "there is no column 'sentence2'"),
        (
            b"index\tsentence1\tsentence2\tlabel\n0\tOne .\tTwo .\tyes\n",
            "the labels of RTE are entailment, not_entailment",
        ),
        (
            b"index\tsentence1\tsentence2\tlabel\n0\tOne .\tTwo .\n",
            "line 2: the number of columns is 3 instead of 4: '0 | One .",
        ),
        (b"index\tsentence1\tsentence2\tlabel\n0\t \t\tentailment\n", "allowed: text in at least one"),
    ],
)
def test_a_file_that_cannot_be_trained_on_is_one_line(capsys, tmp_path, data, content, told, dry):
    (data / "RTE" / "dev.tsv").write_bytes(content)
    (line,) = said(capsys, tmp_path, data, *dry)
    assert line.startswith(f"study.launch: {data}/RTE/dev.tsv") and told in line


def test_the_first_ten_faults_of_all_files_are_told(capsys, tmp_path, data):
    (data / "RTE" / "train.tsv").write_text((data / "RTE" / "train.tsv").read_text().replace("not_ent", "no ent", 7))
    (data / "RTE" / "dev.tsv").write_text((data / "RTE" / "dev.tsv").read_text().replace("not_ent", "no ent", 7))
    head, *lines = said(capsys, tmp_path, data)
    assert head == "study.launch: the data have at least 10 faults; correct them, or choose another folder"
    assert [("train" in line, "dev" in line) for line in lines] == [(True, False)] * 7 + [(False, True)] * 3
    assert all(
        "unknown label 'no entailment'; the labels of RTE are entailment, not_entailment" in line for line in lines
    )


def options_for(folder: Path) -> LaunchOptions:
    return options_from("--name", "mine", "--out", str(folder.parent))


def plan_on(data: Path) -> Plan:
    return plan_from("--task", "rte", "--data", str(data), "--method", "albert")


def test_a_file_may_be_mended_until_a_trial_has_used_it(tmp_path, data):
    folder, file = tmp_path / "runs" / "mine", data / "RTE" / "train.tsv"
    before = resolve(plan_on(data))
    write_plan_of_launch(folder, before)
    with closing(Journal(folder)) as journal:
        Scheduler(before, journal, NO_PROVENANCE).begin_launch(command="", host="", pid=0)
    file.write_text(file.read_text().replace("\tnot_entailment", "\tentailment", 1))
    mended, *_ = prepare(plan_on(data), options_for(folder))
    assert mended.arms[0].data_fingerprint != before.arms[0].data_fingerprint

    trial = {"key": "a" * 16, "arm": "albert/rte", "phase": "search", "trial": 0, "seed": 42}
    with closing(Journal(folder)) as journal:
        journal.append(TrialStarted(time=journal.now(), **trial, config=CONFIG))
    with pytest.raises(ValueError, match=r"does not match this command.*data_fingerprint"):
        prepare(plan_on(data), options_for(folder))


def dry_run(capsys: pytest.CaptureFixture, data: Path, out: Path, *more: str) -> str:
    options = [*more, "--task", "rte", "--data", str(data), "--method", "albert", "--out", str(out), "--dry-run"]
    assert launch.main(options) == 0
    return " ".join(capsys.readouterr().out.split())


def test_repeated_texts_stand_in_the_dry_run(capsys, tmp_path, data):
    none = "dev rows whose texts occur in train: RTE 0 of 40 (0.0 %); rows with contradictory labels: none"
    assert none in dry_run(capsys, data, tmp_path / "runs")
    train = (data / "RTE" / "train.tsv").read_text()
    (data / "RTE" / "dev.tsv").write_text(train.replace("\tnot_entailment", "\tentailment", 1))
    printed = dry_run(capsys, data, tmp_path / "runs")
    assert "occur in train: RTE 40 of 40 (100.0 %); rows with contradictory labels: RTE 0 in train, 1 in dev" in printed
    assert "40 of 40 (100.0 %) dev rows of RTE have texts that occur in train (1 of them with another label)" in printed


@pytest.mark.parametrize("selection", ["holdout", "dev"])
def test_held_out_rows_with_a_single_label_are_noted(capsys, tmp_path, data, selection):
    head, *lines = (data / "RTE" / "train.tsv").read_text().splitlines()
    held = choose_holdout(np.arange(len(lines)))[1]
    labels = ["entailment" if row in held else "not_entailment" for row in range(len(lines))]
    lines = [f"{line.rpartition(chr(9))[0]}\t{label}" for line, label in zip(lines, labels, strict=True)]
    (data / "RTE" / "train.tsv").write_text("\n".join([head, *lines]) + "\n")
    note = (
        "the tenth of train of RTE that selects epochs has only the label entailment (4 rows), so no score there has a "
        "meaning; --selection dev or more rows"
    )
    assert (note in dry_run(capsys, data, tmp_path / "runs", "--selection", selection)) is (selection == "holdout")


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("rows", [1, 3])
def test_data_with_a_single_label_are_refused_before_anything_is_created(capsys, tmp_path, data, split, rows):
    head, *lines = (data / "RTE" / f"{split}.tsv").read_text().splitlines()
    lines = [line for line in lines if line.endswith("\tentailment")][:rows]
    (data / "RTE" / f"{split}.tsv").write_text("\n".join([head, *lines]) + "\n")
    (line,) = said(capsys, tmp_path, data)
    number = "the only row has" if rows == 1 else "all 3 rows have"
    assert line == (
        f"study.launch: {data}/RTE/{split}.tsv: {number} the label entailment, so no score has a meaning; allowed: at "
        "least two different labels"
    )
