"""Reads the files of tables: TSV in the layout of GLUE, CSV, JSON Lines and Parquet.

Fields of TSV are never quoted: a stray `"` is a character like any other. CSV is as spreadsheets and pandas write it.
Blank lines at the end of a file are skipped. In CSV and JSON Lines, a blank line cannot be a row, so all blank lines
are skipped; in TSV, a blank line between rows is a row without text, which is an error.
"""

import codecs
import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainables.configuration.schema import Reader, Value

Line = tuple[int, str | list[str]]  # number in the file, and a line of TSV or the cells of a row of another format
SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
_OWN_SEPARATOR = {".tsv": "\t", ".csv": ","}
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # the name of an index without a name, in a file of pandas
_JSON = Reader(dict[str, Value])


def read_lines(file: Path) -> Sequence[Line]:
    """Read the lines of a file, header included, each with its line number.

    Raises:
        ValueError: if the file is malformed. The message names file and line.
    """
    match file.suffix:
        case ".parquet":
            return _read_parquet(file)
        case ".csv":
            return _read_csv(file, _decode(file))
        case ".jsonl":
            return _read_json(file, _cut_lines(_decode(file)))
        case _:
            lines = _cut_lines(_decode(file))
            while lines and not lines[-1][1].strip(" "):
                lines.pop()
            return lines


def split_cells(line: Line) -> list[str]:
    """Return the cells of a line."""
    _, content = line
    return content.split("\t") if isinstance(content, str) else content


def is_quoted(cell: str) -> bool:
    """Check that a cell is quoted as in CSV: quotes around it, and each of its own quotes doubled."""
    return len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in cell[1:-1].replace('""', "")


def describe_header_fault(file: Path, header: Sequence[str]) -> str:
    """Describe the likely reason why a header line lacks a column, with the remedy; "" if none is found."""
    own = _OWN_SEPARATOR.get(file.suffix)
    if len(header) == 1 and own and (other := next((each for each in SEPARATORS if each in header[0]), None)):
        return (
            f"the columns are separated by {SEPARATORS[other]} ({other!r}); allowed in {file.suffix}: {SEPARATORS[own]}"
        )
    if blank := next((name for name in header if name != name.strip()), None):
        return f"the name of column {blank!r} begins or ends with a blank; write {blank.strip()!r}"
    return ""


def _cut_lines(text: str) -> list[tuple[int, str]]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")  # str.splitlines also cuts at U+2028
    return [*enumerate(lines[:-1] if lines[-1] == "" else lines, 1)]


def _read_csv(file: Path, text: str) -> Sequence[Line]:
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # the default refuses a cell above 131,072 characters
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        rows: list[Line] = [(reader.line_num, row) for row in reader if row]  # the last line of a multi-line row
    except csv.Error as error:
        raise ValueError(f'{file}, line {reader.line_num}: {error}; allowed: CSV with commas, quoted by "') from None
    while rows and len(rows[-1][1]) == 1 and rows[-1][1][0] != "" and not rows[-1][1][0].strip():
        rows.pop()
    return rows


def _read_json(file: Path, lines: Sequence[tuple[int, str]]) -> Sequence[Line]:
    """Read one JSON object per line. All objects must have the same fields, which form the header."""
    rows: list[Line] = []
    header: list[str] = []
    for number, line in lines:
        if not line.strip():
            continue
        row = _JSON.read(line.encode(), where=f"{file}, line {number}")
        names = [name for name, _ in json.loads(line, object_pairs_hook=list)]  # msgspec keeps the last of equal names
        if len(names) > len(row):
            repeated = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{file}, line {number}: field {repeated} is given twice; allowed: once")
        header = header or [*row]
        if row.keys() != {*header}:
            allowed = f"allowed: {', '.join(header)}, as in line {rows[0][0]}"
            raise ValueError(f"{file}, line {number}: the fields are {', '.join(row)}; {allowed}")
        rows.append((number, [_format_cell(row[name]) for name in header]))
    return [(1, header), *rows] if rows else []


def _read_parquet(file: Path) -> Sequence[Line]:
    """Read a Parquet file. Class numbers become names if the file has the names, as those of `datasets` have.

    A nameless index that pandas wrote is left out.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(file)
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{file} cannot be read: {reason}; allowed: a Parquet file") from None
    table = table.drop_columns([name for name in table.column_names if _PANDAS_INDEX.fullmatch(name)])
    names, columns = _read_class_names(table.schema.metadata or {}), []
    for name in table.column_names:
        kind = table.schema.field(name).type
        values = table.column(name).to_pylist()
        if not all(isinstance(value, Value) for value in values):
            raise ValueError(f"{file}: column {name!r} is of type {kind}; allowed: texts and numbers")
        classes = dict(enumerate(names.get(name, ())))
        columns.append([classes.get(value) or _format_cell(value) for value in values])
    return [(0, table.column_names), *((number, [*row]) for number, row in enumerate(zip(*columns, strict=True), 1))]


def _read_class_names(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    """Read the names of the classes, by column, from the metadata that `datasets` writes into a Parquet file."""
    features: dict[str, Any] = (json.loads(metadata.get(b"huggingface", b"{}")).get("info") or {}).get("features") or {}
    return {
        name: feature["names"]
        for name, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
    }


def _format_cell(value: Value) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _decode(file: Path) -> str:
    content = file.read_bytes()
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{file} is in UTF-16; allowed: UTF-8")
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        fault, place = f"byte {content[error.start]:#04x} is not UTF-8", error.start
    else:
        if (place := content.find(b"\0")) < 0:
            return text
        fault = "a NUL byte, as in UTF-16 or a damaged file"
    line = content.count(b"\n", 0, place) + 1
    raise ValueError(f"{file}, line {line}: {fault}; allowed: UTF-8")
