"""Plan files for launches in tests."""

from pathlib import Path


def with_lines(folder: Path, *lines: str) -> list[str]:
    """Write a plan file of these lines, and return the option that reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lines.toml"
    path.write_text("".join(f"{line}\n" for line in lines))
    return ["--plan", str(path)]
