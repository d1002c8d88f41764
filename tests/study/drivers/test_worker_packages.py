"""A worker needs the dependency group `worker` alone: pytest tests/study/drivers/test_worker_packages.py"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import msgspec
import pytest
from helpers import absent_packages
from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.trials import expected_of, spec_of

from study.drivers.messages import AssignedTrial, Assignment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ABSENT = {"argcomplete", "cmaes", "datasets", "matplotlib", "mlflow", "optuna", "pandas", "tomli-w"}
TRAIN = """
import json, sys
from study.drivers.messages import Assignment
from study.drivers.worker import Worker
from trainables.configuration.schema import from_json

worker = Worker()
worker.begin(from_json(Assignment, sys.stdin.buffer.read(), where="stdin"), node=None)
while (news := worker.step()).key is None or (news.report and not news.report.row.finished):
    pass
assert news.report, news.failure
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def needed(requirements: list[str]) -> dict[str, str]:
    """Requirements by their names."""
    return {re.split(r"[\[<>=]", requirement)[0]: requirement for requirement in requirements}


def test_group_repeats_requirements_of_the_project() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    whole = needed([*PROJECT["project"]["dependencies"], *extras["train"]])
    for name, requirement in needed(PROJECT["dependency-groups"]["worker"]).items():
        assert whole[name] == requirement


def test_page_installs_what_data_of_the_hub_need_on_a_worker() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    (command,) = re.findall(r"`(pip install [^`]*--group worker[^`]*)`", page)
    assert "datasets" in command.split()  # trainables/data/glue.py imports it for --data hub


@pytest.mark.long
@pytest.mark.slow
def test_worker_trains_with_its_group_alone(tmp_path: Path) -> None:
    assert not ABSENT & needed(PROJECT["dependency-groups"]["worker"]).keys()
    (tmp_path / "python").mkdir()
    shutil.copy(absent_packages.__file__, tmp_path / "python" / "sitecustomize.py")
    own = {"PYTHONPATH": f"{tmp_path / 'python'}:{ROOT}", absent_packages.ABSENT: ",".join(_modules_of(ABSENT))}
    spec = spec_of("palbert", "rte")
    (tmp_path / "trials").mkdir()
    trial = AssignedTrial(
        key="key",
        epochs=0,
        spec=spec,
        expected=expected_of(spec),
        place=str(tmp_path / "trials" / "key"),
        predictions=str(tmp_path / "key.npz"),
        marks=(),
    )
    assignment = Assignment(trial=trial, device="cpu", cpus=1, gpus=0, threads=1, avoid=(), included=None)
    done = subprocess.run(
        [sys.executable, "-c", TRAIN],
        input=msgspec.json.encode(assignment),
        capture_output=True,
        cwd=tmp_path,
        env=os.environ | own,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert "torch" in json.loads(done.stdout.splitlines()[-1])
    assert (tmp_path / "key.npz").exists()


def _modules_of(distributions: set[str]) -> list[str]:
    """The modules of these distributions that no other one has."""
    names = {name.lower().replace("_", "-") for name in distributions}
    found = packages_distributions().items()
    return [module for module, owners in found if {owner.lower().replace("_", "-") for owner in owners} <= names]
