"""Names and folders of backbones and tokenizers, checked before anything runs.

Imports neither torch nor transformers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.configuration import EncoderConfig
from trainables.encoders.families import reserved_positions
from trainables.encoders.sharebert_slices import slices_of
from trainables.encoders.word_vocabulary import word_model
from trainables.sources import HUB_SECONDS, Unusable, hash_of_file, hub_errors, reach_or_work_offline

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo
    from tokenizers import Tokenizer

_SMALL: Mapping[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 256,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}


def _albert(hidden_size: int, num_layers: int, num_heads: int) -> Mapping[str, Any]:
    """Configure one of arXiv:1909.11942, table 1; google-research/albert, albert_config.json of each."""
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


# Published backbones, by name with random weights. Each is a configuration of `transformers`: fields that it leaves out
# are its family's defaults there. Counts of parameters: tests/trainables/encoders/test_published_sizes.py.
PUBLISHED_SIZES: Mapping[str, Mapping[str, Any]] = {
    # hidden size, layers, heads
    "albert-base": _albert(768, 12, 12),
    "albert-large": _albert(1024, 24, 16),
    "albert-xlarge": _albert(2048, 24, 16),
    "albert-xxlarge": _albert(4096, 12, 64),
    # arXiv:2003.10555, table 6 (google-research/electra, configure_pretraining.py): the discriminator.
    "electra-small": {"model_type": "electra", "embedding_size": 128, "max_position_embeddings": 512, **_SMALL},
    # shoarora/lmtuners, experiments/disc_lm_small: ALECTRA's discriminator, and BERT of ELECTRA-small's width.
    "alectra-small": {"model_type": "albert", "embedding_size": 128, "max_position_embeddings": 128, **_SMALL},
    "bert-small": {"model_type": "bert", "max_position_embeddings": 128, **_SMALL},
    # AAAI 2024, 29781 (jchenghu/sharebert, README): width 2048, 16 heads. The original trained 30528 embeddings, 6 of
    # them for no token.
    "sharebert-small": {"model_type": "sharebert", "factor_size": 128, "num_hidden_layers": 12},
    "sharebert-base": {"model_type": "sharebert", "factor_size": 384, "num_hidden_layers": 12},
    "sharebert-large": {"model_type": "sharebert", "factor_size": 768, "num_hidden_layers": 6},
}


FAMILIES = ("albert", "bert", "electra", "roberta", "sharebert")
NYSTROM_FAMILIES = ("albert", "bert", "electra")
MINI_BACKBONES = tuple(f"mini-{family}" for family in FAMILIES)
MINI_LAYERS = 6
UNTRAINED = (*MINI_BACKBONES, *PUBLISHED_SIZES)  # made here, with random weights: neither folders nor hub names

# Names without an owner that the hub has for models of these families: its first ones, which it forwards to an owner.
BARE_HUB_NAMES = (
    *(f"albert-{size}-v{version}" for size in ("base", "large", "xlarge", "xxlarge") for version in (1, 2)),
    *(f"bert-{size}-{case}" for size in ("base", "large") for case in ("uncased", "cased")),
    *(f"bert-large-{case}-whole-word-masking" for case in ("uncased", "cased")),
    *(f"bert-large-{case}-whole-word-masking-finetuned-squad" for case in ("uncased", "cased")),
    *(f"bert-base-multilingual-{case}" for case in ("uncased", "cased")),
    *(f"bert-base-german-{name}" for name in ("cased", "dbmdz-cased", "dbmdz-uncased")),
    *("bert-base-chinese", "bert-base-cased-finetuned-mrpc"),
    *("roberta-base", "roberta-large", "roberta-large-mnli", "distilroberta-base"),
    *("roberta-base-openai-detector", "roberta-large-openai-detector"),
)

_OWNERS = {"albert": "albert", "bert": "google-bert", "distilroberta": "distilbert", "roberta": "FacebookAI"}

_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_LIKE_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".ckpt", ".index", ".index.json")
PRETRAINING_FILE = "pretraining.json"  # how a folder was pretrained, with times: no part of its content
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "spiece.model", "vocab.json")
_UNKNOWN = ("[UNK]", "<unk>")
MOST_TEXTS = 1_000  # that `unknown_share` reads
_MENUS = {
    "backbone": f"a folder, a hub name, {', '.join(UNTRAINED)}",
    "tokenizer": "a folder, a hub name",
}


def check_backbone(backbone: str, tokenizer: str | None = None) -> None:
    """Check that a backbone and its tokenizer can be loaded from here.

    Args:
        tokenizer: hub name or folder of a tokenizer that is used instead of the backbone's own, which need not exist.

    Raises:
        ValueError: it is not made here, nor a folder, nor on the hub; it has no weights or no tokenizer; its
            architecture is of another family; one of its files is damaged; a folder's tokenizer has more tokens than it
            has embeddings.
    """
    check_weights(backbone)
    if tokenizer is not None:
        check_tokenizer(tokenizer)
    elif backbone in PUBLISHED_SIZES:
        raise ValueError(f"backbone {backbone!r} has no tokenizer; name one by --tokenizer: {_MENUS['tokenizer']}")
    elif backbone not in MINI_BACKBONES:
        _check_files("backbone", backbone, {"tokenizer": _TOKENIZERS})
    if backbone not in MINI_BACKBONES and not is_hub_name(backbone) and is_folder(tokenizer or backbone):
        _check_embeddings(backbone, Path(tokenizer or backbone))


def check_spelling(name: str, *, kind: str = "backbone") -> None:
    """Check that a name is not a near miss of a backbone that is made here or of a hub name without an owner.

    A name with an owner, or one that resembles no other, is left to the hub; one in the local cache is accepted.

    Raises:
        ValueError: it is a near miss; the message has the nearest names.
    """
    bare = hub_revision(name)[0]
    known = BARE_HUB_NAMES if kind == "tokenizer" else (*UNTRAINED, *BARE_HUB_NAMES)
    if not is_hub_name(name) or "/" in bare or bare in known:
        return
    near = get_close_matches(bare, known)
    if near and not _find_cached_files(name):
        near_names = ", ".join(near)
        raise ValueError(f"no {kind} is named {name!r}; near it are {near_names}; allowed: {_MENUS[kind]}, OWNER/NAME")


def check_weights(backbone: str) -> None:
    """Check that the model of a backbone can be loaded from here.

    Raises:
        ValueError: see `check_backbone`.
    """
    if backbone not in UNTRAINED:
        weights = {} if is_untrained(backbone) else {"weights": _WEIGHTS}
        _check_files("backbone", backbone, {"configuration": ("config.json",), **weights})
        sizes = _read_configuration(backbone)
        if family_of(backbone) == "sharebert":
            slices_of(sizes)
        width, heads = sizes.get("hidden_size"), sizes.get("num_attention_heads")
        if isinstance(width, int) and isinstance(heads, int) and (heads < 1 or width % heads):
            allowed = f"allowed: a divisor of hidden_size, {width}"
            raise Unusable(f"backbone {backbone!r}: num_attention_heads is {heads}; {allowed}")


def check_depth(backbone: str, num_layers: int, *, of: str) -> None:
    """Check that the backbone has so many layers; 0 is all. `of`: who asks.

    Raises:
        ValueError: it has fewer.
    """
    if not num_layers:  # a hub is not asked for nothing
        return
    depth = MINI_LAYERS if backbone in MINI_BACKBONES else _read_configuration(backbone).get("num_hidden_layers")
    if depth is not None and num_layers > depth:
        raise ValueError(f"num_hidden_layers of {of} is {num_layers}; backbone {backbone!r} has {depth} layers")


def check_positions(backbone: str, max_length: object, *, of: str) -> None:
    """Check that a backbone of a published size, or of a folder, has a position for every token. `of`: who asks.

    Raises:
        ValueError: it has fewer.
    """
    if backbone in MINI_BACKBONES or is_hub_name(backbone):  # made as long as needed; not asked for this alone
        return
    sizes = _read_configuration(backbone)
    positions = sizes.get("max_position_embeddings")
    if isinstance(positions, int):
        positions -= reserved_positions(family_of(backbone), sizes.get("pad_token_id", 1))
    if positions is not None and isinstance(max_length, int) and max_length > positions:
        raise ValueError(f"max_length of {of} is {max_length}; backbone {backbone!r} has {positions} positions")


def check_attention(backbone: str, config: EncoderConfig) -> None:
    """Check that the backbone can have the configuration's attention: its family has it, and its convolutions fit.

    Raises:
        ValueError: the family lacks it, or the backbone was pretrained with another.
    """
    family = family_of(backbone)
    if config.attention == "nystrom" and family not in NYSTROM_FAMILIES:
        menu = ", ".join(NYSTROM_FAMILIES)
        raise ValueError(f"attention is nystrom; backbone {backbone!r} is a {family!r} model; available for: {menu}")
    kernel = pretrained_convolution(backbone)
    if kernel is not None and kernel != config.conv_kernel_size:
        raise ValueError(
            f"attention is {config.attention}, conv_kernel_size {config.conv_kernel_size}; backbone {backbone!r} was "
            f"pretrained with nystrom and conv_kernel_size {kernel}"
        )


def pretrained_convolution(backbone: str) -> int | None:
    """Read the kernel size of the convolutions of a backbone pretrained with Nystrom attention; None for others."""
    return None if backbone in MINI_BACKBONES else _read_configuration(backbone).get("conv_kernel_size")


def check_tokenizer(name: str) -> set[str]:
    """Check that a tokenizer can be loaded from here by its hub name or folder, and return its files' names.

    Raises:
        ValueError: it is neither a folder nor on the hub, or holds no tokenizer.
    """
    return _check_files("tokenizer", name, {"tokenizer": _TOKENIZERS}) & {*_TOKENIZERS, "tokenizer_config.json"}


def backbone_fingerprint(backbone: str, *, kind: str = "backbone") -> str:
    """Identify the content of a backbone or tokenizer.

    It is the hash of a folder's files; `NAME@COMMIT` for a hub name, by the local cache or else by the hub; for a
    backbone that is made here `NAME@HASH` of the code and settings that make it.

    Raises:
        ValueError: it is not on the hub, or that cannot be reached.
    """
    if backbone in UNTRAINED:
        settings = str(MINI_LAYERS) if backbone in MINI_BACKBONES else json.dumps(dict(PUBLISHED_SIZES[backbone]))
        return f"{backbone}@{_hash_files(Path(__file__).parent, _list_sources(backbone), settings)}"
    if is_folder(backbone):
        return f"sha256:{_hash_files(Path(backbone), _list_folder_files(kind, backbone))}"
    return f"{hub_revision(backbone)[0]}@{_find_commit(kind, backbone)}"


def backbone_digest(backbone: str, *, kind: str = "backbone") -> str:
    """Hash the files that loading has read on this machine, for a hub name in the local cache; 16 hexadecimal digits.

    A backbone that is made here has the hash of its fingerprint.
    """
    if backbone in UNTRAINED:
        return backbone_fingerprint(backbone).partition("@")[2]
    folder = Path(backbone) if is_folder(backbone) else _find_snapshot(backbone)
    assert folder is not None
    return _hash_files(folder, _list_folder_files(kind, str(folder)))


def pinned(backbone: str, fingerprint: str) -> str:
    """Pin a backbone or tokenizer of the hub to the commit of its fingerprint; any other is returned as it is."""
    return fingerprint if is_hub_name(backbone) and "@" in fingerprint else backbone


def seen_from_anywhere(backbone: str) -> str:
    """Make the path of a folder absolute, for loading from another working directory."""
    return str(Path(backbone).resolve()) if is_folder(backbone) else backbone


def hub_revision(backbone: str) -> tuple[str, str]:
    """Split `NAME@REVISION`; anything else has the revision that loading takes for granted."""
    name, _, revision = backbone.partition("@") if is_hub_name(backbone) else (backbone, "", "")
    return name, revision or "main"


def whole_name(backbone: str) -> str:
    """Complete a hub name by its owner, without a revision; anything else is returned as it is."""
    name = hub_revision(backbone)[0]
    if name not in BARE_HUB_NAMES or not is_hub_name(backbone):
        return name
    owner = _OWNERS[name.partition("-")[0]] if "openai" not in name else "openai-community"
    return f"{owner}/{name}"


def is_untrained(backbone: str) -> bool:
    """Tell whether its weights are random: it is made here, or a folder with a configuration and no weights at all."""
    if backbone in UNTRAINED or not is_folder(backbone):
        return backbone in UNTRAINED
    folder = Path(backbone)
    has_weights = any(path.name.endswith(_LIKE_WEIGHTS) for path in folder.glob("*"))
    return (folder / "config.json").is_file() and not has_weights and not (folder / PRETRAINING_FILE).is_file()


def is_hub_name(backbone: str) -> bool:
    """Recognise NAME and OWNER/NAME, with @REVISION behind or not."""
    return backbone not in UNTRAINED and not is_folder(backbone)


def is_folder(name: str) -> bool:
    """Tell whether the name is a folder's, or written like one."""
    looks_like_path = name.startswith((".", "~", os.sep)) or name.count("/") > 1
    return name not in UNTRAINED and (looks_like_path or Path(name).is_dir())


def family_of(backbone: str) -> str:
    """Find the family, one of `FAMILIES`.

    Raises:
        ValueError: its architecture is another.
    """
    if backbone in MINI_BACKBONES:
        return backbone.removeprefix("mini-")
    family = _read_configuration(backbone).get("model_type")
    if family is None:
        raise Unusable(f"backbone {backbone!r}: config.json has no model_type; available: {', '.join(FAMILIES)}")
    if family not in FAMILIES:
        raise Unusable(f"backbone {backbone!r} is a {family!r} model; available: {', '.join(FAMILIES)}")
    return family


def _list_sources(backbone: str) -> tuple[str, ...]:
    """List the files of this folder that define a backbone that is made here."""
    made_by = ("mini_backbones.py", "word_vocabulary.py") if backbone in MINI_BACKBONES else ()
    # The models of the other families are those of `transformers`.
    model = ("sharebert.py", "sharebert_slices.py") if family_of(backbone) == "sharebert" else ()
    return ("families.py", *made_by, *model)


def _read_configuration(backbone: str) -> Mapping[str, Any]:
    if backbone in PUBLISHED_SIZES:
        return PUBLISHED_SIZES[backbone]
    path = Path(backbone) / "config.json" if is_folder(backbone) else _find_hub_configuration(backbone)
    try:
        configuration = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise Unusable(f"backbone {backbone!r}: config.json is not JSON ({error})") from error
    return configuration if isinstance(configuration, dict) else {}


def _check_files(kind: str, name: str, wanted: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Check that one file of each wanted thing is there, and return all names. `kind`: backbone or tokenizer."""
    files = _list_folder_files(kind, name) if is_folder(name) else _list_hub_files(kind, name, wanted)
    for what, names in wanted.items():
        if not (found := next((file for file in names if file in files), "")):
            raise ValueError(f"{kind} {name!r} has no {what}; looked for {', '.join(names)}")
        if is_folder(name):
            _check_content(f"{kind} {name!r}", Path(name) / found)
    return files


def _check_embeddings(backbone: str, tokenizer: Path) -> None:
    """Check that the backbone has an embedding for every token in the first file of a tokenizer's folder.

    Raises:
        Unusable: it has fewer.
    """
    tokens = _count_tokens(next(tokenizer / name for name in _TOKENIZERS if (tokenizer / name).is_file()))
    embeddings = _read_configuration(backbone).get("vocab_size")
    if isinstance(embeddings, int) and tokens > embeddings:
        raise Unusable(f"the tokenizer has {tokens} tokens, backbone {backbone} {embeddings} embeddings")


def _count_tokens(file: Path) -> int:
    """Count the tokens in a file of a tokenizer; the files beside it may add some.

    Raises:
        Exception: the file is damaged; as its library raises it.
    """
    if file.name == "tokenizer.json":
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(file)).get_vocab_size()
    if file.name == "spiece.model":
        from sentencepiece import SentencePieceProcessor

        with suppress(RuntimeError):
            if content := file.read_bytes():
                return SentencePieceProcessor(model_proto=content).get_piece_size()
        raise ValueError("no whole model of SentencePiece")
    text = file.read_text(encoding="utf-8")
    if file.name == "vocab.json":
        return len(json.loads(text))
    words = {*text.split("\n")} - {""}
    if "[UNK]" not in words and not (file.parent / "tokenizer_config.json").is_file():  # BERT's, which needs it
        raise ValueError("it has no [UNK]")
    return len(words)


def _check_content(what: str, file: Path) -> None:
    """Check that a file can be what its name says; of weights the header alone is read.

    Raises:
        Unusable: it is damaged.
    """
    from safetensors import safe_open

    try:
        if file.name in _TOKENIZERS:
            _count_tokens(file)
        elif file.suffix == ".safetensors":
            with safe_open(file, framework="numpy"):
                pass
        elif file.name.endswith(".index.json"):
            _check_shards(file)
    except OSError:
        raise
    except Exception as error:  # as the libraries raise it
        raise Unusable(f"{what} cannot be loaded: {file.name}: {error}") from error


def _check_shards(index: Path) -> None:
    """Check that every file of weights that an index names is beside it.

    Raises:
        ValueError: it names none, or one is missing.
    """
    content = json.loads(index.read_text(encoding="utf-8"))
    shards = sorted({*content["weight_map"].values()}) if "weight_map" in content else []
    missing = [name for name in shards if not (index.parent / name).is_file()]
    if missing:
        raise ValueError(f"{len(missing)} of its {len(shards)} files are missing, the first is {missing[0]}")
    if not shards:
        raise ValueError("it names no files")


def _list_folder_files(kind: str, name: str) -> set[str]:
    """List the files of a folder that matter: configuration, weights (all shards), tokenizer."""
    folder = Path(name)
    if not folder.is_dir():
        raise ValueError(f"{kind} {name!r} is not a folder; allowed: {_MENUS[kind]}")
    endings = (".json", ".safetensors", ".bin", ".txt", ".model")
    names = {path.name for path in folder.iterdir() if path.is_file() and path.name.endswith(endings)}
    return names - {PRETRAINING_FILE}


def _hash_files(folder: Path, files: Iterable[str], *texts: str) -> str:
    digest = hashlib.sha256("".join(texts).encode())
    for name in sorted(files):
        digest.update(name.encode())
        digest.update(bytes.fromhex(hash_of_file(folder / name)))
    return digest.hexdigest()[:16]


def _list_hub_files(kind: str, name: str, wanted: Mapping[str, tuple[str, ...]]) -> set[str]:
    """List files on the hub: those in the local cache if they are enough, else as the hub lists them."""
    with _hub_errors(kind, name):
        cached = _find_cached_files(name)
        if all(cached.keys() & names for names in wanted.values()):
            return set(cached)
        return {sibling.rfilename for sibling in _ask_hub(name).siblings or ()}


def _find_commit(kind: str, name: str) -> str:
    """Find the commit of a hub name: in the local cache, which loading takes first, else on the hub."""
    with _hub_errors(kind, name):
        snapshot = _find_snapshot(name)
        return snapshot.name if snapshot else str(_ask_hub(name).sha)


def _ask_hub(name: str) -> ModelInfo:
    from huggingface_hub import HfApi

    repository, revision = hub_revision(name)
    reach_or_work_offline()
    return HfApi().model_info(repository, revision=revision, timeout=HUB_SECONDS)


def _hub_errors(kind: str, name: str) -> AbstractContextManager[None]:
    offline = "give a folder, or fetch it once elsewhere, copy the cache and set HF_HUB_OFFLINE=1"
    return hub_errors(f"{kind} {name!r}", allowed=_MENUS[kind], offline=offline)


def _find_cached_files(name: str) -> dict[str, Path]:
    from huggingface_hub import try_to_load_from_cache

    repository, revision = hub_revision(name)
    names = ("config.json", "tokenizer_config.json", *_WEIGHTS, *_TOKENIZERS)
    paths = {file: try_to_load_from_cache(repository, file, revision=revision) for file in names}
    return {file: Path(path) for file, path in paths.items() if isinstance(path, str)}


def _find_snapshot(name: str) -> Path | None:
    """Find the folder of the local cache with the files of a hub name, named by their commit; None if it has none."""
    return next((path.parent for path in _find_cached_files(name).values()), None)


def _find_hub_configuration(name: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    if cached := _find_cached_files(name).get("config.json"):
        return cached
    repository, revision = hub_revision(name)
    reach_or_work_offline()
    try:
        return Path(hf_hub_download(repository, "config.json", revision=revision))
    except HfHubHTTPError as error:  # for instance of a repository that asks for a token
        raise ValueError(f"backbone {name!r} cannot be read from the hub: {str(error).splitlines()[0]}") from error


def local_tokenizer(name: str, *, texts: Callable[[], Iterable[str]]) -> Tokenizer | None:
    """Make the tokenizer of a tiny backbone from `texts()`, or read that of a folder.

    None: it is on the hub, or in files of another kind than `tokenizer.json`, which only `transformers` can read.
    """
    if name in MINI_BACKBONES:
        return word_model(texts())
    file = Path(name) / "tokenizer.json"
    if not is_folder(name) or not file.is_file():
        return None
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(file))


def unknown_share(tokenizer: Tokenizer, texts: Iterable[str]) -> float:
    """Compute the share of unknown tokens in the first `MOST_TEXTS` texts, in [0, 1]."""
    unknown = {tokenizer.token_to_id(token) for token in _UNKNOWN} - {None}
    encoded = tokenizer.encode_batch(list(islice(texts, MOST_TEXTS)), add_special_tokens=False)
    tokens = [token for encoding in encoded for token in encoding.ids]
    return sum(token in unknown for token in tokens) / max(1, len(tokens))
