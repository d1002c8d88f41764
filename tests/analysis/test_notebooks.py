"""python -m pytest tests/analysis/test_notebooks.py (on a study that was launched they are run in test_study.py)"""

import ast
import re

import nbformat
import pytest
from helpers.launched_studies import launch, mini_plan
from helpers.made_studies import arm, read_table, record, write_study
from helpers.places import ROOT
from helpers.swept_studies import swept_study

from analysis.statistics.exits import read_exits
from analysis.studies.cells import read_cell
from analysis.studies.load import load_study
from analysis.tables import write_tables

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((ROOT / "analysis" / "notebooks").glob("*.ipynb"))


def code_cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_page_lists_every_notebook():
    page = (ROOT / "docs" / "frames.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+)` \| .*\? \|$", page, re.MULTILINE)) == [path.stem for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_begins_with_the_one_question_that_it_answers(path):
    title = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0]
    assert title.startswith("# ") and title.endswith("?")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_committed_without_outputs(path):
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code_cells(path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_shows_and_defines_no_functions(path):
    nodes = [node for cell in code_cells(path) for node in ast.walk(ast.parse(cell.source))]
    assert not [node for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_counts_from_records_leave_no_number_in_tables(path):
    text = "\n".join(cell.source for cell in code_cells(path))
    assert text.count("groupby(") >= 3 and 'query("counts' in text
    assert "tables" not in text


@pytest.mark.parametrize(
    "killed_after",
    [pytest.param(0, marks=pytest.mark.long, id="nothing has ended"), pytest.param(9, id="no confirm trial yet")],
)
@pytest.mark.parametrize("name", [path.stem for path in NOTEBOOKS])
def test_runs_on_a_study_that_is_not_done(run_notebook, tmp_path, name, killed_after):
    folders = [tmp_path / which for which in ("one", "other")][: 1 + (name == "two_studies")]
    for folder in folders:
        launch(folder, mini_plan(tasks=("rte",)), killed_after=killed_after)
    run_notebook(name, *folders)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_reads_studies_by_the_public_frames_alone(path):
    imports = [line for cell in code_cells(path) for line in cell.source.splitlines() if "analysis" in line]
    assert [line for line in imports if line.startswith(("import ", "from "))] == ["import analysis"]


@pytest.fixture
def extended_study(tmp_path):
    """A study whose extension found a better configuration: the confirm trials of the former winner are superseded."""
    old = arm("palbert", "rte", [0.6] * 5, config={"learning_rate": 1e-5}, mean_layers=6.0)
    new = arm("palbert", "rte", [0.7, 0.72, 0.71, None, 0.74], config={"learning_rate": 2e-5}, mean_layers=8.0)
    return write_study(tmp_path / "study", [*old, *new])


def rows_below(notebook, code):
    """The texts of every line of the table that the cell with this code shows."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and code in cell.source]
    (output,) = cell.outputs
    lines = re.findall(r"<tr.*?</tr>", output.data["text/html"], re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in lines]


def test_medians_frame_equals_dev_table_after_new_winner(extended_study, run_notebook, tmp_path):
    write_tables([extended_study], tmp_path / "tables")
    ours = [row for row in read_table(tmp_path / "tables" / "dev.csv") if row["source"] == "ours"]
    assert [(row["rte"], row["rte_n"]) for row in ours] == [("71.5", "4")]
    notebook = run_notebook("which_method", extended_study)
    assert rows_below(notebook, "(100 * medians)")[-1] == ["palbert", "71.5"]
    assert rows_below(notebook, 'aggfunc="count"')[-1] == ["palbert", "4"]


def test_layers_frame_equals_exits_table_after_new_winner(extended_study, run_notebook, tmp_path):
    write_tables([extended_study], tmp_path / "tables")
    assert [row["mean_layers"] for row in read_table(tmp_path / "tables" / "exits.csv")] == ["8.00"]
    notebook = run_notebook("where_examples_leave", extended_study)
    assert rows_below(notebook, "layer_ratio=")[-1] == ["palbert", "8.0", "1.5"]


def test_which_method_shows_differences_by_seed_and_by_example(run_notebook, tmp_path):
    folder = swept_study(tmp_path / "s", ["albert", "palbert"], ["rte", "stsb"], examples=60)
    study = load_study(folder)
    albert, palbert = (read_cell(study, method, "rte") for method in ("albert", "palbert"))
    apart = [100 * (mine - theirs) for mine, theirs in zip(palbert.scores, albert.scores, strict=True)]
    notebook = run_notebook("which_method", folder)
    assert rows_below(notebook, 'groupby("task").median()')[-2] == ["rte", f"{sorted(apart)[2]:.1f}"]
    above = sum(difference > 0 for difference in apart)
    assert rows_below(notebook, "seeds_above =")[-2] == ["rte", f"{above} of 5"]
    assert rows_below(notebook, "sure =")[-1][:3] == ["rte", "palbert", f"{sum(apart) / 5:.1f}"]
    tested = rows_below(notebook, "tested =")
    assert tested[1][1:5] == ["rte", "palbert", "albert", f"{sum(apart) / 5:.1f}"] and len(tested) == 3


def test_search_shows_what_was_gained_and_what_it_cost(run_notebook, tmp_path):
    scores = [0.6, 0.65, 0.75, 0.7, 0.62]
    trials = [
        record("palbert", "rte", score, phase="search", seed=i, trial=i, config={"q": i / 10}, gpu_seconds=360.0)
        for i, score in enumerate(scores)
    ]
    confirm = [record("palbert", "rte", 0.72, seed=seed, config={"q": 0.2}, gpu_seconds=100.0) for seed in (42, 43)]
    notebook = run_notebook("search", write_study(tmp_path, [*trials, *confirm], seeds=2))
    gained = rows_below(notebook, "gained =")[-1]
    assert gained == ["palbert", "rte", "60.0", "65.0", "75.0", "72.0", "15.0", "10.0", "3.0"]
    assert rows_below(notebook, "points per hour")[-1] == ["palbert", "rte", "200.0", "1800.0", "20.0"]
    assert rows_below(notebook, "best_so_far")[-1] == ["palbert", "0.6"]


def test_two_studies_show_how_far_they_lie_apart(run_notebook, tmp_path):
    one, other = (
        swept_study(tmp_path / name, ["palbert"], ["rte"], better_by=by, examples=60)
        for name, by in (("one", 0.0), ("other", -0.3))
    )
    medians = [100 * read_cell(load_study(folder), "palbert", "rte").median for folder in (one, other)]
    notebook = run_notebook("two_studies", one, other)
    assert rows_below(notebook, "protocols[") == [["", "one (1)", "other (2)"]]  # no rule differs
    last = rows_below(notebook, "ranges overlap")[-1]
    assert last == ["palbert", "rte", f"{round(medians[1], 1) - round(medians[0], 1):.1f}", "False"]
    sides = [float(number) for number in rows_below(notebook, "sides_right =")[-1][2:]]
    assert sum(sides) == pytest.approx(100, abs=0.3) and sides[1] > sides[2]


def test_where_examples_leave_shows_the_shares_of_the_picture(run_notebook, tmp_path):
    folder = swept_study(tmp_path / "s", ["palbert", "pondernet"], ["rte"], examples=60)
    exits = read_exits(read_cell(load_study(folder), "palbert", "rte"))
    notebook = run_notebook("where_examples_leave", folder)
    header, *_, palbert, _ = rows_below(notebook, "shares =")
    shown = dict(zip(map(int, header[2:]), map(float, palbert[2:]), strict=True))
    expected = (100 * exits.shares.mean(axis=0)).round()
    assert shown == {layer: expected[layer - 1] for layer in range(1, 13)}
    assert float(rows_below(notebook, "(between / total)")[-1][1]) < 1


MEDIANS = {"albert": 0.71, "pabee": 0.705, "palbert": 0.73}
PAPER_TASKS = ["sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb"]


def five_scores(method, task):
    """Scores whose median differs by method and task, in an order that is not theirs."""
    middle = MEDIANS[method] + 0.013 * PAPER_TASKS.index(task)
    return [middle + 0.02, middle - 0.01, middle, middle + 0.001, middle - 0.03]


@pytest.fixture
def eight_tasks(tmp_path):
    """A study of three methods; palbert lacks a seed of RTE."""
    scores = {(method, task): five_scores(method, task) for method in MEDIANS for task in PAPER_TASKS}
    scores["palbert", "rte"][1] = None
    return write_study(tmp_path / "s", [row for place, own in scores.items() for row in arm(*place, own)])


def numbers_of(row):
    return [None if text in ("", "–", "--") else float(text) for text in row]


def test_median_of_5_equals_dev_table_in_papers_order(eight_tasks, run_notebook, tmp_path):
    write_tables([eight_tasks], tmp_path / "tables")
    columns = [*PAPER_TASKS, "macro"]
    expected = {}
    for line in read_table(tmp_path / "tables" / "dev.csv"):
        if not line["block"] or ("Tab.2" in line["block"] and ", dev, " in line["block"]):
            expected[line["method"]] = numbers_of(line[column] for column in columns)
    assert expected["albert"][-1] is not None and expected["palbert"][-1] is None  # a seed is missing
    notebook = run_notebook("median_of_5", eight_tasks)
    html = [(row[-10], numbers_of(row[-9:])) for row in rows_below(notebook, "table.style")[2:]]
    labels = ["albert", *(f"published {name}" for name in ("ALBERT", "ALBERT-9L"))]
    labels += ["pabee", "published PABEE", "published PonderNet", "palbert", "published PALBERT"]
    assert [label for label, _ in html] == [label if label.startswith("published") else "ours" for label in labels]
    assert [numbers for _, numbers in html] == [expected[label] for label in labels]
    assert rows_below(notebook, "nunique()")[-1] == ["palbert", "5", "4", *"555555"]
    (latex,) = [output.text for cell in notebook.cells for output in cell.get("outputs", []) if "text" in output]
    body = latex.split("\\midrule\n")[1].split("\\bottomrule")[0]
    lines = [line.split("\\\\")[0].split("&") for line in body.splitlines() if "&" in line]
    assert [numbers_of(text.strip() for text in line[-9:]) for line in lines] == [numbers for _, numbers in html]


def test_median_of_5_has_no_published_number_on_other_data(run_notebook, tmp_path):
    rows = [row for task in PAPER_TASKS for row in arm("albert", task, [0.7] * 5, data_differences=("400 rows",))]
    notebook = run_notebook("median_of_5", write_study(tmp_path, rows))
    assert [row[1:] for row in rows_below(notebook, "table.style")[2:]] == [["ours", *["70.0"] * 9]]
