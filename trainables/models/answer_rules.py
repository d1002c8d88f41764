"""Exit rules that use only the layers' logits. They apply to any model with a classifier on each layer.

p_j is the softmax of layer j's logits, H is the entropy of p_j in nats, and C is the number of classes. All rules
except `FixedLayer` support only classification. Numbers are rounded to `DECIMALS` decimals before they are compared
with a threshold. Without rounding, PyTorch and NumPy could give different exits, and so could different batch sizes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from math import log
from typing import TYPE_CHECKING, Any

from trainables.configuration import AtLeastOne, NotNegative, Positive
from trainables.models.exit_rules import (
    Array,
    ExitRule,
    LearnedExit,
    Patience,
    State,
    Step,
    Threshold,
    as_type,
    every_patience,
    find_namespace,
    nobody,
    read_setting,
    rule_as_json,
    softmax,
    zeros,
)

if TYPE_CHECKING:
    import torch

    from trainables.models.early_exit import EarlyExitModel

DECIMALS = 9
TINY = 1e-300  # smallest probability, to avoid log(0)

# DeeBERT sweeps 0 to 0.7 nats for two classes (scripts/eval_entropy.sh), PCEE-BERT 0.06 to 1 times ln C. The steps
# here are finer at both ends, because all entropies of a very sure or very unsure model lie there.
SWEPT_ENTROPIES = (0.001, 0.01, *(round(0.05 * step, 2) for step in range(1, 20)), 0.98, 0.99, 0.999)
SWEPT_PROBABILITIES = (*(round(0.05 * step, 2) for step in range(7, 20)), 0.98, 0.99, 0.995, 0.999)
SWEPT_DIVERGENCES = (1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3)  # in nats, up to ln 2
SWEPT_SHARE = 0.8  # each swept threshold of BEEM is this share of the largest possible evidence at a layer


@dataclass(frozen=True)
class FixedLayer(ExitRule):
    """Every example exits after layer `layer`, as if the model ended there.

    In F-PABEE's table 1 (arXiv:2305.11916), an exit after half of the layers (BERT-6L) beats four adaptive rules.
    """

    layer: AtLeastOne
    name = "fixed"
    field = "layer"

    def earliest(self, num_layers: int) -> int:
        """Return the fixed layer, or the last layer if the model has fewer layers."""
        return min(self.layer, num_layers)

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Exit all examples at the fixed layer."""
        return Step(nobody(logits) | (layer == self.layer), logits, state)


@dataclass(frozen=True)
class Entropy(ExitRule):
    """Exit at the first layer with H(p_j) / ln C < `entropy`.

    FastBERT (arXiv:2004.02178; autoliuweijie/FastBERT@859632f, run_fastbert.py:31-34) compares H / ln C with its
    threshold. DeeBERT (arXiv:2004.12993; castorini/DeeBERT@563eac1, modeling_highway_bert.py:71-75, 101-106) compares
    H.
    """

    entropy: NotNegative  # share of ln C
    name = "entropy"
    field = "entropy"

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Exit the examples with H / ln C below the threshold."""
        return Step(_share_of_entropy(softmax(logits)) < self.entropy, logits, state)


@dataclass(frozen=True)
class MaxProbability(ExitRule):
    """Exit at the first layer with max p_j > `probability`: Shallow-Deep Networks (arXiv:1810.07052).

    The released code (yigitcankaya/Shallow-Deep-Networks@a556446, architectures/SDNs/VGG_SDN.py:204-221) uses >=
    instead. If no layer exceeds the threshold, that code takes the prediction of the most confident layer. This rule
    takes the prediction of the last layer.
    """

    probability: NotNegative
    name = "max_probability"
    field = "probability"

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Exit the examples with a class probability above the threshold."""
        return Step(_round(_greatest(softmax(logits))) > self.probability, logits, state)


@dataclass(frozen=True)
class Pcee(ExitRule):
    """PCEE-BERT: exit after `patience` layers in a row with H(p_j) / ln C < `entropy` (Findings of NAACL 2022).

    Source: michael-wzhu/PCEE-BERT@68fe1cf, pabee/modeling_pabee_bert.py:488-517. With `ensemble`, the answer is the
    mean of p over these layers and the layer before them. Otherwise, the exit layer gives the answer.
    The released code has the option --do_ensemble, 1 by default (run_glue_with_pabee.py:768). The released script sets
    patience 2 and --do_ensemble 0.
    """

    entropy: NotNegative  # share of ln C
    patience: AtLeastOne = 2
    ensemble: bool = True
    name = "pcee"
    field = "entropy"

    def earliest(self, num_layers: int) -> int:
        """Return layer `patience`, or the last layer if the model has fewer layers."""
        return min(self.patience, num_layers)

    def start(self, num_layers: int, logits: Array, generator: torch.Generator | None) -> State:
        """Start with a count of 0 low-entropy layers."""
        return {"sure": zeros(logits, "int64"), "sum": 0 * softmax(logits), "layers": zeros(logits, "int64")}

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Exit the examples that have had `patience` low-entropy layers in a row."""
        probabilities = softmax(logits)
        is_sure = _share_of_entropy(probabilities) < self.entropy
        sure = (state["sure"] + 1) * is_sure
        total = state["sum"] * is_sure[:, None] + probabilities
        layers = state["layers"] * is_sure + 1
        answer = _logarithm(_round(total / layers[:, None])) if self.ensemble else logits
        state = {"sure": sure, "sum": total, "layers": layers}
        return Step(sure == self.patience, as_type(answer, logits), state)


@dataclass(frozen=True)
class FPabee(ExitRule):
    """F-PABEE: exit after `patience` layers in a row with JSD(p_{j-1}, p_j) < `divergence`.

    This follows the paper's text (arXiv:2305.11916, equations 4 and 8). The paper fixes no patience. In the released
    code (JerryYin777/F-PABEE@b8d348b, F-PABEE/single_label/paccbee/modeling_albert.py:629-692), each step runs two
    layers but counts one. Both layers use the first layer's classifier. The code compares the entropy of the mean
    answer with the threshold, which tests certainty instead of similarity.
    """

    divergence: NotNegative  # in nats, from 0 to ln 2
    patience: AtLeastOne = 2
    name = "f-pabee"
    field = "divergence"

    def earliest(self, num_layers: int) -> int:
        """Return layer `patience` + 1, or the last layer if the model has fewer layers."""
        return min(self.patience + 1, num_layers)

    def start(self, num_layers: int, logits: Array, generator: torch.Generator | None) -> State:
        """Start with a count of 0 similar layers."""
        return {"previous": softmax(logits), "similar": zeros(logits, "int64")}

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Exit the examples whose answers have stayed similar for `patience` layers in a row."""
        probabilities, previous = softmax(logits), state["previous"]
        parts = (_entropy(previous) + _entropy(probabilities)) / 2
        is_similar = _round(_entropy((previous + probabilities) / 2) - parts) < self.divergence
        similar = (state["similar"] + 1) * (is_similar & (layer > 1))
        return Step(similar == self.patience, logits, {"previous": probabilities, "similar": similar})


@dataclass(frozen=True)
class Beem(ExitRule):
    """BEEM: exit when the evidence S is at least `evidence` (ICLR 2025).

    If layers j - 1 and j predict the same class, layer j adds w_j max p_j to S. Otherwise, layer j sets S to 0. w_j is
    `weight` times (j - 1). Div290/BEEM1@494e900 uses weight 0.4 for ALBERT (e3bert/modeling_albert.py:638, 667-675) and
    0.1 for BERT (e3bert/modeling_bert.py:845). For BERT, the released code decides by the number of layers in a row
    that agree (line 882), like PABEE.
    """

    evidence: NotNegative
    weight: Positive = 0.4
    name = "beem"
    field = "evidence"

    def earliest(self, num_layers: int) -> int:
        """Return the first layer at which the largest possible evidence reaches the threshold."""
        enough = (layer for layer in range(1, num_layers) if self.most(layer) >= self.evidence)
        return next(enough, num_layers)

    def start(self, num_layers: int, logits: Array, generator: torch.Generator | None) -> State:
        """Start with evidence 0."""
        return {"previous": logits, "evidence": zeros(logits, "float64")}

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Exit the examples that have accumulated enough evidence at this layer."""
        agrees = state["previous"].argmax(1) == logits.argmax(1)
        added = self.weight * (layer - 1) * _greatest(softmax(logits))
        evidence = (state["evidence"] + added) * agrees
        return Step(_round(evidence) >= self.evidence, logits, {"previous": logits, "evidence": evidence})

    def most(self, layer: int) -> float:
        """Compute the largest possible evidence at a layer."""
        return round(self.weight * layer * (layer - 1) / 2, DECIMALS)


_RULES = (Threshold, Patience, LearnedExit, FixedLayer, Entropy, MaxProbability, Pcee, FPabee, Beem)
KEPT: dict[str, Any] = {rule.name: rule for rule in _RULES}  # the rules that analysis can read from predictions files


def read_rule(name: str, fields: str) -> ExitRule | None:
    """Rebuild the rule named `name` from `fields` (JSON), or return None if no rule in `KEPT` has this name.

    Raises:
        ValueError: if the rule does not have all of `fields`.
    """
    if name not in KEPT:
        return None
    try:
        rule: ExitRule = KEPT[name](**json.loads(fields))
    except (TypeError, ValueError):
        raise ValueError(f"the exit rule {name} does not have the fields {fields}") from None
    return rule


def check_rules(model: EarlyExitModel) -> None:
    """Check that results under the exit rules of a model can be stored, and told apart by name and setting.

    Raises:
        ValueError: if a rule has the name of another, or a swept rule cannot be stored or has the setting of another.
    """
    classes: dict[str, type] = {**KEPT}
    for rule in (model.exit_rule, *model.sweep_rules()):
        if (namesake := classes.setdefault(rule.name, type(rule))) is not type(rule):
            other = "a built-in rule" if rule.name in KEPT else f"exit rule {namesake.__name__}"
            raise ValueError(
                f"exit rule {type(rule).__name__} has the name of {other}, {rule.name}; allowed: another name"
            )
    rules: dict[tuple[str, float | None], ExitRule] = {}
    for rule in model.sweep_rules():
        _check_storable(rule)
        setting = read_setting(rule)
        if setting is not None and rules.setdefault((rule.name, setting), rule) != rule:
            raise ValueError(
                f"two different swept rules {rule.name} have {rule.field} {setting:g}; allowed: one rule per value of "
                f"{rule.field}, or classes with different names"
            )


def _check_storable(rule: ExitRule) -> None:
    """Raise ValueError if a predictions file cannot have the fields of a swept rule, or cannot have its setting."""
    kind = type(rule).__name__
    values: dict[str, object] = (
        {field.name: getattr(rule, field.name) for field in fields(rule)} if is_dataclass(rule) else {}
    )
    try:
        rule_as_json(rule)
        hash(rule)
    except TypeError:
        odd = (name for name, value in values.items() if not isinstance(value, int | float | str | None))
        fault = next((f"has {name} of type {type(values[name]).__name__}" for name in odd), "is not a frozen dataclass")
        allowed = "a frozen dataclass of numbers, texts, true, false and None"
        raise ValueError(f"exit rule {kind} {fault}; allowed: {allowed}") from None
    if rule.field is not None and not isinstance(value := getattr(rule, rule.field, None), int | float):
        raise ValueError(f"exit rule {kind} has {rule.field} {value!r}, which is swept; allowed: a number")


def list_rules(num_layers: int, num_labels: int) -> list[ExitRule]:
    """List the exit rules to evaluate, one for each setting. For regression (one label), all are `FixedLayer`."""
    rules: list[ExitRule] = [FixedLayer(layer) for layer in range(1, num_layers + 1)]
    if num_labels == 1:
        return rules
    evidences = [round(SWEPT_SHARE * Beem(0).most(layer), 3) for layer in range(2, num_layers + 1)]
    return [
        *rules,
        *every_patience(num_layers, None),
        *(Entropy(entropy) for entropy in SWEPT_ENTROPIES),
        *(MaxProbability(probability) for probability in SWEPT_PROBABILITIES),
        *(Pcee(entropy) for entropy in SWEPT_ENTROPIES),
        *(FPabee(divergence) for divergence in SWEPT_DIVERGENCES),
        *(Beem(evidence) for evidence in evidences),
    ]


def _greatest(probabilities: Array) -> Array:
    return find_namespace(probabilities).amax(probabilities, 1)


def _entropy(probabilities: Array) -> Array:
    """Compute the entropy H in nats, (batch,)."""
    return -(probabilities * _logarithm(probabilities)).sum(1)


def _share_of_entropy(probabilities: Array) -> Array:
    """Compute H / ln C, rounded; the result has shape (batch,)."""
    return _round(_entropy(probabilities) / log(probabilities.shape[1]))


def _logarithm(probabilities: Array) -> Array:
    module = find_namespace(probabilities)
    return module.log(module.clip(probabilities, TINY, None))


def _round(numbers: Array) -> Array:
    return find_namespace(numbers).round(numbers, decimals=DECIMALS)
