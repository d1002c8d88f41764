"""What tests of several files of this room share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from helpers.corpora import random_documents, write_corpus
from helpers.own_methods import write_methods
from helpers.trained_studies import trained_study

from trainables.files import method_files


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with one model that was really trained, made once for all workers of pytest; tests change copies."""
    base = tmp_path_factory.getbasetemp()
    home = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "trained"
    with FileLock(f"{home}.lock"):
        if not (home / "whole").exists():
            trained_study(home / "study", "albert", "rte", config={"epochs": 1})
            (home / "whole").touch()
    return home / "study"


@pytest.fixture
def methods(tmp_path: Path) -> Iterator[Path]:
    """A folder of users' methods, which no later test includes."""
    yield write_methods(tmp_path / "methods")
    method_files.include(None)


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    return write_corpus(tmp_path / "text", random_documents())
