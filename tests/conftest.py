"""Settings for every test: no network, no telemetry, no windows, one thread. Set before any library reads them."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

os.environ.update(
    DO_NOT_TRACK="true",
    HF_DATASETS_OFFLINE="1",
    HF_HUB_OFFLINE="1",
    MLFLOW_DISABLE_TELEMETRY="true",
    MLFLOW_LOGGING_LEVEL="ERROR",
    MPLBACKEND="Agg",
    OMP_NUM_THREADS="1",  # tiny tensors gain nothing from more, and on a busy machine threads wait for each other
    RAY_USAGE_STATS_ENABLED="0",
    TOKENIZERS_PARALLELISM="false",
)
for name in ("CLICOLOR_FORCE", "COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR", "TTY_COMPATIBLE"):
    os.environ.pop(name, None)  # what rich prints depends on them


def pytest_collection_finish() -> None:
    """Keeps all modules and tests out of garbage collections: each would look at more than a million objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def few_rows() -> Iterator[None]:
    """Trials of this module train on few rows, unless told otherwise."""
    from helpers.trials import training_on_few_rows

    with training_on_few_rows():
        yield
