"""Settings for every test: no network, no telemetry, no windows, one thread. Set before any library reads them."""

from __future__ import annotations

import os

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


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests start Ray clusters and servers: with several test processes they run one by one in one of them, but
    for those that name a group of their own."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("slow"))
