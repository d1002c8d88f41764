"""A table as Markdown, CSV, LaTeX (booktabs) and HTML. Nothing here computes a number."""

from __future__ import annotations

import csv
import html
import io
from dataclasses import dataclass, field
from typing import Any, Literal

GAP = "–"  # a planned cell without a number
Format = Literal["md", "csv", "tex", "html"]
FORMATS: tuple[Format, ...] = ("md", "csv", "tex", "html")


@dataclass(frozen=True)
class Line:
    """One line of a table: texts by column, "" or no entry where nothing was planned, GAP where it is missing."""

    label: str
    values: dict[str, str]
    published: bool = False
    marks: dict[str, str] = field(default_factory=dict)  # printed behind a value, by column; not in the CSV


@dataclass(frozen=True)
class Block:
    """Lines apart from the table's own, under a heading that says what they are."""

    title: str
    lines: list[Line]


@dataclass(frozen=True)
class Table:
    """A finished table: texts, and in `sidecar` every number in full with where it comes from."""

    name: str  # file name without its ending
    title: str
    columns: dict[str, str]  # name in the CSV header -> title elsewhere
    lines: list[Line]
    caption: str
    blocks: list[Block] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sidecar: dict[str, Any] = field(default_factory=dict)
    first_column: str = "method"

    @property
    def shown(self) -> dict[str, str]:
        """The columns that hold anything of ours; the CSV keeps the others too."""
        ours = [line for line in self.lines if not line.published]
        return {name: title for name, title in self.columns.items() if any(line.values.get(name) for line in ours)}

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return html_fragment(self)


def render(table: Table, format: Format) -> str:
    """The table as text of this format."""
    return {"md": _markdown, "csv": _csv, "tex": _latex, "html": _html}[format](table)


def _markdown(table: Table) -> str:
    parts = [f"## {table.title}", _markdown_lines(table, table.lines)]
    for block in table.blocks:
        parts += [f"**{block.title}**", _markdown_lines(table, block.lines)]
    parts.append(table.caption)
    if table.notes:
        parts.append("\n".join(f"- {note}" for note in table.notes))
    return "\n\n".join(parts) + "\n"


def _markdown_lines(table: Table, lines: list[Line]) -> str:
    rows = [[table.first_column, *table.shown.values()]]
    rows += [[_markdown_label(line), *_texts(line, table)] for line in lines]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [
        [text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths))] for row in rows
    ]
    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [aligned[0], rule, *aligned[1:]])


def _markdown_label(line: Line) -> str:
    return f"*{line.label}*" if line.published else line.label


def _csv(table: Table) -> str:
    """Our lines only: one row per method, empty where a number is missing."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([table.first_column, *table.columns])
    for line in table.lines:
        if not line.published:
            values = [line.values.get(name, "") for name in table.columns]
            writer.writerow([line.label, *("" if value == GAP else value for value in values)])
    return text.getvalue()


def _latex(table: Table) -> str:
    shown = table.shown
    body = [_latex_line(line, table) for line in table.lines]
    for block in table.blocks:
        body += [r"\midrule", rf"\multicolumn{{{len(shown) + 1}}}{{l}}{{\emph{{{_tex(block.title)}}}}} \\"]
        body += [_latex_line(line, table) for line in block.lines]
    header = " & ".join(_tex(text) for text in [table.first_column, *shown.values()])
    caption = _tex(" ".join([f"{table.title}.", table.caption, *(f"{note}." for note in table.notes)]))
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\label{{tab:{table.name}}}",
            rf"\begin{{tabular}}{{l{'r' * len(shown)}}}",
            r"\toprule",
            rf"{header} \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex_line(line: Line, table: Table) -> str:
    label = rf"\emph{{{_tex(line.label)}}}" if line.published else _tex(line.label)
    return " & ".join([label, *(_tex(text) for text in _texts(line, table))]) + r" \\"


_TEX = {character: rf"\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    GAP: "--",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "≤": r"$\leq$",
    "×": r"$\times$",
    "β": r"$\beta$",
    "Λ": r"$\Lambda$",
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)


def _html(table: Table) -> str:
    """A page that opens from disk."""
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{html.escape(table.title)}</title>\n'
        f"<style>td {{ text-align: right }} th {{ text-align: left }}</style>\n{html_fragment(table)}</html>\n"
    )


def html_fragment(table: Table) -> str:
    """The table as a `figure` without styles of its own, for a page or a notebook."""
    header = "".join(
        f'<th scope="col">{html.escape(text)}</th>' for text in [table.first_column, *table.shown.values()]
    )
    body = _html_lines(table, table.lines)
    for block in table.blocks:
        title = html.escape(block.title)
        body += f'<tbody><tr><th colspan="{len(table.shown) + 1}" class="block"><div>{title}</div></th></tr></tbody>\n'
        body += _html_lines(table, block.lines)
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in table.notes)
    caption = f"<b>{html.escape(table.title)}.</b> {html.escape(table.caption)}"
    return (
        f'<figure class="table" id="table-{table.name}">\n<div class="scroll"><table>\n'
        f"<thead><tr>{header}</tr></thead>\n{body}</table></div>\n"
        f"<figcaption>{caption}{f'<ul>{notes}</ul>' if notes else ''}</figcaption>\n</figure>\n"
    )


def _html_lines(table: Table, lines: list[Line]) -> str:
    rows = []
    for line in lines:
        cells = "".join(f"<td>{html.escape(text)}</td>" for text in _texts(line, table))
        css = ' class="published"' if line.published else ""
        rows.append(f'<tr{css}><th scope="row">{html.escape(line.label)}</th>{cells}</tr>\n')
    return f"<tbody>\n{''.join(rows)}</tbody>\n"


def _texts(line: Line, table: Table) -> list[str]:
    return [line.values.get(name, "") + line.marks.get(name, "") for name in table.shown]
