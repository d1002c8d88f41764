"""Our models against the original code and a plain second writing. Run: pytest tests/trainables/test_parity.py"""

import json
import re

import pytest
import torch
from helpers.places import SHARED
from helpers.plain_ponder import write_case
from helpers.plain_pretraining import write_lamb_case, write_nystrom_case
from safetensors.torch import load_file, save_file

from trainables.parity import main

pytestmark = pytest.mark.slow

CASES = SHARED / "reference_cases"
RECORDED = sorted(CASES.iterdir()) if CASES.is_dir() else []
RECORDED += sorted([*(SHARED / "pretraining_cases").glob("nystrom*"), *(SHARED / "pretraining_cases").glob("lamb*")])


@pytest.mark.skipif(not RECORDED, reason="no cases in ../shared")
@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_recorded_case_of_the_original_code(folder, capsys):
    status = main([str(folder)])
    assert status == 0, capsys.readouterr().out


@pytest.mark.parametrize(("num_lambda_layers", "num_labels"), [(1, 2), (2, 1), (3, 2)])
@pytest.mark.parametrize("arch", ["linear", "linear_cat", "linear_diff", "rnn"])
def test_ponder_case(arch, num_lambda_layers, num_labels, tmp_path, capsys):
    options = dict(arch=arch, num_lambda_layers=num_lambda_layers, num_labels=num_labels)
    status = main([str(write_case(tmp_path, method="ponder", **options))])
    assert status == 0, capsys.readouterr().out


@pytest.mark.parametrize("num_labels", [1, 2])
def test_pabee_case(num_labels, tmp_path, capsys):
    status = main([str(write_case(tmp_path, method="pabee", num_labels=num_labels))])
    assert status == 0, capsys.readouterr().out


WITH_KIND = pytest.mark.parametrize(
    ("write", "field", "tensor"),
    [(write_nystrom_case, "num_landmarks", "grad_key"), (write_lamb_case, "weight_decay", "after_1_0")],
)


@WITH_KIND
def test_case_with_a_kind(write, field, tensor, tmp_path, capsys):
    assert main([str(write(tmp_path / "case"))]) == 0
    assert f"  {tensor}\n" in capsys.readouterr().out


@WITH_KIND
def test_another_tensor_of_a_case_with_a_kind_is_a_difference(write, field, tensor, tmp_path, capsys):
    case = write(tmp_path / "case")
    tensors = load_file(case / "tensors.safetensors")
    tensors[tensor].view(-1)[0] += 2e-4
    save_file(tensors, case / "tensors.safetensors")
    assert main([str(case)]) == 1
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines() if "DIFFERS" in line] == [tensor]


@WITH_KIND
def test_a_case_with_a_kind_that_is_not_understood_is_one_line(write, field, tensor, tmp_path, capsys):
    case = write(tmp_path / "case")
    tensors = load_file(case / "tensors.safetensors")
    save_file({name: value for name, value in tensors.items() if name != tensor}, case / "tensors.safetensors")
    for change, message in [
        (lambda content: None, f"tensors.safetensors has no {tensor}"),
        (lambda content: content.pop(field), f"the field {field} is missing"),
        (lambda content: content.update(kind="mystery"), "unknown kind 'mystery'; known: .*nystrom_attention, lamb"),
    ]:
        edit(case, change)
        assert main([str(case)]) == 2
        error = capsys.readouterr().err
        assert re.search(message, error) and error.count("\n") == 1
    (case / "tensors.safetensors").unlink()
    edit(case, lambda content: content.update(kind="lamb"))
    assert main([str(case)]) == 2 and "it has no tensors.safetensors" in capsys.readouterr().err


@pytest.fixture
def case(tmp_path):
    return write_case(tmp_path, method="ponder")


def edit(case, change):
    content = json.loads((case / "case.json").read_text())
    change(content)
    (case / "case.json").write_text(json.dumps(content))


def test_plain_linear_lambda_of_the_original_is_understood(case):
    weights = load_file(case / "weights.safetensors")
    renamed = {name.replace("exit_head.cls.", "exit_head."): tensor for name, tensor in weights.items()}
    assert renamed.keys() != weights.keys()
    save_file(renamed, case / "weights.safetensors")
    assert main([str(case)]) == 0


def test_every_quantity_is_reported(case, capsys):
    main([str(case)])
    printed = capsys.readouterr().out
    for quantity in ("exit_pdf", "task_loss", "kl", "total_loss", "grad_norm_exit_head", "grad_norm_rest"):
        assert f"train {quantity} (batched)" in printed
    for size in ("batched", "batch 1"):
        for way in ("simulated", "compacted"):
            assert f"eval threshold@0.5 exit_layer ({size}, {way})" in printed


def test_another_number_is_a_difference(case, capsys):
    edit(case, lambda content: content["expected"]["train"].update(kl=content["expected"]["train"]["kl"] + 2e-4))
    assert main([str(case)]) == 1
    assert [line.split()[1:3] for line in capsys.readouterr().out.splitlines() if "DIFFERS" in line] == [
        ["train", "kl"],
        ["train", "kl"],
    ]


def test_another_exit_layer_is_a_difference(case):
    edit(case, lambda content: content["expected"]["eval"]["threshold@0.5"]["exit_layer"].__setitem__(0, 99))
    assert main([str(case)]) == 1


def test_other_weights_are_a_difference(case):
    weights = load_file(case / "weights.safetensors")
    weights["classifiers.cls_head.bias"] += torch.tensor([0.001, 0, 0])
    save_file(weights, case / "weights.safetensors")
    assert main([str(case)]) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["case"].update(method="mystery"), "unknown method 'mystery'; known: ponder, pabee"),
        (lambda content: content["case"].update(colour=1), "unknown settings colour; known: lambda_layer_arch"),
        (
            lambda content: content["case"].update(lambda_layer_arch="gru"),
            "unknown lambda_layer_arch 'gru'; known: linear",
        ),
        (lambda content: content["expected"]["eval"].update({"guess@1": {}}), "unknown evaluation 'guess@1'"),
        (
            lambda content: content["expected"]["eval"].update({"last": {"entropy": []}}),
            "unknown expected quantities: entropy",
        ),
        (lambda content: content["expected"]["train"].update(entropy=1), "unknown expected.* entropy"),
        (lambda content: content.pop("batch"), "is incomplete: .*batch"),
        (lambda content: content["albert_config"].update(hidden_size=18), "weights do not fit the configuration"),
    ],
)
def test_case_that_is_not_understood_is_one_line(case, change, message, capsys):
    edit(case, change)
    assert main([str(case)]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error) and error.count("\n") == 1


def test_unknown_weights_are_named(case, capsys):
    weights = load_file(case / "weights.safetensors")
    save_file(weights | {"classifiers.mystery": torch.zeros(1)}, case / "weights.safetensors")
    assert main([str(case)]) == 2
    assert "unknown classifiers.mystery" in capsys.readouterr().err


def test_folder_without_a_case_is_one_line(tmp_path, capsys):
    assert main([str(tmp_path / "nothing")]) == 2
    error = capsys.readouterr().err
    assert "is not a reference case: it has no case.json" in error and error.count("\n") == 1


def test_damaged_weights_are_one_line(case, capsys):
    (case / "weights.safetensors").write_bytes(b"not tensors")
    assert main([str(case)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_case_that_expects_nothing_is_no_proof(case, capsys):
    edit(case, lambda content: content.update(expected={}))
    assert main([str(case)]) == 2
    assert "expects nothing" in capsys.readouterr().err


def test_a_damaged_case_is_one_line_and_the_others_still_run(case, tmp_path_factory, capsys):
    edit(case, lambda content: content["batch"]["labels"].__setitem__(0, 9_999))
    other = write_case(tmp_path_factory.mktemp("other"), method="pabee")
    assert main([str(case), str(other)]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1 and str(case) in printed.err and "equal: 0 of" in printed.out
