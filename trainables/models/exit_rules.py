"""Exit rules: after which layer an example leaves, and with which answer. Each is defined once, one layer at a time.

The same `step` serves both ways of evaluating: `apply_exit` walks over stored outputs of all layers, and
`EarlyExitModel.infer` takes finished examples out of the batch. It computes with tensors of PyTorch, on any device, and
with arrays of NumPy: analysis applies the same rules to predictions files, without PyTorch. A rule's state is a
dictionary of arrays whose first dimension is the example, so that rows can be dropped. Probabilities are multiplied and
summed in float64, in the order of the layers, as the released PALBERT code does with Python numbers.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from trainables.schema import Configuration, Value

if TYPE_CHECKING:
    import torch

Array: TypeAlias = Any  # a tensor of PyTorch or an array of NumPy
State = dict[str, Array]

SWEPT_QUANTILES = (*(round(0.05 * step, 2) for step in range(1, 20)), 1.0)
SWEPT_UNCERTAINTIES = (0.0, 0.005, 0.01, 0.02, *SWEPT_QUANTILES)


@dataclass(frozen=True)
class LayerOutputs:
    """The answers of every layer for every example."""

    logits: Array  # (layers, batch, labels)
    lambdas: Array | None = None  # (layers, batch), probability of leaving at a layer that was reached; of a Λ head
    uncertainties: Array | None = None  # (layers, batch), that the layer's answer is wrong; of BERxiT's head

    @property
    def exit_head(self) -> Array | None:
        """The output of the exit head, (layers, batch), whichever of the two it is; None without one."""
        return self.lambdas if self.uncertainties is None else self.uncertainties


def stored_outputs(arrays: Mapping[str, Array]) -> LayerOutputs:
    """Read the outputs in the arrays of a predictions file, float32: `layer_logits`, and those of its exit head."""
    names = {"logits": "layer_logits", "lambdas": "lambdas", "uncertainties": "uncertainties"}
    return LayerOutputs(**{ours: arrays[name].astype("float32") for ours, name in names.items() if name in arrays})


@dataclass(frozen=True)
class ExitResult:
    """The answers and exit layers under a rule."""

    logits: Array  # (batch, labels)
    exit_layer: Array  # (batch,), int64, from 1: layers run


@dataclass(frozen=True)
class Step:
    """One layer of a rule."""

    leaves: Array  # (batch,), bool
    logits: Array  # (batch, labels): the answer of an example that leaves here
    state: State


class ExitRule(Protocol):
    """The layer after which an example leaves; by default from layer 1 on, without memory and without chance.

    At the last layer everyone leaves, whatever the rule.
    """

    @property
    def name(self) -> str:
        """Its name in tables and predictions files."""
        ...

    @property
    def field(self) -> str | None:
        """The name of the swept field in configurations (`q`, `patience`), or None."""
        ...

    @property
    def draws(self) -> int:
        """Number of times that an evaluation repeats the exit: one, unless it is left to chance."""
        return 1

    def earliest(self, num_layers: int) -> int:
        """Return the first layer (from 1) after which an example may leave."""
        return 1

    def start(self, num_layers: int, logits: Array, generator: torch.Generator | None) -> State:
        """Make the state before layer 1; `logits` (batch, labels) of layer 1 give batch size and device."""
        return {}

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Decide who leaves at this layer (from 1), by its logits (batch, labels) and λ, or BERxiT's u, (batch,)."""
        ...


@dataclass(frozen=True)
class LastLayer(ExitRule):
    """Everyone runs all layers."""

    name = "last"
    field = None

    def earliest(self, num_layers: int) -> int:
        """Return the last layer."""
        return num_layers

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Let nobody leave early."""
        return Step(nobody(logits), logits, state)


@dataclass(frozen=True)
class Threshold(ExitRule):
    """Q-exit: leave at the first layer whose CDF is above q (strictly), PALBERT section 3 (arXiv:2204.03276).

    q = 0 is layer 1 and q = 1 is the last layer, whatever λ is: the released code crashes at 0, and at 1 it depends
    on rounding.
    """

    q: float
    name = "threshold"
    field = "q"

    def earliest(self, num_layers: int) -> int:
        """Return the first layer, or at q = 1 the last."""
        return 1 if self.q < 1 else num_layers

    def start(self, num_layers: int, logits: Array, generator: torch.Generator | None) -> State:
        """Start with the probability of not having left yet, and of having left."""
        return {"remaining": ones(logits), "cdf": ones(logits) - 1}

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Let examples whose CDF passes q leave."""
        probability, remaining = _posterior_step(state["remaining"], lambdas)
        cdf = state["cdf"] + probability
        leaves = (cdf > self.q) & (self.q < 1) | (self.q == 0)
        return Step(leaves, logits, {"remaining": remaining, "cdf": cdf})


@dataclass(frozen=True)
class Patience(ExitRule):
    """PABEE: leave after `patience` layers in a row that agree with the one before (arXiv:2006.04152, algorithm 1).

    Classes agree when the argmax is the same; scores (one label) when they differ by less than `regression_threshold`.
    Patience t can leave at layer t + 1 at the earliest, because layer 1 only sets the reference.
    """

    patience: int
    regression_threshold: float | None  # None for classes
    name = "patience"
    field = "patience"

    def earliest(self, num_layers: int) -> int:
        """Return layer `patience` + 1, or the last layer if that is lower."""
        return min(self.patience + 1, num_layers)

    def start(self, num_layers: int, logits: Array, generator: torch.Generator | None) -> State:
        """Start without agreements; layer 1 is its own predecessor, which is not counted."""
        return {"previous": logits, "agreements": zeros(logits, "int64")}

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Let examples with enough agreements in a row leave."""
        if logits.shape[1] == 1:
            assert self.regression_threshold is not None
            agree = abs((state["previous"] - logits)[:, 0]) < self.regression_threshold
        else:
            agree = state["previous"].argmax(1) == logits.argmax(1)
        agreements = (state["agreements"] + 1) * (agree & (layer > 1))
        return Step(agreements == self.patience, logits, {"previous": logits, "agreements": agreements})


@dataclass(frozen=True)
class Sampled(ExitRule):
    """PonderNet: at every layer leave with probability λ (arXiv:2107.05407, section 2).

    Each example's uniform numbers are drawn up front, so that whoever leaves the batch changes nobody's luck.
    """

    draws: int = 1
    name = "sample"
    field = None

    def start(self, num_layers: int, logits: Array, generator: torch.Generator | None) -> State:
        """Draw one uniform number per example and layer, from the given generator (on the CPU)."""
        import torch

        assert generator is not None, "a sampled exit draws from the trial's own generator"
        return {"uniform": torch.rand(len(logits), num_layers, generator=generator).to(logits.device)}

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Let examples whose uniform number is below λ leave."""
        assert lambdas is not None
        return Step(state["uniform"][:, layer - 1] < lambdas, logits, state)


@dataclass(frozen=True)
class Expectation(ExitRule):
    """The expected answer over all layers, in closed form: log Σ p_i softmax(logits_i); for scores Σ p_i y_i.

    The last layer takes the probability that remains. `legacy` gives it 1 - p_N instead, as the released PALBERT code
    does (the weights then sum to more than 1), which made the third row of the paper's table 1.
    """

    legacy: bool
    field = None

    @property
    def name(self) -> str:
        """One name per variant."""
        return "expectation_legacy" if self.legacy else "expectation"

    def earliest(self, num_layers: int) -> int:
        """Return the last layer."""
        return num_layers

    def start(self, num_layers: int, logits: Array, generator: torch.Generator | None) -> State:
        """Start with the probability of not having left yet, and the weighted sum so far."""
        return {"remaining": ones(logits), "sum": 0 * float64(logits)}

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Let nobody leave early; the answer is complete at the last layer."""
        probability, remaining = _posterior_step(state["remaining"], lambdas)
        if layer == num_layers:
            probability = 1 - probability if self.legacy else state["remaining"]
        is_score = logits.shape[1] == 1
        total = state["sum"] + probability[:, None] * (float64(logits) if is_score else softmax(logits))
        answer = total if is_score else module_of(total).log(total)
        return Step(nobody(logits), as_type(answer, logits), {"remaining": remaining, "sum": total})


@dataclass(frozen=True)
class LearnedExit(ExitRule):
    """BERxiT: leave when the head's estimate that the answer is wrong is below `threshold`.

    castorini/berxit at 1fb2162, modeling_highway_bert.py:109-117. 0 is the last layer.
    """

    threshold: float
    name = "learned"
    field = "threshold"

    def earliest(self, num_layers: int) -> int:
        """Return the first layer, or at threshold 0 the last."""
        return 1 if self.threshold > 0 else num_layers

    def step(self, state: State, layer: int, num_layers: int, logits: Array, lambdas: Array | None) -> Step:
        """Let examples leave if the head is sure enough of them; `lambdas` are its u."""
        assert lambdas is not None, "this rule needs a model with BERxiT's head"
        return Step(lambdas < self.threshold, logits, state)


def settings_of(menus: Mapping[str, Sequence[Value]]) -> list[Configuration]:
    """Combine one value from each menu in every way; a single empty setting if there are no menus."""
    return [dict(zip(menus, values, strict=True)) for values in itertools.product(*menus.values())]


def with_setting(rule: ExitRule, setting: Configuration) -> ExitRule:
    """Replace some fields of the rule.

    Raises:
        ValueError: it has no such field.
    """
    as_dataclass: Any = rule
    for name in setting:
        if name not in as_dataclass.__dataclass_fields__:
            menu = ", ".join(as_dataclass.__dataclass_fields__) or "no field"
            raise ValueError(f"exit {rule.name} has no {name}; it has {menu}")
    changed: ExitRule = replace(as_dataclass, **setting)
    return changed


def setting_of(rule: ExitRule) -> float | None:
    """Read the number of the rule that is swept; None if there is none."""
    return None if rule.field is None else float(getattr(rule, rule.field))


def describe_rule(rule: ExitRule) -> str:
    """Name the rule with its setting: `patience 3`."""
    setting = setting_of(rule)
    return rule.name if setting is None else f"{rule.name} {setting:.3g}"


def rule_as_json(rule: ExitRule) -> str:
    """Write the rule's fields as JSON, for `read_rule` in answer_rules.py."""
    as_dataclass: Any = rule
    return json.dumps(asdict(as_dataclass))


def apply_exit(rule: ExitRule, outputs: LayerOutputs, generator: torch.Generator | None = None) -> ExitResult:
    """Apply the rule to stored outputs of all layers: the answers and exit layers that inference would give."""
    num_layers, where = len(outputs.logits), module_of(outputs.logits).where
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


def sweep(rules: list[ExitRule], outputs: LayerOutputs) -> Iterator[tuple[ExitRule, ExitResult]]:
    """Apply every rule to one stored pass."""
    for rule in rules:
        yield rule, apply_exit(rule, outputs)


def every_threshold() -> list[ExitRule]:
    """List Q-exit at q = 0.05, 0.10, ... 0.95 and 1."""
    return [Threshold(q) for q in SWEPT_QUANTILES]


def every_uncertainty() -> list[ExitRule]:
    """List BERxiT's exit at 0 (all layers), 0.005, 0.01, 0.02, and then as Q-exit."""
    return [LearnedExit(threshold) for threshold in SWEPT_UNCERTAINTIES]


def every_patience(num_layers: int, regression_threshold: float | None) -> list[ExitRule]:
    """List PABEE at t = 1 ... num_layers (the last one never leaves early)."""
    return [Patience(patience, regression_threshold) for patience in range(1, num_layers + 1)]


def exit_probabilities(outputs: LayerOutputs) -> Array:
    """Compute the probability of leaving after each layer, (layers, n), float64; the last layer takes what remains."""
    assert outputs.lambdas is not None
    module, leave = module_of(outputs.lambdas), float64(outputs.lambdas)
    first = 1 + 0 * leave[:1]
    leave = module.concatenate([leave[:-1], first])
    stay = module.concatenate([first, module.cumprod(1 - leave, 0)[:-1]])
    return leave * stay


def _posterior_step(remaining: Array, lambdas: Array | None) -> tuple[Array, Array]:
    """Compute the probability of leaving at this layer, and of going on, each (batch,)."""
    assert lambdas is not None, "this rule needs a model with a Λ head"
    leaves = float64(lambdas)
    return leaves * remaining, remaining * (1 - leaves)


# ---- functions of one name in PyTorch and NumPy


def softmax(logits: Array) -> Array:
    """Compute the probabilities of the classes, (batch, labels), float64."""
    module, exact = module_of(logits), float64(logits)
    powers = module.exp(exact - module.amax(exact, 1)[:, None])
    return powers / powers.sum(1)[:, None]


def module_of(array: Array) -> Any:
    """Find the array's module: `torch` of a tensor, `numpy` of an array."""
    return sys.modules[type(array).__module__.partition(".")[0]]


def as_type(array: Array, other: Array) -> Array:
    """Convert the array to the other's type."""
    return module_of(array).asarray(array, dtype=other.dtype)


def float64(array: Array) -> Array:
    """Convert the array to double precision."""
    module = module_of(array)
    return module.asarray(array, dtype=module.float64)


def zeros(logits: Array, kind: str) -> Array:
    """Make a zero of this type for each example."""
    module = module_of(logits)
    return module.zeros_like(logits[:, 0], dtype=getattr(module, kind))


def ones(logits: Array) -> Array:
    """Make a one for each example, float64."""
    return zeros(logits, "float64") + 1


def nobody(logits: Array) -> Array:
    """Make a false for each example."""
    return zeros(logits, "bool")
