"""Arms that start from the models of other arms: pytest tests/study/decisions/test_starts.py"""

from __future__ import annotations

import pytest
from helpers.journals import MadeJournal, failure_of
from helpers.simulation import Simulation, report, scheduler_of
from msgspec.structs import replace

from study.decisions.scheduler import specify_trial
from study.facts.events import StartChosen
from study.plans import profiles
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan


def resolved(**changes) -> ResolvedPlan:
    small = {"methods": ("albert",), "tasks": ("rte", "mnli"), "samples": 2, "seeds": 2, "sampler": "random"}
    return resolve(replace(profiles.load_profile("mini"), **(small | {"start_from": {"rte": "mnli"}} | changes)))


def launched(plan: ResolvedPlan, before: Simulation | None = None) -> Simulation:
    simulation = before or Simulation(plan)
    simulation.resolved = plan
    assert simulation.launch().progress.is_finished
    return simulation


def starts(simulation: Simulation, task: str = "rte") -> set[str | None]:
    """Keys of the trials that those of the task began from."""
    return {trial.start for trial in simulation.journal.facts.trials.values() if trial.arm.task == task}


def test_an_arm_starts_from_the_best_confirmed_model_of_another():
    simulation = launched(resolved())
    tasks = [trial.arm.task for trial in simulation.journal.facts.trials.values()]
    assert tasks == sorted(tasks, key=["mnli", "rte"].index)  # all of MNLI, then RTE
    confirmed = simulation.launch().progress.arm("albert/mnli").confirmed
    best = max(confirmed, key=lambda record: record.score)
    assert starts(simulation) == {best.key} and starts(simulation, "mnli") == {None}


def test_start_is_chosen_where_configurations_are_and_not_on_dev():
    plan = resolved(methods=("albert", "deebert"), tasks=("rte",), start_from={}, samples=1, seeds=3, epochs=1)
    assert plan.protocol.selection == "holdout"
    on_holdout, on_dev = {42: 0.9, 43: 0.5, 44: 0.6}, {42: 0.60, 43: 0.70, 44: 0.65}
    scheduler = scheduler_of(plan, MadeJournal())
    scheduler.begin_launch(command="", host="", pid=0)
    while trial := scheduler.next_trial():
        made = report(trial, 1)
        if trial.phase == "confirm":
            row = replace(made.row, selection_score=on_holdout[trial.seed])
            reported = replace(made.outcome.reported, score=on_dev[trial.seed])
            made = replace(made, row=row, outcome=replace(made.outcome, reported=reported))
        scheduler.report(trial.key, made)
        scheduler.end(trial.key)
    assert scheduler.facts.trials[scheduler.facts.arms["deebert/rte"].start_key].seed == 42


def test_an_arm_may_start_from_another_method():
    study = resolved(methods=("albert", "pabee"), tasks=("rte",), start_from={"pabee/rte": "albert/rte"})
    simulation = launched(study)
    assert starts(simulation, "rte") > {None}
    albert = {trial.key for trial in simulation.journal.facts.trials.values() if trial.arm.method == "albert"}
    pabee = {trial.start for trial in simulation.journal.facts.trials.values() if trial.arm.method == "pabee"}
    assert len(pabee) == 1 and pabee < albert


def test_two_stage_method_starts_from_first_stage():
    study = resolved(methods=("albert", "deebert"))
    assert {arm.name: arm.start_from for arm in study.arms} == {
        "albert/rte": "albert/mnli",
        "albert/mnli": None,
        "deebert/rte": "albert/rte",
        "deebert/mnli": "albert/mnli",
    }
    other = resolved(methods=("pabee", "albert", "deebert"), start_from={"deebert/rte": "pabee/rte"})
    assert other.arm("deebert/rte").start_from == "pabee/rte"


def test_a_trial_is_told_where_its_start_lies():
    simulation = launched(resolved())
    facts = simulation.journal.facts
    (chosen,) = simulation.journal.of(StartChosen)
    trial = facts.arms["albert/rte"].search[0]
    assert specify_trial(simulation.resolved, facts, trial).start == chosen.model
    assert chosen.model == f"/models/{chosen.key}"


def test_more_seeds_do_not_mix_starts_in_a_cell():
    """The source is extended first, and finds a better model; what began from the former one goes on from that."""
    simulation = launched(resolved(seeds=2))
    before = starts(simulation)
    launched(resolved(seeds=20), simulation)
    progress = scheduler_of(simulation.resolved, simulation.journal).progress
    best = max(progress.arm("albert/mnli").confirmed, key=lambda record: record.score)
    assert best.key not in before, "the extension did not find a better model: this test proves nothing"
    assert starts(simulation) == before and len(simulation.journal.of(StartChosen)) == 1
    assert len(progress.arm("albert/rte").confirmed) == 20


def test_trials_from_another_start_are_none_of_the_cell():
    journal = MadeJournal()
    journal.begin()
    journal.whole_trial("source", [0.5], arm="albert/mnli", phase="confirm")
    for trial, (key, start) in enumerate({"ours": "source", "other": "elsewhere"}.items()):
        journal.whole_trial(f"search-{key}", [0.6 - trial / 10], arm="albert/rte", trial=trial, start=start)
        journal.whole_trial(key, [0.7], arm="albert/rte", phase="confirm", trial=trial, start=start)
    arm = scheduler_of(resolved(), journal).progress.arm("albert/rte")
    assert [trial.key for trial in arm.confirm_trials] == ["ours"]


def test_first_of_equal_search_trials_and_lowest_of_equal_seeds_are_chosen():
    journal = MadeJournal()
    journal.begin()
    for phase, scores in {"search": [0.6], "confirm": [0.7]}.items():
        for trial in (1, 0, 2):  # in the order in which they end
            journal.whole_trial(f"{phase} {trial}", scores, arm="albert/mnli", phase=phase, trial=trial)
    arm = scheduler_of(resolved(), journal).progress.arm("albert/mnli")
    assert (arm.winner.search.key, arm.best_confirmed.key) == ("search 0", "confirm 0")


def test_an_arm_whose_start_failed_is_not_waited_for():
    scheduler = scheduler_of(resolved(samples=1), MadeJournal())
    scheduler.begin_launch(command="", host="", pid=0)
    scheduler.end(scheduler.next_trial().key, failure=failure_of("method"))
    assert scheduler.next_trial() is None and scheduler.progress.is_finished
    assert scheduler.progress.total_trials == scheduler.progress.ended_trials == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": ("rte",)}, "albert/rte starts from albert/mnli, which is not part of this study; add --task mnli"),
        (
            {"methods": ("deebert",), "tasks": ("rte",), "start_from": {}},
            "deebert/rte starts from albert/rte, which is not part of this study; add --method albert --task rte",
        ),
        (
            {"tasks": ("rte",), "start_from": {"albert/rte": "pabee/mnli"}},
            "albert/rte starts from pabee/mnli, which is not part of this study; add --method pabee --task mnli",
        ),
        (
            {"start_from": {"rte": "mnli", "mnli": "rte"}},
            "arms start from each other: albert/rte, which starts from albert/mnli, which starts from albert/rte",
        ),
        (
            {"methods": ("albert", "deebert"), "tasks": ("rte",), "settings": {"albert:num_hidden_layers": 3}}
            | {"start_from": {}},
            "deebert/rte has 6 layers, but it starts from albert/rte, which has 3; allowed: the same for both, "
            "--set num_hidden_layers=3",
        ),
        (
            {"methods": ("albert", "electra-small"), "tasks": ("rte",)}
            | {"start_from": {"electra-small/rte": "albert/rte"}},
            "electra-small/rte has a backbone of family electra, but starts from albert/rte, whose backbone is of "
            "family albert; allowed: a start of the same family",
        ),
        ({"start_from": {"rte": "rte"}}, "arms start from each other: albert/rte, which starts from albert/rte"),
    ],
)
def test_a_start_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        resolved(**changes)
