"""What MLflow itself takes for a study's runs: one `create_run`, one `set_terminated`, one `log_batch` for each.

    python -m benchmarks.mlflow_loop runs/NAME URI

No look for runs that are there already, no digests, no files: the peer of `study.mirror` in `benchmarks.scale`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from study.mirror import Mirror
from study.mlflow_mirror.run_content import MLFLOW_STATUS, Run
from study.mlflow_mirror.tracking import prepare_environment


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mlflow_loop")
    parser.add_argument("folder", type=Path)
    parser.add_argument("uri")
    options = parser.parse_args(argv)
    prepare_environment()
    mirror = Mirror(options.folder, options.uri)
    mirror.read()
    log_runs(mirror.runs(final=True), options.uri)
    return 0


def log_runs(runs: list[Run], uri: str) -> None:
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("study")
    for run in runs:
        run_id = client.create_run(experiment, start_time=run.started, run_name=run.name).info.run_id
        client.set_terminated(run_id, status=MLFLOW_STATUS[run.status], end_time=run.ended)
        client.log_batch(
            run_id,
            metrics=[Metric(point.name, point.value, point.time, point.step) for point in run.points],
            params=[Param(name, value) for name, value in run.params.items()],
            tags=[RunTag(name, value) for name, value in run.tags.items()],
        )


if __name__ == "__main__":
    sys.exit(main())
