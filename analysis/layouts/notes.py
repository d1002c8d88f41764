"""Notes below tables: protocol, incomplete cells, requested settings, departures, data, code and devices."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

from analysis.layouts.table import DIFFERENCE, HUNDREDTHS, POINTS, TENTHS, WHOLE_POINTS, Style
from analysis.statistics.comparisons import (
    FACTS_OF_FAMILY,
    LAST_EPOCH,
    MOST_REALISTIC,
    POWER,
    Comparison,
    choice_of_epoch,
    find_baseline_method,
    find_baseline_row,
    find_baseline_rows,
    group_rows,
    list_former_baselines,
    list_interim_looks,
)
from analysis.statistics.costs import pretraining_cost
from analysis.statistics.difficulty import LayersByDifficulty
from analysis.statistics.exits import FullRun
from analysis.statistics.samples import PLAIN_METHOD, Place, Sample, count_collapsed
from analysis.statistics.searches import find_edges
from analysis.studies.cells import Cell, Row, find_repeats, name_studies, table_seeds
from analysis.studies.load import Study
from study.facts.code_history import FirstCode, describe_code
from study.facts.record import Record
from study.plans.ranges import format_setting, shorten, split_key
from study.plans.resolved_plan import describe_poolers, describe_poolings
from study.plans.samplers import describe_sampler, describe_select_by
from study.terminal.text import CellInWords, counted, describe_shortfalls, joined
from trainables import Departure
from trainables.configuration.schema import to_plain
from trainables.data.metrics import metric_words
from trainables.data.repeated_texts import RepeatedTexts
from trainables.data.tasks import TASKS

SELECTION = {
    "dev": "chosen by scores on the dev set that is reported",
    "holdout": "chosen by scores on a slice of train, not on dev",
}
NOT_CHOSEN = f"nothing was chosen by scores: each number is from {LAST_EPOCH}"
_LAYERS = Style(signed=True)  # of a difference
_SPREAD_OF_DRAWS = "sample_std"  # metric of models with random exits: over draws; 0 if there is one draw
MOST_VALUES_OF_ARMS = 5  # most settings of single arms that a note prints; a plan of winners has many


def describe_seeds(studies: Sequence[Study], rows: Sequence[Row]) -> str:
    """Format the number of seeds and the seeds themselves: `2 seeds (42, 43)`.

    The text begins with "at most" if some cells have fewer seeds.
    """
    seeds = table_seeds(studies)
    has_fewer = any(cell.state == "fewer seeds" for row in rows for cell in row.cells.values())
    return f"{'at most ' * has_fewer}{counted(len(seeds), 'seed')} ({', '.join(map(str, seeds))})"


def _describe_selection(rows: Sequence[Row]) -> str:
    """Describe what was chosen by score: configurations, epochs, both or nothing.

    Rows with different choices are described separately.
    """
    chosen: dict[str, dict[str, None]] = {}
    for row in rows:
        for cell in row.cells.values():
            epoch = choice_of_epoch(cell)
            if epoch == LAST_EPOCH:
                choice = f"the configuration, by its score at {epoch}" if cell.arm.decided else NOT_CHOSEN
            else:
                choice = "the configuration and " * bool(cell.arm.decided) + epoch
            chosen.setdefault(choice, {})[row.label] = None
    if len(chosen) == 1:
        return next(iter(chosen))
    return "; ".join(f"{', '.join(labels)}: {choice}" for choice, labels in chosen.items())


def describe_protocol(studies: Sequence[Study], rows: Sequence[Row]) -> str:
    """Describe how the numbers were made: selection, search, profile, data and journals."""
    rules, plans = studies[0].protocol, [study.plan for study in studies]
    asha = rules.early_stopping
    samples = max((arm.samples for study in studies for arm in study.plan.arms), default=0)
    chosen = _describe_selection(rows)
    by_scores = chosen if chosen == NOT_CHOSEN else f"{SELECTION[rules.selection]}: {chosen}"
    sentences = [f"Protocol {studies[0].protocol_hash}: selection {rules.selection} ({by_scores})"]
    if rules.select_by is not UNSET and chosen != NOT_CHOSEN:
        sentences.append(describe_select_by(rules.select_by))
    if any(cell.arm.space for row in rows for cell in row.cells.values()):
        stopping = f"by ASHA (grace {asha.grace}, factor {asha.factor})" if asha else "none"
        sentences.append(f"sampler {describe_sampler(rules.sampler, samples, asha)}")
        sentences.append(f"early stopping of search trials {stopping}")
        if rules.search_precision is not UNSET:
            repeated = "confirm trials in the precision that each method fixes"
            sentences.append(f"search trials in {rules.search_precision}, {repeated}")
    else:
        sentences.append("no search")
    sentences += [
        f"profile {', '.join(dict.fromkeys(plan.asked.profile for plan in plans))}",
        f"data {', '.join(dict.fromkeys(plan.data for plan in plans))}",
        f"journal {', '.join(study.journal.short for study in studies)}",
    ]
    return "; ".join(sentences) + "."


def name_backbone(backbone: str) -> str:
    """Return the last two parts of `backbone` if it is an absolute path, and otherwise return it unchanged."""
    return "/".join(Path(backbone).parts[-2:]) if Path(backbone).is_absolute() else backbone


def describe_pretraining(studies: Sequence[Study]) -> list[str]:
    """Describe the backbone of every study; return an empty list if no backbone was pretrained here."""
    if all(pretraining_cost(study) is None for study in studies):
        return []
    named = zip(name_studies(studies), studies, strict=True)
    return [_describe_backbone(study, f" of {name}" if len(studies) > 1 else "") for name, study in named]


def describe_pooling(studies: Sequence[Study]) -> list[str]:
    """Describe in sentences the backbones without a trained pooler, and what heads read instead of a pooler."""
    plans = [study.plan for study in studies]
    lines = [line for plan in plans for line in (*describe_poolers(plan, name_backbone), *describe_poolings(plan))]
    return [f"{line[0].upper()}{line[1:]}." for line in dict.fromkeys(lines)]


def _describe_backbone(study: Study, where: str) -> str:
    cost = pretraining_cost(study)
    if cost is None:
        backbones = ", ".join(dict.fromkeys(name_backbone(arm.backbone) for arm in study.plan.arms))
        return f"Every row{where} uses backbone {backbones}, which was not pretrained here."
    made = cost.made
    sizes = f"{made.steps:,} steps of {made.batch_size} examples, {made.tokens:,} tokens"
    paid = f"{cost.whole.describe()}, shared by {counted(cost.arms, 'arm')}"
    held_out = ", ".join(f"{name} {value:.3f}" for name, value in made.scores.items())
    return (
        f"Every row{where} uses backbone {made.backbone}, which was pretrained with {made.objective} on corpus "
        f"{made.corpus} ({sizes}; {paid}; held-out scores, in no table here: {held_out})."
    )


def pretraining_facts(study: Study) -> dict[str, Any] | None:
    """Return all facts about the pretraining for JSON, or None if the backbone was not pretrained here."""
    cost = pretraining_cost(study)
    return None if cost is None else {**to_plain(cost.made), "cost": vars(cost.whole), "shared_by": cost.arms}


def seed_notes(rows: list[Row]) -> list[str]:
    """List the cells with missing seeds, surplus seeds or unfinished searches, each with the reason.

    Cells of one row with the same reason share a note.
    """
    return describe_shortfalls(
        [
            CellInWords(
                row=row.label,
                column=TASKS[cell.task].title,
                name=cell.name if row.label == row.method else f"{row.label}, {cell.name}",
                shortfall=cell.unfinished if cell.state == "complete" else cell.shortfall,
            )
            for row in rows
            for cell in row.cells.values()
        ]
    )


def sampled_exit_notes(rows: list[Row]) -> list[str]:
    """List the rows that draw exit layers at random, with the standard deviations of their scores."""
    head = "draws exit layers at random; the standard deviations of its score over draws / over seeds are"
    spreads = {row.label: list(filter(None, map(_spread_of_draws, row.cells.values()))) for row in rows}
    return [f"{label} {head} {', '.join(texts)}" for label, texts in spreads.items() if texts]


def draws_exits(cell: Cell) -> bool:
    """Check whether the models of a cell draw exit layers at random."""
    return any(_SPREAD_OF_DRAWS in record.metrics for record in cell.records)


def _spread_of_draws(cell: Cell) -> str:
    """Format two standard deviations of the score: over draws of exit layers, and over seeds.

    The first is the root mean square over the models, or "-" if each drew once. If numbers are missing, return an empty
    text.
    """
    deviations = [record.metrics[_SPREAD_OF_DRAWS] for record in cell.records if _SPREAD_OF_DRAWS in record.metrics]
    if len(deviations) < max(2, len(cell.records)):
        return ""
    within, over = np.sqrt(np.mean(np.square(deviations))), np.std(cell.scores, ddof=1)
    return f"{TASKS[cell.task].title} {POINTS.text(float(within)) if within else '-'} / {POINTS.text(float(over))}"


def full_run_notes(full_runs: Mapping[Place, FullRun]) -> list[str]:
    """List the cells whose models run all layers, each with the mildest exit setting that exits earlier."""
    notes = []
    for (row, task), run in full_runs.items():
        examples = "nearly all examples" if run.exits_some else "all examples"
        reason = f" ({run.reason})" * bool(run.reason)
        remedy = "no setting of the exit rule exits earlier"
        if one := run.mildest:
            layers, score, full = HUNDREDTHS.text(one.mean_layers), POINTS.text(one.score), POINTS.text(run.score)
            remedy = (
                f"the mildest setting that exits earlier is {one.field} {one.setting:g}, which runs {layers} layers "
                f"and scores {score} instead of {full}"
            )
        notes.append(f"{examples} of {row} on {TASKS[task].title} run all {run.num_layers} layers{reason}; {remedy}")
    return notes


def difficulty_notes(layers: Mapping[Place, LayersByDifficulty]) -> list[str]:
    """Make notes on the mean exit layers of easy and of hard examples; only an interval above 0 shows a difference."""
    heads = {
        True: "easy examples leave before hard ones (mean exit layers of both; difference with its 95 % interval)",
        False: "easy examples were not shown to leave before hard ones",
    }
    texts: dict[bool, list[str]] = {is_shown: [] for is_shown in heads}
    for place, own in layers.items():
        low, difference, high = map(_LAYERS.text, (own.interval.low, own.hard - own.easy, own.interval.high))
        words = f"{TENTHS.text(own.easy)} and {TENTHS.text(own.hard)}; {difference} ({low} to {high})"
        texts[own.interval.low > 0].append(f"{'/'.join(place)} {words}")
    return [f"{heads[is_shown]}: {', '.join(own)}" for is_shown, own in texts.items() if own]


def collect_departures(studies: Sequence[Study]) -> dict[str, list[Departure | str]]:
    """Map each method to its departures from the papers. The key `protocol` has those of the protocol."""
    collected: dict[str, dict[Departure | str, None]] = {}
    for study in studies:
        for name, lines in study.plan.departures.items():
            if lines and (name == "protocol" or not study.is_mini):  # the papers have no scores on mini-GLUE
                collected.setdefault(name, {}).update(dict.fromkeys(lines))
    return {name: list(lines) for name, lines in collected.items()}


def study_notes(studies: list[Study], rows: list[Row]) -> list[str]:
    """Make notes on the settings of the studies, and on differences in searched fields, data, code and devices."""
    named = list(zip(name_studies(studies), studies, strict=True))
    cells = [cell for row in rows for cell in row.cells.values()]
    fields = format_unequal_counts(rows, lambda cell: len(cell.arm.decided) if cell.records else None)
    return [
        *(
            f"settings of study {name}: {', '.join(settings)}"
            for name, study in named
            if (settings := _settings(study))
        ),
        *[f"rows searched different numbers of fields: {fields}"] * bool(fields),
        *(f"{title} is not the official GLUE: {'; '.join(lines)}" for title, lines in list_other_data(rows).items()),
        *(line for study in studies for line in _code_notes(study, cells)),
        *_device_notes(studies, cells),
        *(
            f"study {name} covers {', '.join(study.methods)} on {', '.join(study.tasks)}"
            for name, study in named
            if len(studies) > 1
        ),
    ]


def _settings(study: Study) -> list[str]:
    """List the settings that the study requested instead of the defaults."""
    asked = study.plan.asked
    made = next((arm.pretraining for arm in study.plan.arms if arm.pretraining is not UNSET), None)
    folders = {"backbone": asked.backbone, "tokenizer": asked.tokenizer}
    fields = {field: name and name_backbone(name) for field, name in folders.items()}
    of_arms = [key for key in asked.settings if "/" in split_key(key)[0]]
    left = of_arms if len(of_arms) > MOST_VALUES_OF_ARMS else []
    return [
        *(f"{field} {value}" for field, value in fields.items() if value is not None),
        *(
            f"{key.replace(':', ' ')} {format_setting(setting)}"
            for key, setting in asked.settings.items()
            if key not in left
        ),
        *([f"{', '.join(dict.fromkeys(map(shorten, left)))} (values: see plan.json)"] if left else []),
        *(f"pretraining with {field} {json.dumps(value)}" for field, value in (made.settings if made else {}).items()),
        *(f"{arm} starts from {source}" for arm, source in asked.start_from.items()),
    ]


def list_repeated_texts(cells: Iterable[Cell]) -> dict[str, RepeatedTexts]:
    """Map the title of each task to its numbers of repeated texts. Tasks without these numbers are left out."""
    return {TASKS[cell.task].title: counted for cell in cells if (counted := cell.repeated_texts)}


def repeated_text_notes(cells: Iterable[Cell]) -> list[str]:
    """List the tasks with many dev rows whose texts occur in train."""
    repeats = list_repeated_texts(cells)
    return [counted.describe_effect(title) for title, counted in repeats.items() if counted.is_notable]


def dropped_notes(rows: Iterable[Row]) -> list[str]:
    """List the trials that the user dropped, each with the reason, and say which numbers keep them."""
    return [
        f"{record.phase} trial {record.trial} of {cell.name} (seed {record.seed}) was dropped: {record.error}"
        + ("" if record.score is None else f"; means and tests keep its score, {POINTS.text(record.score)}")
        * (record in cell.tested)
        for row in rows
        for cell in row.cells.values()
        for record in cell.dropped
    ]


def first_search_notes(cells: Iterable[Cell]) -> list[str]:
    """If searches were repeated, note that the scores are from the first search."""
    counts = " or ".join(map(str, sorted({len(find_repeats(cell)) for cell in cells} - {1})))
    first = f"each number is from the first of {counts} searches; table search_repeats has the numbers of all searches"
    return [first] * bool(counts)


def unequal_search_notes(rows: Sequence[Row]) -> list[str]:
    """List the ways in which the searches of the rows were unequal.

    Examples are different numbers of configurations, configurations from another study, and replaced winners.
    """
    tried = format_unequal_counts(rows, lambda cell: cell.tried if cell.records else None)
    former = [
        f"{row.label} on {TASKS[task].title} ({counted(len(scores), 'score')}, median "
        f"{POINTS.text(float(np.median(scores)))})"
        for row in rows
        for task, cell in row.cells.items()
        if (scores := cell.former_scores)
    ]
    notes = [f"rows tried different numbers of configurations on the same task: {tried}"] * bool(tried)
    replaced = f"the winner was replaced after its confirm scores were known: {', '.join(former)}"
    return [*notes, *first_from_notes(rows), *[replaced] * bool(former)]


def shared_start_notes(rows: Sequence[Row]) -> list[str]:
    """List the rows whose models of all seeds start from one trained model, with its method and the tasks."""
    shared: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for task, cell in row.cells.items():
            if cell.arm.start_from and cell.records:
                method = cell.arm.start_from.partition("/")[0]
                shared.setdefault((row.label, method), []).append(TASKS[task].title)
    return [
        f"all seeds of {label} on {joined(titles)} start from one trained model of {method}, so intervals and tests "
        "leave out the chance that made this model"
        for (label, method), titles in shared.items()
    ]


def edge_notes(rows: Sequence[Row]) -> list[str]:
    """List the winners with a value at an end of its search range, with the option that widens the range."""
    edges = [
        f"{edge.field} {edge.value:.3g} of {row.label} on {TASKS[task].title} (wider: --search "
        f"{cell.name}:{edge.field}={edge.wider})"
        for row in rows
        for task, cell in row.cells.items()
        for edge in find_edges(cell)
    ]
    head = "the search chose values in the first or last tenth of their ranges, so better ones may lie outside"
    return [f"{head}: {', '.join(edges)}"] * bool(edges)


def first_from_notes(rows: Sequence[Row]) -> list[str]:
    """List the searches that began with winners of another study.

    The budgets in our tables do not include the trials of the other study.
    """
    began: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for task, cell in row.cells.items():
            firsts = [first for study in cell.studies for first in study.plan.asked.list_firsts(cell.name)]
            others = dict.fromkeys(first.origin.rpartition(", ")[0] for first in firsts if cell.arm.decided)
            if others:
                began.setdefault((row.label, " and ".join(others)), []).append(TASKS[task].title)
    return [
        f"{label}'s search on {joined(titles)} began with winners of another study: {others}"
        for (label, others), titles in began.items()
    ]


def format_unequal_counts(rows: Sequence[Row], count: Callable[[Cell], int | None]) -> str:
    """Format the rows' counts for each task with unequal counts. Rows without a count are left out.

    If the counts are equal on every task, return an empty text.
    """
    tasks: dict[str, list[str]] = {}
    for task in dict.fromkeys(task for row in rows for task in row.cells):
        counts = {row.label: count(row.cells[task]) for row in rows if task in row.cells}
        known = {label: number for label, number in counts.items() if number is not None}
        if len(set(known.values())) > 1:
            words = ", ".join(f"{label} {number}" for label, number in known.items())
            tasks.setdefault(words, []).append(TASKS[task].title)
    return "; ".join(f"{words} on {joined(titles)}" for words, titles in tasks.items())


def untestable_pair_notes(rows: Sequence[Row]) -> list[str]:
    """List the rows that are not tested against each other, with the reason."""
    return [
        f"some rows are not tested against each other on {joined([TASKS[task].title for task in tasks])}, because "
        f"{fact.reason} ({fact.remedy}): {groups}"
        for fact in FACTS_OF_FAMILY
        for groups, tasks in group_rows(rows, fact).items()
    ]


def _code_notes(study: Study, cells: list[Cell]) -> list[str]:
    """List the arms with trials that did not use the code of the study's first launch."""
    records = {
        record.key: record for cell in cells for record in cell.arm_records if record.key in study.records_by_key
    }
    if len({record.code_digest for record in records.values()}) < 2:
        return []  # one version of the code: the launches need not be compared
    first = FirstCode(study.facts)
    others: dict[str, list[Record]] = {}  # description of the code -> trials
    for key, trial in study.facts.trials.items():
        for code in first.list_others(trial) if key in records else ():
            others.setdefault(code, []).append(records[key])
    if first.launch is None or not others:
        return []
    trials_by_code = [f"{_name_trials(trials, of=records.values())} used {code}" for code, trials in others.items()]
    head = f"some trials were trained with other code than the study's first launch ({describe_code(first.launch)})"
    return [f"{head}: {'; '.join(trials_by_code)}"]


def _device_notes(studies: list[Study], cells: list[Cell]) -> list[str]:
    """List the devices and torch versions of the trials."""
    records = [record for cell in cells for record in cell.arm_records if record.device]
    trained = sorted({f"{record.device}, torch {record.versions.get('torch', 'unknown')}" for record in records})
    if not trained:
        return []
    others = "another device, number of threads or torch version can change scores"
    if any(study.plan.protocol.early_stopping for study in studies):
        others += ", and so can the order in which search trials report to ASHA"
    return [f"trials were trained on {' or '.join(trained)}; {others}"]


def _name_trials(trials: Iterable[Record], *, of: Iterable[Record]) -> str:
    """Name the arms of `trials`. If `of` has more trials of an arm, say which trials are meant."""
    names = []
    for arm in dict.fromkeys(record.arm for record in trials):
        own, whole = ([record for record in records if record.arm == arm] for records in (trials, of))
        seeds = [str(seed) for seed in sorted({record.seed for record in own if record.phase == "confirm"})]
        searched, all_searched = (sum(record.phase != "confirm" for record in records) for records in (own, whole))
        parts = [f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"] * bool(seeds)
        parts += [f"{searched} of {all_searched} search trials"] * bool(searched)
        names.append(arm if len(own) == len(whole) else f"{arm} ({'; '.join(parts)})")
    return ", ".join(names)


def own_task_notes(studies: Sequence[Study]) -> list[str]:
    """Describe the size and the metrics of each task outside GLUE."""
    tasks = {name: task for study in studies for name, task in (study.plan.own_tasks or {}).items()}
    return [
        f"{task.title} is not a GLUE task; the score is the {metric_words(task)} on {task.sizes['dev']:,} dev "
        f"examples, after training on {task.sizes['train']:,} examples"
        for task in tasks.values()
    ]


def list_other_data(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Map the title of each task to the differences between its data and the official GLUE data.

    Tasks with the official data, and tasks of mini-GLUE, are left out.
    """
    differences: dict[str, dict[str, None]] = {}
    for cell in (cell for row in rows for cell in row.cells.values()):
        if cell.data_differences and not any(study.is_mini for study in cell.studies):
            differences.setdefault(TASKS[cell.task].title, {}).update(dict.fromkeys(cell.data_differences))
    return {title: list(lines) for title, lines in differences.items()}


def explain_marks(rows: list[Row], comparisons: list[Comparison]) -> str:
    """Explain the marks of a table, or why no difference is tested."""
    baseline = find_baseline_row(rows)
    family = [comparison for comparison in comparisons if comparison.family == "baseline"]
    if baseline is None:
        return f"No difference is tested: {why_no_baseline(rows)}."
    if not family:
        return f"No difference is tested, because no comparable row has predictions of the same examples as {baseline}."
    tested = (
        f"↑ and ↓: the mean score is above or below that of {baseline} at the 5 % level (Welch-Satterthwaite t-test "
        "over seeds, with bootstrapped variance over examples; Holm's correction covers the "
        f"{counted(len(family), 'comparison')} with {baseline})."
    )
    if not any(comparison.holds for comparison in family):
        return tested
    return (
        f"{tested} A mark compares the configurations that the searches chose, not the methods: two equal methods, "
        "each searched once, get a mark in up to 60 % of comparisons. --compare methods tests the methods."
    )


def look_notes(rows: Sequence[Row], *, at_searches: bool = False) -> list[str]:
    """List the earlier analyses of the results, and say whether p-values are corrected for them.

    Return an empty list if this is the first analysis.
    """
    looks, former = list_interim_looks(rows, at_searches=at_searches), list_former_baselines(rows)
    correction = (
        f"p-values are multiplied by {len(looks)}, and intervals of differences hold jointly for all these analyses "
        "(Bonferroni)"
    )
    return [
        *[f"the results were analysed with {', then '.join(looks)}; {correction}"] * (len(looks) > 1),
        *[f"the results were analysed earlier with {'; '.join(former)}; p-values are not corrected for this"]
        * bool(former),
    ]


def why_no_baseline(rows: list[Row]) -> str:
    """Explain why no single row is the baseline, and how to choose a baseline."""
    method = find_baseline_method(rows)
    if method is None:
        return "the plans name different baselines or none; choose one with --baseline"
    labels = find_baseline_rows(rows)
    number = counted(len(labels), "row") if labels else "no row"
    return f"the baseline, {method}, has {number} with results here; choose another with study.launch --baseline"


def comparison_notes(comparisons: Sequence[Comparison]) -> list[str]:
    """Describe the difference that would have been found, on the tasks on which a comparison found none."""
    missed: dict[str, float] = {}
    for one in comparisons:
        if one.family == "baseline" and one.missed_difference is not None:
            missed[one.task] = max(missed.get(one.task, 0.0), one.missed_difference)
    return [described] if (described := describe_detectable(missed)) else []


def describe_detectable(differences: Mapping[str, float]) -> str:
    """Describe by task which true difference would have been found with 80 % power; empty without differences.

    Differences that no two methods are likely to have are not printed: nothing could have been found.
    """
    sizes = {task: format_detectable(difference) for task, difference in differences.items()}
    found = [f"{size} on {TASKS[task].title}" for task, size in sizes.items() if size]
    nothing = [TASKS[task].title for task, size in sizes.items() if not size]
    parts = [f"a difference of {joined(found)} would have been found with {100 * POWER:.0f} % power"] * bool(found)
    where = f" on {joined(nothing)}" if found else ""
    parts += [f"nothing could have been found with this data{where}"] * bool(nothing)
    return "; ".join(parts)


def format_detectable(difference: float) -> str:
    """Format a detectable difference as one rounded number; empty if two methods are unlikely to differ so much."""
    if difference > MOST_REALISTIC:
        return ""
    return f"about {style_of_detectable(difference).text(difference)} points"


def style_of_detectable(difference: float) -> Style:
    """Choose how exactly a detectable difference, which is an estimate, is printed."""
    return POINTS if difference < 0.1 else WHOLE_POINTS


def sign_notes(rows: Sequence[Row], comparisons: Sequence[Comparison]) -> list[str]:
    """List the cells in which median and mean differ from the baseline in opposite directions."""
    cells = {(row.label, task): cell for row in rows for task, cell in row.cells.items()}
    opposite = []
    for one in (one for one in comparisons if one.family == "baseline"):
        medians = cells[one.row, one.task].median - cells[one.other, one.task].median
        if medians * one.test.difference < 0:
            opposite.append(
                f"{one.row} on {TASKS[one.task].title}: median {DIFFERENCE.text(medians)}, mean "
                f"{DIFFERENCE.text(one.test.difference)} points relative to {one.other}"
            )
    head = "some medians and means point in opposite directions, and only the means are tested"
    return [f"{head}: {'; '.join(opposite)}"] if opposite else []


def collapsed_notes(samples: Mapping[Place, Sample]) -> list[str]:
    """List the cells with models that give one answer to all examples."""
    cells = [
        f"{number} of {counted(len(sample.scores), 'seed')} of {row} on {TASKS[task].title}"
        for (row, task), sample in samples.items()
        if (number := count_collapsed(sample))
    ]
    return [f"some models give one answer to all examples: {', '.join(cells)}"] if cells else []


def weak_model_notes(weak_models: Mapping[Place, tuple[float, float]]) -> list[str]:
    """List the cells whose models score below the plain model even with all layers, with both scores."""
    cells = [
        f"{row} on {TASKS[task].title} ({POINTS.text(score)}; {PLAIN_METHOD} {POINTS.text(plain)})"
        for (row, task), (score, plain) in weak_models.items()
    ]
    head = "even with all layers, so not because of their exits, these models score significantly below plain ones"
    return [f"{head}: {', '.join(cells)}"] if cells else []


def constant_notes(not_above_constant: Mapping[Place, float], nothing_found: Mapping[Place, float]) -> list[str]:
    """List the cells that are not shown to beat a constant answer, and the searches that found nothing better."""
    constants_by_note = {
        "° marks scores that are not shown to be better than a constant answer": not_above_constant,
        "no search trial beats a constant answer": nothing_found,
    }
    cells = {
        note: [
            f"{row} on {TASKS[task].title} (constant: {POINTS.text(score)})" for (row, task), score in constants.items()
        ]
        for note, constants in constants_by_note.items()
    }
    return [f"{note}: {', '.join(names)}" for note, names in cells.items() if names]


def collect_provenance(records: Iterable[Record]) -> dict[str, str]:
    """Collect the commits, code digests, data fingerprints, devices and package versions of the trials."""
    facts: dict[str, set[str]] = {}
    for record in records:
        versions = ", ".join(f"{package} {version}" for package, version in sorted(record.versions.items()))
        for name, value in {
            "commit": record.git_commit or "unknown",
            "digest of the source code": record.code_digest,
            "data fingerprint": f"{TASKS[record.task].title} {record.data_fingerprint}",
            "device": f"{record.host} {record.device}",
            "versions": versions,
        }.items():
            facts.setdefault(name, set()).add(value)
    return {name: " | ".join(sorted(values)) for name, values in facts.items()}
