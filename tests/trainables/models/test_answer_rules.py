"""Rules on the answers of layers against plain loops over single examples, in PyTorch and NumPy.

Run: pytest tests/trainables/models/test_answer_rules.py
"""

from copy import copy
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.messages import one_line

from study.contract.model_rules import Subject, examples
from trainables.models.answer_rules import (
    KEPT,
    Beem,
    Entropy,
    FixedLayer,
    FPabee,
    MaxProbability,
    Pcee,
    check_rules,
    list_rules,
    read_rule,
)
from trainables.models.exit_rules import (
    ExitRule,
    LastLayer,
    LayerOutputs,
    Patience,
    Step,
    apply_exit,
    nobody,
    read_setting,
    rule_as_json,
)

LAYERS, EXAMPLES = 12, 60

# Plain references: the exit layer and the answer of one example, from its probabilities (layers, classes).


def fixed(p, layer):
    return layer, p[layer - 1]


def first(p, leaves):
    layer = next((layer for layer, row in enumerate(p, 1) if leaves(row)), len(p))
    return layer, p[layer - 1]


def share(row):
    return -sum(row * np.log(row)) / np.log(len(row))


def pcee(p, threshold, patience, ensemble):
    sure, run, layer = 0, [], 0
    while layer < len(p) and sure < patience:
        is_sure = share(p[layer]) < threshold
        sure, run = (sure + 1, [*run, p[layer]]) if is_sure else (0, [p[layer]])
        layer += 1
    return layer, np.mean(run, axis=0) if ensemble else p[layer - 1]


def f_pabee(p, threshold, patience):
    similar = 0
    for layer, row in enumerate(p, 1):
        if layer > 1:
            before, mean = p[layer - 2], (p[layer - 2] + row) / 2
            divergence = sum(before * np.log(before / mean) + row * np.log(row / mean)) / 2
            similar = similar + 1 if divergence < threshold else 0
        if similar == patience:
            break
    return layer, row


def beem(p, threshold, weight):
    evidence = 0
    for layer, row in enumerate(p, 1):
        agrees = layer > 1 and p[layer - 2].argmax() == row.argmax()
        evidence = evidence + weight * (layer - 1) * max(row) if agrees else 0
        if evidence >= threshold:
            break
    return layer, row


REFERENCES = [
    *((FixedLayer(layer), lambda p, layer=layer: fixed(p, layer)) for layer in (1, 5, LAYERS)),
    *((Entropy(s), lambda p, s=s: first(p, lambda row: share(row) < s)) for s in (0.0, 0.3, 0.7, 0.95)),
    *((MaxProbability(s), lambda p, s=s: first(p, lambda row: max(row) > s)) for s in (0.0, 0.6, 0.9, 1.0)),
    *(
        (Pcee(s, t, mean), lambda p, s=s, t=t, mean=mean: pcee(p, s, t, mean))
        for s, t, mean in [(0.5, 2, True), (0.8, 2, False), (0.9, 1, True), (0.9, 3, True), (0.1, 2, True)]
    ),
    *((FPabee(s, t), lambda p, s=s, t=t: f_pabee(p, s, t)) for s, t in [(0.01, 1), (0.05, 2), (0.2, 4), (0.0, 2)]),
    *((Beem(s, w), lambda p, s=s, w=w: beem(p, s, w)) for s, w in [(0.0, 0.4), (1.5, 0.4), (6, 0.4), (1.5, 0.1)]),
]


def outputs_of(num_labels, scale=1.5):
    generator = torch.Generator().manual_seed(num_labels)
    steps = torch.randn(LAYERS, EXAMPLES, num_labels, generator=generator)
    return LayerOutputs(scale * steps.cumsum(0) / 2, None)


def probabilities_of(outputs):
    powers = np.exp(outputs.logits.double().numpy())
    return (powers / powers.sum(2, keepdims=True)).swapaxes(0, 1)


@pytest.mark.parametrize("num_labels", [2, 3])
@pytest.mark.parametrize(("rule", "reference"), REFERENCES, ids=lambda value: str(value) if value in KEPT else None)
def test_a_rule_equals_its_plain_loop(rule, reference, num_labels):
    outputs = outputs_of(num_labels)
    expected = [reference(p) for p in probabilities_of(outputs)]
    result = apply_exit(rule, outputs)
    assert result.exit_layer.tolist() == [layer for layer, _ in expected]
    answers = result.logits.double().softmax(1).numpy()
    assert answers == pytest.approx(np.array([answer for _, answer in expected]), abs=1e-6)


@pytest.mark.parametrize("num_labels", [1, 2, 3])
def test_numpy_and_single_examples_equal_a_batch_of_torch(num_labels):
    # Halves, as in predictions files: many of them are equal, so probabilities lie on thresholds.
    logits = (2 * outputs_of(num_labels).logits).round() / 2
    rules = list_rules(LAYERS, num_labels)
    whole = [apply_exit(rule, LayerOutputs(logits, None)) for rule in rules]
    for rule, result in zip(rules, whole, strict=True):
        arrays = apply_exit(rule, LayerOutputs(logits.numpy(), None))
        assert (arrays.exit_layer.tolist(), arrays.logits.argmax(1).tolist()) == (
            result.exit_layer.tolist(),
            result.logits.argmax(1).tolist(),
        ), rule
        assert arrays.logits == pytest.approx(result.logits.numpy(), abs=1e-6)
        for row in range(0, EXAMPLES, 20):
            alone = apply_exit(rule, LayerOutputs(logits[:, row : row + 1], None))
            assert alone.exit_layer.item() == result.exit_layer[row]
            torch.testing.assert_close(alone.logits[0], result.logits[row])


@pytest.mark.slow
@pytest.mark.parametrize("task", ["sst2", "mnli", "stsb"])
@pytest.mark.parametrize("method", ["pabee", "palbert"])
def test_inference_that_drops_finished_examples_equals_the_rule_on_all_layers(method, task):
    model, batch = copy(Subject(method, "mini-albert").decisive_model(task)), examples(task)[0]
    outputs, leave_apart = model.all_exits(batch), set()
    for rule in list_rules(len(outputs.logits), outputs.logits.shape[2]):
        wanted, model.exit_rule = apply_exit(rule, outputs), rule
        found = model.infer(batch)
        assert found.exit_layer.tolist() == wanted.exit_layer.tolist(), rule
        torch.testing.assert_close(found.logits, wanted.logits, rtol=1e-3, atol=1e-3)
        leave_apart |= {rule.name} if wanted.exit_layer.min() < wanted.exit_layer.max() else set()
    classes = {"patience", "entropy", "max_probability", "pcee", "f-pabee", "beem"}
    assert leave_apart == (set() if task == "stsb" else classes)


def test_equal_answers_of_all_layers_are_at_every_threshold():
    even = LayerOutputs(torch.zeros(4, 1, 3), None)
    assert apply_exit(Entropy(1.0), even).exit_layer.item() == 4  # H is ln C, which is not below
    assert apply_exit(FPabee(0.0, 1), even).exit_layer.item() == 4
    assert apply_exit(FPabee(1e-6, 2), even).exit_layer.item() == 3  # layer 1 has none before it
    sure = LayerOutputs(torch.tensor([0.0, 1e4]).expand(4, 1, 2), None)
    assert apply_exit(MaxProbability(1.0), sure).exit_layer.item() == 4
    assert apply_exit(Beem(1.2, 0.4), sure).exit_layer.item() == 3  # 0.4 + 0.8, and it is enough to reach it


def test_every_setting_stands_once_and_scores_have_the_fixed_layer_alone():
    rules = list_rules(LAYERS, 2)
    assert len(set(rules)) == len(rules)
    assert list(dict.fromkeys(rule.name for rule in rules)) == [
        *("fixed", "patience", "entropy", "max_probability", "pcee", "f-pabee", "beem"),
    ]
    assert list_rules(3, 1) == [FixedLayer(1), FixedLayer(2), FixedLayer(3)]


def test_rules_are_read_back_from_predictions_files(snapshot):
    for rule in [*list_rules(LAYERS, 2), Patience(2, 0.5)]:
        assert read_rule(rule.name, rule_as_json(rule)) == rule
        assert read_setting(rule) == getattr(rule, rule.field)
    assert read_rule("of another package", "{}") is None
    with pytest.raises(ValueError) as raised:
        read_rule("beem", '{"q": 1}')
    assert one_line(raised.value) == snapshot


@dataclass(frozen=True)
class Streak(ExitRule):
    """A rule that is not of this package, and swept over two fields."""

    length: int | None
    margin: float = 0.1
    name = "streak"
    field = "length"

    def step(self, state, layer, num_layers, logits, lambdas):
        return Step(nobody(logits), logits, state)


class Namesake(Streak):
    """A rule whose author has forgotten its name."""


class SurePatience(Patience):
    """A rule with the name of a built-in rule."""


@dataclass
class Melting(ExitRule):
    """A rule that is not frozen."""

    length: int
    name = "melting"
    field = "length"
    step = Streak.step


@pytest.mark.parametrize(
    "rules",
    [
        [SurePatience(1, None)],
        [Streak(1), Namesake(2)],
        [Streak(np.int64(1))],
        [Streak(1, [0.1])],
        [Streak(1, 0.1), Streak(2, 0.1), Streak(1, 0.2)],
        [Streak(None)],
        [Melting(1)],
    ],
    ids=["built-in", "namesake", "numpy", "list", "two fields", "none", "not frozen"],
)
def test_swept_rules_that_cannot_be_told_apart_or_stored_are_refused(rules, snapshot):
    with pytest.raises(ValueError) as raised:
        check_rules(SimpleNamespace(exit_rule=LastLayer(), sweep_rules=lambda: rules))
    assert one_line(raised.value) == snapshot


def test_swept_rules_may_repeat_or_have_no_setting():
    rules = [Streak(1), Streak(1), Streak(2), LastLayer(), *list_rules(LAYERS, 2)]
    check_rules(SimpleNamespace(exit_rule=Streak(1), sweep_rules=lambda: rules))


def test_earliest_layers_are_those_of_answers_that_suit_a_rule_best():
    rules = {FixedLayer(4): 4, FixedLayer(9): 6, Entropy(0.1): 1, MaxProbability(0.9): 1, Pcee(0.5): 2, FPabee(0.1): 3}
    rules |= {Beem(0.0): 1, Beem(0.4): 2, Beem(0.41): 3, Beem(6.0): 6, Beem(1.5, 0.1): 6}
    assert {rule: rule.earliest(6) for rule in rules} == rules
    outputs = outputs_of(2, scale=50)
    for rule in list_rules(LAYERS, 2):
        assert apply_exit(rule, outputs).exit_layer.min() >= rule.earliest(LAYERS)
