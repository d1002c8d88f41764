"""The claims about early exits that plans register before their first trial, with their tests and verdicts.

    python -m benchmarks.exit_claims runs/NAME ...    # studies that have ended

All claims are about the final runs of the configurations that the searches chose, on dev. `DEFINITIONS` says what each
family of claims compares; the command prints it above the family's table. Scores are means over the seeds, in points;
intervals are 95 % intervals over seeds and dev examples. The p-values of a family are corrected by Holm's method over
all its methods and tasks in a study; each study is tested by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from analysis.layouts.certainty_tables import format_p_value
from analysis.layouts.comparison_notes import format_detectable
from analysis.layouts.evidence import Evidence, gather
from analysis.layouts.rendering import markdown_grid
from analysis.layouts.table import DIFFERENCE, ESTIMATE, TENTHS, text_table
from analysis.layouts.time_tables import format_ratio
from analysis.statistics.budgets import (
    MOST_LOST,
    Chosen,
    SettingsOnHalves,
    compare_at_equal_layers,
    evaluate_on_halves,
    find_least_scores,
    resample_on_halves,
)
from analysis.statistics.comparisons import Comparison, adjust, leave_out_power
from analysis.statistics.exit_settings import list_all_settings, list_own_settings
from analysis.statistics.gains import LEAST_SHOWN
from analysis.statistics.samples import PLAIN_METHOD, Place, Scored, resample
from analysis.statistics.times import Ratio
from analysis.statistics.uncertainty import PairedTest, mean_test, welch_test
from analysis.studies.cells import Cell
from analysis.studies.load import Study, load_study
from analysis.studies.stored_predictions import read_cell_predictions
from study.terminal.command_line import Parser, guarded
from trainables.configuration.schema import Typed
from trainables.data.tasks import TASKS
from trainables.models.answer_rules import MaxProbability
from trainables.models.exit_rules import ExitRule
from trainables.runs.trial import read_most_layers

Family = Literal["gain", "rule", "pair", "budget", "time"]
OWN, SURE = "own exits", "greatest probability"
TITLES: Mapping[Family, str] = {
    "gain": "Own exits minus the best coin toss between two fixed layers",
    "rule": "Greatest probability minus own exits, on the same models with no more layers",
    "pair": "PALBERT minus PonderNet, own exits as selected",
    "budget": "PABEE minus PALBERT, own exits within the mean layers of the selection",
    "time": "The fewest layers within one point of ALBERT",
}
DEFINITIONS: Mapping[Family, str] = {
    "gain": (
        "At the setting that the search chose, against the coin that scores best at equal mean layers. The interval "
        "must also end at least 0.05 points from 0."
    ),
    "rule": (
        "One half of dev chooses the threshold of the greatest probability that scores best with no more mean layers "
        "than the own exits run on that half; the other half measures both. Means over 100 random halvings. "
        "Own exits of PonderNet are random draws."
    ),
    "pair": "Each under its own exits, at the setting that its search chose.",
    "budget": (
        "Each under the own setting that scores best within the mean layers by which the plan selects, chosen on one "
        "half of dev and measured on the other, as means over 100 random halvings."
    ),
    "time": (
        "One half of dev chooses the setting with the fewest mean layers that keeps ALBERT's score but for one point; "
        "the other half measures its score minus ALBERT's and its time per text relative to ALBERT's. Times are those "
        "of single layers (`study.time`), weighted with the exits. The test is about the time; whether the score is "
        "kept is read off its interval. Own settings of PonderNet, which draws its exits at random, are its draws and "
        "PALBERT's."
    ),
}
NOT_LEARNED, NOT_SHOWN, NOT_TESTED, NOT_TIMED = "not learned", "not shown", "not tested", "not timed"
NO_SETTING = "no setting"  # fits on most halves of dev
MISSING = "-"
T = TypeVar("T")
ABOVE, BELOW = "above 0", "below 0"
KEPT, KEPT_ON_AVERAGE, LOST, SLOWER = (
    "faster, score kept",
    "faster, score kept on average",
    "faster, score not kept",
    "slower",
)


@dataclass(frozen=True)
class Claim:
    """A registered claim on one task: its numbers, the test that decides it, and its verdict."""

    family: Family
    rows: tuple[str, ...]  # methods that the claim is about
    task: str
    way: str = ""  # exits that the claim is about, if a family has several for a method
    layers: tuple[float, ...] = ()  # mean layers of both sides of the difference; of one if the other is given
    setting: str = ""  # exit setting that most halves of dev chose
    difference: float | None = None  # between mean scores
    test: PairedTest | None = None  # of the difference; None with a single seed
    time_test: PairedTest | None = None  # of the logarithm of the time relative to ALBERT's
    adjusted_p_value: float | None = None
    verdict: str = ""

    @property
    def subject(self) -> str:
        """The methods, and the exits if a family has several for a method."""
        return ", ".join(filter(None, [" - ".join(self.rows), self.way]))

    @property
    def deciding_test(self) -> PairedTest | None:
        """The test whose p-value decides the verdict."""
        return self.time_test if self.family == "time" else self.test

    @property
    def time(self) -> Ratio | None:
        """Time per text relative to ALBERT's, with its interval."""
        return None if self.time_test is None else Ratio(self.time_test)


def main(argv: Sequence[str] | None = None) -> int:
    return guarded("benchmarks.exit_claims", lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    parser = Parser(Typed, "benchmarks.exit_claims", (__doc__ or "").split("\n\n")[0])
    parser.add_argument("studies", nargs="+", type=Path, metavar="runs/NAME", help="studies that have ended")
    studies = [load_study(folder) for folder in parser.parse_args(argv).studies]
    for study in studies:
        if not has_ended(study):
            raise ValueError(f"{study.folder} has not ended; claims are tested once, on all trials of the plan")
    for study in studies:
        print(f"# {study.folder.name}", format_claims(make_claims([study])), sep="\n\n", end="\n\n")
    return 0


def has_ended(study: Study) -> bool:
    """Check whether the study's last launch ended with every trial of its plan."""
    launch = study.facts.last_launch
    return launch is not None and launch.ended is not None and launch.ended.status == "complete"


def make_claims(studies: Iterable[Study]) -> list[Claim]:
    """Test all claims of each study, by family and task."""
    return [claim for study in studies for claim in _test_claims(gather([study]))]


def _test_claims(evidence: Evidence) -> list[Claim]:
    settings = {place: _evaluate(evidence, place) for place in evidence.with_exits}
    families = (
        _claim_gains(evidence),
        _claim_rules(settings),
        _claim_pairs(evidence),
        _claim_budgets(evidence, settings),
        _claim_times(evidence, settings),
    )
    return [claim for family in families for claim in _judge(evidence, [*family])]


def _evaluate(evidence: Evidence, place: Place) -> SettingsOnHalves | None:
    """Evaluate own exits and greatest probability on a cell's models; None without predictions of the same examples."""
    stored = read_cell_predictions(evidence.cells_by_place[place].with_dropped)
    if len({one.examples for one in stored}) != 1:
        return None
    sure = [rule for rule in list_all_settings(stored) if isinstance(rule, MaxProbability)]
    return evaluate_on_halves(stored, list(dict.fromkeys([*list_own_settings(stored), *sure])))


def _list_rules(settings: SettingsOnHalves, way: str) -> list[ExitRule | None]:
    """List the settings of greatest probability, or of the method's own exits.

    The setting of the trials is among those that are swept, unless exits are drawn at random.
    """
    if way == SURE:
        return [rule for rule in settings.rules if isinstance(rule, MaxProbability)]
    own = list_own_settings(settings.stored)
    return own[1:] if len(own) > 1 and settings.stored[0].draws == 1 else own


def _claim_gains(evidence: Evidence) -> Iterator[Claim]:
    for place in evidence.with_exits:
        gain, layers = evidence.gains.get(place), float(np.mean(evidence.exits_with_dropped[place].mean_layers))
        claim = Claim("gain", place[:1], place[1], layers=(layers,))
        if gain is None:
            yield claim
        elif gain.only_layer is not None:
            yield replace(claim, verdict=f"all leave at layer {gain.only_layer}")
        else:
            yield replace(claim, difference=gain.mean, test=_test(gain))


def _claim_rules(settings: Mapping[Place, SettingsOnHalves | None]) -> Iterator[Claim]:
    for (row, task), own in settings.items():
        claim = Claim("rule", (row,), task)
        if own is None:
            yield claim
            continue
        rules = _list_rules(own, SURE)
        compared = compare_at_equal_layers(own, rules, None) if rules else None
        if compared is None:
            yield replace(claim, verdict=NO_SETTING)
            continue
        yield replace(
            claim,
            layers=(float(np.mean(compared.chosen.mean_layers)), float(np.mean(compared.other_layers))),
            setting=_name(compared.chosen),
            difference=float(np.mean(compared.difference.scores)),
            test=_test(compared.difference),
        )


def _claim_pairs(evidence: Evidence) -> Iterator[Claim]:
    for task, cells in _find_pairs(evidence.cells_by_place, "palbert", "pondernet"):
        stored = [read_cell_predictions(cell.with_dropped) for cell in cells]
        claim = Claim("pair", ("palbert", "pondernet"), task)
        if not all(stored) or len({one.examples for own in stored for one in own}) != 1:
            yield claim
            continue
        samples = resample({(row, task): own for row, own in zip(claim.rows, stored, strict=True)}).values()
        layers = tuple(float(np.mean([one.mean_layers for one in own])) for own in stored)
        yield replace(_compare(claim, *samples), layers=layers)


def _claim_budgets(evidence: Evidence, settings: Mapping[Place, SettingsOnHalves | None]) -> Iterator[Claim]:
    (study,) = evidence.studies
    layers = read_most_layers(study.protocol.select_by)
    if layers is None:
        return
    for task, pair in _find_pairs(settings, "pabee", "palbert"):
        claim = Claim("budget", ("pabee", "palbert"), task)
        if not all(pair):
            yield claim
            continue
        chosen = [own for each in pair if (own := each.only(_list_rules(each, OWN)).best_within(layers)) is not None]
        if len(chosen) < 2 or len({each.stored[0].examples for each in pair}) > 1:
            yield replace(claim, verdict=NO_SETTING if len(chosen) < 2 else NOT_TESTED)
            continue
        samples = resample_on_halves({(row, task): own.answers for row, own in zip(claim.rows, chosen, strict=True)})
        is_learned = all(sample.constant is None or sample.is_above_constant for sample in samples.values())
        yield replace(
            _compare(claim, *samples.values()),
            layers=tuple(float(np.mean(own.mean_layers)) for own in chosen),
            setting=" / ".join(map(_name, chosen)),
            verdict="" if is_learned else NOT_LEARNED,
        )


def _claim_times(evidence: Evidence, settings: Mapping[Place, SettingsOnHalves | None]) -> Iterator[Claim]:
    for place, own in settings.items():
        plain = evidence.find_plain(place)
        stored = [] if plain is None else read_cell_predictions(plain.with_dropped)
        for way in (OWN, SURE):
            claim = Claim("time", place[:1], place[1], way)
            if own is None or plain is None or {one.examples for one in stored} != {own.stored[0].examples}:
                yield claim
                continue
            rules = _list_rules(own, way)
            chosen = own.only(rules).cheapest_keeping(find_least_scores(stored)) if rules else None
            if chosen is None:
                yield replace(claim, verdict=NO_SETTING)
                continue
            samples = resample_on_halves({place: chosen.answers, (PLAIN_METHOD, place[1]): stored})
            claim = replace(claim, layers=(float(np.mean(chosen.mean_layers)),), setting=_name(chosen))
            yield _add_time(_compare(claim, *samples.values()), evidence, plain, chosen)


def _add_time(claim: Claim, evidence: Evidence, plain: Cell, chosen: Chosen) -> Claim:
    """Add the test of the time relative to the plain model's, or the verdict that says why it is unknown.

    The times are of the newest undisturbed measurement of these models.
    """
    cell, rule = evidence.cells_by_place[claim.rows[0], claim.task], MaxProbability.name if claim.way == SURE else None
    timed = [made for made in evidence.measurements if made.read(cell, 1) is not None]
    made = next((made for made in timed if not made.disturbance), None)
    if made is None:
        return replace(claim, verdict=f"not timed: {timed[0].disturbance}" if timed else NOT_TIMED)
    costs, times = made.read_layer_costs(cell, rule), made.read(plain, 1)
    if costs is None or times is None or times.in_detail.texts.shape[1] != costs.num_texts:
        return replace(claim, verdict=NOT_TIMED)
    if min(len(times.seeds), len(chosen.exit_layers)) < 2:
        return claim
    return replace(claim, time_test=costs.compare(chosen.shares, chosen.exit_layers, times.in_detail))


def _name(chosen: Chosen) -> str:
    """Name the setting that most halves chose."""
    return chosen.names[0].replace("_", " ")


def _find_pairs(values: Mapping[Place, T], row: str, other: str) -> Iterator[tuple[str, tuple[T, T]]]:
    """Find the tasks for which both rows have a value, with the two values."""
    for label, task in values:
        if label == row and (other, task) in values:
            yield task, (values[row, task], values[other, task])


def _test(difference: Scored) -> PairedTest | None:
    return mean_test(difference.resampled, difference.scores) if len(difference.scores) > 1 else None


def _compare(claim: Claim, own: Scored, other: Scored) -> Claim:
    """Add the difference between the mean scores of two groups of models, and its test."""
    can_test = min(len(own.scores), len(other.scores)) > 1
    return replace(
        claim,
        difference=float(np.mean(own.scores) - np.mean(other.scores)),
        test=welch_test(own.resampled, other.resampled, own.scores, other.scores) if can_test else None,
    )


def _judge(evidence: Evidence, claims: Sequence[Claim]) -> Iterator[Claim]:
    """Correct the tests of one family of claims for their number, and give the verdicts."""
    tests = {(claim.subject, "", claim.task): claim.deciding_test for claim in claims}
    known = {place: test for place, test in tests.items() if test is not None}
    corrected = {(one.row, one.task): one for one in adjust("claims", known, len(evidence.interim_analyses))}
    for claim in claims:
        found = corrected.get((claim.subject, claim.task))
        rows = (*claim.rows, PLAIN_METHOD) if claim.family == "time" else claim.rows
        cells = [cell for row in rows if (cell := evidence.cells_by_place.get((row, claim.task)))]
        if found is not None:
            found = leave_out_power(found, *(len(cell.tested) for cell in cells))
        if any((row, claim.task) in evidence.not_above_constant for row in rows):
            verdict = NOT_LEARNED
        else:
            verdict = claim.verdict or (NOT_TESTED if found is None else _decide(claim, found))
        yield replace(claim, verdict=verdict, adjusted_p_value=None if found is None else found.adjusted_p_value)


def _decide(claim: Claim, found: Comparison) -> str:
    """Decide about a claim by its corrected test; the interval of a gain must also end off 0, as it is printed."""
    if claim.family == "time":
        return _decide_time(claim) if found.holds else NOT_SHOWN
    least = LEAST_SHOWN if claim.family == "gain" else 0.0
    if found.holds and max(found.test.low, -found.test.high) > least:
        return ABOVE if found.test.difference > 0 else BELOW
    detectable = found.missed_difference and format_detectable(found.missed_difference)
    return f"{NOT_SHOWN} ({detectable})" if detectable else NOT_SHOWN


def _decide_time(claim: Claim) -> str:
    """Decide about a time that differs from ALBERT's: whether it is shorter, and the score kept."""
    assert claim.time is not None and claim.difference is not None and claim.test is not None
    if claim.time.value > 1:
        return SLOWER
    if claim.difference < -MOST_LOST:
        return LOST
    return KEPT if claim.test.low >= -MOST_LOST else KEPT_ON_AVERAGE


def format_claims(claims: Sequence[Claim]) -> str:
    """Format each family's definition and a Markdown table with a line for each claim."""
    parts = []
    for family, title in TITLES.items():
        lines = [(f"{one.subject}, {TASKS[one.task].title}", _describe(one)) for one in claims if one.family == family]
        table = text_table(family, title=title, first_column="claim", lines=lines)
        parts += [f"**{title}**", DEFINITIONS[family], markdown_grid(table, table.parts[0])] * bool(lines)
    return "\n\n".join(parts)


def _describe(claim: Claim) -> dict[str, str]:
    """Format the numbers and the verdict of a claim, by heading."""
    difference = MISSING if claim.difference is None else DIFFERENCE.text(claim.difference)
    if claim.test is not None:
        difference = ESTIMATE.entry(claim.test.difference, claim.test.low, claim.test.high).text
    return {
        "layers": " / ".join(map(TENTHS.text, claim.layers)) or MISSING,
        "difference, 95 % interval": difference,
        **({"time, 95 % interval": format_ratio(claim.time).text if claim.time else MISSING} if claim.way else {}),
        "p, Holm": MISSING if claim.adjusted_p_value is None else format_p_value(claim.adjusted_p_value).text,
        **({} if claim.family in ("gain", "pair") else {"setting": claim.setting or MISSING}),
        "verdict": claim.verdict,
    }


if __name__ == "__main__":
    sys.exit(main())
