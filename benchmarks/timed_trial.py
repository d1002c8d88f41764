"""A whole trial on mini-GLUE in this process: what `benchmarks.against_commit` runs in two trees.

    python -P benchmarks/timed_trial.py METHOD TASK EPOCHS SCRATCH

Prints CPU time of a training step and of the trial from the import of this project to its outcome, states saved after
every epoch, and what it scored, as a line of JSON. It uses nothing of a tree but a trial's first interface.
"""

import json
import sys
import time
from pathlib import Path

import datasets  # noqa: F401  imported before the trial begins: libraries take what they take
import torch
from transformers import AutoModel, AutoTokenizer, PreTrainedModel  # noqa: F401  transformers loads late


def main(method: str, task: str, epochs: int, scratch: Path) -> dict[str, float]:
    began = time.process_time()
    import search_spaces
    from trainables.runs.training import TrainingRun
    from trainables.runs.trial import TrialSpec

    space = search_spaces.load_space(method)
    grid = {field: menu[0] for field, menu in {**space.paper_grid, **space.mini_grid}.items()}
    fixed = {**space.fixed, **space.fixed_by_task.get(task, {}), **space.mini_fixed}
    config = {**grid, **fixed, "epochs": epochs, "stop_after": 0}
    spec = TrialSpec(method=method, task=task, config=config, seed=1, data="mini", backbone=space.backbone["mini"])
    run = TrainingRun(spec, cache=scratch / "cache")
    steps = 0
    while not run.finished:
        last = run.run_epoch()
        run.save(scratch / "state")
        steps += -(-last.train_examples // (last.epoch * config["batch_size"]))
    outcome = run.outcome(scratch / "predictions.npz")
    return {
        "step_milliseconds": 1000 * last.train_seconds / steps,
        "trial_seconds": time.process_time() - began,
        "score": outcome.reported.score,
        "train_loss": last.train_loss,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    time.monotonic = time.process_time  # a run measures itself by this clock
    _, method, task, epochs, scratch = sys.argv
    print(json.dumps(main(method, task, int(epochs), Path(scratch))))
