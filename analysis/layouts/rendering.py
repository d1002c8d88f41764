"""Functions that write a table as Markdown, CSV, LaTeX or HTML. They compute no results."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from analysis.layouts.table import GAP, MARKS, Block, Entry, Line, Table

Format = Literal["md", "csv", "tex", "html"]
FORMATS: tuple[Format, ...] = get_args(Format)
STANDARD_FORMATS: tuple[Format, ...] = ("md", "csv")  # besides JSON; files in the other formats are made on request
_FORMULA = re.compile(r"[=@\t\r+-]")  # the beginning of a text that spreadsheets run as a formula
_SIGNED_NUMBER = re.compile(r"[+-](inf|[\d.,]*(e[+-]?\d+)?( to [+-]?[\d.]+)?)[°↑↓]*")  # a whole text that is none
NOTES_SHOWN = 3  # in HTML; a longer list is folded
SENTENCES_SHOWN = 2  # in HTML; the rest of a caption is folded
_ESTIMATE = re.compile(r"([+-]?\d+(?:\.\d+)?) (\([+-]?\d+(?:\.\d+)? to [+-]?\d+(?:\.\d+)?\))")
_NUMBER = re.compile(r"[<>+-]?\d+(?:[.,]\d+)*(?:e[+-]\d+)?(?!\w)")  # at the beginning of a text
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")
Kind = Literal["estimate", "number", "words"]  # of a column: with intervals, aligned on the right, or on the left


def render(table: Table, file_format: Format) -> str:
    """Write the table in `file_format`. HTML is a whole page with a link to the table's CSV in the same folder."""
    if file_format == "html":
        return html_figure(table, f"{table.name}.csv", page="table_page.html.j2")
    return {"md": _markdown, "csv": _csv, "tex": _latex}[file_format](table)


# Markdown


def _markdown(table: Table) -> str:
    parts = [f"## {markdown_text(table.title)}"]
    for block in table.parts:
        parts += [f"**{markdown_text(block.title)}**"] * bool(block.title) + [markdown_grid(table, block)]
    parts.append(markdown_text(table.caption))
    if table.notes:
        parts.append("\n".join(f"- {markdown_text(note)}" for note in table.notes))
    return "\n\n".join(parts) + "\n"


def markdown_grid(table: Table, block: Block) -> str:
    """Write one block as an aligned Markdown table. Every block has all columns that the table shows."""
    rows = [[markdown_text(text) for text in (table.first_column, *table.shown.values())]]
    for line in block.lines:
        label = f"*{markdown_text(line.label)}*" if line.published else markdown_text(line.label)
        rows.append([label, *(_markdown_entry(line.entries.get(name)) for name in table.shown)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    justify = str.ljust if table.is_prose else str.rjust
    aligned = [
        [row[0].ljust(widths[0]), *(justify(text, width) for text, width in zip(row[1:], widths[1:], strict=True))]
        for row in rows
    ]
    rule = ["-" * widths[0], *("-" * (width - 1) + "-:"[not table.is_prose] for width in widths[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in [aligned[0], rule, *aligned[1:]])


def _markdown_entry(entry: Entry | None) -> str:
    if entry is None:
        return ""
    text = f"**{entry.text}**" if entry.bold else entry.text
    return _escape_bars(f"{text}{entry.mark}{entry.seeds}")


def markdown_text(text: str) -> str:
    """Put the text on one line and escape special characters of Markdown.

    The characters are those of CommonMark 0.31, section 2.4, and of GitHub's tables.
    """
    return _escape_bars(re.sub(r"([\\*`<\[])", r"\\\1", " ".join(text.split())))


def _escape_bars(text: str) -> str:
    return text.replace("|", r"\|")


# CSV


def _csv(table: Table) -> str:
    """Write one CSV row per line of the table, including published lines; a missing number is an empty field.

    Column `source` is `ours`, `mean` (a mean of our scores), `published` or `given` (by the user). Column `block` is
    the heading of the block. Column `unit` is, for example, `points; speed_up: ratio`: all numbers except `speed_up`
    are in points. The suffixes are `_sd` (standard deviation), `_low` and `_high` (ends of an interval) and `_n`
    (number of seeds).
    """
    lines = [(block.title, line) for block in table.parts for line in block.lines]
    numbers, counted = [], []
    for name in table.columns:
        entries = [line.entries[name] for _, line in lines if name in line.entries]
        suffixes = dict.fromkeys(suffix for entry in entries for suffix in entry.numbers)
        numbers += [(name, suffix) for suffix in suffixes or [""]]
        counted += [name] * any(entry.n is not None for entry in entries)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = [name + suffix for name, suffix in numbers] + [f"{name}_n" for name in counted]
    writer.writerow([table.first_column, "source", "block", "unit", *header])
    for block, line in lines:
        row = {name: line.entries.get(name, Entry()) for name in table.columns}
        cells = [row[name].numbers.get(suffix, "") for name, suffix in numbers] + [row[name].n for name in counted]
        writer.writerow(map(_csv_cell, [line.label, line.source, block, table.unit, *cells]))
    return text.getvalue()


def _csv_cell(value: str | float | None) -> str | float | None:
    """Put an apostrophe before a text that a spreadsheet would run as a formula, such as `=1+1`."""
    if not isinstance(value, str) or not _FORMULA.match(value) or _SIGNED_NUMBER.fullmatch(value):
        return value
    return f"'{value}"


# JSON


def json_text(table: Table) -> str:
    """Write the content of the table's JSON file: the lines of the CSV file with all digits, and `table.sidecar`.

    Marks are in fields with the suffix `_mark`. A missing or infinite number has no field. Only JSON has
    `_standard_error` (in the table's unit), `_freedom` (degrees of freedom), `_gpu_seconds` and `_cpu_seconds`.
    """
    lines = [_json_line(table, block, line) for block in table.parts for line in block.lines]
    return json.dumps({"unit": table.unit, "lines": lines, **table.sidecar}, indent=1, ensure_ascii=False) + "\n"


def _json_line(table: Table, block: Block, line: Line) -> dict[str, Any]:
    fields: dict[str, Any] = {table.first_column: line.label, "source": line.source, "block": block.title}
    for name in table.columns:
        entry = line.entries.get(name, Entry())
        found = {**entry.numbers, **entry.values, "_n": entry.n, "_mark": entry.mark or None}
        fields |= {name + suffix: value for suffix, value in found.items() if value not in (None, inf)}
    return fields


# LaTeX

_SIGNS = {character: rf"\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    "[": "{[}",
    "*": "{*}",  # without braces, "*" and "[" are read as an argument of the \\ that ends the line before
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "µ": r"$\mu$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≠": r"$\neq$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "°": r"$^{\circ}$",
    "β": r"$\beta$",
    "Λ": r"$\Lambda$",
    "λ": r"$\lambda$",
    "\u2060": "{}",  # inserted between two hyphens, which TeX would join to a dash
    "\u200b": r"\allowbreak{}",  # inserted into long words
}
_UNCHANGED = "“”‘’–—…ß"  # LaTeX prints these and accented letters in every font, since 2018
_OGONEK = "\u0328"  # the only accent of European letters that LaTeX's default fonts lack


def _latex(table: Table) -> str:
    r"""Write a LaTeX float that holds a booktabs table. A table wider than the text is scaled down.

    The title of `table` becomes the float's caption. The caption and the notes of `table` become LaTeX comments. A
    table of sentences becomes a list, which can break across pages.
    """
    if table.is_prose:
        return _latex_list(table)
    header = [table.first_column, *table.shown.values()]
    body = []
    for block in table.parts:
        if block.title:
            heading = rf"p{{0.6\linewidth}}@{{}}}}{{\raggedright\scriptsize\emph{{{tex(block.title)}}}}}"
            body += [r"\midrule", rf"\multicolumn{{{len(header)}}}{{@{{}}{heading} \\"]
        body += [_latex_line(table, line) for line in block.lines]
    return "\n".join(
        [
            r"% needs \usepackage{booktabs,graphicx}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{tex(table.title)}.}}",
            rf"\label{{tab:{table.name}}}",
            r"\footnotesize",
            r"\setlength{\tabcolsep}{3pt}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{@{{}}l{'r' * len(table.shown)}@{{}}}}",
            r"\toprule",
            rf"{' & '.join(map(tex, header))} \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
            *_latex_comments(table),
            "",
        ]
    )


def _latex_list(table: Table) -> str:
    items = [
        rf"\item[{tex(line.label)}] {'. '.join(tex(line.entries[name].text) for name in table.shown)}."
        for line in table.lines
    ]
    head = [
        rf"\paragraph{{{tex(table.title)}}}\label{{tab:{table.name}}}",
        r"\begin{description}\footnotesize\raggedright",
    ]
    return "\n".join([*head, *items, r"\end{description}", *_latex_comments(table), ""])


def _latex_comments(table: Table) -> list[str]:
    return [f"% {' '.join(text.split())}" for text in (table.caption, *table.notes)]


def _latex_line(table: Table, line: Line) -> str:
    label = rf"\emph{{{tex(line.label)}}}" if line.published else tex(line.label)
    return " & ".join([label, *(_latex_entry(line.entries.get(name)) for name in table.shown)]) + r" \\"


def _latex_entry(entry: Entry | None) -> str:
    if entry is None:
        return ""
    number = tex(re.sub(r"(?<!\S)-(?=\d)", "−", entry.text))
    number = rf"\textbf{{{number}}}" if entry.bold else number
    if entry.mark and not entry.seeds:
        return rf"{number}\rlap{{{tex(entry.mark)}}}"  # takes no width, so that digits stay aligned
    return number + tex(entry.mark + entry.seeds)


def tex(text: str) -> str:
    """Escape the text so that LaTeX prints it unchanged.

    A character that LaTeX cannot print is replaced by its code, such as `[U+1F600]`.
    """
    line = re.sub(r"[ \t\n\r\f\v]+", " ", unicodedata.normalize("NFC", text))
    line = re.sub(r"\S{25}(?=\S)", "\\g<0>\u200b", re.sub("-(?=-)", "-\u2060", line))
    return "".join(map(_latex_sign, line))


def _latex_sign(character: str) -> str:
    if character in _SIGNS:
        return _SIGNS[character]
    base, *accents = list(unicodedata.normalize("NFD", character))
    is_letter = base.isascii() and base.isprintable() and character < "\u0180" and _OGONEK not in accents
    return character if is_letter or character in _UNCHANGED else f"{{[}}U+{ord(character):04X}]"


# HTML


@cache
def load_template(name: str) -> Template:
    """Load an HTML template. Values that are inserted into the template are escaped."""
    loader = FileSystemLoader(Path(__file__).parents[1] / "templates")
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    pages.trim_blocks = pages.lstrip_blocks = True
    pages.filters |= {"split_caption": split_caption, "split_estimate": split_estimate, "typeset": typeset}
    return pages.get_template(name)


def html_figure(
    table: Table,
    csv_href: str = "",
    page: str = "table.html.j2",
    signs: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Write the table as an HTML `figure` without styles.

    Args:
        csv_href: address of the CSV file; "" for no link.
        signs: CSS classes of the signs before lines, by the lines' labels.
    """
    kinds = {name: _classify_column(table, name) for name in table.shown}
    return load_template(page).render(
        table=table,
        kinds=kinds,
        width=1 + len(kinds) + [*kinds.values()].count("estimate"),
        csv_href=csv_href,
        gap=GAP,
        marks=MARKS | {f"°{arrow}": f"{MARKS['°']}; {MARKS[arrow]}" for arrow in "↑↓"},
        most_notes=NOTES_SHOWN,
        signs=signs,
    )


def split_caption(caption: str) -> tuple[str, str]:
    """Split a caption after its second sentence."""
    sentences = re.split(r"(?<=\.) (?=[^a-z(])", caption)
    return " ".join(sentences[:SENTENCES_SHOWN]), " ".join(sentences[SENTENCES_SHOWN:])


def typeset(text: str) -> str:
    """Replace the hyphens before numbers by minus signs."""
    return _MINUS.sub("−", text)


def split_estimate(text: str) -> tuple[str, str]:
    """Split `+1.5 (-0.2 to +3.1)` into the value and its interval, which is "" for another text."""
    found = _ESTIMATE.fullmatch(text)
    return (found[1], found[2]) if found else (text, "")


def _classify_column(table: Table, name: str) -> Kind:
    """Classify a column: with an interval, it has estimates; if less than half of it is numbers, it has words."""
    texts = [line.entries[name].text for block in table.parts for line in block.lines if name in line.entries]
    if any(map(_ESTIMATE.fullmatch, texts)):
        return "estimate"
    known = [text for text in texts if text not in ("", GAP, "-")]
    numbers = sum(bool(_NUMBER.match(text)) for text in known)
    return "words" if table.is_prose or 2 * numbers < len(known) else "number"
