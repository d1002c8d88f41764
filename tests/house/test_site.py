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
