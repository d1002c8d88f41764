"""Tables of compute: what the trials of each method used, and scores at equal compute."""

from __future__ import annotations

from dataclasses import replace

from analysis.layouts.evidence import Evidence, make_table
from analysis.layouts.table import (
    POINTS,
    Entry,
    Line,
    Table,
)
from analysis.statistics import costs
from analysis.statistics.searches import UNITS, at_equal_budget, completed_scores
from study.facts.record import format_counts
from trainables.data.tasks import TASKS

FEWEST_COMPLETED = 10  # completed search trials of an arm; with fewer, the expected best score is noise


def compute_table(evidence: Evidence) -> Table:
    """Tabulate the compute that the trials of each method used."""
    ledger = costs.row_ledger(evidence.rows)
    unit = costs.choose_unit(entry.total for entry in ledger)
    shared = any(entry.pretrained for entry in ledger)
    caption = "The table has the time of all trials, including stopped and failed trials."
    caption += " The cost of pretraining is divided equally among the arms." * shared
    columns = ["search", "confirm", *["pretraining"] * shared, "together", "trials"]
    return make_table(
        evidence,
        "compute",
        title="Compute of each method",
        columns={name: name for name in columns},
        lines=[Line(entry.row, _describe_compute(entry, unit)) for entry in ledger],
        caption=caption,
        unit="",
        notes=costs.warn_of_unlike_compute(ledger),
    )


def _describe_compute(entry: costs.LedgerEntry, unit: costs.TimeUnit) -> dict[str, Entry]:
    """Return the row's entries in table `compute`. The JSON file has the exact seconds."""

    def describe(spent: costs.Compute) -> Entry:
        seconds = {f"_{name}": number for name, number in vars(spent).items()}
        return replace(Entry.from_text(spent.describe(unit)), values=seconds)

    return {
        "search": describe(entry.search),
        "confirm": describe(entry.confirm),
        "pretraining": describe(entry.pretraining),
        "together": describe(entry.total),
        "trials": Entry.from_text(format_counts(entry.trials)),
    }


def equal_compute_table(evidence: Evidence) -> Table | None:
    """Tabulate the expected best score of each search within the cost of the task's cheapest search.

    Return None if no task was searched by two rows, or if an arm completed fewer than `FEWEST_COMPLETED` search trials.
    """
    completed = [len(completed_scores(cell.arm_records)) for _, cell in evidence.cells]
    if min(completed, default=0) < FEWEST_COMPLETED:
        return None
    budgets_by_unit = {unit: {budget.task: budget for budget in at_equal_budget(evidence.rows, unit)} for unit in UNITS}
    if not budgets_by_unit["trials"]:
        return None

    epochs = [f"{TASKS[task].title} {budget.budget:,.0f}" for task, budget in budgets_by_unit["epochs"].items()]
    pretrained = any(entry.pretrained for entry in costs.row_ledger(evidence.rows))
    return make_table(
        evidence,
        "equal_compute",
        title="Search scores at equal compute{data}",
        first_column="arm",
        columns={f"equal_{unit}": f"equal {unit}" for unit in UNITS},
        lines=[
            Line(
                f"{row}/{task}",
                {
                    f"equal_{unit}": POINTS.entry(budgets[task].scores.get(row))
                    for unit, budgets in budgets_by_unit.items()
                    if task in budgets
                },
            )
            for row, task in evidence.cells_by_place
        ],
        caption=(
            "Each entry is the expected best selection score of a search, in points, within the budget of the task's "
            "cheapest search. This estimate (arXiv:1909.03004) is biased downwards near the end of a budget. Stopped "
            "and failed trials count as cost. Seconds are GPU seconds if all searches used GPUs, and otherwise "
            "wall-clock seconds."
        ),
        notes=[
            f"budgets in epochs: {', '.join(epochs)}",
            *["budgets cover the searches only, not the pretraining"] * pretrained,
        ],
    )
