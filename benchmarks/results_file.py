"""Where the benchmarks keep their figures."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

from study.facts.events import utc_now
from study.facts.provenance import versions
from trainables.files.atomic_files import write_json
from trainables.models.devices import device_name

FOLDER_VARIABLE = "BENCHMARK_RESULTS"  # environment variable that names another folder
RESULTS = Path(os.environ.get(FOLDER_VARIABLE) or Path(__file__).parent / "results")


def write_results(name: str, results: dict[str, Any]) -> None:
    """Keeps the figures of a benchmark, with the machine, the versions and the command that made them."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    machine = {"machine": platform.platform(), "processor": device_name("cpu"), "cpus": os.cpu_count()}
    facts = {**machine, "versions": versions(), "command": shlex.join(sys.argv), "time": utc_now()}
    write_json(RESULTS / f"{name}.json", {**facts, **results})
