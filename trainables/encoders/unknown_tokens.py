"""How much of a text a tokenizer does not know, before anything runs. Imports neither torch nor transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.encoders.backbones import MINI_BACKBONES, is_folder
from trainables.encoders.word_vocabulary import word_model

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST_TEXTS = 1_000  # looked at
_UNKNOWN = ("[UNK]", "<unk>")


def local_tokenizer(name: str, *, texts: Callable[[], Iterable[str]]) -> Tokenizer | None:
    """The tokenizer that is made of `texts()` for a tiny backbone, or that of a folder.

    None: it is on the hub, or in files of another kind than `tokenizer.json`, which take `transformers` to be read.
    """
    if name in MINI_BACKBONES:
        return word_model(texts())
    file = Path(name) / "tokenizer.json"
    if not is_folder(name) or not file.is_file():
        return None
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(file))


def unknown_share(tokenizer: Tokenizer, texts: Iterable[str]) -> float:
    """Share of the tokens of the first `MOST_TEXTS` texts that the tokenizer does not know, in [0, 1]."""
    unknown = {tokenizer.token_to_id(token) for token in _UNKNOWN} - {None}
    encoded = tokenizer.encode_batch(list(islice(texts, MOST_TEXTS)), add_special_tokens=False)
    tokens = [token for encoding in encoded for token in encoding.ids]
    return sum(token in unknown for token in tokens) / max(1, len(tokens))
