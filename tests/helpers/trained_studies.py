"""A study of one arm with a model that was really trained, and what it said about the dev set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.made_studies import arm, write_records, write_study
from helpers.trials import run_to_the_end, spec_of
from msgspec.structs import replace

from study.facts.record import Record
from study.facts.study_facts import read_facts
from study.facts.study_folder import predictions_file
from trainables.runs.trial_files import model_folder


def trained_study(folder: Path, method: str, task: str, *, config: dict | None = None, **spec: Any) -> Record:
    """The record of the second of two confirm seeds, the better one; the first one's model is gone."""
    write_study(folder, arm(method, task, [0.5, 0.7]), data="mini")
    *others, best = read_facts(folder).records
    run = run_to_the_end(spec_of(method, task, seed=best.seed, config=config, **spec), folder.parent / "cache")
    run.save(folder / "trials" / best.key)
    predictions_file(folder, best.key).parent.mkdir()
    digest = run.outcome(predictions=predictions_file(folder, best.key)).model_digest
    (folder / "trials" / best.key / "state.pt").unlink()
    model = model_folder(folder / "trials" / best.key, run.best_epoch).resolve()
    best = replace(best, model=str(model), model_digest=digest)
    write_records(folder, [*(replace(other, model="/gone") for other in others), best])
    return best
