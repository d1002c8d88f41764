"""Checks of backbones and tokenizers before anything runs, and what their configuration says of them.

Imports neither torch nor transformers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from trainables.configuration import EncoderConfig, TrainingConfig, compute_segment_length
from trainables.encoders.architectures import FAMILIES, NEW_POOLERS, NYSTROM_FAMILIES, check_architecture, read_family
from trainables.encoders.backbone_files import (
    MENUS,
    SENTENCE_POOLING,
    TOKENIZERS,
    WEIGHTS,
    check_embeddings,
    check_files,
    find_cached_files,
    find_hub_pooling,
    read_configuration,
    read_weights,
)
from trainables.encoders.backbone_names import (
    MINI_BACKBONES,
    MINI_BYTES,
    OWNERS,
    PUBLISHED_SIZES,
    UNTRAINED,
    hub_revision,
    is_folder,
    is_hub_name,
    is_untrained,
)
from trainables.encoders.family_options import reserved_positions
from trainables.encoders.needed_weights import find_fault, has_pooler
from trainables.encoders.sharebert_slices import compute_slices
from trainables.files.sources import (
    NOT_CHECKED,
    Unusable,
)

_ADAPTER = "adapter_config.json"


def check_backbone(backbone: str, tokenizer: str | None = None) -> None:
    """Check that a backbone and its tokenizer can be loaded on this machine.

    Args:
        tokenizer: hub name or folder of another tokenizer; None means the backbone's own tokenizer.

    Raises:
        ValueError: if the backbone or a file is missing, damaged or not supported, or if the tokenizer has more tokens
            than the backbone has embeddings.
    """
    check_weights(backbone)
    if tokenizer is not None:
        check_tokenizer(tokenizer)
    elif backbone in PUBLISHED_SIZES:
        raise ValueError(
            f"backbone {backbone!r} has no tokenizer; give one (for study.launch: tokenizer = NAME in the --plan file; "
            f"for other commands: --tokenizer NAME): {MENUS['tokenizer']}"
        )
    elif backbone not in MINI_BACKBONES:
        check_files("backbone", backbone, {"tokenizer": TOKENIZERS})
    if backbone not in MINI_BACKBONES and not is_hub_name(backbone) and is_folder(tokenizer or backbone):
        check_embeddings(backbone, Path(tokenizer or backbone))


def check_spelling(name: str, *, kind: str = "backbone") -> None:
    """Reject files, misspelt names of untrained backbones, and misspelt hub names without an owner.

    Names in the local cache are accepted.

    Raises:
        ValueError: if the name is that of a file, or nearly equals a known one; the message suggests the nearest name.
    """
    if is_hub_name(name) and Path(name).is_file():
        raise ValueError(f"{kind} {name!r} is a file; allowed: {MENUS[kind]}")
    bare = hub_revision(name)[0]
    known = (*OWNERS,) if kind == "tokenizer" else (*UNTRAINED, *OWNERS)
    if not is_hub_name(name) or "/" in bare or bare in known:
        return
    near = get_close_matches(bare, known)
    if near and not find_cached_files(name):
        raise ValueError(f"no {kind} is named {name!r}; allowed: {MENUS[kind]}, OWNER/NAME; did you mean {near[0]}?")


def check_weights(backbone: str) -> None:
    """Check that a backbone's model can be loaded on this machine, without checking its tokenizer.

    The names, shapes and number types of the weights must be those that config.json needs. Only the headers of the
    weights files are read. Weights on the hub are checked only if they are in the local cache or are safetensors.

    Raises:
        ValueError: if the backbone or a file is missing, damaged or not supported.
    """
    if backbone in UNTRAINED:
        return
    parts = {"configuration": ("config.json",)} | ({} if is_untrained(backbone) else {"weights": WEIGHTS})
    files = check_files("backbone", backbone, parts)
    if _ADAPTER in files:
        raise Unusable(
            f"backbone {backbone!r} has an adapter ({_ADAPTER}), which is not implemented; merge it into the weights"
        )
    configuration = read_configuration(backbone)
    try:
        check_architecture(configuration)
    except ValueError as error:
        raise Unusable(f"backbone {backbone!r}: {error}") from error
    if configuration["model_type"] == "sharebert":
        compute_slices(configuration)
    if configuration.get("conv_kernel_size") is not None and WEIGHTS[0] not in files:
        raise Unusable(f"backbone {backbone!r}: config.json has conv_kernel_size; allowed only with {WEIGHTS[0]}")
    file, weights = read_weights(backbone)
    if weights and (fault := find_fault(configuration, weights, has=file)):
        raise Unusable(f"backbone {backbone!r} cannot be loaded: {fault}")


def has_new_pooler(backbone: str) -> bool:
    """Check whether a pretrained backbone lacks the pooler of its family, so that the pooler's weights are random.

    `check_weights` must have accepted the backbone. Weights on the hub that are neither in the local cache nor
    safetensors are assumed to have a pooler.

    Raises:
        ValueError: if the hub cannot be reached.
    """
    if backbone in UNTRAINED or is_untrained(backbone):
        return False
    if find_family(backbone) in NEW_POOLERS:
        return True
    _, weights = read_weights(backbone)
    return bool(weights) and not has_pooler(read_configuration(backbone), weights)


def is_trained_on_mean(backbone: str) -> bool:
    """Check whether a backbone of sentence-transformers was trained on the mean of its tokens, without its pooler.

    Weights in the local cache of the hub without the description of the pooling are assumed to use their pooler.

    Raises:
        ValueError: if the hub cannot be reached.
    """
    if backbone in UNTRAINED or is_untrained(backbone):
        return False
    file = Path(backbone) / SENTENCE_POOLING if is_folder(backbone) else find_hub_pooling(backbone)
    try:
        description = json.loads(file.read_text(encoding="utf-8")) if file else {}
    except (OSError, ValueError):  # not needed to load the backbone
        return False
    if not isinstance(description, dict):
        return False
    return description.get("pooling_mode_mean_tokens") is True or description.get("pooling_mode") == "mean"


def describe_unchecked(names: Sequence[str], families: Sequence[str] = FAMILIES) -> str:
    """Name in one line the data, backbones and tokenizers that a dry run could not check, and the allowed families."""
    allowed = " or ".join(filter(None, [", ".join(families[:-1]), families[-1]]))
    return f"{NOT_CHECKED}{', '.join(names)}; a backbone must be of family {allowed}"


def check_depth(backbone: str, num_layers: int, *, of: str) -> None:
    """Check that a backbone has at least `num_layers` layers.

    Args:
        num_layers: number of layers to use; 0 means all layers.
        of: name of the method, for the message.

    Raises:
        ValueError: if the backbone has fewer layers.
    """
    if not num_layers:  # saves a request to the hub
        return
    depth = count_layers(backbone)
    if depth is not None and num_layers > depth:
        raise ValueError(f"num_hidden_layers of {of} is {num_layers}; backbone {backbone!r} has {depth} layers")


def count_layers(backbone: str) -> int | None:
    """Read a backbone's number of layers from its configuration; return None if the configuration lacks it."""
    return read_configuration(backbone).get("num_hidden_layers")


def estimate_model_bytes(backbone: str) -> int | None:
    """Estimate the bytes of a model's float32 weights from the backbone's configuration, without the classifier.

    Return None if the configuration lacks a size.
    """
    if backbone in MINI_BACKBONES:
        return MINI_BYTES
    sizes = read_configuration(backbone)
    names = ("vocab_size", "hidden_size", "num_hidden_layers")
    if sizes.get("model_type") == "sharebert" or not all(isinstance(sizes.get(name), int) for name in names):
        return None
    vocabulary, width, layers = (sizes[name] for name in names)
    inner, narrow = sizes.get("intermediate_size", 4 * width), sizes.get("embedding_size", width)
    layer = 4 * width * width + 2 * width * inner + inner + 9 * width  # attention, feed-forward, two norms
    embeddings = (vocabulary + sizes.get("max_position_embeddings", 512)) * narrow + narrow * width * (narrow != width)
    unique = sizes.get("num_hidden_groups", 1) if sizes.get("model_type") == "albert" else layers
    return 4 * int(embeddings + unique * layer + width * width)  # the last term is the pooler


def check_positions(backbone: str, max_length: object, *, of: str) -> None:
    """Check that a backbone has at least `max_length` positions. Tiny backbones and hub names are not checked.

    Args:
        of: name of the arm or the recipe, for the message.

    Raises:
        ValueError: if the backbone has fewer than `max_length` positions.
    """
    if is_hub_name(backbone):  # this check alone is not worth a request to the hub
        return
    sizes = read_configuration(backbone)
    positions = sizes.get("max_position_embeddings")  # None for tiny backbones, which are made long enough
    if isinstance(positions, int) and isinstance(max_length, int):
        positions -= reserved_positions(find_family(backbone), sizes.get("pad_token_id", 1))
        if max_length > positions:
            raise ValueError(f"max_length of {of} is {max_length}; backbone {backbone!r} has {positions} positions")


def check_attention(backbone: str, config: EncoderConfig) -> None:
    """Check that a backbone supports the configured attention and kernel size.

    Raises:
        ValueError: if the family has no such attention, or the backbone was pretrained with another kernel size.
    """
    family = find_family(backbone)
    if config.attention == "nystrom" and family not in NYSTROM_FAMILIES:
        menu = ", ".join(NYSTROM_FAMILIES)
        raise ValueError(
            f"attention is nystrom, but backbone {backbone!r} is a {family!r} model; nystrom is available for: {menu}"
        )
    kernel = pretrained_convolution(backbone)
    if kernel is not None and kernel != config.conv_kernel_size:
        raise ValueError(
            f"attention is {config.attention} and conv_kernel_size is {config.conv_kernel_size}, but backbone "
            f"{backbone!r} was pretrained with nystrom and conv_kernel_size {kernel}"
        )


def check_pooling(backbone: str, config: TrainingConfig) -> None:
    """Check that a backbone's pooler can be new, if the configuration asks for a new pooler.

    Raises:
        ValueError: if the pooler of the backbone's family has no matrix of its own.
    """
    if config.pooling == "fresh" and find_family(backbone) == "sharebert":
        raise ValueError(
            f"pooling is fresh, but the pooler of backbone {backbone!r}, a 'sharebert' model, is cut from its word "
            "embeddings and cannot be new; allowed: pooler, first, mean"
        )


def pretrained_convolution(backbone: str) -> int | None:
    """Return the kernel size of a backbone's pretrained Nystrom convolutions, or None if it has none."""
    return read_configuration(backbone).get("conv_kernel_size")


def pretrained_segment_length(backbone: str) -> int | None:
    """Return the number of tokens per landmark of a backbone's pretrained Nystrom attention, or None if it has none."""
    configuration = read_configuration(backbone)
    tokens, landmarks = (configuration.get(name) for name in ("segment_means_seq_len", "num_landmarks"))
    if configuration.get("conv_kernel_size") is None or not (isinstance(tokens, int) and isinstance(landmarks, int)):
        return None
    return compute_segment_length(tokens, landmarks)


def check_tokenizer(name: str) -> set[str]:
    """Check that a tokenizer can be loaded from a folder or the hub, and return the names of its files.

    Raises:
        ValueError: if the name is neither a folder nor on the hub, or the tokenizer is missing or damaged.
    """
    return check_files("tokenizer", name, {"tokenizer": TOKENIZERS}) & {*TOKENIZERS, "tokenizer_config.json"}


def find_family(backbone: str) -> str:
    """Find a backbone's family, one of `FAMILIES`.

    Raises:
        ValueError: if `config.json` names no family, or a family that is not supported.
    """
    configuration = read_configuration(backbone)
    try:
        return read_family(configuration)
    except ValueError as error:
        raise Unusable(f"backbone {backbone!r}: {error}") from error
