"""Settings for every test: no network, no telemetry, no windows. Set before any library reads them."""

from __future__ import annotations

import os

os.environ.update(
    DO_NOT_TRACK="true",
    HF_DATASETS_OFFLINE="1",
    HF_HUB_OFFLINE="1",
    MLFLOW_DISABLE_TELEMETRY="true",
    MLFLOW_LOGGING_LEVEL="ERROR",
    MPLBACKEND="Agg",
    RAY_USAGE_STATS_ENABLED="0",
    TOKENIZERS_PARALLELISM="false",
)
