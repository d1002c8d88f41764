"""Public-domain prose out of Debian packages, as a folder of text files that can be a corpus.

    apt-get download sword-comm-tdavid sword-comm-mhcc r-cran-janeaustenr
    for package in *.deb; do dpkg-deb -x "$package" FOLDER; done

C. H. Spurgeon's Treasury of David, Matthew Henry's Concise Commentary, and Jane Austen's six novels; their `copyright`
files say so. The two commentaries are SWORD modules of type zCom: blocks of OSIS in zlib, with an index of them beside.
The novels are vectors of lines, serialised by R, in zlib. A document is a chapter, a line a paragraph.
"""

from __future__ import annotations

import html
import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

PACKAGES = ("sword-comm-tdavid", "sword-comm-mhcc", "r-cran-janeaustenr")
COMMENTARIES = Path("usr/share/sword/modules/comments/zcom")
NOVELS = Path("usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")
HOW_TO_GET = f"as `apt-get install {' '.join(PACKAGES)}` or `dpkg-deb -x` puts them there"
SHORTEST = 1_000  # characters of a chapter: shorter ones are title pages and tables of contents

Chapter = list[str]  # its paragraphs

_CHAPTER_OF_OSIS = re.compile(r"<chapter [^>]*sID[^>]*>")
_PARAGRAPH_OF_OSIS = re.compile(r'<div [^>]*type="x-p"[^>]*>|</?(?:title|table|row|cell)[^>]*>')
_TAG = re.compile(r"<[^>]*>")
_CHAPTER_OF_NOVEL = re.compile(r"(?:chapter|volume) [ivxlc\d]+\.?", re.IGNORECASE)
_BLOCK = struct.Struct("<III")  # of a SWORD index: offset, size, size once it is inflated
_R_HEADER = struct.Struct(">2s4i5sii")  # format, 3 versions, length of the encoding's name, the name, type, lines
_R_STRINGS = 16  # R's type of a vector of strings; STRSXP in Rinternals.h
_R_LINE = struct.Struct(">ii")  # type and length of a string, -1 of none


def write_books(root: Path, folder: Path) -> None:
    """Writes what the packages hold into a folder, a file each; a blank line ends a chapter.

    Args:
        root: `/` where the packages are installed, or the folder that they were unpacked into.

    Raises:
        ValueError: none of them is there.
    """
    files = sorted((root / COMMENTARIES).glob("*/*.?zz"))
    books = {f"{path.parent.name}-{path.stem}": commentary(path) for path in files if path.stat().st_size}
    if (root / NOVELS).is_file():
        books["janeausten"] = novels((root / NOVELS).read_bytes())
    if not books:
        raise ValueError(f"no books in {str(root)!r}; allowed: / or a folder with {', '.join(PACKAGES)}, {HOW_TO_GET}")
    for name, chapters in books.items():
        texts = ("\n".join(chapter) for chapter in chapters)
        (folder / f"{name}.txt").write_text("\n\n".join(text for text in texts if len(text) >= SHORTEST) + "\n")


def commentary(path: Path) -> Iterator[Chapter]:
    """Chapters of a SWORD file (`.czz`, `.bzz`), whose index (`.czs`, `.bzs`) lies beside it."""
    blocks = path.read_bytes()
    for start, size, _ in _BLOCK.iter_unpack(path.with_name(path.name[:-1] + "s").read_bytes()):
        osis = zlib.decompress(blocks[start : start + size]).decode() if size else ""
        for chapter in _CHAPTER_OF_OSIS.split(osis):
            yield without_blank(html.unescape(_TAG.sub(" ", part)) for part in _PARAGRAPH_OF_OSIS.split(chapter))


def novels(data: bytes) -> Iterator[Chapter]:
    """Chapters of vectors of lines, each vector in zlib behind its size."""
    while data:
        stream = zlib.decompressobj()
        paragraphs = paragraphs_of_lines(lines_of_r(stream.decompress(data[4:])))
        data = stream.unused_data
        for is_heading, chapter in groupby(paragraphs, lambda text: bool(_CHAPTER_OF_NOVEL.fullmatch(text))):
            if not is_heading:
                yield list(chapter)


def lines_of_r(data: bytes) -> Iterator[str]:
    """The strings of a vector that R has serialised (`X`, version 3)."""
    kind, *_, type_number, number = _R_HEADER.unpack_from(data)
    assert (kind, type_number) == (b"X\n", _R_STRINGS)
    place = _R_HEADER.size
    for _ in range(number):
        size = max(0, _R_LINE.unpack_from(data, place)[1])
        place += _R_LINE.size + size
        yield data[place - size : place].decode()


def paragraphs_of_lines(lines: Iterable[str]) -> Chapter:
    """Lines joined up to a blank one."""
    return without_blank(" ".join(part) for _, part in groupby(lines, lambda line: bool(line.strip())))


def without_blank(paragraphs: Iterable[str]) -> Chapter:
    """Those that say something, white space made single spaces."""
    return [text for paragraph in paragraphs if (text := " ".join(paragraph.split()))]
