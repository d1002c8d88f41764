"""One self-contained HTML page about a study: which method is better, then tables, pictures, runs, protocol, compute.

python -m analysis.report runs/NAME

The page needs no network and no other file. Its tables and pictures are also written to runs/NAME/tables, as
`analysis.tables` writes them, and to runs/NAME/pictures as SVG.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.layouts import notes
from analysis.layouts.certainty_tables import comparison_tables
from analysis.layouts.cost_tables import compute_tables
from analysis.layouts.evidence import Evidence, gather
from analysis.layouts.paper_tables import macro
from analysis.layouts.rendering import html_figure, render
from analysis.layouts.table import DIFFERENCE, GAP, HUNDREDTHS, POINTS, Table, text_table
from analysis.pictures.picture import Picture, svg
from analysis.pictures.study_pictures import pictures
from analysis.statistics.comparisons import POWER, by_task, macro_test, marks
from analysis.statistics.costs import Compute, ledger_notes, row_ledger, speed_facts, speed_up, unit_of
from analysis.statistics.samples import Place
from analysis.statistics.uncertainty import PairedTest
from analysis.studies.cells import Cell, Row
from analysis.studies.load import Study, load_study
from analysis.tables import tables_of, write_files
from study.command_line import Parser, argument, guarded
from study.facts.plain_words import counted
from study.facts.record import Record
from study.facts.study_folder import predictions_file
from study.storage.output_places import check_folder
from trainables.atomic_files import write_bytes
from trainables.data.tasks import TASKS
from trainables.schema import Typed

PAGE = "report.html"
TEMPLATES = Path(__file__).with_name("templates")
LONGEST_OPEN = 12  # lines: a longer table is folded
ALWAYS_OPEN = ("dev", "over_tasks", "verdicts", "compute")
SECTIONS = {  # title -> what stands there, in this order
    "Scores": (
        "table-dev table-over_tasks table-verdicts picture-seeds table-intervals table-spread table-ablation "
        "table-pabee table-electra"
    ),
    "Comparisons": "table-comparisons table-comparisons_of_others",
    "Speed": (
        "picture-score-against-layers table-equal_layers table-equal_score picture-exit-layers table-speed "
        "table-latency table-calibration picture-calibration"
    ),
    "Search": "table-equal_compute table-optimism table-search_repeats picture-search-progress",
    "Compute": "table-compute table-compute_of_arms",
}


def write_report(folder: Path) -> Path:
    """Writes `tables/`, `pictures/` and `report.html` into the study folder; returns the page.

    Raises:
        ValueError: it is no study, holds a plan alone, or cannot be written.
    """
    study = load_study(folder)
    if not study.facts.launches:
        raise ValueError(f"no events in {folder}; allowed: the folder of a study that a launch has begun to run")
    check_folder("the study", folder)
    evidence = gather([study])
    tables = tables_of(evidence)
    write_files(tables, study.folder / "tables")  # first: they stand also where a picture cannot be drawn
    files = _files(study, evidence, tables)
    (study.folder / "pictures").mkdir(exist_ok=True)
    for name, content in files.items():
        write_bytes(study.folder / name, content)
    for path in (study.folder / "pictures").iterdir():
        if f"pictures/{path.name}" not in files:
            path.unlink()  # of a picture that the study does not give any more
    return study.folder / PAGE


def report_files(study: Study) -> dict[str, bytes]:
    """Page and pictures, by their names in the study's folder. The same study gives the same bytes."""
    evidence = gather([study])
    return _files(study, evidence, tables_of(evidence))


def _files(study: Study, evidence: Evidence, tables: list[Table]) -> dict[str, bytes]:
    drawn = pictures(evidence)
    images = {picture.name: svg(picture.figure) for picture in drawn}
    files = {f"pictures/{name}.svg": image for name, image in images.items()}
    return files | {PAGE: report_page(study, evidence, tables, drawn, images).encode()}


def report_page(
    study: Study, evidence: Evidence, tables: list[Table], drawn: list[Picture], images: dict[str, bytes]
) -> str:
    """The page as text; `images` are the pictures as SVG files, by name."""
    found, hrefs = findings(evidence), _hrefs(evidence)
    parts = {
        f"table-{table.name}": Part(table.title, _table_html(table, hrefs), _is_long(table))
        for table in [*tables, *comparison_tables(evidence), *compute_tables(evidence)]
    }
    for picture in drawn:
        parts[f"picture-{picture.name}"] = Part(picture.title, _picture_html(picture, images[picture.name]))
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("report.html.j2").render(
        study=study,
        about=_about(study),
        headline=headline(evidence, found),
        findings=[(finding.row, sentence(finding, evidence.baseline)) for finding in found],
        caveats=caveats(evidence, found),
        forest=parts.pop("picture-forest", None),
        sections=sections(parts),
        incomplete=notes.seed_notes(evidence.rows),
        completeness=completeness(evidence),
        other_data=notes.other_data(evidence.rows),
        departures=notes.departures([study]),
        runs=[(table.title, Markup(html_figure(table))) for table in run_tables(evidence)],
        provenance=_provenance(study),
    )


@dataclass(frozen=True)
class Part:
    """A table or a picture of the page."""

    title: str
    html: Markup
    is_folded: bool = False


def sections(parts: dict[str, Part]) -> dict[str, dict[str, Part]]:
    """The parts by anchor, under the titles of their sections; what no section names stands in "Further"."""
    named = {title: [name for name in names.split() if name in parts] for title, names in SECTIONS.items()}
    placed = {name for names in named.values() for name in names}
    further = [name for name in parts if name not in placed]
    named |= {"Further": further} if further else {}
    return {title: {name: parts[name] for name in names} for title, names in named.items()}


def _is_long(table: Table) -> bool:
    return sum(len(block.lines) for block in table.parts) > LONGEST_OPEN and table.name not in ALWAYS_OPEN


def _hrefs(evidence: Evidence) -> dict[Place, str]:
    """The address of the runs behind every cell that has a number."""
    return {(label, cell.task): f"#table-{_runs_of(label, cell)}" for label, cell in evidence.cells if cell.records}


def _table_html(table: Table, hrefs: dict[Place, str]) -> Markup:
    """The table with a link from each cell to its runs, and to its CSV as an address that needs no other file."""
    lines = []
    for line in table.lines:
        entries = {name: replace(own, href=hrefs.get((line.label, name), "")) for name, own in line.entries.items()}
        lines.append(replace(line, entries=entries))
    csv = f"data:text/csv;base64,{base64.b64encode(render(table, 'csv').encode()).decode()}"
    return Markup(html_figure(replace(table, lines=lines), csv))


def run_tables(evidence: Evidence) -> list[Table]:
    """The confirm trials of every cell that has any, a line for each."""
    tables = []
    for label, cell in evidence.cells:
        number = f"{POINTS.text(cell.median)}, median of {len(cell.records)}" if cell.records else "no number"
        title = f"{label} on {TASKS[cell.task].title}: {number}"
        runs = [(str(record.seed), _run(cell, record)) for record in (*cell.records, *cell.failed)]
        if runs:
            tables.append(text_table(_runs_of(label, cell), title=title, first_column="seed", lines=runs))
    return tables


def _runs_of(label: str, cell: Cell) -> str:
    return f"runs-{label}/{cell.task}"


def _run(cell: Cell, record: Record) -> dict[str, str]:
    folder = cell.study_of(record).folder
    predictions = predictions_file(folder, record.key)
    return {
        "score": f"failed: {record.error}" if record.score is None else POINTS.text(record.score),
        "layers": f"{HUNDREDTHS.text(record.mean_layers)} of {record.num_layers}" if record.mean_layers else GAP,
        "epoch": str(record.epoch or GAP),
        "key": record.key,
        "predictions": str(predictions.relative_to(folder)) if predictions.exists() else "",
        "model": record.model or "",
    }


def _about(study: Study) -> str:
    asked = study.file.plan.asked
    numbers = (study.methods, "method"), (study.tasks, "task"), (study.seeds, "seed")
    methods, tasks, seeds = (counted(len(things), noun) for things, noun in numbers)
    return f"{methods} on {tasks}, {seeds}; profile {asked.profile}, data {study.file.plan.data}."


def _picture_html(picture: Picture, image: bytes) -> Markup:
    figure = (
        '<figure id="picture-{}"><div class="title">{}</div><div class="scroll">'
        '<img alt="{}" src="data:image/svg+xml;base64,{}"></div><figcaption>{}</figcaption></figure>\n'
    )
    return Markup(figure).format(
        picture.name, picture.title, picture.alt, base64.b64encode(image).decode(), picture.caption
    )


def _provenance(study: Study) -> dict[str, str]:
    """What was asked for, under which rules, and what it ran with."""
    records, asked = study.records, study.file.plan.asked
    facts: dict[str, Any] = {
        "protocol": notes.protocol_in_words([study]),
        "methods": ", ".join(study.methods),
        "tasks": ", ".join(TASKS[task].title for task in study.tasks),
        "search trials per arm": "the whole grid" if asked.samples is None else asked.samples,
        "confirm seeds": ", ".join(map(str, study.seeds)),
        "backbones": ", ".join(sorted({arm.pinned_backbone for arm in study.file.plan.arms})),
        "pretraining": " ".join(notes.pretraining_in_words([study])),
        "command line": study.file.command,
        **notes.provenance(records),
        "ran": f"{min(one.started for one in records)} to {max(one.ended for one in records)}" if records else "",
        "journal, SHA-256": study.journal.describe(),
    }
    return {name: str(value) for name, value in facts.items() if value}


# The first screen: which method is better, by how much, at what cost; and what limits the answer. A sentence says
# "above" or "below" of what the dev table marks, and of nothing else.


@dataclass(frozen=True)
class Finding:
    """What a study says of one method; the tests are of its scores minus the baseline's."""

    row: str
    is_baseline: bool
    medians: dict[str, float]  # by task, of cells with records
    macro: float | None
    tests: dict[str, PairedTest]  # by task
    arrows: dict[str, str]  # by task that the dev table marks
    detectable: dict[str, float]  # task -> the difference that would have been marked with 80 % power
    layers: float | None  # run per dev example, mean over the tasks
    depths: tuple[int, ...]  # layers of its models, each number once
    speed_up: float | None  # all layers / layers run, both summed over the tasks
    compute: str  # in the same unit for all rows; empty if there was none

    @cached_property
    def difference(self) -> PairedTest | None:
        """The test of the mean over the tested tasks; None without a test."""
        return macro_test(self.tests) if self.tests else None

    def marked(self, arrow: str) -> list[str]:
        """The titles of the tasks on which it is marked like this."""
        return [TASKS[task].title for task, own in self.arrows.items() if own == arrow]


@dataclass(frozen=True)
class Caveat:
    """A line, and the part of the page that says more."""

    text: str
    anchor: str


def findings(evidence: Evidence) -> list[Finding]:
    """One per row: the baseline first, then by the mean difference to it, and last those without a test."""
    computes = {entry.row: entry.total for entry in row_ledger(evidence.rows)}
    arrows, unit = marks(evidence.rows, evidence.comparisons), unit_of(computes.values())
    spent = {row: "" if own == Compute(0.0, 0.0) else own.in_words(unit) for row, own in computes.items()}
    return sorted((_finding(evidence, row, arrows, spent[row.label]) for row in evidence.rows), key=_place)


def _finding(evidence: Evidence, row: Row, arrows: Mapping[tuple[str, str], str], compute: str) -> Finding:
    baseline = evidence.baseline
    is_baseline = row.label == baseline
    tests = {} if baseline is None or is_baseline else by_task(evidence.comparisons, row.label, baseline)
    speeds = [speed_facts(cell) for cell in row.cells.values() if cell.records]
    layers = [facts["mean_layers"] for facts in speeds if facts["mean_layers"] is not None]
    return Finding(
        row=row.label,
        is_baseline=is_baseline,
        medians={task: row.cells[task].median for task in TASKS if task in row.cells and row.cells[task].records},
        macro=macro(row),
        tests={task: tests[task] for task in TASKS if task in tests},
        arrows={task: arrows[row.label, task] for task in TASKS if task in tests and (row.label, task) in arrows},
        detectable={
            one.task: one.detectable_difference
            for one in evidence.comparisons
            if one.detectable_difference is not None
            if one.task in tests and {one.row, one.other} == {row.label, baseline}
        },
        layers=float(np.mean(layers)) if layers else None,
        depths=tuple(sorted({int(facts["num_layers"]) for facts in speeds if facts["num_layers"]})),
        speed_up=speed_up(speeds),
        compute=compute,
    )


def _place(finding: Finding) -> tuple[int, float]:
    if finding.is_baseline:
        return 0, 0.0
    return (1, -finding.difference.difference) if finding.difference else (2, 0.0)


def headline(evidence: Evidence, found: Sequence[Finding]) -> str:
    """Which methods are marked above and below the baseline, or why none can be."""
    baseline = evidence.baseline
    if len(found) == 1:
        return f"One method, {found[0].row}: there is nothing to compare it with."
    if baseline is None:
        return f"No method is tested: {notes.why_no_baseline(evidence.rows)}."
    tested = [finding for finding in found if finding.tests]
    if not tested:
        return f"No method is tested against {baseline}: a test needs stored predictions of two seeds of both."
    parts = []
    for word, arrow in (("Better", "↑"), ("Worse", "↓")):
        marked = {one.row: f"{len(one.marked(arrow))} of {len(one.tests)} tasks" for one in tested if one.marked(arrow)}
        if marked:
            parts.append(f"{word} than {baseline}: {', '.join(f'{row} on {where}' for row, where in marked.items())}.")
    number = sum(len(finding.tests) for finding in tested)
    where = "the one comparison" if number == 1 else f"any of {number} comparisons"
    return " ".join(parts) or f"No difference to {baseline} was found in {where}."


def sentence(finding: Finding, baseline: str | None) -> str:
    """The method's sentence, without its name: difference, marks, layers, compute."""
    compute = f"{finding.compute} in all" if finding.compute else ""
    parts = [_difference_in_words(finding, baseline), _layers_in_words(finding), compute]
    return "; ".join(part for part in parts if part) + "."


def _difference_in_words(finding: Finding, baseline: str | None) -> str:
    test, number = finding.difference, len(finding.tests)
    if test is None:
        scores = [f"{TASKS[task].title} {POINTS.text(median)}" for task, median in finding.medians.items()]
        result = (
            f"macro {POINTS.text(finding.macro)}" if finding.macro is not None else ", ".join(scores) or "no number"
        )
        untested = f"; not tested against {baseline}" if baseline and scores else ""
        return f"the baseline, {result}" if finding.is_baseline else result + untested
    difference, low, high = map(DIFFERENCE.text, (test.difference, test.low, test.high))
    where = f"mean over {number} tasks" if number > 1 else TASKS[next(iter(finding.tests))].title
    marked = [
        f"marked {word} on {len(tasks)} of {number} ({', '.join(tasks)})"
        for word, tasks in (("above", finding.marked("↑")), ("below", finding.marked("↓")))
        if tasks
    ]
    result = " and ".join(marked) or f"no difference was found ({_detectable_in_words(finding.detectable)})"
    return f"{difference} points to {baseline} ({where}; 95 % interval {low} to {high}), {result}"


def _detectable_in_words(detectable: dict[str, float]) -> str:
    """What would have been found, on the task where that is easiest and on the one where it is hardest."""
    if not detectable:
        return "what would have been is not known: all scores are alike"
    ends = (choose(detectable, key=detectable.__getitem__) for choose in (min, max))
    texts = dict.fromkeys(f"{POINTS.text(detectable[task])} points on {TASKS[task].title}" for task in ends)
    return f"differences above {' to '.join(texts)} would have been, {100 * POWER:.0f} % of the time"


def _layers_in_words(finding: Finding) -> str:
    if finding.layers is None or finding.speed_up is None:
        return ""
    depth = " to ".join(dict.fromkeys(str(end) for end in (finding.depths[0], finding.depths[-1])))
    ratio = HUNDREDTHS.text(finding.speed_up)
    if ratio == "1.00":
        return f"runs all {depth} layers"
    return f"runs {HUNDREDTHS.text(finding.layers)} of {depth} layers (speed-up {ratio})"


def caveats(evidence: Evidence, found: Sequence[Finding]) -> list[Caveat]:
    """Incomplete and untested cells, other data than the official GLUE, marks, unlike compute, departures."""
    lines = [Caveat(completeness(evidence), "missing")]
    tested = [finding for finding in found if finding.tests]
    untested = [f"{one.row} on {TASKS[task].title}" for one in tested for task in one.medians if task not in one.tests]
    if untested:
        text = f"Not tested against {evidence.baseline}, for want of predictions of both: {', '.join(untested)}."
        lines.append(Caveat(text, "comparisons"))
    if evidence.on_mini:
        lines.append(Caveat("The tasks are generated (mini-GLUE): the numbers say nothing of GLUE.", "protocol"))
    elif titles := notes.other_data(evidence.rows):
        lines.append(Caveat(f"Not the official GLUE: {', '.join(titles)}.", "missing"))
    lines += [Caveat(_as_sentence(note), "comparisons") for note in notes.search_notes(evidence.comparisons)]
    warnings = ledger_notes(row_ledger(evidence.rows))[1:]
    lines += [Caveat(_as_sentence(warning.removeprefix("warning: ")), "compute") for warning in warnings]
    if number := sum(map(len, notes.departures(evidence.studies).values())):
        lines.append(Caveat(f"{counted(number, 'departure')} from the papers and their code.", "departures"))
    return lines


def completeness(evidence: Evidence) -> str:
    """How many cells are empty, and how many have other seeds than the protocol's."""
    states = [cell.state for _, cell in evidence.cells]
    number, missing = counted(len(states), "cell"), states.count("missing")
    others = len(states) - missing - states.count("complete")
    parts = [f"{missing} of {number} {'is' if missing == 1 else 'are'} missing"] * (missing > 0)
    parts += [f"{others} of {number} {'does' if others == 1 else 'do'} not follow the protocol"] * (others > 0)
    return f"{', '.join(parts)}." if parts else f"Nothing is missing: all {number} have the seeds of the protocol."


def _as_sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


# The command


class Options(Typed, frozen=True, kw_only=True):
    """The options of this command."""

    study: Annotated[str, argument("runs/NAME")]


def build_parser() -> Parser[Options]:
    return Parser(Options, "analysis.report", "One HTML page about a study.")


def main(argv: Sequence[str] | None = None) -> int:
    return guarded("analysis.report", lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    print(write_report(Path(build_parser().options(argv).study)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
