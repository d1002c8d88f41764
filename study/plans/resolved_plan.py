"""A plan with its arms and its protocol, as stored in `plan.json`.

This module also computes the keys and seeds of trials, and the hash of a protocol. It does not import Optuna.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import UNSET, UnsetType, field

import trainables
from study.plans.plan import EarlyStopping, Plan
from trainables import Departure
from trainables.configuration import AtLeastOne, Count, NotNegative, Precision, TrainingConfig, list_defaults
from trainables.configuration.ranges import Choices, Interval, count_points, list_extremes
from trainables.configuration.schema import Configuration, Typed, Value, to_plain
from trainables.data.repeated_texts import RepeatedTexts
from trainables.data.tasks import Task
from trainables.encoders import backbone_names
from trainables.runs.trial import Selection

FIRST_SEED = 42  # confirm seeds are 42, 43, ...: tinkoff-ai/palbert test.py:34
Departures = tuple[Departure | str, ...]  # files written before 2026-11-25 contain strings
MOST_SEEDS = 100  # confirm seeds per arm if searches are repeated
FIRST_SEARCH_SEED = 1_000  # above all confirm seeds


class Pretraining(Typed, frozen=True, kw_only=True):
    """How a backbone was pretrained."""

    objective: str
    corpus: str  # "mini", "hub:NAME[:CONFIGURATION]", a folder of text files, or several of these (`join_corpora`)
    corpus_fingerprint: str
    backbone: str  # starting point: a folder, a hub name, or a model size with random weights
    is_tiny: bool  # True if the first pretraining of its chain started from a tiny random backbone
    settings: Mapping[str, Value]  # fields of the objective that were set by hand
    batch_size: AtLeastOne  # examples per step
    steps: Count = 0
    tokens: Count = 0  # trained on; repeated tokens count, padding does not
    scores: Mapping[str, float] = {}  # held-out scores by name; empty before the first epoch ends
    wall_seconds: NotNegative = 0.0  # summed over all runs that continued the pretraining
    gpu_seconds: NotNegative = 0.0  # wall_seconds times the number of GPUs, per run
    device: str = ""  # of the last run
    departures: Departures  # from the published objective
    earlier: Pretraining | UnsetType = UNSET  # of the starting point, if `study.pretrain` made it

    @property
    def stages(self) -> tuple[Pretraining, ...]:
        """All pretrainings of the backbone, the first one first."""
        return (self,) if self.earlier is UNSET else (*self.earlier.stages, self)


class Arm(Typed, frozen=True, kw_only=True):
    """One method on one task. Each repeated search is a separate arm."""

    method: str
    task: str
    space: Mapping[str, Choices | Interval]  # ranges of tuned fields; empty: no search
    fixed: Configuration  # the other fields of the method's configuration, without those of `list_defaults` at default
    post_hoc: Mapping[str, Choices] | UnsetType = UNSET  # exit settings: a search chooses the best
    first: tuple[Configuration, ...]  # configurations tried first: of --first-from, published, or the grid
    samples: int  # requested search trials
    seeds: tuple[int, ...]  # of the confirm trials
    backbone: str
    backbone_fingerprint: str
    tokenizer: str | None  # None: the backbone's tokenizer
    tokenizer_fingerprint: str | None
    data_fingerprint: str
    repeat: int = 0  # index of the search; tables show search 0
    start_from: str | None  # name of the arm whose best confirm model it starts from
    pretraining: Pretraining | UnsetType = UNSET  # of the backbone, if `study.pretrain` made it
    random_weights: bool | UnsetType = UNSET  # True if the backbone is a folder without weights, else UNSET
    new_pooler: bool | UnsetType = UNSET  # True if the backbone's weights lack the pooler of its family, else UNSET
    trained_on_mean: bool | UnsetType = UNSET  # True if the backbone was trained without its pooler, on mean tokens
    search_precision: Precision | UnsetType = UNSET  # of search trials; UNSET: as in `fixed`

    @property
    def name(self) -> str:
        """The name of the arm: `palbert/rte`, or `palbert/rte@2` for its second search."""
        return format_arm_name(self.method, self.task, self.repeat)

    @property
    def base_method(self) -> str:
        """The method without its variant: `palbert` of `palbert:a`."""
        return trainables.base_method(self.method)

    @property
    def epochs(self) -> int:
        """The maximum number of epochs of a trial."""
        return self.find_most("epochs")

    @property
    def pinned_backbone(self) -> str:
        """The backbone; a hub name has the form `NAME@COMMIT`."""
        return backbone_names.pinned(self.backbone, self.backbone_fingerprint)

    @property
    def whole_backbone(self) -> str:
        """The backbone; a hub name has the form `OWNER/NAME`, without a revision."""
        is_content = self.backbone_fingerprint.startswith("sha256:")
        return self.backbone if is_content else backbone_names.whole_name(self.backbone)

    @property
    def pinned_tokenizer(self) -> str | None:
        """The tokenizer, or None for the backbone's tokenizer; a hub name has the form `NAME@COMMIT`."""
        return self.tokenizer and backbone_names.pinned(self.tokenizer, self.tokenizer_fingerprint or "")

    @property
    def can_search_more(self) -> bool:
        """True if the search space has more points than `samples`."""
        return bool(self.space) and count_points(self.space) > self.samples

    @property
    def exit_settings(self) -> Mapping[str, Choices]:
        """The values that a search tries for each exit setting; {} if there are none."""
        return self.post_hoc or {}

    @property
    def searched_fields(self) -> tuple[str, ...]:
        """The names of the fields that a search decides: tuned fields and exit settings."""
        return (*self.space, *self.exit_settings)

    def list_values(self, name: str) -> list[Value]:
        """List the choices or both ends of a tuned field, or the value of a fixed field."""
        return list_extremes(self.space[name]) if name in self.space else [{**list_defaults(), **self.fixed}[name]]

    @property
    def uses_pooler(self) -> bool:
        """True if some heads may read the backbone's pooler. ELECTRA-small's head `first_token` does not."""
        return "pooler" in self.list_values("pooling") and self.read_field("head") != "first_token"

    def find_most(self, name: str) -> int:
        """Return the highest value of an integer field."""
        return max(value for value in self.list_values(name) if isinstance(value, int))

    def read_field(self, name: str) -> Choices | Interval | Value:
        """Return a field's range, exit settings or fixed value; `absent` if the arm has no such field."""
        fixed = {**list_defaults(), **self.fixed}
        return self.space.get(name) or self.exit_settings.get(name) or fixed.get(name, "absent")

    def tries_first(self, values: Configuration) -> bool:
        """Check if the search begins with the tuned ones of these values; False if none of them is tuned."""
        tuned = {name: value for name, value in values.items() if name in self.space}
        return bool(tuned) and any(tuned.items() <= point.items() for point in self.first)

    def fixes(self, name: str, value: Value) -> bool:
        """Check if the arm fixes the field at `value`; 1 and 1.0 are different values."""
        return name in self.fixed and self.fixed[name] == value and type(self.fixed[name]) is type(value)

    def make_search_configuration(self, point: Configuration) -> Configuration:
        """Return the configuration of a search trial; `point` has the tuned values."""
        precision = {} if self.search_precision is UNSET else {"precision": self.search_precision}
        return {**self.fixed, **precision, **point}

    def make_confirm_configuration(self, searched: Configuration) -> Configuration:
        """Return the configuration of a confirm trial with the values of a search trial."""
        return searched if self.search_precision is UNSET else {**searched, "precision": self.fixed["precision"]}

    @property
    def any_configuration(self) -> Configuration:
        """One valid configuration of the arm, with the first choice or the lower end of each range."""
        settings = {name: values[0] for name, values in self.exit_settings.items()}
        return {**self.fixed, **{name: list_extremes(allowed)[0] for name, allowed in self.space.items()}, **settings}


class Protocol(Typed, frozen=True, kw_only=True):
    """The rules of an evaluation. All scores in a table have the same protocol."""

    selection: Selection
    select_by: str | UnsetType = UNSET
    metric: str
    aggregate: str
    sampler: str
    early_stopping: EarlyStopping | None
    search_precision: Precision | UnsetType = UNSET  # of search trials only; absent from files if UNSET


def chooses_epoch_on_dev(config: Configuration, protocol: Protocol) -> bool:
    """Check whether a trial keeps the epoch that scores best on the same dev rows as the tables."""
    return protocol.selection == "dev" and config.get("select") != "last" and int(config.get("epochs") or 0) > 1


class ResolvedPlan(Typed, frozen=True, kw_only=True, dict=True):
    """A plan with its arms and its protocol."""

    request: Plan = field(name="asked")
    arms: tuple[Arm, ...]
    protocol: Protocol
    departures: Mapping[str, Departures]  # by name: `protocol`, or an objective or method
    own_tasks: Mapping[str, Task] | UnsetType = UNSET  # user-defined tasks by name, with their numbers of rows
    repeated_texts: Mapping[str, RepeatedTexts] | UnsetType = UNSET  # by task; absent for data of the hub
    train_rows: Mapping[str, Count] | UnsetType = UNSET  # by GLUE task; absent unless the data are a folder

    @cached_property
    def protocol_hash(self) -> str:
        """The hash of the protocol (16 hexadecimal digits), which is part of every record."""
        return digest(to_plain(self.protocol))

    def trial_key(self, arm: Arm, *, phase: str, config: Configuration, seed: int, start: str | None) -> str:
        """Compute a trial's key; equal keys mean the same training run.

        `start` is the key of the trial that trained the starting model. The key of a search
        trial includes the exit settings, because they affect the best epoch.
        """
        content = [arm.backbone_fingerprint, arm.tokenizer_fingerprint, arm.data_fingerprint]
        menu = [arm.exit_settings] if arm.exit_settings and phase == "search" else []
        return digest([self.protocol_hash, arm.method, arm.task, *content, phase, config, seed, start, *menu])

    @property
    def untrained(self) -> list[str]:
        """The backbones with random weights. If the data is generated, tiny backbones are left out."""
        names = backbone_names.PUBLISHED_SIZES if self.request.is_generated else backbone_names.UNTRAINED
        return list(dict.fromkeys(arm.backbone for arm in self.arms if arm.backbone in names or arm.random_weights))

    @property
    def without_pooler(self) -> list[str]:
        """The pretrained backbones whose weights lack the pooler of their family, in arms that use the pooler."""
        return self._list_backbones(lambda arm: arm.new_pooler is True)

    @property
    def without_trained_pooler(self) -> list[str]:
        """The backbones that were trained on the mean of their tokens, in arms that use the pooler nevertheless."""
        return self._list_backbones(lambda arm: arm.trained_on_mean is True and not arm.new_pooler)

    def _list_backbones(self, holds: Callable[[Arm], bool]) -> list[str]:
        """List the backbones of the arms that use the backbone's pooler, if `holds` is true."""
        users = [arm for arm in self.arms if arm.uses_pooler]
        return list(dict.fromkeys(arm.backbone for arm in users if holds(arm)))

    @property
    def pins(self) -> dict[str, str]:
        """The fingerprint of each hub name in the plan."""
        pairs = [(arm.backbone, arm.backbone_fingerprint) for arm in self.arms]
        pairs += [(arm.tokenizer, arm.tokenizer_fingerprint or "") for arm in self.arms if arm.tokenizer]
        return {name: fingerprint for name, fingerprint in pairs if backbone_names.is_hub_name(name)}

    @property
    def data(self) -> str:
        """The source of the tasks' data, for captions."""
        tasks = self.own_tasks or {}
        return ", ".join([self.request.data] * (len(tasks) < len(self.request.tasks)) + ["own tasks"] * bool(tasks))

    def own_task(self, name: str) -> Task | UnsetType:
        """Return the user-defined task of this name; UNSET for a GLUE task."""
        return (self.own_tasks or {}).get(name, UNSET)

    def arm(self, name: str) -> Arm:
        """Return the arm of this name, or raise KeyError if the plan has no such arm."""
        return self._arms[name]

    @property
    def first_arms(self) -> list[Arm]:
        """All arms except those of repeated searches (`search_repeats`), which only one table shows."""
        return [arm for arm in self.arms if not arm.repeat]

    @cached_property
    def _arms(self) -> dict[str, Arm]:
        return {arm.name: arm for arm in self.arms}


def describe_new_pooler(backbone: str) -> str:
    """Describe in one line a pretrained backbone that lacks the pooler of its family."""
    return f"backbone {backbone} has no pooler, so methods that use a pooler start with a random one"


def describe_poolers(plan: ResolvedPlan, name: Callable[[str], str] = str) -> list[str]:
    """Describe in one line each backbone whose pooler was never trained, with a remedy. `name` shortens its name."""
    lines = [describe_new_pooler(name(backbone)) for backbone in plan.without_pooler]
    lines += [
        f"backbone {name(backbone)} was trained on the mean of its tokens, so its pooler is not trained"
        for backbone in plan.without_trained_pooler
    ]
    return [f"{line}; --set pooling=mean reads the mean of the tokens instead" for line in lines]


_POOLINGS = {  # values of `pooling` other than the default
    "first": "the state of [CLS], without a pooler",
    "mean": "the mean of the tokens, without a pooler",
    "fresh": "[CLS] through a pooler that is new in each trial",
}


def list_poolings(plan: ResolvedPlan) -> dict[str, list[str]]:
    """Map each pooling other than the backbone's pooler, in words, to the methods that use it, or may use it."""
    names = {arm.name: arm.method + " (if the search chooses so)" * ("pooling" in arm.space) for arm in plan.arms}
    methods = {
        words: [names[arm.name] for arm in plan.arms if value in arm.list_values("pooling")]
        for value, words in _POOLINGS.items()
    }
    return {words: list(dict.fromkeys(users)) for words, users in methods.items() if users}


def describe_poolings(plan: ResolvedPlan) -> list[str]:
    """Describe in one line each pooling other than the backbone's pooler."""
    return [f"the heads of {', '.join(names)} read {words}" for words, names in list_poolings(plan).items()]


def describe_unlike_values(plan: ResolvedPlan) -> list[str]:
    """Describe in one line the values that no search chose and that differ between methods on one backbone."""
    together: dict[tuple[str, str], list[Arm]] = {}
    for arm in plan.first_arms:
        together.setdefault((arm.task, arm.backbone), []).append(arm)
    fields = dict.fromkeys(field for arms in together.values() for field in _list_unlike_fields(arms))
    return [f"no search chose these values, and they differ between methods: {'; '.join(fields)}"] * bool(fields)


def _list_unlike_fields(arms: Sequence[Arm]) -> Iterator[str]:
    """List the fields that no arm searches and whose values differ: `epochs 3 (berxit) | 25 (albert, palbert)`."""
    for name in TrainingConfig.__struct_fields__:
        if any(name in arm.space for arm in arms):
            continue
        methods: dict[str, list[str]] = {}
        for arm in arms:
            methods.setdefault(json.dumps(arm.read_field(name)), []).append(arm.method)
        if len(methods) > 1:
            yield f"{name} " + " | ".join(f"{value} ({', '.join(users)})" for value, users in methods.items())


# ---- identities and seeds


def digest(value: object, length: int = 16) -> str:
    """Return the first `length` hexadecimal digits of the SHA-256 of the value's canonical JSON."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:length]


def format_arm_name(method: str, task: str, repeat: int) -> str:
    """Format the name of an arm: `palbert/rte`, or `palbert/rte@2` for its second search (`repeat` 1)."""
    return f"{method}/{task}@{repeat + 1}" if repeat else f"{method}/{task}"


def list_confirm_seeds(number: int, *, repeat: int = 0) -> tuple[int, ...]:
    """List the seeds of `number` confirm trials; `repeat` is the index of the arm's search.

    Different searches have different seeds if `number` is at most `MOST_SEEDS`.
    """
    first = FIRST_SEED + repeat * MOST_SEEDS
    return tuple(range(first, first + number))


def derive_search_seed(arm: str, number: int) -> int:
    """Derive the seed of an arm's search trial `number`; this seed never equals a confirm seed."""
    return FIRST_SEARCH_SEED + int(digest([arm, number], length=7), 16)


def format_file_name(method: str) -> str:
    """Replace the separator in `METHOD:VARIANT`, because names of files and registered models cannot contain it."""
    return method.replace(trainables.VARIANT, "-")
