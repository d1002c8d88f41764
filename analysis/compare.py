"""Test the differences between methods, given predictions that any program wrote.

python -m analysis.compare FILE ... [--baseline METHOD] [--metric [TASK=]METRIC] [--out FOLDER]

Each file has one row per prediction, with the columns method, task, seed, example, label and answer. Test, intervals,
power and Holm's correction are the same as in a study's tables.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from analysis.layouts.certainty_tables import with_baseline, without_baseline
from analysis.layouts.evidence import format_mean
from analysis.layouts.notes import equal_seed_notes
from analysis.layouts.rendering import render
from analysis.layouts.table import Entry, Line, Table
from analysis.statistics.comparisons import compare
from analysis.statistics.samples import Place, Sample, mean_facts, resample
from analysis.studies.given_predictions import COLUMNS, ENDINGS, read_answers, resolve_metric
from analysis.tables import table_files
from study.command_line import Command, argument, option
from study.facts.plain_words import counted, format_markdown
from study.storage.addresses import check_folder, make_writable
from trainables.atomic_files import write_text
from trainables.data.metrics import metric_words
from trainables.schema import Typed
from trainables.spelling import resolve_name

UNKNOWN = (
    "The files do not record searches or earlier analyses of the results, so the tests are not corrected for them."
)


def compared_tables(paths: Sequence[Path], metrics: Mapping[str, str], baseline: str | None = None) -> list[Table]:
    """Make tables of the mean scores, the comparisons with the baseline, and all other comparisons; skip empty tables.

    Raises:
        ValueError: no two methods share a task, or no method has the name `baseline`.
    """
    samples = resample(read_answers(paths, metrics))
    if baseline is not None:
        baseline = resolve_name(baseline, dict.fromkeys(method for method, _ in samples), what="method in these files")
    compared = compare(samples, baseline)
    if not compared:
        raise ValueError("there is nothing to compare; allowed: at least two methods on one task")
    tables = [_scores(samples), with_baseline(compared, baseline), without_baseline(compared, baseline)]
    return [table for table in tables if table is not None]


def _scores(samples: Mapping[Place, Sample]) -> Table:
    """Tabulate the mean scores with their 95 % intervals."""
    tasks = {task: sample.answers[0].task for (_, task), sample in samples.items()}
    seeds = max(len(sample.scores) for sample in samples.values())
    entries: dict[str, dict[str, Entry]] = {}
    for (method, task), sample in samples.items():
        number = len(sample.scores)
        entries.setdefault(method, {})[task] = replace(format_mean(sample), n=number, off_protocol=number != seeds)
    scored = ", ".join(f"{task.title} by {metric_words(task)}" for task in tasks.values())
    return Table(
        name="scores",
        title=f"Mean scores over {counted(seeds, 'seed')}",
        columns={name: task.title for name, task in tasks.items()},
        lines=[Line(method, line) for method, line in entries.items()],
        caption=f"Scores are in points, with 95 % intervals over seeds and examples; {scored}. {UNKNOWN}",
        notes=equal_seed_notes(samples),
        sidecar={"means": mean_facts(samples)},
    )


class Options(Typed, frozen=True, kw_only=True):
    """Arguments of `python -m analysis.compare`."""

    files: Annotated[list[str], argument("FILE", f"columns: {', '.join(COLUMNS)}; endings: {', '.join(ENDINGS)}")]
    baseline: Annotated[str | None, option("method with which all other methods are compared", "METHOD")] = None
    metric: Annotated[list[str], option("metric of a task, or of all tasks; default: GLUE's", "[TASK=]METRIC")] = []
    out: Annotated[str | None, option("also write the tables to this folder, in all formats", "FOLDER")] = None


def run(options: Options) -> int:
    """Print the tables; with `--out`, also write them to that folder."""
    metrics = {}
    for text in options.metric:
        task, _, metric = text.rpartition("=")
        metrics[task] = resolve_metric(metric)
    if options.out is not None:
        check_folder("--out", Path(options.out))
    tables = compared_tables([Path(name) for name in options.files], metrics, options.baseline)
    print(format_markdown("\n".join(render(table, "md") for table in tables), sys.stdout), end="")
    if options.out is not None:
        make_writable(options.out)
        for name, text in (file for table in tables for file in table_files(table).items()):
            write_text(Path(options.out) / name, text)
    return 0


main = Command(
    "analysis.compare", Options, "Test the differences between methods, given predictions that any program wrote.", run
)

if __name__ == "__main__":
    sys.exit(main())
