"""How much of a GPU a trial gets: pytest tests/study/decisions/test_packing.py"""

from __future__ import annotations

import pytest
from helpers.journals import MadeJournal, report_of, row_of

from study.decisions.packing import gpu_share
from study.facts.events import EpochReported

SMALL, LARGE = {"batch_size": 16}, {"batch_size": 32}


def held(journal: MadeJournal, key: str, share: float) -> None:
    journal.append(EpochReported(time=journal.now(), key=key, report=report_of(row_of(1, 0.5), gpu_share=share)))


def test_a_trial_gets_the_share_that_was_measured_on_its_batch_size_or_the_next_larger_one():
    journal = MadeJournal()
    journal.begin()
    for trial, (key, config) in enumerate({"small": SMALL, "large": LARGE, "hungry": LARGE}.items()):
        journal.start(key, trial=trial, config=config)
    trials, arm = journal.facts.trials, journal.facts.arm("palbert/rte")
    assert gpu_share(trials["small"], arm) == 1.0
    held(journal, "small", 0.1)
    assert gpu_share(trials["small"], arm) == pytest.approx(0.15) and gpu_share(trials["large"], arm) == 1.0
    held(journal, "large", 0.3)
    assert gpu_share(trials["large"], arm) == pytest.approx(0.4)
    held(journal, "hungry", 0.4)
    assert gpu_share(trials["large"], arm) == pytest.approx(0.5)


def test_what_trials_of_another_precision_have_held_says_nothing():
    journal = MadeJournal()
    journal.begin()
    configs = {name: SMALL | {"precision": name} for name in ("bfloat16", "float32")}
    for trial, (key, config) in enumerate(configs.items()):
        journal.start(key, trial=trial, config=config)
    trials, arm = journal.facts.trials, journal.facts.arm("palbert/rte")
    held(journal, "bfloat16", 0.1)
    assert gpu_share(trials["float32"], arm) == 1.0
    assert gpu_share(trials["bfloat16"], arm) == pytest.approx(0.15)
