"""A study folder as launches leave it: everything is the product's own but the training, which follows curves.

Plan, scheduler, journal, the end of trials, and tables are real, so all of it can be replayed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from contextlib import closing
from itertools import count
from pathlib import Path

from helpers.journals import failure_of
from helpers.made_studies import predictions, scores_of, store_predictions
from helpers.simulation import unit
from msgspec.structs import replace

from analysis.tables import write_tables
from study.decisions.machine_faults import Faults
from study.decisions.scheduler import Scheduler, specify_trial
from study.drivers.driver import end_trial
from study.facts.events import FORMAT, Execution, Report
from study.facts.journal import Journal
from study.facts.plan_file import PlanFile, write_plan
from study.facts.provenance import Provenance
from study.facts.study_facts import TrialFacts
from study.plans import profiles
from study.plans.resolution import resolve
from study.plans.resolved_plan import Pretraining, ResolvedPlan
from trainables.configuration.schema import to_plain
from trainables.data.metrics import score
from trainables.data.tasks import TASKS
from trainables.files.sources import hash_folder
from trainables.runs.trial import EpochRow, Losses, Outcome, Reported, TextFlops

PROVENANCE = Provenance(versions={"torch": "2.13.0"}, git_commit="0123abc4", code_digest="c0de")
EXAMPLES, LAYERS = 60, 12
METHODS = ("albert", "pondernet")


def mini_plan(*, methods: tuple[str, ...] = METHODS, tasks: tuple[str, ...] = ("rte", "mrpc"), seeds: int = 2, **more):
    """A plan of few, short trials; MRPC starts from RTE where both are there."""
    starts = {"mrpc": "rte"} if {"rte", "mrpc"} <= set(tasks) else {}
    small = {"methods": methods, "tasks": tasks, "seeds": seeds, "samples": 3, "sampler": "random", "epochs": 4}
    return resolve(replace(profiles.load_profile("mini"), **({"start_from": starts} | small | more)))


PRETRAINING = Pretraining(
    objective="albert-mlm",
    corpus="mini",
    corpus_fingerprint="ff465da93c4a2466",
    backbone="mini-albert",
    is_tiny=True,
    settings={"steps": 30, "steps_per_epoch": 20, "warmup_steps": 5},
    batch_size=32,
    steps=30,
    tokens=23_310,
    scores={"mlm_loss": 4.5625, "mlm_accuracy": 0.3, "sop_accuracy": 0.53},
    wall_seconds=3.5,
    gpu_seconds=2.5,
    device="cuda:0",
    departures=("set by hand",),
)


def with_pretraining(plan: ResolvedPlan, pretraining: Pretraining = PRETRAINING) -> ResolvedPlan:
    """The plan on a backbone that was pretrained here."""
    made = {"backbone": "/models/ours", "backbone_fingerprint": "sha256:0123abcd", "pretraining": pretraining}
    return replace(plan, arms=tuple(replace(arm, **made) for arm in plan.arms))


def launched_study(folder: Path, plan: ResolvedPlan | None = None) -> Path:
    """A whole study: one launch."""
    launch(folder, plan or mini_plan())
    return folder


def launch(
    folder: Path,
    plan: ResolvedPlan,
    *,
    killed_after: int | None = None,
    max_gpu_hours: float | None = None,
    retry_failed: bool = False,
    broken: Mapping[int, str] | None = None,
    code: Provenance | None = None,
    execution: Execution | None = None,
) -> None:
    """One launch, two trials at a time; `killed_after` so many reports its process is gone. `code`: else `PROVENANCE`.

    `broken`: number of a report -> what happens instead of it: `machine` (node-a fails), `method` or `restart`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with closing(Journal(folder)) as journal:
        _write_plan(folder, plan)
        faults = Faults(clock=count(step=100).__next__)  # pauses are over when they are looked at
        code = code or PROVENANCE
        scheduler = Scheduler(plan, journal, code, max_gpu_hours=max_gpu_hours, faults=faults)
        scheduler.begin_launch(
            command="python -m study.launch --task rte", host="node-1", pid=12345, execution=execution
        )
        scheduler.reopen_failed(retry_failed=retry_failed)
        for key in list(scheduler.facts.under_way):
            scheduler.retry(key, failure_of("machine", error="node 7 is gone"))
        running: deque[tuple[TrialFacts, int]] = deque()  # with the next epoch
        for number in count():
            while len(running) < 2 and (trial := scheduler.next_trial()) is not None:
                running.append((trial, 1))
            if not running:
                break
            if number == killed_after:
                return
            trial, epoch = running.popleft()
            if kind := (broken or {}).get(number):
                _break(scheduler, trial, kind, folder)
                running.extend([(trial, 1)] * (kind == "restart"))
                continue
            reported = report_of(folder, plan, scheduler, trial, epoch)
            if scheduler.report(trial.key, reported, node="node-b") == "stop" or reported.row.finished:
                end_trial(scheduler, trial, storage=str(folder.resolve()), folder=folder)
            else:
                running.append((trial, epoch + 1))
        assert scheduler.progress.is_finished
        write_tables([folder], folder / "tables")
        scheduler.end_launch("complete")


def _break(scheduler: Scheduler, trial: TrialFacts, kind: str, folder: Path) -> None:
    """What happens to the trial instead of an epoch."""
    if kind == "restart":
        scheduler.restart(trial.key, "state.pt is damaged: 17 bytes are missing")
    elif kind == "machine":
        scheduler.retry(trial.key, failure_of("machine", error="[Errno 28] No space left on device"))
    else:
        failure = failure_of("method", error="loss is nan at step 3")
        end_trial(scheduler, trial, storage=str(folder.resolve()), folder=folder, failure=failure)


def report_of(folder: Path, plan: ResolvedPlan, scheduler: Scheduler, trial: TrialFacts, epoch: int) -> Report:
    """What a trial says after an epoch; a confirm trial leaves predictions and a model with its last one."""
    history = [row_of(trial, number) for number in range(1, epoch + 1)]
    row = history[-1]
    outcome = _outcome(trial, history) if row.finished else None
    if outcome is not None and trial.phase == "confirm":
        model = _save_model(folder, plan, scheduler, trial, history[row.best_epoch - 1])
        flops = (TextFlops(tokens=9, by_layer=tuple(1e8 * layer for layer in range(1, LAYERS + 1))),)
        outcome = replace(outcome, reported=_predict(folder, trial), model=model, text_flops=flops)
        outcome = replace(outcome, model_digest=hash_folder(Path(model)))
    costs = {"wall_seconds": 1.5 * epoch + unit(trial.key), "gpu_seconds": 1.25 * epoch}
    expected = scheduler.make_expected_attestation(trial)
    attested = replace(expected, tokens_digest="beef", backbone_digest="f11e")
    return Report(
        row=row,
        outcome=outcome,
        host="node-1",
        device="cuda:0",
        **costs,
        attested=attested if epoch == 1 else None,
    )


def row_of(trial: TrialFacts, epoch: int) -> EpochRow:
    """An epoch on a curve that configuration and seed decide, best before its end."""
    metrics = [_metrics(trial, number) for number in range(1, epoch + 1)]
    scores = [score(TASKS[trial.arm.task], found) for found in metrics]
    best = scores.index(max(scores)) + 1
    histogram = [float((7 * layer + epoch) % 5) for layer in range(LAYERS - 1)]
    histogram.append(EXAMPLES - sum(histogram))
    menus = trial.arm.exit_settings if trial.phase == "search" else {}
    return EpochRow(
        epoch=epoch,
        selection_score=scores[-1],
        metrics=metrics[-1],
        mean_layers=sum(layer * number for layer, number in enumerate(histogram, start=1)) / EXAMPLES,
        num_layers=LAYERS,
        train_loss=0.7 / epoch,
        train_examples=128 * epoch,
        train_seconds=1.0625 * epoch,
        eval_seconds=0.125 * epoch,
        best_epoch=best,
        finished=epoch == trial.config["epochs"],
        exit_setting={name: values[0] for name, values in menus.items()},
        losses=Losses(steps=(4, 8), means={"loss": (0.8 / epoch, 0.6 / epoch), "kl": (0.2 / epoch, 0.1 / epoch)}),
    )


def _metrics(trial: TrialFacts, epoch: int) -> dict[str, float]:
    plateau = 0.5 + 0.4 * unit(trial.arm.task, sorted(trial.config.items()), trial.seed)
    level = round(plateau * (1 - 0.5**epoch) - 0.1 * (epoch == 4), 6)
    metrics = {name: round(level - 0.05 * i, 6) for i, name in enumerate(TASKS[trial.arm.task].metrics)}
    return metrics | ({"sample_std": 0.0125} if trial.arm.method == "pondernet" else {})


def _outcome(trial: TrialFacts, history: list[EpochRow]) -> Outcome:
    selected = history[history[-1].best_epoch - 1]
    return Outcome(reported=selected.reported, num_parameters=11_700_000, data_differences=("400 rows",))


def _predict(folder: Path, trial: TrialFacts) -> Reported:
    """Writes the predictions; the numbers that they give."""
    method, task = trial.arm.method, trial.arm.task
    arrays = predictions(method, task, 0.8, seed=trial.seed, num_examples=EXAMPLES, salt=len(method))
    store_predictions(folder, trial.key, arrays)
    found = scores_of(task, arrays)
    return Reported(**{name: found[name] for name in ("score", "metrics", "mean_layers")})


def _save_model(folder: Path, plan: ResolvedPlan, scheduler: Scheduler, trial: TrialFacts, selected: EpochRow) -> str:
    model = folder.resolve() / "trials" / trial.key / f"model-epoch-{selected.epoch}"
    model.mkdir(parents=True, exist_ok=True)
    spec = specify_trial(plan, scheduler.facts, trial)
    numbers = {"epoch": selected.epoch, "selection_score": selected.selection_score}
    encoder = {"model_type": "albert", "hidden_size": 32, "layer_norm_eps": 1e-12}
    description = {"spec": to_plain(spec), **numbers, "encoder": encoder}
    (model / "model.json").write_text(json.dumps(description, indent=1) + "\n")
    (model / "model.safetensors").write_bytes(b"weights 123")
    (model / "tokenizer.json").write_text('{"version": "1.0"}')
    return str(model)


def _write_plan(folder: Path, plan: ResolvedPlan) -> None:
    content = PlanFile(
        format=FORMAT,
        name=folder.name,
        created="2026-01-01T00:00:00.000000+00:00",
        command="python -m study.launch --task rte",
        versions=PROVENANCE.versions,
        git_commit=PROVENANCE.git_commit,
        code_digest=PROVENANCE.code_digest,
        protocol_hash=plan.protocol_hash,
        plan=plan,
    )
    write_plan(folder, content)
