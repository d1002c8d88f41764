"""Regenerates the tables of one or more studies.

python -m analysis.tables runs/NAME ... [--out FOLDER] [--format md|csv|tex|html] [--strict]
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from analysis.command_line import Parser, run
from analysis.layouts import (
    ablation_table,
    dev_table,
    electra_table,
    gather,
    intervals_table,
    optimism_table,
    speed_table,
)
from analysis.load import Study, load_studies
from analysis.render import FORMATS, Format, Table, render


@dataclass(frozen=True)
class WrittenTables:
    """The tables that were made, where they lie, and the cells that do not follow the protocol."""

    tables: list[Table]
    files: list[Path]
    incomplete: list[str]  # one line per cell: its name, and how its seeds differ from the protocol's

    def text(self, format: Format = "md") -> str:
        """The first table (the dev table), for a terminal."""
        return render(self.tables[0], format)


class IncompleteTables(ValueError):
    """A cell has other seeds than the protocol's, and that was to be an error."""


def make_tables(studies: list[Study]) -> list[Table]:
    """All tables of these studies, the dev table first. Deterministic: the same records give the same texts."""
    layouts = [dev_table, intervals_table, speed_table, optimism_table, ablation_table]
    if _any_electra(studies):
        layouts.append(electra_table)
    evidence = gather(studies)
    return [layout(evidence) for layout in layouts]


def _any_electra(studies: list[Study]) -> bool:
    arms = [(study, method, task) for study in studies for method in study.methods for task in study.tasks]
    return any("electra" in method + study.backbone(method, task).lower() for study, method, task in arms)


def write_tables(folders: list[Path], out: Path, *, strict: bool = False) -> WrittenTables:
    """Writes every table in every format, with its JSON sidecar, to `out`.

    ValueError, with nothing written: a folder is no study, studies of different protocols, or `strict` and a cell
    whose seeds are not exactly the protocol's.
    """
    return _write(make_tables(load_studies(folders)), out, strict)


def write_ablation(folders: list[Path], out: Path, *, strict: bool = False) -> WrittenTables:
    """Writes the ablation table alone: its studies may differ in the settings of their methods, which it names."""
    return _write([ablation_table(gather(load_studies(folders, apart_from=("settings",))))], out, strict)


def _write(tables: list[Table], out: Path, strict: bool) -> WrittenTables:
    incomplete = tables[0].sidecar["incomplete"]
    if strict and incomplete:
        raise IncompleteTables("--strict: " + "; ".join(incomplete))
    out.mkdir(parents=True, exist_ok=True)
    files = [write_text(out / name, text) for table in tables for name, text in table_files(table).items()]
    return WrittenTables(tables=tables, files=files, incomplete=incomplete)


def table_files(table: Table) -> dict[str, str]:
    """Every file of a table: name -> text."""
    files = {f"{table.name}.{format}": render(table, format) for format in FORMATS}
    files[f"{table.name}.json"] = json.dumps(table.sidecar, indent=1, ensure_ascii=False) + "\n"
    return files


def write_text(path: Path, text: str) -> Path:
    """Replaces `path` by `text`, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
    return path


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(prog="python -m analysis.tables", description="Regenerate the tables of studies.")
    parser.add_argument("studies", nargs="+", type=Path, metavar="runs/NAME")
    parser.add_argument("--out", type=Path, help="folder for the files (default: the study's tables/)")
    parser.add_argument("--format", choices=FORMATS, default="md", help="what is printed; all formats are written")
    parser.add_argument("--strict", action="store_true", help="a cell with other seeds than the protocol's is an error")
    parser.add_argument(
        "--ablation", action="store_true", help="one ablation table of studies that differ in --set only"
    )
    options = parser.parse_args(arguments)
    if options.out is None and len(options.studies) > 1:
        raise ValueError("--out is needed for the tables of several studies")
    out = options.out or options.studies[0] / "tables"
    write = write_ablation if options.ablation else write_tables
    try:
        written = write(options.studies, out, strict=options.strict)
    except IncompleteTables as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(written.text(options.format), end="")
    return 0


if __name__ == "__main__":
    run(main)
