"""python -m pytest tests/analysis/test_notebooks.py (on a study that was launched they are run in test_study.py)"""

import ast
import csv

import nbformat
import pytest
from helpers.made_studies import arm, write_study
from helpers.places import ROOT

from analysis.tables import write_tables

NOTEBOOKS = sorted((ROOT / "analysis" / "notebooks").glob("*.ipynb"))


def code_cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["dev_tables", "search", "speed_against_quality"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_committed_without_outputs(path):
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code_cells(path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_shows_and_defines_no_functions(path):
    nodes = [node for cell in code_cells(path) for node in ast.walk(ast.parse(cell.source))]
    assert not [node for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda)]


@pytest.fixture
def extended_study(tmp_path):
    """A study whose extension found a better configuration: the confirm trials of the former winner are superseded."""
    old = arm("palbert", "rte", [0.6] * 5, config={"learning_rate": 1e-5}, mean_layers=6.0)
    new = arm("palbert", "rte", [0.7, 0.72, 0.71, None, 0.74], config={"learning_rate": 2e-5}, mean_layers=8.0)
    return write_study(tmp_path / "study", [*old, *new])


def text_below(notebook, code):
    """What the cell with this code shows, as plain text."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and code in cell.source]
    (output,) = cell.outputs
    return output.data["text/plain"]


def test_medians_in_pandas_are_those_of_the_dev_table_after_a_new_winner(extended_study, run_notebook, tmp_path):
    write_tables([extended_study], tmp_path / "tables")
    with (tmp_path / "tables" / "dev.csv").open() as file:
        assert [(row["rte"], row["rte_n"]) for row in csv.DictReader(file) if row["source"] == "ours"] == [
            ("71.5", "4")
        ]
    notebook = run_notebook("dev_tables", extended_study)
    assert text_below(notebook, "(100 * medians)").split() == ["task", "rte", "method", "palbert", "71.5"]
    assert text_below(notebook, 'aggfunc="count"').split() == ["task", "rte", "method", "palbert", "4"]


def test_layer_ratio_in_pandas_is_that_of_the_speed_table_after_a_new_winner(extended_study, run_notebook, tmp_path):
    write_tables([extended_study], tmp_path / "tables")
    with (tmp_path / "tables" / "speed.csv").open() as file:
        assert [row["layer_ratio"] for row in csv.DictReader(file)] == ["1.50"]
    notebook = run_notebook("speed_against_quality", extended_study)
    assert text_below(notebook, "layer_ratio=").split()[:3] == ["method", "palbert", "1.5"]
