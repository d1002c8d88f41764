"""What tests of this room share: a study, commands that leave no trace in the process, and notebooks that are run."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import nbformat
import pytest
from helpers.made_studies import evidence_of, predicted_study
from helpers.places import PATIENCE_SECONDS, ROOT
from jupyter_client import AsyncKernelManager
from jupyter_core.utils import run_sync
from matplotlib.figure import Figure
from nbclient import NotebookClient
from nbformat import NotebookNode

from analysis.layouts.evidence import Evidence
from analysis.pictures.picture import render_image
from study.terminal.processes import STOP_SIGNALS


@pytest.fixture(autouse=True)
def restored_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command changes how warnings are printed and what signals do; the next test has both as before."""
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def without_pdf() -> Iterator[None]:
    """Reports of this module have empty PDF files, which take as long to draw as the SVG files on the page."""

    def draw(figure: Figure, ending: Literal["svg", "pdf"]) -> bytes:
        return render_image(figure, ending) if ending == "svg" else b""

    with pytest.MonkeyPatch.context() as fast:
        fast.setattr("analysis.report.render_image", draw)
        yield


@pytest.fixture(scope="session")
def kernel() -> Iterator[AsyncKernelManager]:
    """A Jupyter kernel, started once, because its start and imports take longer than a notebook."""
    manager = AsyncKernelManager(kernel_name="python3")
    run_sync(manager.start_kernel)(env=os.environ | {"PYTHONPATH": str(ROOT)})
    yield manager
    run_sync(manager.shutdown_kernel)(now=True)


@pytest.fixture
def run_notebook(kernel: AsyncKernelManager) -> Callable[..., NotebookNode]:
    """Runs a notebook of this name on one or two study folders, from top to bottom; gives it with its outputs."""

    def run(name: str, *studies: Path) -> NotebookNode:
        notebook = nbformat.read(ROOT / "analysis" / "notebooks" / f"{name}.ipynb", as_version=4)
        (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
        folders = [str(study) for study in studies]
        parameters.source = f"study_folder = {folders[0]!r}" if len(folders) == 1 else f"study_folders = {folders!r}"
        notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))  # forget the names of the notebook before
        client = NotebookClient(notebook, km=kernel, timeout=PATIENCE_SECONDS)
        client.execute()
        client.kc.stop_channels()
        del notebook.cells[0]
        return notebook

    return run


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of three methods on two tasks, one of them better than the others."""
    methods = {"albert": 0.6, "palbert": 0.8, "pondernet": 0.6}
    return predicted_study(tmp_path_factory.mktemp("runs") / "s", methods, ["rte", "stsb"], num_examples=60)


@pytest.fixture(scope="session")
def evidence(study: Path) -> Evidence:
    return evidence_of(study)
