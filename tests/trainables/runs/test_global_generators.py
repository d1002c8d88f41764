"""Methods that draw from the global generators: pytest tests/trainables/runs/test_global_generators.py"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.faulty_methods import write_drawing, write_method
from helpers.trials import run_to_the_end, spec_of, untimed

import trainables
from trainables.files import method_files
from trainables.runs.training import TrainingRun

pytestmark = pytest.mark.usefixtures("few_rows")


@pytest.fixture(autouse=True)
def without_included_methods() -> Iterator[None]:
    yield
    method_files.include(None)


def train(method: str, cache: Path, *, seed: int = 1) -> list[dict[str, object]]:
    return untimed(run_to_the_end(spec_of(method, seed=seed), cache).history)


@pytest.fixture
def drawing(tmp_path: Path) -> None:
    trainables.include(write_drawing(tmp_path / "methods"))


@pytest.mark.usefixtures("drawing")
def test_a_seed_gives_the_same_rows_whatever_ran_before(cache: Path) -> None:
    random.seed(3)
    np.random.seed(3)
    first = train("drawing", cache)
    train("drawing", cache, seed=2)
    assert train("drawing", cache) == first


@pytest.mark.usefixtures("drawing")
def test_resumed_equals_uninterrupted(cache: Path, tmp_path: Path) -> None:
    run = TrainingRun(spec_of("drawing"), cache=cache)
    run.run_epoch()
    run.save(tmp_path)
    random.seed(4)
    np.random.seed(4)
    resumed = TrainingRun.resume(tmp_path, cache=cache)
    resumed.run_epoch()
    assert untimed(resumed.history) == train("drawing", cache)


@pytest.mark.usefixtures("drawing")
def test_epochs_and_seeds_draw_different_numbers(tmp_path: Path, cache: Path) -> None:
    top = "import random\nDRAWN = []"
    trainables.include(write_method(tmp_path / "other", "noting", top=top, loss="DRAWN.append(random.random())"))
    for seed in (1, 2):
        train("noting", cache, seed=seed)
    drawn = trainables.load_method("noting").DRAWN
    assert len(set(drawn)) == len(drawn) > 4


@pytest.mark.usefixtures("drawing")
def test_training_leaves_the_callers_generators_alone(cache: Path) -> None:
    before = random.getstate(), np.random.get_state()[1].tolist()
    train("drawing", cache)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_draws_in_evaluation_depend_on_seed_and_epoch_alone(tmp_path: Path, cache: Path) -> None:
    head = "import random, torch"
    methods = write_method(tmp_path / "methods", "noisy", top=head)
    file = methods / "noisy.py"
    noise = (
        "    class Model(ClassifierPerLayer):\n"
        "        def exit_heads(self, *args, **kwargs):\n"
        "            outcome = super().exit_heads(*args, **kwargs)\n"
        "            DRAWN.append((self.training, random.random(), torch.rand(1).item()))\n"
        "            return outcome\n"
    )
    text = file.read_text().replace("DEPARTURES = ()", "DEPARTURES = ()\nDRAWN = []")
    file.write_text(text.replace("    class Model(ClassifierPerLayer):\n", noise))
    trainables.include(methods)
    drawn = trainables.load_method("noisy").DRAWN
    torch.manual_seed(3)
    train("noisy", cache)
    first, drawn[:] = [*drawn], []
    torch.manual_seed(4)
    random.seed(4)
    train("noisy", cache)
    assert [*drawn] == first and any(not is_training for is_training, *_ in first)
