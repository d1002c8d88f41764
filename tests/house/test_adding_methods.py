"""A new method is two files, and so is an arm that others start from: pytest tests/house/test_adding_methods.py"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.places import ROOT
from helpers.simulation import Simulation
from msgspec.structs import replace

import search_spaces
import trainables
from study.facts.events import TrialStarted
from study.plans import profiles
from study.plans.resolution import resolve

FILES = {
    "trainables/toy.py": """
from trainables.configuration import TrainingConfig, Share

DEPARTURES = ()

class Config(TrainingConfig, frozen=True, kw_only=True):
    smoothing: Share

def build(config, encoder, task):
    from trainables.models.classifiers import LastLayerModel
    return LastLayerModel(encoder, task.num_labels, config)
""",
    "search_spaces/toy.py": """
from optuna.distributions import FloatDistribution
from search_spaces import _palbert_paper as paper

SPACE = paper.SPACE | {"smoothing": FloatDistribution(0.0, 0.2)}
PAPER_GRID = paper.GRID | {"smoothing": [0.1]}
FIXED = paper.FIXED
BACKBONE = paper.BACKBONE
""",
    "trainables/toy_pretraining.py": """
from trainables.configuration import TrainingConfig

DEPARTURES = ()

class Config(TrainingConfig, frozen=True, kw_only=True):
    pass

def build(config, encoder, task):
    from trainables.models.classifiers import LastLayerModel
    return LastLayerModel(encoder, task.num_labels, config)
""",
    "search_spaces/toy_pretraining.py": """
from search_spaces import _palbert_paper as paper

SPACE = {}
PAPER_GRID = {}
FIXED = paper.FIXED | {"learning_rate": 1e-4, "batch_size": 32}
BACKBONE = paper.BACKBONE
MINI_FIXED = {"learning_rate": 1e-3}
""",
}

# Runs pytest with the two packages found in a second folder too. A new process, in which one rule continues a trial,
# does not look into that folder.
CONTRACT = """
import sys, pytest, search_spaces, trainables
for package in (trainables, search_spaces):
    package.__path__.append(f"{sys.argv[1]}/{package.__name__}")
chosen = ["-k", "toy and not continued_trial", "tests/trainables/test_methods.py"]
others = ["tests/trainables/configuration", "tests/trainables/test_departures.py", "tests/search_spaces"]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *chosen, *others]))
"""


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with two methods more, which is looked into like the project's own."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for package in (trainables, search_spaces):
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path / package.__name__)])
    yield tmp_path
    for name in [name for name in sys.modules if name.rpartition(".")[2] in ("toy", "toy_pretraining")]:
        del sys.modules[name]


@pytest.mark.long
@pytest.mark.slow
def test_two_new_files_pass_the_contract_tests(toys: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CONTRACT, str(toys)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout and "failed" not in done.stdout


def test_a_method_of_two_files_is_planned_like_any_other(toys: Path) -> None:
    assert {"toy", "toy-pretraining"} <= set(trainables.list_methods()) == set(search_spaces.list_methods())
    simulation = Simulation(
        resolve(replace(profiles.load_profile("mini"), methods=("toy",), tasks=("rte",), samples=3))
    )
    assert simulation.launch().progress.is_finished


def test_other_arms_start_from_an_arm_without_search(toys: Path) -> None:
    plan = replace(
        profiles.load_profile("mini"), methods=("toy-pretraining", "albert"), tasks=("rte",), samples=2, seeds=1
    )
    simulation = Simulation(resolve(replace(plan, start_from={"albert/rte": "toy-pretraining/rte"})))
    scheduler = simulation.launch()
    source, *others = simulation.journal.of(TrialStarted)
    assert (source.arm, source.phase, source.seed) == ("toy-pretraining/rte", "confirm", 42)
    assert {event.arm for event in others} == {"albert/rte"} and {event.start for event in others} == {source.key}
    assert scheduler.progress.missing == {} and scheduler.progress.arm("toy-pretraining/rte").median is not None
