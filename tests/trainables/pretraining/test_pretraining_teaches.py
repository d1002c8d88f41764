"""What the probe of benchmarks/pretraining.py finds, in short.

Run: pytest tests/trainables/pretraining/test_pretraining_teaches.py
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import pytest

from benchmarks import pretraining


def means(**changes: float) -> dict[str, dict[str, float]]:
    reached = {"shuffled corpus": 0.5, "MLM": 0.9, "RTD": 0.9} | changes
    return {start: dict.fromkeys(pretraining.BARS, score) for start, score in reached.items()}


def test_what_pretraining_did_not_teach_is_told() -> None:
    assert pretraining.misses(means()) == []
    assert len(pretraining.misses(means(MLM=0.8))) == 1  # RTE has a lower bar than MRPC
    assert len(pretraining.misses({**means(), "shuffled corpus": {"rte": 0.95, "mrpc": 0.5}})) == 2


@pytest.mark.long
@pytest.mark.slow
def test_masked_words_teach_what_shuffled_words_do_not(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    starts = [start for start in pretraining.STARTS if start.objective == "mlm"]
    with ProcessPoolExecutor(2) as pool:
        shuffled, real = pool.map(pretraining.probed, starts, [1, 1], [1000, 1000])
    better = {task: real[task] - shuffled[task] for task in pretraining.TASK_NAMES}
    assert min(better.values()) > 0.05, (real, shuffled)
