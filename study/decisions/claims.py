"""Where extra seeds go: to pairs of methods whose ranking on a task is undecided, by a sequential rule.

The rule is fixed before the first number. Both arms of a pair are compared by Welch's t-test over their seeds when
they have the K of `--seeds`, then 2 K and so on, up to K + `--spend-on-claims`. A pair is decided at the first of these
L looks with p < 0.05 / (L m), of m pairs; then it gets no more seeds. Each look is at a fixed set of seeds, so that by
Bonferroni over looks and pairs at most one study in twenty claims a difference that is none, whatever is spent where.
`python -m benchmarks.statistics claims` prints how often. Claims are of chosen configurations on these dev examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil

import numpy as np

from study.facts.record import Record
from study.facts.winner import Winner, winner_of
from study.plans.identity import FIRST_SEED
from study.plans.resolved_plan import Arm, ResolvedPlan

LEVEL = 0.05  # of a whole study

Scores = Sequence[float | None]  # by seed from the first, as far as all have ended; None: failed


@dataclass(frozen=True)
class Rule:
    """When a study looks, and how sure it must be."""

    batch: int  # seeds from one look to the next
    extra: int  # seeds at most, beyond the planned ones
    pairs: int

    @property
    def looks(self) -> int:
        return 1 + ceil(self.extra / self.batch)

    @property
    def level(self) -> float:
        """Of one look at one pair."""
        return LEVEL / (self.looks * self.pairs)

    def extra_at(self, look: int) -> int:
        """Seeds beyond the planned ones, at a look from 0."""
        return min(look * self.batch, self.extra)


@dataclass(frozen=True)
class Claim:
    """What is known of a pair after the looks so far."""

    looks: int  # taken
    difference: float | None  # of the mean scores, at the last look; None: before the first, or too few completed
    p_value: float | None
    is_decided: bool
    needed: int  # extra seeds of either arm for the next look; where none is left 0


def rule_of(plan: ResolvedPlan) -> Rule:
    """The rule of a study."""
    return Rule(batch=plan.asked.seeds, extra=plan.asked.spend_on_claims, pairs=len(pairs_of(plan)))


def pairs_of(plan: ResolvedPlan) -> list[tuple[Arm, Arm]]:
    """Every method with the baseline on each task; without a baseline every two methods."""
    pairs = [(one, other) for one, other in combinations(plan.first_arms, 2) if one.task == other.task]
    baseline = plan.asked.baseline
    if baseline not in plan.asked.methods:
        return pairs
    with_baseline = [pair for pair in pairs if baseline in (pair[0].method, pair[1].method)]
    return [(other, one) if one.method == baseline else (one, other) for one, other in with_baseline]


def claims_of(plan: ResolvedPlan, records: Mapping[str, Sequence[Record]]) -> dict[tuple[str, str], Claim]:
    """By the names of both arms; `records` are those of each arm."""
    rule = rule_of(plan)
    scores = {arm.name: ended_scores(arm, records.get(arm.name, ())) for arm in plan.first_arms}
    return {
        (one.name, other.name): follow(
            rule, scores[one.name], scores[other.name], planned=(len(one.seeds), len(other.seeds))
        )
        for one, other in pairs_of(plan)
    }


def ended_scores(arm: Arm, records: Sequence[Record]) -> list[float | None]:
    """The dev scores of the trials that repeat the arm's winner, by seed, up to the first that has not ended."""
    winner = winner_of(arm, records)
    if winner is None:
        return []
    by_seed = {record.seed: record for record in [*winner.confirm_trials(records), *_claim_records(winner, records)]}
    scores: list[float | None] = []
    while (record := by_seed.get(FIRST_SEED + len(scores))) is not None:
        scores.append(record.score)
    return scores


def _claim_records(winner: Winner, records: Sequence[Record]) -> list[Record]:
    own = [record for record in records if record.phase == "claim"]
    return [record for record in own if (record.config, record.start) == (winner.config, winner.start)]


def follow(rule: Rule, one: Scores, other: Scores, *, planned: tuple[int, int]) -> Claim:
    """The looks at a pair, as far as its scores go; `planned` are the seeds of either before any extra ones."""
    difference, p_value = None, None
    for look in range(rule.looks):
        extra = rule.extra_at(look)
        mine, theirs = one[: planned[0] + extra], other[: planned[1] + extra]
        if (len(mine), len(theirs)) != (planned[0] + extra, planned[1] + extra):
            return Claim(look, difference, p_value, False, extra)
        difference, p_value = welch(mine, theirs)
        if p_value is not None and p_value < rule.level:
            return Claim(look + 1, difference, p_value, True, 0)
    return Claim(rule.looks, difference, p_value, False, 0)


def welch(one: Scores, other: Scores) -> tuple[float | None, float | None]:
    """Difference of the means and its two-sided p-value; None with fewer than two completed trials on a side."""
    from scipy import special  # takes a while to import

    sides = [[score for score in side if score is not None] for side in (one, other)]
    if min(map(len, sides)) < 2:
        return None, None
    difference = float(np.mean(sides[0]) - np.mean(sides[1]))
    parts = [float(np.var(side, ddof=1)) / len(side) for side in sides]
    if sum(parts) == 0:
        return difference, float(difference == 0)
    freedom = sum(parts) ** 2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True))
    return difference, 2 * float(special.stdtr(freedom, -abs(difference) / sum(parts) ** 0.5))
