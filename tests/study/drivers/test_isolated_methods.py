"""Each trial of a user's own method has a process of its own: pytest tests/study/drivers/test_isolated_methods.py"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.faulty_methods import write_leaky, write_remembering
from helpers.launches import ONE_AT_A_TIME
from helpers.places import PATIENCE_SECONDS, ROOT

from study.drivers.messages import Assignment
from study.facts.record import Record
from study.facts.study_facts import read_facts
from trainables.files.method_files import read_methods
from trainables.runs.trial import TrialSpec

BASE = ["--task", "rte", "--profile", "mini", "--samples", "1", "--seeds", "2", "--epochs", "2", "--sampler", "random"]
BASE += ["--early-stopping", "none", "--tracking-uri", "none", *ONE_AT_A_TIME]
DRIVERS = ["ray", "local"]


def launched(folder: Path, method: str, driver: str, *more: str) -> list[Record]:
    command = [sys.executable, "-m", "study.launch", "--method", method, *BASE, *more]
    command += ["--driver", driver, "--out", str(folder.parent), "--name", folder.name]
    own = {"cwd": ROOT, "env": os.environ, "timeout": PATIENCE_SECONDS}
    done = subprocess.run(command, capture_output=True, text=True, **own)
    assert done.returncode == 0, done.stderr
    return read_facts(folder).records


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("driver", DRIVERS)
def test_replaced_function_of_torch_does_not_reach_other_methods(tmp_path: Path, driver: str) -> None:
    methods = write_leaky(tmp_path / "methods")
    alone = launched(tmp_path / "alone", "albert", driver)
    beside = launched(tmp_path / "beside", "leaky,albert", driver, "--include", str(methods))
    of_albert = [record for record in beside if record.method == "albert"]
    results = [
        {(record.key, record.score, record.predictions_digest) for record in each} for each in (alone, of_albert)
    ]
    assert results[0] == results[1] and len(results[0]) == 3 and len(beside) == 6


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("driver", DRIVERS)
def test_no_trial_finds_what_another_left_in_a_module(tmp_path: Path, driver: str) -> None:
    methods = write_remembering(tmp_path / "methods")
    file = methods / "remembering.py"
    file.write_text(file.read_text().replace("SEEN.append(1)", 'SEEN.append(1); print("built", len(SEEN))'))
    launched(tmp_path / "study", "remembering", driver, "--include", str(methods))
    log = (tmp_path / "study" / "workers.log").read_text().splitlines()
    assert [line for line in log if line.startswith("built")] == ["built 1"] * 4  # one of the smoke step


def test_work_that_runs_an_included_method_is_known(tmp_path: Path) -> None:
    included = read_methods(write_leaky(tmp_path / "methods"))
    specs = {
        method: TrialSpec(method=method, task="rte", config={}, seed=1, data="mini", backbone="mini-albert")
        for method in ("albert", "leaky", "leaky:a")
    }
    resources = {"device": "cpu", "cpus": 1, "gpus": 0, "threads": 1}
    for methods, expected in ((["albert"], False), (["leaky"], True), (["albert", "leaky:a"], True), ([], False)):
        smoke = {method: specs[method] for method in methods}
        assert Assignment(smoke=smoke, included=included, **resources).runs_own_methods is expected
    assert not Assignment(smoke=specs, **resources).runs_own_methods
