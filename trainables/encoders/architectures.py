"""The families of encoders: the fields of config.json that are implemented, and the weights that a config.json needs.

Imports neither torch nor transformers. The tests compare the weights with those of the `transformers` models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainables.encoders.weights import FLOATS, Shape, Weight, describe_difference

FAMILIES = ("albert", "bert", "electra", "roberta", "sharebert")

_BERT: Mapping[str, Any] = {  # sizes that a config.json may omit, with their defaults in transformers
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
_SIZES: Mapping[str, Mapping[str, Any]] = {
    "albert": {
        **_BERT,
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "num_hidden_groups": 1,
        "inner_group_num": 1,
    },
    "bert": _BERT,
    "electra": {
        **_BERT,
        "embedding_size": 128,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    },
    "roberta": {**_BERT, "vocab_size": 50265},
    "sharebert": {
        **_BERT,
        "factor_size": 128,
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "max_position_embeddings": 128,
    },
}
_PADS = {"roberta": 1}  # default of pad_token_id; 0 in all other families
# Parts of an encoder, as the first components of its weights' names. All other weights of a file belong to a head. The
# files of ELECTRA and RoBERTa have no pooler that is used here.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "albert": ("embeddings", "encoder", "pooler"),
    "bert": ("embeddings", "encoder", "pooler"),
    "electra": ("embeddings", "embeddings_project", "encoder"),
    "roberta": ("embeddings", "encoder"),
    "sharebert": ("embeddings", "layers", "final_norm", "pooler"),
}
_CONSTANTS = ("embeddings.position_ids", "embeddings.token_type_ids")  # older versions of transformers saved them
_POOLER = "pooler."
# Activations of transformers that have no weights.
ACTIVATIONS = (
    *("gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "gelu_python_tanh"),
    *("gelu_pytorch_tanh", "hardswish", "laplace", "leaky_relu", "linear", "mish", "quick_gelu", "relu", "relu2"),
    *("relu6", "sigmoid", "silu", "sqrtsoftplus", "swish", "tanh"),
)
# Fields that would change the computation, and are not implemented: the values that change nothing.
_FIXED: Mapping[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute",),
    "feed_forward_type": ("original",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "pruned_heads": ({},),
    "layers_to_keep": ([],),
}
# Fields that do not change the encoder's computation.
_HARMLESS = frozenset(
    [
        # metadata
        "architectures",
        "model_type",
        "dtype",
        "torch_dtype",
        "transformers_version",
        "name_or_path",
        "name",
        "language",
        "tokenizer_class",
        "license",
        "tags",
        "prefix",
        "custom_pipelines",
        "sentence_transformers",
        "sbert_ce_default_activation_function",
        "pre_trained",
        "training",
        "output_intermediate",
        "xla_device",
        "vocab_type",
        # heads
        "id2label",
        "label2id",
        "num_labels",
        "label_names",
        "problem_type",
        "finetuning_task",
        "task_specific_params",
        "classifier_dropout",
        "classifier_dropout_prob",
        "summary_type",
        "summary_use_proj",
        "summary_activation",
        "summary_last_dropout",
        "tie_word_embeddings",
        "tie_encoder_decoder",
        "cross_attention_hidden_size",
        # dropout is a field of every method; the rest of training and running
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "initializer_range",
        "gradient_checkpointing",
        "use_cache",
        "chunk_size_feed_forward",
        "attn_implementation",
        "output_past",
        "output_attentions",
        "output_hidden_states",
        "output_scores",
        "return_dict",
        "return_dict_in_generate",
        "torchscript",
        "use_bfloat16",
        "tf_legacy_loss",
        # Nystrom attention, which the method's fields set
        "num_landmarks",
        "segment_means_seq_len",
        # written by Google's code, which does not read them either
        "directionality",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
        "down_scale_factor",
        "gap_size",
        "net_structure_type",
        "num_memory_blocks",
        # text generation
        "max_length",
        "min_length",
        "do_sample",
        "early_stopping",
        "num_beams",
        "num_beam_groups",
        "diversity_penalty",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
        "repetition_penalty",
        "length_penalty",
        "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size",
        "bad_words_ids",
        "num_return_sequences",
        "remove_invalid_values",
        "exponential_decay_length_penalty",
        "suppress_tokens",
        "begin_suppress_tokens",
    ]
)


def check_architecture(configuration: Mapping[str, Any]) -> None:
    """Check that every field of a config.json is implemented here, or does not change the encoder's computation.

    Args:
        configuration: the content of config.json.

    Raises:
        ValueError: if the family or a field is not implemented, or has an impossible value.
    """
    family = configuration.get("model_type")
    if family not in FAMILIES:
        raise ValueError(f"config.json has model_type {json.dumps(family)}; allowed: {', '.join(FAMILIES)}")
    if configuration.get("auto_map"):
        raise ValueError(
            f"config.json names its own code (auto_map), which is never run; allowed: the {family} models of "
            "transformers, without auto_map"
        )
    sizes = _read_sizes(configuration)
    width, heads = sizes["hidden_size"], sizes["num_attention_heads"]
    kernel = _kernel(configuration)
    for name, value in {**sizes, "conv_kernel_size": 1 if kernel is None else kernel}.items():
        if name != "num_attention_heads" and (type(value) is not int or value < 1):
            raise ValueError(f"config.json has {name} {json.dumps(value)}; allowed: a whole number from 1 on")
    if type(heads) is not int or heads < 1 or width % heads:
        raise ValueError(f"num_attention_heads is {json.dumps(heads)}; allowed: a divisor of hidden_size ({width})")
    _check_pad(family, configuration, sizes["vocab_size"])
    epsilon = configuration.get("layer_norm_eps", 1e-12)
    if type(epsilon) not in (int, float) or not 0 < epsilon < 1:
        raise ValueError(f"config.json has layer_norm_eps {json.dumps(epsilon)}; allowed: a number between 0 and 1")
    allowed: dict[str, tuple[Any, ...]] = {
        **_FIXED,
        "hidden_act": ("gelu",) if family == "sharebert" else ACTIVATIONS,
        **({} if "embedding_size" in sizes else {"embedding_size": (sizes["hidden_size"],)}),
    }
    known = {*sizes, "layer_norm_eps", "conv_kernel_size", *_HARMLESS}
    for name, value in configuration.items():
        if name in known or name.startswith("_") or name.endswith(("_token_id", "_token_ids")) or value is None:
            continue
        if name not in allowed and value not in ({}, [], ""):
            raise ValueError(
                f"config.json sets {name} to {json.dumps(value)}, which is not implemented for {family} models; if it "
                "does not change the outputs of the model, delete it from config.json"
            )
        if name in allowed and value not in allowed[name]:
            menu = ", ".join(map(json.dumps, allowed[name]))
            fault = f"config.json sets {name} to {json.dumps(value)}, which is not implemented"
            raise ValueError(f"{fault}; allowed: {menu}")


def _check_pad(family: str, configuration: Mapping[str, Any], vocab_size: int) -> None:
    pad = configuration.get("pad_token_id", _PADS.get(family, 0))
    if pad is None and family != "roberta":
        return
    if type(pad) is not int or not 0 <= pad < vocab_size:
        why = ", because roberta models count positions from it (usually 1)" if family == "roberta" else ""
        raise ValueError(
            f"config.json has pad_token_id {json.dumps(pad)}; allowed: a whole number from 0 to {vocab_size - 1}{why}"
        )


def _read_sizes(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Read the sizes of an encoder; omitted sizes have the defaults of the family."""
    defaults = _SIZES[configuration["model_type"]]
    return {name: configuration.get(name, size) for name, size in defaults.items()}


def _kernel(configuration: Mapping[str, Any]) -> Any:
    return configuration.get("conv_kernel_size")


def list_weights(configuration: Mapping[str, Any]) -> dict[str, Shape]:
    """Map the name of each weight of an encoder to its shape. `check_architecture` must have accepted the fields."""
    family = configuration["model_type"]
    sizes = _read_sizes(configuration)
    if family == "sharebert":
        return dict(_list_sharebert(sizes))
    lines = _list_albert if family == "albert" else _list_bert
    return dict(lines(family, sizes, _kernel(configuration)))


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
    surplus = [
        name
        for name in names
        if name.partition(".")[0] in _PARTS[family] and name not in needed and name not in _CONSTANTS
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
    pattern, field = r"(?:encoder\.layer|layers)\.(\d+)\.", "num_hidden_layers"
    if family == "albert":
        pattern, field = r"encoder\.albert_layer_groups\.(\d+)\.", "num_hidden_groups"
    present = {int(match[1]) for name in names if (match := re.match(pattern, name))}
    wanted = configuration.get(field, _SIZES[family][field])
    if not present or len(present) == wanted:
        return ""
    difference = f"; {field} is {wanted} in config.json, but {len(present)} in the file"
    can_set = field == "num_hidden_layers" and len(present) > wanted
    return difference + "; to use the first N layers, correct config.json and --set num_hidden_layers=N" * can_set


def _rename(name: str, family: str) -> str:
    """Rename a weight as `transformers` does: without the family's prefix, with the present names of norms."""
    name = name.removeprefix(f"{family}.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _linear(name: str, outputs: int, inputs: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _norm(name: str, size: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (size,)
    yield f"{name}.bias", (size,)


def _list_embeddings(sizes: Mapping[str, Any], width: int) -> Iterator[tuple[str, Shape]]:
    tables = {"word": "vocab_size", "position": "max_position_embeddings", "token_type": "type_vocab_size"}
    for table, size in tables.items():
        yield f"embeddings.{table}_embeddings.weight", (sizes[size], width)
    yield from _norm("embeddings.LayerNorm", width)


def _list_bert(family: str, sizes: Mapping[str, Any], kernel: int | None) -> Iterator[tuple[str, Shape]]:
    """List the weights of BERT, ELECTRA and RoBERTa."""
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
        yield from _linear(f"{layer}.attention.output.dense", hidden, hidden)
        yield from _norm(f"{layer}.attention.output.LayerNorm", hidden)
        yield from _linear(f"{layer}.intermediate.dense", inner, hidden)
        yield from _linear(f"{layer}.output.dense", hidden, inner)
        yield from _norm(f"{layer}.output.LayerNorm", hidden)
    if family == "bert":
        yield from _linear(f"{_POOLER}dense", hidden, hidden)


def _list_albert(family: str, sizes: Mapping[str, Any], kernel: int | None) -> Iterator[tuple[str, Shape]]:
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


def _list_sharebert(sizes: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
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
