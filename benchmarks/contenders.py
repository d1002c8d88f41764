"""The contenders of `benchmarks.overhead`, one per process: `python -m benchmarks.contenders study --trials 200`.

One arm, empty trials of 5 reports in 4 slots, TPE and ASHA; all scores are equal, so that none is stopped. Prints the
figures of the run as JSON. Seconds go from the first line of a study's code to the last: the start of Ray is left out,
MLflow's set-up and the last write to it are in.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.counts import count

EPOCHS = 5
SEEDS = 5  # confirm trials, for the engine


def run_study(folder: Path, trials: int) -> dict[str, Any]:
    from benchmarks import synthetic_trials as synthetic

    memory = synthetic.Memory()
    resolved = synthetic.resolved_plan(("rte",), samples=trials - SEEDS, seeds=SEEDS, epochs=EPOCHS)
    run = synthetic.run_study(
        resolved, folder, mirrored=True, on_progress=lambda scheduler: memory.trials_ended(len(scheduler.facts.records))
    )
    records = run.scheduler.facts.records
    assert len(records) == trials and {record.epochs for record in records} == {EPOCHS}
    milliseconds = [1000 * seconds for seconds in run.report_seconds]
    return {
        "seconds": run.seconds,
        "driver_seconds": run.driver_seconds,
        "growth_mb": memory.growth,
        "report_ms": statistics.median(milliseconds),
        "mean_report_ms": statistics.fmean(milliseconds),
    }


def run_tune(folder: Path, trials: int, *, reuse_actors: bool, mirrored: bool) -> dict[str, Any]:
    from benchmarks import synthetic_trials as synthetic

    memory = synthetic.Memory()
    arm = synthetic.resolved_plan(("rte",), samples=trials, seeds=SEEDS, epochs=EPOCHS).arms[0]
    with synthetic.cluster(synthetic.PLAIN_RAY):
        began = time.perf_counter()
        callbacks = [synthetic.MemoryCallback(memory)] + ([mlflow_callback(folder)] if mirrored else [])
        results = synthetic.search_with_tune(arm, trials, folder, callbacks=callbacks, reuse_actors=reuse_actors)
        seconds = time.perf_counter() - began
    assert len(results) == trials and not results.errors
    assert all(result.metrics["training_iteration"] == EPOCHS for result in results)
    return {"seconds": seconds, "growth_mb": memory.growth}


def mlflow_callback(folder: Path) -> Any:
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    return MLflowLoggerCallback(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}", experiment_name="study")


def run_optuna(folder: Path, trials: int) -> dict[str, Any]:
    from benchmarks.synthetic_trials import SLOTS

    journal = folder / "optuna.journal"
    began = time.perf_counter()
    optuna_study(journal)
    context = multiprocessing.get_context("spawn")
    shares = [trials // SLOTS + (worker < trials % SLOTS) for worker in range(SLOTS)]
    workers = [context.Process(target=optimise, args=(journal, share)) for share in shares]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - began
    assert len(optuna_study(journal).trials) == trials
    return {"seconds": seconds}


def optuna_study(journal: Path) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        storage=optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(journal))),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3),
        study_name="study",
        direction="maximize",
        load_if_exists=True,
    )


def optimise(journal: Path, trials: int) -> None:
    """One worker of Optuna: its share of the trials."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    # ALBERT's in the mini profile; importing it would import Ray.
    space = {"learning_rate": FloatDistribution(5e-4, 3e-3, log=True), "batch_size": CategoricalDistribution([16, 32])}
    study = optuna_study(journal)
    for _ in range(trials):
        trial = study.ask(space)
        for epoch in range(1, EPOCHS + 1):
            trial.report(0.5, epoch)
            trial.should_prune()
        study.tell(trial, 0.5)


CONTENDERS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "study": run_study,
    "tune": partial(run_tune, reuse_actors=False, mirrored=True),
    "tune-reuse": partial(run_tune, reuse_actors=True, mirrored=True),
    "tune-bare": partial(run_tune, reuse_actors=True, mirrored=False),
    "optuna": run_optuna,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.contenders", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("--trials", type=count, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        figures = CONTENDERS[options.contender](Path(folder), options.trials)
    print(json.dumps({"trials": options.trials, **figures}))


if __name__ == "__main__":
    main()
