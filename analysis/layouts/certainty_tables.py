"""How sure the numbers are: intervals, verdicts, optimism, where the spread comes from, comparisons, repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from analysis.layouts.evidence import (
    Evidence,
    Measure,
    make_table,
    mark_meanings,
    optimism_of,
    over_seeds,
)
from analysis.layouts.paper_tables import Pair, pairs_with_published, verdict_notes
from analysis.layouts.table import (
    DIFFERENCE,
    ESTIMATE,
    HALF_WIDTH,
    INTERVAL,
    POINTS,
    POINTS_INTERVAL,
    WHOLE,
    Column,
    Entry,
    Line,
    Style,
    Table,
    fill,
    headings,
)
from analysis.statistics import comparisons, uncertainty
from analysis.statistics.samples import Place, VarianceComponents, variance_components
from analysis.statistics.searches import Gap
from analysis.statistics.uncertainty import Interval, PairedTest
from analysis.statistics.verdicts import MARGIN, Word
from analysis.studies.cells import Cell, Row, repeats_of
from study.facts.plain_words import counted
from trainables.data.tasks import TASKS
from trainables.schema import to_plain

VERDICT_MARKS: dict[Word, str] = {"reproduced": "=", "not reproduced": "≠", "undecided": "?"}
HUNDREDTHS_OF_A_POINT = Style(scale=100, decimals=2)
SHARE = Style("{} ({} to {})", ("", *INTERVAL), scale=100, decimals=0)  # 93 (80 to 100)


def intervals_table(evidence: Evidence) -> Table:
    """How sure the dev table is: each median's range over seeds, and what other dev examples could have made of it."""
    seeds = {
        (label, cell.task): uncertainty.median_interval(cell.scores) if len(cell.records) > 1 else None
        for label, cell in evidence.cells
    }
    examples = {place: sample.interval for place, sample in evidence.samples.items()}
    coverage = min((interval.coverage for interval in seeds.values() if interval), default=0.0)
    return make_table(
        evidence,
        "intervals",
        title="Intervals of the dev scores{data}, {seeds}",
        measures={
            ", seeds": lambda place, _: _interval_entry(seeds[place]),
            ", dev examples": lambda place, _: _interval_entry(examples.get(place)),
        },
        caption=(
            f"Points. Seeds: order statistics, which cover the median over all seeds with {100 * coverage:.4g} % or "
            "more. Dev examples: 95 % bootstrap interval of the mean score of these models."
        ),
        further={"over_seeds": _with_places(seeds), "over_examples": _with_places(examples)},
    )


def verdicts_table(evidence: Evidence) -> Table | None:
    """Ours minus published for every published number that ours may be held against; None where there is none."""
    pairs = pairs_with_published(evidence.rows)
    lines: dict[tuple[str, str], dict[str, Entry]] = {}  # by label of the line, and of the one above it
    for pair in pairs:
        if (found := pair.verdict) is not None:
            label = f"{pair.row.label} - {pair.published.label} ({pair.published.paper.removeprefix('PALBERT ')})"
            difference = DIFFERENCE.entry(found.difference, mark=VERDICT_MARKS[found.word])
            lines.setdefault((label, ""), {})[pair.cell.task] = over_seeds(pair.cell, difference)
            half_width = HALF_WIDTH.entry((found.high - found.low) / 2)
            lines.setdefault(("± at 95 %", label), {})[pair.cell.task] = half_width
    if not pairs:
        return None
    return make_table(
        evidence,
        "verdicts",
        title="Ours minus published",
        lines=[Line(label, entries) for (label, _), entries in lines.items()],
        marks={mark: word for word, mark in VERDICT_MARKS.items()},
        caption=(
            "Points; beneath each line the half width of the 95 % interval, which knows the spread over seeds of both "
            "numbers: where the published one's is not printed, ours stands in. =: the interval lies within "
            f"{100 * MARGIN:g} point; ≠: it excludes no difference, and the difference is larger than that; ?: "
            "undecided. No verdict on a number that does not say of how many seeds it is the median or mean."
        ),
        notes=verdict_notes(pairs),
        further={"verdicts": [_verdict_facts(pair) for pair in pairs]},
    )


def optimism_table(evidence: Evidence) -> Table:
    """How much better the best search trial looked than its configuration is on fresh seeds."""
    least = min((found.of_search.coverage for _, cell in evidence.cells if (found := optimism_of(cell))), default=0.0)
    coverage = f"{100 * least:.4g} % or more" if least else "nothing: there are too few seeds"
    parts = {"search": "of_search"} | ({} if evidence.studies[0].protocol.selection == "dev" else {"slice": "of_slice"})
    measures: dict[str, Measure] = {}
    for part, name in parts.items():
        measures[f", {part}"] = _gap_measure(name, lambda cell, gap: over_seeds(cell, DIFFERENCE.entry(gap.difference)))
        measures[f", {part}, range"] = _gap_measure(name, lambda _, gap: POINTS_INTERVAL.entry(gap.low, gap.high))
    return make_table(
        evidence,
        "optimism",
        title="Optimism of the search{data}",
        measures=measures,
        caption=(
            f"Points, with the range of order statistics that covers the median over all seeds with {coverage}. "
            "Search: the best search trial's selection score minus the median of the confirm trials' own selection "
            "scores, on one and the same split. Slice, where another split selects than the one reported: the confirm "
            "trials' selection score minus their dev score."
        ),
        facts=lambda cell: {"optimism": (found := optimism_of(cell)) and to_plain(found)},
    )


def spread_table(evidence: Evidence) -> Table | None:
    """Where the spread of a score comes from: seed, dev examples, search; None without stored predictions."""
    found = {place: variance_components(sample) for place, sample in evidence.samples.items()}
    if not found:
        return None

    def measure(part: Callable[[VarianceComponents], float | None]) -> Measure:
        return lambda place, _: HUNDREDTHS_OF_A_POINT.entry(part(found[place]) if place in found else None)

    return make_table(
        evidence,
        "spread",
        title="Where the spread comes from{data}",
        measures={
            ", seed": measure(lambda parts: parts.seed),
            ", dev examples": measure(lambda parts: parts.dev_examples),
            ", search": measure(lambda parts: parts.search),
        },
        caption=(
            "Points: standard deviation of one model's score, had one thing alone been different: the seed; the dev "
            "examples, as many of the same kind; the configuration, after another search (a gap where the search has "
            "too few trials to tell). The parts overlap: they do not add up."
        ),
        further={"spread": _with_places(found)},
    )


OverTasks = tuple[PairedTest, comparisons.Improvement, int]  # mean difference, runs above, number of tasks
OVER_TASKS: list[Column[OverTasks]] = [
    Column("difference", "mean difference", lambda own: ESTIMATE.entry(own[0].difference, own[0].low, own[0].high)),
    Column(
        "probability", "runs above, %", lambda own: SHARE.entry_in_range(own[1].probability, own[1].low, own[1].high)
    ),
    Column("tasks", "tasks", lambda own: WHOLE.entry(own[2])),
]


def over_tasks_table(evidence: Evidence) -> Table | None:
    """Each row against the baseline over all tasks that both have; None without a baseline or predictions."""
    rows, baseline = evidence.rows, evidence.baseline
    other = next((row for row in rows if row.label == baseline), None)
    found: dict[str, OverTasks] = {}
    for row in rows:
        tests = comparisons.by_task(evidence.comparisons, row.label, baseline) if baseline else {}
        if other is not None and row is not other and tests:
            improvement = comparisons.probability_of_improvement(_scores(row, tests), _scores(other, tests))
            found[row.label] = (comparisons.macro_test(tests), improvement, len(tests))
    if not found:
        return None
    return make_table(
        evidence,
        "over_tasks",
        title=f"Over all tasks against {baseline}{{data}}",
        columns=OVER_TASKS,
        subjects=found.items(),
        caption=(
            f"Mean difference to {baseline} over the tasks that both have, in points, with its 95 % interval (seeds "
            "and dev examples; not adjusted). Runs above: in how many of 100 pairs of a run of each on the same task "
            "the row's is the better one, with the bootstrap interval over seeds (95 % in name, about 93 % with five; "
            "it says nothing where every run is above or below)."
        ),
        further={
            "over_tasks": [
                {"row": row, "baseline": baseline, "difference": vars(mean), **to_plain(improvement)}
                for row, (mean, improvement, _) in found.items()
            ]
        },
    )


def search_repeats_table(evidence: Evidence) -> Table | None:
    """Every search of the cells that were searched more than once; None where there is none of them."""
    repeats, baseline = evidence.repeats, evidence.baseline
    if not repeats:
        return None
    compared = comparisons.compare_repeats(repeats, baseline)
    tests = {(one.row, one.task): one for one in compared}

    def measure(part: Callable[[comparisons.Repeats], float | None], style: Style = POINTS) -> Measure:
        return lambda place, _: style.entry(part(repeats[place])) if place in repeats else None

    others = [repeat for _, cell in evidence.cells for repeat in repeats_of(cell)[1:]]
    left_out = [f"{repeat.name}: {repeat.shortfall}" for repeat in others if repeat.state != "complete"]
    return make_table(
        evidence,
        "search_repeats",
        title="Repeated searches{data}, {seeds} and as many others for each repeat",
        measures={
            ", first": measure(lambda found: found.medians[0]),
            ", all": measure(lambda found: sum(found.medians) / len(found.medians)),
            ", spread": measure(lambda found: found.deviation),
            ", of search": measure(lambda found: found.search_deviation),
            ", searches": measure(lambda found: len(found.scores), WHOLE),
            f" against {baseline}": lambda place, _: _test_entry(tests[place]) if place in tests else None,
        },
        marks=mark_meanings(baseline),
        caption=(
            "Points. First: the median of the first search, the number of the other tables. All: the mean over the "
            "searches of their medians. Spread: standard deviation of a search's mean score over the searches, seeds "
            "included; of search: what of it the seeds do not account for. Against the baseline: difference of the "
            "means with its 95 % interval, the searches as what varies (and dev examples; t-test with as few degrees "
            "of freedom as there are searches); ↑ and ↓ at the 5 % level, Holm over this table. They are about the "
            "methods with their tuning."
        ),
        notes=[f"left out: {'; '.join(left_out)}"] * bool(left_out),
        further={
            "repeats": _with_places({place: own.to_json() for place, own in repeats.items()}),
            "comparisons": [comparison.to_json() for comparison in compared],
        },
    )


COMPARISONS: list[Column[comparisons.Comparison]] = [
    Column("difference", "difference", lambda one: _test_entry(one, marked=one.family == "baseline")),
    Column("p_value", "p", lambda one: _p_entry(one.test.p_value)),
    Column("adjusted_p_value", "p, Holm", lambda one: _p_entry(one.adjusted_p_value)),
    Column(
        "adjusted_p_value_with_search",
        "p, had each searched again",
        lambda one: _p_entry(one.adjusted_p_value_with_search),
    ),
    Column("detectable_difference", "found with 80 % power", lambda one: POINTS.entry(one.detectable_difference)),
    Column("mcnemar", "McNemar p by seed", lambda one: _p_range(one.mcnemar) if one.mcnemar else None),
]


def comparison_tables(evidence: Evidence) -> list[Table]:
    """The pairs of methods, a line per pair and task: those with the baseline, then those that mark nothing."""
    families: tuple[comparisons.Family, ...] = ("baseline", "others")
    found = {family: [one for one in evidence.comparisons if one.family == family] for family in families}
    return [_comparison_table(family, own, evidence.baseline) for family, own in found.items() if own]


def _comparison_table(
    family: comparisons.Family, compared: list[comparisons.Comparison], baseline: str | None
) -> Table:
    what = f"with {baseline}" if family == "baseline" else "of all pairs" if baseline is None else "of other methods"
    role = "" if family == "baseline" else " They mark nothing and take nothing from the marks."
    turned = [_turned(one) if one.row == baseline else one for one in compared]
    return Table(
        name="comparisons" if family == "baseline" else "comparisons_of_others",
        title=f"Comparisons {what}",
        first_column="pair",
        columns=headings(COMPARISONS),
        lines=fill(COMPARISONS, [(f"{one.row} - {one.other}, {TASKS[one.task].title}", one) for one in turned]),
        marks=mark_meanings(baseline),
        caption=(
            "Differences of mean scores in points with 95 % intervals: paired bootstrap over dev examples with the "
            f"seeds as a second level. Holm is over the {counted(len(compared), 'comparison')} of this table.{role} "
            "The first two p-values are of the chosen configurations; the third is of the methods, had each searched "
            "again (Holm too; a gap where a search has too few trials to tell). McNemar compares the models of one "
            "seed each: the lowest and the highest p."
        ),
    )


def _turned(one: comparisons.Comparison) -> comparisons.Comparison:
    """The pair the way round that the dev table marks it: the method minus the baseline."""
    return replace(one, row=one.other, other=one.row, test=comparisons.by_task([one], one.other, one.row)[one.task])


def _interval_entry(interval: Interval | None) -> Entry:
    return POINTS_INTERVAL.entry(interval.low, interval.high) if interval else Entry()


def _gap_measure(name: str, entry: Callable[[Cell, Gap], Entry]) -> Measure:
    def measure(_: Place, cell: Cell) -> Entry:
        found = optimism_of(cell)
        return entry(cell, getattr(found, name)) if found else Entry()

    return measure


def _scores(row: Row, tasks: Iterable[str]) -> dict[str, list[float]]:
    return {task: row.cells[task].scores for task in tasks}


def _test_entry(one: comparisons.Comparison | comparisons.RepeatedComparison, *, marked: bool = True) -> Entry:
    mark = ("↑" if one.test.difference > 0 else "↓") if one.holds and marked else ""
    return ESTIMATE.entry(one.test.difference, one.test.low, one.test.high, mark=mark)


def _p_entry(p_value: float | None) -> Entry:
    return Entry() if p_value is None else Entry(_p_text(p_value), {"": f"{p_value:.2g}"})


def _p_range(p_values: list[float]) -> Entry:
    ends = (min(p_values), max(p_values))
    return Entry(" to ".join(map(_p_text, ends)), {name: f"{p:.2g}" for name, p in zip(INTERVAL, ends, strict=True)})


def _p_text(p_value: float) -> str:
    return "<0.001" if p_value < 0.0005 else f"{p_value:.3f}"


def _with_places(found: dict[Place, Any]) -> list[dict[str, Any]]:
    """For the sidecar: what was found, with its row and task."""
    plain = {place: own if isinstance(own, dict) else vars(own) if own else {} for place, own in found.items()}
    return [{"row": row, "task": task} | own for (row, task), own in plain.items()]


def _verdict_facts(pair: Pair) -> dict[str, object]:
    found = pair.verdict
    return {
        "row": pair.row.label,
        "task": pair.cell.task,
        "paper": pair.published.paper,
        "label": pair.published.label,
        "statistic": pair.published.statistic,
        "published": pair.number.value,
        "published_deviation": pair.number.deviation,
        "verdict": found and to_plain(found),
    }
