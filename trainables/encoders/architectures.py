"""The families of encoders and the fields of config.json that are implemented, without torch or transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from typing import Any

FAMILIES = (
    *("albert", "bert", "deberta-v2", "distilbert", "electra", "modernbert", "mpnet", "roberta", "sharebert"),
    "xlm-roberta",
)

_BERT: Mapping[str, Any] = {  # sizes that a config.json may omit, with their defaults in transformers
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
_WITHOUT_TYPES = {name: size for name, size in _BERT.items() if name != "type_vocab_size"}
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
    "deberta-v2": {
        **_BERT,
        "vocab_size": 128100,
        "hidden_size": 1536,
        "num_hidden_layers": 24,
        "num_attention_heads": 24,
        "intermediate_size": 6144,
        "type_vocab_size": 0,
    },
    "distilbert": {**_WITHOUT_TYPES, "num_hidden_layers": 6},
    "electra": {
        **_BERT,
        "embedding_size": 128,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    },
    "modernbert": {
        **_WITHOUT_TYPES,
        "vocab_size": 50368,
        "num_hidden_layers": 22,
        "intermediate_size": 1152,
        "max_position_embeddings": 8192,
        "local_attention": 128,
    },
    "mpnet": {**_WITHOUT_TYPES, "vocab_size": 30527, "relative_attention_num_buckets": 32},
    "roberta": {**_BERT, "vocab_size": 50265},
    "sharebert": {
        **_BERT,
        "factor_size": 128,
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "max_position_embeddings": 128,
    },
    "xlm-roberta": _BERT,
}
# Names of fields in the files of a family -> names of the same fields in the other families.
_ALIASES: Mapping[str, Mapping[str, str]] = {
    "distilbert": {
        "dim": "hidden_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "hidden_dim": "intermediate_size",
        "activation": "hidden_act",
    },
    "modernbert": {"norm_eps": "layer_norm_eps", "hidden_activation": "hidden_act"},
}
NYSTROM_FAMILIES = ("albert", "bert", "electra")
ROBERTAS = ("roberta", "xlm-roberta")  # families that count positions from pad_token_id
_PADS = {"roberta": 1, "xlm-roberta": 1, "mpnet": 1, "modernbert": 50283}  # defaults of pad_token_id, otherwise 0
# Families without a trained pooler.
NEW_POOLERS = ("deberta-v2", "distilbert", "electra", "modernbert", "mpnet", "roberta", "xlm-roberta")
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
_FIXED_OF_FAMILY: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "deberta-v2": {"norm_rel_ebd": ("layer_norm", "none")},
    "sharebert": {  # the last four are written by the original code
        "hidden_act": ("gelu",),
        "encoder_ln_mode": ("pre-ln",),
        "useLN": (True,),
        "layernorm_embedding": (False,),
        "layer_norm_type": ("apex", "pytorch"),
    },
}
# Fields of a family that change the computation, and that its model in transformers reads: their types.
_READ: Mapping[str, Mapping[str, type]] = {
    "deberta-v2": {
        "relative_attention": bool,
        "max_relative_positions": int,
        "position_buckets": int,
        "position_biased_input": bool,
        "pos_att_type": object,  # "p2c|c2p" or a list
        "share_att_key": bool,
        "embedding_size": int,
    },
    "modernbert": {
        "layer_types": list,
        "global_attn_every_n_layers": int,
        "rope_parameters": dict,
        "rope_scaling": dict,
        "global_rope_theta": float,
        "local_rope_theta": float,
        "attention_bias": bool,
        "mlp_bias": bool,
        "norm_bias": bool,
    },
}
_NUMBERS = ("dropout", "_dropout_prob", "initializer_range")  # how the names of numbers end
_TYPES = {bool: "true or false", int: "a whole number", float: "a number", list: "a list", dict: "an object"}
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
        "classifier_bias",
        "classifier_pooling",
        "cls_dropout",
        "decoder_bias",
        "legacy",
        "pooler_dropout",
        "qa_dropout",
        "seq_classif_dropout",
        "sparse_mask_prediction",
        "sparse_pred_ignore_index",
        "sparse_prediction",
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
        "attention_dropout",
        "dropout",
        "embedding_dropout",
        "mlp_dropout",
        "initializer_cutoff_factor",
        "sinusoidal_pos_embds",
        "deterministic_flash_attn",
        "fused_linear_layer",
        "reference_compile",
        "repad_logits_with_grad",
        "tie_weights_",
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


def read_architecture(content: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the content of a config.json: one name for each field in all families, and ShareBERT's own family.

    The original code of ShareBERT writes the family `bert`, and an epsilon that its model does not use.
    """
    family = content.get("model_type")
    if "factor_size" in content and family in ("bert", "roberta"):
        return {**content, "model_type": "sharebert", "layer_norm_eps": 1e-5}
    aliases = _ALIASES.get(family, {}) if isinstance(family, str) else {}
    plain = {name: value for name, value in content.items() if name not in aliases}
    return plain | {name: content[alias] for alias, name in aliases.items() if alias in content}


def read_family(configuration: Mapping[str, Any]) -> str:
    """Read the family, one of `FAMILIES`, from the content of a config.json.

    Raises:
        ValueError: if there is none, or it is not implemented.
    """
    family = configuration.get("model_type")
    if family not in FAMILIES:
        wrong = "no model_type" if family is None else f"model_type {json.dumps(family)}"
        raise ValueError(f"config.json has {wrong}; allowed: {', '.join(FAMILIES)}")
    return str(family)


def check_architecture(configuration: Mapping[str, Any]) -> None:
    """Check that every field of a config.json is implemented here, or does not change the encoder's computation.

    Args:
        configuration: the content of config.json, read by `read_architecture`.

    Raises:
        ValueError: if the family or a field is not implemented, or has an impossible value.
    """
    family = read_family(configuration)
    if configuration.get("auto_map"):
        raise ValueError(
            f"config.json names its own code (auto_map), which is never run; allowed: the {family} models of "
            "transformers, without auto_map; if it is one of them, use a folder with a copy, without auto_map"
        )
    sizes = read_sizes(configuration)
    _check_sizes(family, configuration, sizes)
    _check_pad(family, configuration, sizes["vocab_size"])
    read = _READ.get(family, {})
    for name, kind in read.items():
        value = configuration.get(name)
        if value is not None and not (isinstance(value, kind) or (kind is float and type(value) is int)):
            raise ValueError(f"config.json has {name} {json.dumps(value)}; allowed: {_TYPES[kind]}")
    for name, value in configuration.items():
        if name.endswith(_NUMBERS) and value is not None and type(value) not in (int, float):
            raise ValueError(f"config.json has {name} {json.dumps(value)}; allowed: {_TYPES[float]}")
    if unknown := [kind for kind in read_position_kinds(configuration) if kind not in ("c2p", "p2c")]:
        raise ValueError(f"config.json has {json.dumps(unknown[0])} in pos_att_type; allowed: c2p, p2c")
    width = sizes["hidden_size"]
    allowed: dict[str, tuple[Any, ...]] = {
        **_FIXED,
        "hidden_act": ACTIVATIONS,
        "pooler_hidden_act": ACTIVATIONS,
        "classifier_activation": ACTIVATIONS,
        "pooler_hidden_size": (width,),
        "attention_head_size": (width // sizes["num_attention_heads"],),
        **({} if "embedding_size" in (*sizes, *read) else {"embedding_size": (width,)}),
        "emb_size": (sizes.get("embedding_size", width),),  # TinyBERT's name; transformers does not read it
        **_FIXED_OF_FAMILY.get(family, {}),
    }
    _check_fields(family, configuration, allowed, known={*sizes, *read, "layer_norm_eps", *_HARMLESS})


def _check_sizes(family: str, configuration: Mapping[str, Any], sizes: Mapping[str, Any]) -> None:
    """Check the sizes of an encoder, and the epsilon of its norms."""
    width, heads = sizes["hidden_size"], sizes["num_attention_heads"]
    kernel = configuration.get("conv_kernel_size")
    for name, value in {**sizes, "conv_kernel_size": 1 if kernel is None else kernel}.items():
        least = 0 if (family, name) == ("deberta-v2", "type_vocab_size") else 1
        if name != "num_attention_heads" and (type(value) is not int or value < least):
            fault = f"config.json has {_written(name, family)} {json.dumps(value)}"
            raise ValueError(f"{fault}; allowed: a whole number from {least} on")
    if type(heads) is not int or heads < 1 or width % heads:
        fault = f"{_written('num_attention_heads', family)} is {json.dumps(heads)}"
        raise ValueError(f"{fault}; allowed: a divisor of {_written('hidden_size', family)} ({width})")
    epsilon = configuration.get("layer_norm_eps", 1e-12)
    if type(epsilon) not in (int, float) or not 0 < epsilon < 1:
        fault = f"config.json has {_written('layer_norm_eps', family)} {json.dumps(epsilon)}"
        raise ValueError(f"{fault}; allowed: a number between 0 and 1")


def _check_fields(
    family: str, configuration: Mapping[str, Any], allowed: Mapping[str, tuple[Any, ...]], *, known: Set[str]
) -> None:
    """Check that each field is known, or has one of its allowed values."""
    if family in NYSTROM_FAMILIES:
        known = {*known, "conv_kernel_size"}
    for name, value in configuration.items():
        if name in known or name.startswith("_") or name.endswith(("_token_id", "_token_ids")) or value is None:
            continue
        if name not in allowed and not _is_empty(value):
            raise ValueError(
                f"config.json sets {name} to {json.dumps(value)}, which is not implemented for {family} models; if it "
                "does not change the outputs of the model, use a folder with a copy of the model, without this field"
            )
        if name in allowed and value not in allowed[name]:
            menu = ", ".join(map(json.dumps, allowed[name]))
            fault = f"config.json sets {_written(name, family)} to {json.dumps(value)}, which is not implemented"
            raise ValueError(f"{fault}; allowed: {menu}")


def _is_empty(value: Any) -> bool:
    """Check that a value of config.json states nothing, as the `adapters` of a model without adapters."""
    if isinstance(value, (dict, list)):
        return all(map(_is_empty, value.values() if isinstance(value, dict) else value))
    return value is None or value == ""


def _written(name: str, family: str) -> str:
    """Return the name of a field in the files of a family."""
    return next((alias for alias, plain in _ALIASES.get(family, {}).items() if plain == name), name)


def read_position_kinds(configuration: Mapping[str, Any]) -> list[Any]:
    """Read the kinds of relative attention in a DeBERTa."""
    kinds = configuration.get("pos_att_type") or []
    return [kind.strip() for kind in kinds.lower().split("|")] if isinstance(kinds, str) else list(kinds)


def list_computation_fields(family: str) -> tuple[str, ...]:
    """List the fields of a family's configuration that change outputs, but not the shapes of weights."""
    names = ["model_type", "num_attention_heads", "hidden_act", "layer_norm_eps", *_READ.get(family, ())]
    names += ["pooler_hidden_act", "classifier_activation", "local_attention"]
    names += ["max_position_embeddings"] * (family == "deberta-v2")  # also the buckets of its relative positions
    return tuple(_written(name, family) for name in names)


def _check_pad(family: str, configuration: Mapping[str, Any], vocab_size: int) -> None:
    pad = configuration.get("pad_token_id", _PADS.get(family, 0))
    if pad is None and family not in ROBERTAS:
        return
    if type(pad) is not int or not 0 <= pad < vocab_size:
        why = f", because {family} models count positions from it (usually 1)" if family in ROBERTAS else ""
        raise ValueError(
            f"config.json has pad_token_id {json.dumps(pad)}; allowed: a whole number from 0 to {vocab_size - 1}{why}"
        )


def read_sizes(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Read the sizes of an encoder; omitted sizes have the defaults of the family."""
    defaults = _SIZES[configuration["model_type"]]
    return {name: configuration.get(name, size) for name, size in defaults.items()}
