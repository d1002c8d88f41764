"""The words that a tiny backbone knows: the most frequent ones of some texts. Imports neither torch nor transformers.

With `mini_backbones.py` and `families.py` this file is what a tiny backbone is made of (`backbone_fingerprint`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MINI_VOCABULARY = 8_000  # words
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def word_model(texts: Iterable[str]) -> Tokenizer:
    """Lower-cased words and punctuation marks; the same texts give the same tokenizer."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    splitter = pre_tokenizers.BertPreTokenizer()
    normalizer = normalizers.BertNormalizer(lowercase=True)
    words: Counter[str] = Counter()
    for between_spaces, times in Counter(part for text in texts for part in text.split(" ")).items():
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(between_spaces)):
            words[word] += times
    ranked = sorted(words, key=lambda word: (-words[word], word))
    vocabulary = list(dict.fromkeys([*SPECIAL_TOKENS, *ranked[:MINI_VOCABULARY]]))
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer
