"""A plan with its arms and its protocol, as `plan.json` holds it: all that decisions need. No Optuna here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from msgspec import UNSET, UnsetType

import trainables
from study.plans.identity import arm_name, digest, is_pretraining, trial_key
from study.plans.plan import EarlyStopping, Plan, Sampler
from trainables.configuration import Precision
from trainables.corpora import corpus
from trainables.encoders import backbones
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
    """One (method, task) pair, with all that its trials have in common; each repeat of its search is another arm.

    Of a pretraining the method is the objective, the fields are its configuration's, and there is one trial.
    """

    method: str
    task: str
    space: Mapping[str, Range]  # tuned; empty: nothing is searched
    fixed: Configuration  # the other fields of the method's configuration
    first: tuple[Configuration, ...]  # configurations tried first: published ones, or the grid
    samples: int  # search trials wanted
    seeds: tuple[int, ...]  # of the confirm trials
    backbone: str
    backbone_fingerprint: str
    tokenizer: str | None  # None: the backbone's own
    tokenizer_fingerprint: str | None
    data_fingerprint: str
    repeat: int = 0  # of the search; tables show the first
    start_from: str | None  # name of the arm whose best confirm model is the start
    corpus: str | UnsetType = UNSET  # of a pretraining: what it trains on, `data_fingerprint` its content
    pretrained_by: str | UnsetType = UNSET  # name of the arm whose model is what trials load as their backbone; then
    # `backbone` is what that began with, and `backbone_fingerprint` the key of its trial
    search_precision: Precision | UnsetType = UNSET  # of search trials, where that is not the fixed one

    @property
    def name(self) -> str:
        return arm_name(self.method, self.task, self.repeat)

    @property
    def base_method(self) -> str:
        """The method without its variant: `palbert` of `palbert:a`."""
        return trainables.base_method(self.method)

    @property
    def epochs(self) -> int:
        """Of a trial, at most."""
        if is_pretraining(self.task):
            return -(-self._number("steps") // self._number("steps_per_epoch"))
        return self._number("epochs")

    def _number(self, field: str) -> int:
        value = self.fixed[field]
        assert isinstance(value, int)
        return value

    @property
    def pinned_backbone(self) -> str:
        """A hub name at the commit that the plan has found."""
        return backbones.pinned(self.backbone, self.backbone_fingerprint)

    @property
    def pinned_tokenizer(self) -> str | None:
        return self.tokenizer and backbones.pinned(self.tokenizer, self.tokenizer_fingerprint or "")

    @property
    def pinned_corpus(self) -> str:
        """Of a pretraining: a data set of the hub at the commit that the plan has found."""
        assert self.corpus is not UNSET
        return corpus.pinned(self.corpus, self.data_fingerprint)

    def searched(self, point: Configuration) -> Configuration:
        """The configuration of a search trial with these values of the tuned fields."""
        own = {} if self.search_precision is UNSET else {"precision": self.search_precision}
        return {**self.fixed, **own, **point}

    def repeated(self, searched: Configuration) -> Configuration:
        """The configuration of the trials that repeat such a search trial: all of it but the precision."""
        return searched if self.search_precision is UNSET else {**searched, "precision": self.fixed["precision"]}

    @property
    def any_configuration(self) -> Configuration:
        return {**self.fixed, **{name: allowed.any_value for name, allowed in self.space.items()}}


class Protocol(Typed, frozen=True, kw_only=True):
    """The rules by which numbers are made. Those made by other rules never share a table.

    What a number is made of is a fact of its arm: configurations, backbone, data, start, seeds and samples.
    """

    selection: Selection
    metric: str
    aggregate: str
    sampler: Sampler
    early_stopping: EarlyStopping | None
    search_precision: Precision | UnsetType = UNSET  # of search trials alone; left out of files where it is none


class ResolvedPlan(Typed, frozen=True, kw_only=True, dict=True):
    """What was asked for, and what follows from it."""

    asked: Plan
    arms: tuple[Arm, ...]
    protocol: Protocol
    departures: Mapping[str, tuple[str, ...]]  # from the papers: of the protocol, and of each method
    pretraining: Arm | UnsetType = UNSET  # makes the backbone of all arms; it is in no table

    @cached_property
    def protocol_hash(self) -> str:
        return digest(to_plain(self.protocol))

    def trial_key(self, arm: Arm, *, phase: str, config: Configuration, seed: int, start: str | None) -> str:
        """The identity of a trial of the arm."""
        return trial_key(
            self.protocol_hash,
            method=arm.method,
            task=arm.task,
            backbone=arm.backbone_fingerprint,
            tokenizer=arm.tokenizer_fingerprint,
            data=arm.data_fingerprint,
            phase=phase,
            config=config,
            seed=seed,
            start=start,
        )

    @property
    def pins(self) -> dict[str, str]:
        """The hub names that it has resolved, and their fingerprints."""
        arms = [arm for arm in self.all_arms if arm.pretrained_by is UNSET]
        pairs = [(arm.backbone, arm.backbone_fingerprint) for arm in arms]
        pairs += [(arm.tokenizer, arm.tokenizer_fingerprint or "") for arm in arms if arm.tokenizer]
        texts = [(arm.corpus, arm.data_fingerprint) for arm in arms if arm.corpus is not UNSET]
        pins = {name: fingerprint for name, fingerprint in pairs if backbones.is_hub_name(name)}
        return pins | {name: fingerprint for name, fingerprint in texts if corpus.kind_of(name) == "hub"}

    @property
    def all_arms(self) -> tuple[Arm, ...]:
        """The pretraining, where there is one, and the arms."""
        return self.arms if self.pretraining is UNSET else (self.pretraining, *self.arms)

    @cached_property
    def pretraining_key(self) -> str:
        """The identity of the one trial of the pretraining: all that decides it is known beforehand."""
        arm = self.pretraining
        assert arm is not UNSET
        return self.trial_key(arm, phase="pretrain", config=arm.fixed, seed=arm.seeds[0], start=None)

    def arm(self, name: str) -> Arm:
        """The arm of this name, be it the pretraining; KeyError where the plan has none."""
        return self._arms[name]

    @property
    def first_arms(self) -> list[Arm]:
        """Those of the first search of each method on each task: their numbers stand in the tables."""
        return [arm for arm in self.arms if not arm.repeat]

    @cached_property
    def _arms(self) -> dict[str, Arm]:
        return {arm.name: arm for arm in self.all_arms}
