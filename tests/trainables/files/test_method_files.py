"""Reading the files of an included folder: pytest tests/trainables/files/test_method_files.py"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.messages import one_line
from helpers.own_methods import write_methods
from helpers.own_tasks import write_page_task
from syrupy.assertion import SnapshotAssertion

from trainables.data.own_tasks import read_tasks
from trainables.files.method_files import read_methods

APPLE_DOUBLE = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        \xff"  # begins every ._ file


def test_hidden_files_of_macos_are_no_methods(tmp_path: Path) -> None:
    folder = write_methods(tmp_path / "methods")
    before = read_methods(folder)
    for name in ("._entropy.py", "._entropy_space.py", ".DS_Store"):
        (folder / name).write_bytes(APPLE_DOUBLE)
    assert read_methods(folder) == before


def test_a_byte_order_mark_is_no_code(tmp_path: Path) -> None:
    folder = write_methods(tmp_path / "methods")
    before = read_methods(folder)
    file = folder / "entropy.py"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert read_methods(folder) == before


def test_a_file_that_is_no_text_is_named(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    folder = write_methods(tmp_path / "methods")
    (folder / "_tables.py").write_bytes(b"# caf\xe9\n")
    with pytest.raises(ValueError) as error:
        read_methods(folder)
    assert one_line(error.value, tmp_path) == snapshot


def test_hidden_folders_hold_no_tasks(tmp_path: Path) -> None:
    folder = write_page_task(tmp_path / "tasks")
    hidden = folder / ".trash"
    hidden.mkdir()
    (hidden / "task.toml").write_bytes(APPLE_DOUBLE)
    file = folder / "claims" / "task.toml"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert [task.name for task in read_tasks(folder)] == ["claims"]
