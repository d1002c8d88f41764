"""The docs as a site: built strictly, complete, and readable without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.places import PATIENCE_SECONDS, ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_of_the_docs_is_built(site):
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert {*pages, "index", "changelog", "contributing", "methods"} <= {path.stem for path in site.glob("*.html")}


def test_no_page_loads_anything_from_elsewhere(site):
    for page in site.glob("*.html"):
        loaded = re.findall(
            r"<(?:script|img)[^>]* src=\"(http[^\"]+)|<link[^>]* rel=\"stylesheet\"[^>]* href=\"(http[^\"]+)",
            page.read_text(),
        )
        assert loaded == [], page.name


def test_methods_page_has_departures_and_exit_rules(site):
    text = (site / "methods.html").read_text()
    assert "<td>no limit in the paper</td>\n<td>at most 25, as in the code</td>" in text
    assert re.findall(r'<h3 id="\w+">(\w+)', text) == [
        "Beem",
        "Entropy",
        "Expectation",
        "FPabee",
        "FixedLayer",
        "LastLayer",
        "LearnedExit",
        "MaxProbability",
        "Patience",
        "Pcee",
        "Sampled",
        "Threshold",
    ]


def test_tables_of_the_start_page_are_rendered(site):
    text = (site / "index.html").read_text()
    assert "| arm" not in text and text.count("<table>") >= 2
    assert re.search(r"<th[^>]*>within 1 point</th>", text) and re.search(r"<td[^>]*>palbert/sst2</td>", text)


def test_code_of_a_hundred_columns_fits(site):
    """The style sheet narrows the menus and the letters; whether 100 columns fit was seen in a browser."""
    assert '<link rel="stylesheet" href="site.css">' in (site / "index.html").read_text()
    style = (site / "site.css").read_text()
    assert ".md-typeset pre > code" in style and ".language-sh pre > code { white-space: pre-wrap;" in style
    assert '<div class="language-sh highlight">' in (site / "tutorial.html").read_text()
