"""Lines of text as documents of sentences: how a file is cut, and how a document of the hub is."""

import re
from collections.abc import Iterable, Iterator

Document = tuple[str, ...]  # its sentences, none empty

_SENTENCE_END = re.compile(
    r"(?<=[.!?])[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[A-Z0-9])"
)  # a mark, and what looks like a beginning


def documents_of_lines(lines: Iterable[str]) -> Iterator[Document]:
    """Documents are what stands between blank lines, as in the input of google-research/albert and electra."""
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
    """A line is a sentence, or a paragraph that is cut where one ends: `Mr. X` is cut too, which does little harm."""
    return [sentence for part in _SENTENCE_END.split(line) if (sentence := " ".join(part.split()))]
