"""The methods of docs/own_method.md, as files."""

from __future__ import annotations

import re
from pathlib import Path

from helpers.places import ROOT

PAGE = (ROOT / "docs" / "own_method.md").read_text()


FILES = {
    "methods": ["entropy.py", "entropy_space.py"],
    "adapters": ["_low_rank.py", "lora.py", "lora_space.py"],
    "distilled": ["_teacher.py", "distilled.py", "distilled_space.py"],
}


def write_methods(folder: Path, name: str = "methods") -> Path:
    """One of the folders of the page, its files taken out of its blocks."""
    folder.mkdir()
    for file, text in re.findall(rf"^`{name}/(\w+\.py)` .*?^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        (folder / file).write_text(text)
    assert sorted(path.name for path in folder.iterdir()) == FILES[name]
    return folder
