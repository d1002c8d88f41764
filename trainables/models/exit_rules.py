"""Exit rules, which decide after which layer an example exits and with which prediction.

Each rule is defined once, as a step at one layer. `apply_exit` applies it to the stored outputs of all layers, and
`EarlyExitModel.infer` applies it while the model runs. A step works on PyTorch tensors on any device, and on NumPy
arrays, so that analysis needs no PyTorch. The rule's state is a dictionary of arrays with one row per example, so
that rows of finished examples can be dropped. Probabilities are multiplied and summed in float64, layer by layer, as
in the released PALBERT code.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from trainables.configuration import AtLeastOne, WholeShare
from trainables.configuration.schema import Configuration

if TYPE_CHECKING:
    import torch

Array: TypeAlias = Any  # a PyTorch tensor or a NumPy array
State = dict[str, Array]

HALVED_FROM = 256  # tokens in a batch; below this, computing the first token separately costs as much as an exit saves
SWEPT_QUANTILES = (*(round(0.05 * step, 2) for step in range(1, 20)), 1.0)
SWEPT_UNCERTAINTIES = (0.0, 0.005, 0.01, 0.02, *SWEPT_QUANTILES)


@dataclass(frozen=True)
class LayerOutputs:
    """The outputs of every layer for every example of a batch."""

    logits: Array  # (layers, batch, labels)
    lambdas: Array | None = None  # (layers, batch): Λ's probability of exiting at a layer, if the layer is reached
    uncertainties: Array | None = None  # (layers, batch): BERxiT's probability that the layer's answer is wrong

    @property
    def present(self) -> dict[str, Array]:
        """The fields that are not None, by name."""
        return {name: values for name, values in vars(self).items() if values is not None}

    @property
    def exit_head(self) -> Array | None:
        """The output of the exit head, λ or u, (layers, batch); None if the model has no exit head."""
        return self.lambdas if self.uncertainties is None else self.uncertainties


def stored_outputs(arrays: Mapping[str, Array]) -> LayerOutputs:
    """Convert the arrays of a predictions file to the outputs of all layers, in float32."""
    names = {"logits": "layer_logits", "lambdas": "lambdas", "uncertainties": "uncertainties"}
    return LayerOutputs(**{ours: arrays[name].astype("float32") for ours, name in names.items() if name in arrays})


@dataclass(frozen=True)
class ExitResult:
    """Predictions and exit layers of a batch under an exit rule."""

    logits: Array  # (batch, labels)
    exit_layer: Array  # (batch,), int64: number of layers that the example ran


@dataclass(frozen=True)
class Step:
    """A rule's decision at one layer."""

    leaves: Array  # (batch,), bool
    logits: Array  # (batch, labels): answers of the examples that leave here
    state: State


class ExitRule(ABC):
    """A rule for early exits. By default, it has no state and allows exits from layer 1 on.

    Every example exits at the last layer, even if `step` decides otherwise.
    """

    name: str  # name in tables and predictions files
    field: str | None = None  # the configuration field that a sweep varies (`q`, `patience`)
    draws: int = 1  # number of times that an evaluation draws the exits at random; 1 for a deterministic rule

    def earliest(self, num_layers: int) -> int:
        """Return the first layer (counted from 1) after which an example may exit."""
        return 1

    def start(self, num_layers: int, logits: Array, generator: torch.Generator | None) -> State:
        """Make the initial state. Its shape and device are those of `logits`, (batch, labels)."""
        return {}

    @abstractmethod
    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Decide which examples exit at a layer (counted from 1).

        Args:
            logits: logits of the layer, (batch, labels).
            lambdas: λ or u of the layer, (batch,); None if the model has no exit head.
        """


@dataclass(frozen=True)
class LastLayer(ExitRule):
    """No early exit: every example runs all layers."""

    name = "last"

    def earliest(self, num_layers: int) -> int:
        """Return the last layer."""
        return num_layers

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Exit no examples early."""
        return Step(nobody(logits), logits, state)


class ExitHeadRule(ExitRule):
    """A rule that decides by the exit head alone. The answer is the exit layer's logits, which need not be known."""

    @abstractmethod
    def decide(self, state: State, layer: int, lambdas: Array) -> tuple[Array, State]:
        """Decide which examples exit at a layer (counted from 1), (batch,) bool, and return the next state.

        Args:
            lambdas: λ or u of the layer, (batch,).
        """

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Exit the examples that `decide` names."""
        assert lambdas is not None, "this rule needs a model with an exit head"
        leaves, state = self.decide(state, layer, lambdas)
        return Step(leaves, logits, state)


def needs_no_logits(rule: ExitRule) -> bool:
    """Check whether a rule decides without logits, and answers with those of the exit layer."""
    return type(rule).step in (ExitHeadRule.step, LastLayer.step)


@dataclass(frozen=True)
class Threshold(ExitHeadRule):
    """Q-exit: exit at the first layer at which the sum of exit probabilities (CDF) exceeds q. PALBERT, section 3.

    With q = 0, all examples exit at layer 1; with q = 1, at the last layer. PALBERT's released code (arXiv:2204.03276)
    fails with q = 0, and depends on rounding with q = 1.
    """

    q: WholeShare
    name = "threshold"
    field = "q"

    def earliest(self, num_layers: int) -> int:
        """Return layer 1, or the last layer if q is 1."""
        return 1 if self.q < 1 else num_layers

    @property
    def exceeded(self) -> float:
        """The CDF that an example must exceed: q, but everyone exceeds a q of 0, and no one a q of 1."""
        return {0.0: -inf, 1.0: inf}.get(self.q, self.q)

    def start(self, num_layers: int, logits: Array, generator: torch.Generator | None) -> State:
        """Start with a remaining probability of 1 and a CDF of 0."""
        return {"remaining": ones(logits), "cdf": zeros(logits, "float64")}

    def decide(self, state: State, layer: int, lambdas: Array) -> tuple[Array, State]:
        """At this layer, exit the examples with a CDF above q."""
        probability, remaining = _posterior_step(state["remaining"], lambdas)
        cdf = state["cdf"] + probability
        return cdf > self.exceeded, {"remaining": remaining, "cdf": cdf}


@dataclass(frozen=True)
class Patience(ExitRule):
    """PABEE: exit after `patience` layers in a row that agree with the layer before (arXiv:2006.04152, algorithm 1).

    Two layers agree if they predict the same class. In a regression, they agree if their scores differ by less than
    `regression_threshold`. With patience t, an example exits at layer t + 1 at the earliest.
    """

    patience: AtLeastOne
    regression_threshold: float | None  # None for classes
    name = "patience"
    field = "patience"

    def earliest(self, num_layers: int) -> int:
        """Return layer `patience` + 1, or the last layer if the model has fewer layers."""
        return min(self.patience + 1, num_layers)

    def start(self, num_layers: int, logits: Array, generator: torch.Generator | None) -> State:
        """Start with a count of 0 agreements."""
        return {"previous": logits, "agreements": zeros(logits, "int64")}

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Exit the examples that have had `patience` agreements in a row."""
        if logits.shape[1] == 1:
            assert self.regression_threshold is not None
            agree = abs((state["previous"] - logits)[:, 0]) < self.regression_threshold
        else:
            agree = state["previous"].argmax(1) == logits.argmax(1)
        agreements = (state["agreements"] + 1) * agree if layer > 1 else state["agreements"]
        return Step(agreements == self.patience, logits, {"previous": logits, "agreements": agreements})


@dataclass(frozen=True)
class Sampled(ExitHeadRule):
    """PonderNet: exit at each layer with probability λ (arXiv:2107.05407, section 2).

    All uniform numbers of an example are drawn at the start, so they do not depend on when other examples exit.
    """

    draws: int = 1
    name = "sample"

    def start(self, num_layers: int, logits: Array, generator: torch.Generator | None) -> State:
        """Draw a uniform number for each example and layer, on the CPU."""
        import torch

        assert generator is not None, "a sampled exit needs a generator"
        return {"uniform": torch.rand(len(logits), num_layers, generator=generator).to(logits.device)}

    def decide(self, state: State, layer: int, lambdas: Array) -> tuple[Array, State]:
        """Exit the examples with a random number below λ."""
        return state["uniform"][:, layer - 1] < lambdas, state


@dataclass(frozen=True)
class Expectation(ExitRule):
    """No early exit. The answer is the expectation over all layers: log Σ p_i softmax(logits_i).

    For regression, the answer is Σ p_i y_i, where y_i is the output of layer i. p_i is the probability of exiting at
    layer i. The last layer, N, gets the remaining probability. With `legacy`, it gets 1 - p_N, as in the released
    PALBERT code and row 3 of the paper's table 1. The weights then do not sum to 1.
    """

    legacy: bool

    @property
    def name(self) -> str:  # type: ignore[override]
        """The rule's name, which depends on `legacy`."""
        return "expectation_legacy" if self.legacy else "expectation"

    def earliest(self, num_layers: int) -> int:
        """Return the last layer."""
        return num_layers

    def start(self, num_layers: int, logits: Array, generator: torch.Generator | None) -> State:
        """Start with a remaining probability of 1 and a sum of 0."""
        return {"remaining": ones(logits), "sum": 0 * float64(logits)}

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Add the layer's answer, weighted by its exit probability. No example exits early."""
        probability, remaining = _posterior_step(state["remaining"], lambdas)
        if layer == num_layers:
            probability = 1 - probability if self.legacy else state["remaining"]
        is_score = logits.shape[1] == 1
        total = state["sum"] + probability[:, None] * (float64(logits) if is_score else softmax(logits))
        answer = total if is_score else find_namespace(total).log(total)
        return Step(nobody(logits), as_type(answer, logits), {"remaining": remaining, "sum": total})


@dataclass(frozen=True)
class LearnedExit(ExitHeadRule):
    """BERxiT: exit when u, the predicted probability of a wrong answer, is below `threshold`.

    Source: castorini/berxit at 1fb2162, modeling_highway_bert.py:109-117. With threshold 0, no example exits early.
    """

    threshold: WholeShare
    name = "learned"
    field = "threshold"

    def earliest(self, num_layers: int) -> int:
        """Return layer 1, or the last layer if the threshold is 0."""
        return 1 if self.threshold > 0 else num_layers

    def decide(self, state: State, layer: int, lambdas: Array) -> tuple[Array, State]:
        """Exit the examples with u below the threshold; `lambdas` holds u."""
        return lambdas < self.threshold, state


def with_setting(rule: ExitRule, setting: Configuration) -> ExitRule:
    """Copy the rule, and set the fields in `setting`.

    Raises:
        ValueError: if the rule lacks one of the fields in `setting`.
    """
    as_dataclass: Any = rule
    for name in setting:
        if name not in as_dataclass.__dataclass_fields__:
            menu = ", ".join(as_dataclass.__dataclass_fields__) or "no field"
            raise ValueError(f"the exit rule {rule.name} has no {name}; it has {menu}")
    changed: ExitRule = replace(as_dataclass, **setting)
    return changed


def leave_at(rule: ExitRule, layer: int) -> ExitRule:
    """Copy the rule so that it decides at every layer as before, but lets all examples leave after `layer`.

    Inference then costs as much as for an example that leaves there under `rule`.
    """
    own: Any = rule
    forced: Any = copy(rule)

    def decide(state: State, at: int, lambdas: Array) -> tuple[Array, State]:
        leaves, state = own.decide(state, at, lambdas)
        return find_namespace(leaves).full_like(leaves, at >= layer), state

    def step(state: State, at: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        decided = own.step(state, at, num_layers, logits, lambdas)
        return replace(decided, leaves=find_namespace(decided.leaves).full_like(decided.leaves, at >= layer))

    # Of the copy alone: by the `step` of the rule's type, `needs_no_logits` chooses the heads that inference runs.
    vars(forced).update({"decide": decide} if type(rule).step is ExitHeadRule.step else {"step": step})
    return forced


def read_setting(rule: ExitRule) -> float | None:
    """Return the value of the field `rule.field`, or None if the rule names no field."""
    return None if rule.field is None else float(getattr(rule, rule.field))


def describe_rule(rule: ExitRule) -> str:
    """Format the rule's name and its setting, if it has one: `patience 3`."""
    setting = read_setting(rule)
    return rule.name if setting is None else f"{rule.name} {setting:.3g}"


def rule_as_json(rule: ExitRule) -> str:
    """Format the rule's fields as JSON; `read_rule` in answer_rules.py reads them."""
    as_dataclass: Any = rule
    return json.dumps(asdict(as_dataclass))


def apply_exit(rule: ExitRule, outputs: LayerOutputs, generator: torch.Generator | None = None) -> ExitResult:
    """Apply a rule to the stored outputs of all layers. `EarlyExitModel.infer` gives the same result."""
    num_layers, where = len(outputs.logits), find_namespace(outputs.logits).where
    state = rule.start(num_layers, outputs.logits[0], generator)
    answers, exit_layer = 0 * outputs.logits[0], zeros(outputs.logits[0], "int64")
    for index, logits in enumerate(outputs.logits):
        lambdas = None if outputs.exit_head is None else outputs.exit_head[index]
        step = rule.step(state, index + 1, num_layers, logits, lambdas)
        leaves = (exit_layer == 0) & (step.leaves if index + 1 < num_layers else True)
        answers = where(leaves[:, None], step.logits, answers)
        exit_layer = where(leaves, index + 1, exit_layer)
        state = step.state
    return ExitResult(answers, exit_layer)


def every_threshold() -> list[ExitRule]:
    """List Q-exit with q = 0.05, 0.10, ... 0.95 and 1."""
    return [Threshold(q) for q in SWEPT_QUANTILES]


def every_uncertainty() -> list[ExitRule]:
    """List BERxiT's exit with thresholds 0 (all layers), 0.005, 0.01, 0.02, and 0.05, 0.10, ... 0.95 and 1."""
    return [LearnedExit(threshold) for threshold in SWEPT_UNCERTAINTIES]


def every_patience(num_layers: int, regression_threshold: float | None) -> list[ExitRule]:
    """List PABEE with patience 1 to num_layers; with patience num_layers, no example exits early."""
    return [Patience(patience, regression_threshold) for patience in range(1, num_layers + 1)]


def exit_probabilities(outputs: LayerOutputs) -> Array:
    """Compute each layer's exit probability, (layers, n), float64; the last layer takes all remaining probability."""
    assert outputs.lambdas is not None
    module, leave = find_namespace(outputs.lambdas), float64(outputs.lambdas)
    first = 1 + 0 * leave[:1]
    leave = module.concatenate([leave[:-1], first])
    stay = module.concatenate([first, module.cumprod(1 - leave, 0)[:-1]])
    return leave * stay


def _posterior_step(remaining: Array, lambdas: Array | None) -> tuple[Array, Array]:
    """Compute the probability of exiting at this layer and the probability of exiting later, (batch,) each."""
    assert lambdas is not None, "this rule needs a model with a Λ head"
    leaves = float64(lambdas)
    return leaves * remaining, remaining * (1 - leaves)


# ---- functions with one name for PyTorch and NumPy


def softmax(logits: Array) -> Array:
    """Compute the class probabilities in float64, (batch, labels)."""
    module, exact = find_namespace(logits), float64(logits)
    powers = module.exp(exact - module.amax(exact, 1)[:, None])
    return powers / powers.sum(1)[:, None]


def find_namespace(array: Array) -> Any:
    """Return the module that the array belongs to: `torch` or `numpy`."""
    return sys.modules[type(array).__module__.partition(".")[0]]


def as_type(array: Array, other: Array) -> Array:
    """Convert `array` to the dtype of `other`."""
    return find_namespace(array).asarray(array, dtype=other.dtype)


def float64(array: Array) -> Array:
    """Convert the array to double precision."""
    module = find_namespace(array)
    return module.asarray(array, dtype=module.float64)


def zeros(logits: Array, kind: str) -> Array:
    """Make an array of zeros, (batch,), of the dtype named `kind`."""
    module = find_namespace(logits)
    return module.zeros_like(logits[:, 0], dtype=getattr(module, kind))


def ones(logits: Array) -> Array:
    """Make a float64 array of ones, (batch,)."""
    return zeros(logits, "float64") + 1


def nobody(logits: Array) -> Array:
    """Make an array of False, (batch,)."""
    return zeros(logits, "bool")
