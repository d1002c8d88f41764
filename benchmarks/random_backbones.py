"""A backbone of a published shape with random weights, for times that do not depend on what was learnt.

python -m benchmarks.random_backbones FOLDER --glue GLUE --task rte      # ALBERT-base, with the words of RTE
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import AlbertConfig, AlbertModel

from trainables.data.glue import vocabulary_texts
from trainables.data.tasks import TASKS
from trainables.encoders.backbone_names import PUBLISHED_SIZES
from trainables.encoders.loading import quiet_transformers
from trainables.encoders.mini_backbones import word_tokenizer


def write_albert_base(folder: Path, texts: Iterable[str], *, num_layers: int = 12, hidden_size: int = 768) -> Path:
    """Write an ALBERT of the shape of albert-base-v2, with a vocabulary of the words of `texts`.

    Args:
        num_layers: fewer than 12 and a smaller width make a quick trial of a benchmark.
    """
    torch.manual_seed(0)
    tokenizer = word_tokenizer(texts)
    sizes = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "hidden_size": hidden_size,
        "intermediate_size": 4 * hidden_size,
        "num_attention_heads": hidden_size // 64,
        "num_hidden_layers": num_layers,
    }
    config = AlbertConfig(**{**PUBLISHED_SIZES["albert-base"], **sizes})
    with quiet_transformers():
        AlbertModel(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def main() -> None:
    description = (__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_backbones", description=description)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--glue", required=True, help="folder with GLUE's TSV files")
    parser.add_argument("--task", choices=TASKS, default="rte")
    arguments = parser.parse_args()
    write_albert_base(arguments.folder, vocabulary_texts(TASKS[arguments.task], arguments.glue))


if __name__ == "__main__":
    main()
