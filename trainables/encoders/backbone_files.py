"""The files of backbones and tokenizers: in a folder, in the cache of the hub, or on the hub.

Imports neither torch nor transformers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.configuration.error_text import take_first_line
from trainables.encoders.architectures import read_architecture
from trainables.encoders.backbone_names import (
    MINI_BACKBONES,
    MINI_LAYERS,
    PRETRAINING_FILE,
    PUBLISHED_SIZES,
    UNTRAINED,
    hub_revision,
    is_folder,
    is_hub_name,
)
from trainables.encoders.weights import Weight, list_shards, read_header
from trainables.files.sources import HUB_SECONDS, Unusable, go_offline_if_unreachable, hash_of_file, hub_errors

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo

WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
SENTENCE_POOLING = "1_Pooling/config.json"  # written by sentence-transformers
TOKENIZERS = ("tokenizer.json", "vocab.txt", "spiece.model", "spm.model", "sentencepiece.bpe.model", "vocab.json")
MENUS = {
    "backbone": f"a folder, a hub name, {', '.join(UNTRAINED)}",
    "tokenizer": "a folder, a hub name",
}


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


def backbone_digest(backbone: str) -> str:
    """Hash the files in a backbone's folder or hub cache to 16 hexadecimal digits.

    For a backbone in `UNTRAINED`, return its version.
    """
    if backbone in UNTRAINED:
        return UNTRAINED[backbone]
    folder = Path(backbone) if is_folder(backbone) else _find_snapshot(backbone)
    assert folder is not None
    return _hash_files(folder, _list_folder_files("backbone", str(folder)))


def read_configuration(backbone: str) -> Mapping[str, Any]:
    """Read the configuration of a backbone, with the field names of most families; empty if it is no object."""
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


def check_files(kind: str, name: str, wanted: Mapping[str, tuple[str, ...]]) -> set[str]:
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


def check_embeddings(backbone: str, tokenizer: Path) -> None:
    """Check that a backbone has an embedding for every token of the tokenizer in a folder.

    Raises:
        Unusable: if the backbone has fewer embeddings.
    """
    tokens = _count_tokens(next(tokenizer / name for name in TOKENIZERS if (tokenizer / name).is_file()))
    embeddings = read_configuration(backbone).get("vocab_size")
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
        if file.name in TOKENIZERS:
            _count_tokens(file)
        elif file.name in WEIGHTS:
            read_header(file)
    except OSError:
        raise
    except Exception as error:  # the libraries raise many types
        raise Unusable(f"{what} cannot be loaded: {file.name}: {error}") from error


def read_weights(backbone: str) -> tuple[str, dict[str, Weight]]:
    """Read the header of a backbone's weights; return the name of the file and the weights, without their content.

    Return no weights if there are none, or if they are on the hub, but neither in the local cache nor safetensors.
    """
    if is_folder(backbone):
        files = {name: Path(backbone) / name for name in WEIGHTS if (Path(backbone) / name).is_file()}
    else:
        files = find_cached_files(backbone)
    name = next((name for name in WEIGHTS if name in files), "")
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
        raise ValueError(f"{kind} {name!r} is not a folder; allowed: {MENUS[kind]}")
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
        cached = find_cached_files(name)
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
    return hub_errors(f"{kind} {name!r}", allowed=MENUS[kind], offline=offline)


def find_cached_files(name: str) -> dict[str, Path]:
    """Find the files of a hub name in the local cache."""
    from huggingface_hub import try_to_load_from_cache

    repository, revision = hub_revision(name)
    names = ("config.json", "tokenizer_config.json", *WEIGHTS, *TOKENIZERS)
    paths = {file: try_to_load_from_cache(repository, file, revision=revision) for file in names}
    return {file: Path(path) for file, path in paths.items() if isinstance(path, str)}


def _find_snapshot(name: str) -> Path | None:
    """Find the cached folder of a hub name; return None if no file is cached. The folder's name is the commit."""
    return next((path.parent for path in find_cached_files(name).values()), None)


def find_hub_pooling(name: str) -> Path | None:
    """Find the description of a hub name's pooling in the cache or, if the weights are not cached, on the hub."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError

    repository, revision = hub_revision(name)
    cached = try_to_load_from_cache(repository, SENTENCE_POOLING, revision=revision)
    if cached is not None or find_cached_files(name).keys() & WEIGHTS:
        return Path(cached) if isinstance(cached, str) else None
    with _hub_errors("backbone", name):
        go_offline_if_unreachable()
        try:
            return Path(hf_hub_download(repository, SENTENCE_POOLING, revision=revision))
        except EntryNotFoundError:
            return None


def _find_hub_configuration(name: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    if cached := find_cached_files(name).get("config.json"):
        return cached
    repository, revision = hub_revision(name)
    go_offline_if_unreachable()
    try:
        return Path(hf_hub_download(repository, "config.json", revision=revision))
    except HfHubHTTPError as error:  # for instance because the repository requires a token
        raise ValueError(f"backbone {name!r} cannot be read from the hub: {take_first_line(error)}") from error
