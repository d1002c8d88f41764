"""Pages of the site that are made from other files: README, changelog, contributing, and the methods from their code.

A hook of MkDocs (`mkdocs.yml`); `python docs/site/pages.py` prints the page of the methods.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # MkDocs runs hooks without the folder that they are about

import search_spaces  # noqa: E402
import trainables  # noqa: E402
from trainables.configuration.ranges import format_range  # noqa: E402
from trainables.files import method_files  # noqa: E402

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

MOVED = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
STYLE = "site.css"
MOVED |= {"benchmarks/results/real/cpu/tables.md": "real_results_cpu_tables.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of docs/ with those that are made here."""
    from mkdocs.structure.files import File

    made = {page: as_in_docs((ROOT / name).read_text()) for name, page in MOVED.items()} | {
        "methods.md": methods_page()
    }
    made[STYLE] = (Path(__file__).parent / STYLE).read_text()
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """A page with its links to the files that have moved, and its tables outside code blocks."""
    for name, page in MOVED.items():
        markdown = markdown.replace(f"](../{name}", f"]({page}")
    return re.sub(r"^```\n((?:\|.*\|\n)+)```$", r"\1", markdown, flags=re.M)


def as_in_docs(text: str) -> str:
    """A page of the repository's root with its links as seen from docs/."""
    for name, page in MOVED.items():
        text = text.replace(f"]({name}", f"]({page}")
    return re.sub(r"\]\(docs/", "](", text)


def methods_page() -> str:
    """One section per method: what it is, its departures, its settings and the paper's grid."""
    sections = [
        "# Methods and exit rules",
        "Look up the settings, ranges and departures of each method, as `trainables/` and `search_spaces/` have them. "
        "`analysis/published.csv` has the published numbers; `study.launch --dry-run --explain METHOD/TASK` prints the "
        "source of each value.",
        *(section for name in method_files.names() for section in method_sections(name)),
        "## Exit rules",
        *exit_rules(),
    ]
    return "\n\n".join(sections) + "\n"


def method_sections(name: str) -> Iterator[str]:
    module = method_files.locate_files(name)[0].import_module()
    space = search_spaces.load_space(name)
    yield f"## {name}"
    yield inspect.getdoc(module) or ""
    if variants := search_spaces.variants(name):
        yield f"Variants: {', '.join(f'`{variant}`' for variant in variants)}."
    lines = ["| field | value or range | the paper's grid |", "| --- | --- | --- |"]
    for field, allowed in space.space.items():
        grid = ", ".join(map(str, space.paper_grid.get(field, ())))
        lines.append(f"| `{field}` | {format_range(allowed).replace(' | ', ', ')} | {grid} |")
    lines += [f"| `{field}` | {value} | |" for field, value in sorted(space.fixed.items())]
    yield "\n".join(lines)
    yield "Departures from the paper or its code:"
    rows = [" | ".join(departure).replace("||", r"\|\|") for departure in trainables.departures(name)]
    yield "\n".join(f"| {row} |" for row in ("what | the paper or its code | here", "--- | --- | ---", *rows))


def exit_rules() -> Iterator[str]:
    from trainables.models import answer_rules, exit_rules

    members = inspect.getmembers(exit_rules, inspect.isclass) + inspect.getmembers(answer_rules, inspect.isclass)
    for name, rule in sorted(dict(members).items()):
        if hasattr(rule, "step") and not inspect.isabstract(rule):
            yield f"### {name}\n\n{inspect.getdoc(rule) or ''}"


if __name__ == "__main__":
    print(methods_page())
