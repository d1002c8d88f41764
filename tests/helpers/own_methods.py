"""The method of docs/own_method.md, as files."""

from __future__ import annotations

import re
from pathlib import Path

from helpers.places import ROOT

PAGE = (ROOT / "docs" / "own_method.md").read_text()


def write_methods(folder: Path) -> Path:
    """The folder of the page, its files taken out of its blocks."""
    folder.mkdir()
    for name, text in re.findall(r"^`methods/(\w+\.py)` .*?^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(text)
    assert sorted(path.name for path in folder.iterdir()) == ["entropy.py", "entropy_space.py"]
    return folder


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
