"""Write one HTML page about a study, with its answer, tables, pictures and runs.

python -m analysis.report runs/NAME

The page needs no network and no other file. The command also writes the tables to runs/NAME/tables, and SVG and PDF
files of the pictures to runs/NAME/pictures.
"""

from __future__ import annotations

import base64
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from markupsafe import Markup

from analysis.layouts import comparison_notes, model_notes, protocol_notes, search_notes
from analysis.layouts.answer import caveats, headline, summary_table, warn_of_weak_models
from analysis.layouts.evidence import Evidence, gather
from analysis.layouts.exit_texts import read_exit_texts
from analysis.layouts.rendering import html_figure, load_template, render
from analysis.layouts.table import GAP, HUNDREDTHS, POINTS, Table, text_table
from analysis.layouts.time_tables import describe_times
from analysis.pictures.picture import (
    COLOURS,
    DARK,
    MARKERS,
    Picture,
    choose_styles,
    draw_key,
    follow_page,
    name_colours,
    render_image,
    render_panels,
)
from analysis.pictures.study_pictures import pictures
from analysis.statistics.costs import row_ledger, warn_of_unlike_compute
from analysis.statistics.samples import Place
from analysis.studies.cells import Cell
from analysis.studies.load import Study, load_study
from analysis.tables import tabulate, write_files
from analysis.written_by import version
from study.facts.record import Record
from study.facts.registration import find_plan_source
from study.facts.study_folder import compute_plan_digest, predictions_file
from study.storage.addresses import check_folder, make_writable
from study.terminal.command_line import Command, argument
from study.terminal.text import counted
from trainables import Departure
from trainables.configuration.schema import Typed
from trainables.data.tasks import TASKS
from trainables.files import atomic_files

PAGE = "report.html"
IMAGES: tuple[Literal["svg", "pdf"], ...] = ("svg", "pdf")  # formats of the files of pictures
# Pictures for the first screen; it shows the first one that exists, or the first two if they stand side by side.
FIRST = "picture-score-against-time picture-score-against-layers picture-differences picture-seeds"
# A table that is in neither list is collapsed.
ALWAYS_OPEN = ("dev", "verdicts")
_TEXTS = re.compile(rb'<section id="texts">.*?</section>', re.DOTALL)
_UNREAD = b'<p class="unread">'  # in this section, if texts could not be read
OPEN_IF_SHORT = ("sources", "search_repeats", "scores_on_test")
LONGEST_OPEN = 12  # largest number of lines of a short table
SECTIONS = {  # section title -> anchors of its tables and pictures, in order
    "Scores": "table-dev table-verdicts picture-seeds table-sources table-scores_on_test table-published",
    "Comparisons": "picture-differences table-comparisons",
    "Speed": "table-times table-exits picture-score-against-layers picture-exit-rules picture-exit-layers",
    "Search": "table-winners table-search_repeats picture-search-progress picture-losses table-equal_compute",
    "Compute": "table-compute",
    "Checklist": "table-checklist table-data",
}
# Shapes of the methods' signs in CSS, like `MARKERS` in pictures.
SHAPES = (
    "circle(50%)",
    "inset(4%)",
    "polygon(50% 0, 100% 95%, 0 95%)",
    "polygon(50% 0, 100% 50%, 50% 100%, 0 50%)",
    "polygon(0 5%, 100% 5%, 50% 100%)",
    "polygon(30% 0, 70% 0, 70% 30%, 100% 30%, 100% 70%, 70% 70%, 70% 100%, 30% 100%, 30% 70%, 0 70%, 0 30%, 30% 30%)",
    "polygon(20% 0, 50% 30%, 80% 0, 100% 20%, 70% 50%, 100% 80%, 80% 100%, 50% 70%, 20% 100%, 0 80%, 30% 50%, 0 20%)",
)


def write_report(folder: Path) -> Path:
    """Write `tables/`, `pictures/` and `report.html` into the study folder; return the path of the page.

    Raises:
        ValueError: the folder has no study, has only a plan, or cannot be written to.
    """
    study = load_study(folder)
    if not study.facts.launches:
        raise ValueError(f"no events in {folder}; allowed: the folder of a study that has been launched")
    check_folder("the study", folder)
    evidence = gather([study])
    tables = tabulate(evidence)
    with ExitStack() as stack:
        stack.callback(write_files, tables, study.folder / "tables")  # even if a picture cannot be drawn or written
        files = {study.folder / name: content for name, content in report_files(study, evidence, tables).items()}
        make_writable(str(study.folder / "pictures"))
        drawn = (study.folder / "pictures").glob("[!.]*")
        atomic_files.write_files(files, remove=[path for path in drawn if path not in files and not path.is_dir()])
    return study.folder / PAGE


def report_files(study: Study, evidence: Evidence, tables: list[Table]) -> dict[str, bytes]:
    """Render the page and the pictures; map each path in the study's folder to the content of the file.

    The same study always gives the same bytes.
    """
    made = pictures(evidence)
    files = {
        f"pictures/{picture.name}.{ending}": render_image(picture.figure, ending)
        for picture in made
        for ending in IMAGES
    }
    return files | {PAGE: report_page(study, evidence, tables, made).encode()}


def report_page(study: Study, evidence: Evidence, tables: list[Table], drawn: list[Picture]) -> str:
    """Render the page as HTML."""
    links = {(label, cell.task): f"#table-runs-{label}" for label, cell in evidence.cells if cell.records}
    signs = {
        label: f"m{COLOURS.index(style.colour)} s{MARKERS.index(style.marker)}"
        for label, style in choose_styles(evidence.rows).items()
    }
    told = {  # at the top of the page
        *model_notes.weak_model_notes(evidence.weak_models),
        *evidence.limits,
        *comparison_notes.power_notes(evidence.comparisons),
        *warn_of_unlike_compute(row_ledger(evidence.rows)),
    }
    seeds = protocol_notes.describe_seeds(evidence.studies, evidence.rows)
    parts = {
        f"table-{table.name}": Part(
            _without_seeds(table.title, seeds),
            _table_html(replace(table, notes=[note for note in table.notes if note not in told]), links, signs),
            _is_folded(table),
        )
        for table in tables
    }
    for picture in drawn:
        html = Markup(
            load_template("picture.html.j2").render(
                picture=picture,
                keys=[(Markup(follow_page(draw_key(key))), key.label) for key in picture.legend],
                panels=[Markup(follow_page(panel)) for panel in render_panels(picture)],
            )
        )
        parts[f"picture-{picture.name}"] = Part(picture.title, html, picture=picture)
    first = [parts.pop(name) for name in choose_first(parts)]
    texts = read_exit_texts(evidence)
    return load_template("report.html.j2").render(
        study=study,
        folder=shlex.quote(str(study.folder)),
        version=version(),
        about=_about(study),
        headline=headline(evidence),
        times=describe_times(evidence),
        warnings=warn_of_weak_models(evidence),
        summary=_table_html(summary_table(evidence), {}, signs),
        caveats=caveats(evidence),
        first=first,
        sections=sections(parts),
        group_pictures=group_pictures,
        colours=list(name_colours()),
        dark=DARK,
        shapes=SHAPES,
        is_limited=bool(search_notes.seed_notes(evidence.rows) or protocol_notes.list_other_data(evidence.rows)),
        departures=[(table.title, Markup(html_figure(table))) for table in departure_tables([study])],
        registration=registration(study),
        texts=texts,
        text_tables=[(table.title, Markup(html_figure(table))) for table in texts.tables] if texts else [],
        runs=[(table.title, Markup(html_figure(table))) for table in run_tables(evidence)],
        provenance=_provenance(study),
    )


@dataclass(frozen=True)
class Part:
    """A table or a picture on the page."""

    title: str
    html: Markup
    is_folded: bool = False
    picture: Picture | None = None  # None for a table


def choose_first(parts: Mapping[str, Part]) -> list[str]:
    """Choose the pictures on the first screen, by name: the first of `FIRST`, or two if they stand side by side."""
    pictures = [(name, parts[name].picture) for name in FIRST.split() if name in parts]
    is_single = bool(pictures and pictures[0][1] and pictures[0][1].is_wide)
    return [name for name, picture in pictures[: 1 if is_single else 2] if picture and picture.is_wide == is_single]


def group_pictures(parts: Iterable[Part]) -> list[list[Part]]:
    """Put consecutive pictures into one group, and each table into a group of its own."""
    groups = list[list[Part]]()
    for part in parts:
        if part.picture and groups and groups[-1][0].picture:
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def sections(parts: dict[str, Part]) -> dict[str, dict[str, Part]]:
    """Group the parts of the page by section. All parts that `SECTIONS` does not list are in section "Further"."""
    named = {title: [name for name in names.split() if name in parts] for title, names in SECTIONS.items()}
    placed = {name for names in named.values() for name in names}
    further = [name for name in parts if name not in placed]
    named |= {"Further": further} if further else {}
    return {title: {name: parts[name] for name in names} for title, names in named.items()}


def _without_seeds(title: str, seeds: str) -> str:
    """Shorten a title that ends with the seeds: `Exits, median over 5 seeds (42, ...)` becomes `Exits`."""
    return title.removesuffix(seeds).rpartition(",")[0] if title.endswith(seeds) else title


def _is_folded(table: Table) -> bool:
    is_short = sum(len(block.lines) for block in table.parts) <= LONGEST_OPEN
    return table.name not in ALWAYS_OPEN and not (is_short and table.name in OPEN_IF_SHORT)


def _table_html(table: Table, links: Mapping[Place, str], signs: Mapping[str, str]) -> Markup:
    """Render the table as HTML, with the signs of its methods; the CSV file is a data URL.

    Args:
        links: address of the table of runs, for each entry that links to one.
        signs: CSS classes of each row's sign.
    """
    lines, marked = [], {}
    for line in table.lines:
        entries = {name: replace(own, href=links.get((line.label, name), "")) for name, own in line.entries.items()}
        lines.append(replace(line, entries=entries))
        if (sign := signs.get(line.label) or signs.get(line.label.rpartition("/")[0])) and not line.published:
            marked[line.label] = sign
    csv = f"data:text/csv;base64,{base64.b64encode(render(table, 'csv').encode()).decode()}"
    return Markup(html_figure(replace(table, lines=lines), csv, signs=marked))


def departure_tables(studies: list[Study]) -> list[Table]:
    """Tabulate the departures from the papers, in one table for the protocol and one for each method.

    Each line of a table shows the paper's version beside ours.
    """
    tables = []
    for who, lines in protocol_notes.collect_departures(studies).items():
        named = [line if isinstance(line, Departure) else Departure(line, "", "") for line in lines]
        table = text_table(
            f"departures-{who}",
            title=f"{who}: {len(lines)}",
            first_column="what",
            lines=[(one.what, {"the paper or its code": one.paper, "here": one.here}) for one in named],
        )
        tables.append(replace(table, is_prose=True))
    return tables


def run_tables(evidence: Evidence) -> list[Table]:
    """Tabulate the final runs of each row, including failed and dropped runs."""
    tables = []
    for row in evidence.rows:
        runs = [
            (f"{TASKS[cell.task].title}, seed {record.seed}", _run(cell, record))
            for cell in row.cells.values()
            for record in (*cell.tested, *cell.failed)
        ]
        if runs:
            tables.append(text_table(f"runs-{row.label}", title=row.label, first_column="run", lines=runs))
    return tables


def _run(cell: Cell, record: Record) -> dict[str, str]:
    folder = cell.find_study(record).folder
    predictions = predictions_file(folder, record.key)
    return {
        "score": _describe_score(record),
        "layers": f"{HUNDREDTHS.text(record.mean_layers)} of {record.num_layers}" if record.mean_layers else GAP,
        "epoch": str(record.epoch or GAP),
        "key": record.key,
        "predictions": str(predictions.relative_to(folder)) if predictions.exists() else "",
        "model": record.model or "",
    }


def _describe_score(record: Record) -> str:
    score = "" if record.score is None else POINTS.text(record.score)
    reason = f"{record.status}: {record.error}" if record.status in ("failed", "dropped") else ""
    return "; ".join(filter(None, (score, reason)))


def _about(study: Study) -> str:
    request = study.plan.request
    numbers = (study.methods, "method"), (study.tasks, "task"), (study.seeds, "seed")
    methods, tasks, seeds = (counted(len(things), noun) for things, noun in numbers)
    return f"{methods} on {tasks}, {seeds}; profile {request.profile}, data {study.plan.data}."


def have_same_content(page: bytes, other: bytes) -> bool:
    """Check whether two pages differ at most in texts of examples that only one of them could read from the data."""
    texts = [_TEXTS.search(one) for one in (page, other)]
    if page == other or not all(texts) or not any(found and _UNREAD in found[0] for found in texts):
        return page == other
    return _TEXTS.sub(b"", page) == _TEXTS.sub(b"", other)


def registration(study: Study) -> str:
    """Describe whether and where the plan's digest was registered before the first trial."""
    digest = compute_plan_digest(study.folder)
    places = dict.fromkeys(event.place for event in study.facts.registered if event.digest == digest)
    text, source = f"Plan {digest} was not registered before the first trial", find_plan_source(study.facts)
    if places:
        text = f"According to the journal, plan {digest} was registered before the first trial as {', '.join(places)}"
    if source is None:
        return f"{text}."
    launch = "the first launch" if source.launch == 1 else f"launch {source.launch}"
    return f"{text}; {launch} ran {Path(source.file).name} at commit {source.commit}."


def _provenance(study: Study) -> dict[str, str]:
    """Collect the settings that the study requested, and the code, devices and versions of its trials."""
    records, request = study.records, study.plan.request
    facts: dict[str, Any] = {
        "methods": ", ".join(study.methods),
        "tasks": ", ".join(TASKS[task].title for task in study.tasks),
        "search trials per arm": "the whole grid" if request.samples is None else request.samples,
        "confirm seeds": ", ".join(map(str, study.seeds)),
        "backbones": ", ".join(sorted({arm.pinned_backbone for arm in study.plan.arms})),
        "command line": study.file.command,
        **protocol_notes.collect_provenance(records),
        "ran": f"{min(one.started for one in records)} to {max(one.ended for one in records)}" if records else "",
        "journal, SHA-256": study.journal.describe(),
    }
    return {name: str(value) for name, value in facts.items() if value}


# The command


class Options(Typed, frozen=True, kw_only=True):
    """Arguments of `python -m analysis.report`."""

    study: Annotated[str, argument("runs/NAME", "folder of the study")]


def run(options: Options) -> int:
    """Write the report, and print its path."""
    print(write_report(Path(options.study)))
    return 0


main = Command("analysis.report", Options, "Write report.html: one self-contained page about a study.", run)

if __name__ == "__main__":
    sys.exit(main())
