r"""A table as LaTeX (booktabs) that fits a line of 345 pt, the text width of `article` at 10 pt.

The columns have widths of their own, estimated from Computer Modern, so that no cell, heading or note is wider than the
table. The caption is the title alone; what else belongs to the table is a paragraph of its own, because a float cannot
break. A table longer than a page runs over its foot.
"""

from __future__ import annotations

import math
import re
import unicodedata

from analysis.layouts.table import Entry, Line, Table

LINE = 345 / 8.5  # em of \footnotesize (cmr8, 8.5 pt)
_WIDE = 8  # columns; from here on they stand closer
_LONGEST_WORD = 13  # characters; longer ones break, after -, /, _ and = where they have them

# Advance widths of Computer Modern Roman in em, rounded up; checked against the font in tests/analysis/test_latex.py.
_WIDTHS = {
    0.0: "\u200b\u2060",
    0.28: "il.,:;'`!|[]",
    0.31: "fj",
    0.34: "- \u00a0",
    0.37: "I",
    0.4: "rst()",
    0.45: "cez",
    0.48: "?",
    0.5: "0123456789ago$*/\\^_{}~–↑↓†",
    0.53: 'kqvxyJ"',
    0.56: "bdhnpuSβ",
    0.63: "LZ",
    0.66: "F",
    0.69: "EP",
    0.73: "BCTwΛ",
    0.75: "AHNRUVXY",
    0.79: "DGKOQ&+−<=>@±×≤≥≠",
    0.84: "m#%",
    0.92: "M",
    1.03: "W",
}
_WIDTH = {character: width for width, characters in _WIDTHS.items() for character in characters}
_UNKNOWN_WIDTH = 1.2
_ITALIC = 1.03  # published labels and headings of blocks: cmti8 is wider by this at most

_TEX = {character: rf"\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    "[": "{[}",  # at the start of a line it would be the argument of the \\ before it
    "*": "{*}",
    "\u00a0": "~",
    "\u200b": r"\allowbreak{}",
    "\u2060": "{}",
    "–": "--",
    "—": "---",
    "−": "$-$",
    "‐": "-",
    "‑": "-",
    "…": r"\ldots{}",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≠": r"$\neq$",
    "≈": r"$\approx$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "∞": r"$\infty$",
    "°": r"$^\circ$",
    "²": "$^2$",
    "³": "$^3$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "§": r"\S{}",
    "ß": r"\ss{}",
    "µ": r"$\mu$",
}
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega"
_CAPITALS = "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
_TEX |= {letter: rf"$\{name}$" for letter, name in zip("αβγδεζηθικλμνξπρστφχψω", _GREEK.split(), strict=True)}
_TEX |= {letter: rf"$\{name}$" for letter, name in zip("ΓΔΘΛΞΠΣΥΦΨΩ", _CAPITALS.split(), strict=True)}
_ACCENTS = dict(zip("\u0300\u0301\u0302\u0303\u0308\u030a\u030c\u0327", "`'^~\"rvc", strict=True))  # combining -> TeX


def latex_table(table: Table) -> str:
    """The table as a float; needs the packages `array` and `booktabs`."""
    header = [table.first_column, *table.shown.values()]
    marks = _marks_by_column(table)
    rows = [[line.label, *_texts(line, marks)] for _, line in table.all_lines]
    widths = column_widths([list(column) for column in zip(header, *rows, strict=True)])
    body = [_row(line, marks) for line in table.lines]
    for block in table.blocks:
        body += [r"\midrule", _heading(block.title, widths), *(_row(line, marks) for line in block.lines)]
    return "\n".join(
        [
            r"% needs \usepackage{array,booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{tex(table.title)}.}}",
            rf"\label{{tab:{table.name}}}",
            r"\footnotesize",
            rf"\setlength{{\tabcolsep}}{{{_separation(len(header)):g}pt}}",
            *sorted({rf"\def\unmarked{{\phantom{{{tex(mark)}}}}}" for mark in marks.values() if mark})[:1],
            r"\begin{tabular}{@{}",
            rf">{{\raggedright\arraybackslash}}p{{{widths[0]}em}}",
            *(rf">{{\raggedleft\arraybackslash}}p{{{width}em}}" for width in widths[1:]),
            r"@{}}",
            r"\toprule",
            rf"{' & '.join(map(_in_column, header))} \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            *_notes(table),
            "",
        ]
    )


def _notes(table: Table) -> list[str]:
    """Caption and notes as a paragraph outside of the float, which could not go over two pages."""
    head = rf"\noindent{{\scriptsize\raggedright Table~\ref{{tab:{table.name}}}: {tex(table.caption)}"
    return [head, *(f"{tex(note)}." for note in table.notes), r"\par}"]


def column_widths(columns: list[list[str]]) -> list[float]:
    """Widths in em of columns with these texts, labels first; with the space between them one line at most.

    The values get their longest texts, or their longest words where that leaves the labels less than a quarter of the
    line; the labels get what is left. Wider than a line are only columns whose longest words are.
    """
    natural = [max(map(_width, texts)) for texts in columns]
    least = [max(_width(word) for text in texts for word in _words(text)) for texts in columns]
    between = 2 * _separation(len(columns)) / 8.5 * (len(columns) - 1)
    room = LINE - between - 0.01 * len(columns)  # what rounding up takes
    wanted = _ITALIC * natural[0]
    values = natural[1:] if room - sum(natural[1:]) >= min(wanted, LINE / 4) else least[1:]
    label = max(_ITALIC * least[0], min(wanted, room - sum(values)))
    return [math.ceil(100 * width) / 100 for width in (label, *values)]


def _separation(columns: int) -> float:
    """`\\tabcolsep` in pt, half of what lies between two columns."""
    return 2.0 if columns > _WIDE else 3.0


def tex(text: str) -> str:
    """The text with every character standing for itself; one without a sign in plain LaTeX is its code: `[U+1F600]`."""
    return "".join(_sign(character) or "" for character in _prepared(text))


def _in_column(text: str) -> str:
    """As `tex`, with short words in one piece: TeX would break `SST-2`."""
    words = [(word, tex(word)) for word in text.split(" ")]
    return " ".join(rf"\mbox{{{sign}}}" if "-" in word and len(word) <= _LONGEST_WORD else sign for word, sign in words)


def _marks_by_column(table: Table) -> dict[str, str]:
    """The widest mark, for every column that has any: a number without one leaves its room, so that digits stand below
    digits."""
    marked = {name: entry.mark for _, line in table.all_lines for name, entry in line.entries.items() if entry.mark}
    widest = max((e.mark for _, line in table.all_lines for e in line.entries.values()), key=_width, default="")
    return {name: widest if name in marked else "" for name in table.shown}


def _texts(line: Line, marks: dict[str, str]) -> list[str]:
    """The entries as they are laid out, with the room of their column's mark."""
    entries = [(line.entries.get(name), mark) for name, mark in marks.items()]
    return [_tied(entry.text) + mark + _seeds(entry) if entry else "" for entry, mark in entries]


def _row(line: Line, marks: dict[str, str]) -> str:
    label = rf"\emph{{{_in_column(line.label)}}}" if line.published else _in_column(line.label)
    return " & ".join([label, *(_cell(line.entries.get(name), mark) for name, mark in marks.items())]) + r" \\"


def _cell(entry: Entry | None, mark_of_others: str) -> str:
    if entry is None:
        return ""
    mark = r"\unmarked{}" if mark_of_others and not entry.mark else tex(entry.mark)
    return tex(_tied(entry.text)) + mark + tex(_seeds(entry))


def _tied(text: str) -> str:
    """Numbers that break before their last word only, each with a minus instead of a hyphen."""
    return re.sub(r"(?<!\S)-(?=\d)", "−", re.sub(r" (?=\S+$)", "\u00a0", text))


def _seeds(entry: Entry) -> str:
    return f" (n={entry.n})" if entry.off_protocol else ""


def _heading(title: str, widths: list[float]) -> str:
    width = rf"\dimexpr{sum(widths):.2f}em+{2 * len(widths) - 2}\tabcolsep\relax"
    text = rf"\raggedright\scriptsize\emph{{{tex(title)}}}"
    return rf"\multicolumn{{{len(widths)}}}{{@{{}}p{{{width}}}@{{}}}}{{{text}}} \\"


def _prepared(text: str) -> str:
    """The text on one line, in characters that have a sign, with places to break in what is long."""
    text = re.sub(r"[ \t\n\r\f\v]+", " ", unicodedata.normalize("NFC", text)).replace("--", "-\u2060-")
    text = "".join(c if _sign(c) is not None else f"[U+{ord(c):04X}]" for c in text)
    places = re.compile(rf"[^-/_=]{{{_LONGEST_WORD}}}(?=.)|[/_=](?=.)")
    return re.sub(rf"\S{{{_LONGEST_WORD + 1},}}", lambda word: places.sub("\\g<0>\u200b", word[0]), text)


def _sign(character: str) -> str | None:
    if character in _TEX:
        return _TEX[character]
    if character.isascii():
        return character if character.isprintable() else None
    base, accent = _base(character), unicodedata.normalize("NFD", character)[1:]
    return rf"\{_ACCENTS[accent]}{{{base}}}" if base.isascii() and accent in _ACCENTS else None


def _base(character: str) -> str:
    return unicodedata.normalize("NFD", character)[0]


def _words(text: str) -> list[str]:
    """What cannot break."""
    return [
        part
        for word in _prepared(text).split(" ")
        for part in (re.split(r"\u200b|(?<=-)", word) if len(word) > _LONGEST_WORD else [word])
    ]


def _width(text: str) -> float:
    return sum(_WIDTH.get(_base(character), _UNKNOWN_WIDTH) for character in _prepared(text))
