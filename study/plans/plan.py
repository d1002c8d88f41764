"""A plan: what a user asks for, a profile's defaults with the command line laid over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from study.plans.identity import MOST_REPEATS
from trainables.configuration import AtLeastOne, Precision
from trainables.runs.trial import Selection
from trainables.schema import Configuration, Typed, Value

Sampler = Literal["tpe", "random", "grid"]
SearchRepeats = Annotated[int, Meta(ge=1, le=MOST_REPEATS)]
AtLeastTwo = Annotated[int, Meta(ge=2)]


class EarlyStopping(Typed, frozen=True, kw_only=True):
    """Of search trials, by ASHA."""

    grace: AtLeastOne = 1  # epochs before a search trial can be stopped
    factor: AtLeastTwo = 3  # one trial in `factor` goes on from a rung to the next


class Pretraining(Typed, frozen=True, kw_only=True):
    """How the one backbone is made that every trial starts from."""

    objective: str
    corpus: str  # "mini", "mini-shuffled", "hub:NAME[:CONFIGURATION]" or a folder of text files
    settings: Mapping[str, Value] = {}  # --pretrain-set: fields of the objective


class Plan(Typed, frozen=True, kw_only=True):
    """What a study is asked for."""

    profile: str
    methods: tuple[str, ...]
    tasks: tuple[str, ...]
    data: str  # "mini", "hub" or a folder
    backbone: str | None = None  # None: each method's own for this profile and data, or the objective's
    tokenizer: str | None = None  # None: each method's own where no backbone is given, else the backbone's
    samples: AtLeastOne | None  # search trials per arm; None: the whole grid
    search_repeats: SearchRepeats = 1  # searches per arm, each with seeds, a winner and confirm trials of its own
    seeds: AtLeastOne  # confirm trials per arm, where the method has no number of its own
    sampler: Sampler
    selection: Selection = "dev"
    epochs: AtLeastOne | None = None  # at most; None: each method's own
    settings: Mapping[str, Value] = {}  # --set: fields of every method, no longer tuned
    start_from: Mapping[str, str] = {}  # arm -> arm whose model is its start; a bare task is of the same method
    early_stopping: EarlyStopping | None = EarlyStopping()  # None: every trial runs to its own stop
    baseline: str | None = None  # method that the others are compared with
    pretraining: Pretraining | UnsetType = UNSET  # left out of files where there is none
    search_precision: Precision | UnsetType = UNSET  # of search trials alone, whatever the others compute in
    include: str | UnsetType = UNSET  # --include: whole path of a folder of methods

    def start_of(self, method: str, task: str) -> str | None:
        """The name of the arm whose model is the start of this one."""
        source = self.start_from.get(f"{method}/{task}", self.start_from.get(task))
        return source if source is None or "/" in source else f"{method}/{source}"

    def search_precision_of(self, fixed: Configuration, *, is_searched: bool) -> Precision | UnsetType:
        """The precision of an arm's search trials, where that is not the one that it fixes for all its trials."""
        is_another = is_searched and self.search_precision != fixed.get("precision")
        return self.search_precision if is_another else UNSET
