"""Text for pretraining, as documents of sentences. A corpus is generated, or read from the hub or a folder.

    mini                  generated documents of two sentences, in the vocabulary of mini-GLUE
    hub:NAME              `hub:NAME[@REVISION][:CONFIGURATION]`, for example hub:wikimedia/wikipedia:20231101.en; each
                          row of the train split is a document; its text is in the column `text`
    FOLDER                all `.txt` files in the folder and its subfolders, in UTF-8, except hidden ones; each line is
                          a sentence or a paragraph; a document ends at a blank line or at the end of a file
    FILE                  one such file, with any ending
    CORPUS + CORPUS       the documents of several of these, one corpus after another

No sentence of `mini` occurs in the dev and test splits of mini-GLUE. Every process and every version of Python
generates the same sentences.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Literal

from trainables.configuration.error_text import take_first_line
from trainables.data import glue, mini_glue
from trainables.data.mini_glue import Draw
from trainables.data.tasks import TASKS
from trainables.files.sources import (
    HUB_SECONDS,
    Unusable,
    go_offline_if_unreachable,
    hash_of_file,
    hub_errors,
    is_visible_file,
)

Document = tuple[str, ...]  # non-empty sentences
Kind = Literal["mini", "hub", "folder"]
PREFIX = "hub:"  # marks a data set of the hub
COLUMN = "text"  # column with the text of a hub data set
JOINT = " + "  # between the names of several corpora, and between their fingerprints
PAIRED = ("sentence_pairs", "random_lines")  # packings that pair sentences of one document


def join_corpora(corpora: Sequence[str]) -> str:
    """Join several corpora to one.

    Raises:
        ValueError: if a corpus is given twice, or its name contains the joint.
    """
    for number, corpus in enumerate(corpora):
        if corpus in corpora[:number]:
            raise ValueError(f"corpus {corpus!r} is given twice; allowed: once")
        if JOINT in corpus:
            raise ValueError(f"corpus {corpus!r} contains {JOINT!r}; allowed: a name without it, and several --corpus")
    return JOINT.join(corpora)


def split_corpus(corpus: str) -> list[str]:
    """List the corpora that `join_corpora` joined."""
    return corpus.split(JOINT)


def classify_corpus(corpus: str) -> Kind:
    """Classify a single corpus: generated text, a data set of the hub, or files (a folder or a single file)."""
    return "mini" if corpus == "mini" else "hub" if corpus.startswith(PREFIX) else "folder"


def check_corpus(corpus: str, packing: str) -> str:
    """Check the files of a corpus, and describe the documents that `packing` leaves out. Only files are checked.

    Returns:
        One line if some documents have one sentence and `packing` needs two; "" if no document is left out.

    Raises:
        ValueError: if the files are missing or not UTF-8, or if fewer than two documents are left.
    """
    folders = [part for part in split_corpus(corpus) if classify_corpus(part) == "folder"]
    num_documents = sum(_count_documents(file) for part in folders for file in text_files(Path(part)))
    paired = folders if packing in PAIRED else []
    num_short = sum(len(document) < 2 for part in paired for document in documents(part))
    num_left = num_documents - num_short
    if num_left < 2 and len(folders) == len(split_corpus(corpus)):
        needed = f" of at least two sentences, which {packing} needs" * bool(num_short)
        raise ValueError(
            f"corpus {corpus!r}: documents{needed}: {num_left}; allowed: at least 2, because one is held out; a blank "
            "line ends a document"
        )
    left_out = f"{packing} leaves out documents of only one sentence: {num_short} of {num_documents}"
    return f"corpus {corpus}: {left_out}" if num_short else ""


def pinned(corpus: str, fingerprint: str) -> str:
    """Pin each hub corpus to the commit in its fingerprint; return any other corpus unchanged."""
    pairs = zip(split_corpus(corpus), split_corpus(fingerprint), strict=True)
    return JOINT.join(
        commit if classify_corpus(part) == classify_corpus(commit) == "hub" else part for part, commit in pairs
    )


def make_absolute(corpus: str) -> str:
    """Make the path of a folder or file absolute, because workers run in other working directories."""
    return str(Path(corpus).resolve()) if classify_corpus(corpus) == "folder" else corpus


def corpus_fingerprint(corpus: str) -> str:
    """Hash the text of a corpus. For a hub data set, return its name and commit instead.

    Raises:
        ValueError: if the corpus is missing or cannot be reached.
    """
    return JOINT.join(map(_fingerprint, split_corpus(corpus)))


def _fingerprint(corpus: str) -> str:
    match classify_corpus(corpus):
        case "mini":
            content = repr(list(documents(corpus)))
        case "hub":
            return hub_fingerprint(corpus)
        case "folder":
            files = text_files(Path(corpus))
            folder = Path(corpus) if Path(corpus).is_dir() else Path(corpus).parent
            content = "".join(f"{file.relative_to(folder)} {hash_of_file(file)}\n" for file in files)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def documents(corpus: str) -> Iterator[Document]:
    """Read all documents, each a tuple of sentences, in a fixed order.

    Raises:
        ValueError: if the corpus is missing, or a file is not UTF-8 (the message gives the line).
    """
    for part in split_corpus(corpus):
        match classify_corpus(part):
            case "mini":
                yield from mini_documents()
            case "hub":
                yield from hub_documents(part)
            case "folder":
                for file in text_files(Path(part)):
                    yield from documents_of_lines(_read_lines(file))


def vocabulary_texts(corpus: str) -> Iterator[str]:
    """Read the texts for a tiny backbone's vocabulary. For the corpus `mini`, read mini-GLUE instead.

    Raises:
        ValueError: if the corpus is missing, or a file is not UTF-8.
    """
    for part in split_corpus(corpus):
        if classify_corpus(part) == "mini":
            yield from glue.vocabulary_texts(TASKS["rte"], "mini")
        else:
            yield from (text for document in documents(part) for text in document)


# ---- from lines of text to documents of sentences

# White space after an end mark with or without closing quotes and brackets, before a possible start of a sentence.
_SENTENCE_END = re.compile(r"([.!?][\"'”’)\]]*)\s+(?=[\"'“‘(\[]*[A-Z0-9])")


def documents_of_lines(lines: Iterable[str]) -> Iterator[Document]:
    """Split lines into documents at blank lines, as google-research/albert and google-research/electra do."""
    sentences: list[str] = []
    for line in lines:
        if line.strip():
            sentences += sentences_of_line(line)
        elif sentences:
            yield tuple(sentences)
            sentences = []
    if sentences:
        yield tuple(sentences)


def sentences_of_line(line: str) -> list[str]:
    """Split a line into sentences. An abbreviation such as `Mr.` also ends a sentence."""
    parts = _SENTENCE_END.sub(r"\1\n", line).split("\n")
    return [sentence for part in parts if (sentence := " ".join(part.split()))]


# ---- a folder of text files


def text_files(place: Path) -> list[Path]:
    """List the `.txt` files in a folder and its subfolders, in the order of their paths; a single file is itself.

    Hidden files, and files in hidden folders, are left out.

    Raises:
        ValueError: if there is no such folder or file, or the folder has no text file.
    """
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise ValueError(
            f"corpus {str(place)!r} is not a folder or file; allowed: mini, hub:NAME, a folder, a text file"
        )
    found = sorted(path for path in place.rglob("*") if path.suffix.lower() == ".txt" and is_visible_file(path))
    files = [path for path in found if not any(part.startswith(".") for part in path.relative_to(place).parts)]
    if not files:
        allowed = ".txt files in UTF-8, with a blank line between documents"
        raise ValueError(f"corpus {str(place)!r} has no .txt file; allowed: {allowed}")
    return files


def _count_documents(file: Path) -> int:
    """Count the documents in a file: blocks of non-blank lines."""
    number, is_inside = 0, False
    for line in _read_lines(file):
        number += bool(line.strip()) and not is_inside
        is_inside = bool(line.strip())
    return number


def _read_lines(file: Path) -> Iterator[str]:
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                fault = f"byte {line[error.start]:#04x} is not UTF-8"
                raise ValueError(f"{file}, line {number}: {fault}; allowed: text in UTF-8") from None


# ---- a data set of the hub

_COMMIT = re.compile("[0-9a-f]{40}")


def hub_documents(corpus: str) -> Iterator[Document]:
    """Stream all documents of a hub data set. Rows without text are skipped.

    Raises:
        HubUnreachable: if the hub is unreachable or does not have the data set.
        Unusable: if the data set has no such configuration, or no split `train`.
        ValueError: if the rows have no column `text`, or no text in it.
    """
    from datasets import load_dataset

    name, revision, configuration = _split_name(corpus)
    with _hub_errors(corpus):
        go_offline_if_unreachable()
        try:
            rows = iter(load_dataset(name, configuration, split="train", revision=revision, streaming=True))
        except ValueError as error:
            if type(error) is not ValueError:  # of a name, or of an answer that is no JSON: see `hub_errors`
                raise
            allowed = "hub:NAME:CONFIGURATION, or hub:NAME if it has only one; its split `train` is read"
            fault = f"corpus {corpus!r} cannot be read: {take_first_line(error).removesuffix('.')}"
            raise Unusable(f"{fault}; allowed: {allowed}") from error
    while True:
        with _hub_errors(corpus):
            row = next(rows, None)
        if row is None:
            return
        if COLUMN not in row:
            raise ValueError(f"corpus {corpus!r} has no column {COLUMN!r}; its columns are {', '.join(row)}")
        text = row[COLUMN] or ""
        if not isinstance(text, str):
            raise ValueError(f"corpus {corpus!r}: column {COLUMN!r} has a {type(text).__name__}; allowed: text")
        sentences = [sentence for line in text.split("\n") for sentence in sentences_of_line(line)]
        if sentences:
            yield tuple(sentences)


def hub_fingerprint(corpus: str) -> str:
    """Return the name of a data set, with the current commit as its revision.

    Raises:
        HubUnreachable: if the hub is unreachable.
        ValueError: if the hub has no such data set or revision.
    """
    from huggingface_hub import HfApi

    name, revision, configuration = _split_name(corpus)
    if revision is None or not _COMMIT.fullmatch(revision):
        with _hub_errors(corpus):
            go_offline_if_unreachable()
            revision = str(HfApi().dataset_info(name, revision=revision, timeout=HUB_SECONDS).sha)
    return f"{PREFIX}{name}@{revision}" + (f":{configuration}" if configuration else "")


def _split_name(corpus: str) -> tuple[str, str | None, str | None]:
    """Split `hub:NAME@REVISION:CONFIGURATION` into its three parts."""
    place, _, configuration = corpus.removeprefix(PREFIX).partition(":")
    name, _, revision = place.partition("@")
    if not name:
        raise ValueError(f"corpus {corpus!r} names no data set; write hub:NAME or hub:NAME:CONFIGURATION")
    return name, revision or None, configuration or None


def _hub_errors(corpus: str) -> AbstractContextManager[None]:
    menu = "hub:NAME, hub:NAME:CONFIGURATION, hub:NAME@REVISION, mini, a folder"
    return hub_errors(f"corpus {corpus!r}", allowed=menu, offline="give a folder of .txt files")


# ---- the generated corpus

NUM_DOCUMENTS = 30_000


@cache
def mini_documents() -> tuple[Document, ...]:
    """Draw the documents of `mini`, each of two sentences."""
    draw = Draw("0 corpus")
    splits = [(task, split) for task in TASKS.values() for split in task.splits if split != task.train_split]
    evaluated = {text for task, split in splits for _, texts, _ in mini_glue.generate(task, split) for text in texts}
    kinds: tuple[Callable[[Draw], Document], ...] = (
        lambda draw: mini_glue.paraphrase(draw)[0],
        lambda draw: mini_glue.entailed_clause(draw)[0],
        lambda draw: _draw_two(draw, mini_glue.OPINION_KINDS, int(draw.chance(0.5))),
        lambda draw: _draw_two(draw, mini_glue.ACCEPTABILITY_KINDS, 1),
    )
    documents: dict[Document, None] = {}
    while len(documents) < NUM_DOCUMENTS:
        document = draw.one(kinds)(draw)
        if len(set(document)) == len(document) and not evaluated.intersection(document):
            documents[document] = None
    return tuple(documents)


def _draw_two(draw: Draw, kinds: tuple[mini_glue.Kind, ...], wanted: int) -> Document:
    """Draw sentences until two have the label `wanted`; return these two."""
    sentences: list[str] = []
    while len(sentences) < 2:
        texts, label = draw.one(kinds)(draw)
        sentences += texts[:1] if label == wanted else ()
    return tuple(sentences)
