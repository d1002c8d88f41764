"""Which names and folders can be a backbone, checked before anything runs. Imports neither torch nor transformers."""

import hashlib
import json
import os
from pathlib import Path

FAMILIES = ("albert", "bert", "electra", "roberta")
MINI_BACKBONES = tuple(f"mini-{family}" for family in FAMILIES)

_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "spiece.model", "vocab.json")
_HUB_SECONDS = 5  # to wait for the hub's answer


def check_backbone(backbone: str) -> None:
    """Passes if a backbone and its tokenizer can be loaded from here.

    Raises:
        ValueError: it is none of the tiny backbones, no folder, and not on the hub; it has no weights or no tokenizer;
            its architecture is of another family.
    """
    if backbone in MINI_BACKBONES:
        return
    files = _folder_files(backbone) if _is_path(backbone) else _hub_files(backbone)
    _check_one_of(backbone, files, ("config.json",), "configuration")
    _check_one_of(backbone, files, _WEIGHTS, "weights")
    _check_one_of(backbone, files, _TOKENIZERS, "tokenizer")
    family_of(backbone)


def backbone_fingerprint(backbone: str) -> str:
    """What identifies the weights and the tokenizer: of a folder the hash of its files, else the name itself."""
    if not _is_path(backbone):
        return backbone
    folder = Path(backbone)
    digest = hashlib.sha256()
    for name in sorted(_folder_files(backbone)):
        digest.update(name.encode())
        digest.update(hashlib.sha256((folder / name).read_bytes()).digest())
    return f"sha256:{digest.hexdigest()[:16]}"


def seen_from_anywhere(backbone: str) -> str:
    """`backbone` with the whole path of a folder: whoever loads it may stand elsewhere."""
    return str(Path(backbone).resolve()) if _is_path(backbone) else backbone


def family_of(backbone: str) -> str:
    """`albert`, `bert`, `electra` or `roberta`.

    Raises:
        ValueError: another architecture.
    """
    if backbone in MINI_BACKBONES:
        return backbone.removeprefix("mini-")
    path = Path(backbone) / "config.json" if _is_path(backbone) else _hub_configuration(backbone)
    try:
        configuration = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"backbone {backbone!r}: config.json is not JSON ({error})") from error
    family = configuration.get("model_type") if isinstance(configuration, dict) else None
    if family not in FAMILIES:
        raise ValueError(f"backbone {backbone!r} is a {family!r} model; available: {', '.join(FAMILIES)}")
    return family


def _is_path(backbone: str) -> bool:
    """A folder, or written like one: hub names are NAME or OWNER/NAME."""
    looks_like_path = backbone.startswith((".", "~", os.sep)) or backbone.count("/") > 1
    return backbone not in MINI_BACKBONES and (looks_like_path or Path(backbone).is_dir())


def _folder_files(backbone: str) -> set[str]:
    """The files of a folder that matter: configuration, weights (all shards), tokenizer."""
    folder = Path(backbone)
    if not folder.is_dir():
        raise ValueError(f"backbone {backbone!r} is not a folder; also allowed: a hub name, {_MINI_MENU}")
    endings = (".json", ".safetensors", ".bin", ".txt", ".model")
    return {path.name for path in folder.iterdir() if path.is_file() and path.name.endswith(endings)}


def _hub_files(name: str) -> set[str]:
    """Names of a hub backbone's files: of those in the local cache if they are enough, else as the hub lists them."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    try:
        cached = _cached_files(name)
        if all(cached.intersection(wanted) for wanted in (_WEIGHTS, _TOKENIZERS)):
            return cached
        return {sibling.rfilename for sibling in HfApi().model_info(name, timeout=_HUB_SECONDS).siblings or ()}
    except (HFValidationError, RepositoryNotFoundError) as error:
        raise ValueError(f"backbone {name!r} is not on the hub; allowed: {_MENU}") from error
    except Exception as error:  # HF_HUB_OFFLINE, and whatever the network library of the day raises
        raise ValueError(
            f"backbone {name!r} is not in the local cache and the hub cannot be reached; allowed: {_MENU}; "
            "to work offline give a folder, or fetch it once elsewhere, copy the cache and set HF_HUB_OFFLINE=1"
        ) from error


def _cached_files(name: str) -> set[str]:
    from huggingface_hub import try_to_load_from_cache

    wanted = ("config.json", *_WEIGHTS, *_TOKENIZERS)
    return {file for file in wanted if isinstance(try_to_load_from_cache(name, file), str)}


def _hub_configuration(name: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(hf_hub_download(name, "config.json"))
    except HfHubHTTPError as error:  # for instance of a repository that asks for a token
        raise ValueError(f"backbone {name!r} cannot be read from the hub: {str(error).splitlines()[0]}") from error


def _check_one_of(backbone: str, files: set[str], wanted: tuple[str, ...], what: str) -> None:
    if not files.intersection(wanted):
        raise ValueError(f"backbone {backbone!r} has no {what}; looked for {', '.join(wanted)}")


_MINI_MENU = ", ".join(MINI_BACKBONES)
_MENU = f"a folder, a hub name, {_MINI_MENU}"
