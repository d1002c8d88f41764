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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from analysis.layouts.answer import summary_table, warn_of_weak_models
from analysis.layouts.evidence import Evidence, gather
from analysis.layouts.exit_tables import describe_gain
from analysis.layouts.protocol_notes import describe_unlike
from analysis.layouts.rendering import markdown_grid, render
from analysis.layouts.table import DIFFERENCE, POINTS, TENTHS, text_table
from analysis.pictures.picture import Picture, render_image
from analysis.pictures.study_pictures import layers_picture
from analysis.pictures.time_picture import time_picture
from analysis.report import registration
from analysis.statistics.costs import format_time, time_unit
from analysis.statistics.samples import Place
from analysis.studies.load import Study, load_study
from analysis.studies.stored_predictions import read_cell_predictions
from analysis.tables import tabulate
from benchmarks.exit_claims import NOT_LEARNED, Claim, Family, format_claims, has_ended, make_claims
from benchmarks.real_results import KEPT, RATES
from benchmarks.real_results_stages import PLANS, SCALES, Scale, launches_of, measurements_of
from benchmarks.second_run import FILE as SECOND_RUN
from benchmarks.second_run import describe
from study.facts.plan_file import FILE as PLAN
from study.plans.resolved_plan import digest, list_poolings
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
TABLES = ("dev", "comparisons", "exits", "times", "sources")
TABLES_PAGE = "tables.md"  # in the folder of the scale's records

COMMANDS_MEAN = (
    "Each command repeats its study with the code of the study's commit. Later code trains PABEE on BERT with a "
    "dropout of 0.1. With it, PABEE's trials of the studies that read the pooler need "
    "`--set pabee:hidden_dropout=0`. Digests of journals leave out a last line that ends a launch."
)
CLAIMS_MEAN = (
    "`python -m benchmarks.exit_claims STUDY` prints the claims. Differences are between mean scores, in points. The "
    "tests are t-tests over seeds and dev examples, two-sided at 5 %; Holm's method corrects the p-values of each "
    "table. Intervals are not corrected, and take the settings that were chosen on halves of dev as given. *Above 0* "
    "and *below 0*: the corrected test shows it. *Not shown*: no difference was found, which is no evidence that there "
    "is none; about the difference in parentheses would have been found four times in five. *Not learned*: a method is "
    "not shown to score better than a constant answer, so nothing is claimed. *Faster* and *slower*: the time differs "
    "from ALBERT's; *score kept*: the lower end of the score's interval is above -1 point; *kept on average*: only the "
    "mean is. *No setting*: none fits on most halves. *Not timed*: no undisturbed measurement of these models. "
    "*Setting*: the one that was chosen most often; the numbers mix all that were chosen. Each verdict is about the "
    "configuration that one search per method chose."
)
LONG = 30  # words of a paragraph that is not repeated
KNOWN = "Known beforehand: "  # begins the part of a plan's comment about what had been seen of its dev sets
LOOKED_AT = "this dev set has been looked at"  # follows if the claims were formed on it
QUESTION = "## Do early exits tell easy texts from hard ones, and what do they save?"
QUESTIONS: Mapping[Family, str] = {
    "gain": "Do a method's own exits beat a coin toss between two fixed layers?",
    "rule": "On the same models, does greatest probability score more than own exits?",
    "pair": "Does PALBERT score more than PonderNet?",
    "budget": "Does PABEE score more than PALBERT within the same bound on mean layers?",
    "time": "Do exits save time without losing more than a point?",
}
POOLER_QUESTION = "## What goes wrong with an unsuitable pooler"
POOLER_MEANS = (
    "{names} read [CLS] through MiniLM's pooler, but MiniLM was pretrained by averaging tokens, without its pooler. "
    "{constant} Where the lower layers have learned nothing, no exit rule can save much. {pairs} But whoever leads, "
    "this says nothing about exits: look at the scores of single layers before you compare them. All verdicts of these "
    "plans are on an earlier version of this page (`git show 77e1df78:docs/real_results_cpu.md`). Scores with all "
    "texts cut at one layer, and under the method's own exits:"
)
LIMITS = (
    "These numbers cannot reproduce the papers'. The backbone is MiniLM (six layers of width 384, trained for sentence "
    "similarity), not ALBERT-base (twelve layers with shared weights). Each search has a few trials only. The learning "
    "rates are higher than the paper's and fall linearly. {epochs} The hours below are wall-clock times, which other "
    "work on the machine lengthens, so they do not compare methods."
)


def main(argv: Sequence[str] | None = None) -> int:
    return guarded("benchmarks.real_results_page", lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    arguments = build_parser().parse_args(argv)
    if arguments.keep:
        keep(arguments.scale, arguments.keep)
    kept = KEPT / arguments.scale
    for evidence in gather_alike(without_pooler(complete(kept_studies(arguments.scale, kept)))):
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


def gather_alike(studies: Mapping[str, Study]) -> list[Evidence]:
    """The evidence of the studies, together if they share protocol and settings, in the order of their stages."""
    groups: dict[str, list[Study]] = {}
    for study in studies.values():
        asked = study.plan.request
        settings = {name: str(value) for name, value in asked.settings.items() if name != "epochs"}
        groups.setdefault(digest([study.protocol_hash, asked.seeds, settings]), []).append(study)
    return [gather(group) for group in groups.values()]


def drawn_pictures(scale: Scale, evidence: Evidence) -> dict[Path, Picture]:
    """The pictures of the page by their files: scores against time, where it was measured, and against layers."""
    drawn = {"time": time_picture(evidence), "layers": layers_picture(evidence)}
    name = "_".join(study.name.replace("-", "_") for study in evidence.studies)
    return {page_path(scale).with_name(f"{name}_{kind}.svg"): one for kind, one in drawn.items() if one}


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
    for stage in measurements_of(scale):  # `out` may have those of another scale, too
        for path in out.glob(f"{RATES}/{stage.name}.*"):
            (kept / scale / RATES).mkdir(exist_ok=True)
            shutil.copyfile(path, kept / scale / RATES / path.name)


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
    tables = KEPT.relative_to(ROOT) / scale / TABLES_PAGE
    parts = [
        f"# Early exit with MiniLM on real GLUE ({scale.upper()})",
        "Several methods train the same backbone, under plans that were committed before their first trial. "
        f"[All tables](../{tables}) are beside the records. `python -m benchmarks.real_results_page "
        f"{scale}` writes both from the records; do not edit them. Explanations that hold for several studies stand "
        "with the first of them.",
        *answers(scale, gather_alike(without_pooler(whole))),
        *pooler_parts(gather_alike(with_pooler(whole))),
        *folded("What the verdicts and the numbers mean", [CLAIMS_MEAN, limits_in_words(whole.values())]),
        *folded(
            "Commands, machines, versions and registered plans",
            [COMMANDS_MEAN, *map(study_in_words, studies.values()), *second_run(kept), not_run(scale, studies, kept)],
        ),
        *folded("Rates", rates_parts(kept)),
    ]
    return without_copies(join_parts(parts, studies))


def tables_page(scale: Scale, kept: Path) -> str:
    """All tables of the complete studies.

    Raises:
        ValueError: no study of the scale is kept.
    """
    studies = kept_studies(scale, kept)
    parts = [f"# Tables of the studies with MiniLM on real GLUE ({scale.upper()})"]
    for evidence in gather_alike(complete(studies)):
        names = ", ".join(study.name for study in evidence.studies)
        parts += [f"## {names}", *(f"##{render(table, 'md')}" for table in tabulate(evidence) if table.name in TABLES)]
    return join_parts(parts, studies)


def join_parts(parts: Iterable[str], studies: Mapping[str, Study]) -> str:
    text = "\n\n".join(part.strip("\n") for part in parts) + "\n"
    return without_places(text, list(studies.values()))


def without_copies(text: str) -> str:
    """Leave out all copies but the first of each long paragraph, such as the caption of a picture."""
    kept = list[str]()
    for paragraph in text.split("\n\n"):
        if len(paragraph.split()) < LONG or paragraph not in kept:
            kept.append(paragraph)
    return "\n\n".join(kept)


def with_pooler(studies: Mapping[str, Study]) -> dict[str, Study]:
    """The studies whose heads read [CLS] through the backbone's pooler."""
    return {name: study for name, study in studies.items() if not list_poolings(study.plan)}


def without_pooler(studies: Mapping[str, Study]) -> dict[str, Study]:
    """The other studies."""
    return {name: study for name, study in studies.items() if list_poolings(study.plan)}


def answers(scale: Scale, evidences: Sequence[Evidence]) -> Iterator[str]:
    """Answer the page's question by each study whose models can."""
    yield from [QUESTION] * bool(evidences)
    for evidence in evidences:
        yield from answer(scale, evidence)


def answer(scale: Scale, evidence: Evidence) -> Iterator[str]:
    """Give the verdicts of the registered claims, the pictures and the scores of studies with one protocol."""
    claims = {study.name: make_claims([study]) for study in evidence.studies}
    for study in evidence.studies:
        yield f"### {titles(study)}: {study.name}"
        yield from read_known(study.name)
        yield "\n".join(f"- {line}" for line in summarise(claims[study.name]))
    yield from (*warn_of_weak_models(evidence), *describe_unlike(evidence.studies))
    for path, drawn in drawn_pictures(scale, evidence).items():
        yield from (f"![{drawn.alt}]({path.name})", f"*{drawn.caption}*")
    table = summary_table(evidence)
    yield from (markdown_grid(table, table.parts[0]), table.caption)
    for name, made in claims.items():
        measured = [claim for claim in made if not find_common_verdict(made, claim.family)]
        yield from (f"#### The registered claims of {name}", format_claims(measured))


def read_known(name: str) -> Iterator[str]:
    """Quote the part of a plan's comment that says what was known of its dev sets, if it has one."""
    file = PLANS / f"{name}.toml"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    comment = " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    if KNOWN in comment:
        known = comment.partition(KNOWN)[2]
        yield f"> {KNOWN}{known}"
        if known.startswith(LOOKED_AT):
            yield "So the tests confirm these effects for newly trained models, not for new texts."


def summarise(claims: Sequence[Claim]) -> Iterator[str]:
    """Answer the question of each family of claims in one line: who has which verdict."""
    for family, question in QUESTIONS.items():
        verdicts: dict[str, list[str]] = {}
        for claim in claims:
            if claim.family == family:
                verdicts.setdefault(shorten_verdict(claim), []).append(describe_subject(claim))
        if common := find_common_verdict(claims, family):
            yield f"**{question}** *{common}* for any of these claims."
        elif verdicts:
            answers = (f"*{verdict}*: {', '.join(subjects)}" for verdict, subjects in verdicts.items())
            yield f"**{question}** {'; '.join(answers)}."


def find_common_verdict(claims: Sequence[Claim], family: str) -> str | None:
    """Return the verdict of a family whose claims have one verdict and no number, or None."""
    own = [claim for claim in claims if claim.family == family]
    verdicts = {shorten_verdict(claim) for claim in own}
    return verdicts.pop() if len(verdicts) == 1 and all(claim.difference is None for claim in own) else None


def shorten_verdict(claim: Claim) -> str:
    """Return a claim's verdict without its number or reason."""
    return claim.verdict.split(" (")[0].split(": ")[0]


def describe_subject(claim: Claim) -> str:
    """Name the methods of a claim, with its task and its number, if it claims one."""
    way = f" by {claim.way}" if claim.way else ""
    subject = f"{' - '.join(claim.rows)}{way} on {TASKS[claim.task].title}"
    if claim.difference is None or claim.verdict == NOT_LEARNED:
        return subject
    time = "" if claim.time is None else f" at {claim.time.value:.2f} times ALBERT's time"
    layers = f" at {' and '.join(map(TENTHS.text, claim.layers))} layers" if len(claim.layers) > 1 else ""
    return f"{subject} ({DIFFERENCE.text(claim.difference)}{layers}{time})"


def pooler_parts(evidences: Sequence[Evidence]) -> Iterator[str]:
    """Tell what studies with an unsuitable pooler show: layers that learned nothing."""
    lines: list[tuple[str, dict[str, str]]] = []
    constant: dict[int, list[str]] = {}
    for evidence in evidences:
        for place in evidence.with_exits:
            study = joined([study.name for study in evidence.cells_by_place[place].studies])
            scores, last = cut_scores(evidence, place)
            lines.append((f"{place_in_words(place)}, {study}", describe_cuts(evidence, place, scores)))
            constant.setdefault(last, []).append(f"{place_in_words(place)} ({study})")
    if not lines:
        return
    studies = [study for evidence in evidences for study in evidence.studies]
    said = [
        f"All models of {joined(names)} give one answer to all texts up to layer {last}."
        for last, names in constant.items()
        if last
    ]
    pairs = [
        f"{DIFFERENCE.text(claim.difference)} on {TASKS[claim.task].title} ({study.name})"
        for study in studies
        for claim in make_claims([study])
        if claim.family == "pair" and claim.difference is not None
    ]
    table = text_table("pooler", title=POOLER_QUESTION, first_column="method, study", lines=lines)
    yield POOLER_QUESTION
    yield POOLER_MEANS.format(
        names=joined([study.name for study in studies]),
        constant=" ".join(said),
        pairs=f"As selected, PALBERT minus PonderNet is {joined(pairs)}." if pairs else "",
    )
    yield markdown_grid(table, table.parts[0])


def cut_scores(evidence: Evidence, place: Place) -> tuple[list[float], int]:
    """Score a cell's models with all examples cut at each layer, as means over the seeds.

    Also return the last of the lowest layers at which every model gives one answer to all examples.
    """
    stored = read_cell_predictions(evidence.cells_by_place[place].with_dropped)
    layers = range(min((len(one.layer_answers) for one in stored), default=0))
    scores = [float(np.mean([one.score_answers(one.layer_answers[layer]) for one in stored])) for layer in layers]
    is_constant = [all(len(np.unique(one.layer_answers[layer])) == 1 for one in stored) for layer in layers]
    return scores, next((layer for layer in layers if not is_constant[layer]), len(layers))


def describe_cuts(evidence: Evidence, place: Place, cuts: Sequence[float]) -> dict[str, str]:
    """Format a line of the table of studies with an unsuitable pooler, by heading."""
    exits, gain = evidence.exits_with_dropped[place], describe_gain(evidence, place)
    return {
        **{f"layer {layer}": POINTS.text(score) for layer, score in enumerate(cuts, start=1)},
        "own exits": f"{POINTS.text(float(np.mean(exits.scores)))} at {TENTHS.text(float(np.mean(exits.mean_layers)))}",
        "gain of exits": gain.text if gain else "-",
    }


def place_in_words(place: Place) -> str:
    return f"{place[0]} on {TASKS[place[1]].title}"


def folded(title: str, parts: Iterable[str]) -> list[str]:
    """A part of the page that opens on request; nothing where it is empty."""
    inside = [*parts]
    return [f"<details><summary>{title}</summary>", *inside, "</details>"] if inside else []


def limits_in_words(studies: Iterable[Study]) -> str:
    trained = [
        f"{study.plan.request.settings['epochs']} epochs of {name_data(study)} on {titles(study)} in "
        f"{study.plan.request.settings.get('precision', 'float32')} ({study.name})"
        for study in studies
    ]
    return LIMITS.format(epochs=f"Trials train for {joined(trained)}." if trained else "")


def name_data(study: Study) -> str:
    """Name the data of a study: `GLUE`, or a folder with fewer rows of train, such as `glue-3000`."""
    name = Path(study.plan.request.data).name
    return name if re.fullmatch(r"glue-\d+", name) else "GLUE"


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
        elif stage.name in studies and not has_ended(studies[stage.name]):
            lines.append(f"- {stage.name}: its last launch has not ended, so its claims are not tested")
    if scale == "cpu":
        lines += [
            "- RTE and all rows of SST-2: scale gpu has them",
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
        places[study.plan.request.data] = name_data(study)
        places |= {arm.backbone: "MINILM" for arm in study.plan.arms}
    for place in sorted((place for place in places if "/" in place), key=len, reverse=True):
        text = re.sub(rf"{re.escape(place)}(?![\w/])", places[place], text)
    return text


if __name__ == "__main__":
    sys.exit(main())
