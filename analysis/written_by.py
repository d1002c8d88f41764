"""Seals of written tables and reports (version and SHA-256), and the numbers in their cells.

Another version of this package may write the same results differently. Then `analysis.verify` checks only the SHA-256
and the numbers in cells. A wrong SHA-256 shows that the files were edited.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from collections.abc import Iterable, Mapping
from functools import cache
from html import unescape
from pathlib import Path

import msgspec

from trainables.schema import Typed

ROOT = Path(__file__).parents[1]
SOURCES = (".py", ".css", ".j2", ".toml", ".csv")
FILE = "written_by.json"  # file with the seal in a folder of tables
UNSEALED = '<meta name="seal" content="">'  # placeholder for the seal in an HTML page
_SEALED = re.compile(r'<meta name="generator" content="glue-exit-study (.*)">\n<meta name="seal" content="(\w*)">')
_TABLE = re.compile(r'<figure class="table" id="([^"]*)">(.*?)</figure>', re.DOTALL)
_CELL = re.compile(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_NUMBER = re.compile(r"[-−+]?\d+(?:\.\d+)?")

Cells = dict[tuple[str, str, str], list[str]]  # (table, row, column) -> texts; several if rows share a name


class Seal(Typed, frozen=True, kw_only=True):
    """The version of this package that wrote some files, and a SHA-256 over the version and the files."""

    version: str
    digest: str

    @classmethod
    def of(cls, files: Mapping[str, bytes], by: str | None = None) -> Seal:
        """Compute the seal of `files` (name -> content). `by` is the version that wrote them; default: this version."""
        digest = hashlib.sha256((by or version()).encode())
        for name in sorted(files):
            digest.update(f"\n{name} {hashlib.sha256(files[name]).hexdigest()}".encode())
        return cls(version=by or version(), digest=digest.hexdigest())

    def holds(self, files: Mapping[str, bytes]) -> bool:
        """Check whether the files are unchanged since they were sealed."""
        return self == Seal.of(files, self.version)

    @property
    def is_of_another_version(self) -> bool:
        """Whether another version of this package or of matplotlib wrote the files."""
        return self.version != version()


@cache
def version() -> str:
    """Format the versions of this package and of matplotlib: `0.1.0, sources 1a2b3c4d, matplotlib 3.10.9`."""
    digest = hashlib.sha256()
    for path in sorted(path for name in ("analysis", "study") for path in (ROOT / name).rglob("*")):
        if path.suffix in SOURCES:
            digest.update(
                f"{path.relative_to(ROOT).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}".encode()
            )
    ours, matplotlib = (importlib.metadata.version(name) for name in ("glue-exit-study", "matplotlib"))
    return f"{ours}, sources {digest.hexdigest()[:8]}, matplotlib {matplotlib}"


def sealed_page(page: str, name: str, others: Mapping[str, bytes]) -> bytes:
    """Compute the seal of a page and of `others`, the files beside it; return the page with the seal inserted."""
    seal = Seal.of({**others, name: page.encode()})
    return page.replace(UNSEALED, UNSEALED.replace('""', f'"{seal.digest}"'), 1).encode()


def seal_of_page(page: bytes) -> tuple[Seal, bytes] | None:
    """Return the seal of a page and the page without the seal, or None if the page has no seal."""
    text = page.decode(errors="replace")
    if (found := _SEALED.search(text)) is None:
        return None
    unsealed = text.replace(f'<meta name="seal" content="{found[2]}">', UNSEALED, 1)
    return Seal(version=found[1], digest=found[2]), unsealed.encode()


def seal_of_folder(files: Mapping[str, bytes]) -> Seal | None:
    """Read the seal from the files of a folder of tables; return None if the seal is missing or damaged."""
    try:
        return msgspec.json.decode(files.get(FILE, b""), type=Seal)
    except msgspec.DecodeError:
        return None


def read_cells(pages: Iterable[bytes]) -> Cells:
    """Read the cells of all numeric tables in `pages`. The template `table.html.j2` made these pages."""
    cells: Cells = {}
    for page in pages:
        for name, table in _TABLE.findall(page.decode(errors="replace")):
            rows = [[unescape(_TAG.sub("", cell)) for cell in _CELL.findall(row)] for row in table.split("<tr")[1:]]
            for row in rows[1:]:
                for heading, text in zip(rows[0][1:], row[1:], strict=False):
                    cells.setdefault((name, row[0], heading), []).append(text)
    return cells


def find_other_numbers(found: Cells, expected: Cells) -> list[str]:
    """List the cells that have different numbers in `found` and in `expected`; skip cells that one of them lacks."""
    lines = []
    for place in sorted(found.keys() & expected.keys()):
        for text, wanted in zip(found[place], expected[place], strict=False):
            pairs = zip(_NUMBER.findall(text), _NUMBER.findall(wanted), strict=False)
            if any(number != other for number, other in pairs):
                lines.append(f"{' '.join(place)} is {text.strip()!r}; should be {wanted.strip()!r}")
    return lines
