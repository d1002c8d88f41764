"""Comparisons of predictions from any program: pytest tests/analysis/test_compare.py"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.made_studies import predicted_study
from scipy import stats
from sklearn import metrics as sklearn_metrics

import analysis
from analysis import compare
from analysis.compare import compared_tables, read_answers
from analysis.layouts.certainty_tables import comparisons_table
from analysis.layouts.evidence import gather
from analysis.layouts.rendering import json_text
from analysis.statistics.samples import resample
from analysis.studies.load import load_study
from trainables.data.tasks import TASKS

WRITERS: dict[str, Callable[[pd.DataFrame, Path], object]] = {
    "csv": lambda rows, path: rows.to_csv(path, index=False),
    "tsv": lambda rows, path: rows.to_csv(path, index=False, sep="\t"),
    "jsonl": lambda rows, path: rows.to_json(path, orient="records", lines=True, double_precision=15),
    "parquet": lambda rows, path: rows.to_parquet(path),
}


def exported(folder: Path) -> pd.DataFrame:
    predictions = analysis.load(folder).predictions
    return predictions[predictions.counts].rename(columns={"id": "example"})


def made(*, methods: tuple[str, ...] = ("one", "two"), seeds: int = 3, n: int = 60, task: str = "rte") -> pd.DataFrame:
    """Answers to n examples of two classes, each right in 7 of 10 cases."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=n)
    parts = []
    for method in methods:
        for seed in range(seeds):
            answers = np.where(rng.random(n) < 0.7, labels, 1 - labels)
            parts.append(pd.DataFrame({"example": range(n), "label": labels, "answer": answers, "seed": seed}))
            parts[-1] = parts[-1].assign(method=method, task=task)
    return pd.concat(parts, ignore_index=True)


def write(rows: pd.DataFrame, path: Path) -> Path:
    WRITERS[path.suffix[1:]](rows, path)
    return path


def by_pair(text: str) -> dict[str, dict]:
    """The lines of a table's JSON file."""
    return {line["pair"]: line for line in json.loads(text)["lines"]}


@pytest.mark.parametrize("ending", WRITERS)
def test_exported_predictions_of_a_study_give_its_own_comparisons(ending, tmp_path, capsys):
    methods = {"albert": 0.6, "pabee": 0.7, "palbert": 0.8}
    study = predicted_study(tmp_path / "study", methods, ["rte", "cola"], num_examples=80)
    evidence = gather([load_study(study)])
    table = comparisons_table(evidence)
    file = write(exported(study), tmp_path / f"predictions.{ending}")
    out = ["--baseline", str(evidence.baseline), "--out", str(tmp_path / "out")]
    assert compare.main([str(file), *out]) == 0
    assert [len(part.lines) for part in table.parts] == [4, 2]
    assert by_pair((tmp_path / "out" / "comparisons.json").read_text()) == by_pair(json_text(table))
    assert f"## Comparisons with {evidence.baseline}" in capsys.readouterr().out


def test_every_metric_and_a_sampled_exit_give_the_studys_own_numbers(tmp_path):
    methods, tasks = {"albert": 0.6, "palbert": 0.8, "pondernet": 0.61}, ["rte", "cola", "stsb", "mrpc", "mnli"]
    study = predicted_study(tmp_path / "study", methods, tasks, num_examples=80)
    rows = exported(study)
    parts = [write(part, tmp_path / f"{method}.csv") for method, part in rows.groupby("method", sort=False)]
    _, table = compared_tables(parts, {}, "albert")
    evidence = gather([load_study(study)])
    assert by_pair(json_text(table)) == by_pair(json_text(comparisons_table(evidence)))
    assert [line.label.partition(", ")[2] for line in table.lines].count("mean over 5 tasks") == 2


def test_order_of_rows_changes_nothing_beyond_rounding(tmp_path):
    rows = made()
    ordered, shuffled = (
        compared_tables([write(own, tmp_path / f"{name}.csv")], {}, "one")[1].lines[0].entries["p_value"].values[""]
        for name, own in (("ordered", rows), ("shuffled", rows.sample(frac=1, random_state=1)))
    )
    assert shuffled == pytest.approx(ordered, rel=1e-9)


@pytest.mark.parametrize(
    ("metric", "score"),
    {
        "accuracy": sklearn_metrics.accuracy_score,
        "f1": sklearn_metrics.f1_score,
        "f1_macro": lambda labels, answers: sklearn_metrics.f1_score(labels, answers, average="macro"),
        "mcc": sklearn_metrics.matthews_corrcoef,
        "pearson": lambda labels, answers: stats.pearsonr(labels, answers).statistic,
        "spearman": lambda labels, answers: stats.spearmanr(labels, answers).statistic,
    }.items(),
)
def test_scores_of_a_named_metric_are_scikit_learns_and_scipys(metric, score, tmp_path, capsys):
    rows = made(task="claims")
    assert compare.main([str(write(rows, tmp_path / "rows.csv")), "--metric", metric]) == 0
    of_seeds = [score(own.label, own.answer) for _, own in rows[rows.method == "one"].groupby("seed")]
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| one "))
    assert f" {100 * np.mean(of_seeds):.1f} (" in line


def test_named_classes_score_as_their_numbers(tmp_path):
    rows = made()
    named = rows.assign(
        **{name: np.where(rows[name] == 1, "not_entailment", "entailment") for name in ("label", "answer")}
    )
    files = [write(own, tmp_path / f"{name}.jsonl") for name, own in (("numbers", rows), ("named", named))]
    tables = [compared_tables([file], {}, "one")[1] for file in files]
    assert tables[0] == tables[1]


def test_an_answer_outside_the_classes_is_wrong(tmp_path):
    rows = made()
    rows["label"] = np.where(rows.label == 1, "yes", "no")
    rows["answer"] = np.where(rows.answer == 1, "yes", np.where(rows.example < 30, "I cannot say", "no"))
    samples = resample(read_answers([write(rows, tmp_path / "rows.csv")], {"rte": "accuracy"}))
    right = (rows.label == rows.answer)[rows.method == "one"].groupby(rows.seed).mean()
    assert samples["one", "rte"].scores == pytest.approx(right.to_list())


def test_names_of_tasks_are_glues_however_they_are_written(tmp_path):
    first, second = (made(methods=(name,), task=task) for name, task in (("one", "RTE"), ("two", "rte")))
    files = [write(own, tmp_path / f"{number}.csv") for number, own in enumerate((first, second))]
    assert compared_tables(files, {}, "one")[1].lines[0].label == "two - one, RTE"


@pytest.mark.parametrize("ending", WRITERS)
def test_an_empty_split_or_draw_is_like_a_missing_column(ending, tmp_path):
    mnli = pd.concat([made(task="mnli").assign(split=split) for split in TASKS["mnli"].dev_splits])
    mixed = write(pd.concat([mnli, made()]).assign(draw=None), tmp_path / f"mixed.{ending}")
    alone = write(made(), tmp_path / f"alone.{ending}")
    pairs = [compared_tables([file], {}, "one")[1].lines for file in (alone, mixed)]
    labels = [[line.label for line in lines] for lines in pairs]
    assert labels[0] == ["two - one, RTE"] and set(labels[1]) == {"two - one, MNLI", "two - one, RTE"}
    same = [next(line for line in lines if line.label == "two - one, RTE") for lines in pairs]
    assert same[0].entries["difference"] == same[1].entries["difference"]


def test_without_a_baseline_every_pair_is_one_family(tmp_path):
    file = write(made(methods=("one", "two", "three")), tmp_path / "rows.csv")
    scores, others = compared_tables([file], {})
    assert (scores.name, others.title, len(others.lines)) == ("scores", "Comparisons", 3)


def without(rows: pd.DataFrame, **where: object) -> pd.DataFrame:
    chosen = np.logical_and.reduce([rows[name] == value for name, value in where.items()])
    return rows[~chosen]


def test_predictions_named_like_a_table_are_not_overwritten(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = write(made(), Path("scores.csv")).read_bytes()
    assert compare.main(["scores.csv", "--out", "."]) == 2
    assert capsys.readouterr() == (
        "",
        "analysis.compare: --out . has scores.csv, but no written_by.json, so these files may be no tables; allowed: a "
        "folder without them\n",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["scores.csv"] and Path("scores.csv").read_bytes() == rows
    assert [compare.main(["scores.csv", "--out", "tables"]) for _ in range(2)] == [0, 0]


def changed(rows: pd.DataFrame, row: int, **values: object) -> pd.DataFrame:
    rows = rows.astype(dict.fromkeys(values, object))
    for name, value in values.items():
        rows.loc[row, name] = value
    return rows


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (
            made().drop(columns="seed"),
            [],
            "rows.csv lacks the column seed; it has example, label, answer, method, task",
        ),
        (changed(made(), 7, answer=None), [], "rows.csv: answer is missing in 1 of 360 rows, first in row 8"),
        (
            without(made(), method="two", seed=1, example=17),
            [],
            "two on rte, seed 1: 1 of 60 examples are missing, such as 17; allowed: the same examples for every seed "
            "of every method",
        ),
        (
            changed(made(), 1, example=0),
            [],
            "one on rte, seed 0: example 0 occurs twice; allowed: once, or once per draw (column draw)",
        ),
        (changed(made(), 0, label=1 - made().label[0]), [], "rte: example 0 has more than one label"),
        (made(seeds=1), [], "one on rte has one seed; allowed: at least two, because a test needs several scores"),
        (made(methods=("one",)), [], "there is nothing to compare; allowed: at least two methods on one task"),
        (
            changed(made(task="stsb"), 5, answer="high"),
            [],
            "one on stsb, seed 0, example 5: answer is high; allowed for pearson and spearman: a number",
        ),
        (
            changed(made(), 5, answer=0.37),
            [],
            "one on rte, seed 0, example 5: answer is 0.37; allowed for accuracy: a class, as a whole number or a text",
        ),
        (
            changed(made(task="cola"), 5, answer=2),
            [],
            "one on cola, seed 0, example 5: answer is 2; allowed for matthews: 0, 1, unacceptable, acceptable",
        ),
        (
            made(task="claims"),
            [],
            "claims is not a GLUE task; give its metric with --metric claims=METRIC, where METRIC is one of "
            "accuracy, f1, f1_macro, matthews, pearson, spearman, mcc",
        ),
        (
            made(task="mnli"),
            [],
            "mnli has no values in the column `split`; allowed: dev_matched and dev_mismatched, "
            "or --metric mnli=accuracy",
        ),
        (made(), ["--metric", "sst2=f1"], "--metric sst2=f1: allowed: rte"),
        (made(), ["--metric", "RTE=f1", "--metric", "rte=mcc"], "--metric rte is given twice; allowed: once"),
        (made(), ["--metric", "f1", "--metric", "mcc"], "--metric is given twice; allowed: once"),
        (
            made(),
            ["--metric", "acuracy"],
            "no metric named 'acuracy'; available: accuracy, f1, f1_macro, matthews, pearson, spearman, mcc; "
            "did you mean accuracy?",
        ),
        (
            made(),
            ["--baseline", "ones"],
            "no method in these files named 'ones'; available: one, two; did you mean one?",
        ),
    ],
    ids=str,
)
def test_a_fault_of_the_rows_is_one_line(rows, options, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(rows, Path("rows.csv"))
    assert compare.main(["rows.csv", *options]) == 2
    assert capsys.readouterr() == ("", f"analysis.compare: {message}\n")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "rows.xlsx",
            b"",
            "rows.xlsx: the type of the file is unknown; allowed: a file that ends in .csv, .tsv, .jsonl, .parquet",
        ),
        ("rows.csv", b"", "rows.csv: No columns to parse from file"),
        ("rows.jsonl", b"{", "rows.jsonl: "),
        ("rows.parquet", b"PAR1", "rows.parquet: "),
    ],
)
def test_a_file_that_cannot_be_read_is_named_in_one_line(name, content, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    assert compare.main([name]) == 2
    output, error = capsys.readouterr()
    assert output == "" and error.startswith(f"analysis.compare: {message}") and error.count("\n") == 1


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize(("answer", "shown"), [([0.1, 0.9], "[0.1, 0.9]"), ({"no": 0.1}, "{'no': 0.1}")])
def test_an_answer_with_several_values_is_refused(ending, answer, shown, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(made().assign(answer=[answer] * len(made())), Path(f"rows.{ending}"))
    assert compare.main([f"rows.{ending}"]) == 2
    said = f"analysis.compare: rows.{ending}: answer is {shown} in row 1; allowed: a class or a number\n"
    assert capsys.readouterr() == ("", said)
