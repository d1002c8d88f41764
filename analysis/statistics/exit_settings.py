"""Exit settings of the models of a table cell: what the models answer, and where examples exit, under one setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.studies.stored_predictions import Predictions
from trainables.data.metrics import predictions_from_logits
from trainables.models.answer_rules import list_rules
from trainables.models.exit_rules import ExitRule, LayerOutputs, apply_exit, describe_rule

DIGITS = 12  # of means that choose on a half of dev; processors round further digits in different ways
FIRST_SEED = 0  # of the random splits of dev into halves
HALVINGS = 100  # random splits of dev into halves; a mean over so many hardly depends on any of them


@dataclass(frozen=True)
class ExitSetting:
    """Answers and exit layers of every seed's model under one exit setting.

    If the exit is random, there are several draws.
    """

    name: str  # "patience 3"; "own" for the setting with which the trials ran
    answers: tuple[np.ndarray, ...]  # for each seed, (draws, n) classes or scores
    exit_layers: tuple[np.ndarray, ...]  # for each seed, (draws, n), from 1

    @property
    def mean_layers(self) -> list[float]:
        """Mean layers per example of each seed's model."""
        return [float(layers.mean()) for layers in self.exit_layers]


def apply_setting(rule: ExitRule | None, stored: Sequence[Predictions]) -> ExitSetting:
    """Apply an exit rule to the stored layer outputs of every seed; None means the setting of the trials."""
    (setting,) = apply_settings([rule], stored)
    return setting


def apply_settings(rules: Iterable[ExitRule | None], stored: Sequence[Predictions]) -> Iterator[ExitSetting]:
    """Apply each exit rule to the stored layer outputs of every seed; None means the setting of the trials.

    A rule is applied to the examples of all seeds at once, which is faster.
    """
    own = ExitSetting("own", tuple(one.answers for one in stored), tuple(one.exit_layers for one in stored))
    joined, starts = _join_outputs(stored), np.cumsum([len(one.ids) for one in stored])[:-1]
    for rule in rules:
        if rule is None:
            yield own
            continue
        result = apply_exit(rule, joined)
        answers = predictions_from_logits(stored[0].task, result.logits)
        by_seed = ([part[None] for part in np.split(array, starts)] for array in (answers, result.exit_layer))
        yield ExitSetting(describe_rule(rule), *map(tuple, by_seed))


def _join_outputs(stored: Sequence[Predictions]) -> LayerOutputs:
    """Join the outputs of the models of all seeds, as if their examples were those of one model."""
    outputs = [one.outputs.present for one in stored]
    names = [name for name in outputs[0] if all(name in own for own in outputs)]
    return LayerOutputs(**{name: np.concatenate([own[name] for own in outputs], axis=1) for name in names})


def find_only_layer(setting: ExitSetting) -> int | None:
    """Find the layer after which all examples of all models exit; None if they exit after several layers."""
    layers = np.unique(np.concatenate([own.ravel() for own in setting.exit_layers]))
    return int(layers[0]) if len(layers) == 1 else None


def list_own_settings(stored: Sequence[Predictions]) -> list[ExitRule | None]:
    """List the setting of the trials (None) and all swept settings whose exit rule this package defines."""
    return [None, *(rule for rule in stored[0].sweep_rules if rule is not None)]


def list_all_settings(stored: Sequence[Predictions]) -> list[ExitRule | None]:
    """List the settings of `list_own_settings`, and every setting of the exit rules that need only layer answers."""
    layers, _, labels = stored[0].outputs.logits.shape
    return list(dict.fromkeys([*list_own_settings(stored), *list_rules(layers, labels)]))


def halves(split: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split each dev split into random halves, with a fixed seed; return the indices of both halves."""
    in_first = _draw_half(_group(split), seed=FIRST_SEED)
    return np.flatnonzero(in_first), np.flatnonzero(~in_first)


def halvings(split: np.ndarray) -> np.ndarray:
    """Split each dev split into random halves, `HALVINGS` times, with fixed seeds.

    Returns:
        for the first and the second half of each, whether they contain each example, (halvings, 2, n).
    """
    groups = _group(split)
    in_first = np.array([_draw_half(groups, seed=FIRST_SEED + number) for number in range(HALVINGS)])
    return np.stack([in_first, ~in_first], axis=1)


def _group(split: np.ndarray) -> list[np.ndarray]:
    """Return the indices of the examples of each dev split, in the order of the names."""
    return [np.flatnonzero(split == name) for name in np.unique(split)]


def _draw_half(groups: Sequence[np.ndarray], *, seed: int) -> np.ndarray:
    """Draw half of the examples of each dev split, without replacement; return a mask (n,)."""
    rng = np.random.default_rng(seed)
    in_first = np.zeros(sum(map(len, groups)), dtype=bool)
    for group in groups:
        in_first[rng.permutation(group)[: (len(group) + 1) // 2]] = True
    return in_first
