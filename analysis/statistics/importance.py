"""What a search says of its hyperparameters: which were tuned, and how much each of them mattered."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.studies.cells import Row
from study.facts.record import Record
from study.plans.resolved_plan import Range
from trainables.schema import to_plain

FEWEST_TRIALS = 10  # below, the better trials are too few to have something in common
BETTER_SHARE = 0.25  # of the trials, and at least five, as Optuna's documentation asks
RESAMPLES = 20


@dataclass(frozen=True)
class Importance:
    """How much a field decides whether a trial is among the better ones, as a share of 1, and how sure that is."""

    share: float
    low: float
    high: float  # 90 % of the bootstrap over trials lie between


def tuned_fields(row: Row) -> list[str]:
    """The fields of the method's configuration that differ between the scored search trials of an arm, by name."""
    arms = [_scored(cell.arm_records) for cell in row.cells.values()]
    fields = {
        field
        for records in arms
        for field in (records[0].config if records else ())
        if len({json.dumps(record.config.get(field)) for record in records}) > 1
    }
    return sorted(fields)


def importances(row: Row) -> dict[str, Importance]:
    """The importance of each field of the search space, mean over the arms, largest first.

    Optuna's PED-ANOVA (arXiv:2304.10255): how unlike the better quarter of the trials all trials are in this field. Of
    all that it needs only the order of the trials, so those that were stopped count, with the score they had reached.
    Empty with fewer than 10 trials in every arm, and, with a warning, where Optuna is not installed.
    """
    arms = [(cell.arm.space, _scored(cell.arm_records)) for cell in row.cells.values()]
    arms = [(space, records) for space, records in arms if space and len(records) >= FEWEST_TRIALS]
    if not arms:
        return {}
    try:
        import optuna  # noqa: F401  not needed for anything else here, and heavy
    except ModuleNotFoundError:
        warnings.warn("importances are left out: Optuna is not installed", stacklevel=2)
        return {}
    rng = np.random.default_rng(0)
    found = _mean_shares([_shares(space, records) for space, records in arms])
    resampled = [
        _mean_shares([_shares(space, _drawn(records, rng)) for space, records in arms]) for _ in range(RESAMPLES)
    ]
    bounds = {field: np.quantile([shares[field] for shares in resampled], [0.05, 0.95]).tolist() for field in found}
    ordered = sorted(found, key=lambda field: -found[field])
    return {field: Importance(found[field], *bounds[field]) for field in ordered}


def _shares(space: Mapping[str, Range], records: Sequence[Record]) -> dict[str, float]:
    import optuna
    from optuna.distributions import json_to_distribution
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    distributions = {name: json_to_distribution(json.dumps(to_plain(allowed))) for name, allowed in space.items()}
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would announce every study
    study = optuna.create_study(direction="maximize")
    optuna.logging.set_verbosity(before)
    study.add_trials(
        [
            optuna.trial.create_trial(
                params={name: record.config[name] for name in space},
                distributions=distributions,
                value=record.selection_score,
            )
            for record in records
        ]
    )
    quantile = max(BETTER_SHARE, 5 / len(records))
    return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(target_quantile=quantile))


def _mean_shares(arms: Sequence[dict[str, float]]) -> dict[str, float]:
    """Mean over the arms that have the field."""
    fields = dict.fromkeys(field for shares in arms for field in shares)
    return {field: float(np.mean([shares[field] for shares in arms if field in shares])) for field in fields}


def _drawn(records: Sequence[Record], rng: np.random.Generator) -> list[Record]:
    return [records[i] for i in rng.integers(len(records), size=len(records))]


def _search_records(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.phase == "search"]


def _scored(records: Sequence[Record]) -> list[Record]:
    """The search trials with a score, completed or stopped."""
    return [record for record in _search_records(records) if record.selection_score is not None]
