"""Selects the fastest exit setting that provably loses little accuracy compared with running all layers.

An exit setting loses an example if the prediction at the exit is wrong but the last layer's prediction is correct.
Without labels, the setting loses an example if the two predictions differ. The loss in accuracy is at most the share of
lost examples. With probability `CONFIDENCE`, the selected setting loses at most a share `risk` of new examples
from the same distribution.

Exact binomial tests run from the slowest setting to the fastest, until one fails. In this fixed order, multiple tests
need no correction (Angelopoulos et al., arXiv:2110.01052, fixed sequence testing). RC-EENN (arXiv:2405.20915;
metodj/RC-EENN@3db9a52, rc/risk_control.py:106-205) introduced such guarantees for early exits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from trainables.models.answer_rules import list_rules, read_rule
from trainables.models.exit_rules import ExitRule, LayerOutputs, apply_exit, stored_outputs

CONFIDENCE = 0.95


@dataclass(frozen=True)
class EvaluatedSettings:
    """The predictions under each setting of one exit rule. The setting that runs the most layers comes first.

    This order does not depend on the examples, because a stricter setting never lets an example exit earlier.
    """

    rules: tuple[ExitRule, ...]  # (settings,)
    mean_layers: np.ndarray  # (settings,), falling
    answers: np.ndarray  # (settings, n) predicted classes
    whole: np.ndarray  # (n,) classes predicted by the last layer

    def lost(self, labels: np.ndarray | None) -> np.ndarray:
        """Mark the examples that each setting loses, (settings, n). `labels` may be None."""
        if labels is None:
            return np.asarray(self.answers != self.whole)
        return np.asarray((self.answers != labels) & (self.whole == labels))


def evaluate_settings(rules: Sequence[ExitRule], outputs: LayerOutputs) -> EvaluatedSettings:
    """Apply each setting of a rule to the stored outputs of a classification (NumPy arrays)."""
    results = [apply_exit(rule, outputs) for rule in rules]
    mean_layers = np.array([result.exit_layer.mean() for result in results])
    order = np.argsort(-mean_layers, kind="stable")
    answers = np.stack([result.logits.argmax(axis=1) for result in results])
    whole = outputs.logits[-1].argmax(axis=1)
    return EvaluatedSettings(tuple(rules[place] for place in order), mean_layers[order], answers[order], whole)


def read_evaluated_settings(predictions: Path, name: str) -> tuple[EvaluatedSettings, np.ndarray]:
    """Evaluate each setting of the rule `name` on a predictions file. Also return the examples' labels, (n,).

    If the file has only settings of other rules, the settings come from `list_rules`.

    Raises:
        ValueError: if the file is damaged, or lacks the settings or the layers' outputs.
    """
    try:
        with np.load(predictions, allow_pickle=False) as file:
            arrays = {array: file[array] for array in file.files}
    except (ValueError, OSError, BadZipFile):
        raise ValueError(f"{predictions} is not a predictions file, or is damaged") from None
    if not {"layer_logits", "sweep_rule_fields"} <= arrays.keys():
        raise ValueError(f"{predictions} was written by an older version and lacks the layers' outputs")
    outputs = stored_outputs(arrays)
    stored = arrays["sweep_rule_fields"][arrays["sweep_rule"] == name].tolist()
    rules = [rule for text in stored if (rule := read_rule(name, text)) is not None]
    if not rules and len(arrays["sweep_rule"]):
        layers, _, labels = outputs.logits.shape
        rules = [rule for rule in list_rules(layers, labels) if rule.name == name]
    if not rules:
        raise ValueError(f"{predictions} has no settings of the exit rule {name}")
    return evaluate_settings(rules, outputs), arrays["labels"]


def find_safe_setting(lost: np.ndarray, risk: float) -> int | None:
    """Return the index of the fastest setting that passes its test, or None if none passes.

    Args:
        lost: examples that each setting loses, (settings, n); the slowest setting comes first.
    """
    passes = lost.sum(axis=1) <= max_losses(lost.shape[1], risk)
    passed = len(passes) if passes.all() else int(passes.argmin())
    return passed - 1 if passed else None


def max_losses(n: int, risk: float) -> int:
    """Compute how many of n answers a safe setting may make wrong; -1 if no setting can be safe."""
    from scipy.stats import binom  # takes a second to import

    return int((binom.cdf(np.arange(n + 1), n, risk) <= 1 - CONFIDENCE).sum()) - 1
