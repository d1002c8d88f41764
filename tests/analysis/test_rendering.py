"""python -m pytest tests/analysis/test_rendering.py"""

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from analysis.layouts.rendering import html_figure, json_text, render, split_caption, typeset
from analysis.layouts.table import DEVIATION, INTERVAL, TENTHS, Block, Entry, Line, NumberFormat, Table, text_table

SCORE = Entry("71.5", {"": "71.5"}, n=4, off_protocol=True, mark="↑", href="https://example.org/runs?a=1&b=2")


def made(lines: list[Line], **fields) -> Table:
    columns = {"rte": "RTE", "cola": "CoLA"}
    return Table(
        **{"name": "dev", "title": "Scores", "columns": columns, "lines": lines, "caption": "Points."} | fields
    )


def rows_of_csv(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render(table, "csv"))))


def line_of_markdown(label: str, entry: Entry) -> str:
    return render(made([Line(label, {"rte": entry})]), "md").splitlines()[4]


class Tags(HTMLParser):
    """Every tag with its attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.mark.parametrize(
    ("value", "signed", "text"),
    [(-0.04, False, "0.0"), (-0.04, True, "-0.04"), (-1e-15, True, "+0.0"), (-0.06, False, "-0.1")],
)
def test_what_rounds_to_zero_has_no_minus(value, signed, text):
    assert NumberFormat(signed=signed).text(value) == text


def test_entry_without_a_number_is_a_gap():
    assert TENTHS.entry(None) == DEVIATION.entry(None, None) == Entry()
    assert "| palbert |   – |" in render(made([Line("palbert", {"rte": Entry()})]), "md")


def test_markdown_shows_mark_and_unusual_seeds():
    assert line_of_markdown("palbert", SCORE) == "| palbert | 71.5↑ (n=4) |"


@pytest.mark.parametrize("label", ["a|b", "a\nb", "a\\|b"])
def test_markdown_keeps_a_label_in_its_cell(label):
    line = line_of_markdown(label, TENTHS.entry(72.5))
    assert len(re.split(r"(?<!\\)(?:\\\\)*\|", line)) == 4
    assert line.endswith("| 72.5 |")


def test_markdown_keeps_characters_that_would_be_markup():
    assert line_of_markdown("a*b<c", TENTHS.entry(72.5)) == r"| a\*b\<c | 72.5 |"


def test_every_number_in_the_csv_is_a_number():
    lines = [
        Line("palbert", {"rte": SCORE, "cola": Entry()}),
        Line(
            "albert", {"rte": DEVIATION.entry(72.1, None), "cola": NumberFormat("{} to {}", INTERVAL).entry(-1.0, 2.0)}
        ),
    ]
    for row in rows_of_csv(made(lines)):
        numbers = list(row.values())[4:]
        assert numbers == [cell for cell in numbers if not cell or float(cell) < 100]
    assert row == {
        "method": "albert", "source": "ours", "block": "", "unit": "points",
        "rte": "72.1", "rte_sd": "", "cola_low": "-1.0", "cola_high": "2.0", "rte_n": "",
    }  # fmt: skip


def test_csv_has_seed_columns_and_empty_gaps():
    (row,) = rows_of_csv(made([Line("palbert", {"rte": SCORE, "cola": Entry()})]))
    assert (row["rte"], row["rte_n"], row["cola"]) == ("71.5", "4", "")


def test_column_of_another_block_alone_is_shown():
    table = made([Line("palbert", {"rte": SCORE})], blocks=[Block("More", [Line("pabee", {"cola": SCORE})])])
    assert list(table.shown) == ["rte", "cola"]
    published = Line("PALBERT", {"cola": SCORE}, source="published")
    assert list(made([Line("palbert", {"rte": SCORE})], blocks=[Block("Theirs", [published])]).shown) == ["rte"]


@pytest.mark.parametrize(
    "label", ["=1+1", "@sum", "+cmd|' /c calc'!A0", "-x", "\t=1", "-2+3+cmd|' /C calc'!A0", "+1+1"]
)
def test_csv_has_no_formula(label):
    (row,) = rows_of_csv(made([Line(label, {"rte": Entry.from_text(f"{label}!")})]))
    assert (row["method"], row["rte"]) == (f"'{label}", f"'{label}!")


@pytest.mark.parametrize("text", ["-1.0", "-0.5 to 0.2", "+.5", "-1e-05", "-2.1°", "-", "-inf", "a=1", ""])
def test_csv_keeps_numbers_and_gaps(text):
    (row,) = rows_of_csv(made([Line("palbert", {"rte": Entry.from_text(text)})]))
    assert row["rte"] == text


def test_json_has_full_precision_marks_and_null_gaps():
    entries = {"rte": replace(TENTHS.entry(71.5004), n=4, mark="↑"), "cola": Entry()}
    written = json.loads(json_text(made([Line("palbert", entries)], sidecar={"cells": []})))
    line = {"method": "palbert", "source": "ours", "block": "", "rte": 71.5004, "rte_n": 4, "rte_mark": "↑"}
    assert written == {"unit": "points", "lines": [line], "cells": []}


def test_csv_has_published_lines_with_the_heading_that_they_stand_under():
    ours, published = Line("palbert", {"rte": SCORE}), Line("PALBERT", {"rte": TENTHS.entry(78.3)}, source="published")
    rows = rows_of_csv(made([ours, published], blocks=[Block("Not comparable", [published])]))
    assert [(row["method"], row["source"], row["block"], row["rte"]) for row in rows] == [
        ("palbert", "ours", "", "71.5"),
        ("PALBERT", "published", "", "78.3"),
        ("PALBERT", "published", "Not comparable", "78.3"),
    ]


def test_html_has_a_caption_and_a_scope_for_every_header():
    block = Block("Apart", [Line("PALBERT", {"rte": TENTHS.entry(78.3)}, source="published")])
    tags = Tags(html_figure(made([Line("palbert", {"rte": SCORE})], blocks=[block]), "dev.csv"))
    assert len(tags.of("caption")) == 1
    assert [header["scope"] for header in tags.of("th")] == ["col", "col", "row", "rowgroup", "row"]
    assert [row.get("class") for row in tags.of("tr")] == [None, None, None, "published"]


def test_html_explains_marks_seeds_and_gaps():
    table = made([Line("a", {"rte": SCORE}), Line("b", {"rte": Entry()})])
    titles = [abbreviation["title"] for abbreviation in Tags(html_figure(table, "dev.csv")).of("abbr")]
    assert titles == ["significantly above the baseline", "seeds, which are not the protocol's", "planned, no number"]


def test_html_puts_values_and_intervals_into_cells_of_their_own():
    texts = {"a": "+11.6 (+8.4 to +14.9)", "b": "-0.2 (-1.4 to +1.0)", "c": "–", "d": "runs all layers", "e": "90.0"}
    lines = [
        Line(label, {"rte": replace(Entry.from_text(text), mark="↓" * (label == "b"))}) for label, text in texts.items()
    ]
    html = html_figure(made(lines))
    cells = re.findall(r"<td([^>]*)>(.*?)</td>", html)
    assert [content for _, content in cells[:4]] == [
        "+11.6",
        "(+8.4 to +14.9)",
        "−0.2",
        '(−1.4 to +1.0)<abbr class="mark" title="significantly below the baseline">↓</abbr>',
    ]
    assert [content for _, content in cells[5:]] == ["runs all layers", "90.0", ""]
    assert all('colspan="2"' in attributes for attributes, _ in cells[4:6]) and "\u2007" not in html
    assert '<th scope="col" colspan="2">RTE</th>' in html


def test_html_aligns_a_heading_as_its_column():
    lines = [Line("a", {"rte": Entry.from_text("71.5"), "cola": Entry.from_text("linear")})]
    html = html_figure(made(lines))
    assert '<th scope="col">RTE</th><th scope="col" class="w">CoLA</th>' in html
    assert '<td data-heading="RTE">71.5</td><td class="w" data-heading="CoLA">linear</td>' in html


def test_html_names_a_row_of_means_once():
    lines = [Line("a", {"rte": TENTHS.entry(70.0)}), Line("a, mean", {"rte": TENTHS.entry(71.0)}, source="mean")]
    assert '<tr class="mean"><th scope="row">mean</th>' in html_figure(made(lines))
    assert '\n"a, mean",mean,' in render(made(lines), "csv")


@pytest.mark.parametrize(
    ("text", "shown"),
    [("-0.2 (-1.4 to +1.0)", "−0.2 (−1.4 to +1.0)"), ("6.7e-05", "6.7e-05"), ("-", "-"), ("2020-01", "2020-01")],
)
def test_numbers_have_a_true_minus_sign_in_html(text, shown):
    assert typeset(text) == shown


@pytest.mark.parametrize(
    ("caption", "shown", "folded"),
    [
        ("One.", "One.", ""),
        ("It is 1.5 (i.e. more). ↑: up. Then rest. More.", "It is 1.5 (i.e. more). ↑: up.", "Then rest. More."),
        ("", "", ""),
    ],
)
def test_html_folds_a_caption_after_two_sentences(caption, shown, folded):
    assert split_caption(caption) == (shown, folded)


def test_html_links_a_cell_and_the_csv():
    table = made([Line("palbert", {"rte": SCORE})])
    assert [link["href"] for link in Tags(html_figure(table, "dev.csv")).of("a")] == [
        "#table-dev",
        SCORE.href,
        "dev.csv",
    ]
    assert {"href": "tables/dev.csv", "download": "dev.csv"} in Tags(html_figure(table, "tables/dev.csv")).of("a")
    assert {"href": "dev.csv", "download": "dev.csv"} in Tags(render(table, "html")).of("a")


@pytest.mark.parametrize(("num_notes", "num_folds"), [(0, 0), (3, 0), (4, 1)])
def test_html_folds_many_notes(num_notes, num_folds):
    tags = Tags(html_figure(made([], notes=["<note>"] * num_notes), "dev.csv"))
    assert len(tags.of("details")) == num_folds
    assert tags.text.count("<note>") == len(tags.of("li")) == num_notes


def test_table_of_words_has_no_unit():
    table = text_table("compute", title="Compute", first_column="arm", lines=[("albert/rte", {"GPU": "3 h"})])
    assert render(table, "csv").splitlines() == ["arm,source,block,unit,GPU", "albert/rte,ours,,,3 h"]
