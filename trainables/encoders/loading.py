"""Loads encoders and tokenizers from the hub or a folder, and builds untrained ones."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Set
from copy import deepcopy
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from tokenizers.normalizers import BertNormalizer
from transformers import (
    AlbertTokenizer,
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    BertTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging
from transformers.utils.hub import cached_file

from trainables.configuration import EncoderConfig, TrainingConfig
from trainables.configuration.error_text import take_first_line
from trainables.encoders.architectures import read_architecture
from trainables.encoders.backbone_names import (
    MINI_BACKBONES,
    PUBLISHED_SIZES,
    hub_revision,
    is_hub_name,
    is_untrained,
)
from trainables.encoders.backbones import (
    check_attention,
    check_pooling,
    check_tokenizer,
    check_weights,
    find_family,
    pretrained_convolution,
)
from trainables.encoders.block_check import check_blocks
from trainables.encoders.blocks import Stem
from trainables.encoders.family_options import dropout_options, family_options, reserved_positions
from trainables.encoders.layerwise import LayerwiseEncoder, layerwise
from trainables.encoders.mini_backbones import mini_model, word_tokenizer
from trainables.encoders.needed_weights import SHAREBERT_NAMES
from trainables.encoders.nystrom import load_convolutions, with_attention
from trainables.encoders.sharebert import ShareBertConfig
from trainables.files.sources import Unusable


def load_encoder(backbone: str, config: TrainingConfig, *, vocab_size: int) -> LayerwiseEncoder:
    """Load a backbone's encoder, with the dropout, number of layers, attention and pooling of `config`.

    New weights are initialised with PyTorch's global generator.

    Args:
        backbone: a hub name, with or without @REVISION, or a local folder with weights (safetensors or .bin). For
            random weights, give a name in `MINI_BACKBONES` or `PUBLISHED_SIZES`, or a folder that has only a
            configuration.
        vocab_size: number of the tokenizer's tokens.

    Raises:
        ValueError: if the backbone does not exist, is of an unknown family, is too small for the configuration, or
            does not support the configured attention or pooling.
    """
    if backbone in MINI_BACKBONES:
        model = mini_model(find_family(backbone), vocab_size, config)
    else:
        model = load_model(backbone, config)
    check_size(backbone, model.config, config, vocab_size)
    check_attention(backbone, config)
    check_pooling(backbone, config)
    model = with_attention(model, config)
    if pretrained_convolution(backbone) is not None:
        load_convolutions(model, *hub_revision(backbone))
    encoder = layerwise(model, config.num_hidden_layers, config.pooling)
    if isinstance(encoder.embeddings, Stem):
        try:
            check_blocks(encoder, model)
        except ValueError as error:
            raise Unusable(f"backbone {backbone!r} cannot be run layer by layer: {error}") from error
    return encoder


def load_tokenizer(name: str, *, texts: Callable[[], Iterable[str]]) -> PreTrainedTokenizerBase:
    """Load a tokenizer from a folder or the hub; for a tiny backbone, build it from the words of `texts()`.

    Raises:
        ValueError: if the folder or hub repository has no tokenizer.
        Unusable: if the tokenizer cannot be loaded, has no pad token, or does not mark the texts of a pair.
    """
    if name in MINI_BACKBONES:
        return word_tokenizer(texts())
    files = check_tokenizer(name)
    with _explaining_errors("tokenizer", name), quiet_transformers():
        tokenizer = _load_tokenizer_files(files, *hub_revision(name))
        if len(tokenizer) <= len(tokenizer.all_special_ids):  # the class reads none of the files
            raise ValueError(f"{type(tokenizer).__name__} finds no words in {', '.join(sorted(files))}")
        if not hasattr(tokenizer, "backend_tokenizer"):
            raise ValueError(
                f"{type(tokenizer).__name__} is written in Python; allowed: a tokenizer of the library tokenizers"
            )
        if tokenizer.pad_token is None:
            raise ValueError(f"the tokenizer has no pad token; allowed: pad_token in {_CONFIGURATION}")
        _check_texts(tokenizer)
    return tokenizer


def _check_texts(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise ValueError if a text or a pair does not begin with the cls token, or a pair has nothing between its texts.

    A tokenizer without a cls token needs only the separator.
    """
    [single], [pair] = tokenizer("a").encodings or [], tokenizer("a", "b").encodings or []
    cls = tokenizer.cls_token
    if cls is not None and single.tokens[:1] != [cls]:
        raise ValueError(
            f"the text 'a' becomes {' '.join(single.tokens)!r}; allowed: {cls} before the text (post_processor in "
            "tokenizer.json)"
        )
    if (cls is None or pair.tokens[:1] == [cls]) and (0, 1) not in pairwise(pair.sequence_ids):
        return
    allowed = f"{'' if cls is None else f'{cls} before the first text and '}a separator between the texts"
    raise ValueError(
        f"the pair of texts 'a', 'b' becomes {' '.join(pair.tokens)!r}; allowed: {allowed} (post_processor in "
        "tokenizer.json)"
    )


_CONFIGURATION = "tokenizer_config.json"


# Fields of rules in tokenizer.json -> options of the tokenizer's class with the same meaning.
_OPTIONS = {
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
    "add_prefix_space": "add_prefix_space",
    "trim_offsets": "trim_offsets",
}


def _load_tokenizer_files(files: Set[str], place: str, revision: str) -> PreTrainedTokenizerBase:
    """Load a tokenizer. If it has no configuration, choose its class by the name of the vocabulary file.

    The rules are those of tokenizer.json, and options change them only if the configuration states them. `transformers`
    would use the rules and the defaults of the class. Without tokenizer.json, a BERT's vocabulary with capitals is not
    for texts in lower case.
    """
    kind: Any = AutoTokenizer
    if not files & {"tokenizer.json", _CONFIGURATION} and files & {"vocab.txt", "spiece.model"}:
        kind = AlbertTokenizer if "spiece.model" in files else BertTokenizer
    configuration, rules = (
        _read_json(name, place, revision) if name in files else {} for name in (_CONFIGURATION, "tokenizer.json")
    )
    stated = (rules.get("normalizer") or {}) | (rules.get("pre_tokenizer") or {})
    options = {
        option: stated[name] for name, option in _OPTIONS.items() if name in stated and option not in configuration
    }
    tokenizer: PreTrainedTokenizerBase = kind.from_pretrained(place, revision=revision, **options)
    if not hasattr(tokenizer, "backend_tokenizer"):  # `load_tokenizer` refuses it
        return tokenizer
    if rules:
        names: dict[str, Any] = {**tokenizer.special_tokens_map, "model_input_names": tokenizer.model_input_names}
        plain: PreTrainedTokenizerBase = PreTrainedTokenizerFast.from_pretrained(place, revision=revision, **names)
        return tokenizer if _list_rules(tokenizer) == _list_rules(plain) else plain
    if "vocab.txt" in files and "do_lower_case" not in configuration and _has_capitals(tokenizer):
        tokenizer = kind.from_pretrained(place, revision=revision, do_lower_case=False)
    return tokenizer


def _list_rules(tokenizer: Any) -> list[Any]:
    """List the kind of a tokenizer's model, its normalizer and its pre-tokenizer, without options of the class."""
    backend = tokenizer.backend_tokenizer
    rules = [rule and json.loads(rule.__getstate__()) for rule in (backend.normalizer, backend.pre_tokenizer)]
    return [type(backend.model), *({**rule, **dict.fromkeys(_OPTIONS)} for rule in rules if rule)]


def _has_capitals(tokenizer: Any) -> bool:
    """Check whether a tokenizer is a BERT's, and a word of its vocabulary begins with a capital of A to Z."""
    words = tokenizer.get_vocab().keys() - {*tokenizer.all_special_tokens}
    is_bert = isinstance(tokenizer.backend_tokenizer.normalizer, BertNormalizer)
    return is_bert and any("A" <= word[:1] <= "Z" for word in words)


def _read_json(name: str, place: str, revision: str) -> dict[str, Any]:
    """Read a file of a folder or of the hub."""
    file = cached_file(place, name, revision=revision)
    assert file is not None
    content: dict[str, Any] = json.loads(Path(file).read_text(encoding="utf-8"))
    return content


_IN_PLAIN_WORDS = {  # text in a library's message -> replacement; the message advises an option that users cannot set
    "Weights only load failed": "pytorch_model.bin does not contain only weights",
    "ignore_mismatched_sizes": "the shapes of the weights differ from config.json",
}


@contextlib.contextmanager
def _explaining_errors(kind: str, name: str) -> Iterator[None]:
    """Raise `Unusable` for an error in the content of a file. Memory, disk and hub errors remain unchanged."""
    try:
        yield
    except Exception as error:  # the libraries that read such files raise many types
        if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
            raise
        if isinstance(error, OSError) and (error.errno is not None or is_hub_name(name)):
            raise
        line = take_first_line(error)
        known = next((plain for theirs, plain in _IN_PLAIN_WORDS.items() if theirs in line), line)
        raise Unusable(f"{kind} {name!r} cannot be loaded: {known}") from error


@lru_cache(maxsize=1)
def fingerprint_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash everything that affects tokenisation (vocabulary, rules, special tokens) to 16 hexadecimal digits."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    for setting_of_last_call in ("truncation", "padding"):
        del rules[setting_of_last_call]
    content = json.dumps([rules, tokenizer.truncation_side, tokenizer.model_input_names], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def load_configuration(backbone: str, config: EncoderConfig) -> PreTrainedConfig:
    """Load the `transformers` configuration of a backbone that is not tiny, with the dropout of `config`."""
    if backbone in PUBLISHED_SIZES:
        sizes = PUBLISHED_SIZES[backbone]
        return AutoConfig.for_model(**{**sizes, **dropout_options(config, sizes["model_type"])})
    check_weights(backbone)
    place, revision = hub_revision(backbone)
    with _explaining_errors("backbone", backbone), quiet_transformers():
        model_config = AutoConfig.from_pretrained(place, revision=revision)
    if model_config.model_type != find_family(backbone):  # written by ShareBERT's original code
        content = read_architecture(model_config.to_dict())
        fields = {name: content[name] for name in ShareBertConfig.__annotations__ if name in content}
        model_config = ShareBertConfig(**fields)
    model_config.update(dropout_options(config, model_config.model_type))
    if model_config.dtype is not None:  # that of the file; models built from a configuration would take it
        model_config.dtype = torch.float32
    return model_config


def load_model(backbone: str, config: EncoderConfig) -> PreTrainedModel:
    """Load the model of a backbone that is not tiny, with pretrained or random weights."""
    model_config = load_configuration(backbone, config)
    options: dict[str, Any] = family_options(model_config.model_type)
    if is_untrained(backbone):
        return AutoModel.from_config(model_config, **options)
    if model_config.model_type == "sharebert":
        options["key_mapping"] = {**SHAREBERT_NAMES}
    model, info = _load_pretrained(AutoModel, backbone, model_config, **options)
    check_weights(backbone)  # again, because weights on the hub may have been downloaded only now
    if absent := sorted(name for name in info["missing_keys"] if not name.startswith("pooler.")):
        raise Unusable(f"backbone {backbone!r} cannot be loaded: {len(absent)} weights are missing; first: {absent[0]}")
    if spoiled := next((name for name, values in model.named_parameters() if not values.isfinite().all()), None):
        raise Unusable(f"backbone {backbone!r} has nan or infinity in weight {spoiled}; allowed: finite numbers")
    return model


def load_heads(model: PreTrainedModel, backbone: str) -> list[str]:
    """Load the weights of a model's heads from a pretrained backbone; return the names of the heads that it lacks.

    Heads are the parts of the model other than its encoder. Heads that the backbone lacks, or has in another shape,
    remain unchanged. So does a `classifier` from a model of another class, which has learned another task.
    """
    loaded, info = _load_pretrained(type(model), backbone, deepcopy(model.config), ignore_mismatched_sizes=True)
    absent = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}
    if type(model).__name__ not in (model.config.architectures or ()):
        absent.add("classifier.weight")
    heads = {name: head for name, head in model.named_children() if name != model.base_model_prefix}
    new = [name for name in heads if any(weight.startswith(f"{name}.") for weight in absent)]
    for name in heads.keys() - new:
        heads[name].load_state_dict(loaded.get_submodule(name).state_dict())
    return new


def _load_pretrained(
    kind: Any, backbone: str, model_config: PreTrainedConfig, **options: Any
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Load a model of the class `kind`, and describe which weights the files lack."""
    place, revision = hub_revision(backbone)
    options |= {"revision": revision, "dtype": torch.float32, "weights_only": True, "output_loading_info": True}
    with _explaining_errors("backbone", backbone), quiet_transformers():
        return kind.from_pretrained(place, config=model_config, **options)


def check_size(backbone: str, encoder: PreTrainedConfig, config: EncoderConfig, vocab_size: int) -> None:
    """Raise Unusable if the backbone has too few positions or embeddings."""
    positions = encoder.max_position_embeddings - reserved_positions(encoder.model_type, encoder.pad_token_id)
    if config.max_length > positions:
        raise Unusable(f"max_length is {config.max_length}; backbone {backbone} has {positions} positions")
    if vocab_size > encoder.vocab_size:
        raise Unusable(
            f"the tokenizer has {vocab_size} tokens; backbone {backbone} has {encoder.vocab_size} embeddings"
        )


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hide the progress bars and warnings of `transformers` inside the context."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
