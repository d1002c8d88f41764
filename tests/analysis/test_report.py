"""python -m pytest tests/analysis/test_report.py"""

import re
import shutil
from html.parser import HTMLParser

import pytest
from helpers import made_studies
from helpers.made_studies import (
    arm,
    edit_records,
    evidence_of,
    plan_of,
    predicted_study,
    write_plan_of,
    write_records,
    write_study,
)
from msgspec.structs import replace

from analysis import report
from analysis.layouts.answer import Caveat, caveats
from analysis.layouts.evidence import gather
from analysis.pictures.picture import COLOURS, MARKERS, choose_styles
from analysis.studies.load import load_study
from trainables import Departure

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_pdf")]

VOID = {"meta", "img", "br", "link", "hr", "input"}


class Page(HTMLParser):
    """What a page is made of: ids, links, headings, images with their captions, and what every element stands in."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.headings, self.images, self.unboxed = [], [], [], [], [], []
        self.lang, self.captions, self.headers = None, [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes["href"]] if tag == "a" else []
        self.headings += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []
        self.lang = attributes.get("lang", self.lang) if tag == "html" else self.lang
        self.headers += [attributes.get("scope")] if tag == "th" else []
        if tag == "table" and ("div", "scroll") not in self.open:
            self.unboxed.append(tag)
        if attributes.get("role") == "img":
            self.images.append([attributes.get("aria-label", ""), ""])
        if tag == "table":
            self.captions.append("")
        if tag not in VOID:
            self.open.append((tag, attributes.get("class")))

    def handle_endtag(self, tag):
        while self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if any(tag == "figcaption" for tag, _ in self.open) and self.images and not self.images[-1][1]:
            self.images[-1][1] = data
        if any(tag == "caption" for tag, _ in self.open):
            self.captions[-1] += data


@pytest.fixture(scope="module")
def page(study):
    return report.write_report(study).read_text()


@pytest.fixture(scope="module")
def parsed(page):
    return Page(page)


def test_report_needs_no_other_file_and_no_network(page):
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert "@import" not in page and not re.search(r"url\((?!#)", page)


def test_a_plan_alone_has_no_page(tmp_path, capsys):
    write_plan_of(tmp_path, plan_of(["palbert"], ["rte"]))
    assert report.main([str(tmp_path)]) == 2
    said = f"no events in {tmp_path}; allowed: the folder of a study that has been launched\n"
    assert capsys.readouterr() == ("", f"analysis.report: {said}")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_study_without_records_has_a_page_that_says_so(tmp_path):
    folder = write_study(tmp_path, [], methods=["palbert"], tasks=["rte"])
    page = report.write_report(folder).read_text()
    assert "The only method is palbert" in page and '<th scope="row" class="sign m' in page
    assert re.search(r">palbert/rte</th><td data-heading=\"score\"><abbr", page)


def test_departures_are_counted_and_linked(tmp_path):
    departures = {"protocol": ("1 seed",), "palbert": ("float32", "no warm-up"), "albert": ()}
    write_plan_of(tmp_path, replace(plan_of(["palbert"], ["rte"]), departures=departures))
    write_records(tmp_path, [])
    assert ("The study has 3 departures from the papers and their code.", "departures") in [
        (one.text, one.anchor) for one in caveats(evidence_of(tmp_path))
    ]


def test_unofficial_data_are_named_on_first_screen(tmp_path):
    folder = write_study(tmp_path, arm("palbert", "rte", [0.7] * 5))
    edit_records(folder, lambda rows: [row.update(data_differences=["dev has 3 rows, not 277"]) for row in rows])
    told = [one.text for one in caveats(evidence_of(folder))]
    assert "The data of these tasks are not the official GLUE: RTE." in told


def test_page_links_have_unique_targets(parsed):
    targets = [href.removeprefix("#") for href in parsed.links if href.startswith("#")]
    assert targets and set(targets) <= set(parsed.ids)
    assert len(parsed.ids) == len(set(parsed.ids))


def test_every_number_of_the_dev_table_links_to_its_runs(page, study):
    rows = page.partition('id="table-dev"')[2].partition("</table>")[0]
    for cell in gather([load_study(study)]).cells:
        label, own = cell
        anchor = f"table-runs-{label}"
        assert f'href="#{anchor}"' in rows
        runs = page.partition(f'id="{anchor}"')[2].partition("</table>")[0]
        for record in own.records:
            assert record.key in runs and f"predictions/{record.key}.npz" in runs


def test_every_heading_and_figure_links_to_itself(page):
    sections = re.findall(r'<section id="([^"]*)">\s*<h2>[^<]*<a class="anchor" href="#([^"]*)"', page)
    assert len(sections) == page.count("<h2>") and all(own == link for own, link in sections)
    figures = re.findall(r'<figure [^>]*?id="([^"]*)"[^>]*>(.*?)</figure>', page, re.S)
    assert figures and all(f'<a class="anchor" href="#{own}"' in content for own, content in figures)


def test_captions_show_at_most_two_sentences(page):
    for caption in re.findall(r"<figcaption>(.*?)</figcaption>", page, re.S):
        shown = re.sub(r"<details>.*?</details>|<ul>.*?</ul>|<a .*?</a>", "", caption, flags=re.S)
        assert len(re.findall(r"\.(?:\s|$)", shown.strip())) <= 2, shown
    assert "<summary>How to read this</summary>" in page


def test_pictures_take_colours_and_letters_of_the_page(page):
    pictures = re.findall(r"<svg .*?</svg>", page, re.S)
    used = {name for picture in pictures for name in re.findall(r"var\(--(\w+)\)", picture)}
    assert not any(re.search(r": #[0-9a-f]{6}", picture) for picture in pictures)
    light, dark = (part for part in page.partition("</style>")[0].split("prefers-color-scheme: dark", 1))
    assert {"text", "ground", "quiet", "line"} < used
    for style in (light, dark):
        assert used <= {*re.findall(r"--(\w+): #", style)}
    assert "svg text { font-family: inherit !important;" in page


def test_method_has_its_sign_in_every_table(page, study):
    style = choose_styles(gather([load_study(study)]).rows)["palbert"]
    sign = f'<th scope="row" class="sign m{COLOURS.index(style.colour)} s{MARKERS.index(style.marker)}">'
    for table, label in (("summary", "palbert/rte"), ("dev", "palbert"), ("exits", "palbert/rte")):
        assert f"{sign}{label}</th>" in page.partition(f'id="table-{table}"')[2].partition("</table>")[0], table


def test_first_picture_is_score_against_layers_without_times(page):
    summary, _, _ = page.partition('id="contents"')
    assert 'id="picture-score-against-layers" class="wide"' in summary
    assert summary.count('<figure id="picture-') == 1


def test_first_picture_stands_before_the_caveats(page):
    assert page.index('id="picture-score-against-layers"') < page.index('<div class="caveats')


def test_long_caveats_are_folded_after_their_colon():
    short, long = (
        Caveat("Two are missing: a, b.", "runs"),
        Caveat(f"Values lie at ends: {'a (wider: b), ' * 30}c.", "runs"),
    )
    assert short.parts == (short.text, "")
    assert long.parts == ("Values lie at ends.", long.text.removeprefix("Values lie at ends: "))


def test_panels_of_a_picture_are_elements_that_stack_on_narrow_screens(page):
    picture = page.partition('id="picture-score-against-layers"')[2].partition("</figure>")[0]
    panels = picture.partition('<div class="panels" style="--columns: 2">')[2].partition("</div>")[0]
    boxes = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', panels)
    assert len(boxes) == 2 and len({*boxes}) == 1 and float(boxes[0][0]) < 455 / 2
    assert [title in panels for title in ("RTE: accuracy", "mean layers run per example", "albert</text>")] == [
        True,
        False,
        False,
    ]
    assert '<span class="xlabel">mean layers run per example</span>' in picture
    keys = re.findall(r"</svg>([^<]*)</li>", picture.partition("</ul>")[0])
    assert keys[-1] == "coin toss between two fixed layers" and "palbert" in keys
    narrow = page.partition("max-width: 40rem")[2].partition("@media print")[0]
    assert ".panels { grid-template-columns: minmax(0, 1fr); }" in narrow


def test_two_narrow_pictures_stand_side_by_side(tmp_path):
    folder = predicted_study(tmp_path / "s", {"albert": 0.7, "palbert": 0.8}, ["rte"])
    summary, _, _ = report.write_report(folder).read_text().partition('id="contents"')
    shown = re.findall(r'<figure id="(picture-[\w-]*)" class="(\w*)"', summary)
    assert len(shown) == 2 and {kind for _, kind in shown} == {"column"}


def test_headings_are_in_order_under_one_title(parsed):
    assert parsed.lang == "en"
    assert parsed.headings.count(1) == 1 and parsed.headings[0] == 1
    assert all(after <= before + 1 for before, after in zip(parsed.headings, parsed.headings[1:], strict=False))


def test_every_picture_has_an_alt_text_that_its_caption_is_not(parsed):
    assert len(parsed.images) == 6
    assert all(alt and caption and alt != caption for alt, caption in parsed.images)


def test_every_table_has_a_caption_and_headers_with_a_scope(parsed):
    assert all(parsed.captions)
    assert set(parsed.headers) <= {"row", "col", "rowgroup"}


def test_wide_page_parts_scroll_in_boxes(parsed):
    assert parsed.unboxed == []


def test_headings_over_columns_do_not_widen_table(page):
    assert re.findall("<caption>(?!<div>)", page) == [] and re.findall('class="block">(?!<div>)', page) == []
    (rule,) = re.findall(r"\ncaption div, th\.block div {([^}]*)}", page)
    assert " width: var(--wide);" in rule and "margin-right: calc(-1 * var(--wide));" in rule
    assert "100vw" in rule and "position: sticky; left: 0;" in rule


def test_tables_become_lists_on_narrow_screens(page):
    narrow = page.partition("max-width: 40rem")[2].partition("@media print")[0]
    assert "content: attr(data-heading);" in narrow and ".fold td:empty" in narrow
    assert '<figure class="table fold" id="table-dev">' in page


def test_long_tables_are_folded_and_the_dev_table_is_not(page):
    assert re.search(r'<details class="folded"><summary>', page)
    assert not re.search(r'</summary>\s*<figure class="table" id="table-dev"', page)


def test_no_number_is_a_negative_zero(page):
    assert not re.search(r"(?<![\d.])-0\.0+(?!\d)", re.sub(r"base64,[^\"]*", "", page))


def test_report_has_tables_pictures_protocol_compute_and_what_is_missing(page, study):
    for part in ("table-dev", "table-exits", "table-sources", "table-published", "table-comparisons"):
        assert f'id="{part}"' in page
    for part in ("picture-differences", "picture-seeds", "picture-exit-layers"):
        assert f'id="{part}"' in page
    assert "Nothing is missing: all 6 cells" in page
    assert "The table has the time of all trials, including stopped and failed trials." in page
    assert load_study(study).protocol_hash in page
    assert "<dt>versions</dt><dd>torch 2.13.0</dd>" in page


def test_report_names_what_is_missing(tmp_path):
    folder = write_study(tmp_path, arm("palbert", "rte", [0.7] * 3), tasks=["rte", "cola"])
    page = report.write_report(folder).read_text()
    assert "1 of 2 cells is missing, 1 of 2 cells does not have the seeds of the protocol." in page
    assert "palbert/cola: missing" in page


def test_page_says_no_limit_twice(tmp_path):
    """A limit of the scores stands among the caveats at the top, and not again below the dev table."""
    folder = predicted_study(tmp_path / "s", {"albert": 0.8, "palbert": 0.3}, ["rte"])
    page, dev = report.write_report(folder).read_text(), (folder / "tables" / "dev.md").read_text()
    for note in ("marks scores that are not shown to be better", "these models score significantly below plain ones"):
        assert page.count(note) == dev.count(note) == 1


def test_report_escapes_what_others_have_written(tmp_path):
    folder = write_study(tmp_path, arm("palbert", "rte", [0.7] * 5), name="<script>alert(1)</script>")
    assert "<script>" not in report.write_report(folder).read_text()


def test_pictures_are_written_as_files(page, study):
    names = {path.name for path in (study / "pictures").iterdir()}
    shown = ("differences", "seeds", "score-against-layers", "exit-rules", "exit-layers", "search-progress")
    assert {f"{name}.{ending}" for name in shown for ending in ("svg", "pdf")} == names


class Unfolded(HTMLParser):
    """The words and tables of a page that stand in no folded part."""

    def __init__(self, text):
        super().__init__()
        self.folds = self.unseen = self.words = self.tables = 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.folds += tag == "details"
        self.unseen += tag in ("style", "title")
        self.tables += tag == "table" and not self.folds

    def handle_endtag(self, tag):
        self.folds -= tag == "details"
        self.unseen -= tag in ("style", "title")

    def handle_data(self, data):
        if not self.folds and not self.unseen:
            self.words += len(data.split())


def test_report_of_two_methods_is_short(tmp_path):
    """As the default study has; of its published rows and of all that is folded none is counted."""
    folder = predicted_study(tmp_path / "s", {"albert": 0.7, "palbert": 0.8}, ["sst2", "cola"], data="mini")
    page = report.write_report(folder).read_text()
    assert Unfolded(page).words <= 1_200 and Unfolded(page).tables <= 3
    assert page.count("Protocol ") == 1


@pytest.mark.long
def test_page_of_eight_tasks_is_below_5_mb(tmp_path):
    methods = {"albert": 0.7, "palbert": 0.8, "pondernet": 0.7, "pabee": 0.75, "electra-small": 0.9}
    tasks = ["sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb"]
    folder = predicted_study(tmp_path / "s", methods, tasks, num_examples=100)
    assert report.write_report(folder).stat().st_size < 5_000_000


def test_a_picture_that_is_not_drawn_any_more_is_gone(tmp_path):
    folder = write_study(tmp_path / "s", arm("palbert", "rte", [0.7] * 5))
    (folder / "pictures").mkdir()
    (folder / "pictures" / "fronts.svg").write_text("old")
    report.write_report(folder)
    assert not (folder / "pictures" / "fronts.svg").exists() and (folder / "pictures" / "seeds.svg").exists()


def test_tables_stand_if_a_picture_fails_and_they_were_deleted_meanwhile(tmp_path, monkeypatch):
    folder = write_study(tmp_path / "s", arm("palbert", "rte", [0.7] * 5))
    report.write_report(folder)

    def pictures(_):
        shutil.rmtree(folder / "tables")
        raise MemoryError

    monkeypatch.setattr(report, "pictures", pictures)
    with pytest.raises(MemoryError):
        report.write_report(folder)
    assert (folder / "tables" / "answer.md").exists()


def test_a_study_of_which_every_search_trial_failed_has_its_page(tmp_path):
    failed = [
        made_studies.record(
            "albert", "rte", None, phase="search", seed=i, trial=i, config={"learning_rate": i * 1e-5, "epochs": 3}
        )
        for i in (1, 2, 3)
    ]
    page = report.write_report(write_study(tmp_path, failed)).read_text()
    assert "albert/rte: missing" in page


def test_departures_tabulate_ours_and_papers(tmp_path):
    lines = (Departure("seeds", "5", "3"), Departure("last batch", "", "smaller"), "a sentence of an older plan")
    write_plan_of(tmp_path, replace(plan_of(["palbert"], ["rte"]), departures={"protocol": lines}))
    write_records(tmp_path, [])
    (table,) = report.departure_tables([load_study(tmp_path)])
    assert list(table.shown) == ["the paper or its code", "here"]
    assert {line.label: [entry.text for entry in line.entries.values()] for line in table.lines} == {
        "seeds": ["5", "3"],
        "last batch": ["", "smaller"],
        "a sentence of an older plan": ["", ""],
    }
    page = report.write_report(tmp_path).read_text()
    assert "<summary>protocol: 3</summary>" in page and 'id="table-departures-protocol"' in page
