"""A folder of text files as a corpus: every `.txt` below it, UTF-8, a sentence or a paragraph a line.

A blank line ends a document, and so does the end of a file.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from trainables.corpora.sentences import Document, documents_of_lines
from trainables.sources import hash_of_file


def text_files(folder: Path) -> list[Path]:
    """The files of a corpus, in the order of their names.

    Raises:
        ValueError: it is no folder, or has none.
    """
    if not folder.is_dir():
        raise ValueError(f"corpus {str(folder)!r} is not a folder; allowed: mini, mini-shuffled, hub:NAME, a folder")
    files = sorted(path for path in folder.rglob("*.txt") if path.is_file())
    if not files:
        raise ValueError(
            f"corpus {str(folder)!r} has no .txt file; allowed: UTF-8 text, a blank line between documents"
        )
    return files


def check_folder(folder: Path) -> None:
    """Passes if the files can be read, and hold at least two documents: one is held out.

    Raises:
        ValueError: see `folder_documents`; there are fewer.
    """
    num_documents = sum(_num_documents(file) for file in text_files(folder))
    if num_documents < 2:
        raise ValueError(
            f"corpus {str(folder)!r} has {num_documents} document(s); allowed: at least 2, for one is held out; "
            "a blank line ends a document"
        )


def _num_documents(file: Path) -> int:
    """Stretches of lines that are not blank."""
    number, is_inside = 0, False
    for line in _lines(file):
        number += bool(line.strip()) and not is_inside
        is_inside = bool(line.strip())
    return number


def folder_fingerprint(folder: Path) -> str:
    """Hash of the names and bytes of its files; 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for file in text_files(folder):
        digest.update(f"{file.relative_to(folder)} {hash_of_file(file)}\n".encode())
    return digest.hexdigest()[:16]


def folder_documents(folder: Path) -> Iterator[Document]:
    """All documents of all files.

    Raises:
        ValueError: see `text_files`; a file is not UTF-8, with its line.
    """
    for file in text_files(folder):
        yield from documents_of_lines(_lines(file))


def _lines(file: Path) -> Iterator[str]:
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(f"{file}, line {number}: not UTF-8, byte {line[error.start]:#04x}") from None
