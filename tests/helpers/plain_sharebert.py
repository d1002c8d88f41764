"""ShareBERT written down a second time, as plainly as possible: one matrix W, its slices by hand, the original's names.

Makes reference cases in the format of `helpers.reference_cases`. Facts: jchenghu/sharebert at e54fe72, modeling.py.
"""

import json
import math

import torch
from safetensors.torch import save_file
from torch.nn import functional

SIZES = {
    "vocab_size": 200,
    "factor_size": 6,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 12,
    "type_vocab_size": 2,
}


def write_case(folder, **changes):
    """A case folder with random weights and what the plain model makes of them."""
    sizes, generator = SIZES | changes, torch.Generator().manual_seed(0)
    shapes = _shapes(**sizes)
    weights = {name: 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    weights = {name: weight.requires_grad_() for name, weight in weights.items()}
    batch = _batch(sizes, generator)
    hidden, pooled = _encode(weights, batch, sizes)
    loss = hidden.square().mean() + pooled.square().mean()
    loss.backward()
    expected = {
        "last_hidden": hidden[:, :3].tolist(),
        "pooled": pooled.tolist(),
        "loss": loss.item(),
        "grad_norm": {name: weight.grad.norm().item() for name, weight in weights.items()},
        "num_parameters": sum(weight.numel() for weight in weights.values()),
    }
    save_file({name: weight.detach() for name, weight in weights.items()}, folder / "weights.safetensors")
    batch = {name: values.tolist() for name, values in batch.items()}
    content = {"kind": "sharebert", "config": sizes, "batch": batch, "expected": expected}
    (folder / "case.json").write_text(json.dumps(content))
    return folder


def _shapes(*, vocab_size, factor_size, hidden_size, intermediate_size, num_hidden_layers, **more):
    normalised = ["embeddings.pos_factor_norm", "encoder.FinalLayerNorm"]
    shapes = {
        "embeddings.word_embeddings.weight": (vocab_size, factor_size),
        "embeddings.position_embeddings.weight": (more["max_position_embeddings"], hidden_size),
        "embeddings.token_type_embeddings.weight": (more["type_vocab_size"], hidden_size),
        "embeddings.pre_factor_norm.weight": (factor_size,),
        "embeddings.pre_factor_norm.bias": (factor_size,),
        "pooler.bias": (hidden_size,),
    }
    for name in ("factor_linear", "factor_linear_all"):
        shapes[f"embeddings.{name}.weight"] = (hidden_size, factor_size)
        shapes[f"embeddings.{name}.bias"] = (hidden_size,)
    for layer in (f"encoder.layer.{index}" for index in range(num_hidden_layers)):
        normalised += [f"{layer}.PreAttentionLayerNorm", f"{layer}.PostAttentionLayerNorm"]
        biases = ("block.self.query_bias", "block.self.key_bias", "block.self.value_bias", "block.output.bias")
        shapes |= {f"{layer}.{name}": (hidden_size,) for name in (*biases, "output.bias")}
        shapes[f"{layer}.intermediate.bias"] = (intermediate_size,)
    return shapes | {f"{name}.{part}": (hidden_size,) for name in normalised for part in ("weight", "bias")}


def _batch(sizes, generator):
    mask = (torch.arange(9) < torch.tensor([[9], [5], [7]])).long()
    return {
        "input_ids": torch.randint(sizes["vocab_size"], (3, 9), generator=generator),
        "token_type_ids": (torch.arange(9) > 3).long().expand(3, 9),
        "attention_mask": mask,
    }


def _matrices(weights, sizes):
    """W, and what is cut out of it from the right: q, k, v, the two of the feed-forward network, out, pooler."""
    rows, hidden, inner = sizes["vocab_size"], sizes["hidden_size"], sizes["intermediate_size"]
    name = "embeddings.factor_linear_all"
    everything = weights["embeddings.word_embeddings.weight"] @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
    shapes = [(hidden, hidden)] * 3 + [(hidden, inner), (inner, hidden)] + [(hidden, hidden)] * 2
    matrices, right = [], hidden
    for height, width in shapes:
        columns = math.ceil(height * width / rows)
        numbers = everything[:, right - columns : right].reshape(-1)
        matrices.append(numbers[: height * width].reshape(height, width))
        right -= columns
    return matrices


def _encode(weights, batch, sizes):
    def norm(name, states):
        return functional.layer_norm(states, states.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"])

    def heads(states):
        return states.view(*states.shape[:2], sizes["num_attention_heads"], -1).transpose(1, 2)

    query, key, value, inner, outer, out, pooler = _matrices(weights, sizes)
    words = norm("embeddings.pre_factor_norm", weights["embeddings.word_embeddings.weight"][batch["input_ids"]])
    words = words @ weights["embeddings.factor_linear.weight"].T + weights["embeddings.factor_linear.bias"]
    hidden = norm("embeddings.pos_factor_norm", words)
    hidden = hidden + weights["embeddings.position_embeddings.weight"][: words.shape[1]]
    hidden = hidden + weights["embeddings.token_type_embeddings.weight"][batch["token_type_ids"]]
    for layer in (f"encoder.layer.{index}" for index in range(sizes["num_hidden_layers"])):
        states = norm(f"{layer}.PreAttentionLayerNorm", hidden)
        own = [weights[f"{layer}.block.self.{name}_bias"] for name in ("query", "key", "value")]
        q, k, v = (heads(states @ matrix + bias) for matrix, bias in zip((query, key, value), own, strict=True))
        scores = q @ k.mT / q.shape[-1] ** (2 / 3) + (1 - batch["attention_mask"])[:, None, None] * -10000.0
        states = (scores.softmax(-1) @ v).transpose(1, 2).reshape(hidden.shape)
        hidden = hidden + states @ out + weights[f"{layer}.block.output.bias"]
        states = norm(f"{layer}.PostAttentionLayerNorm", hidden)
        states = functional.gelu(states @ inner + weights[f"{layer}.intermediate.bias"])
        hidden = hidden + states @ outer + weights[f"{layer}.output.bias"]
    hidden = norm("encoder.FinalLayerNorm", hidden)
    return hidden, hidden[:, 0] @ pooler + weights["pooler.bias"]
