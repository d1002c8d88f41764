"""Text to pretrain on: documents of sentences from a folder, from a data set of the hub, or generated.

    mini, mini-shuffled   pairs of sentences in mini-GLUE's words that belong together, and a control without order
    hub:NAME              `hub:NAME[@REVISION][:CONFIGURATION]`, streamed: a row of its train split is a document, its
                          column `text` holds the lines; for example hub:wikimedia/wikipedia:20231101.en
    FOLDER                every `.txt` below it, UTF-8, a sentence or a paragraph a line; a blank line ends a document,
                          and so does the end of a file

The generated text is made of the same kinds of example as mini-GLUE, without any text of its dev and test splits. It is
the same in every process and every version of Python.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Literal

from trainables.data import glue, mini_glue
from trainables.data.mini_glue import Draw
from trainables.data.tasks import TASKS
from trainables.sources import HUB_SECONDS, hash_of_file, hub_errors, reach_or_work_offline

Document = tuple[str, ...]  # its sentences, none empty
Kind = Literal["mini", "mini-shuffled", "hub", "folder"]
PREFIX = "hub:"  # of a data set of the hub
COLUMN = "text"
PAIRED = ("sentence_pairs", "random_lines")  # ways of packing that make pairs of a document's sentences


def kind_of(corpus: str) -> Kind:
    """Tell folders, data sets of the hub and generated corpora apart."""
    if corpus == "mini" or corpus == "mini-shuffled":
        return corpus  # type: ignore[return-value]
    return "hub" if corpus.startswith(PREFIX) else "folder"


def is_generated(corpus: str) -> bool:
    """Tell whether its words are mini-GLUE's."""
    return kind_of(corpus) in ("mini", "mini-shuffled")


def check_corpus(corpus: str) -> None:
    """Check that a corpus may be there: the files of a folder are read, and the hub is not asked.

    Raises:
        ValueError: a folder is missing, has no text file or fewer than two documents; a file is not UTF-8.
    """
    if kind_of(corpus) != "folder":
        return
    num_documents = sum(_count_documents(file) for file in text_files(Path(corpus)))
    if num_documents < 2:
        raise ValueError(
            f"corpus {corpus!r} has {num_documents} document(s); allowed: at least 2, for one is held out; "
            "a blank line ends a document"
        )


def check_pairs(corpus: str, packing: str) -> None:
    """Check that every document of a folder has two sentences, if this packing makes pairs of them.

    Raises:
        ValueError: a document has fewer; the message has its number and its beginning.
    """
    if packing not in PAIRED or kind_of(corpus) != "folder":  # nobody can edit the others
        return
    for number, document in enumerate(documents(corpus), start=1):
        if len(document) < 2:
            what = f"corpus {corpus!r}: document {number}, {document[0][:40]!r}"
            raise ValueError(f"{what}, has one sentence; {packing} needs two in each")


def pinned(corpus: str, fingerprint: str) -> str:
    """Pin a corpus of the hub to the commit of its fingerprint; any other is returned as it is."""
    return fingerprint if kind_of(corpus) == kind_of(fingerprint) == "hub" else corpus


def seen_from_anywhere(corpus: str) -> str:
    """Make the path of a folder absolute, for readers in another working directory."""
    return str(Path(corpus).resolve()) if kind_of(corpus) == "folder" else corpus


def corpus_fingerprint(corpus: str) -> str:
    """Hash a folder's files or the generated text, or name a data set's revision.

    Raises:
        ValueError: it is not there.
    """
    if is_generated(corpus):
        return _generated_fingerprint(corpus)
    if kind_of(corpus) == "hub":
        return hub_fingerprint(corpus)
    digest = hashlib.sha256()
    for file in text_files(Path(corpus)):
        digest.update(f"{file.relative_to(corpus)} {hash_of_file(file)}\n".encode())
    return digest.hexdigest()[:16]


def documents(corpus: str) -> Iterator[Document]:
    """Read all documents in a fixed order, each a tuple of sentences.

    Raises:
        ValueError: it is not there, or a file is not UTF-8, with its line.
    """
    match kind_of(corpus):
        case "mini":
            yield from mini_documents()
        case "mini-shuffled":
            yield from shuffled_documents()
        case "hub":
            yield from hub_documents(corpus)
        case "folder":
            for file in text_files(Path(corpus)):
                yield from documents_of_lines(_read_lines(file))


def vocabulary_texts(corpus: str) -> Iterator[str]:
    """Read the texts whose words a tiny backbone's tokenizer knows; for generated corpora they are mini-GLUE's.

    Raises:
        ValueError: see `documents`.
    """
    if is_generated(corpus):
        return glue.vocabulary_texts(TASKS["rte"], "mini")
    return (text for document in documents(corpus) for text in document)


@cache
def _generated_fingerprint(corpus: str) -> str:
    return hashlib.sha256(repr(list(documents(corpus))).encode()).hexdigest()[:16]


# ---- lines of text as documents of sentences

# A mark, and what looks like a beginning.
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[A-Z0-9])")


def documents_of_lines(lines: Iterable[str]) -> Iterator[Document]:
    """Cut lines into documents at blank lines, as in the input of google-research/albert and electra."""
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
    """Cut a line, which is a sentence or a paragraph, where sentences end: `Mr. X` is cut too, with little harm."""
    return [sentence for part in _SENTENCE_END.split(line) if (sentence := " ".join(part.split()))]


# ---- a folder of text files


def text_files(folder: Path) -> list[Path]:
    """List the files of a corpus, in the order of their names.

    Raises:
        ValueError: the folder is missing, or has no text file.
    """
    if not folder.is_dir():
        raise ValueError(f"corpus {str(folder)!r} is not a folder; allowed: mini, mini-shuffled, hub:NAME, a folder")
    files = sorted(path for path in folder.rglob("*.txt") if path.is_file())
    if not files:
        allowed = "UTF-8 text, a blank line between documents"
        raise ValueError(f"corpus {str(folder)!r} has no .txt file; allowed: {allowed}")
    return files


def _count_documents(file: Path) -> int:
    """Count the stretches of lines that are not blank."""
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
                raise ValueError(f"{file}, line {number}: not UTF-8, byte {line[error.start]:#04x}") from None


# ---- a data set of the hub

_COMMIT = re.compile("[0-9a-f]{40}")


def hub_documents(corpus: str) -> Iterator[Document]:
    """Read all documents as they arrive; rows without text are left out.

    Raises:
        HubUnreachable: the hub cannot be asked, or does not have it.
        ValueError: its rows have no column `text`.
    """
    from datasets import load_dataset

    name, revision, configuration = _split_name(corpus)
    with _hub_errors(corpus):
        reach_or_work_offline()
        rows = iter(load_dataset(name, configuration, split="train", revision=revision, streaming=True))
    while True:
        with _hub_errors(corpus):
            row = next(rows, None)
        if row is None:
            return
        if COLUMN not in row:
            raise ValueError(f"corpus {corpus!r} has no column {COLUMN!r}; its columns are {', '.join(row)}")
        sentences = [sentence for line in row[COLUMN].split("\n") for sentence in sentences_of_line(line)]
        if sentences:
            yield tuple(sentences)


def hub_fingerprint(corpus: str) -> str:
    """Identify a data set's content: its name, at the commit that it stands for now.

    Raises:
        HubUnreachable: the hub cannot be asked.
        ValueError: it has no such data set, or no such revision of it.
    """
    from huggingface_hub import HfApi

    name, revision, configuration = _split_name(corpus)
    if revision is None or not _COMMIT.fullmatch(revision):
        with _hub_errors(corpus):
            reach_or_work_offline()
            revision = str(HfApi().dataset_info(name, revision=revision, timeout=HUB_SECONDS).sha)
    return f"{PREFIX}{name}@{revision}" + (f":{configuration}" if configuration else "")


def _split_name(corpus: str) -> tuple[str, str | None, str | None]:
    """Name, revision and configuration."""
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
SEED = 0


@lru_cache(maxsize=1)
def mini_documents() -> tuple[Document, ...]:
    """Draw two sentences each: half are events retold, a quarter opinions that agree, a quarter correct sentences."""
    draw = Draw(f"{SEED} corpus")
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


def shuffled_documents() -> tuple[Document, ...]:
    """Mix all words of the corpus, in documents and sentences of the same lengths: the control without order.

    Mixed within documents it would still show that two sentences share words, which retelling teaches.
    """
    documents = mini_documents()
    words = iter(_shuffle([word for document in documents for text in document for word in text.split()]))
    return tuple(tuple(" ".join(islice(words, len(text.split()))) for text in document) for document in documents)


def _draw_two(draw: Draw, kinds: tuple[mini_glue.Kind, ...], wanted: int) -> Document:
    """Draw sentences until two have this label."""
    sentences: list[str] = []
    while len(sentences) < 2:
        texts, label = draw.one(kinds)(draw)
        sentences += texts[:1] if label == wanted else ()
    return tuple(sentences)


def _shuffle(words: list[str]) -> list[str]:
    """Shuffle the words, by Fisher and Yates."""
    draw = Draw(f"{SEED} shuffled")
    for last in range(len(words) - 1, 0, -1):
        other = draw.one(range(last + 1))
        words[last], words[other] = words[other], words[last]
    return words
