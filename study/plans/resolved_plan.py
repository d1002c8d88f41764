"""A plan with its arms and its protocol, as `plan.json` holds it: all that decisions need. No Optuna here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from study.plans.identity import digest
from study.plans.plan import Plan, Sampler
from trainables.runs.trial import Selection
from trainables.schema import Configuration, Typed, Value, to_plain


class Range(Typed, frozen=True, kw_only=True):
    """Where a tuned field may lie: an Optuna distribution as its JSON says it."""

    name: str
    attributes: Mapping[str, Value | list[Value]]

    @property
    def any_value(self) -> Value:
        """The first choice, or the lower end."""
        choices = self.attributes.get("choices")
        value = choices[0] if isinstance(choices, list) else self.attributes["low"]
        assert not isinstance(value, list)
        return value


class Arm(Typed, frozen=True, kw_only=True):
    """One (method, task) pair, with all that its trials have in common."""

    method: str
    task: str
    space: Mapping[str, Range]  # tuned; empty: nothing is searched
    fixed: Configuration  # the other fields of the method's configuration
    first: tuple[Configuration, ...]  # configurations tried first: published ones, or the grid
    samples: int  # search trials wanted
    seeds: tuple[int, ...]  # of the confirm trials
    backbone: str
    data_fingerprint: str
    start_from: str | None  # name of the arm whose best confirm model is the start

    @property
    def name(self) -> str:
        return f"{self.method}/{self.task}"

    @property
    def epochs(self) -> int:
        """Of a trial, at most."""
        epochs = self.fixed["epochs"]
        assert isinstance(epochs, int)
        return epochs

    @property
    def any_configuration(self) -> Configuration:
        return {**self.fixed, **{name: allowed.any_value for name, allowed in self.space.items()}}


class EarlyStopping(Typed, frozen=True, kw_only=True):
    """Of search trials, by ASHA."""

    asha_grace: int
    asha_factor: int


class Protocol(Typed, frozen=True, kw_only=True):
    """The rules that numbers must share to be compared."""

    profile: str
    data: Literal["mini", "hub", "folder"]
    backbone: str | None  # fingerprint, where one backbone was given for all methods
    selection: Selection
    metric: str
    aggregate: str
    sampler: Sampler
    epochs: int | None
    settings: Mapping[str, Value]
    start_from: Mapping[str, str]
    early_stopping: EarlyStopping


class ResolvedPlan(Typed, frozen=True, kw_only=True, dict=True):
    """What was asked for, and what follows from it."""

    asked: Plan
    arms: tuple[Arm, ...]
    protocol: Protocol

    @cached_property
    def protocol_hash(self) -> str:
        return digest(to_plain(self.protocol))

    def arm(self, name: str) -> Arm:
        """The arm of this name; KeyError where the plan has none."""
        return self._arms[name]

    @cached_property
    def _arms(self) -> dict[str, Arm]:
        return {arm.name: arm for arm in self.arms}
