"""python -m pytest tests/test_notebooks.py"""

import ast
from pathlib import Path

import nbformat
import pytest
from hand_made import predicted_study
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "analysis" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return predicted_study(
        tmp_path_factory.mktemp("runs") / "s", {"albert": 0.6, "palbert": 0.8}, ["rte"], num_examples=50
    )


def read(path):
    return nbformat.read(path, as_version=4)


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["dev_tables", "search", "speed_against_quality"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_from_top_to_bottom_on_a_study(path, study, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = read(path)
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    parameters.source = f"study_folder = {str(study)!r}"
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type in ("error", "stream")]
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_committed_without_outputs(path):
    code = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_shows_and_defines_no_functions(path):
    for cell in read(path).cells:
        if cell.cell_type == "code":
            nodes = ast.walk(ast.parse(cell.source))
            assert not [node for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda)]
