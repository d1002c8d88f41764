"""The page of the real results, docs/real_results_cpu.md or _gpu: made of the records that the repository keeps.

The page has the claims, the pictures and the commands. The tables are beside the records, in `TABLES_PAGE`.

    python -m benchmarks.real_results_page cpu --keep FOLDER

`--keep` first copies the studies of the scale from FOLDER, the `--out` of `benchmarks.real_results`, to
benchmarks/results/real/SCALE: plans, journals, predictions and descriptions of models, no weights, tables or report.
`python -m analysis.verify` agrees with each of them. The page is made of these copies alone, so that it cannot drift;
tests/house/test_real_results.py makes it anew.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from msgspec import UNSET

from analysis.layouts.answer import summary_table
from analysis.layouts.comparison_notes import format_detectable
from analysis.layouts.evidence import Evidence, gather
from analysis.layouts.model_notes import constant_notes
from analysis.layouts.published_numbers import read_published_rows
from analysis.layouts.rendering import markdown_grid, render
from analysis.layouts.table import DIFFERENCE, POINTS, NumberFormat
from analysis.pictures.picture import Picture, render_image
from analysis.pictures.study_pictures import differences_picture, layers_picture
from analysis.report import registration
from analysis.statistics.budgets import Chosen, evaluate_on_halves
from analysis.statistics.comparisons import Comparison, compare
from analysis.statistics.costs import format_time, time_unit
from analysis.statistics.exit_settings import HALVINGS, ExitSetting, list_own_settings
from analysis.statistics.gains import Gain, can_measure, measure_gains
from analysis.statistics.samples import PLAIN_METHOD, Place, Sample, resample
from analysis.studies.load import Study, load_study
from analysis.studies.stored_predictions import read_cell_predictions
from analysis.tables import tabulate
from benchmarks.exit_claims import format_p_value, has_ended
from benchmarks.real_results import DONE, KEPT, RATES
from benchmarks.real_results_stages import SCALES, Scale, launches_of, measurements_of
from benchmarks.second_run import FILE as SECOND_RUN
from benchmarks.second_run import describe
from study.facts.plan_file import FILE as PLAN
from study.terminal.command_line import Parser, guarded
from study.terminal.text import joined
from trainables.configuration.schema import Typed
from trainables.data.tasks import TASKS
from trainables.files.atomic_files import write_text

ROOT = Path(__file__).parents[1]
MOST_BYTES = 6 * 2**20  # of a study that is kept: 40 files with the outputs of all layers on CoLA are 2.7 MB
PARTS = (
    *(PLAN, "events.jsonl", "predictions/*.npz"),
    "trials/*/model-epoch-*/model.json",
)
TABLES = ("dev", "comparisons", "exits", "sources")
TABLES_PAGE = "tables.md"  # in the folder of the scale's records
PAPER, OURS, THEIRS = "PALBERT Tab.2", "palbert", "pondernet"
TITLES = {OURS: "PALBERT", THEIRS: "PonderNet"}
BUDGET = 4  # mean layers of six, within which the claim is made again
CUT = 3  # layer at which both rows of the claim are also cut
GATE = 0.9  # of the layers; a row that runs more says nothing about exits, as registered
NO_SETTING = "no setting fits"

COMMANDS_MEAN = (
    "Each command repeats its study with the code of the study's commit. Later code trains PABEE on BERT with a "
    "dropout of 0.1; to repeat PABEE's trials with it, add `--set pabee:hidden_dropout=0`. "
    "Digests of journals leave out the last line, which ends a launch."
)
VERDICT_MEANS = (
    "Differences are between mean scores, in points. The paper's come from its table 2: medians of five seeds with "
    "ALBERT-base. The test is a t-test over seeds and dev examples; Holm's method corrects its p-value for all pairs "
    "with PALBERT. *Confirmed*: the corrected p-value is below 5 %, the difference has the paper's sign, and the "
    "paper's value lies in the interval. *Same sign*: the same, but the paper's value lies outside. "
    "*Contradicted*: such a p-value, but the other sign. *Undecided*: no difference was found; about the difference in "
    "parentheses would have been found four times in five. *Not learned*: one of the two methods is not shown to score "
    "better than a constant answer, in the trials or at the setting of the row. *Not about exits*: the row compares "
    "models and not their exits, because PALBERT or PonderNet runs more than nine tenths of its layers, or because "
    "the exits of the method that leads have no gain above 0. The plans fixed *not learned* and the nine tenths before "
    "their first trial; the registered commits fixed the test and the correction. *Same sign*, the gain of exits "
    "with its part in verdicts, and the cut at one layer were defined after the results were known."
)
CONFIGURATIONS = "Each verdict is about the configurations that one search per method chose. "
BUDGET_MEANS = (
    f"{CONFIGURATIONS}The plan also registered the comparison at equal layers, but not how the layers are saved. "
    f"*Within {BUDGET} layers*: each method answers under the setting that scores best within {BUDGET} mean layers. "
    f"One half of dev chooses the setting and the other measures it, as the mean over {HALVINGS} random splits. "
    "PALBERT's settings are its thresholds q; PonderNet's are its own random draw, and PALBERT's thresholds on its "
    "models. Chosen most often: {chosen}."
)
QUESTION, EARLY_QUESTION = "## Is PALBERT better than PonderNet?", "## And if both are selected for early exits?"
SELECTED_BY_LAYERS_MEANS = (
    f"{CONFIGURATIONS}The second plan was registered after the results of the first were known. It selects "
    "configurations, and PALBERT's q, by their score on a holdout at no more than four layers on average. A model that "
    "runs more layers is given the score of its layer 4."
)
LIMITS = (
    "These numbers cannot reproduce the papers'. The backbone is MiniLM (six layers of width 384, trained for sentence "
    "similarity), not ALBERT-base (twelve layers with shared weights). Each search has a few trials only. The learning "
    "rates are higher than the paper's and fall linearly. {epochs} The hours below are wall-clock times, which other "
    "work on the machine lengthens, so they do not compare methods. Times per text are not given: the models were not "
    "kept."
)


def main(argv: Sequence[str] | None = None) -> int:
    return guarded("benchmarks.real_results_page", lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    arguments = build_parser().parse_args(argv)
    if arguments.keep:
        keep(arguments.scale, arguments.keep)
    kept = KEPT / arguments.scale
    for evidence in by_protocol(complete(kept_studies(arguments.scale, kept))):
        for path, drawn in drawn_pictures(arguments.scale, evidence).items():
            path.write_bytes(render_image(drawn.figure, "svg"))
    for path, text in (
        (page_path(arguments.scale), page(arguments.scale, kept)),
        (kept / TABLES_PAGE, tables_page(arguments.scale, kept)),
    ):
        write_text(path, text)
        print(path)
    return 0


def build_parser() -> Parser[Typed]:
    parser = Parser(Typed, "benchmarks.real_results_page", (__doc__ or "").split("\n\n")[0])
    parser.add_argument("scale", choices=SCALES)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="with the studies, to be copied first")
    return parser


def page_path(scale: Scale) -> Path:
    return ROOT / "docs" / f"real_results_{scale}.md"


def complete(studies: Mapping[str, Study]) -> dict[str, Study]:
    """The studies whose last launch ended with every trial: a claim is tested once, on all that its plan registered."""
    return {name: study for name, study in studies.items() if has_ended(study)}


def by_protocol(studies: Mapping[str, Study]) -> list[Evidence]:
    """The evidence of the studies, together if they share a protocol, in the order of their stages."""
    groups: dict[str, list[Study]] = {}
    for study in studies.values():
        groups.setdefault(study.protocol_hash, []).append(study)
    return [gather(group) for group in groups.values()]


def drawn_pictures(scale: Scale, evidence: Evidence) -> dict[Path, Picture]:
    """The pictures of a part of the page by their files: differences against layers, and scores against layers."""
    part = "_early" if is_selected_by_layers(evidence) else ""
    drawn = {part: differences_picture(evidence), f"{part}_layers": layers_picture(evidence)}
    place = page_path(scale)
    return {place.with_name(f"{place.stem}{name}.svg"): one for name, one in drawn.items() if one}


def keep(scale: Scale, out: Path, *, kept: Path = KEPT) -> None:
    """Copies what the page is made of, and what `verify` holds against each other.

    Raises:
        ValueError: there is no study of the scale, or one is too large to be kept.
    """
    names = [stage.name for stage in launches_of(scale) if (out / stage.name / PLAN).exists()]
    if not names:
        wanted = ", ".join(stage.name for stage in launches_of(scale))
        raise ValueError(f"--keep is {out}; allowed: a folder with one of the studies {wanted}")
    for name in names:
        copy_study(out / name, kept / scale / name)
    if (out / RATES).is_dir():
        shutil.copytree(out / RATES, kept / scale / RATES, dirs_exist_ok=True)
        shutil.copyfile(out / DONE, kept / scale / DONE)


def copy_study(source: Path, target: Path) -> None:
    """A study without weights, states and exports.

    Raises:
        ValueError: it is too large.
    """
    shutil.rmtree(target, ignore_errors=True)
    for path in (path for part in PARTS for path in source.glob(part)):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    if (size := sum(path.stat().st_size for path in target.rglob("*") if path.is_file())) > MOST_BYTES:
        shutil.rmtree(target)
        raise ValueError(f"the records of {source} have {size:,} bytes; allowed: at most {MOST_BYTES:,}")


def kept_studies(scale: Scale, kept: Path) -> dict[str, Study]:
    """The kept studies of a scale by name.

    Raises:
        ValueError: none is kept.
    """
    names = [stage.name for stage in launches_of(scale) if (kept / stage.name / PLAN).exists()]
    if not names:
        raise ValueError(f"{kept} has no study of scale {scale}; allowed: --keep FOLDER first")
    return {name: load_study(kept / name) for name in names}


def page(scale: Scale, kept: Path) -> str:
    """The whole page.

    Raises:
        ValueError: no study of the scale is kept.
    """
    studies = kept_studies(scale, kept)
    whole = complete(studies)
    protocols = [(evidence, picture_lines(scale, evidence)) for evidence in by_protocol(whole)]
    tables = KEPT.relative_to(ROOT) / scale / TABLES_PAGE
    parts = [
        f"# Early exit with MiniLM on real GLUE ({scale.upper()})",
        "ALBERT, PALBERT, PonderNet and PABEE train the same backbone, under plans that were registered before their "
        f"first trial. [All tables](../{tables}) are beside the records. `python -m benchmarks.real_results_page "
        f"{scale}` writes both from the records; do not edit them.",
        *(part for evidence, pictures in protocols for part in answer(evidence, pictures)),
        *folded("What the verdicts and the numbers mean", [VERDICT_MEANS, limits_in_words(whole.values())]),
        *folded(
            "Commands, machines, versions and registered plans",
            [COMMANDS_MEAN, *map(study_in_words, studies.values()), *second_run(kept), not_run(scale, studies, kept)],
        ),
        *folded("More pictures", (line for own in protocols for line in more_pictures(*own))),
        *folded("Rates", rates_parts(kept)),
    ]
    return join_parts(parts, studies)


def tables_page(scale: Scale, kept: Path) -> str:
    """All tables of the complete studies.

    Raises:
        ValueError: no study of the scale is kept.
    """
    studies = kept_studies(scale, kept)
    parts = [f"# Tables of the studies with MiniLM on real GLUE ({scale.upper()})"]
    for evidence in by_protocol(complete(studies)):
        names = ", ".join(study.name for study in evidence.studies)
        parts += [f"## {names}", *(f"##{render(table, 'md')}" for table in tabulate(evidence) if table.name in TABLES)]
    return join_parts(parts, studies)


def join_parts(parts: Iterable[str], studies: Mapping[str, Study]) -> str:
    text = "\n\n".join(part.strip("\n") for part in parts) + "\n"
    return without_places(text, list(studies.values()))


def is_selected_by_layers(evidence: Evidence) -> bool:
    """Whether the searches selected by the score at a number of layers, and not by the score alone."""
    return any(study.plan.request.select_by is not UNSET for study in evidence.studies)


def answer(evidence: Evidence, pictures: Sequence[str]) -> Iterator[str]:
    """Answer the claim under one protocol; the scores and the last picture follow, if all layers were allowed."""
    yield EARLY_QUESTION if is_selected_by_layers(evidence) else QUESTION
    yield from claims(evidence)
    yield "\n".join(f"- {fact}" for fact in facts(evidence))
    if not is_selected_by_layers(evidence):
        table = summary_table(evidence)
        yield from (markdown_grid(table, table.parts[0]), table.caption, *pictures[-1:])


def more_pictures(evidence: Evidence, pictures: Sequence[str]) -> Sequence[str]:
    """The pictures that `answer` leaves out."""
    return pictures if is_selected_by_layers(evidence) else pictures[:-1]


def picture_lines(scale: Scale, evidence: Evidence) -> list[str]:
    """Link the pictures of a part of the page; the last one has scores against layers."""
    return [f"![{drawn.alt}]({path.name})" for path, drawn in drawn_pictures(scale, evidence).items()]


def folded(title: str, parts: Iterable[str]) -> list[str]:
    """A part of the page that opens on request; nothing where it is empty."""
    inside = [*parts]
    return [f"<details><summary>{title}</summary>", *inside, "</details>"] if inside else []


def claims(evidence: Evidence) -> Iterator[str]:
    """The paper's claim on every task, with the test that decides it, and who does not count for it."""
    lines = [
        "| claim | task | paper | here, 95 % interval | p, Holm | verdict |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    tasks = dict.fromkeys(task for row in evidence.rows for task in row.cells)
    chosen = {} if is_selected_by_layers(evidence) else chosen_within(evidence, BUDGET)
    samples = sample_chosen(chosen)
    within = compare(
        samples, evidence.baseline, are_comparable=evidence.are_comparable, num_analyses=len(evidence.interim_analyses)
    )
    unlearned = {*evidence.not_above_constant, *(place for place, one in samples.items() if not has_learned(one))}
    gains = measure_chosen(evidence, chosen)
    for task in tasks:
        lines.append(
            claim_line(evidence, task, evidence.comparisons, evidence.gains, unlearned=[*evidence.not_above_constant])
        )
        if not is_selected_by_layers(evidence):
            fits = all(chosen.get((label, task), True) for label in (OURS, THEIRS))
            way, missing = f", within {BUDGET} layers", "not tested" if fits else NO_SETTING
            lines.append(claim_line(evidence, task, within, gains, unlearned=unlearned, way=way, missing=missing))
    yield "\n".join(lines)
    if is_selected_by_layers(evidence):
        yield SELECTED_BY_LAYERS_MEANS
    else:
        yield BUDGET_MEANS.format(chosen="; ".join(chosen_in_words(chosen)))


def facts(evidence: Evidence) -> Iterator[str]:
    """The facts that decide what the claims mean: exits, weak models, and a cut at one layer."""
    yield from exits_in_words(evidence)
    yield from weak_models_in_words(evidence)
    yield from cut_in_words(evidence)
    yield from (
        f"{note[0].upper()}{note[1:]}." for note in constant_notes(evidence.not_above_constant, evidence.nothing_found)
    )


def exits_in_words(evidence: Evidence) -> Iterator[str]:
    """Answer whether the exits of any method beat a coin toss between two fixed layers, and name those that lose.

    Models that all exit at one layer have no exits to judge, and are named apart.
    """
    gains = {place: gain for place, gain in evidence.gains.items() if gain.only_layer is None}
    above = [describe_gain(place, gain) for place, gain in gains.items() if gain.is_shown]
    below = {place: gain for place, gain in gains.items() if gain.interval.high < 0}
    parts = [f"**Exits that beat a fixed cut: {'; '.join(above)}.**"] if above else []
    if gains and not above:
        parts.append(
            "**No exits were shown to beat a fixed cut**: under each method's own rule, at the setting with "
            "which the trials ran, no gain over a coin toss between "
            "two fixed layers of the same models has an interval above 0."
        )
    if below:
        parts.append(f"The coin beats {'; '.join(describe_gain(place, gain) for place, gain in below.items())}.")
    for place, gain in evidence.gains.items():
        if gain.only_layer is not None:
            is_last = gain.only_layer == evidence.exits[place].num_layers
            where = "run all layers" if is_last else f"leave at layer {gain.only_layer}"
            parts.append(f"All examples of {place_in_words(place)} {where}, so there are no exits to judge.")
    if parts:
        yield " ".join(parts)


def place_in_words(place: Place) -> str:
    return f"{place[0]} on {TASKS[place[1]].title}"


def weak_models_in_words(evidence: Evidence) -> Iterator[str]:
    """Name the methods whose models score below plain ones even with all layers."""
    for method in dict.fromkeys(row for row, _ in evidence.weak_models):
        scores = [
            f"{POINTS.text(own)} on {TASKS[task].title} ({PLAIN_METHOD}: {POINTS.text(plain)})"
            for (row, task), (own, plain) in evidence.weak_models.items()
            if row == method
        ]
        yield (
            f"**The search of {method} found no configuration that trains well.** Even with all layers, its models "
            f"score only {joined(scores)}. This gap is not due to its exits."
        )


def cut_in_words(evidence: Evidence) -> Iterator[str]:
    """Say which of the two methods of the claim leads if every example exits after layer `CUT`."""
    stored = {place: read_cell_predictions(cell.with_dropped) for place, cell in evidence.cells_by_place.items()}
    cut = {
        place: [replace(one, answers=one.layer_answers[CUT - 1 : CUT]) for one in seeds]
        for place, seeds in stored.items()
        if place[0] in TITLES and len(seeds) > 1 and min(len(one.layer_answers) for one in seeds) > CUT
    }
    found = compare(
        resample(cut), OURS, are_comparable=evidence.are_comparable, num_analyses=len(evidence.interim_analyses)
    )
    leads = [
        f"{TITLES[one.row if one.test.difference > 0 else one.other]} leads by {format_lead(one)} on "
        f"{TASKS[one.task].title}"
        for one in found
        if one.family == "baseline" and one.holds
    ]
    constant = [place for place, seeds in cut.items() if all(len(np.unique(one.answers)) == 1 for one in seeds)]
    if leads:
        models = joined([place_in_words(place) for place in constant])
        yield f"**Cut at layer {CUT}, {joined(leads)}.**" + (
            f" There, all models of {models} give one answer to all examples." * bool(constant)
        )


def format_lead(one: Comparison) -> str:
    """Format the size of a difference, with its 95 % interval: `31.5 points (95 % CI 29.9 to 33.1)`."""
    low, high = sorted(abs(end) for end in (one.test.low, one.test.high))
    return f"{POINTS.text(abs(one.test.difference))} points (95 % CI {POINTS.text(low)} to {POINTS.text(high)})"


def describe_gain(place: Place, gain: Gain) -> str:
    low, high = (DIFFERENCE.text(end) for end in (gain.interval.low, gain.interval.high))
    return f"{place_in_words(place)}, gain {DIFFERENCE.text(gain.mean)} (95 % CI {low} to {high})"


def chosen_within(evidence: Evidence, most_layers: float) -> dict[Place, Chosen | None]:
    """The best exit setting of each row of the claim within so many mean layers; None if no setting fits."""
    stored = {place: read_cell_predictions(cell.with_dropped) for place, cell in evidence.cells_by_place.items()}
    return {
        place: evaluate_on_halves(seeds, list_own_settings(seeds)).best_within(most_layers)
        for place, seeds in stored.items()
        if place[0] in (OURS, THEIRS) and len({one.examples for one in seeds}) == 1
    }


def chosen_in_words(chosen: Mapping[Place, Chosen | None]) -> Iterator[str]:
    """Name the setting that most halves of dev chose: `palbert on SST-2: threshold 0.3`."""
    for place, own in chosen.items():
        if own is not None:
            yield f"{place_in_words(place)}: {own.names[0]}"


def sample_chosen(chosen: Mapping[Place, Chosen | None]) -> dict[Place, Sample]:
    """Resample both rows of the claim under the chosen exit settings."""
    return resample({place: own.answers for place, own in chosen.items() if own and len(own.answers) > 1})


def has_learned(sample: Sample) -> bool:
    """Whether a row is shown to score above a constant answer; regressions have no such answer."""
    return sample.constant is None or sample.is_above_constant


def measure_chosen(evidence: Evidence, chosen: Mapping[Place, Chosen | None]) -> dict[Place, Gain]:
    """Measure the gains of the chosen exit settings."""
    gains = {}
    for place, own in chosen.items():
        stored = read_cell_predictions(evidence.cells_by_place[place].with_dropped)
        if own is not None and can_measure(stored):
            answers = tuple(one.answers for one in own.answers)
            (gains[place],) = measure_gains(stored, [ExitSetting("chosen", answers, tuple(own.exit_layers))])
    return gains


def claim_line(
    evidence: Evidence,
    task: str,
    comparisons: list[Comparison],
    gains: Mapping[Place, Gain],
    *,
    unlearned: Collection[Place],
    way: str = "",
    missing: str = "not tested",
) -> str:
    """A line of the table of claims: the difference of mean scores, PALBERT's minus PonderNet's.

    Without a comparison, the verdict is `missing`.

    Args:
        gains: of the exits with which the rows are compared.
        unlearned: rows that are not shown above a constant answer with these exits.
    """
    claimed = published_difference(task)
    paper = "" if claimed is None or way else NumberFormat(signed=True).text(claimed)
    start = f"| PALBERT - PonderNet{way} | {TASKS[task].title} | {paper} |"
    found = next((one for one in comparisons if {one.row, one.other} == {OURS, THEIRS} and one.task == task), None)
    if found is None:
        return f"{start} | | {missing} |"
    sign = 1 if found.row == OURS else -1
    difference = sign * found.test.difference
    low, high = sorted((sign * found.test.low, sign * found.test.high))
    gap = " to ".join(DIFFERENCE.text(end) for end in (low, high))
    places = [(label, task) for label in (OURS, THEIRS)]
    if any(place in unlearned for place in places):
        word = "not learned"
    else:
        gated = not way and any(runs_nearly_all(evidence, place) for place in places)
        gain = gains.get(places[0] if difference > 0 else places[1])  # of the method that leads
        has_gain = gain is not None and gain.is_shown
        in_interval = claimed is None or 100 * low <= claimed <= 100 * high
        word = verdict(found, difference, claimed, in_interval=in_interval or bool(way))
        word += ", not about exits" * (gated or (found.holds and not has_gain))
    if found.missed_difference is not None and word.startswith("undecided"):
        word += f" ({format_detectable(found.missed_difference) or 'nothing could have been found'})"
    cells = (f"{DIFFERENCE.text(difference)} ({gap})", format_p_value(found.adjusted_p_value), word)
    return f"{start} {' | '.join(cells)} |"


def runs_nearly_all(evidence: Evidence, place: Place) -> bool:
    """Whether the models of a row run more than `GATE` of their layers, as the mean over the seeds."""
    exits = evidence.exits.get(place)
    return exits is not None and bool(exits.mean_layers.mean() > GATE * exits.num_layers)


def verdict(found: Comparison, difference: float, claimed: float | None, *, in_interval: bool) -> str:
    """Whether the difference has the sign that the paper's has; a claim that it prints no number for is "above".

    Args:
        in_interval: whether the paper's difference lies in the interval of ours, or the paper has none.
    """
    if not found.holds:
        return "undecided"
    if difference * (claimed or 1) < 0:
        return "contradicted"
    return "confirmed" if in_interval else "same sign"


def published_difference(task: str) -> float | None:
    """PALBERT's number of the paper minus PonderNet's, in points."""
    rows = {row.label: row.numbers for row in read_published_rows(PAPER)}
    ours, theirs = rows["PALBERT"].get(task), rows["PonderNet"].get(task)
    return None if ours is None or theirs is None else ours.value - theirs.value


def limits_in_words(studies: Iterable[Study]) -> str:
    epochs = dict.fromkeys(f"{study.plan.request.settings['epochs']} epochs on {titles(study)}" for study in studies)
    return LIMITS.format(epochs=f"Trials have {', '.join(epochs)}.")


def titles(study: Study) -> str:
    return ", ".join(TASKS[task].title for task in study.tasks)


def study_in_words(study: Study) -> str:
    """Command, device, versions and trials of a study."""
    records, file = study.records, study.file
    lines = [
        f"- trials: {trials_in_words(study)}",
        f"- devices: {', '.join(sorted({record.device for record in records})) or 'none yet'}",
        f"- protocol {study.protocol_hash}, commit {(file.git_commit or 'unknown')[:12]}, code {file.code_digest}",
        f"- versions: {', '.join(f'{name} {version}' for name, version in file.versions.items())}",
        f"- {registration(study)}",
        f"- SHA-256 of the journal's first {study.journal.lines} lines: {study.journal.sha256}",
    ]
    return f"### {study.name}\n\n```\n{command_in_words(file.command)}\n```\n\n" + "\n".join(lines)


def trials_in_words(study: Study) -> str:
    records = study.records
    if not records:
        return "none has ended"
    counted = Counter(f"{record.phase} {record.status}" for record in records)
    told = ", ".join(f"{number} {status}" for status, number in sorted(counted.items()))
    began, ended = min(record.started for record in records), max(record.ended for record in records)
    seconds = sum(record.wall_seconds for record in records)
    return f"{told}; {format_time(seconds, time_unit(seconds))}, {began[:16]} to {ended[:16]} UTC"


def command_in_words(command: str) -> str:
    """Format the launch's command without `--max-minutes`, and without the folders of this machine."""
    words = shlex.split(command)
    for option, short in (("--out", "OUT"), ("--max-minutes", None), ("--plan", "")):
        if option in words:
            place = words.index(option)
            path = words[place + 1]
            words[place : place + 2] = [] if short is None else [option, short or path[path.find("benchmarks/") :]]
    return shlex.join(words)


def second_run(kept: Path) -> Iterator[str]:
    """Describe the trials that were trained again on another day."""
    if (path := kept / SECOND_RUN).exists():
        facts = json.loads(path.read_text())
        lines = [f"- {describe(trial)}" for trial in facts["trials"]]
        yield f"### {facts['study']}: trials trained again on {facts['time'][:10]}\n\n" + "\n".join(lines)


def not_run(scale: Scale, studies: dict[str, Study], kept: Path) -> str:
    """What the scale has beyond these studies, and what these have not done."""
    lines = [f"- {stage.name}: not begun" for stage in launches_of(scale) if stage.name not in studies]
    for stage in launches_of(scale):
        if stage.name in studies and (missing := stage.trials - len(studies[stage.name].records)) > 0:
            lines.append(f"- {stage.name}: {missing} of {stage.trials} trials have not ended")
    if scale == "cpu":
        lines += [
            "- RTE, MRPC and all rows of SST-2: scale gpu has them",
            "- the four other tasks of GLUE, ALBERT-base, more than a few search trials: no scale has them",
        ]
    else:
        figures = {path.stem for path in (kept / RATES).glob("*.txt")}
        lines += [f"- {stage.name}: not measured" for stage in measurements_of(scale) if stage.name not in figures]
        lines.append("- the four other tasks of GLUE, ALBERT-base, more than a few search trials: no scale has them")
    return "\n".join(lines)


def rates_parts(kept: Path) -> Iterator[str]:
    """Output of the measurements."""
    for path in sorted((kept / RATES).glob("*.txt")):
        yield f"### {path.stem}\n\n```\n{path.read_text().strip()}\n```"


def without_places(text: str, studies: list[Study]) -> str:
    """With words for the folders of data and backbone, wherever they lay."""
    places: dict[str, str] = {}
    for study in studies:
        places[study.plan.request.data] = "GLUE"
        places |= {arm.backbone: "MINILM" for arm in study.plan.arms}
    for place in sorted((place for place in places if "/" in place), key=len, reverse=True):
        text = re.sub(rf"{re.escape(place)}(?![\w/])", places[place], text)
    return text


if __name__ == "__main__":
    sys.exit(main())
