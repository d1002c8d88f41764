"""Exit layers of easy and of hard examples, where the truth is known: pytest tests/analysis/test_difficulty.py"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.glue_folders import write_glue
from helpers.swept_studies import swept_study
from helpers.trials import run_to_the_end, spec_of

import search_spaces
from analysis.layouts.evidence import gather
from analysis.layouts.exit_tables import exits_table
from analysis.statistics import difficulty
from analysis.statistics.difficulty import compare_difficulties
from analysis.statistics.exit_settings import apply_setting
from analysis.statistics.gains import measure_gains
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import Predictions, predictions_from, read_cell_predictions
from trainables.data import mini_glue
from trainables.data.glue import load_split
from trainables.data.tasks import TASKS

TASK, LAYERS, SEEDS = TASKS["sst2"], 6, 5
LABELS = load_split(TASK, "dev", "mini").labels
SHARES = [0.0, 0.5, 1.0]


def hard_rows(share: float | None) -> np.ndarray:
    hard = mini_glue.list_hard(TASK, "dev", easy_share=share)
    assert hard is not None
    return np.array(hard)


def models_that_know(hard: np.ndarray, *, seed: int = 1) -> list[Predictions]:
    """Models that answer an easy example at layer 1 and a hard one from layer 4 on, and nearly always see which it is.

    Where all examples are alike, they exit as often at layer 4, but by chance.
    """
    rng, n = np.random.default_rng(seed), len(hard)
    seen = hard if 0 < hard.mean() < 1 else rng.random(n) < 0.5
    models = []
    for _ in range(SEEDS):
        chance = np.where(hard, np.where(np.arange(LAYERS)[:, None] < 3, 0.5, 0.95), 0.97)
        answers = np.where(rng.random((LAYERS, n)) < chance, LABELS, 1 - LABELS)
        exit_layers = np.where(seen ^ (rng.random(n) < 0.1), 4, 1)
        logits = np.eye(2)[answers]
        nothing = np.array([], dtype=np.str_)
        arrays = {
            "ids": np.arange(n),
            "split": np.array(["dev"] * n),
            "labels": LABELS,
            "logits": logits[exit_layers - 1, np.arange(n)][None],
            "exit_layers": exit_layers[None],
            "layer_logits": logits,
            **{f"sweep_{name}": nothing for name in ("rule", "field", "rule_fields")},
            **{f"sweep_{name}": np.array([]) for name in ("setting", "score", "mean_layers")},
        }
        models.append(predictions_from(TASK, arrays))
    return models


def count_gains(share: float, studies: int) -> int:
    """In how many studies the interval of the gain lies above 0."""
    every = [models_that_know(hard_rows(share), seed=seed) for seed in range(studies)]
    return sum(measure_gains(stored, [apply_setting(None, stored)])[0].interval.low > 0 for stored in every)


def test_gain_is_found_with_difficulty() -> None:
    assert count_gains(0.5, 5) == 5


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_gain_is_rarely_found_where_all_examples_are_alike(share: float) -> None:
    """A level of 2.5 %: of 40 studies, about one has an interval above 0."""
    assert count_gains(share, 40) <= 4


@pytest.mark.parametrize("share", SHARES)
def test_easy_examples_leave_first_only_where_both_kinds_exist(share: float) -> None:
    hard = hard_rows(share)
    found = compare_difficulties(models_that_know(hard), hard)
    if share != 0.5:
        assert found is None
        return
    assert found is not None
    assert found.easy == pytest.approx(1.3, abs=0.2) and found.hard == pytest.approx(3.7, abs=0.2)
    assert found.interval.low > 2


def test_shuffled_difficulties_are_rarely_called_a_difference() -> None:
    """A level of 2.5 %: of 40 shuffles, about one has an interval above 0."""
    hard, rng = hard_rows(0.5), np.random.default_rng(2)
    stored = models_that_know(hard)
    found = [compare_difficulties(stored, rng.permutation(hard)) for _ in range(40)]
    assert sum(own is not None and own.interval.low > 0 for own in found) <= 4


def test_means_are_those_of_a_plain_writing() -> None:
    hard = hard_rows(None)
    stored = models_that_know(hard)
    found = compare_difficulties(stored, hard)
    assert found is not None
    for mean, chosen in ((found.easy, ~hard), (found.hard, hard)):
        assert mean == pytest.approx(np.mean([one.exit_layers[0][chosen].mean() for one in stored]))
    assert found.interval.low < found.hard - found.easy < found.interval.high


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study whose records have the fingerprint of today's generated data, and whose exits are blind."""
    monkeypatch.setattr(difficulty, "fingerprint", lambda task, data: "f00d")
    return swept_study(tmp_path / "s", ["albert", "palbert"], ["sst2", "rte"], data="mini")


def notes_of(folder: Path) -> list[str]:
    table = exits_table(gather([load_study(folder)]))
    assert table is not None
    return [note for note in table.notes if "easy examples" in note]


def test_blind_exits_are_not_said_to_know_difficulty(generated: Path) -> None:
    (note,) = notes_of(generated)
    assert note.startswith("easy examples were not shown to leave before hard ones: palbert/sst2 ")
    assert "rte" not in note


def test_exits_that_know_difficulty_are_named(generated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = gather([load_study(generated)])
    stored = read_cell_predictions(evidence.cells_by_place["palbert", "sst2"])
    late = np.mean([one.exit_layers[0] for one in stored], axis=0)
    monkeypatch.setattr(mini_glue, "list_hard", lambda task, split: (late > np.median(late)).tolist())
    note = next(note for note in notes_of(generated) if "leave before" in note and "not shown" not in note)
    assert note.startswith("easy examples leave before hard ones (mean exit layers of both; difference with its 95 %")
    assert "palbert/sst2" in note


def test_data_of_another_version_have_no_known_difficulty(generated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difficulty, "fingerprint", lambda task, data: "another")
    assert notes_of(generated) == []


def train_exits(place: Path, *, easy_share: float) -> list[Predictions]:
    """DeeBERT's models on a model of albert, trained as in `make study`, that has learned hard examples too."""
    folder = write_glue(place / "glue", task="sst2", easy_share=easy_share)
    shared = {
        **search_spaces.load_space("albert").mini_fixed,
        "num_hidden_layers": 0,
        "learning_rate": 1.9e-3,
        "epochs": 12,
    }
    data = {"data": str(folder), "selection": "holdout"}
    models = (run_to_the_end(spec_of("albert", seed=seed, config=shared, **data), place) for seed in range(20))
    # About one seed in three learns them; which ones differs between processors.
    learned = next(run for run in models if run.history[run.best_epoch - 1].selection_score > 0.95)
    learned.write_model(place / "learned")
    stored = []
    for seed in range(3):
        spec = spec_of("deebert", seed=seed, config=shared | {"entropy": 0.29}, start=str(place / "learned"), **data)
        run_to_the_end(spec, place).outcome(place / f"{seed}.npz")
        with np.load(place / f"{seed}.npz", allow_pickle=False) as arrays:
            stored.append(predictions_from(TASK, dict(arrays)))
    return stored


@pytest.mark.slow
@pytest.mark.long
def test_trained_exits_have_a_gain_only_with_difficulty(tmp_path: Path) -> None:
    """Labels of difficulty that are shuffled say nothing about the same exits."""
    stored, alike = (train_exits(tmp_path / str(share), easy_share=share) for share in (0.6, 1.0))
    gain, without = (measure_gains(models, [apply_setting(None, models)])[0] for models in (stored, alike))
    assert gain.interval.low > 0 and without.interval.low <= 0
    hard, rng = hard_rows(0.6)[stored[0].ids], np.random.default_rng(3)
    found = compare_difficulties(stored, hard)
    assert found is not None and found.interval.low > 0
    shuffled = [compare_difficulties(stored, rng.permutation(hard)) for _ in range(40)]
    assert sum(own is not None and own.interval.low > 0 for own in shuffled) <= 4
