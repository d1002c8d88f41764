"""Notes on how the numbers were made: protocol, settings, departures, data, code, and devices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET

from analysis.layouts.search_notes import format_unequal_counts
from analysis.statistics.comparisons import (
    LAST_EPOCH,
    choice_of_epoch,
)
from analysis.statistics.costs import PretrainingCost, pretraining_cost
from analysis.studies.cells import Cell, Row, name_studies, table_seeds
from analysis.studies.load import Study
from study.facts.code_history import FirstCode, describe_code
from study.facts.record import Record
from study.plans.resolved_plan import Pretraining, describe_poolers, describe_poolings, describe_unlike_values
from study.plans.samplers import describe_sampler, describe_select_by
from study.plans.settings import format_setting, shorten, split_key
from study.terminal.text import counted
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
                choice = f"the configuration, by its score at {epoch}" if cell.arm.searched_fields else NOT_CHOSEN
            else:
                choice = "the configuration and " * bool(cell.arm.searched_fields) + epoch
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
        f"profile {', '.join(dict.fromkeys(plan.request.profile for plan in plans))}",
        f"data {', '.join(dict.fromkeys(plan.data for plan in plans))}",
        f"journal {', '.join(study.journal.short for study in studies)}",
    ]
    return "; ".join(sentences) + "."


def name_backbone(backbone: str) -> str:
    """Return the last two parts of `backbone` if it is an absolute path, and otherwise return it unchanged."""
    return "/".join(Path(backbone).parts[-2:]) if Path(backbone).is_absolute() else backbone


def describe_pretraining(studies: Sequence[Study], rows: Sequence[Row]) -> list[str]:
    """Describe the backbone of every study; return an empty list if no backbone was pretrained here."""
    costs = [pretraining_cost(study, rows) for study in studies]
    if not any(costs):
        return []
    named = zip(name_studies(studies), studies, costs, strict=True)
    return [_describe_backbone(study, cost, f" of {name}" if len(studies) > 1 else "") for name, study, cost in named]


def describe_pooling(studies: Sequence[Study]) -> list[str]:
    """Describe in sentences the backbones without a trained pooler, and what heads read instead of a pooler."""
    plans = [study.plan for study in studies]
    lines = [line for plan in plans for line in (*describe_poolers(plan, name_backbone), *describe_poolings(plan))]
    return _format_sentences(lines)


def describe_unlike(studies: Sequence[Study]) -> list[str]:
    """Describe in sentences the values that no search chose and that differ between methods."""
    return _format_sentences(line for study in studies for line in describe_unlike_values(study.plan))


def _format_sentences(lines: Iterable[str]) -> list[str]:
    return [f"{line[0].upper()}{line[1:]}." for line in dict.fromkeys(lines)]


def _describe_backbone(study: Study, cost: PretrainingCost | None, where: str) -> str:
    if cost is None:
        backbones = ", ".join(dict.fromkeys(name_backbone(arm.backbone) for arm in study.plan.arms))
        return f"Every row{where} uses backbone {backbones}, which was not pretrained here."
    stages = ") and then with ".join(map(_describe_stage, cost.made.stages))
    paid = f"{cost.whole.describe()}{' together' * (len(cost.made.stages) > 1)}, shared by {counted(cost.arms, 'arm')}"
    held_out = ", ".join(f"{name} {value:.3f}" for name, value in cost.made.scores.items())
    return (
        f"Every row{where} uses backbone {cost.made.stages[0].backbone}, which was pretrained with {stages}; {paid}; "
        f"held-out scores, in no table here: {held_out})."
    )


def _describe_stage(made: Pretraining) -> str:
    """Describe one pretraining, without a closing bracket."""
    sizes = f"{made.steps:,} steps of {made.batch_size} examples, {made.tokens:,} tokens"
    return f"{made.objective} on corpus {made.corpus} ({sizes}"


def pretraining_facts(study: Study, rows: Sequence[Row]) -> dict[str, Any] | None:
    """Return all facts about the pretraining for JSON, or None if the backbone was not pretrained here."""
    cost = pretraining_cost(study, rows)
    return None if cost is None else {**to_plain(cost.made), "cost": vars(cost.whole), "shared_by": cost.arms}


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
    fields = format_unequal_counts(rows, lambda cell: len(cell.arm.searched_fields) if cell.records else None)
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
    request = study.plan.request
    stages = next((arm.pretraining.stages for arm in study.plan.arms if arm.pretraining is not UNSET), ())
    folders = {"backbone": request.backbone, "tokenizer": request.tokenizer}
    fields = {field: name and name_backbone(name) for field, name in folders.items()}
    of_arms = [key for key in request.settings if "/" in split_key(key)[0]]
    left = of_arms if len(of_arms) > MOST_VALUES_OF_ARMS else []
    return [
        *(f"{field} {value}" for field, value in fields.items() if value is not None),
        *(
            f"{key.replace(':', ' ')} {format_setting(setting)}"
            for key, setting in request.settings.items()
            if key not in left
        ),
        *([f"{', '.join(dict.fromkeys(map(shorten, left)))} (values: see plan.json)"] if left else []),
        *(
            f"pretraining with {field} {json.dumps(value)}"
            for stage in stages
            for field, value in stage.settings.items()
        ),
        *(f"{arm} starts from {source}" for arm, source in request.start_from.items()),
    ]


def list_repeated_texts(cells: Iterable[Cell]) -> dict[str, RepeatedTexts]:
    """Map the title of each task to its numbers of repeated texts. Tasks without these numbers are left out."""
    return {TASKS[cell.task].title: counted for cell in cells if (counted := cell.repeated_texts)}


def repeated_text_notes(cells: Iterable[Cell]) -> list[str]:
    """List the tasks with many dev rows whose texts occur in train."""
    repeats = list_repeated_texts(cells)
    return [counted.describe_effect(title) for title, counted in repeats.items() if counted.is_notable]


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
