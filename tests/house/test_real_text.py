"""Books of Debian packages as a corpus, and what an ALBERT learns from them: pytest tests/house/test_real_text.py

The books are looked for where the packages are installed, or in BOOKS, a folder that they were unpacked into; without
them the test that needs them is skipped.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from helpers.families import bert_vocabulary

from benchmarks import debian_books, real_text
from trainables.pretraining.packing import TokenisedCorpus

BOOKS = Path(os.environ.get("BOOKS", "/"))
OSIS = (
    '<chapter n="1" osisID="Ps.1" sID="Ps.1"/> <title type="x">Psalm 1</title> <div sID="g1" type="x-p"/> Who is\n'
    '&amp; was <hi type="bold">blessed</hi> here? <div eID="g1" type="x-p"/><chapter eID="Ps.1"/> '
    '<chapter n="2" osisID="Ps.2" sID="Ps.2"/> Why do they rage? '
)
LINES = ["EMMA", "", "CHAPTER I", "", "Emma Woodhouse, handsome,", "and rich.", "", "", "She was.", "CHAPTER", ""]


def write_commentary(root: Path, osis: str) -> None:
    """As a SWORD module has it, behind a block of nothing."""
    folder = root / debian_books.COMMENTARIES / "psalms"
    folder.mkdir(parents=True)
    block = zlib.compress(osis.encode())
    (folder / "ot.czz").write_bytes(b"??" + block)
    (folder / "ot.czs").write_bytes(struct.pack("<6I", 0, 0, 0, 2, len(block), len(osis)))
    (folder / "nt.czz").touch()


def write_novel(root: Path, lines: list[str]) -> None:
    """As R does: `saveRDS(lines)` without its own compression."""
    texts = b"".join(struct.pack(">ii", 0x40009, len(line)) + line.encode() for line in lines)
    header = b"X\n" + struct.pack(">4i", 3, 0x40201, 0x30500, 5) + b"UTF-8" + struct.pack(">ii", 16, len(lines))
    path = root / debian_books.NOVELS
    path.parent.mkdir(parents=True)
    path.write_bytes(2 * (struct.pack(">i", len(header + texts)) + zlib.compress(header + texts)))


def test_books_become_chapters_of_paragraphs(tmp_path, monkeypatch):
    monkeypatch.setattr(debian_books, "SHORTEST", 5)
    write_commentary(tmp_path, OSIS)
    write_novel(tmp_path, LINES)
    (tmp_path / "text").mkdir()
    debian_books.write_books(tmp_path, tmp_path / "text")
    assert {path.name: path.read_text() for path in (tmp_path / "text").iterdir()} == {
        "psalms-ot.txt": "Psalm 1\nWho is & was blessed here?\n\nWhy do they rage?\n",
        "janeausten.txt": "\n\n".join(["Emma Woodhouse, handsome, and rich.\nShe was. CHAPTER"] * 2) + "\n",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--books", "PLACE"],
            "no books in 'PLACE'; allowed: / or a folder with sword-comm-tdavid, .* `apt-get install",
        ),
        (
            ["--text", "PLACE", "--vocabulary", "PLACE"],
            "tokenizer 'PLACE' has no tokenizer; accepted files: .*vocab.txt",
        ),
    ],
)
def test_what_is_absent_is_told_in_one_line(arguments, message, tmp_path, monkeypatch):
    place = str(tmp_path)
    monkeypatch.setattr(sys, "argv", ["real_text", *(word.replace("PLACE", place) for word in arguments)])
    with pytest.raises(SystemExit, match=f"^{message.replace('PLACE', re.escape(place))}.*$"):
        real_text.main()


def test_frequencies_tell_a_token_by_their_entropy():
    assert real_text.entropy(np.array([2, 0, 1, 1])) == pytest.approx(1.5 * math.log(2))
    assert real_text.cross_entropy(np.array([0, 1]), np.array([2, 0, 1, 1])) == pytest.approx(
        (math.log(8 / 3) + math.log(8)) / 2
    )


def test_frequencies_are_those_of_documents_to_train_on():
    """Of three documents the second, of two sentences, has the smallest hash."""
    corpus = TokenisedCorpus(
        tokens=np.arange(10),
        begins_word=np.ones(10, bool),
        sentence_starts=np.array([0, 3, 5, 7, 10]),
        document_starts=np.array([0, 1, 3, 4]),
        document_hashes=np.array([30, 10, 20], np.uint64),
    )
    assert real_text.training_tokens(corpus).tolist() == [0, 1, 2, 7, 8, 9]


@pytest.mark.slow
def test_small_albert_learns_more_than_frequencies(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    try:
        text = real_text.books_in(BOOKS, tmp_path)
    except ValueError as error:
        pytest.skip(str(error))
    (tmp_path / "vocabulary").mkdir()
    shutil.copy(bert_vocabulary(), tmp_path / "vocabulary")
    backbone = real_text.write_backbone(tmp_path / "albert", str(tmp_path / "vocabulary"))
    row = real_text.measure(text, backbone, steps=real_text.STEPS)
    assert 3_900_000 < row["parameters"] < 4_300_000
    assert row["loss_before"] > math.log(30_522) - 0.1
    assert real_text.learnt(row), row
