"""Exit settings of the models of a table cell: what the models answer, and where examples exit, under one setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.studies.stored_predictions import Predictions
from trainables.data.metrics import predictions_from_logits
from trainables.models.answer_rules import list_rules
from trainables.models.exit_rules import ExitRule, apply_exit, describe_rule

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
    if rule is None:
        return ExitSetting("own", tuple(one.answers for one in stored), tuple(one.exit_layers for one in stored))
    results = [apply_exit(rule, one.outputs) for one in stored]
    answers = (
        predictions_from_logits(one.task, result.logits)[None] for one, result in zip(stored, results, strict=True)
    )
    return ExitSetting(describe_rule(rule), tuple(answers), tuple(result.exit_layer[None] for result in results))


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
    in_first = _draw_half(split, seed=FIRST_SEED)
    return np.flatnonzero(in_first), np.flatnonzero(~in_first)


def halvings(split: np.ndarray) -> np.ndarray:
    """Split each dev split into random halves, `HALVINGS` times, with fixed seeds.

    Returns:
        for the first and the second half of each, whether they contain each example, (halvings, 2, n).
    """
    in_first = np.array([_draw_half(split, seed=FIRST_SEED + number) for number in range(HALVINGS)])
    return np.stack([in_first, ~in_first], axis=1)


def _draw_half(split: np.ndarray, *, seed: int) -> np.ndarray:
    """Draw half of the examples of each dev split, without replacement; return a mask (n,)."""
    rng = np.random.default_rng(seed)
    in_first = np.zeros(len(split), dtype=bool)
    for name in np.unique(split):
        rows = rng.permutation(np.flatnonzero(split == name))
        in_first[rows[: (len(rows) + 1) // 2]] = True
    return in_first
