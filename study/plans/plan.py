"""The plan that a user asks for: a profile's defaults, overridden by the command line.

A field can have values in several layers, such as a file and the command line. `merge_layers` keeps the last value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, get_type_hints

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import force_setattr, replace

from study.plans.names_elsewhere import suggest_field
from study.plans.settings import Setting
from trainables.configuration import AtLeastOne, Count, Precision
from trainables.configuration.schema import Configuration, Typed, Value
from trainables.data.tasks import GLUE_TASKS
from trainables.runs.trial import Selection

if TYPE_CHECKING:
    from search_spaces import SearchSpace
    from search_spaces.objectives import Recipe
    from trainables import Departure

T = TypeVar("T")
MOST_REPEATS = 9  # searches per arm; keeps all confirm seeds below the search seeds
SearchRepeats = Annotated[int, Meta(ge=1, le=MOST_REPEATS)]
# Fields of a plan without an option of their own; its file sets them, by lines such as `tokenizer = "./words"`.
LINES_OF_PLAN_FILE = ("search_precision", "search_repeats", "test_across", "tokenizer")


class EarlyStopping(Typed, frozen=True, kw_only=True):
    """ASHA's settings for stopping search trials early."""

    grace: AtLeastOne = 1  # epochs before a search trial can be stopped
    factor: Annotated[int, Meta(ge=2)] = 3  # one in `factor` trials continues from each rung to the next


class First(Typed, frozen=True, kw_only=True):
    """The configuration that an arm tries first: the best one of another study.

    Values of fields that the arm fixes are ignored.
    """

    origin: str  # study and arm in which these values won
    values: Configuration


Firsts = Mapping[str, tuple[First, ...]]  # by arm


def _union(earlier: tuple[str, ...], later: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*earlier, *later]))


def _most(earlier: int | None, later: int | None) -> int | None:
    return None if earlier is None or later is None else max(earlier, later)


def _kept(earlier: T | UnsetType, later: T | UnsetType) -> T | UnsetType:
    return earlier if later is UNSET else later


def _joined_firsts(earlier: Firsts | UnsetType, later: Firsts | UnsetType) -> Firsts | UnsetType:
    """Join the winners of both plans; an arm with the same values keeps their origin, such as a study's old path."""
    had, new = earlier or {}, later or {}
    values = {arm: [first.values for first in firsts] for arm, firsts in had.items()}
    changed = {arm: firsts for arm, firsts in new.items() if [first.values for first in firsts] != values.get(arm)}
    return {**had, **changed} or UNSET


# The mark of a field is the rule for changing the field when a study is extended. A mark that is a function merges the
# earlier and the later value. Fields without a mark affect scores: they may change only if every arm with trials keeps
# its facts (`study.facts.plan_file.compare_plans`).
Joined = Annotated[T, _union]  # always keeps the earlier entries
Growing = Annotated[T, _most]  # never shrinks; None is the largest value
Remembered = Annotated[T, _kept]  # keeps the earlier value if the later command leaves it out
OfProtocol = Annotated[T, "protocol"]  # may not change: a field of `Protocol`
Free = Annotated[T, "free"]  # affects no score: may change


class Plan(Typed, frozen=True, kw_only=True):
    """The study that a user asks for. The options of `study.launch` are named after these fields."""

    profile: str
    methods: Joined[tuple[str, ...]]
    tasks: Joined[tuple[str, ...]]
    data: str  # "mini", "hub" or a folder
    backbone: str | None = None  # None: each method's default for this profile and data
    tokenizer: str | None = None  # None: the backbone's if one is given, else each method's default
    samples: Growing[Count | None]  # search trials per arm; None: the whole grid; 0: no search
    search_repeats: Growing[SearchRepeats] = 1  # searches per arm, each with its own seeds, winner and confirm trials
    seeds: Growing[AtLeastOne]  # confirm trials per arm, unless the method fixes their number
    sampler: OfProtocol[str]  # a name of `study.plans.samplers`, or package.module:Factory
    selection: OfProtocol[Selection] = "dev"
    select_by: OfProtocol[str | UnsetType] = UNSET  # `at:LAYERS` or `area`, see `study.plans.samplers`; UNSET: score
    epochs: AtLeastOne | None = None  # only in older files; now one of the settings
    settings: Mapping[str, Setting] = {}  # --set and --search: see `study.plans.settings`
    search_only: tuple[str, ...] | UnsetType = UNSET  # tuned fields to search; all others take a paper's value
    start_from: Mapping[str, str] = {}  # arm -> arm whose model it starts from; a task alone means the same method
    early_stopping: OfProtocol[EarlyStopping | None] = EarlyStopping()  # None: ASHA stops no trial
    baseline: Free[str | None] = None  # method that all other methods are compared with
    test_across: Free[Literal["backbones"] | None] = None  # property in which two compared methods may differ
    search_precision: OfProtocol[Precision | UnsetType] = UNSET  # of search trials; UNSET: same as other trials
    include: Remembered[str | UnsetType] = UNSET  # --include: absolute path of a folder of methods and tasks
    first: Annotated[Firsts | UnsetType, _joined_firsts] = UNSET  # --first-from: winners by arm

    def __post_init__(self) -> None:
        """Move the field `epochs`, which only older files contain, into `settings`."""
        if self.epochs is not None:
            force_setattr(self, "settings", {"epochs": self.epochs, **self.settings})
            force_setattr(self, "epochs", None)

    @property
    def searched_alone(self) -> tuple[str, ...] | UnsetType:
        """The fields that a search may tune, or UNSET if a search may tune all fields.

        The tuple is empty if the plan has no search trials.
        """
        return () if self.samples == 0 else self.search_only

    @property
    def is_generated(self) -> bool:
        """True if the plan's GLUE tasks use generated data; scores are then not comparable with published ones."""
        return self.data == "mini" and any(task in GLUE_TASKS for task in self.tasks)

    def extend(self, earlier: Plan) -> Plan:
        """Merge this plan with the study's earlier plan. For example, the result has the methods of both plans."""
        rules = {name: join for name, join in _read_marks().items() if callable(join)}
        return replace(
            self, **{name: join(getattr(earlier, name), getattr(self, name)) for name, join in rules.items()}
        )

    @property
    def protocol_fields(self) -> dict[str, Any]:
        """The fields that belong to the protocol, with their values."""
        return {name: getattr(self, name) for name, mark in _read_marks().items() if mark == "protocol"}

    @property
    def score_fields(self) -> dict[str, Any]:
        """The fields that affect scores, with their values; fields that are UNSET are left out."""
        names = [name for name, mark in _read_marks().items() if mark in (None, "protocol")]
        return {name: value for name in names if (value := getattr(self, name)) is not UNSET}

    def find_start(self, method: str, task: str, default: str | None) -> str | None:
        """Return the arm that trains the starting model of `method` on `task`; None for the backbone.

        The entry of `start_from` for METHOD/TASK comes first, then the method `default`, then the entry for TASK.
        """
        source = self.start_from.get(f"{method}/{task}", f"{default}/{task}" if default else self.start_from.get(task))
        return source if source is None or "/" in source else f"{method}/{source}"

    def list_firsts(self, arm: str) -> tuple[First, ...]:
        """Return the best configurations of other studies, which the arm tries first."""
        return () if self.first is UNSET else self.first.get(arm, ())


@cache
def _read_marks() -> dict[str, object]:
    """Map each field of `Plan` to the mark in its annotation (see `Joined`), or to None if there is no mark."""
    hints = get_type_hints(Plan, include_extras=True)
    return {
        name: next((mark for mark in getattr(hints[name], "__metadata__", ()) if not isinstance(mark, Meta)), None)
        for name in Plan.__struct_fields__
    }


Layers = list[tuple[str, Mapping[str, T]]]  # (origin, values) pairs; the last layer wins


_WIDEST_VALUE = 32  # characters of a value beside its origin: with most origins, a line has at most 100


@dataclass(frozen=True)
class Layered(Generic[T]):
    """The value of a field, and the name of the layer that set it."""

    value: T
    origin: str


def merge_layers(layers: Layers[T]) -> dict[str, Layered[T]]:
    """Take each field's value from the last layer that has the field. Fields are in order of first occurrence."""
    return {name: Layered(value, origin) for origin, values in layers for name, value in values.items()}


def format_columns(rows: list[tuple[str, str, str]]) -> list[str]:
    """Format (field, value, origin) rows in columns, sorted by field; a long value has its origin in the next line."""
    first = max(len(name) for name, _, _ in rows)
    second = max((len(value) for _, value, _ in rows if len(value) <= _WIDEST_VALUE), default=0)
    lines = list[str]()
    for name, value, origin in sorted(rows):
        if len(value) <= second:
            lines.append(f"  {name:{first}}  {value:{second}}  {origin}")
        else:
            lines += [f"  {name}  {value}", f"  {'':{first}}  {'':{second}}  {origin}"]
    return lines


def choose_backbone(
    source: SearchSpace | Recipe, kind: str, *, backbone: str | None, tokenizer: str | None
) -> tuple[Layered[str], Layered[str | None]]:
    """Return the backbone and tokenizer from the options, or else from `source`.

    If the options name only a backbone, the tokenizer is None (the backbone's tokenizer).
    """
    chosen = Layered(source.backbone[kind], f"{source.file} BACKBONE[{kind!r}]")
    default = Layered[str | None](source.tokenizer.get(kind), f"{source.file} TOKENIZER[{kind!r}]")
    if backbone is not None:
        chosen, default = Layered(backbone, "--backbone"), Layered(None, "--backbone")
    return chosen, default if tokenizer is None else Layered(tokenizer, "--tokenizer")


# The fields that depend on the field `attention`. Nystrom attention has the kernel size of vvvm23/albert. It has 32
# landmarks instead of 256, because GLUE's texts are cut to 128 tokens. At this length, it costs as much as softmax
# attention (python -m benchmarks.attention).
_OF_ATTENTION: Mapping[Value, Configuration] = {
    "softmax": {"num_landmarks": None, "conv_kernel_size": None},
    "nystrom": {"num_landmarks": 32, "conv_kernel_size": 33},
}


def complete_attention(by_hand: Mapping[str, Layered[Value]]) -> dict[str, Layered[Value]]:
    """Add to the values set by hand those that depend on `attention`, if this field is among them.

    Values that are set by hand themselves stay as they are.
    """
    attention = by_hand.get("attention")
    values = {} if attention is None else _OF_ATTENTION.get(attention.value, {})
    return {name: Layered(value, attention.origin) for name, value in values.items() if attention} | {**by_hand}


def make_field_error(
    option: str, field: str, owner: str, known: Collection[str], *, departures: Collection[Departure] = ()
) -> ValueError:
    """Build the error for a field that `owner` lacks. `owner` is a method or a pretraining objective.

    Args:
        option: the option that names the field. The message begins with this option.
        known: the fields that `owner` has.
        departures: the method's departures from its paper. If a departure mentions the field, the message quotes this
            departure instead of suggesting a field.
    """
    lines = map(str, departures)
    naming = (f"; {line}" for line in lines if "_" in field and field in re.findall(r"\w+", line))
    near = next(naming, suggest_field(field, known))
    return ValueError(f"{option}: {owner} has no such field; its fields are {', '.join(sorted(known))}{near}")
