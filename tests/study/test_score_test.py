"""Studies scored on test labels: pytest tests/study/test_score_test.py"""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from helpers.launched_studies import launched_study, mini_plan
from helpers.made_studies import arm, record, write_study
from helpers.trials import run_to_the_end, spec_of
from msgspec.structs import replace

from analysis import tables
from study import drop, launch, score_test
from study.facts.events import ModelOnTest, ScoredOnTest
from study.facts.journal import Journal
from study.facts.study_facts import read_facts
from study.score_test import load_labelled_test, main
from study.submit import predict_split
from trainables.data.glue import load_split
from trainables.data.metrics import compute_metrics, score
from trainables.data.tasks import TASKS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_rows")]

HEADERS = {"mrpc": "label\t#1 ID\t#2 ID\t#1 String\t#2 String", "stsb": "sentence1\tsentence2\tlabel"}


def write_labels(folder: Path, *tasks: str, order: int = 1) -> Path:
    """Made labels of mini-GLUE's test sets, in the form of HashEE's files; `order` -1: the rows backwards."""
    for task in tasks:
        lines = [HEADERS[task]]
        for row, (first, second) in [*enumerate(load_split(TASKS[task], "test", "mini").texts)][::order]:
            quoted = f'"{first.upper()} ""', f"{second} ."  # a copy quotes and spells its texts unlike
            mrpc, stsb = (str(row % 3 % 2), "-", "-", *quoted), (*quoted, f"{row % 11 / 2:.3f}")
            lines.append("\t".join(mrpc if task == "mrpc" else stsb))
        file = folder / TASKS[task].folder / "test_full.tsv"
        file.parent.mkdir(parents=True)
        file.write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[tuple[str, int], str]:
    """Trained models by task and seed."""
    folder = tmp_path_factory.mktemp("models")
    made = {}
    for task in ("mrpc", "stsb"):
        for seed in (42, 43):
            run = run_to_the_end(spec_of("pabee", task, seed=seed, config={"epochs": 1}), folder / "cache")
            run.save(folder / task / str(seed))
            made[task, seed] = run.outcome().model
    return made


@pytest.fixture
def study(tmp_path, models) -> Path:
    """A finished study of mini-GLUE."""
    records = [row for task in ("mrpc", "stsb") for row in arm("pabee", task, [0.7, 0.5])]
    records = [replace(row, model=models.get((row.task, row.seed))) for row in records]
    return write_study(tmp_path / "study", records, data="mini", seeds=2, samples=1)


def refused(capsys, *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1, printed
    return printed.err.removeprefix("study.score_test: ").strip()


def test_confirm_models_are_scored_on_test(study, tmp_path, capsys):
    labels = write_labels(tmp_path / "labels", "mrpc", "stsb")
    assert main([str(study), "--labels", str(labels)]) == 0
    events = read_facts(study).scored_on_test
    assert [(event.task, len(event.models)) for event in events] == [("mrpc", 2), ("stsb", 2)]
    records = {record.key: record for record in read_facts(study).records}
    for event in events:
        task, rows = TASKS[event.task], len(load_split(TASKS[event.task], "test", "mini").ids)
        own = np.array([row % 3 % 2 if task.name == "mrpc" else np.float32(row % 11 / 2) for row in range(rows)])
        assert event.rows == rows
        for model in event.models:
            _, answers, layers = predict_split(Path(records[model.key].model), task, "test", "mini")
            assert model.metrics == pytest.approx(compute_metrics(task, answers, own))
            assert (model.score, model.mean_layers) == (pytest.approx(score(task, dict(model.metrics))), layers)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("MRPC: pabee, seed 42: test ") and printed[0].endswith(" layers")
    tables.main([str(study)])
    best, other = (100 * model.score for model in events[0].models)  # seed 42 is the better one on dev
    low, high = sorted([f"{best:.1f}", f"{other:.1f}"])
    line = next(text for text in (study / "tables/scores_on_test.md").read_text().splitlines() if "pabee" in text)
    assert f"| {best:.1f} | " in line and (low == high or f"({low} to {high})" in line)


def seen(folder: Path, task: str = "mrpc", keys: tuple[str, ...] = ()) -> Path:
    """The study after test labels were seen."""
    own = {"score": 0.85, "metrics": {"accuracy": 0.8, "f1": 0.9}, "mean_layers": 6.0}
    with closing(Journal(folder)) as journal:
        models = [ModelOnTest(key=key, **own) for key in keys]
        journal.append(ScoredOnTest(time=journal.now(), task=task, rows=4, labels_digest="abc", models=models))
    return folder


def test_no_trial_changes_after_test_labels_were_seen(tmp_path, capsys):
    plan = mini_plan(methods=("albert",), tasks=("mrpc",))
    folder = seen(launched_study(tmp_path / "s", plan))
    files = {name: (folder / name).read_bytes() for name in ("events.jsonl", "plan.json")}
    assert drop.main([str(folder), read_facts(folder).records[-1].key, "--because", "a bad disk"]) == 2
    assert "mrpc was scored on test labels at " in capsys.readouterr().err
    for more in (["--seeds", "4"], ["--samples", "5"], ["--task", "rte"]):
        asked = ["--continue", str(folder), "--driver", "local", "--tracking-uri", "none", *more]
        assert launch.main(asked) == 2
        assert "so this study can no longer change; allowed: a new study with another --name" in capsys.readouterr().err
    assert {name: (folder / name).read_bytes() for name in files} == files
    assert launch.main(["--continue", str(folder), "--driver", "local", "--tracking-uri", "none"]) == 0
    assert "nothing is left to do" in capsys.readouterr().err


def test_a_task_is_scored_once(study, tmp_path, capsys):
    labels = write_labels(tmp_path / "labels", "mrpc")
    assert main([str(study), "--labels", str(labels)]) == 0
    capsys.readouterr()
    assert " already has test scores of mrpc, from 2" in refused(capsys, study, "--labels", labels)
    write_labels(labels, "stsb")
    assert main([str(study), "--labels", str(labels)]) == 0
    assert [event.task for event in read_facts(study).scored_on_test] == ["mrpc", "stsb"]


def test_tasks_without_test_scores_are_named_with_the_reason(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(score_test, "with_current_model_address", lambda record, folder: record)
    scores = {"score": 0.5, "metrics": {}, "mean_layers": 6.0}
    monkeypatch.setattr(score_test, "_score_model", lambda record, *rows: ModelOnTest(key=record.key, **scores))
    records = [row for task in ("mrpc", "stsb", "mnli") for row in arm("pabee", task, [0.7, 0.5])]
    study = write_study(tmp_path / "study", records, data="mini", seeds=2, samples=1)
    labels = write_labels(tmp_path / "labels", "mrpc")
    shutil.copytree(labels / "MRPC", labels / "MNLI")
    assert main([str(study), "--labels", str(labels)]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "not scored" in line] == [
        f"STS-B: not scored, because there is no {labels}/STS-B/test_full.tsv",
        "MNLI: not scored, because the task has 2 test sets",
    ]


def test_an_unfinished_study_is_refused(tmp_path, capsys):
    folder = write_study(tmp_path / "study", arm("pabee", "mrpc", [0.7]), data="mini", seeds=2, samples=1)
    labels = write_labels(tmp_path / "labels", "mrpc")
    assert refused(capsys, folder, "--labels", labels) == (
        f"the study {folder} is not finished; use test labels only after its last trial (see study.status)"
    )


def test_task_without_models_is_refused_and_stays_open(tmp_path, capsys):
    failed = [record("pabee", "mrpc", None, seed=seed, phase="confirm") for seed in (42, 43)]
    rows = [record("pabee", "mrpc", 0.7, seed=1, phase="search"), *failed]
    folder = write_study(tmp_path / "study", rows, data="mini", seeds=2, samples=1)
    labels = write_labels(tmp_path / "labels", "mrpc")
    assert refused(capsys, folder, "--labels", labels) == (
        f"{folder} has no confirm trial of mrpc that completed; allowed: a task with models"
    )
    assert not read_facts(folder).scored_on_test


def test_labels_of_other_rows_are_refused(study, tmp_path, capsys):
    turned = write_labels(tmp_path / "turned", "mrpc", order=-1)
    other = refused(capsys, study, "--labels", turned)
    assert " differs from the test set of MRPC in the text of " in other and " rows (first: row 0); give " in other
    short = write_labels(tmp_path / "short", "mrpc")
    file = short / "MRPC" / "test_full.tsv"
    file.write_text("\n".join(file.read_text().splitlines()[:-1]) + "\n")
    assert "; give all " in refused(capsys, study, "--labels", short)
    file.write_text(file.read_text().replace("\n1\t", "\nyes\t", 1))
    assert "unknown label 'yes'; the labels of MRPC are 0, 1" in refused(capsys, study, "--labels", short)
    shutil.rmtree(short / "MRPC")
    assert refused(capsys, study, "--labels", short) == (
        f"--labels {short} has no labels for the study's tasks; allowed: {short}/MRPC/test_full.tsv, "
        f"{short}/STS-B/test_full.tsv"
    )
    assert read_facts(study).scored_on_test == []


def test_labels_come_with_the_texts_of_the_test_set(tmp_path):
    file = write_labels(tmp_path, "mrpc") / "MRPC" / "test_full.tsv"
    rows, test = load_labelled_test(TASKS["mrpc"], file, "mini"), load_split(TASKS["mrpc"], "test", "mini")
    assert (rows.ids, rows.texts) == (test.ids, test.texts) and rows.labels.tolist()[:4] == [0, 1, 0, 0]


def test_papers_test_rows_stand_beneath_ours_on_real_data_alone(tmp_path):
    for data, expected in {"glue": True, "mini": False}.items():
        folder = write_study(tmp_path / data, arm("pabee", "mrpc", [0.8, 0.9]), data=data, seeds=2, samples=1)
        seen(folder, keys=tuple(record.key for record in read_facts(folder).records if record.phase == "confirm"))
        tables.main([str(folder)])
        text = (folder / "tables" / "scores_on_test.md").read_text()
        assert ("published PABEE" in text) == expected and "test labels of MRPC (SHA-256 abc" in text
        checklist = (folder / "tables" / "checklist.md").read_text()
        assert "no test score is reported" not in checklist and "tables/scores_on_test.md" in checklist
