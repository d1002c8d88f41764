"""Files of text that a test edits."""

from pathlib import Path


def replace_in(file: Path, old: str, new: str) -> None:
    """Replace the first `old` in a file, which must be there."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
