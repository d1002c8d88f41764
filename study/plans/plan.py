"""A plan: a profile's defaults with the command line laid over them.

Also values laid over each other in general: the last value of each field, and its origin.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, get_type_hints

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import force_setattr, replace

from study.plans.ranges import Setting
from trainables.configuration import AtLeastOne, Count, Precision
from trainables.data.tasks import TRAINABLE_TASKS
from trainables.runs.trial import Selection
from trainables.schema import Configuration, Typed
from trainables.spelling import nearest_in_words

if TYPE_CHECKING:
    from search_spaces import SearchSpace
    from search_spaces.objectives import Recipe
    from trainables.departure import Departure

T = TypeVar("T")
MOST_REPEATS = 9  # of a search: confirm seeds stay below the search seeds
SearchRepeats = Annotated[int, Meta(ge=1, le=MOST_REPEATS)]
AtLeastTwo = Annotated[int, Meta(ge=2)]


class EarlyStopping(Typed, frozen=True, kw_only=True):
    """ASHA's rule, which stops search trials."""

    grace: AtLeastOne = 1  # epochs before a search trial can be stopped
    factor: AtLeastTwo = 3  # one trial in `factor` goes on from a rung to the next


class First(Typed, frozen=True, kw_only=True):
    """Values of tuned fields that an arm tries first, as far as it tunes them."""

    origin: str  # the study and the arm in which they won
    values: Configuration


def _union(earlier: tuple[str, ...], later: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*earlier, *later]))


def _most(earlier: int | None, later: int | None) -> int | None:
    return None if earlier is None or later is None else max(earlier, later)


def _kept(earlier: T | UnsetType, later: T | UnsetType) -> T | UnsetType:
    return earlier if later is UNSET else later


# What may happen to a field when a study is extended: a function joins its earlier and its later value. Unmarked fields
# are what the numbers of arms are made of: they may change as long as the facts of no arm with trials do
# (`study.plans.plan_file.compare_plans`).
Joined = Annotated[T, _union]  # keeps what it had
Growing = Annotated[T, _most]  # never shrinks; None is the most
Remembered = Annotated[T, _kept]  # may be left out later
OfProtocol = Annotated[T, "protocol"]  # stays as it is: a field of `Protocol`
Free = Annotated[T, "free"]  # of no number: may change


class Plan(Typed, frozen=True, kw_only=True):
    """The wishes of a user for a study. Options of `study.launch` have the names of these fields."""

    profile: str
    methods: Joined[tuple[str, ...]]
    tasks: Joined[tuple[str, ...]]
    data: str  # "mini", "hub" or a folder
    backbone: str | None = None  # None: each method's own for this profile and data
    tokenizer: str | None = None  # None: each method's own if no backbone is given, else the backbone's
    samples: Growing[Count | None]  # search trials per arm; None: the whole grid; 0: nothing is searched
    search_repeats: Growing[SearchRepeats] = 1  # searches per arm, each with its own seeds, winner and confirm trials
    seeds: Growing[AtLeastOne]  # confirm trials per arm, unless the method has its own number
    sampler: OfProtocol[str]  # a name of `study.plans.samplers`, or package.module:Factory
    selection: OfProtocol[Selection] = "dev"
    select_by: OfProtocol[str | UnsetType] = UNSET  # `at:LAYERS` or `area`, see `study.plans.select_by`; UNSET: score
    epochs: AtLeastOne | None = None  # of older files alone: it is among the settings
    settings: Mapping[str, Setting] = {}  # --set and --search: see `study.plans.ranges`
    search_only: tuple[str, ...] | UnsetType = UNSET  # tuned fields that are searched; the others have a paper's value
    start_from: Mapping[str, str] = {}  # arm -> arm whose model is its start; a bare task is of the same method
    early_stopping: OfProtocol[EarlyStopping | None] = EarlyStopping()  # None: every trial runs to its own stop
    baseline: Free[str | None] = None  # method that the others are compared with
    test_across: Free[Literal["backbones"] | None] = None  # what rows may differ in, and still be tested
    search_precision: OfProtocol[Precision | UnsetType] = UNSET  # of search trials, whatever others compute in
    include: Remembered[str | UnsetType] = UNSET  # --include: whole path of a folder of methods and tasks
    first: Remembered[Mapping[str, tuple[First, ...]] | UnsetType] = UNSET  # --first-from: what each arm tries first

    def __post_init__(self) -> None:
        """Move `epochs` of an older file to the settings."""
        if self.epochs is not None:
            force_setattr(self, "settings", {"epochs": self.epochs, **self.settings})
            force_setattr(self, "epochs", None)

    @property
    def searched_alone(self) -> tuple[str, ...] | UnsetType:
        """The only fields that may be tuned: none without search trials; UNSET: all."""
        return () if self.samples == 0 else self.search_only

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that a setting can have if it is not for all methods: each method, and each arm."""
        return (*self.methods, *(f"{method}/{task}" for method in self.methods for task in self.tasks))

    @property
    def is_generated(self) -> bool:
        """True if any GLUE task of the plan is generated, so that no published number is comparable."""
        return self.data == "mini" and any(task in TRAINABLE_TASKS for task in self.tasks)

    def extended_from(self, earlier: Plan) -> Plan:
        """Extend this plan by what the study on disk was asked for before."""
        rules = {name: join for name, join in read_marks(Plan).items() if callable(join)}
        joined = {name: join(getattr(earlier, name), getattr(self, name)) for name, join in rules.items()}
        return replace(self, **joined)

    @property
    def of_protocol(self) -> dict[str, Any]:
        """The fields that are rules of the protocol."""
        return {name: getattr(self, name) for name, mark in read_marks(Plan).items() if mark == "protocol"}

    @property
    def of_numbers(self) -> dict[str, Any]:
        """The fields that are set and decide any one number: all but those that may grow or change."""
        names = [name for name, mark in read_marks(Plan).items() if mark in (None, "protocol")]
        return {name: value for name in names if (value := getattr(self, name)) is not UNSET}

    def start_of(self, method: str, task: str, its_own: str | None = None) -> str | None:
        """Name the arm whose model this one starts from; `its_own`: the method that its file names."""
        source = self.start_from.get(f"{method}/{task}", f"{its_own}/{task}" if its_own else self.start_from.get(task))
        return source if source is None or "/" in source else f"{method}/{source}"

    def first_of(self, arm: str) -> tuple[First, ...]:
        """List the values that an arm tries first because they won in another study."""
        return () if self.first is UNSET else self.first.get(arm, ())

    def search_precision_of(self, fixed: Configuration, *, is_searched: bool) -> Precision | UnsetType:
        """Return the precision of an arm's search trials; UNSET if it is that of all its trials."""
        is_another = is_searched and self.search_precision != fixed.get("precision")
        return self.search_precision if is_another else UNSET


@cache
def read_marks(kind: type[Typed]) -> dict[str, object]:
    """Map each field to its mark, which says what an extension may change; None for a field without one."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: next((mark for mark in getattr(hints[name], "__metadata__", ()) if not isinstance(mark, Meta)), None)
        for name in kind.__struct_fields__
    }


Layers = list[tuple[str, Mapping[str, T]]]  # origin and values, the last one wins


@dataclass(frozen=True)
class Layered(Generic[T]):
    """The value of a field, and the layer that it comes from."""

    value: T
    origin: str


def merge_layers(layers: Layers[T]) -> dict[str, Layered[T]]:
    """Take each field's value from the last layer that has it; fields keep the order in which they first appear."""
    return {name: Layered(value, origin) for origin, values in layers for name, value in values.items()}


def format_columns(rows: list[tuple[str, str, str]]) -> list[str]:
    """Format field, value and origin in columns, a line each, sorted by field."""
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"  {name:{widths[0]}}  {value:{widths[1]}}  {origin}" for name, value, origin in sorted(rows)]


def lay_backbone(
    source: SearchSpace | Recipe, kind: str, *, backbone: str | None, tokenizer: str | None
) -> tuple[Layered[str], Layered[str | None]]:
    """Choose the backbone and tokenizer asked for, or else those in the file of a method or an objective."""
    loaded = Layered(source.backbone[kind], f"{source.file} BACKBONE[{kind!r}]")
    its_own = Layered[str | None](source.tokenizer.get(kind), f"{source.file} TOKENIZER[{kind!r}]")
    if backbone is not None:
        loaded, its_own = Layered(backbone, "--backbone"), Layered(None, "--backbone")
    return loaded, its_own if tokenizer is None else Layered(tokenizer, "--tokenizer")


SAMPLED = "--method pondernet, or of palbert --set exit=sample --set q=null --set sample_draws=1"  # PALBERT's `sample`
NAMES_IN_REPOSITORIES = {  # of fields, in the scripts of PALBERT, PABEE, DeeBERT, BERxiT and lmtuners
    "accumulate_grad_batches": "gradient_accumulation",
    "attention_probs_dropout_prob": "hidden_dropout",
    "d_loss_weight": "discriminator_weight",
    "early_exit_entropy": "entropy",
    "exit_criteria": "exit",
    "generator_type": "generator_family",
    "hidden_dropout_prob": "hidden_dropout",
    "lambda_lr": "lambda_learning_rate",
    "lambda_p": "prior_lambda",
    "lte_th": "threshold",
    "lr": "learning_rate",
    "lr_schedule": "schedule",
    "max_grad_norm": "gradient_clip",
    "max_seq_length": "max_length",
    "max_steps": "steps",
    "mlm_prob": "mask_probability",
    "num_train_epochs": "epochs",
    "num_warmup_steps": "warmup_steps",
    "pabee_patience": "patience",
    "per_gpu_train_batch_size": "batch_size",
    "ponder_threshold": "q",
    "threshold": "q",
    "train_batch_size": "batch_size",
}


def nearest_field(field: str, known: Collection[str]) -> str:
    """Suggest a field for a misspelling or a name in a paper's repository: `; did you mean learning_rate?`, or ""."""
    ours = NAMES_IN_REPOSITORIES.get(field.replace("-", "_"))
    if field == "exit_criteria" and ours in known:
        return f"; did you mean exit? Their sample is {SAMPLED}"
    return f"; did you mean {ours}?" if ours in known else nearest_in_words(field, known)


def no_such_field(
    named: str, field: str, what: str, known: Collection[str], *, departures: Collection[Departure] = ()
) -> ValueError:
    """Make the error for a field that a method or an objective lacks.

    Args:
        named: the option with the field.
        departures: the method's; one that names the field says what replaces it.
    """
    naming = (f"; {one}" for one in departures if "_" in field and field in re.findall(r"\w+", str(one)))
    near = next(naming, nearest_field(field, known))
    return ValueError(f"{named}: {what} has no such field; it has {', '.join(sorted(known))}{near}")
