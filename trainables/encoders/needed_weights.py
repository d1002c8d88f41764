"""The weights that a config.json needs, and the check that a file has them. Imports neither torch nor transformers.

The tests compare the weights with those of the `transformers` models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainables.encoders.architectures import read_position_kinds, read_sizes
from trainables.encoders.weights import FLOATS, Shape, Weight, describe_difference

_PREFIXES = {"deberta-v2": "deberta", "modernbert": "model", "xlm-roberta": "roberta"}  # otherwise the family's name
# Parts of an encoder, as the first components of its weights' names. All other weights of a file belong to a head.
# Only ALBERT, BERT and ShareBERT were pretrained with their pooler. A pooler in files of another family is not used.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "albert": ("embeddings", "encoder", "pooler"),
    "bert": ("embeddings", "encoder", "pooler"),
    "deberta-v2": ("embeddings", "encoder"),
    "distilbert": ("embeddings", "transformer"),
    "electra": ("embeddings", "embeddings_project", "encoder"),
    "modernbert": ("embeddings", "layers", "final_norm"),
    "mpnet": ("embeddings", "encoder"),
    "roberta": ("embeddings", "encoder"),
    "sharebert": ("embeddings", "layers", "final_norm", "pooler"),
    "xlm-roberta": ("embeddings", "encoder"),
}
_CONSTANTS = ("embeddings.position_ids", "embeddings.token_type_ids")  # older versions of transformers saved them
# DeBERTa's files may have position embeddings that the model does not use (position_biased_input is false).
_UNUSED: Mapping[str, tuple[str, ...]] = {"deberta-v2": ("embeddings.position_embeddings.weight",)}
_POOLER = "pooler."


def list_weights(configuration: Mapping[str, Any]) -> dict[str, Shape]:
    """Map the name of each weight of an encoder to its shape. `check_architecture` must have accepted the fields."""
    family = configuration["model_type"]
    sizes = read_sizes(configuration)
    if family in _LISTS:
        return dict(_LISTS[family](sizes, configuration))
    return dict(_list_bert(family, sizes, configuration.get("conv_kernel_size")))


def has_pooler(configuration: Mapping[str, Any], present: Mapping[str, Weight]) -> bool:
    """Check whether a file has the pooler of its family; true if the files of the family never have one."""
    family = configuration["model_type"]
    names = {_rename(name, family) for name in present}
    pooler = [name for name in list_weights(configuration) if name.startswith(_POOLER)]
    return not pooler or any(name in names for name in pooler)


def find_fault(configuration: Mapping[str, Any], present: Mapping[str, Weight], *, has: str) -> str | None:
    """Describe in one line why the weights of a file do not fit a config.json; None if they fit.

    All weights of a pooler may be missing.

    Args:
        present: the names in the file, with or without the family's prefix, such as `bert.`.
        has: the file's name.
    """
    family, needed = configuration["model_type"], list_weights(configuration)
    names = {_rename(name, family): weight for name, weight in present.items()}
    if len(names) < len(present):
        renamed = [_rename(name, family) for name in present]
        twice = next(name for name in renamed if renamed.count(name) > 1)
        sources = " and ".join(name for name in present if _rename(name, family) == twice)
        return f"{has} has several weights for {twice}: {sources}; keep only one of them"
    if not has_pooler(configuration, present):
        needed = {name: shape for name, shape in needed.items() if not name.startswith(_POOLER)}
    ignored = (*_CONSTANTS, *_UNUSED.get(family, ()))
    surplus = [
        name
        for name in names
        if name.partition(".")[0] in _PARTS[family] and name not in needed and name not in ignored
    ]
    shapes = {name: weight.shape for name, weight in names.items()}
    if fault := describe_difference(needed, shapes, needs="config.json", has=has, surplus=surplus):
        return fault + _explain_layers(configuration, names)
    if whole := [name for name in needed if names[name].dtype not in FLOATS]:
        first = f"{whole[0]} is {names[whole[0]].dtype}"
        fault = (
            f"{has} has {len(whole)} of {len(needed)} weights in a number type that is not implemented; first: {first}"
        )
        return f"{fault}; allowed: {', '.join(FLOATS)}"
    return None


def _explain_layers(configuration: Mapping[str, Any], names: Mapping[str, Weight]) -> str:
    """Explain a difference in the number of layers, or of ALBERT's groups of layers; empty if there is none."""
    family = configuration["model_type"]
    pattern, field = r"(?:encoder\.layer|transformer\.layer|layers)\.(\d+)\.", "num_hidden_layers"
    if family == "albert":
        pattern, field = r"encoder\.albert_layer_groups\.(\d+)\.", "num_hidden_groups"
    present = {int(match[1]) for name in names if (match := re.match(pattern, name))}
    wanted = read_sizes(configuration)[field]
    if not present or len(present) == wanted:
        return ""
    difference = f"; {field} is {wanted} in config.json, but {len(present)} in the file"
    can_set = field == "num_hidden_layers" and len(present) > wanted
    remedy = "; to use the first N layers, correct config.json (in a copy of the model) and --set num_hidden_layers=N"
    return difference + remedy * can_set


def _rename(name: str, family: str) -> str:
    """Rename a weight as `transformers` does: without the family's prefix, with the present names of norms.

    Names in the files of ShareBERT's original code become ours.
    """
    if family == "sharebert":
        for pattern, replacement in SHAREBERT_NAMES.items():
            name = re.sub(pattern, replacement, name)
    name = name.removeprefix(f"{_PREFIXES.get(family, family)}.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


# Names in the files of ShareBERT's original code -> ours, with one group at most, as `transformers` allows. The names
# of the embeddings and the pooler are the same.
SHAREBERT_NAMES: Mapping[str, str] = {
    r"^bert\.": "",
    r"^encoder\.FinalLayerNorm\.": "final_norm.",
    r"^encoder\.layer\.(\d+)\.PreAttentionLayerNorm\.": r"layers.\1.attention_norm.",
    r"^encoder\.layer\.(\d+)\.PostAttentionLayerNorm\.": r"layers.\1.feed_forward_norm.",
    r"^encoder\.layer\.(\d+)\.block\.self\.query_bias$": r"layers.\1.biases.query",
    r"^encoder\.layer\.(\d+)\.block\.self\.key_bias$": r"layers.\1.biases.key",
    r"^encoder\.layer\.(\d+)\.block\.self\.value_bias$": r"layers.\1.biases.value",
    r"^encoder\.layer\.(\d+)\.block\.output\.bias$": r"layers.\1.biases.attention_output",
    r"^encoder\.layer\.(\d+)\.intermediate\.bias$": r"layers.\1.biases.intermediate",
    r"^encoder\.layer\.(\d+)\.output\.bias$": r"layers.\1.biases.output",
}


def _linear(name: str, outputs: int, inputs: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _norm(name: str, size: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (size,)
    yield f"{name}.bias", (size,)


def _list_embeddings(sizes: Mapping[str, Any], width: int) -> Iterator[tuple[str, Shape]]:
    tables = {"word": "vocab_size", "position": "max_position_embeddings", "token_type": "type_vocab_size"}
    for table, size in tables.items():
        if size in sizes:
            yield f"embeddings.{table}_embeddings.weight", (sizes[size], width)
    yield from _norm("embeddings.LayerNorm", width)


def _list_after_attention(layer: str, hidden: int, inner: int) -> Iterator[tuple[str, Shape]]:
    """List a layer's weights that come after the attention itself: its output, and the feed-forward network."""
    yield from _linear(f"{layer}.attention.output.dense", hidden, hidden)
    yield from _norm(f"{layer}.attention.output.LayerNorm", hidden)
    yield from _linear(f"{layer}.intermediate.dense", inner, hidden)
    yield from _linear(f"{layer}.output.dense", hidden, inner)
    yield from _norm(f"{layer}.output.LayerNorm", hidden)


def _list_bert(family: str, sizes: Mapping[str, Any], kernel: int | None) -> Iterator[tuple[str, Shape]]:
    """List the weights of BERT, ELECTRA, RoBERTa and XLM-RoBERTa."""
    hidden, inner, width = sizes["hidden_size"], sizes["intermediate_size"], sizes.get("embedding_size")
    yield from _list_embeddings(sizes, width or hidden)
    if width not in (None, hidden):
        yield from _linear("embeddings_project", hidden, width)
    for number in range(sizes["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        for part in ("query", "key", "value"):
            yield from _linear(f"{layer}.attention.self.{part}", hidden, hidden)
        if kernel is not None:
            yield f"{layer}.attention.self.convolution", (sizes["num_attention_heads"], 1, kernel, 1)
        yield from _list_after_attention(layer, hidden, inner)
    if family == "bert":
        yield from _linear(f"{_POOLER}dense", hidden, hidden)


def _list_albert(sizes: Mapping[str, Any], configuration: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    kernel = configuration.get("conv_kernel_size")
    hidden, inner, width = sizes["hidden_size"], sizes["intermediate_size"], sizes["embedding_size"]
    yield from _list_embeddings(sizes, width)
    yield from _linear("encoder.embedding_hidden_mapping_in", hidden, width)
    for group in range(sizes["num_hidden_groups"]):
        for number in range(sizes["inner_group_num"]):
            layer = f"encoder.albert_layer_groups.{group}.albert_layers.{number}"
            yield from _norm(f"{layer}.full_layer_layer_norm", hidden)
            for part in ("query", "key", "value", "dense"):
                yield from _linear(f"{layer}.attention.{part}", hidden, hidden)
            yield from _norm(f"{layer}.attention.LayerNorm", hidden)
            if kernel is not None:
                yield f"{layer}.attention.convolution", (sizes["num_attention_heads"], 1, kernel, 1)
            yield from _linear(f"{layer}.ffn", inner, hidden)
            yield from _linear(f"{layer}.ffn_output", hidden, inner)
    yield from _linear("pooler", hidden, hidden)


def _list_distilbert(sizes: Mapping[str, Any], configuration: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    attention = [f"attention.{part}_lin" for part in ("q", "k", "v", "out")]
    others = ("sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm")
    yield from _list_embeddings(sizes, sizes["hidden_size"])
    yield from _list_layers(sizes, "transformer.layer", attention, others)


def _list_mpnet(sizes: Mapping[str, Any], configuration: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    attention = [f"attention.attn.{part}" for part in ("q", "k", "v", "o")]
    others = ("attention.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm")
    yield from _list_embeddings(sizes, sizes["hidden_size"])
    yield from _list_layers(sizes, "encoder.layer", attention, others)
    shape = sizes["relative_attention_num_buckets"], sizes["num_attention_heads"]
    yield "encoder.relative_attention_bias.weight", shape


def _list_layers(
    sizes: Mapping[str, Any], path: str, attention: Sequence[str], others: tuple[str, str, str, str]
) -> Iterator[tuple[str, Shape]]:
    """List the weights of layers: the linear maps of attention, its norm, two more maps and the last norm."""
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    attention_norm, first, second, last_norm = others
    for number in range(sizes["num_hidden_layers"]):
        layer = f"{path}.{number}"
        for part in attention:
            yield from _linear(f"{layer}.{part}", hidden, hidden)
        yield from _norm(f"{layer}.{attention_norm}", hidden)
        yield from _linear(f"{layer}.{first}", inner, hidden)
        yield from _linear(f"{layer}.{second}", hidden, inner)
        yield from _norm(f"{layer}.{last_norm}", hidden)


def _list_deberta(sizes: Mapping[str, Any], configuration: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    width = configuration.get("embedding_size") or hidden
    yield "embeddings.word_embeddings.weight", (sizes["vocab_size"], width)
    if configuration.get("position_biased_input", True):
        yield "embeddings.position_embeddings.weight", (sizes["max_position_embeddings"], width)
    if sizes["type_vocab_size"]:
        yield "embeddings.token_type_embeddings.weight", (sizes["type_vocab_size"], width)
    if width != hidden:
        yield "embeddings.embed_proj.weight", (hidden, width)
    yield from _norm("embeddings.LayerNorm", hidden)
    is_relative = configuration.get("relative_attention", False)
    kinds = read_position_kinds(configuration)
    own = () if configuration.get("share_att_key", False) or not is_relative else (("c2p", "key"), ("p2c", "query"))
    positions = [f"pos_{part}_proj" for kind, part in own if kind in kinds]
    for number in range(sizes["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        for part in ("query_proj", "key_proj", "value_proj", *positions):
            yield from _linear(f"{layer}.attention.self.{part}", hidden, hidden)
        yield from _list_after_attention(layer, hidden, inner)
    if is_relative:
        spans = (configuration.get(name) or -1 for name in ("position_buckets", "max_relative_positions"))
        span = next((number for number in spans if number > 0), sizes["max_position_embeddings"])
        yield "encoder.rel_embeddings.weight", (2 * span, hidden)
    if configuration.get("norm_rel_ebd", "none") == "layer_norm":
        yield from _norm("encoder.LayerNorm", hidden)


def _list_modernbert(sizes: Mapping[str, Any], configuration: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    biased = {part for part in ("attention", "mlp", "norm") if configuration.get(f"{part}_bias", False)}

    def weights(part: str, name: str, *shape: int) -> Iterator[tuple[str, Shape]]:
        yield f"{name}.weight", shape
        if part in biased:
            yield f"{name}.bias", shape[:1]

    yield "embeddings.tok_embeddings.weight", (sizes["vocab_size"], hidden)
    yield from weights("norm", "embeddings.norm", hidden)
    for number in range(sizes["num_hidden_layers"]):
        layer = f"layers.{number}"
        if number:
            yield from weights("norm", f"{layer}.attn_norm", hidden)
        yield from weights("attention", f"{layer}.attn.Wqkv", 3 * hidden, hidden)
        yield from weights("attention", f"{layer}.attn.Wo", hidden, hidden)
        yield from weights("norm", f"{layer}.mlp_norm", hidden)
        yield from weights("mlp", f"{layer}.mlp.Wi", 2 * inner, hidden)
        yield from weights("mlp", f"{layer}.mlp.Wo", hidden, inner)
    yield from weights("norm", "final_norm", hidden)


def _list_sharebert(sizes: Mapping[str, Any], configuration: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    hidden, width = sizes["hidden_size"], sizes["factor_size"]
    yield "embeddings.word_embeddings.weight", (sizes["vocab_size"], width)
    yield "embeddings.position_embeddings.weight", (sizes["max_position_embeddings"], hidden)
    yield "embeddings.token_type_embeddings.weight", (sizes["type_vocab_size"], hidden)
    yield from _linear("embeddings.factor_linear", hidden, width)
    yield from _linear("embeddings.factor_linear_all", hidden, width)
    yield from _norm("embeddings.pre_factor_norm", width)
    yield from _norm("embeddings.pos_factor_norm", hidden)
    biases = dict.fromkeys(("query", "key", "value", "attention_output", "output"), hidden)
    for number in range(sizes["num_hidden_layers"]):
        yield from _norm(f"layers.{number}.attention_norm", hidden)
        yield from _norm(f"layers.{number}.feed_forward_norm", hidden)
        for name, size in {**biases, "intermediate": sizes["intermediate_size"]}.items():
            yield f"layers.{number}.biases.{name}", (size,)
    yield from _norm("final_norm", hidden)
    yield "pooler.bias", (hidden,)


_LISTS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Iterator[tuple[str, Shape]]]] = {
    "albert": _list_albert,
    "deberta-v2": _list_deberta,
    "distilbert": _list_distilbert,
    "modernbert": _list_modernbert,
    "mpnet": _list_mpnet,
    "sharebert": _list_sharebert,
}
