"""The plan of a study: what is asked for, resolved into arms, and the protocol that gives its numbers their meaning.

Pure data; imports none of torch, Ray and MLflow.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
    json_to_distribution,
)

import search_spaces
import trainables
from trainables.data.glue import check_data, fingerprint
from trainables.data.tasks import TASKS
from trainables.encoders.backbones import backbone_fingerprint, check_backbone

Sampler = Literal["tpe", "random", "grid"]
SAMPLERS = ("tpe", "random", "grid")
SELECTIONS = ("dev", "holdout")
FIRST_SEED = 42  # confirm seeds are 42, 43, ...: tinkoff-ai/palbert test.py:34


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """Fields laid over every search space that has them; those of `fixed` are no longer tuned."""

    space: dict[str, BaseDistribution] = field(default_factory=dict)
    grid: dict[str, list] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a user asks for: a profile's defaults with the command line laid over them."""

    profile: str
    methods: tuple[str, ...]
    tasks: tuple[str, ...]
    data: str  # "mini", "hub" or a folder
    backbone: str | None = None  # null: each method's own for this profile
    samples: int | None  # search trials per arm; null: the whole grid
    seeds: int  # confirm trials per arm
    sampler: Sampler
    selection: Literal["dev", "holdout"] = "dev"
    epochs: int | None = None  # at most; null: each method's own
    settings: dict[str, Any] = field(default_factory=dict)  # --set: fields of every method, no longer tuned
    random_start: Overrides = field(default_factory=Overrides)  # where the backbone is a tiny random one
    start_from: dict[str, str] = field(default_factory=dict)  # task -> task whose confirmed model is its start
    asha_grace: int = 1  # epochs before a search trial can be stopped
    asha_factor: int = 3  # one trial in `asha_factor` goes on from a rung to the next

    def __post_init__(self) -> None:
        _check_menu("method", self.methods, search_spaces.available())
        _check_menu("task", self.tasks, trainable_tasks())
        _check_menu("sampler", (self.sampler,), SAMPLERS)
        _check_menu("selection", (self.selection,), SELECTIONS)
        for name, value in (("samples", self.samples), ("seeds", self.seeds), ("epochs", self.epochs)):
            if value is not None and value < 1:
                raise ValueError(f"--{name} is {value}; allowed: 1 or more")
        for task, source in self.start_from.items():
            if task in self.tasks and source not in self.tasks:
                raise ValueError(
                    f"profile {self.profile}: {task} starts from the models of {source}; add --task {source}"
                )
        if self.samples is None and self.sampler != "grid":
            raise ValueError(f"--sampler {self.sampler} needs --samples; only grid knows its own number")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One (method, task) pair, with all that its trials have in common."""

    method: str
    task: str
    space: dict[str, BaseDistribution]  # tuned
    fixed: dict[str, Any]  # the other fields of the method's configuration
    first: tuple[dict[str, Any], ...]  # configurations tried first: published ones, or the grid
    samples: int  # search trials wanted
    backbone: str
    data_fingerprint: str
    start_from: str | None = None  # task whose best confirm model of the same method is the start

    @property
    def name(self) -> str:
        return f"{self.method}/{self.task}"

    @property
    def epochs(self) -> int:
        return self.fixed["epochs"]

    def to_json(self) -> dict[str, Any]:
        row = asdict(self)
        row["space"] = {name: json.loads(distribution_to_json(value)) for name, value in self.space.items()}
        return row


@dataclass(frozen=True, kw_only=True)
class ResolvedPlan:
    """A plan with its arms and its protocol: all that the engine needs."""

    plan: Plan
    arms: tuple[Arm, ...]
    protocol: dict[str, Any]

    @property
    def protocol_hash(self) -> str:
        return digest(self.protocol)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(FIRST_SEED, FIRST_SEED + self.plan.seeds))

    def to_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "profile": plan.profile,
            "methods": list(plan.methods),
            "tasks": list(plan.tasks),
            "samples": plan.samples,
            "seeds": list(self.seeds),
            "phases": {"search": {arm.name: arm.samples for arm in self.arms}, "confirm": len(self.seeds)},
            "data": plan.data,
            "backbone": plan.backbone,
            "spaces": {arm.name: arm.to_json()["space"] for arm in self.arms},
            "arms": {arm.name: {k: v for k, v in arm.to_json().items() if k != "space"} for arm in self.arms},
            "protocol": self.protocol,
            "protocol_hash": self.protocol_hash,
        }


def load_plan_json(folder: Path) -> dict[str, Any] | None:
    """The `plan.json` of a study folder; None where there is none. ValueError if it was changed by hand."""
    path = folder / "plan.json"
    if not path.exists():
        return None
    try:
        on_disk = json.loads(path.read_text())
        written = on_disk.pop("digest")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a plan: {error!r}") from None
    if digest(on_disk) != written:
        raise ValueError(f"{path} was edited: its digest is {written}, its content has {digest(on_disk)}")
    return on_disk


def with_earlier(plan: Plan, earlier: dict[str, Any]) -> Plan:
    """The plan extended by what the study on disk was asked for before."""
    return replace(
        plan,
        methods=tuple(dict.fromkeys([*earlier["methods"], *plan.methods])),
        tasks=tuple(dict.fromkeys([*earlier["tasks"], *plan.tasks])),
        samples=_larger(plan.samples, earlier["samples"]),
        seeds=max(plan.seeds, len(earlier["seeds"])),
    )


def check_same_study(resolved: ResolvedPlan, earlier: dict[str, Any], folder: Path) -> None:
    """ValueError, naming every field that differs, if `earlier` was made under another protocol or with other arms."""
    now = resolved.to_json()
    shared_arms = sorted(now["arms"].keys() & earlier["arms"].keys())
    changes = _changes("protocol", earlier["protocol"], now["protocol"])
    for arm in shared_arms:
        changes += _changes(f"space of {arm}", earlier["spaces"][arm], now["spaces"][arm])
        before, after = ({k: v for k, v in plan["arms"][arm].items() if k in ARM_FACTS} for plan in (earlier, now))
        changes += _changes(arm, before, after)
    if changes:
        before, after = earlier["protocol_hash"], now["protocol_hash"]
        hashes = f"protocol {before}" if before == after else f"protocol {before}, this command asks for {after}"
        raise ValueError(
            f"study {folder} was made under {hashes}; different: {'; '.join(changes)}. Choose another --name"
        )


# What may not change when a study is extended. A backbone's content is in the protocol; its path may change.
ARM_FACTS = ("fixed", "data_fingerprint", "start_from")


def _changes(where: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    names = sorted(before.keys() | after.keys())
    return [
        change
        for name in names
        if before.get(name) != after.get(name)
        for change in (
            _changes(f"{where} {name}", before[name], after[name])
            if isinstance(before.get(name), dict) and isinstance(after.get(name), dict)
            else [f"{where} {name} {json.dumps(before.get(name))} on disk, {json.dumps(after.get(name))} asked for"]
        )
    ]


def _larger(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else max(first, second)


def resolved_from_json(on_disk: dict[str, Any]) -> ResolvedPlan:
    """The plan that a `plan.json` holds, as it was resolved then."""
    protocol = on_disk["protocol"]
    plan = Plan(
        **{name: on_disk[name] for name in ("profile", "data", "backbone", "samples")},
        **{name: protocol[name] for name in ("sampler", "selection", "epochs", "settings", "start_from")},
        **protocol["early_stopping"],
        methods=tuple(on_disk["methods"]),
        tasks=tuple(on_disk["tasks"]),
        seeds=len(on_disk["seeds"]),
    )
    arms = tuple(_arm_from_json(row, on_disk["spaces"][name]) for name, row in on_disk["arms"].items())
    return ResolvedPlan(plan=plan, arms=arms, protocol=protocol)


def _arm_from_json(row: dict[str, Any], space: dict[str, Any]) -> Arm:
    distributions = {name: json_to_distribution(json.dumps(value)) for name, value in space.items()}
    return Arm(**row | {"first": tuple(row["first"]), "space": distributions})


def digest(value: Any, length: int = 16) -> str:
    """The first `length` hexadecimal digits of SHA-256 over canonical JSON."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:length]


def trial_key(
    protocol_hash: str,
    *,
    method: str,
    task: str,
    phase: str,
    config: dict[str, Any],
    seed: int,
    start_from: str | None = None,
) -> str:
    """The identity of a trial: the same key is the same training run. `start_from` is the key of another trial."""
    identity = [protocol_hash, method, task, phase, config, seed]
    return digest(identity if start_from is None else [*identity, start_from])


def trainable_tasks() -> tuple[str, ...]:
    """The tasks with a training set, in the paper's order."""
    return tuple(name for name, task in TASKS.items() if task.train_split)


def resolve(plan: Plan) -> ResolvedPlan:
    """The plan's arms and protocol. ValueError, before anything is created, for what cannot be run."""
    for task in plan.tasks:
        check_data(TASKS[task], plan.data)
    arms = tuple(_resolve_arm(plan, method, task) for method in plan.methods for task in plan.tasks)
    for backbone in sorted({arm.backbone for arm in arms}):
        check_backbone(backbone)
    return ResolvedPlan(plan=plan, arms=arms, protocol=_protocol(plan))


def _protocol(plan: Plan) -> dict[str, Any]:
    return {
        "profile": plan.profile,
        "data": plan.data if plan.data in ("mini", "hub") else "folder",
        "backbone": None if plan.backbone is None else backbone_fingerprint(plan.backbone),
        "selection": plan.selection,
        "metric": "the task's GLUE metric at the best epoch; the mean where it has several",
        "aggregate": f"median over seeds from {FIRST_SEED}",
        "sampler": plan.sampler,
        "epochs": plan.epochs,
        "settings": plan.settings,
        "start_from": plan.start_from,
        "early_stopping": {"asha_grace": plan.asha_grace, "asha_factor": plan.asha_factor},
    }


def _resolve_arm(plan: Plan, method: str, task: str) -> Arm:
    search_space = search_spaces.load(method)
    own = search_space.backbone["mini" if plan.profile == "mini" else "paper"]
    backbone = own if plan.backbone is None else plan.backbone
    overrides = plan.random_start if backbone.startswith("mini-") else Overrides()
    space = _laid_over(search_space.space, overrides.space)
    fixed = search_space.fixed_for(task)
    known = space.keys() | fixed.keys()
    _check_settings(method, plan.settings, known)
    settings = {name: value for name, value in overrides.fixed.items() if name in known} | plan.settings
    fixed |= settings | ({"epochs": plan.epochs} if plan.epochs else {})
    space = {name: distribution for name, distribution in space.items() if name not in settings}
    published = [] if overrides.space else search_space.published.get(task, ())
    first = _without_repeats({name: point[name] for name in space if name in point} for point in published)
    samples = plan.samples
    if plan.sampler == "grid":
        grid = _laid_over(search_space.paper_grid, overrides.grid)
        space = {name: CategoricalDistribution(grid[name]) for name in space}
        first = _grid_points(space, first)
        samples = min(samples or len(first), len(first))
    assert samples is not None
    arm = Arm(
        method=method,
        task=task,
        space=space,
        fixed=fixed,
        first=tuple(first[:samples]),
        samples=samples,
        backbone=backbone,
        data_fingerprint=fingerprint(TASKS[task], plan.data),
        start_from=plan.start_from.get(task),
    )
    trainables.load(method).Config(**any_configuration(arm)).check_task(TASKS[task])  # its ValueErrors are the user's
    return arm


def _laid_over(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    return dict(base) | {name: value for name, value in overrides.items() if name in base}


def _grid_points(space: dict[str, CategoricalDistribution], first: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every point of the grid once, those of `first` leading."""
    choices = product(*(distribution.choices for distribution in space.values()))
    points = _without_repeats(dict(zip(space, values, strict=True)) for values in choices)
    leading = [point for point in first if point in points]
    return leading + [point for point in points if point not in leading]


def _without_repeats(points: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for point in points:
        if point not in kept:
            kept.append(point)
    return kept


def _check_menu(what: str, names: Sequence[str], menu: Sequence[str]) -> None:
    for name in names:
        if name not in menu:
            raise ValueError(f"no {what} named {name!r}; available: {', '.join(menu)}")
    if not names:
        raise ValueError(f"no {what} given; available: {', '.join(menu)}")


def _check_settings(method: str, settings: dict[str, Any], known: Collection[str]) -> None:
    for name in settings:
        if name not in known:
            raise ValueError(f"--set {name}: {method} has no such field; it has {', '.join(sorted(known))}")


def any_configuration(arm: Arm) -> dict[str, Any]:
    """A configuration of the arm: the first choices, the lower ends."""
    return arm.fixed | {name: _any_value(distribution) for name, distribution in arm.space.items()}


def _any_value(distribution: BaseDistribution) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[0]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    return distribution.low
