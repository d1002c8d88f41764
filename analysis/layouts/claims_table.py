"""What a study claims of pairs of methods, where further seeds were spent on those whose ranking was undecided."""

from __future__ import annotations

from typing import Any

from analysis.layouts.cell_facts import cell_names
from analysis.layouts.evidence import PAPER_TASKS, Evidence, on_mini, sidecar, task_columns
from analysis.layouts.notes import origin_in_words
from analysis.layouts.table import Entry, Line, Table, number_entry
from analysis.studies.load import Study
from study.decisions.claims import LEVEL, Claim, claims_of, ended_scores, rule_of


def claims_table(evidence: Evidence) -> Table | None:
    """Every pair that the rule looks at; None where not exactly one study spends on claims."""
    spending = [study for study in evidence.studies if study.file.plan.asked.spend_on_claims]
    if len(evidence.studies) != 1 or not spending:
        return None
    (study,) = spending
    claims, rule = claims_of(study.file.plan, study.by_arm), rule_of(study.file.plan)
    return Table(
        name="claims",
        title=f"Claims{on_mini([study])}, by a sequential rule",
        columns=task_columns([study], PAPER_TASKS),
        lines=[*_claim_lines(claims), *_seed_lines(study)],
        marks={"↑": "above", "↓": "below", "?": "undecided", "…": "not all seeds have ended"},
        caption=(
            "Points: difference of the mean dev scores. The number of seeds differs from cell to cell: they were spent "
            f"where a ranking was undecided, {rule.batch} at a time and at most {rule.extra} beyond the plan's. A "
            "sequential rule, fixed before the first number: Welch's t-test over seeds at each of "
            f"{rule.looks} looks, each of {rule.pairs} pairs at p < {rule.level:.2g} (Bonferroni), so that at most one "
            f"study in {1 / LEVEL:.0f} claims a difference that is none (benchmarks.statistics claims). ↑, ↓: claimed; "
            "?: undecided to the end. Of the chosen configurations on these dev examples. Differences of pairs that "
            "were decided early look larger than they are. Further seeds are in no other table. "
            f"{origin_in_words([study])}"
        ),
        sidecar=sidecar(evidence, cell_names) | {"claims": [_facts(pair, claim) for pair, claim in claims.items()]},
    )


def _claim_lines(claims: dict[tuple[str, str], Claim]) -> list[Line]:
    lines: dict[str, dict[str, Entry]] = {}
    for (one, other), claim in claims.items():
        (method, task), (against, _) = one.split("/"), other.split("/")
        lines.setdefault(f"{method} - {against}", {})[task] = _entry(claim)
    return [Line(label, entries) for label, entries in lines.items()]


def _entry(claim: Claim) -> Entry:
    if claim.difference is None:
        return Entry()
    sign = "↑" if claim.difference > 0 else "↓"
    mark = sign if claim.is_decided else "…" if claim.needed else "?"
    text = number_entry(100 * claim.difference, signed=True)
    return Entry(text.text, text.numbers, mark=mark)


def _seed_lines(study: Study) -> list[Line]:
    """How many seeds each arm has."""
    lines: dict[str, dict[str, Entry]] = {}
    for arm in study.file.plan.first_arms:
        scores = ended_scores(arm, study.by_arm.get(arm.name, ()))
        lines.setdefault(f"{arm.method}, seeds", {})[arm.task] = number_entry(len(scores), 0)
    return [Line(label, entries) for label, entries in lines.items()]


def _facts(pair: tuple[str, str], claim: Claim) -> dict[str, Any]:
    return {"one": pair[0], "other": pair[1]} | vars(claim)
