"""The options of `study.launch`, typed, and which of them fit each other and this machine."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import Literal, get_args

from search_spaces._attention import SETTINGS as ATTENTION
from study import profiles
from study.cluster.address import check_address, cluster_address, named
from study.cluster.nodes import local_gpus
from study.command_line import Parser
from study.drivers.watchdog import IDLE_HOURS
from study.facts.plan_on_disk import require_plan
from study.own_packages import PACKAGES, check_own
from study.plans.included_folder import INCLUDE
from study.plans.plan import Sampler, SearchRepeats
from study.storage.addresses import TRACKING_DEFAULT, TRACKING_WORDS, is_uri, storage_address, tracking_address
from study.storage.output_places import check_folder
from trainables import objectives
from trainables.configuration import AtLeastOne, Count, NotNegative, Positive, Precision
from trainables.runs.trial import Selection
from trainables.schema import Typed

DESCRIPTION = """Tunes each method on each task with Optuna under ASHA, on Ray or on this machine, repeats the best
configuration with fresh seeds, and writes the median table. The same command again continues a study that was
interrupted; more methods, tasks, samples or seeds extend it."""
EPILOG = """Exit status: 0 the study is complete, 1 cells are missing or the study was interrupted, 2 bad usage.
Ctrl-C once lets running trials save their epoch, then stops; twice stops at once. The same command continues."""

OUT = "runs"  # where studies lie
MOST_BYTES = 200  # of a study's name: a file's has at most 255, with what is added to it
_CONTINUE = (
    "go on with a study: --method and --task add to it and run only what they name, the rest stays as it was asked"
)
_NAMES = "repeatable, or a,b,c, or {}; default in {}"
_DATA = "FOLDER holds the GLUE TSV files, RTE/train.tsv ...; mini: generated, with tiny backbones where none is named"
_CORPUS = "what it is pretrained on; FOLDER holds .txt files; default beside --data mini: mini"
_ATTENTION = "fix these fields of all methods, and of what is pretrained; nystrom: {}; --set, --pretrain-set over it"
_PROCESSES = "that pretrain together, on one node or several, each with a trial's CPUs and a GPU if any; default: 1"
_DRIVER = "who runs the trials; local: processes of the launch, on this machine; default: ray, or local where it is not"
_MAX_MINUTES = "end the launch after X minutes as after one Ctrl-C, to be continued: epochs under way are finished"
_SEARCH_PRECISION = "of search trials alone: confirm trials repeat the best configuration in their own precision"


class LaunchOptions(Typed, frozen=True, kw_only=True):
    """The options of this command; None: the profile's, or the default that `--help` names."""

    method: list[str] | None
    task: list[str] | None
    profile: str | None
    include: str | None
    data: str | None
    backbone: str | None
    tokenizer: str | None
    early_stopping: Literal["none", "asha"] | None
    samples: AtLeastOne | None
    seeds: AtLeastOne | None
    epochs: AtLeastOne | None
    sampler: Sampler | None
    selection: Selection | None
    attention: Literal["softmax", "nystrom"] | None
    set: list[str]
    start_from: list[str]
    pretrain: str | None
    corpus: str | None
    pretrain_set: list[str]
    pretrain_processes: AtLeastOne
    search_repeats: SearchRepeats | None
    baseline: str | None
    search_precision: Precision | None
    continue_study: str | None
    plan: str | None
    name: str | None
    out: str | None
    storage: str | None
    tracking_uri: str | None
    driver: Literal["ray", "local"]
    address: str | None
    gpus_per_trial: NotNegative | Literal["auto"] | None
    cpus_per_trial: Positive
    max_gpu_hours: NotNegative | None
    max_failures: Count
    retry_failed: bool
    max_idle_hours: Positive
    max_minutes: Positive | None
    dry_run: bool
    probe: bool
    explain: str | None
    toml: bool
    json: bool


def build_parser() -> Parser:
    parser = Parser("study.launch", DESCRIPTION, epilog=EPILOG)
    what = parser.add_argument_group("what to study (defaults come from the profile, or from the study of --continue)")
    what.add_argument("--continue", dest="continue_study", metavar="runs/NAME", help=_CONTINUE)
    what.add_argument(
        "--plan", metavar="FILE.toml", help="what to study, as --dry-run --toml prints it; options over it"
    )
    of_profile = _NAMES.format("all (the profile's)", _defaults("methods"))
    what.add_argument("--method", action="append", metavar="NAME", help=of_profile)
    what.add_argument("--task", action="append", metavar="NAME", help=_NAMES.format("all", _defaults("tasks")))
    menu = "|".join(["auto", *profiles.available()])
    what.add_argument("--profile", metavar=menu, help="default: auto, which is paper where there are GPUs, else mini")
    what.add_argument("--include", metavar="FOLDER", help=INCLUDE)
    what.add_argument("--data", metavar="mini|hub|FOLDER", help=_DATA)
    what.add_argument("--backbone", metavar="NAME_OR_FOLDER", help="what every trial, or the pretraining, starts from")
    what.add_argument("--tokenizer", metavar="NAME_OR_FOLDER", help="where it is not the backbone's own")
    what.add_argument("--samples", type=int, metavar="N", help="search trials per arm")
    what.add_argument("--seeds", type=int, metavar="K", help="how many confirm trials per arm, each with its own seed")
    what.add_argument("--epochs", type=int, metavar="E", help="at most, per trial")
    what.add_argument("--sampler", metavar="|".join(get_args(Sampler)))
    what.add_argument("--selection", metavar="|".join(get_args(Selection)), help="split that stops and selects")
    what.add_argument("--early-stopping", metavar="none|asha", help="of search trials; none: each runs to its own stop")
    what.add_argument("--search-precision", metavar="|".join(get_args(Precision)), help=_SEARCH_PRECISION)
    nystrom = ", ".join(f"{field} {value}" for field, value in ATTENTION["nystrom"].items() if field != "attention")
    what.add_argument("--attention", metavar="|".join(ATTENTION), help=_ATTENTION.format(nystrom))
    what.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="fix a field of the methods")
    what.add_argument(
        "--start-from",
        action="append",
        default=[],
        metavar="ARM=ARM",
        help="trials of the first start from the best model of the second: rte=mnli, palbert/rte=albert/mnli",
    )
    what.add_argument("--pretrain", metavar="|".join(objectives.available()), help="make the backbone first")
    what.add_argument("--corpus", metavar="mini|mini-shuffled|hub:NAME|FOLDER", help=_CORPUS)
    what.add_argument("--pretrain-set", action="append", default=[], metavar="FIELD=VALUE", help="of the objective")
    what.add_argument("--search-repeats", type=int, metavar="R", help="searches per arm: what tuning itself spreads by")
    what.add_argument("--baseline", metavar="NAME", help="method that the marks in the table compare with")
    where = parser.add_argument_group("where it goes")
    where.add_argument("--name", metavar="STUDY", help="default: from methods, profile and protocol")
    where.add_argument("--out", metavar="FOLDER", help=f"default: {OUT}")
    where.add_argument(
        "--storage",
        metavar="PATH_OR_URI",
        help="states and models of trials: s3://BUCKET/PATH, gs://..., or a folder all nodes see; default: the study's",
    )
    where.add_argument("--tracking-uri", metavar="URI|none", help=f"{TRACKING_WORDS}; {TRACKING_DEFAULT}")
    how = parser.add_argument_group("how it runs")
    how.add_argument("--driver", default=default_driver(), metavar="ray|local", help=_DRIVER)
    how.add_argument(
        "--address",
        default=cluster_address(),
        help="of a Ray cluster (auto, ray://HOST:PORT); default: RAY_ADDRESS, or else Ray on this machine alone",
    )
    how.add_argument(
        "--gpus-per-trial",
        type=_share,
        metavar="X|auto",
        help="may be a fraction; auto: pack by measured memory and speed; default: 1 if there are any",
    )
    how.add_argument("--cpus-per-trial", type=float, default=1, metavar="X", help="default: 1")
    how.add_argument("--pretrain-processes", type=int, default=1, metavar="N", help=_PROCESSES)
    how.add_argument(
        "--max-gpu-hours", type=float, metavar="X", help="shared by all arms; nothing starts that X cannot pay for"
    )
    how.add_argument("--max-failures", type=int, default=3, metavar="N", help="of a trial by faults of the machine")
    how.add_argument("--retry-failed", action="store_true", help="let all trials run again that failed")
    how.add_argument(
        "--max-idle-hours",
        type=float,
        default=IDLE_HOURS,
        metavar="X",
        help="end the launch, to be continued, where nothing has moved for so long; default: %(default)g",
    )
    how.add_argument("--max-minutes", type=float, metavar="X", help=_MAX_MINUTES)
    how.add_argument("--dry-run", action="store_true", help="say what would run, and stop")
    how.add_argument("--probe", action="store_true", help="with --dry-run: measure a few steps of each arm")
    how.add_argument("--explain", metavar="METHOD/TASK", help="with --dry-run: where each value of an arm comes from")
    how.add_argument("--toml", action="store_true", help="with --dry-run: the plan alone, as a file for --plan")
    how.add_argument("--json", action="store_true", help="the answer as JSON on standard output")
    return parser


def _defaults(field: Literal["methods", "tasks"]) -> str:
    """What runs where nothing is named, in the profiles that auto chooses from."""
    return "; in ".join(f"{name}: {', '.join(getattr(profiles.load(name), field))}" for name in ("mini", "paper"))


def check_options(options: LaunchOptions) -> None:
    """Passes if the options fit each other and this machine.

    Raises:
        ValueError: they do not.
    """
    for name in ("probe", "explain", "toml"):
        if getattr(options, name) and not options.dry_run:
            raise ValueError(f"--{name} says something of a plan and is ignored without --dry-run; add --dry-run")
    check_own(*PACKAGES, path=[os.getcwd(), *sys.path])  # as processes of the launch look for them
    if options.toml and options.json:
        raise ValueError("--toml and --json are two forms of one answer; allowed: one of the two")
    is_local = options.address is None
    if options.address is not None:
        check_address(options.address)
    if options.driver == "local":
        _check_local(options)
    elif not is_installed("ray"):
        raise ValueError("--driver is ray, which is not installed; allowed: local")
    gpus = options.gpus_per_trial
    if isinstance(gpus, float) and gpus > 1 and not gpus.is_integer():
        raise ValueError(f"--gpus-per-trial is {gpus:g}; allowed: a part of one, a whole number, or auto")
    if is_local:
        _check_at_most("gpus-per-trial", options.gpus_per_trial, local_gpus())
        _check_at_most("cpus-per-trial", options.cpus_per_trial, len(os.sched_getaffinity(0)))
        _check_processes(options)
    if options.gpus_per_trial == "auto" and is_local and not local_gpus():
        raise ValueError("--gpus-per-trial is auto, but this machine has no GPU; leave it out")
    if options.max_gpu_hours is not None and is_local and not local_gpus():
        raise ValueError(f"--max-gpu-hours is {options.max_gpu_hours:g}, but this machine has no GPU; leave it out")
    if options.search_precision and options.max_gpu_hours is not None:
        raise ValueError(
            "--max-gpu-hours plans for confirm trials by what their search trial has cost, which --search-precision "
            "makes another trial; allowed: one of the two"
        )
    if options.continue_study is not None:
        _check_continued(options, Path(options.continue_study))
    if options.plan is not None and options.profile is not None:
        raise ValueError(f"--profile is what --plan {options.plan} says already; leave it out")
    if options.name is not None:
        _check_name(options.name)
    if options.out is not None:
        check_folder("--out", Path(options.out))
    if options.storage and not is_uri(storage_address(options.storage)):
        check_folder("--storage", Path(options.storage))
    if options.tracking_uri not in (None, "none"):
        tracking_address(options.tracking_uri)
        if not is_installed("mlflow"):
            raise ValueError("--tracking-uri is of MLflow, which is not installed; allowed: none, or leave it out")


def _check_continued(options: LaunchOptions, folder: Path) -> None:
    """Of what the study that is continued says by itself."""
    said = f"--continue {options.continue_study}"
    plan = require_plan(folder).plan
    for name, own in {"profile": plan.asked.profile, "name": folder.resolve().name, "out": str(folder.parent)}.items():
        value = getattr(options, name)
        if value == own:
            raise ValueError(f"--{name} is what {said} says already; leave it out")
        if value is not None:
            raise ValueError(f"--{name} is {value}, but that of {said} is {own}; leave one of them out")
    if options.plan is not None:
        raise ValueError(f"--plan is {options.plan}, but {said} has a plan of its own; leave one of them out")


def _check_local(options: LaunchOptions) -> None:
    """Of what is Ray's alone."""
    if options.address is not None:
        raise ValueError(f"{named(options.address)} is of a Ray cluster, but --driver is local; leave one of them out")
    if options.gpus_per_trial == "auto":
        raise ValueError("--gpus-per-trial is auto, but --driver is local, which packs nothing; allowed: a number")
    if options.pretrain_processes > 1:
        raise ValueError(
            f"--pretrain-processes is {options.pretrain_processes}, but --driver is local; allowed: 1, or --driver ray"
        )


def default_driver() -> Literal["ray", "local"]:
    """Ray, where it is installed."""
    return "ray" if is_installed("ray") else "local"


def is_installed(package: str) -> bool:
    """Whether it can be imported; it is not."""
    return importlib.util.find_spec(package) is not None


def _check_name(name: str) -> None:
    """MLflow takes `?` and `%` in the address of its store for something else than a letter."""
    if Path(name).name != name or name in ("", "..") or not name.isprintable() or {*"?%"} & {*name}:
        raise ValueError(f"--name is {name!r}; allowed: the name of a folder, which is made in --out, without ? and %")
    if len(os.fsencode(name)) > MOST_BYTES:
        raise ValueError(f"--name is {name[:20]!r}... of {len(os.fsencode(name))} bytes; allowed: at most {MOST_BYTES}")


def _check_at_most(name: str, value: float | str | None, most: float) -> None:
    if isinstance(value, float | int) and not value <= most:
        raise ValueError(f"--{name} is {value:g}; allowed: at most the {most:g} of this machine")


def _check_processes(options: LaunchOptions) -> None:
    """Of a pretraining on this machine, each of which holds CPUs and, where trials do, a GPU."""
    gpus = local_gpus() if options.gpus_per_trial != 0 else 0
    most = int(len(os.sched_getaffinity(0)) / options.cpus_per_trial)
    if options.pretrain_processes > (most := min(most, gpus or most)):
        held = f"{options.cpus_per_trial:g} CPUs{' and a GPU' if gpus else ''}"
        raise ValueError(
            f"--pretrain-processes is {options.pretrain_processes}; allowed: at most {most} on this machine, for each "
            f"holds {held}"
        )


def _share(text: str) -> float | Literal["auto"]:
    try:
        return "auto" if text == "auto" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a number or auto") from None
