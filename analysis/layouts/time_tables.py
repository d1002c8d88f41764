"""The table of times per text, and sentences that compare the methods' times."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from analysis.layouts.evidence import USUAL_PRECISION, Evidence, make_table
from analysis.layouts.table import INTERVAL, Block, Entry, Line, NumberFormat, Table, format_digits
from analysis.statistics.comparisons import POWER
from analysis.statistics.samples import Place
from analysis.statistics.times import SLOW_TEXTS, Measurement, Ratio
from analysis.studies.cells import Cell
from study.terminal.text import joined
from trainables.data.tasks import TASKS

MOST_ROWS = 4  # of which all pairs are compared; of more, only pairs with a reference
SPLIT_BATCH = 1  # batch size at which a note compares the heads with the encoder
NOTED_SHARE = 0.5  # least time of the heads, as a share of the encoder's, that a note reports
BATCHES = (
    "In a batch, a layer runs until the last text has left, and decisions, removal of texts and small products take "
    "time however few texts stay, so exits may save less than for single texts, or lose time. "
)
COMMAND = "python -m study.time"
RATIO = NumberFormat("{} ({} to {})", ("", *INTERVAL), decimals=2)
COLUMNS = {
    "mean_ms": "mean",
    "median_ms": "median",
    "slow_ms": f"{SLOW_TEXTS}th percentile",
    "ratio": "ratio",
    "encoder_ms": "encoder",
    "heads_ms": "heads",
    "decision_ms": "decision",
}


def format_ratio(ratio: Ratio) -> Entry:
    """Format a ratio of times with its 95 % interval: `0.77 (0.74 to 0.80)`."""
    return RATIO.entry(ratio.value, ratio.low, ratio.high)


def times_table(evidence: Evidence) -> Table | None:
    """Tabulate the times per text of each measurement, and the ratios of all pairs of arms.

    Return None if no times were measured.
    """
    blocks = [Block(_describe(evidence, made), _list_lines(evidence, made)) for made in evidence.measurements]
    blocks = [block for block in blocks if block.lines]
    if not blocks:
        return None
    first, *others = blocks
    has_seeds = any(_has_seeds(evidence, made) for made in evidence.measurements)
    table = make_table(
        evidence,
        "times",
        title="Milliseconds per text{data}"
        + ", {seeds}" * (not any(map(evidence.list_untimed, evidence.measurements))),
        first_column="arm, texts per batch",
        columns=COLUMNS,
        lines=first.lines,
        caption=(
            "All models answered the same dev texts in turn. A time runs from tokens on the device to the answer, "
            "without tokenisation, padding and copies. Each text's time is the median over the rounds, per text "
            f"of its batch; mean, median and {SLOW_TEXTS}th percentile are over texts{' and seeds' * has_seeds}. "
            f'"Ratio" is the mean divided by that of {_name_references(evidence)}, or of the second arm that the line '
            "names. It is paired: same texts, same rounds. Intervals are 95 % intervals over "
            f"{'seeds, ' * has_seeds}texts and rounds. "
            f"{BATCHES * any(made.batch_sizes[-1] > 1 for made in evidence.measurements)}"
            '"Encoder", "heads" and "decision" are the parts of the time of one layer if no text leaves early.'
        ),
        unit="milliseconds; ratio: ratio",
        notes=_list_head_notes(evidence),
    )
    return replace(table, heading=first.title, blocks=others)


def _has_seeds(evidence: Evidence, made: Measurement) -> bool:
    """Whether several models of an arm were timed."""
    read = (made.read(cell, size) for cell in evidence.cells_by_place.values() for size in made.batch_sizes)
    return any(times is not None and len(times.seeds) > 1 for times in read)


def _describe(evidence: Evidence, made: Measurement) -> str:
    quality = f"not to be trusted: {made.disturbance}" if made.disturbance else made.quality
    return f"{evidence.describe_measurement(made)}; {made.extent}; {quality}"


def _list_lines(evidence: Evidence, made: Measurement) -> list[Line]:
    """Make a line for each arm and batch size, and a line with the ratio of each other pair of arms."""
    places = evidence.cells_by_place
    lines = [
        Line(f"{'/'.join(place)}, {size}", _format_times(evidence, made, place, size))
        for place in places
        for size in made.batch_sizes
    ]
    for task in dict.fromkeys(task for _, task in places):
        for row, other in _list_pairs(evidence, task):
            for size in made.batch_sizes:
                ratio = made.compare(places[row, task], places[other, task], size)
                entries = {} if ratio is None else {"ratio": format_ratio(ratio)}
                lines.append(Line(f"{row} against {other}, {task}, {size}", entries))
    return [line for line in lines if line.entries]


def _format_times(evidence: Evidence, made: Measurement, place: Place, size: int) -> dict[str, Entry]:
    cell, reference = evidence.cells_by_place[place], evidence.find_time_reference(place)
    times = made.read(cell, size)
    if times is None:
        return {}
    interval = times.interval
    entries = {
        "mean_ms": _milliseconds(times.mean, interval.low, interval.high),
        "median_ms": _milliseconds(times.median),
        "slow_ms": _milliseconds(times.slow),
    }
    if reference is not None and reference is not cell and (ratio := made.compare(cell, reference, size)):
        entries["ratio"] = format_ratio(ratio)
    if layer := made.find_layer_time(cell, size):
        parts = {"encoder_ms": layer.encoder, "heads_ms": layer.heads, "decision_ms": layer.decision}
        entries |= {name: _milliseconds(value) for name, value in parts.items()}
    return entries


def _milliseconds(*values: float) -> Entry:
    """Format times, the first with its interval if there are three."""
    suffixes = ("", *INTERVAL)[: len(values)]
    texts = [*map(format_digits, values)]
    pattern = "{} ({} to {})" if len(values) > 1 else "{}"
    return Entry(
        pattern.format(*texts), dict(zip(suffixes, texts, strict=True)), dict(zip(suffixes, values, strict=True))
    )


def _name_references(evidence: Evidence) -> str:
    return ", or without it of ".join(evidence.time_references) or "the baseline"


def _list_pairs(evidence: Evidence, task: str) -> list[tuple[str, str]]:
    """List the pairs of rows to compare on a task, besides those with the reference of the column `ratio`."""
    rows = [label for label, own in evidence.cells_by_place if own == task]
    references = [evidence.find_time_reference((row, task)) for row in rows]
    others = [row for row in rows if not any(evidence.cells_by_place[row, task] is cell for cell in references)]
    if len(rows) <= MOST_ROWS:
        return [(row, other) for place, row in enumerate(others) for other in others[place + 1 :]]
    baseline = evidence.baseline
    return [(row, baseline) for row in others if baseline in others and row != baseline] if baseline else []


def _list_head_notes(evidence: Evidence) -> list[str]:
    """Explain heads that take as long as much of a layer of the encoder."""
    notes = []
    for (row, task), cell in evidence.cells_by_place.items():
        measured = (made.find_layer_time(cell, SPLIT_BATCH) for made in evidence.measurements)
        layer = next(filter(None, measured), None)
        if layer is None or layer.heads < NOTED_SHARE * layer.encoder:
            continue
        reason = ""
        if cell.config and cell.config.get("lambda_layer_arch") == "linear_cat":
            exact = " in float32" * (cell.config.get("precision", USUAL_PRECISION) != USUAL_PRECISION)
            reason = (
                f"; its Λ reads the weights of several hidden layers of twice the encoder's width{exact}, which "
                "costs time for a single text, although it adds few FLOPs"
            )
        share = f"{100 * layer.heads / layer.encoder:.0f} %"
        notes.append(f"for a single text, the heads of {row} on {task} take {share} of the encoder's time{reason}")
    return notes


# ---- sentences


def describe_times(evidence: Evidence) -> list[str]:
    """Compare the methods' times in sentences, or explain why that is not possible."""
    cells = [cell for _, cell in evidence.cells if cell.records]
    if not cells:
        return []
    if not evidence.measurements:
        return [f"Times were not measured. To measure them: {_list_commands(evidence)}"]
    trusted = [made for made in evidence.measurements if not made.disturbance]
    if not trusted:
        reason = evidence.measurements[0].disturbance
        return [f"No times are compared: {reason}. To measure again on an idle machine: {_list_commands(evidence)}"]
    compared_on, used = list[tuple[str, str]](), list[Measurement]()  # tasks with sentences; their measurements
    for task in dict.fromkeys(task for _, task in evidence.cells_by_place):
        compared = set[tuple[str, str, int]]()  # every pair is compared in the newest measurement that timed both
        for made, size in ((own, size) for own in trusted for size in own.batch_sizes):
            ratios = _list_ratios(evidence, made, task, size)
            if new := [one for one in ratios if (one.row, one.other, size) not in compared]:
                compared |= {(one.row, one.other, size) for one in new}
                sentence = _describe_ratios(evidence, made, task, size, new)
                compared_on.append((TASKS[task].title, f"in batches of {size}: {sentence}"))
                used.append(made)
    machines = [f" on {made.event.device} (host {made.event.host})" for made in used]
    has_several = len({*machines}) > 1
    lines = [
        f"Time on {title}{machine * has_several}, {sentence}."
        for (title, sentence), machine in zip(compared_on, machines, strict=True)
    ]
    measured = [
        f"{evidence.describe_measurement(made)}: {made.extent}; {made.quality}"
        for made in trusted
        if any(made is own for own in used)
    ]
    scope = (
        f"Ratios are of mean times per text, measured on {'; and on '.join(measured)}. The exit settings are those of "
        "the trials, so methods also differ in score; each interval is for its pair alone."
    )
    return [*lines, scope] if lines else []


def _list_commands(evidence: Evidence) -> str:
    """List the commands that measure the times of the studies."""
    return " and ".join(f"{COMMAND} {shlex.quote(str(study.folder))}" for study in evidence.studies)


class _PairRatio(NamedTuple):
    """The times of two rows on a task, divided."""

    row: str
    other: str
    ratio: Ratio


def _list_ratios(evidence: Evidence, made: Measurement, task: str, size: int) -> list[_PairRatio]:
    """Divide the times of each row and its reference, and of the other pairs of rows, if a measurement has both."""
    cells = evidence.cells_by_place
    pairs = [
        (row, reference)
        for row, own in cells
        if own == task
        if (reference := evidence.find_time_reference_row((row, task))) is not None and reference != row
    ]
    return [
        _PairRatio(row, other, ratio)
        for row, other in [*pairs, *_list_pairs(evidence, task)]
        if (other, task) in cells and (ratio := made.compare(cells[row, task], cells[other, task], size))
    ]


def _describe_ratios(evidence: Evidence, made: Measurement, task: str, size: int, ratios: Sequence[_PairRatio]) -> str:
    cells = evidence.cells_by_place
    different = [
        f"{row} takes {RATIO.text(ratio.value)} times ({_format_interval(ratio)}) as long as {other}"
        + _warn_of_slow_texts(made, cells[row, task], cells[other, task], size)
        for row, other, ratio in ratios
        if ratio.differs
    ]
    alike = [
        f"{row} and {other} (ratio {RATIO.text(ratio.value)}, {_format_interval(ratio)}{_format_missed(ratio)})"
        for row, other, ratio in ratios
        if not ratio.differs
    ]
    parts = ["; ".join(different)] * bool(different)
    parts += [f"no difference in time was found between {joined(alike)}"] * bool(alike)
    return "; ".join(parts)


def _format_interval(ratio: Ratio) -> str:
    return f"95 % CI {RATIO.text(ratio.low)} to {RATIO.text(ratio.high)}"


def _format_missed(ratio: Ratio) -> str:
    """Describe the difference that would have been found; empty if it is unknown."""
    if ratio.missed is None:
        return ""
    percent = 100 * (ratio.missed - 1)
    return (
        f"; a difference of about {percent:.{'0f' if percent >= 10 else '1g'}} % would have been found with "
        f"{100 * POWER:.0f} % power"
    )


def _warn_of_slow_texts(made: Measurement, cell: Cell, other: Cell, size: int) -> str:
    """Warn of slow texts if the cell is faster on average, but not for them."""
    own, theirs = made.read(cell, size), made.read(other, size)
    if own is None or theirs is None or own.mean >= theirs.mean or own.slow <= theirs.slow:
        return ""
    slow = f"{format_digits(own.slow)} against {format_digits(theirs.slow)} ms"
    return f", although its {SLOW_TEXTS}th percentile is {slow}"
