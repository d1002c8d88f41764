"""Nystrom attention and LAMB written a second time, one number at a time, as the papers' formulas read."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor


def plain_nystrom(query: Tensor, key: Tensor, value: Tensor, segment_length: int, kernel: Tensor) -> Tensor:
    """One example and one head without pads, (tokens, size) each; `kernel` (k,)."""
    tokens = len(query)
    pieces = [range(start, min(start + segment_length, tokens)) for start in range(0, tokens, segment_length)]
    query_landmarks = torch.stack([sum(query[i] for i in piece) / len(piece) for piece in pieces])
    key_landmarks = torch.stack([sum(key[i] for i in piece) / len(piece) for piece in pieces])
    f, a, b = (
        torch.softmax(left @ right.T, -1)
        for left, right in ((query, key_landmarks), (query_landmarks, key_landmarks), (query_landmarks, key))
    )
    inverse = a.T / (torch.linalg.matrix_norm(a, 1) * torch.linalg.matrix_norm(a, torch.inf))
    one = torch.eye(len(a), dtype=a.dtype)
    for _ in range(6):
        az = a @ inverse
        inverse = inverse @ (13 * one - az @ (15 * one - az @ (7 * one - az))) / 4
    mixed = f @ inverse @ b @ value
    for token in range(tokens):
        for offset, weight in enumerate(kernel, start=-(len(kernel) // 2)):
            if 0 <= token + offset < tokens:
                mixed[token] = mixed[token] + weight * value[token + offset]
    return mixed


def plain_lamb(
    start: Tensor,
    gradients: list[Tensor],
    *,
    rate: float,
    decay: float,
    ratio: bool = True,
    clamp: float = math.inf,
) -> list[Tensor]:
    """The weights after each step, betas .9 and .999, epsilon 1e-6; `ratio`: with the trust ratio."""
    weights, m, v, after = start.clone(), torch.zeros_like(start), torch.zeros_like(start), []
    for gradient in gradients:
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        update = m / (v**0.5 + 1e-6) + decay * weights
        weight_norm, update_norm = min(clamp, weights.square().sum().item() ** 0.5), update.square().sum().item() ** 0.5
        trust = weight_norm / update_norm if ratio and weight_norm and update_norm else 1.0
        weights = weights - rate * trust * update
        after.append(weights)
    return after


def write_nystrom_case(folder: Path) -> Path:
    """Nine tokens, four landmarks, of which the last has one segment's rest."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(9, 4).requires_grad_() for _ in range(3))
    kernel = torch.randn(3)
    output = plain_nystrom(query / 2, key, value, 3, kernel)
    output.square().mean().backward()
    tensors = {"query": query, "key": key, "value": value, "conv_weight": kernel[None, None, :, None], "output": output}
    tensors |= {"grad_query": query.grad, "grad_key": key.grad, "grad_value": value.grad}
    sizes = {"num_landmarks": 3, "conv_kernel_size": 3, "pinv_iterations": 6, "tokens": 9, "head_size": 4}
    return _write(folder, {"kind": "nystrom_attention", **sizes}, tensors)


def write_lamb_case(folder: Path) -> Path:
    """Two steps of a long matrix, whose norm is clamped, and of a vector of zeros."""
    torch.manual_seed(0)
    starts = [8 * torch.randn(6, 5), torch.zeros(5)]
    gradients = [[torch.randn_like(start) for _ in range(2)] for start in starts]
    tensors = {}
    for index, (start, given) in enumerate(zip(starts, gradients, strict=True)):
        after = plain_lamb(start, given, rate=0.1, decay=0.02, clamp=10.0)
        tensors[f"start_{index}"] = start
        tensors |= {f"grad_{step}_{index}": gradient for step, gradient in enumerate(given)}
        tensors |= {f"after_{step}_{index}": weights for step, weights in enumerate(after)}
    settings = {
        "learning_rate": 0.1,
        "betas": [0.9, 0.999],
        "epsilon": 1e-6,
        "weight_decay": 0.02,
        "steps": 2,
        "num_parameters": 2,
    }
    return _write(folder, {"kind": "lamb", **settings}, tensors)


def _write(folder: Path, description: dict, tensors: dict[str, Tensor]) -> Path:
    folder.mkdir()
    (folder / "case.json").write_text(json.dumps(description))
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, folder / "tensors.safetensors")
    return folder
