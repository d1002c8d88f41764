"""The names, sizes and families of backbones, and checks of backbones and tokenizers before anything runs.

Imports neither torch nor transformers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.configuration import EncoderConfig, TrainingConfig
from trainables.encoders.architectures import (
    FAMILIES,
    NEW_POOLERS,
    NYSTROM_FAMILIES,
    ROBERTAS,
    check_architecture,
    find_fault,
    has_pooler,
    read_architecture,
)
from trainables.encoders.sharebert_slices import compute_slices
from trainables.encoders.weights import Weight, list_shards, read_header
from trainables.files.sources import (
    HUB_SECONDS,
    NOT_CHECKED,
    Unusable,
    go_offline_if_unreachable,
    hash_of_file,
    hub_errors,
)

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo

_SMALL: Mapping[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 256,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}


def _albert(hidden_size: int, num_layers: int, num_heads: int) -> Mapping[str, Any]:
    """Build a configuration of ALBERT (arXiv:1909.11942, table 1; albert_config.json in google-research/albert)."""
    return {
        "model_type": "albert",
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "intermediate_size": 4 * hidden_size,
        "max_position_embeddings": 512,
    }


# Published backbones by name, made here with random weights. Each value is a `transformers` configuration; missing
# fields have the family's defaults. Parameter counts: tests/trainables/encoders/test_published_sizes.py.
PUBLISHED_SIZES: Mapping[str, Mapping[str, Any]] = {
    # hidden size, layers, heads
    "albert-base": _albert(768, 12, 12),
    "albert-large": _albert(1024, 24, 16),
    "albert-xlarge": _albert(2048, 24, 16),
    "albert-xxlarge": _albert(4096, 12, 64),
    # arXiv:2003.10555, table 6 (google-research/electra, configure_pretraining.py): the discriminator.
    "electra-small": {"model_type": "electra", "embedding_size": 128, "max_position_embeddings": 512, **_SMALL},
    # shoarora/lmtuners, experiments/disc_lm_small: ALECTRA's discriminator, and a BERT as wide as ELECTRA-small.
    "alectra-small": {"model_type": "albert", "embedding_size": 128, "max_position_embeddings": 128, **_SMALL},
    "bert-small": {"model_type": "bert", "max_position_embeddings": 128, **_SMALL},
    # AAAI 2024, 29781 (jchenghu/sharebert, README): width 2048, 16 heads. The original trained 30528 embeddings, of
    # which 6 belong to no token.
    "sharebert-small": {"model_type": "sharebert", "factor_size": 128, "num_hidden_layers": 12},
    "sharebert-base": {"model_type": "sharebert", "factor_size": 384, "num_hidden_layers": 12},
    "sharebert-large": {"model_type": "sharebert", "factor_size": 768, "num_hidden_layers": 6},
}


MINI_BACKBONES = ("mini-albert", "mini-bert", "mini-electra", "mini-roberta", "mini-sharebert")
MINI_LAYERS = 6
# Backbones that are made here with random weights (neither folders nor hub names), and the version of each. Trial keys
# contain the version: change it (to any new text) only if the backbone's weights, tokens or outputs change. The first
# versions are hashes of former source files.
UNTRAINED: Mapping[str, str] = {
    "mini-albert": "19aa5b248e942a92",
    "mini-bert": "19aa5b248e942a92",
    "mini-electra": "19aa5b248e942a92",
    "mini-roberta": "19aa5b248e942a92",
    "mini-sharebert": "a36a8ecdaa3eac84",
    "albert-base": "f4a1ed7ad8c37f66",
    "albert-large": "fa88fc3a963fc2c1",
    "albert-xlarge": "ca942ebe3eaec9b6",
    "albert-xxlarge": "cf6de12df7a3a6dc",
    "electra-small": "863daaec01c68f41",
    "alectra-small": "4bc1edd0339fb2e3",
    "bert-small": "8cc6ff86219a5dc0",
    "sharebert-small": "d84df775bf92509a",
    "sharebert-base": "7541d8eae8ef642c",
    "sharebert-large": "142c988b7685e306",
}

# Old hub names of these families have no owner; the hub redirects each of them to OWNER/NAME.
_BARE_HUB_NAMES: Mapping[str, tuple[str, ...]] = {  # owner -> names
    "albert": tuple(f"albert-{size}-v{n}" for size in ("base", "large", "xlarge", "xxlarge") for n in (1, 2)),
    "google-bert": (
        *("bert-base-chinese", "bert-base-cased-finetuned-mrpc"),
        *(f"bert-base-german-{name}" for name in ("cased", "dbmdz-cased", "dbmdz-uncased")),
        *(f"bert-{size}-{case}" for size in ("base", "large", "base-multilingual") for case in ("uncased", "cased")),
        *(f"bert-large-{case}-whole-word-masking" for case in ("uncased", "cased")),
        *(f"bert-large-{case}-whole-word-masking-finetuned-squad" for case in ("uncased", "cased")),
    ),
    "FacebookAI": ("roberta-base", "roberta-large", "roberta-large-mnli"),
    "distilbert": ("distilroberta-base",),
    "openai-community": ("roberta-base-openai-detector", "roberta-large-openai-detector"),
}
_OWNERS = {name: owner for owner, names in _BARE_HUB_NAMES.items() for name in names}

_LICENCES = {  # start of a hub name -> licence on its page, read on 2026-11-25
    "albert/": "apache-2.0",
    "google-bert/": "apache-2.0",  # not verified
    "google/electra": "apache-2.0",
    "FacebookAI/roberta": "mit",
    "sentence-transformers/all-MiniLM": "apache-2.0",
}

_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_LIKE_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".ckpt", ".index", ".index.json")
PRETRAINING_FILE = "pretraining.json"  # record of the pretraining; not in fingerprints, because it contains times
_ADAPTER = "adapter_config.json"
_SENTENCE_POOLING = "1_Pooling/config.json"  # written by sentence-transformers
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "spiece.model", "spm.model", "sentencepiece.bpe.model", "vocab.json")
_MENUS = {
    "backbone": f"a folder, a hub name, {', '.join(UNTRAINED)}",
    "tokenizer": "a folder, a hub name",
}


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
            f"for other commands: --tokenizer NAME): {_MENUS['tokenizer']}"
        )
    elif backbone not in MINI_BACKBONES:
        _check_files("backbone", backbone, {"tokenizer": _TOKENIZERS})
    if backbone not in MINI_BACKBONES and not is_hub_name(backbone) and is_folder(tokenizer or backbone):
        _check_embeddings(backbone, Path(tokenizer or backbone))


def check_spelling(name: str, *, kind: str = "backbone") -> None:
    """Reject files, misspelt names of untrained backbones, and misspelt hub names without an owner.

    Names in the local cache are accepted.

    Raises:
        ValueError: if the name is that of a file, or nearly equals a known one; the message suggests the nearest name.
    """
    if is_hub_name(name) and Path(name).is_file():
        raise ValueError(f"{kind} {name!r} is a file; allowed: {_MENUS[kind]}")
    bare = hub_revision(name)[0]
    known = (*_OWNERS,) if kind == "tokenizer" else (*UNTRAINED, *_OWNERS)
    if not is_hub_name(name) or "/" in bare or bare in known:
        return
    near = get_close_matches(bare, known)
    if near and not _find_cached_files(name):
        raise ValueError(f"no {kind} is named {name!r}; allowed: {_MENUS[kind]}, OWNER/NAME; did you mean {near[0]}?")


def check_weights(backbone: str) -> None:
    """Check that a backbone's model can be loaded on this machine, without checking its tokenizer.

    The names, shapes and number types of the weights must be those that config.json needs. Only the headers of the
    weights files are read. Weights on the hub are checked only if they are in the local cache or are safetensors.

    Raises:
        ValueError: if the backbone or a file is missing, damaged or not supported.
    """
    if backbone in UNTRAINED:
        return
    parts = {"configuration": ("config.json",)} | ({} if is_untrained(backbone) else {"weights": _WEIGHTS})
    files = _check_files("backbone", backbone, parts)
    if _ADAPTER in files:
        raise Unusable(
            f"backbone {backbone!r} has an adapter ({_ADAPTER}), which is not implemented; merge it into the weights"
        )
    find_family(backbone)
    configuration = _read_configuration(backbone)
    try:
        check_architecture(configuration)
    except ValueError as error:
        raise Unusable(f"backbone {backbone!r}: {error}") from error
    if configuration["model_type"] == "sharebert":
        compute_slices(configuration)
    if configuration.get("conv_kernel_size") is not None and _WEIGHTS[0] not in files:
        raise Unusable(f"backbone {backbone!r}: config.json has conv_kernel_size; allowed only with {_WEIGHTS[0]}")
    file, weights = _read_weights(backbone)
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
    _, weights = _read_weights(backbone)
    return bool(weights) and not has_pooler(_read_configuration(backbone), weights)


def is_trained_on_mean(backbone: str) -> bool:
    """Check whether a backbone of sentence-transformers was trained on the mean of its tokens, without its pooler.

    Weights in the local cache of the hub without the description of the pooling are assumed to use their pooler.

    Raises:
        ValueError: if the hub cannot be reached.
    """
    if backbone in UNTRAINED or is_untrained(backbone):
        return False
    file = Path(backbone) / _SENTENCE_POOLING if is_folder(backbone) else _find_hub_pooling(backbone)
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
    return _read_configuration(backbone).get("num_hidden_layers")


def estimate_model_bytes(backbone: str) -> int | None:
    """Estimate the bytes of a model's float32 weights from the backbone's configuration, without the classifier.

    Return None if the configuration lacks a size, as for tiny backbones.
    """
    sizes = _read_configuration(backbone)
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
    sizes = _read_configuration(backbone)
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
    return _read_configuration(backbone).get("conv_kernel_size")


def check_tokenizer(name: str) -> set[str]:
    """Check that a tokenizer can be loaded from a folder or the hub, and return the names of its files.

    Raises:
        ValueError: if the name is neither a folder nor on the hub, or the tokenizer is missing or damaged.
    """
    return _check_files("tokenizer", name, {"tokenizer": _TOKENIZERS}) & {*_TOKENIZERS, "tokenizer_config.json"}


def backbone_fingerprint(backbone: str, *, kind: str = "backbone") -> str:
    """Return a fingerprint of the content of a backbone or tokenizer.

    The fingerprint of a folder is the hash of its files. For a hub name, it is `NAME@COMMIT`. For a backbone in
    `UNTRAINED`, it is `NAME@VERSION`.

    Raises:
        ValueError: if the hub does not have the name, or cannot be reached.
    """
    if backbone in UNTRAINED:
        return f"{backbone}@{UNTRAINED[backbone]}"
    if is_folder(backbone):
        return f"sha256:{_hash_files(Path(backbone), _list_folder_files(kind, backbone))}"
    with _hub_errors(kind, backbone):
        snapshot = _find_snapshot(backbone)  # loading looks there first
        commit = snapshot.name if snapshot else _ask_hub(backbone).sha
    return f"{hub_revision(backbone)[0]}@{commit}"


def backbone_digest(backbone: str, *, kind: str = "backbone") -> str:
    """Hash the files in a backbone's folder or hub cache to 16 hexadecimal digits.

    For a backbone in `UNTRAINED`, return its version.
    """
    if backbone in UNTRAINED:
        return UNTRAINED[backbone]
    folder = Path(backbone) if is_folder(backbone) else _find_snapshot(backbone)
    assert folder is not None
    return _hash_files(folder, _list_folder_files(kind, str(folder)))


def pinned(backbone: str, fingerprint: str) -> str:
    """Pin a hub name to the commit in its fingerprint; return any other name unchanged."""
    return fingerprint if is_hub_name(backbone) and "@" in fingerprint else backbone


def make_absolute(backbone: str) -> str:
    """Make the path of a folder absolute; return other names unchanged."""
    return str(Path(backbone).resolve()) if is_folder(backbone) else backbone


def hub_revision(backbone: str) -> tuple[str, str]:
    """Split `NAME@REVISION` into name and revision. The default revision is `main`."""
    name, _, revision = backbone.partition("@") if is_hub_name(backbone) else (backbone, "", "")
    return name, revision or "main"


def whole_name(backbone: str) -> str:
    """Add the missing owner to a hub name and drop its revision; return any other name unchanged."""
    name = hub_revision(backbone)[0]
    return f"{_OWNERS[name]}/{name}" if name in _OWNERS and is_hub_name(backbone) else name


def find_licence(name: str) -> str | None:
    """Look up a backbone's licence by the hub name OWNER/NAME; return None if the licence is unknown."""
    return next((licence for start, licence in _LICENCES.items() if name.startswith(start)), None)


def is_untrained(backbone: str) -> bool:
    """Check whether a backbone is in `UNTRAINED`, or a folder with a configuration but no weights."""
    if not is_folder(backbone):
        return backbone in UNTRAINED
    folder = Path(backbone)
    has_weights = any(path.name.endswith(_LIKE_WEIGHTS) for path in folder.glob("*"))
    return (folder / "config.json").is_file() and not has_weights and not (folder / PRETRAINING_FILE).is_file()


def is_hub_name(backbone: str) -> bool:
    """Check whether a name is a hub name: NAME or OWNER/NAME, with or without @REVISION."""
    return backbone not in UNTRAINED and not is_folder(backbone)


def is_folder(name: str) -> bool:
    """Check whether a name is an existing folder or looks like a path."""
    looks_like_path = name.startswith((".", "~", os.sep)) or name.count("/") > 1
    return name not in UNTRAINED and (looks_like_path or Path(name).is_dir())


def find_family(backbone: str) -> str:
    """Find a backbone's family, one of `FAMILIES`.

    Raises:
        ValueError: if `config.json` names no family, or a family that is not supported.
    """
    family = _read_configuration(backbone).get("model_type")
    if family is None:
        raise Unusable(f"backbone {backbone!r}: config.json has no model_type; available: {', '.join(FAMILIES)}")
    if family not in FAMILIES:
        raise Unusable(f"backbone {backbone!r} is a {family!r} model; available: {', '.join(FAMILIES)}")
    return family


def choose_attention(family: str) -> str:
    """Choose the attention implementation of `transformers` for a family: SDPA, if its model supports it."""
    return "eager" if family in ("deberta-v2", "mpnet") else "sdpa"


def family_options(family: str) -> dict[str, Any]:
    """Return the options with which the encoders of a family are built.

    The classifiers of RoBERTa, XLM-RoBERTa and MPNet in `transformers` have their own pooler, so their encoders are
    built without one.
    """
    options = {"add_pooling_layer": False} if family in (*ROBERTAS, "mpnet") else {}
    return {**options, "attn_implementation": choose_attention(family)}


_DROPOUTS: Mapping[str, tuple[str, ...]] = {  # fields of the dropout rates inside the encoder
    "distilbert": ("dropout", "attention_dropout"),
    "modernbert": ("embedding_dropout", "attention_dropout", "mlp_dropout"),
}


def dropout_options(config: EncoderConfig, family: str) -> dict[str, float]:
    """Return all dropout rates of a model's configuration. The defaults differ between families."""
    inside = _DROPOUTS.get(family, ("hidden_dropout_prob", "attention_probs_dropout_prob"))
    # ELECTRA and RoBERTa also apply the classifier's dropout below the pooler.
    named = {"distilbert": "seq_classif_dropout", "deberta-v2": "cls_dropout"}
    of_classifier = {named.get(family, "classifier_dropout"): config.classifier_dropout}
    of_pooler = {"pooler_dropout": 0.0} if family == "deberta-v2" else {}  # as in the published models
    return {**dict.fromkeys(inside, config.hidden_dropout), **of_classifier, **of_pooler}


def reserved_positions(family: str, pad_token_id: int) -> int:
    """Return the number of positions that no token uses.

    RoBERTa and XLM-RoBERTa count positions from pad_token_id + 1, and MPNet from 2.
    """
    if family == "mpnet":
        return 2
    return pad_token_id + 1 if family in ROBERTAS else 0


def _read_configuration(backbone: str) -> Mapping[str, Any]:
    if backbone in MINI_BACKBONES:
        return {"model_type": backbone.removeprefix("mini-"), "num_hidden_layers": MINI_LAYERS}
    if backbone in PUBLISHED_SIZES:
        return PUBLISHED_SIZES[backbone]
    path = Path(backbone) / "config.json" if is_folder(backbone) else _find_hub_configuration(backbone)
    try:
        configuration = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise Unusable(f"backbone {backbone!r}: config.json is not JSON ({error})") from error
    return read_architecture(configuration) if isinstance(configuration, dict) else {}


def _check_files(kind: str, name: str, wanted: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Check that a backbone or tokenizer has a file for every wanted part, and return the names of its files.

    Args:
        kind: "backbone" or "tokenizer".
        wanted: maps each part, such as "weights", to its accepted file names. One of these files must exist. In a
            folder, the content of this file is checked too.
    """
    files = _list_folder_files(kind, name) if is_folder(name) else _list_hub_files(kind, name, wanted)
    for what, names in wanted.items():
        if not (found := next((file for file in names if file in files), "")):
            raise ValueError(f"{kind} {name!r} has no {what}; accepted files: {', '.join(names)}")
        if is_folder(name):
            _check_content(f"{kind} {name!r}", Path(name) / found)
    if "tokenizer" in wanted:
        _check_tokenizer_code(f"{kind} {name!r}", Path(name) if is_folder(name) else _find_snapshot(name))
    return files


def _check_tokenizer_code(what: str, folder: Path | None) -> None:
    """Check that a tokenizer in a folder does not need code of its own.

    Raises:
        Unusable: if tokenizer_config.json names code, or is not JSON.
    """
    file = folder and folder / "tokenizer_config.json"
    if not file or not file.is_file():
        return
    try:
        configuration = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Unusable(f"{what} cannot be loaded: {file.name} is not JSON ({error})") from error
    if isinstance(configuration, dict) and configuration.get("auto_map"):
        raise Unusable(f"{what}: {file.name} names its own code (auto_map), which is never run; allowed: no auto_map")


def _check_embeddings(backbone: str, tokenizer: Path) -> None:
    """Check that a backbone has an embedding for every token of the tokenizer in a folder.

    Raises:
        Unusable: if the backbone has fewer embeddings.
    """
    tokens = _count_tokens(next(tokenizer / name for name in _TOKENIZERS if (tokenizer / name).is_file()))
    embeddings = _read_configuration(backbone).get("vocab_size")
    if isinstance(embeddings, int) and tokens > embeddings:
        raise Unusable(f"the tokenizer has {tokens} tokens; backbone {backbone} has {embeddings} embeddings")


def _count_tokens(file: Path) -> int:
    """Count the tokens in one tokenizer file; the tokenizer's other files may add more.

    Raises:
        Exception: if the file is damaged; the type depends on the library that reads the file.
    """
    if file.name == "tokenizer.json":
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(file)).get_vocab_size()
    if file.suffix == ".model":
        from sentencepiece import SentencePieceProcessor

        with suppress(RuntimeError):
            if content := file.read_bytes():
                return SentencePieceProcessor(model_proto=content).get_piece_size()
        raise ValueError("the file is not a complete SentencePiece model")
    text = file.read_text(encoding="utf-8")
    if file.name == "vocab.json":
        return len(json.loads(text))
    words = {*text.split("\n")} - {""}
    if "[UNK]" not in words and not (file.parent / "tokenizer_config.json").is_file():  # BERT's tokenizer needs [UNK]
        raise ValueError("the token [UNK] is missing")
    return len(words)


def _check_content(what: str, file: Path) -> None:
    """Check that a file is not damaged. Of the weights, only the headers are read.

    Raises:
        Unusable: if the file is damaged.
    """
    try:
        if file.name in _TOKENIZERS:
            _count_tokens(file)
        elif file.name in _WEIGHTS:
            read_header(file)
    except OSError:
        raise
    except Exception as error:  # the libraries raise many types
        raise Unusable(f"{what} cannot be loaded: {file.name}: {error}") from error


def _read_weights(backbone: str) -> tuple[str, dict[str, Weight]]:
    """Read the header of a backbone's weights; return the name of the file and the weights, without their content.

    Return no weights if there are none, or if they are on the hub, but neither in the local cache nor safetensors.
    """
    if is_folder(backbone):
        files = {name: Path(backbone) / name for name in _WEIGHTS if (Path(backbone) / name).is_file()}
    else:
        files = _find_cached_files(backbone)
    name = next((name for name in _WEIGHTS if name in files), "")
    if not name:
        return ("", {}) if is_folder(backbone) else ("the file", _read_hub_weights(backbone))
    if is_hub_name(backbone) and name.endswith(".index.json"):
        try:
            list_shards(files[name])
        except ValueError:  # some of the files are not downloaded yet
            return "", {}
    _check_content(f"backbone {backbone!r}", files[name])
    return name, read_header(files[name])


@cache
def _read_hub_weights(name: str) -> dict[str, Weight]:
    """Read the headers of a repository's safetensors files on the hub, without downloading the weights."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError

    repository, revision = hub_revision(name)
    with _hub_errors("backbone", name):
        go_offline_if_unreachable()
        try:
            found = HfApi().get_safetensors_metadata(repository, revision=revision)
        except (NotASafetensorsRepoError, SafetensorsParsingError):
            return {}
    parts = [part.tensors.items() for part in found.files_metadata.values()]
    return {name: Weight(tuple(tensor.shape), tensor.dtype) for part in parts for name, tensor in part}


def _list_folder_files(kind: str, name: str) -> set[str]:
    """List the configuration, weights (all shards) and tokenizer files in a folder."""
    folder = Path(name)
    if not folder.is_dir():
        raise ValueError(f"{kind} {name!r} is not a folder; allowed: {_MENUS[kind]}")
    endings = (".json", ".safetensors", ".bin", ".txt", ".model")
    names = {path.name for path in folder.iterdir() if path.is_file() and path.name.endswith(endings)}
    return names - {PRETRAINING_FILE}


def _hash_files(folder: Path, files: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode())
        digest.update(bytes.fromhex(hash_of_file(folder / name)))
    return digest.hexdigest()[:16]


def _list_hub_files(kind: str, name: str, wanted: Mapping[str, tuple[str, ...]]) -> set[str]:
    """List the cached files of a hub name. If a part in `wanted` is not cached, list the files on the hub instead."""
    with _hub_errors(kind, name):
        cached = _find_cached_files(name)
        if all(cached.keys() & names for names in wanted.values()):
            return set(cached)
        return {sibling.rfilename for sibling in _ask_hub(name).siblings or ()}


def _ask_hub(name: str) -> ModelInfo:
    from huggingface_hub import HfApi

    repository, revision = hub_revision(name)
    go_offline_if_unreachable()
    return HfApi().model_info(repository, revision=revision, timeout=HUB_SECONDS)


def _hub_errors(kind: str, name: str) -> AbstractContextManager[None]:
    offline = f"give a folder, or download the {kind} on another machine, copy its cache and set HF_HUB_OFFLINE=1"
    return hub_errors(f"{kind} {name!r}", allowed=_MENUS[kind], offline=offline)


def _find_cached_files(name: str) -> dict[str, Path]:
    from huggingface_hub import try_to_load_from_cache

    repository, revision = hub_revision(name)
    names = ("config.json", "tokenizer_config.json", *_WEIGHTS, *_TOKENIZERS)
    paths = {file: try_to_load_from_cache(repository, file, revision=revision) for file in names}
    return {file: Path(path) for file, path in paths.items() if isinstance(path, str)}


def _find_snapshot(name: str) -> Path | None:
    """Find the cached folder of a hub name; return None if no file is cached. The folder's name is the commit."""
    return next((path.parent for path in _find_cached_files(name).values()), None)


def _find_hub_pooling(name: str) -> Path | None:
    """Find the description of a hub name's pooling in the cache or, if the weights are not cached, on the hub."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError

    repository, revision = hub_revision(name)
    cached = try_to_load_from_cache(repository, _SENTENCE_POOLING, revision=revision)
    if cached is not None or _find_cached_files(name).keys() & _WEIGHTS:
        return Path(cached) if isinstance(cached, str) else None
    with _hub_errors("backbone", name):
        go_offline_if_unreachable()
        try:
            return Path(hf_hub_download(repository, _SENTENCE_POOLING, revision=revision))
        except EntryNotFoundError:
            return None


def _find_hub_configuration(name: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    if cached := _find_cached_files(name).get("config.json"):
        return cached
    repository, revision = hub_revision(name)
    go_offline_if_unreachable()
    try:
        return Path(hf_hub_download(repository, "config.json", revision=revision))
    except HfHubHTTPError as error:  # for instance because the repository requires a token
        raise ValueError(f"backbone {name!r} cannot be read from the hub: {str(error).splitlines()[0]}") from error
