"""A table as HTML: a fragment for a page or a notebook, and a page of its own."""

from __future__ import annotations

from html import escape

from analysis.layouts.table import GAP, Entry, Line, Table

NOTES_SHOWN = 3  # more than these fold
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 1rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
caption { text-align: left; font-weight: bold }
th { text-align: left }
td, thead th { text-align: right; padding: 0.2rem 0.6rem }
thead th:first-child { text-align: left }
thead, tbody { border-bottom: 1px solid }
.published { font-style: italic; color: #57606a }
@media print { details::details-content { content-visibility: visible } }
""".strip()


def html_page(table: Table) -> str:
    """A page that opens from disk, beside the table's CSV."""
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(table.title)}</title>\n'
        f"<style>\n{_STYLE}\n</style>\n{html_fragment(table, csv_href=f'{table.name}.csv')}</html>\n"
    )


def html_fragment(table: Table, csv_href: str | None = None) -> str:
    """The table as a `figure` without styles of its own; with a link to its CSV where there is an address."""
    header = "".join(f'<th scope="col">{escape(text)}</th>' for text in [table.first_column, *table.shown.values()])
    body = _body(table, table.lines)
    for block in table.blocks:
        heading = (
            f'<th scope="rowgroup" colspan="{len(table.shown) + 1}" class="block"><div>{escape(block.title)}</div></th>'
        )
        body += _body(table, block.lines, heading=f"<tr>{heading}</tr>\n")
    link = f' <a href="{escape(csv_href)}" download="{escape(table.name)}.csv">CSV</a>' if csv_href else ""
    return (
        f'<figure class="table" id="table-{escape(table.name)}">\n<div class="scroll"><table>\n'
        f"<caption><div>{escape(table.title)}</div></caption>\n<thead><tr>{header}</tr></thead>\n{body}</table></div>\n"
        f"<figcaption>{escape(table.caption)}{link}{_notes(table.notes)}</figcaption>\n</figure>\n"
    )


def _body(table: Table, lines: list[Line], *, heading: str = "") -> str:
    return f"<tbody>\n{heading}{''.join(_row(table, line) for line in lines)}</tbody>\n"


def _row(table: Table, line: Line) -> str:
    cells = "".join(f"<td>{_cell(line.entries.get(name), table.marks)}</td>" for name in table.shown)
    css = ' class="published"' if line.published else ""
    return f'<tr{css}><th scope="row">{escape(line.label)}</th>{cells}</tr>\n'


def _cell(entry: Entry | None, meanings: dict[str, str]) -> str:
    if entry is None:
        return ""
    text = _explained(entry.text, "planned, no number") if entry.text == GAP else escape(entry.text)
    text = f'<a href="{escape(entry.href)}">{text}</a>' if entry.href else text
    mark = _explained(entry.mark, meanings.get(entry.mark, "see below the table")) if entry.mark else ""
    seeds = " " + _explained(f"(n={entry.n})", "seeds, which are not the protocol's") if entry.off_protocol else ""
    return text + mark + seeds


def _explained(text: str, meaning: str) -> str:
    return f'<abbr title="{escape(meaning)}">{escape(text)}</abbr>'


def _notes(notes: list[str]) -> str:
    items = f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>" if notes else ""
    return f"<details><summary>{len(notes)} notes</summary>{items}</details>" if len(notes) > NOTES_SHOWN else items
