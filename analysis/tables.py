"""Rewrite the tables of one or more studies.

python -m analysis.tables runs/NAME ... [--out FOLDER] [--format md,csv,tex,html] [--strict]
python -m analysis.tables runs/NAME --rows palbert,albert --tasks rte --names palbert="PALBERT (ours)" --format tex
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from analysis.layouts import certainty_tables, checklist, compute_tables, exit_tables, paper_tables, time_tables
from analysis.layouts.answer import answer
from analysis.layouts.evidence import Evidence, gather
from analysis.layouts.given_scores import add_given_scores
from analysis.layouts.rendering import FORMATS, STANDARD_FORMATS, Format, json_text, render
from analysis.layouts.table import Table, select
from analysis.studies.load import Study, load_studies
from analysis.written_by import version
from study.storage.addresses import check_folder, make_writable
from study.terminal.command_line import Command, add_once, argument, option, read_pair
from study.terminal.text import format_markdown
from trainables.configuration.schema import Typed
from trainables.configuration.spelling import is_same_name
from trainables.files import atomic_files

LAYOUTS = (
    certainty_tables.comparisons_table,
    exit_tables.exits_table,
    time_tables.times_table,
    certainty_tables.sources_table,
    certainty_tables.verdicts_table,
    certainty_tables.winners_table,
    certainty_tables.search_repeats_table,
    compute_tables.equal_compute_table,
    compute_tables.compute_table,
    checklist.data_table,
    certainty_tables.scores_on_test_table,
    paper_tables.published_table,
)

TABLES = [layout.__name__.removesuffix("_table") for layout in (paper_tables.dev_table, *LAYOUTS)] + ["checklist"]
WITHDRAWN = (  # tables of earlier versions, whose files are deleted
    "ablation",
    "comparisons_of_others",
    "compute_of_arms",
    "electra",
    "exit_rules",
    "exit_settings",
    "guarantees",
    "pabee",
)
ANSWER = "answer.md"
WRITTEN_BY = "written_by.json"  # the version that wrote the tables


class IncompleteTablesError(ValueError):
    """Error raised under `--strict` if a cell is incomplete."""


def make_tables(studies: list[Study], *, separate: bool = False) -> list[Table]:
    """Make all tables of these studies, the dev table first. The same records always give the same text."""
    return tabulate(gather(studies, separate=separate))


def tabulate(evidence: Evidence) -> list[Table]:
    """Make all tables of the evidence, the dev table first."""
    dev = paper_tables.dev_table(evidence)
    layouts = [replace(dev, answer=answer(evidence)), *(layout(evidence) for layout in LAYOUTS)]
    tables = [table for table in layouts if table is not None]
    return [*tables, checklist.checklist_table(evidence, [table.name for table in tables])]


def write_tables(
    folders: list[Path],
    out: Path,
    *,
    formats: Sequence[Format] = (),
    strict: bool = False,
    separate: bool = False,
    beside: Path | None = None,
) -> list[Table]:
    """Write all tables to `out`, as Markdown, CSV and JSON. Return the tables, the dev table first.

    Args:
        formats: further formats.
        beside: CSV file with scores from elsewhere, for the dev table.

    Raises:
        ValueError: a folder has no study, the protocols differ, `out` or `beside` cannot be used, or `strict` is true
            and a cell is incomplete. Nothing is written in these cases.
    """
    studies = load_studies(folders)
    check_folder("--out", out)
    tables = make_tables(studies, separate=separate)
    if beside:
        tables[0] = add_given_scores(tables[0], beside)
    if strict:
        _require_complete(tables[0])
    write_files(tables, out, formats)
    return tables


def _require_complete(dev: Table) -> None:
    if incomplete := dev.sidecar["incomplete"]:
        raise IncompleteTablesError("--strict: " + "; ".join(incomplete))


def write_files(tables: list[Table], out: Path, formats: Sequence[Format] = ()) -> None:
    """Write these tables to `out`, and delete the files of all other tables and formats there."""
    make_writable(str(out))
    texts = {out / name: text for name, text in render_files(tables, formats).items()}
    known = [out / name for name in _list_known()]
    atomic_files.write_files(texts, remove=[path for path in known if path not in texts and not path.is_dir()])


def _list_known() -> Iterator[str]:
    """List the names of all files of tables, also of earlier versions."""
    for name in (*TABLES, *WITHDRAWN):
        yield from (f"{name}.{ending}" for ending in (*FORMATS, "json"))


def check_own(out: Path, names: Iterable[str]) -> None:
    """Check that files with the `names` of tables in a folder of the user's are tables.

    Raises:
        ValueError: they may be something else, which would be overwritten or deleted.
    """
    if (out / WRITTEN_BY).exists():
        return
    if others := [name for name in names if (out / name).exists()]:
        raise ValueError(
            f"--out {out} has {', '.join(others)}, but no {WRITTEN_BY}, so these files may be no tables; "
            "allowed: a folder without them"
        )


def render_files(tables: list[Table], formats: Collection[Format] = ()) -> dict[str, bytes]:
    """Render all tables, and a file with the version of this package; return name of the file -> content."""
    files = {name: text.encode() for table in tables for name, text in table_files(table, formats).items()}
    return files | {WRITTEN_BY: json.dumps({"version": version()}).encode() + b"\n"}


def table_files(table: Table, formats: Collection[Format] = ()) -> dict[str, str]:
    """Render a table as Markdown, CSV, JSON and in `formats`; return name of the file -> text."""
    wanted = [ending for ending in FORMATS if ending in STANDARD_FORMATS or ending in formats]
    files = {f"{table.name}.{ending}": render(table, ending) for ending in wanted}
    files[f"{table.name}.json"] = json_text(table)
    return files | ({ANSWER: table.answer} if table.answer else {})


_CUT = "print the dev table with only these {} (separated by commas; repeatable), without notes; no file is written"


_FORMAT = (
    "write all tables also in these formats, besides md, csv and json, and print the dev table in the first of them; "
    "default: print the scores and a summary"
)


_BESIDE = (
    "add scores from elsewhere to the dev table, marked as given by hand and not tested: a CSV file with the columns "
    "method, task, score (in points) and source; without --out, the table is only printed"
)


class Options(Typed, frozen=True, kw_only=True):
    """Arguments of `python -m analysis.tables`."""

    studies: Annotated[list[str], argument("runs/NAME", "folder of a study")]
    out: Annotated[str | None, option("folder for the files; default: the study's tables/", "FOLDER")] = None
    format: Annotated[str | None, option(_FORMAT, ",".join(FORMATS))] = None
    strict: Annotated[bool, option("fail if a cell has missing or extra seeds, or an unfinished search")] = False
    separate: Annotated[bool, option("give each study its own rows, one per method")] = False
    rows: Annotated[list[str], option(_CUT.format("rows"), "NAME")] = []
    tasks: Annotated[list[str], option(_CUT.format("columns"), "NAME")] = []
    names: Annotated[list[str], option("rename a row of the table", "ROW=NAME")] = []
    beside: Annotated[str | None, option(_BESIDE, "FILE.csv")] = None
    bold: Annotated[Literal["best"] | None, option("print the highest median of each column in bold")] = None


def run(options: Options) -> int:
    """Write or print the tables; return 0, or 1 if `--strict` is given and a cell is incomplete."""
    try:
        is_beside = options.beside is not None and options.out is None  # a study's tables have only its own scores
        is_cut = options.rows or options.tasks or options.names or options.bold or is_beside
        return _print_cut(options) if is_cut else _write(options)
    except IncompleteTablesError as error:
        print(f"analysis.tables: {error}", file=sys.stderr)
        return 1


def _read_formats(options: Options) -> list[Format]:
    """Read the names of formats in --format; [] if it is not given.

    Raises:
        ValueError: if a name is unknown.
    """
    names: dict[str, Format] = {name: name for name in FORMATS}
    texts = [] if options.format is None else options.format.split(",")
    if unknown := [text for text in texts if text not in names]:
        raise ValueError(f"--format is {unknown[0]!r}; allowed: {', '.join(FORMATS)}, or several with commas")
    return [names[text] for text in texts]


def _print_cut(options: Options) -> int:
    """Print the dev table with the chosen rows and columns, without writing files."""
    if options.out is not None:
        raise ValueError(
            f"--out {options.out}: a table of chosen rows or columns is only printed; instead of --out, use > FILE"
        )
    formats = _read_formats(options)
    if len(formats) > 1:
        raise ValueError(f"--format is {options.format}; allowed for a table that is only printed: one format")
    dev = paper_tables.dev_table(gather(load_studies(list(map(Path, options.studies))), separate=options.separate))
    if options.strict:
        _require_complete(dev)
    rows, tasks = ([name for text in texts for name in text.split(",")] for texts in (options.rows, options.tasks))
    labels = [line.label for line in dev.lines if line.source == "ours"]
    names = dict[str, str]()
    for text in options.names:
        add_once(names, *_read_name(text, labels), "--names")
    table = select(dev, rows=rows, tasks=tasks, names=names, bold_best=options.bold == "best")
    if options.beside:
        table = add_given_scores(table, Path(options.beside))
    print(render(table, formats[0] if formats else "md"), end="")
    return 0


def _read_name(text: str, labels: Sequence[str]) -> tuple[str, str]:
    """Split a value of --names at the `=` behind a row's label; a label such as `palbert:beta=0.1` has one itself."""
    row, name = read_pair("--names", text, "ROW=NAME")
    places = [place for place, letter in enumerate(text) if letter == "="]
    splits = [(text[:place], text[place + 1 :]) for place in reversed(places)]
    return next((split for split in splits if any(is_same_name(split[0], label) for label in labels)), (row, name))


def _write(options: Options) -> int:
    folders = [Path(name) for name in options.studies]
    if options.out is None and len(folders) > 1:
        raise ValueError("--out is needed for the tables of several studies")
    out = Path(options.out) if options.out else folders[0] / "tables"
    if options.out:
        check_own(out, (*_list_known(), ANSWER))
    formats = _read_formats(options)
    beside = Path(options.beside) if options.beside else None
    dev, *_ = write_tables(
        folders, out, formats=formats, strict=options.strict, separate=options.separate, beside=beside
    )
    if not formats:
        print(format_markdown((out / ANSWER).read_text(), sys.stdout), end="")
        print(f"\nThe protocol, notes and published numbers are in {out / 'dev.md'}.")
        return 0
    text = render(dev, formats[0])
    print(format_markdown(text, sys.stdout) if formats[0] == "md" else text, end="")
    return 0


main = Command(
    "analysis.tables",
    Options,
    "Rewrite the tables of a study, or make joint tables of several studies that have the same protocol.",
    run,
)

if __name__ == "__main__":
    sys.exit(main())
