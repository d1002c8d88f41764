"""Every analysis command and notebook on a study of all methods: pytest tests/analysis/test_study.py

The short tests have a study of two methods, in tests/study/test_whole_study.py.
"""

import re
import subprocess
import sys

import pytest
from helpers.launches import WITHOUT_RAY
from helpers.places import PATIENCE_SECONDS, ROOT

from analysis import explain, report, tables, verify
from analysis.studies.load import load_study
from study.facts.study_facts import read_facts

pytestmark = [pytest.mark.slow, pytest.mark.long]

SMALL = ["--method", "all", "--task", "rte", "--samples", "1", "--seeds", "2", "--epochs", "1"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "all"
    where = ["--out", str(folder.parent), "--name", folder.name, "--tracking-uri", "none"]
    command = [sys.executable, "-m", "study.launch", *SMALL, *where, *WITHOUT_RAY]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def methods(study):
    return load_study(study).methods


def test_what_the_launch_wrote_verifies(study):
    assert verify.verify(study) == []


def test_tables_are_made_again_from_several_folders(study, tmp_path, capsys):
    assert tables.main([str(study), "--out", str(tmp_path), "--strict", "--format", "csv"]) == 0
    assert (tmp_path / "dev.csv").read_text() == (study / "tables" / "dev.csv").read_text() == capsys.readouterr().out


def test_every_cell_is_explained(study, methods, capsys):
    for method in methods:
        assert explain.main([str(study), f"{method}/rte"]) == 0
    text = capsys.readouterr().out
    for record in read_facts(study).records:
        assert record.key in text


def test_report_shows_every_method(study, methods):
    page = report.write_report(study).read_text()
    assert all(re.search(rf'<th scope="row"[^>]*>{method}</th>', page) for method in methods)


def outputs_of(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


@pytest.mark.parametrize("name", ["search", "where_examples_leave", "which_method"])
def test_notebook_runs_from_top_to_bottom(name, study, run_notebook):
    outputs = outputs_of(run_notebook(name, study))
    assert not [output for output in outputs if output.output_type in ("error", "stream")]
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs)


def test_notebook_on_two_studies_runs_from_top_to_bottom(study, run_notebook):
    outputs = outputs_of(run_notebook("two_studies", study, study))
    assert not [output for output in outputs if output.output_type in ("error", "stream")]
