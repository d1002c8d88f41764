"""Does an ALBERT learn real text? `python -m benchmarks.real_text`; decisions.md#real-text.

    python -m benchmarks.real_text --books FOLDER --vocabulary FOLDER

An ALBERT of 4 million parameters and BERT's vocabulary is pretrained by masked language modelling on public-domain
books from Debian packages (benchmarks/debian_books.py says how to get them), or on `--text`, a folder of text files.
A model that knows how often each token occurs, and nothing of its neighbours, reaches the unigram entropy: in nats,
the entropy of the tokens to train on, and the cross-entropy of the held-out tokens that are to be predicted under
the frequencies (plus one) of those to train on. The held-out loss must fall below both. Every token that is to be
predicted is hidden: where some are left as they are, a model gets below by repeating what it sees. Texts are short,
for it takes a model longer to learn where 128 positions lie than what words stand beside each other. Results go to
benchmarks/results/real_text.json; exit status 1 if the loss stays above.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AlbertConfig, AlbertModel, BertTokenizerFast, PreTrainedTokenizerBase

from benchmarks.counts import count
from benchmarks.debian_books import write_books
from benchmarks.results_file import write_results
from search_spaces.objectives import load_recipe
from trainables.configuration.schema import Value
from trainables.encoders.backbones import check_tokenizer
from trainables.encoders.loading import quiet_transformers
from trainables.files.sources import cache_folder
from trainables.pretraining import objectives
from trainables.pretraining.batches import IGNORED, PretrainingData, load_pretraining_tokenizer
from trainables.pretraining.configuration import PretrainingSpec
from trainables.pretraining.packing import TokenisedCorpus, tokenise_corpus
from trainables.pretraining.run import PretrainingRun

VOCABULARY = "google-bert/bert-base-uncased"
STEPS = 500
HIDDEN_SIZE = 128
SIZES: dict[str, Any] = {
    "hidden_size": HIDDEN_SIZE,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "hidden_act": "gelu",
    "initializer_range": HIDDEN_SIZE**-0.5,  # .02 is of a width of 768; here attention would begin without effect
}
SETTINGS: dict[str, Value] = {
    "learning_rate": 3e-3,
    "batch_size": 512,
    "max_length": 10,  # tokens
    "steps_per_epoch": 100,
    "warmup_steps": 60,
    "packing": "full",
    "masking": "token",
    "mask_token_share": 1.0,
    "random_token_share": 0.0,
}


@dataclass(frozen=True)
class UnigramEntropies:
    """What tells tokens without their neighbours, in nats per token."""

    training: float  # entropy of the tokens to train on
    held_out: float  # cross-entropy of the held-out tokens that are to be predicted, under frequencies of the former


def main() -> None:
    options = build_parser().parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory(prefix="real-text-") as temporary:
        try:
            text = options.text or books_in(options.books, Path(temporary))
            backbone = write_backbone(Path(temporary) / "albert", options.vocabulary)
            row = measure(text, backbone, steps=options.steps)
        except ValueError as error:
            raise SystemExit(str(error)) from None
    write_results("real_text", row)
    print_row(row)
    raise SystemExit(not learnt(row))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_text", description=__doc__.split("\n\n")[0])
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--books", type=Path, default=Path("/"), help="folder that the packages were unpacked into")
    source.add_argument("--text", type=Path, help="folder of .txt files, a blank line between documents")
    parser.add_argument("--vocabulary", default=VOCABULARY, help="BERT's: a hub name, or a folder with its vocab.txt")
    parser.add_argument("--steps", type=count, default=STEPS)
    parser.add_argument("--threads", type=count, default=1)
    return parser


def books_in(root: Path, folder: Path) -> Path:
    """The books of packages, as a folder of text files in another.

    Raises:
        ValueError: they are not there.
    """
    text = folder / "text"
    text.mkdir()
    write_books(root, text)
    return text


def measure(text: Path, backbone: Path, *, steps: int) -> dict[str, Any]:
    """Entropies of a corpus, and the held-out loss of a model before and after it is pretrained on it.

    Raises:
        ValueError: the corpus is not there, or has too little text.
    """
    recipe = load_recipe("mlm")
    values = {**recipe.fixed, **recipe.mini_fixed, **SETTINGS, "steps": steps}
    spec = PretrainingSpec(objective="mlm", corpus=str(text), config=values, seed=1, backbone=str(backbone))
    entropies, began = unigram_entropies(spec), time.monotonic()
    print(f"unigram entropies: {entropies.training:.3f}, held out {entropies.held_out:.3f}", flush=True)
    run = PretrainingRun(spec, cache=cache_folder())
    before = run.held_out_scores()
    while not run.finished:
        row = run.run_epoch()
        print(f"step {row.steps}: held-out loss {row.scores['mlm_loss']:.3f}", flush=True)
    return {
        "parameters": sum(weight.numel() for weight in AlbertModel.from_pretrained(backbone).parameters()),
        "training_entropy": entropies.training,
        "held_out_entropy": entropies.held_out,
        "loss_before": before["mlm_loss"],
        "loss_after": row.scores["mlm_loss"],
        "accuracy_after": row.scores["mlm_accuracy"],
        "steps": row.steps,
        "tokens": row.tokens,
        "seconds": time.monotonic() - began,
    }


def write_backbone(folder: Path, vocabulary: str) -> Path:
    """An untrained ALBERT with its tokenizer: nearly all of its parameters are embeddings.

    Raises:
        ValueError: there is no such vocabulary.
    """
    check_tokenizer(vocabulary)
    with quiet_transformers():
        tokenizer: PreTrainedTokenizerBase = BertTokenizerFast.from_pretrained(vocabulary)
        torch.manual_seed(1)
        AlbertModel(AlbertConfig(vocab_size=len(tokenizer), **SIZES)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def unigram_entropies(spec: PretrainingSpec) -> UnigramEntropies:
    """Those of the spec's corpus and of the held-out tokens that its objective asks for."""
    config = objectives.configure(spec.objective, spec.config)
    tokenizer, order = load_pretraining_tokenizer(spec), objectives.load_objective(spec.objective).ORDER
    data = PretrainingData(spec.corpus, tokenizer, config, order=order, cache=cache_folder())
    corpus = tokenise_corpus(spec.corpus, tokenizer, cache=cache_folder())
    counts = np.bincount(training_tokens(corpus), minlength=len(tokenizer))
    labels = np.concatenate([batch["labels"].ravel() for batch in data.held_out.held_out_batches(config.batch_size)])
    return UnigramEntropies(entropy(counts), cross_entropy(labels[labels != IGNORED], counts))


def training_tokens(corpus: TokenisedCorpus) -> np.ndarray:
    """The tokens of all documents that are not held out, end to end."""
    lengths = np.diff(corpus.sentence_starts[corpus.document_starts])
    return corpus.tokens[np.repeat(~corpus.held_out, lengths)]


def entropy(counts: np.ndarray) -> float:
    """Of a distribution in proportion to counts, in nats."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def cross_entropy(tokens: np.ndarray, counts: np.ndarray) -> float:
    """Mean of the tokens' negative log frequencies, in nats; counts of the whole vocabulary, to which one is added."""
    return float(-np.log((counts + 1) / (counts + 1).sum())[tokens].mean())


def learnt(row: dict[str, Any]) -> bool:
    """Whether the loss is below what frequencies give."""
    return row["loss_after"] < min(row["training_entropy"], row["held_out_entropy"])


def print_row(row: dict[str, Any]) -> None:
    print(f"ALBERT of {row['parameters']:,} parameters, {row['steps']} steps, {row['tokens']:,} tokens, ", end="")
    print(f"{row['seconds']:.0f} s")
    print("nats per token")
    print(f"  {row['training_entropy']:6.3f}  unigram entropy of the tokens to train on")
    print(f"  {row['held_out_entropy']:6.3f}  cross-entropy of held-out masked tokens under those frequencies")
    print(f"  {row['loss_before']:6.3f}  held-out masked-token loss before pretraining")
    print(f"  {row['loss_after']:6.3f}  after: {'below' if learnt(row) else 'NOT below'} both entropies")


if __name__ == "__main__":
    main()
