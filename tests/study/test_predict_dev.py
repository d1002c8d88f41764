"""Stored models that predict the dev set again: pytest tests/study/test_predict_dev.py"""

from __future__ import annotations

import pytest
from helpers.trained_studies import trained_study

from study.stored_models.predict_dev import main
from trainables.models.early_exit import EarlyExitModel

pytestmark = pytest.mark.slow


def test_stored_model_predicts_in_batches_of_its_trial(tmp_path, monkeypatch):
    sizes, all_exits = [], EarlyExitModel.all_exits
    monkeypatch.setattr(
        EarlyExitModel, "all_exits", lambda self, batch: sizes.append(len(batch["labels"])) or all_exits(self, batch)
    )
    config = {"epochs": 1, "batch_size": 32, "gradient_accumulation": 4}
    best = trained_study(tmp_path / "study", "albert", "rte", config=config)
    trial = {*sizes}
    sizes.clear()
    assert main([str(tmp_path / "study"), best.key, "--to", str(tmp_path)]) == 0
    assert {*sizes} == trial
