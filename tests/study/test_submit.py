"""A submission as the GLUE server takes it. Run: pytest tests/study/test_submit.py"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers.made_studies import arm, record, write_study
from helpers.messages import says
from helpers.places import ROOT
from helpers.trials import run_to_the_end, spec_of
from msgspec.structs import replace

from study.predict import label_text
from study.submit import main
from trainables.data.glue import load_split
from trainables.data.tasks import TASKS

pytestmark = pytest.mark.slow

NAMES = ["AX", "CoLA", "MNLI-m", "MNLI-mm", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B", "WNLI"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folder of a trained `albert` for some tasks."""
    folder = tmp_path_factory.mktemp("models")
    models_by_task = {}
    for task in ("mnli", "rte", "stsb", "wnli"):
        run = run_to_the_end(spec_of(task=task, config={"epochs": 1}), folder / "cache")
        run.save(folder / task)
        models_by_task[task] = run.outcome().model
    return models_by_task


@pytest.fixture
def study(tmp_path, models):
    """A study of mini-GLUE: two seeds per task, of which the second is better."""
    records = [row for task, folder in models.items() for row in arm("albert", task, [0.5, 0.7])]
    records = [replace(row, model=models[row.task] if row.seed == 43 else "gone") for row in records]
    write(tmp_path, [*records, record("albert", "qqp", None)])
    return tmp_path


def write(folder, records):
    """A study of mini-GLUE with these records."""
    write_study(folder, records, methods=None if records else ["albert"], tasks=None if records else ["rte"], **ON_MINI)


ON_MINI = {"data": "mini"}


def submitted(study, *options):
    """Rows of every file, as (index, prediction) without the header line, which is checked."""
    assert main([str(study), *options]) == 0
    files = {}
    with zipfile.ZipFile(study / "submission.zip") as archive:
        for name in archive.namelist():
            header, *lines = archive.read(name).decode().splitlines()
            assert header == "index\tprediction"
            files[name.removesuffix(".tsv")] = [tuple(line.split("\t")) for line in lines]
    return files


def test_there_are_eleven_files_with_a_row_for_every_test_row(study):
    files = submitted(study)
    assert sorted(files) == sorted(NAMES)
    for name, task, split in (("AX", "ax", "test"), ("MNLI-mm", "mnli", "test_mismatched"), ("WNLI", "wnli", "test")):
        expected = [str(index) for index in range(len(load_split(TASKS[task], split, "mini").ids))]
        assert [index for index, _ in files[name]] == expected


def test_answers_to_generated_tasks_are_said_to_be_no_submission(study, capsys):
    submitted(study)
    warned = capsys.readouterr().err
    assert says(warned, f"warning: {study / 'submission.zip'} ", "generated tasks") and warned.count("\n") == 1


def test_labels_are_names_for_inference_tasks_and_numbers_for_the_others(study):
    files = submitted(study)
    three = {"entailment", "neutral", "contradiction"}
    menus = {name: {"0", "1"} for name in NAMES} | dict.fromkeys(("AX", "MNLI-m", "MNLI-mm"), three)
    menus |= {name: {"entailment", "not_entailment"} for name in ("QNLI", "RTE")}
    for name in set(NAMES) - {"STS-B"}:
        assert {prediction for _, prediction in files[name]} <= menus[name], name


def test_scores_lie_between_0_and_5(study):
    assert all(0 <= float(prediction) <= 5 for _, prediction in submitted(study)["STS-B"])


@pytest.mark.parametrize("value, text", [(-0.3, "0.000"), (5.7, "5.000"), (3.14159, "3.142")])
def test_scores_are_clipped(value, text):
    assert label_text(TASKS["stsb"], value) == text


def test_scores_of_a_task_without_a_range_are_not_clipped():
    assert label_text(replace(TASKS["stsb"], score_range=None), -7.0) == "-7.000"


def test_answers_are_those_of_the_best_model(study, models):
    from trainables.runs.trained_model import load_trained

    trained = load_trained(Path(models["rte"]))
    texts = load_split(TASKS["rte"], "test", "mini").texts[:5]
    for (_, prediction), pair in zip(submitted(study)["RTE"], texts, strict=False):
        logits = trained.model.infer(dict(trained.tokenizer(*[[text] for text in pair], return_tensors="pt"))).logits
        assert prediction == TASKS["rte"].labels[logits.argmax()]


def test_task_not_studied_gets_the_majority_class_and_a_warning(study, capsys):
    files = submitted(study)
    majority = np.bincount(load_split(TASKS["cola"], "train", "mini").labels).argmax()
    assert {prediction for _, prediction in files["CoLA"]} == {str(majority)}
    printed = capsys.readouterr().out
    assert says(printed, "CoLA.tsv: warning: ", "for cola; ", "majority class of train, 1")
    assert "RTE.tsv: albert, seed 43, dev score 70.0" in printed


def test_task_without_data_gets_the_official_number_of_rows(study, models, tmp_path, capsys):
    write(study, arm("albert", "rte", [0.7], model=models["rte"]))
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE" / "test.tsv").write_text("index\tsentence1\tsentence2\n0\ta dog\tan animal\n")
    files = submitted(study, "--data", str(tmp_path), "--any-length")
    assert (len(files["RTE"]), len(files["WNLI"]), len(files["AX"])) == (1, 146, 1104)
    said = capsys.readouterr()
    test = ["no file ", f"{tmp_path}/WNLI/test.tsv, ", "146 rows; "]
    train = ["no file ", f"{tmp_path}/WNLI/train.tsv, ", "every prediction is 0\n"]
    assert says(said.out, "WNLI.tsv: warning: ", "for wnli; ", *test, *train)
    # These are no generated tasks.
    assert says(said.err, f"warning: {tmp_path / 'submission.zip'} ", "trained on generated sentences\n")


def test_test_rows_need_no_train_file(study, models, tmp_path, capsys):
    write(study, arm("albert", "rte", [0.7], model=models["rte"]))
    for folder, columns in {"RTE": "sentence1\tsentence2", "QNLI": "question\tsentence"}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "test.tsv").write_text(f"index\t{columns}\n3\ta dog\tan animal\n")
    files = submitted(study, "--data", str(tmp_path), "--any-length")
    assert files["QNLI"] == [("3", "entailment")]
    train = ["no file ", f"{tmp_path}/QNLI/train.tsv, ", "every prediction is entailment\n"]
    assert says(capsys.readouterr().out, "QNLI.tsv: warning: ", "for qnli; ", *train)


def test_test_set_of_other_length_is_refused_early(study, models, tmp_path, capsys):
    write(study, arm("albert", "rte", [0.7], model=models["rte"]))
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE" / "test.tsv").write_text("index\tsentence1\tsentence2\n0\ta dog\tan animal\n")
    assert main([str(study), "--data", str(tmp_path)]) == 2
    said = capsys.readouterr()
    official = "official RTE test has 3,000; "
    assert says(said.err, f"study.submit: {tmp_path}: RTE.tsv ", "1 rows, ", official, "--any-length")
    assert said.err.count("\n") == 1 and said.out == ""
    assert not (study / "submission.zip").exists()


RTE_ROWS = [f"{index}\t{text}" for index, text in enumerate(["a dog\tan animal", "no cat\ta cat", "we sing\tall sing"])]


def write_rte(folder, rows):
    (folder / "RTE").mkdir(exist_ok=True)
    (folder / "RTE" / "test.tsv").write_text("\n".join(["index\tsentence1\tsentence2", *rows]) + "\n")
    return ["--data", str(folder)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, ["no file {file}; ", "mini, hub or a folder ", "rte/test.csv, .jsonl or .parquet"]),
        (b"", ["{file} has no rows; ", "3,000"]),
        (b"index\tsentence1\tsentence2\n0\tcaf\xe9\tx\n", ["{file}, line 2: byte 0xe9 ", "allowed: UTF-8"]),
        (b"index\ttext\n0\tx\n", ["{file}, line 1: ", "'text'; ", "index, sentence1, sentence2, label"]),
    ],
)
def test_unanswerable_test_set_is_refused_first(study, models, tmp_path, capsys, monkeypatch, content, message):
    write(study, arm("albert", "rte", [0.7], model=models["rte"]))
    monkeypatch.setattr("study.submit.include_unchanged_methods", lambda *_: pytest.fail("models were looked at"))
    (tmp_path / "RTE").mkdir()
    file = tmp_path / "RTE" / "test.tsv"
    if content is not None:
        file.write_bytes(content)
    assert main([str(study), "--data", str(tmp_path), "--any-length"]) == 2
    said = capsys.readouterr()
    assert says(said.err, "study.submit: ", *(part.format(file=file) for part in message))
    assert said.err.count("\n") == 1 and said.out == ""


def test_answers_keep_index_in_any_row_order(study, models, tmp_path):
    write(study, arm("albert", "rte", [0.7], model=models["rte"]))
    in_order = submitted(study, *write_rte(tmp_path, RTE_ROWS), "--any-length")["RTE"]
    assert [index for index, _ in in_order] == ["0", "1", "2"]
    assert submitted(study, *write_rte(tmp_path, RTE_ROWS[::-1]), "--any-length")["RTE"] == in_order
    assert submitted(study, *write_rte(tmp_path, RTE_ROWS[:0:-1]), "--any-length")["RTE"] == in_order[1:]


def test_same_study_gives_the_same_bytes(study):
    submitted(study)
    first = (study / "submission.zip").read_bytes()
    submitted(study)
    assert (study / "submission.zip").read_bytes() == first


def test_all_seeds_are_one_file_each_as_in_the_original(study, models, capsys):
    """tinkoff-ai/palbert at 52a79af, src/sub_zipper.py: METHOD_SEED.zip."""
    write(study, arm("albert", "rte", [0.5, 0.7, None], model=models["rte"]))
    assert main([str(study), "--all-seeds"]) == 0
    printed = capsys.readouterr().out
    assert sorted(path.name for path in study.glob("*.zip")) == ["submission-42.zip", "submission-43.zip"]
    for seed, score in ((42, "50.0"), (43, "70.0")):
        assert f"RTE.tsv: albert, seed {seed}, dev score {score}" in printed
        with zipfile.ZipFile(study / f"submission-{seed}.zip") as archive:
            assert len(archive.namelist()) == 11


def test_a_seed_is_chosen(study, models, capsys):
    write(study, arm("albert", "rte", [0.5, 0.7], model=models["rte"]))
    submitted(study, "--seed", "42")
    assert "RTE.tsv: albert, seed 42, dev score 50.0" in capsys.readouterr().out
    for options, message in (
        (["--seed", "41"], ["--seed is 41, ", "of albert ", "allowed: 42, 43\n"]),
        (["--seed", "42", "--all-seeds"], ["--seed and --all-seeds ", "leave one of them out\n"]),
    ):
        assert main([str(study), *options]) == 2
        assert says(capsys.readouterr().err, "study.submit: ", *message)


def test_several_methods_need_a_choice(study, models, capsys):
    write(study, [row for method in ("albert", "palbert") for row in arm(method, "rte", [0.7], model=models["rte"])])
    assert main([str(study)]) == 2
    assert says(capsys.readouterr().err, "study.submit: ", "several methods; ", "--method: albert, palbert\n")
    assert main([str(study), "--method", "albert"]) == 0


@pytest.mark.parametrize(
    "rows, options, message",
    [
        ([], [], "no completed confirm trial yet"),
        (arm("albert", "rte", [0.7], model="/gone"), [], "(rte) no longer exists: /gone"),
        (
            arm("albert", "rte", [0.7]),
            ["--method", "pabee"],
            "'pabee' is not a method with ",
        ),
    ],
)
def test_what_cannot_be_submitted_is_said_in_one_line(rows, options, message, tmp_path, capsys):
    write(tmp_path, rows)
    assert main([str(tmp_path), *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "submission.zip").exists()


def test_folder_that_is_no_study_is_refused(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert says(capsys.readouterr().err, f"study.submit: {tmp_path} has no plan.json; ", "folder of a study\n")


def test_help_does_not_import_torch():
    code = (
        "import sys, study.submit as s\ntry: s.main(['--help'])\nexcept SystemExit: assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
