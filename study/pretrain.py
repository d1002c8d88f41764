"""Pretrain a backbone: `python -m study.pretrain albert-mlm --corpus FOLDER --to FOLDER`.

If a pretraining is interrupted, the same command resumes it from its last saved state. A study starts from the
finished backbone with `python -m study.launch --backbone FOLDER`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from msgspec import UNSET

from search_spaces import objectives as recipes
from study.cluster.resources import count_cores, count_local_gpus
from study.facts.events import utc_now
from study.mlflow_mirror.tracking import build_default_uri
from study.plans.departures import WIDTH, list_pretraining_departures
from study.plans.names_elsewhere import suggest_pretraining_option
from study.plans.plan import (
    Layered,
    choose_backbone,
    complete_attention,
    format_columns,
    make_field_error,
    merge_layers,
)
from study.plans.pretrained_backbone import PretrainingFile, is_tiny, read_finished_pretraining, read_pretraining
from study.plans.resolved_plan import FIRST_SEED, Pretraining, describe_new_pooler
from study.storage.addresses import TRACKING_HELP, check_folder, check_tracking_address
from study.terminal.command_line import Command, argument, option, read_settings
from study.terminal.processes import PACKAGES, check_not_shadowed, is_installed
from study.terminal.text import print_lines, read_width, wrap_line
from trainables.configuration import AtLeastOne, Count, Positive
from trainables.configuration.schema import Configuration, Typed, Value
from trainables.configuration.spelling import resolve_name
from trainables.encoders import backbone_files, backbone_names, backbones
from trainables.files.atomic_files import is_unfinished
from trainables.files.sources import checked
from trainables.pretraining import corpus as corpora
from trainables.pretraining import objectives
from trainables.pretraining.configuration import PretrainingConfig, PretrainingSpec
from trainables.runs.trial import TrainingError

_LEFT_BEHIND = ("mlflow.db", "pretrain.lock")  # files of a command killed before it saved a state

_CORPUS = (
    "text to pretrain on: a folder of .txt files or one file, a data set of the hub, or mini (generated text; the "
    "default backbone is then tiny); repeatable"
)
_BACKBONE = (
    "a model size to train from random weights (such as albert-base), a folder or a hub name; default: the model of "
    "the objective"
)
_PROCESSES = "number of processes on this machine; each process uses one GPU if there are GPUs; default: 1"
_MAX_MINUTES = "finish the backbone after at most X minutes, between two epochs, even if steps are left"
_NAME = "NAME_OR_FOLDER"


class Options(Typed, frozen=True, kw_only=True):
    """Options of `study.pretrain`."""

    objective: Annotated[
        str, argument("|".join(recipes.list_recipes()), "pretraining objective, or one of its variants (after a colon)")
    ]
    corpora: Annotated[list[str], option(_CORPUS, "mini|hub:NAME|FOLDER|FILE", flag="--corpus")]
    to: Annotated[str, option("new folder, or the folder of a pretraining to continue", "FOLDER")]
    backbone: Annotated[str | None, option(_BACKBONE, _NAME)] = None
    tokenizer: Annotated[str | None, option("folder or hub name; default: the backbone's tokenizer", _NAME)] = None
    seed: Annotated[Count, option(f"random seed; default: {FIRST_SEED}", "N")] = FIRST_SEED
    set: Annotated[list[str], option("set a field that --dry-run lists; repeatable", "FIELD=VALUE")] = []
    processes: Annotated[AtLeastOne, option(_PROCESSES, "N")] = 1
    max_minutes: Annotated[Positive | None, option(_MAX_MINUTES, "X")] = None
    tracking_uri: Annotated[str | None, option(TRACKING_HELP, "URI|none")] = None
    dry_run: Annotated[bool, option("print every value with its origin, and stop")] = False


@dataclass(frozen=True)
class Request:
    """The pretraining that the options describe. Each value comes with its origin: an option or a file."""

    recipe: recipes.Recipe
    corpus: str
    seed: int
    fields: Mapping[str, Layered[Value]]
    settings: Configuration  # the fields set by --set, and those that depend on them
    backbone: Layered[str]
    tokenizer: Layered[str | None]

    @property
    def config(self) -> PretrainingConfig:
        """The objective's configuration; raises ValueError if a value is not allowed."""
        return objectives.configure(
            self.recipe.objective, {name: layered.value for name, layered in self.fields.items()}
        )


def run(options: Options) -> int:
    """Pretrain the backbone, or only describe the pretraining (--dry-run); return 0, or 1 if training failed."""
    check_not_shadowed(*PACKAGES, path=[str(Path.cwd()), *sys.path])
    tracking_uri, folder = _choose_tracking_uri(options), Path(options.to)
    earlier = _read_earlier(folder)
    request = resolve(options)
    if note := corpora.check_corpus(request.corpus, request.config.packing):
        print_lines([note], sys.stderr)
    unchecked: list[str] | None = [] if options.dry_run else None
    spec, file = prepare(request, earlier, unchecked)
    _check_processes(request.config, options.processes)
    if options.dry_run:
        _describe(request, file, unchecked or (), max_minutes=options.max_minutes)
        return 0
    from study.drivers.pretraining import Job, pretrain  # imports torch, which takes seconds

    try:
        job = Job(spec=spec, file=file, folder=str(folder), tracking_uri=tracking_uri, max_minutes=options.max_minutes)
        pretrain(job, processes=options.processes)
    except TrainingError as error:
        print_lines([f"study.pretrain: {error}"], sys.stderr)
        return 1
    return 0


def resolve(options: Options) -> Request:
    """Resolve the options into the objective's configuration, the backbone, the tokenizer and the corpus.

    The values come from the recipe's FIXED, its MINI_FIXED (only for tiny backbones) and --set. Later sources override
    earlier ones.

    Raises:
        ValueError: if the objective is unknown, or --set names a field that the objective does not have.
    """
    recipe = recipes.load_recipe(resolve_name(options.objective, recipes.list_recipes(), what="objective"))
    settings = read_settings(options.set)
    if absent := [name for name in settings if name not in recipe.fixed]:
        raise make_field_error(f"--set {absent[0]}", absent[0], recipe.objective, recipe.fixed)
    kind = "mini" if options.corpora == ["mini"] else "paper"
    if options.backbone is not None:
        backbones.check_spelling(options.backbone)
    if options.tokenizer is not None:
        backbones.check_spelling(options.tokenizer, kind="tokenizer")
    backbone, tokenizer = choose_backbone(recipe, kind, backbone=options.backbone, tokenizer=options.tokenizer)
    mini = recipe.mini_fixed if is_tiny(backbone.value) else {}
    _check_warmup(settings, {**recipe.fixed, **mini})
    by_hand = complete_attention({name: Layered[Value](value, "--set") for name, value in settings.items()})
    in_files = merge_layers([(f"{recipe.file} FIXED", recipe.fixed), (f"{recipe.file} MINI_FIXED", mini)])
    return Request(
        recipe=recipe,
        corpus=corpora.join_corpora([corpora.make_absolute(corpus) for corpus in options.corpora]),
        seed=options.seed,
        fields=in_files | by_hand,
        settings={name: layered.value for name, layered in by_hand.items()},
        backbone=backbone,
        tokenizer=tokenizer,
    )


def _check_warmup(settings: Configuration, recipe: Configuration) -> None:
    """Check that --set steps leaves steps after the recipe's warm-up.

    Args:
        recipe: the values of the fields without the settings.

    Raises:
        ValueError: if none are left; the message advises a warm-up with the recipe's share of the steps.
    """
    steps, warmup, whole = settings.get("steps"), recipe["warmup_steps"], recipe["steps"]
    assert isinstance(warmup, int) and isinstance(whole, int), "recipes have whole numbers of steps"
    if "warmup_steps" not in settings and isinstance(steps, int) and 0 < steps <= warmup:
        raise ValueError(
            f"--set steps={steps} ends within the recipe's warm-up (warmup_steps {warmup:,} of {whole:,} steps); add "
            f"--set warmup_steps={steps * warmup // whole}, the same share of the steps"
        )


def prepare(
    request: Request, earlier: PretrainingFile | None, unchecked: list[str] | None = None
) -> tuple[PretrainingSpec, PretrainingFile]:
    """Check the backbone, the tokenizer and the corpus; return the specification and the content of pretraining.json.

    A hub name in `earlier` keeps its commit. Any other hub name gets its current commit.

    Args:
        earlier: the content of pretraining.json from an earlier command; None for a new folder.
        unchecked: receives the hub names that could not be checked. If None, an unreachable hub is an error.

    Raises:
        ValueError: if an input is missing or unsuitable, or the folder holds a different pretraining.
    """
    recipe, config, corpus = request.recipe, request.config, request.corpus
    backbone, tokenizer = request.backbone.value, request.tokenizer.value
    pins = {} if earlier is None else _list_pins(earlier)
    look = backbone_files.backbone_fingerprint
    corpus_fingerprint = corpora.JOINT.join(
        pins.get(part, "") or checked(partial(corpora.corpus_fingerprint, part), part, unchecked)
        for part in corpora.split_corpus(corpus)
    )
    backbone_fingerprint = pins.get(backbone, "") or checked(partial(look, backbone), backbone, unchecked)
    tokenizer_fingerprint = tokenizer and (
        pins.get(tokenizer) or checked(partial(look, tokenizer, kind="tokenizer"), tokenizer, unchecked)
    )
    values = {name: getattr(config, name) for name in request.fields}  # as validated: 0 may become 0.0
    spec = PretrainingSpec(
        objective=recipe.objective,
        corpus=corpora.pinned(corpus, corpus_fingerprint),
        config=values,
        seed=request.seed,
        backbone=backbone_names.pinned(backbone, backbone_fingerprint),
        tokenizer=tokenizer and backbone_names.pinned(tokenizer, tokenizer_fingerprint or ""),
    )
    checked(lambda: backbones.check_backbone(spec.backbone, spec.tokenizer), tokenizer or backbone, unchecked)
    checked(lambda: _check_model(recipe, spec.backbone, config), backbone, unchecked)
    backbones.check_positions(spec.backbone, config.max_length, of=recipe.name)
    began_tiny = is_tiny(backbone)
    file = PretrainingFile(
        made=Pretraining(
            objective=recipe.name,
            corpus=corpus,
            corpus_fingerprint=corpus_fingerprint,
            backbone=backbone,
            is_tiny=began_tiny,
            settings=request.settings,
            batch_size=config.batch_size,
            departures=list_pretraining_departures(recipe, request.settings, is_tiny=began_tiny),
            earlier=read_finished_pretraining(backbone) or UNSET,
        ),
        config=values,
        seed=request.seed,
        backbone_fingerprint=backbone_fingerprint,
        tokenizer=tokenizer,
        tokenizer_fingerprint=tokenizer_fingerprint,
        created=utc_now(),
    )
    if earlier is None:
        return spec, file
    _check_same(file, earlier)
    return spec, earlier


def _check_model(recipe: recipes.Recipe, backbone: str, config: PretrainingConfig) -> None:
    """Raise ValueError if the backbone's family does not support the objective or the configured attention."""
    objectives.check_family(recipe.objective, backbones.find_family(backbone))
    backbones.check_attention(backbone, config)


def _list_pins(earlier: PretrainingFile) -> dict[str, str]:
    """Map each hub name in an earlier pretraining.json to its commit."""
    pairs = [(earlier.made.backbone, earlier.backbone_fingerprint)]
    pairs += [(earlier.tokenizer, earlier.tokenizer_fingerprint or "")] if earlier.tokenizer else []
    pins = {name: fingerprint for name, fingerprint in pairs if backbone_names.is_hub_name(name)}
    made = earlier.made
    parts = zip(corpora.split_corpus(made.corpus), corpora.split_corpus(made.corpus_fingerprint), strict=True)
    return pins | {part: commit for part, commit in parts if corpora.classify_corpus(part) == "hub"}


def _check_same(requested: PretrainingFile, earlier: PretrainingFile) -> None:
    """Check that the command describes the pretraining in the folder.

    Raises:
        ValueError: if a value differs; the message lists all differences.
    """
    pairs = [("objective", earlier.made.objective, requested.made.objective), ("seed", earlier.seed, requested.seed)]
    pairs += [
        ("corpus fingerprint", earlier.made.corpus_fingerprint, requested.made.corpus_fingerprint),
        ("backbone fingerprint", earlier.backbone_fingerprint, requested.backbone_fingerprint),
        ("tokenizer fingerprint", earlier.tokenizer_fingerprint, requested.tokenizer_fingerprint),
    ]
    names = dict.fromkeys([*earlier.config, *requested.config])
    pairs += [(name, earlier.config.get(name), requested.config.get(name)) for name in names]
    if changed := [f"{name} is {before}, not {now}" for name, before, now in pairs if before != now]:
        raise ValueError(f"--to holds a pretraining with other settings ({', '.join(changed)}); choose another --to")


def _read_earlier(folder: Path) -> PretrainingFile | None:
    """Read the pretraining.json that an earlier command wrote to the folder; return None if the folder is new.

    Raises:
        ValueError: if the folder contains other files, or is not writable.
    """
    earlier = read_pretraining(folder)
    if earlier is None and folder.is_dir():
        names = (path.name for path in folder.iterdir() if not is_unfinished(path))
        foreign = sorted(name for name in names if name not in _LEFT_BEHIND)
        if foreign:
            allowed = f"a new or an empty folder, or one with {backbone_names.PRETRAINING_FILE}"
            raise ValueError(f"--to {folder} contains {foreign[0]}, but no pretraining; allowed: {allowed}")
    check_folder("--to", folder)
    return earlier


def _choose_tracking_uri(options: Options) -> str | None:
    """Return the address of the MLflow store, or None for a pretraining without MLflow."""
    if options.tracking_uri is None:
        return build_default_uri(Path(options.to)) if is_installed("mlflow") else None
    return None if options.tracking_uri == "none" else check_tracking_address(options.tracking_uri)


def _check_processes(config: PretrainingConfig, processes: int) -> None:
    """Check the number of processes.

    The processes must share each step evenly. Each process needs a GPU, or a CPU if there are no GPUs.

    Raises:
        ValueError: if the number is not allowed.
    """
    config.examples_at_once(processes)
    gpus = count_local_gpus()
    most = gpus or count_cores()
    if processes > most:
        held = "a GPU" if gpus else "a CPU"
        raise ValueError(
            f"--processes is {processes}; allowed: at most {most} on this machine, because each process needs {held}; "
            "to use several nodes, run torchrun -m study.pretrain"
        )


def _describe(request: Request, file: PretrainingFile, unchecked: Sequence[str], *, max_minutes: float | None) -> None:
    """Describe the pretraining: its steps, each value with its origin, and the differences from the original recipe."""
    config, output = request.config, sys.stdout
    size = f"{config.steps:,} steps of {config.batch_size} examples"
    print_lines([f"{request.recipe.name} on corpus {request.corpus}: {size}"], output)
    rows = [(name, json.dumps(layered.value), layered.origin) for name, layered in request.fields.items()]
    rows += [("backbone", request.backbone.value, request.backbone.origin)]
    rows += [("corpus", request.corpus, "--corpus"), ("seed", str(request.seed), "--seed")]
    if max_minutes is not None:
        rows.append(("limit", f"{max_minutes:g} minutes", "--max-minutes"))
    if request.tokenizer.value is not None:
        rows.append(("tokenizer", request.tokenizer.value, request.tokenizer.origin))
    print(*format_columns(rows), sep="\n")
    if request.backbone.value not in unchecked and backbones.has_new_pooler(request.backbone.value):
        print_lines([describe_new_pooler(request.backbone.value)], output)
    if file.made.departures:
        print("differences from the original recipe:")
        print(
            *(wrap_line(f"  {departure}", read_width(output) or WIDTH) for departure in file.made.departures), sep="\n"
        )
    if unchecked:
        families = objectives.load_objective(request.recipe.objective).FAMILIES
        print_lines([backbones.describe_unchecked(unchecked, families)], output)
    if file.made.steps:
        print(f"{file.made.steps:,} of {file.wanted_steps:,} steps are done")
    print("nothing was run")


main = Command(
    "study.pretrain",
    Options,
    __doc__ or "",
    run,
    after_interrupt="; run the same command to continue",
    suggest=suggest_pretraining_option,
)

if __name__ == "__main__":
    sys.exit(main())
