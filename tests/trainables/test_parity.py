"""Our models against the original code and a plain second writing. Run: pytest tests/trainables/test_parity.py -rP

`-rP` prints the difference of every quantity. The recorded cases are in tests/cases, whose README gives their origins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import plain_sharebert
from helpers.places import CASES
from helpers.plain_ponder import write_case
from helpers.plain_pretraining import write_lamb_case, write_nystrom_case
from helpers.record_case import RECORDERS
from helpers.reference_cases import compare_case, different_quantities
from safetensors.torch import load_file, save_file
from torch import Tensor

pytestmark = pytest.mark.slow

RECORDED = sorted(path.parent for path in CASES.glob("*/case.json"))


def test_readme_names_commit_of_each_recorded_case_and_helper_makes_it() -> None:
    rows = re.findall(r"^\| (`.*`) \| [\w-]+/[\w-]+ at [0-9a-f]{7}", (CASES / "README.md").read_text(), re.M)
    recorded = {folder.name for folder in RECORDED} | {*json.loads((CASES / "released_exits.json").read_text())}
    assert recorded == set(RECORDERS) == set(re.findall(r"\w+", " ".join(rows)))


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_recorded_case_of_the_original_code(folder: Path) -> None:
    assert different_quantities(folder) == []


@pytest.mark.parametrize(("num_lambda_layers", "num_labels"), [(1, 2), (2, 1), (3, 2)])
@pytest.mark.parametrize("arch", ["linear", "linear_cat", "linear_diff", "rnn"])
def test_plain_ponder_case(arch: str, num_lambda_layers: int, num_labels: int, tmp_path: Path) -> None:
    options = {"arch": arch, "num_lambda_layers": num_lambda_layers, "num_labels": num_labels}
    assert different_quantities(write_case(tmp_path, method="ponder", **options)) == []


@pytest.mark.parametrize("num_labels", [1, 2])
def test_plain_pabee_case(num_labels: int, tmp_path: Path) -> None:
    assert different_quantities(write_case(tmp_path, method="pabee", num_labels=num_labels)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_hidden_layers": 1, "num_attention_heads": 6},
        {"vocab_size": 600, "hidden_size": 30, "intermediate_size": 90},
    ],
)
def test_plain_sharebert_case(changes: dict[str, int], tmp_path: Path) -> None:
    assert different_quantities(plain_sharebert.write_case(tmp_path, **changes)) == []


# What is compared: another number is a difference, and nothing of a case is passed over.

ON_TENSORS = pytest.mark.parametrize(
    ("write", "tensor"), [(write_nystrom_case, "grad_key"), (write_lamb_case, "after_1_0")]
)


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """A case of a ponder model."""
    return write_case(tmp_path, method="ponder")


def edit(case: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((case / "case.json").read_text())
    change(content)
    (case / "case.json").write_text(json.dumps(content))


def edit_tensors(file: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


@ON_TENSORS
def test_tensor_case_is_equal_and_another_number_is_a_difference(
    write: Callable[[Path], Path], tensor: str, tmp_path: Path
) -> None:
    case = write(tmp_path / "case")
    assert different_quantities(case) == []
    edit_tensors(case / "tensors.safetensors", lambda tensors: tensors[tensor].view(-1)[0].add_(2e-4))
    assert different_quantities(case) == [tensor]


@ON_TENSORS
def test_missing_tensor_is_an_error(write: Callable[[Path], Path], tensor: str, tmp_path: Path) -> None:
    case = write(tmp_path / "case")
    edit_tensors(case / "tensors.safetensors", lambda tensors: tensors.pop(tensor))
    with pytest.raises(KeyError, match=tensor):
        compare_case(case)


def test_every_quantity_is_compared(case: Path) -> None:
    compared = [comparison.quantity for comparison in compare_case(case)]
    for quantity in ("exit_pdf", "task_loss", "kl", "total_loss", "grad_norm_exit_head", "grad_norm_rest"):
        assert f"train {quantity} (batched)" in compared
    for size in ("batched", "batch 1"):
        for way in ("simulated", "compacted"):
            assert f"eval threshold@0.5 exit_layer ({size}, {way})" in compared


def test_plain_linear_lambda_of_the_original_is_understood(case: Path) -> None:
    weights = load_file(case / "weights.safetensors")
    renamed = {name.replace("exit_head.cls.", "exit_head."): tensor for name, tensor in weights.items()}
    assert renamed.keys() != weights.keys()
    save_file(renamed, case / "weights.safetensors")
    assert different_quantities(case) == []


def test_another_number_is_a_difference(case: Path) -> None:
    edit(case, lambda content: content["expected"]["train"].update(kl=content["expected"]["train"]["kl"] + 2e-4))
    assert different_quantities(case) == ["train kl (batched)", "train kl (batch 1)"]


def test_another_exit_layer_is_a_difference(case: Path) -> None:
    edit(case, lambda content: content["expected"]["eval"]["threshold@0.5"]["exit_layer"].__setitem__(0, 99))
    assert len(different_quantities(case)) == 4


def test_other_weights_are_a_difference(case: Path) -> None:
    name, more = "classifiers.cls_head.bias", torch.tensor([0.001, 0, 0])
    edit_tensors(case / "weights.safetensors", lambda weights: weights[name].add_(more))
    assert different_quantities(case)


@pytest.mark.parametrize(
    "change",
    [
        lambda expected: expected.update(num_parameters=expected["num_parameters"] + 1),
        lambda expected: expected.update(loss=expected["loss"] + 2e-4),
        lambda expected: expected["pooled"][1].__setitem__(0, expected["pooled"][1][0] + 2e-4),
        lambda expected: expected["last_hidden"][2][1].__setitem__(0, 99.0),
        lambda expected: expected["grad_norm"].update({"pooler.bias": 0.0}),
    ],
)
def test_another_number_of_sharebert_is_a_difference(
    change: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    case = plain_sharebert.write_case(tmp_path)
    edit(case, lambda content: change(content["expected"]))
    assert different_quantities(case)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["case"].update(method="mystery"), "unknown method: mystery; known: pabee, ponder"),
        (lambda content: content["case"].update(colour=1), "unknown settings: colour; known: epsilon, lambda_layer_"),
        (lambda content: content["case"].update(lambda_layer_arch="gru"), "gru"),
        (lambda content: content["expected"]["eval"].update({"guess@1": {}}), "unknown evaluation: guess"),
        (lambda content: content["expected"]["eval"].update({"last": {"entropy": []}}), "quantity: entropy"),
        (lambda content: content["expected"]["train"].update(entropy=1), "unknown training quantity: entropy"),
        (lambda content: content.pop("batch"), "batch"),
        (lambda content: content["albert_config"].update(hidden_size=18), "weights do not fit"),
        (lambda content: content.update(expected={}), "expects nothing"),
        (lambda content: content.update(kind="mystery"), "unknown kind: mystery; known: lamb, nystrom_attention"),
    ],
)
def test_case_that_is_not_understood_is_an_error(
    case: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    edit(case, change)
    with pytest.raises((ValueError, KeyError), match=message):
        compare_case(case)


def test_unknown_weights_are_an_error(case: Path) -> None:
    edit_tensors(case / "weights.safetensors", lambda weights: weights.update({"classifiers.mystery": torch.zeros(1)}))
    with pytest.raises(ValueError, match=r"classifiers.mystery"):
        compare_case(case)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["expected"].pop("pooled"), "pooled"),
        (lambda content: content["expected"].update(mystery=1.0), "unknown quantity: mystery"),
        (lambda content: content["expected"]["grad_norm"].update(mystery=1.0), "unknown parameter: mystery"),
        (lambda content: content["config"].update(factor_size=7), "weights do not fit: size mismatch"),
        (lambda content: content["config"].update(intermediate_size=48), "cuts 27 columns"),
    ],
)
def test_sharebert_case_that_is_not_understood_is_an_error(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    case = plain_sharebert.write_case(tmp_path)
    edit(case, change)
    with pytest.raises((ValueError, KeyError), match=message):
        compare_case(case)


def test_missing_weights_of_sharebert_are_an_error(tmp_path: Path) -> None:
    case = plain_sharebert.write_case(tmp_path)
    edit_tensors(case / "weights.safetensors", lambda weights: weights.pop("pooler.bias"))
    with pytest.raises(ValueError, match=r"pooler.bias"):
        compare_case(case)
