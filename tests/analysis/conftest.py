"""What tests of this room share: commands that leave no trace in the process, and notebooks that are run."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from helpers.places import PATIENCE_SECONDS, ROOT
from nbclient import NotebookClient
from nbformat import NotebookNode


@pytest.fixture(autouse=True)
def restored_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command changes how warnings are printed and what SIGTERM does; the next test has both as before."""
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def run_notebook(monkeypatch: pytest.MonkeyPatch) -> Callable[..., NotebookNode]:
    """Runs a notebook of this name on one or two study folders, from top to bottom; gives it with its outputs."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(name: str, *studies: Path) -> NotebookNode:
        notebook = nbformat.read(ROOT / "analysis" / "notebooks" / f"{name}.ipynb", as_version=4)
        (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
        folders = [str(study) for study in studies]
        parameters.source = f"study_folder = {folders[0]!r}" if len(folders) == 1 else f"study_folders = {folders!r}"
        return NotebookClient(notebook, timeout=PATIENCE_SECONDS, kernel_name="python3").execute()

    return run
