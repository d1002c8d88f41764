"""A store that is ready to be written, and a study to write into it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.journals import MadeJournal
from helpers.mlflow_stores import begin_search, planned


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose tables are made: MLflow takes a second for them."""
    from mlflow.tracking import MlflowClient

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def uri(tmp_path: Path, empty_store: Path) -> str:
    """An empty store on sqlite."""
    return f"sqlite:///{shutil.copy(empty_store, tmp_path)}"


@pytest.fixture
def journal(tmp_path: Path) -> MadeJournal:
    """Two search trials (one stopped by ASHA), two confirm trials, and a failed one."""
    journal = planned(tmp_path / "runs" / "mine")
    begin_search(journal)
    journal.start("f" * 16, trial=2)
    journal.retry("f" * 16, "RuntimeError: node gone")
    journal.finish("f" * 16, error="loss is nan at step 3, learning rate 1.0")
    journal.whole_trial("c" * 16, [0.5, 0.6], phase="confirm", trial=0)
    journal.whole_trial("d" * 16, [0.5, 0.8], phase="confirm", trial=1)
    return journal
