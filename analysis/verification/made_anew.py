"""Tables and report made anew from the records, against the files on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from analysis.report import PAGE, report_files
from analysis.studies.load import Study
from analysis.tables import make_tables, table_files
from analysis.verification.differences import first_difference

PICTURES = "pictures"


def tables_drift(studies: list[Study], folder: Path, *, separate: bool = False) -> list[str]:
    """Which files of a folder of tables are not what the studies' records give, are missing, or of no table."""
    try:
        tables = make_tables(studies, separate=separate)
    except Exception as error:  # what is made of changed predictions may fail anywhere
        return [f"the tables cannot be made anew: {error}"]
    files = {name: text.encode() for table in tables for name, text in table_files(table).items()}
    again = " ".join(["python -m analysis.tables", *(str(study.folder) for study in studies)])
    return _files_drift(folder, files, again) + _surplus(folder, files)


def has_report(folder: Path) -> bool:
    """Whether a report was written, the page or pictures."""
    return (folder / PAGE).exists() or (folder / PICTURES).is_dir()


def report_drift(study: Study) -> list[str]:
    """Which files of the report are not what the study gives, are missing, or no picture; nothing without a report."""
    if not has_report(study.folder):
        return []
    try:
        files = report_files(study)
    except Exception as error:  # as in `tables_drift`
        return [f"the report cannot be made anew: {error}"]
    pictures = {Path(name).name for name in files if name != PAGE}
    drift = _files_drift(study.folder, files, f"python -m analysis.report {study.folder}")
    return drift + _surplus(study.folder / PICTURES, pictures)


def _files_drift(folder: Path, files: Mapping[str, bytes], again: str) -> list[str]:
    lines = []
    for name, content in files.items():
        path = folder / name
        if not path.exists():
            lines.append(f"{path} is missing; {again} writes it")
        elif (found := path.read_bytes()) != content:
            lines.append(f"{path} is not what the records give: {first_difference(found, content)}")
    return lines


def _surplus(folder: Path, names: Mapping[str, bytes] | set[str]) -> list[str]:
    present = sorted(path for path in folder.iterdir() if path.name not in names) if folder.is_dir() else []
    return [f"{path} is a file that nothing here makes; stale, or of another hand" for path in present]
