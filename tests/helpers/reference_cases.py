"""Reference cases: numbers computed by the original code, beside ours.

A case is a folder with `case.json` and a safetensors file. Its `kind` is Nystrom attention, LAMB or ShareBERT; a case
without a kind is of PALBERT or PABEE (`early_exit_cases.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from helpers.corpora import pretraining_config
from helpers.early_exit_cases import compare_early_exit
from helpers.reference_files import (
    Batch,
    Comparison,
    check_names,
    largest_difference,
    read_batch,
    read_description,
    read_tensors,
    single_examples,
)
from helpers.walked_layers import walk
from torch import Tensor, nn

from trainables.encoders.layerwise import layerwise
from trainables.encoders.needed_weights import SHAREBERT_NAMES
from trainables.encoders.nystrom import nystrom_attention
from trainables.encoders.sharebert import ShareBertConfig, ShareBertModel
from trainables.runs.optimiser import Optimiser


def compare_case(folder: Path) -> list[Comparison]:
    """Every expected quantity beside ours.

    Raises:
        ValueError: the case expects nothing, something that is not compared, or has weights that do not fit.
        KeyError: it is incomplete.
    """
    case = read_description(folder)
    if "kind" not in case:
        return list(compare_early_exit(case, read_tensors(folder)))
    check_names({case["kind"]}, set(_KINDS), "kind")
    return list(_KINDS[case["kind"]](case, folder))


def different_quantities(folder: Path) -> list[str]:
    """The quantities that are not equal. Prints all of them, the difference first."""
    comparisons = compare_case(folder)
    for comparison in comparisons:
        print(f"{comparison.difference:9.2e}  {comparison.quantity}")
    return [comparison.quantity for comparison in comparisons if not comparison.is_equal]


def _compare_nystrom(case: dict[str, Any], folder: Path) -> Iterator[Comparison]:
    """The output of one example and one head without pads, and the gradients of its mean square."""
    tensors = read_tensors(folder, "tensors.safetensors")
    inputs = {name: tensors[name].clone().requires_grad_() for name in ("query", "key", "value")}
    query, key, value = (states[None, None] for states in inputs.values())
    output = nystrom_attention(
        query * case["head_size"] ** -0.5,
        key,
        value,
        torch.ones(1, 1, case["tokens"], dtype=torch.bool),
        segment_length=math.ceil(case["tokens"] / case["num_landmarks"]),
        convolution=tensors["conv_weight"],
        iterations=case["pinv_iterations"],
    )[0, 0]
    output.square().mean().backward()
    yield Comparison("output", largest_difference(output, tensors["output"]))
    for name, states in inputs.items():
        assert states.grad is not None
        yield Comparison(f"grad_{name}", largest_difference(states.grad, tensors[f"grad_{name}"]))


def _compare_lamb(case: dict[str, Any], folder: Path) -> Iterator[Comparison]:
    """pytorch-lamb on given gradients, one group: `start_I`, then `grad_STEP_I` and `after_STEP_I` of parameter I."""
    tensors = read_tensors(folder, "tensors.safetensors")
    weights = nn.ParameterList([tensors[f"start_{index}"].clone() for index in range(case["num_parameters"])])
    optimiser = Optimiser(
        weights,
        [{"params": list(weights), "weight_decay": case["weight_decay"]}],
        pretraining_config(
            learning_rate=case["learning_rate"],
            adam_epsilon=case["epsilon"],
            schedule="constant",
            gradient_clip=0.0,
        ),
        num_steps=case["steps"],
        warmup_steps=0,
        kind="lamb_clamped",
        betas=tuple(case["betas"]),
    )
    for step in range(case["steps"]):
        # A loss that has the given gradients, so that the step is the one of a training.
        optimiser.step([(weight * tensors[f"grad_{step}_{index}"]).sum() for index, weight in enumerate(weights)])
        for index, weight in enumerate(weights):
            yield Comparison(f"after_{step}_{index}", largest_difference(weight, tensors[f"after_{step}_{index}"]))


def _compare_sharebert(case: dict[str, Any], folder: Path) -> Iterator[Comparison]:
    """States, pooled states, loss and gradients, for the whole batch and for one example at a time."""
    expected, batch = case["expected"], read_batch(case["batch"])
    check_names(set(expected), {"last_hidden", "pooled", "loss", "loss_is", "grad_norm", "num_parameters"}, "quantity")
    model = ShareBertModel(ShareBertConfig(**case["config"])).eval()
    try:
        model.load_state_dict({_sharebert_name(name): tensor for name, tensor in read_tensors(folder).items()})
    except RuntimeError as error:
        raise ValueError(f"weights do not fit: {str(error).splitlines()[1].strip()}") from error
    yield Comparison("num_parameters", abs(model.num_parameters() - expected["num_parameters"]), 0)
    yield from _compare_states(expected, model, [batch], "batched")
    yield from _compare_states(expected, model, single_examples(batch), "batch 1")
    yield from _compare_gradients(expected, model, batch)


@torch.no_grad()
def _compare_states(
    expected: dict[str, Any], model: ShareBertModel, batches: Iterable[Batch], size: str
) -> Iterator[Comparison]:
    outputs = [model(**batch) for batch in batches]
    hidden = torch.cat([output.last_hidden_state for output in outputs])[:, : len(expected["last_hidden"][0])]
    pooled = torch.cat([output.pooler_output for output in outputs])
    walked = torch.cat([_walk(model, batch) for batch in batches])
    yield Comparison(f"last_hidden ({size})", largest_difference(hidden, expected["last_hidden"]))
    yield Comparison(f"pooled ({size})", largest_difference(pooled, expected["pooled"]))
    yield Comparison(f"pooled ({size}, layer by layer)", largest_difference(walked, expected["pooled"]))


def _walk(model: ShareBertModel, batch: Batch) -> Tensor:
    """Pooled as the methods here run the encoder, (batch, hidden)."""
    encoder = layerwise(model)
    *_, states = walk(encoder, **batch)
    return encoder.pool(states.first())


def _compare_gradients(expected: dict[str, Any], model: ShareBertModel, batch: Batch) -> Iterator[Comparison]:
    output = model(**batch)
    loss = output.last_hidden_state.square().mean() + output.pooler_output.square().mean()
    loss.backward()
    yield Comparison("loss", largest_difference(loss, expected["loss"]))
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, norm in expected["grad_norm"].items():
        check_names({_sharebert_name(name)}, set(gradients), "parameter")
        gradient = gradients[_sharebert_name(name)]
        assert gradient is not None, "every parameter has a part in the loss"
        yield Comparison(f"grad_norm {name}", largest_difference(gradient.norm(), norm))


def _sharebert_name(original: str) -> str:
    """The name of an original parameter in our model; the embeddings' names are the same."""
    for pattern, replacement in SHAREBERT_NAMES.items():
        original = re.sub(pattern, replacement, original)
    return original


_KINDS = {"nystrom_attention": _compare_nystrom, "lamb": _compare_lamb, "sharebert": _compare_sharebert}
