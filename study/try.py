"""Train one configuration once, in this process: `python -m study.try palbert --task rte --limit 512`.

The command prints each value of the configuration and its source: --set or the method's files. A tunable field has the
published value, or else the first value of the grid, or else the middle of the range. The method may call `print` and
`breakpoint()`. An error in the method prints its traceback. With --out, the command keeps the trained model.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from bdb import BdbQuit
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

import search_spaces
from study.decisions.scheduler import specify_arm
from study.facts.plan_file import INCLUDE
from study.launching.options import LaunchOptions
from study.launching.reading import plan_from
from study.plans.arm_checks import describe_segments
from study.plans.names_elsewhere import suggest_method_option
from study.plans.plan import Layered, Plan, format_columns
from study.plans.resolution import resolve, resolve_configuration
from study.plans.resolved_plan import FIRST_SEED, ResolvedPlan, describe_poolers
from study.storage.addresses import check_new_folder
from study.terminal.command_line import Command, argument, option
from study.terminal.processes import require_package
from study.terminal.text import clock, counted, points
from trainables.configuration import AtLeastOne, Count
from trainables.configuration.schema import Typed, Value
from trainables.data.glue import count_repeated_texts
from trainables.data.tasks import TASKS
from trainables.files.atomic_files import DiskFull
from trainables.files.sources import Unusable, cache_folder
from trainables.runs.trial import TrainingError, TrialSpec, Unavailable, blocked_exit

if TYPE_CHECKING:
    from trainables.runs.training import TrainingRun


class Options(Typed, frozen=True, kw_only=True):
    """Options of `study.try`. Options with the same name in `study.launch` have the same meaning."""

    method: Annotated[str, argument("METHOD", "a method, or a variant such as palbert:a")]
    task: Annotated[str, option("the task to train on", "NAME")]
    settings: Annotated[list[str], option("set a field to another value", "[SCOPE:]FIELD=VALUE", flag="--set")] = []
    epochs: Annotated[AtLeastOne | None, option("epochs of training; same as --set epochs=N", "N")] = None
    limit: Annotated[
        AtLeastOne | None, option("use only N evenly spaced rows of each split; default: all rows", "N")
    ] = None
    data: Annotated[str | None, option("data of the task; default: that of the profile", "mini|hub|FOLDER")] = None
    backbone: Annotated[str | None, option("pretrained model; default: that of the method", "NAME_OR_FOLDER")] = None
    tokenizer: Annotated[str | None, option("default: the tokenizer of the backbone", "NAME_OR_FOLDER")] = None
    profile: Annotated[str | None, option("named plan; default: auto, as in study.launch", "NAME")] = None
    include: Annotated[list[str], option(INCLUDE.partition(";")[0], "FOLDER")] = []
    seed: Annotated[Count, option("random seed; default: %(default)d, as in the first confirm trial", "K")] = FIRST_SEED
    out: Annotated[str | None, option("new folder for the trained model; default: the model is not kept", "FOLDER")] = (
        None
    )


def run(options: Options) -> int:
    """Train the configuration. Return 0, or 1 if the method raised an error.

    Raises:
        ValueError: if the configuration cannot be trained.
    """
    if options.out is not None:
        check_new_folder("--out", Path(options.out))
        options = replace(options, out=os.path.realpath(options.out))
    require_package("torch")
    spec, values, resolved, left_out_start = resolve_spec(options)
    if options.limit == 1 and spec.selection == "holdout":
        raise ValueError("--limit is 1, but a slice of train is held out to select the epoch; allowed: 2 or more")
    rows = [(name, json.dumps(layered.value), layered.origin) for name, layered in values.items()]
    print(f"{spec.method}/{spec.task}, seed {spec.seed}", *format_columns(rows), sep="\n", flush=True)
    task = TASKS[spec.task]
    if (counted_texts := count_repeated_texts(task, spec.data)) and counted_texts.is_notable:
        print(counted_texts.describe_effect(task.title))
    for line in (*describe_poolers(resolved), *describe_segments(resolved)):
        print(line, flush=True)
    if left_out_start:
        print(f"starts from the backbone; in a study of this profile, it would start from {left_out_start}", flush=True)
    try:
        train(spec, options)
    except (Unavailable, Unusable, DiskFull, BrokenPipeError):
        raise
    except TrainingError as error:
        raise ValueError(str(error)) from None
    except BdbQuit:  # `q` in the debugger
        raise KeyboardInterrupt from None
    except Exception:  # noqa: BLE001 # the author of a method needs its traceback
        traceback.print_exc()
        return 1
    return 0


class Resolved(NamedTuple):
    """The trial that the options describe."""

    spec: TrialSpec
    values: Mapping[str, Layered[Value]]  # value and origin of each field
    plan: ResolvedPlan  # of this trial alone
    left_out_start: str | None  # arm from whose model the trial would start in a study; None: from its backbone, too


def resolve_spec(options: Options) -> Resolved:
    """Resolve the options into the trial that they describe.

    Raises:
        ValueError: if the options are invalid, or the method starts from a trained model.
    """
    plan = replace(_read_plan(options), tokenizer=options.tokenizer)
    if len(plan.methods) + len(plan.tasks) > 2:
        raise ValueError(f"METHOD is {options.method}, and --task is {options.task}; allowed: one method and one task")
    if (start := search_spaces.load_space(plan.methods[0]).start) is not None:
        names = f"--method {start},{plan.methods[0]} --task {plan.tasks[0]}"
        raise ValueError(f"{plan.methods[0]} starts from a trained model of {start}; use study.launch {names}")
    left_out_start = plan.find_start(plan.methods[0], plan.tasks[0], None)
    plan = replace(plan, sampler="random", samples=0, start_from={}, search_precision=UNSET)
    resolved = resolve(plan)
    arm = resolved.arms[0]
    resolution = resolve_configuration(plan, arm.method, arm.task)
    values = {
        name: Layered(arm.fixed.get(name, layered.value), layered.origin) for name, layered in resolution.fixed.items()
    }
    spec = specify_arm(resolved, arm, arm.fixed, seed=options.seed)
    origins = {"backbone": Layered[Value](arm.backbone, resolution.backbone.origin)}
    return Resolved(spec, values | origins, resolved, left_out_start)


def _read_plan(options: Options) -> Plan:
    """Read the plan of a study with these options."""
    shared = {name: getattr(options, name) for name in Options.__struct_fields__ if hasattr(LaunchOptions, name)}
    plan, _ = plan_from(LaunchOptions(**shared | {"methods": [options.method], "tasks": [options.task], "out": None}))
    return plan


def train(spec: TrialSpec, options: Options) -> None:
    """Train the configuration, and print the score after every epoch and the selected epoch at the end."""
    import torch  # imported after the checks of the options, because it takes seconds

    from trainables.models.exit_rules import describe_rule
    from trainables.runs.training import TrainingRun

    began, device = time.monotonic(), "cuda" if torch.cuda.is_available() else "cpu"
    run = TrainingRun(spec, device=device, cache=cache_folder(), limit=options.limit)
    epochs, (trained, scored) = spec.config["epochs"], run.rows
    split = "dev" if spec.selection == "dev" else "a slice of train"
    print(f"training on {counted(trained, 'row')}, scoring on {counted(scored, 'row')} of {split}", flush=True)
    while not run.finished:
        _train_epoch(run, f"epoch {len(run.history) + 1}/{epochs}")
    best = run.history[run.best_epoch - 1]
    for exits in run.swept():
        print(f"  {describe_rule(exits.rule)}: score {points(exits.score)}, {exits.mean_layers:.2f} layers")
    if options.out is not None:
        run.write_model(Path(options.out))
        print(f"wrote the trained model to {options.out}")
    print(
        f"selected epoch {best.epoch}: score {points(best.selection_score)} on {split}, {best.mean_layers:.2f} of "
        f"{best.num_layers} layers; the run took {clock(time.monotonic() - began)} on {device}"
    )


def _train_epoch(run: TrainingRun, name: str) -> None:
    from tqdm import tqdm

    with tqdm(total=run.steps_per_epoch, desc=name, unit="step", leave=False, disable=None) as bar:
        for _ in run.epoch_in_steps():
            bar.update(run.steps_done - bar.n)
    row = run.history[-1]
    print(
        f"{name}: loss {row.train_loss:.4f}, score {points(row.selection_score)}, {row.mean_layers:.2f} of "
        f"{row.num_layers} layers",
        flush=True,
    )
    if reason := blocked_exit(row.metrics, run.spec.config):
        print(f"  {reason}", flush=True)


main = Command("study.try", Options, __doc__ or "", run, suggest=suggest_method_option)

if __name__ == "__main__":
    sys.exit(main())
