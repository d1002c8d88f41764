"""python -m pytest tests/trainables/data/test_tasks.py"""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from helpers.configurations import values_of
from helpers.places import GLUE
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from syrupy.assertion import SnapshotAssertion

import trainables
from trainables.data.glue import load_split
from trainables.data.metrics import compute_metrics, metric_words, predictions_from_logits, score
from trainables.data.metrics import differences_from_official as differences
from trainables.data.tasks import GLUE_TASKS, TASKS, find_task


def metrics_of(task: str, predictions: list[float], labels: list[float]) -> dict[str, float]:
    return compute_metrics(TASKS[task], np.array(predictions), np.array(labels))


def test_tasks_come_in_the_order_of_the_paper_s_table() -> None:
    assert list(TASKS) == ["sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb", "wnli", "ax"]


def test_every_task_but_ax_can_be_trained_on() -> None:
    assert set(TASKS) - set(GLUE_TASKS) == {"ax"}


@pytest.mark.parametrize("task", TASKS.values(), ids=str)
def test_sizes_are_given_for_exactly_the_splits(task) -> None:
    train = (task.train_split,) if task.train_split else ()
    assert task.splits == (*train, *task.dev_splits, *task.test_splits)


@pytest.mark.parametrize("task", TASKS.values(), ids=str)
def test_every_class_has_a_name_in_the_files(task) -> None:
    assert len(task.file_labels) == len(task.labels)
    assert len(task.file_columns) == len(task.text_columns)


@pytest.mark.parametrize("task", TASKS.values(), ids=str)
def test_columns_that_are_read_stand_in_the_header(task) -> None:
    labels = () if task.headerless or not task.dev_splits else (task.label_column,)
    assert {*task.file_columns, *labels} <= set(task.header)


def test_unknown_task_is_answered_with_the_menu() -> None:
    with pytest.raises(ValueError, match="no task named 'snli'; available: sst2"):
        find_task("snli")


def test_unknown_method_is_answered_with_the_menu() -> None:
    with pytest.raises(ValueError, match="no method named 'fastbert'; available: albert, "):
        trainables.load_method("fastbert")


def test_methods_are_the_files_with_a_search_space() -> None:
    assert {"albert", "electra-small", "palbert"} <= set(trainables.list_methods())
    assert "glue" not in trainables.list_methods()


def test_a_variant_has_its_method_s_module_and_configuration():
    assert trainables.load_method("palbert:a") is trainables.load_method("palbert")
    config = trainables.configure("palbert:a", values_of("palbert"))
    assert config == trainables.configure("palbert", values_of("palbert"))
    with pytest.raises(ValueError, match=r"^palbert:a: epochs is 0; allowed"):
        trainables.configure("palbert:a", values_of("palbert") | {"epochs": 0})


@pytest.mark.parametrize("name", ["fastbert:a", "palbert:", ":a"])
def test_a_variant_of_nothing_and_an_empty_one_are_refused(name):
    with pytest.raises(ValueError, match=f"^no method named '{name}'; available: albert, alectra-small") as error:
        trainables.departures(name)
    assert "\n" not in str(error.value)


def test_accuracy_is_the_share_of_right_answers() -> None:
    assert metrics_of("sst2", [1, 0, 1, 1], [1, 0, 0, 1]) == {"accuracy": 0.75}


def test_mrpc_has_accuracy_and_f1_of_the_positive_class() -> None:
    # true positives 2, false positives 1, false negatives 1
    metrics = metrics_of("mrpc", [1, 1, 1, 0, 0], [1, 1, 0, 1, 0])
    assert metrics == {"accuracy": pytest.approx(0.6), "f1": pytest.approx(2 / 3)}


def test_matthews_equals_its_definition() -> None:
    # (tp*tn - fp*fn) / sqrt((tp+fp)(tp+fn)(tn+fp)(tn+fn)) with tp 2, tn 1, fp 1, fn 1
    assert metrics_of("cola", [1, 1, 1, 0, 0], [1, 1, 0, 1, 0])["matthews"] == pytest.approx(1 / 6)


def test_stsb_has_linear_and_rank_correlation() -> None:
    metrics = metrics_of("stsb", [1.0, 2.0, 3.0, 10.0], [1.0, 2.0, 3.0, 4.0])
    assert metrics["spearman"] == pytest.approx(1.0)
    assert metrics["pearson"] == pytest.approx(np.corrcoef([1, 2, 3, 10], [1, 2, 3, 4])[0, 1])


@pytest.mark.parametrize("task, prediction", [("cola", 1), ("stsb", 2.5)])
def test_correlation_of_constant_predictions_is_zero_without_a_warning(task: str, prediction: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics = metrics_of(task, [prediction] * 4, [0, 1, 1, 0])
    assert set(metrics.values()) == {0.0}


def test_f1_without_a_positive_prediction_is_zero() -> None:
    assert metrics_of("qqp", [0, 0], [1, 0]) == {"accuracy": 0.5, "f1": 0.0}


def test_mnli_has_one_accuracy_per_dev_set() -> None:
    splits = ["dev_matched", "dev_matched", "dev_mismatched"]
    metrics = compute_metrics(TASKS["mnli"], np.array([0, 1, 2]), np.array([0, 2, 2]), splits)
    assert metrics == {"accuracy_matched": 0.5, "accuracy_mismatched": 1.0}


def test_mnli_s_score_weighs_both_dev_sets_alike() -> None:
    assert score(TASKS["mnli"], {"accuracy_matched": 0.5, "accuracy_mismatched": 1.0}) == 0.75


def test_mnli_slice_has_one_accuracy() -> None:
    metrics = metrics_of("mnli", [0, 1, 2, 2], [0, 1, 2, 0])
    assert metrics == {"accuracy": 0.75}
    assert score(TASKS["mnli"], metrics) == 0.75


def test_score_is_the_mean_of_the_metrics() -> None:
    assert score(TASKS["mrpc"], {"accuracy": 0.6, "f1": 0.8}) == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("task", "expected"),
    [("rte", "accuracy"), ("mnli", "accuracy"), ("cola", "Matthews correlation"), ("qqp", "mean of accuracy and F1")],
)
def test_a_score_in_words(task: str, expected: str) -> None:
    assert metric_words(TASKS[task]) == expected


def test_logits_of_classes_become_the_largest() -> None:
    assert predictions_from_logits(TASKS["rte"], np.array([[0.1, 0.2], [3.0, -1.0]])).tolist() == [1, 0]


def test_logits_of_regression_become_scores() -> None:
    assert predictions_from_logits(TASKS["stsb"], np.array([[2.5], [-1.0]])).tolist() == [2.5, -1.0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:A single label was found")
@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=50))
def test_metrics_of_classes_are_those_of_scikit_learn(pairs) -> None:
    predictions, labels = np.array(pairs).T
    found = metrics_of("mrpc", predictions, labels) | metrics_of("cola", predictions, labels)
    assert found["accuracy"] == pytest.approx(accuracy_score(labels, predictions))
    assert found["f1"] == pytest.approx(f1_score(labels, predictions, zero_division=0.0))
    assert found["matthews"] == pytest.approx(matthews_corrcoef(labels, predictions))


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=50))
def test_macro_f1_is_that_of_scikit_learn(pairs) -> None:
    """Also where a class occurs on one side only, or on neither."""
    predictions, labels = np.array(pairs).T
    found = compute_metrics(replace(TASKS["rte"], metrics=("f1_macro",)), predictions, labels)
    assert found["f1_macro"] == pytest.approx(f1_score(labels, predictions, average="macro", zero_division=0.0))


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.floats(0, 5, width=16)), min_size=2, max_size=50))
def test_correlations_are_those_of_scipy(pairs) -> None:
    """With ties."""
    predictions, labels = np.array(pairs).T
    assume(np.ptp(predictions) > 0 and np.ptp(labels) > 1e-3)
    found = metrics_of("stsb", predictions.astype(np.float32), labels)
    assert found["pearson"] == pytest.approx(pearsonr(predictions, labels).statistic)
    assert found["spearman"] == pytest.approx(spearmanr(predictions, labels).statistic)


@pytest.mark.parametrize("task", ["cola", "mrpc", "stsb"])
def test_metrics_import_neither_scikit_learn_nor_scipy(task: str) -> None:
    """Each takes longer to import than an epoch of a tiny model takes."""
    code = (
        "import sys, numpy; from trainables.data.metrics import compute_metrics;"
        "from trainables.data.tasks import TASKS;"
        f"compute_metrics(TASKS['{task}'], numpy.array([0, 1]), numpy.array([1, 0]));"
        "print(sorted({'sklearn', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_importing_the_table_imports_no_heavy_package() -> None:
    heavy = {"torch", "transformers", "datasets", "sklearn", "scipy", "ray", "mlflow", "optuna"}
    code = f"import sys, trainables.data.tasks; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


# The official GLUE.


def official(name: str, split: str) -> np.ndarray:
    return np.repeat(np.arange(TASKS[name].num_labels), TASKS[name].class_counts[split])


@pytest.mark.parametrize("name", [name for name in GLUE_TASKS if not TASKS[name].is_regression])
def test_every_split_has_counts_that_add_up_to_its_rows(name: str) -> None:
    task = TASKS[name]
    assert set(TASKS[name].class_counts) == {task.train_split, *task.dev_splits}
    assert all(sum(counts) == task.sizes[split] for split, counts in task.class_counts.items())


def test_rows_and_labels_are_both_looked_at(snapshot: SnapshotAssertion) -> None:
    train, dev = official("rte", "train"), official("rte", "dev")
    assert differences(TASKS["rte"], {"train": train, "dev": dev}) == ()
    assert differences(TASKS["rte"], {"train": train[:-10], "dev": dev}) == snapshot
    flipped = dev.copy()
    flipped[0] = 1
    assert differences(TASKS["rte"], {"dev": flipped}) == snapshot


def test_scores_are_counted_only() -> None:
    assert differences(TASKS["stsb"], {"dev": np.zeros(1_500, np.float32)}) == ()


@pytest.mark.skipif(not GLUE.exists(), reason="no real GLUE files")
@pytest.mark.parametrize("name", ["sst2", "rte", "cola", "mrpc"])
def test_the_official_files_are_official(name: str) -> None:
    splits = {split: load_split(TASKS[name], split, str(GLUE)).labels for split in ("train", "dev")}
    assert differences(TASKS[name], {split: labels for split, labels in splits.items() if labels is not None}) == ()


@pytest.mark.skipif(not GLUE.exists(), reason="no real GLUE files")
def test_a_folder_with_a_row_less_is_not_the_official_glue(tmp_path: Path) -> None:
    (tmp_path / "RTE").mkdir()
    lines = (GLUE / "RTE" / "dev.tsv").read_text().splitlines()
    (tmp_path / "RTE" / "dev.tsv").write_text("\n".join(lines[:-1]) + "\n")
    labels = load_split(TASKS["rte"], "dev", str(tmp_path)).labels
    assert labels is not None
    (difference,) = differences(TASKS["rte"], {"dev": labels})
    assert "276 rows" in difference and "277" in difference
