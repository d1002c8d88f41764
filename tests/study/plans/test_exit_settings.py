"""Exit settings, on which no trial is spent: pytest tests/study/plans/test_exit_settings.py"""

from __future__ import annotations

import pytest
from helpers.simulation import Simulation
from msgspec import UNSET
from msgspec.structs import replace

import search_spaces
from study.plans import profiles
from study.plans.plan import Plan
from study.plans.resolution import resolve, resolve_configuration
from study.plans.resolved_plan import Arm
from trainables.configuration.ranges import Interval
from trainables.models.answer_rules import KEPT


def plan_of(profile: str = "mini", *, method: str = "pabee", **changes) -> Plan:
    small = {"methods": (method,), "tasks": ("rte",), "data": "mini", "seeds": 2}
    return replace(profiles.load_profile(profile), **small | changes)


def arm_of(profile: str = "mini", **changes) -> Arm:
    return resolve(plan_of(profile, **changes), unchecked=[]).arms[0]


def test_no_search_trial_is_spent_on_an_exit_setting():
    arm = arm_of()
    assert "patience" not in {**arm.space, **arm.fixed}
    assert arm.post_hoc == {"patience": (3, 4, 5, 6, 7, 8)}


def test_search_trials_leave_the_setting_open_and_seeds_repeat_the_winners():
    simulation = Simulation(resolve(plan_of()))
    trials = simulation.launch().progress.facts.arms["pabee/rte"]
    assert not any("patience" in trial.config for trial in trials.search)
    winner = max(trials.searched, key=lambda record: (record.selection_score, -record.trial))
    assert winner.config["patience"] in range(3, 9)
    assert [trial.config for trial in trials.confirm] == [winner.config] * 2


def test_the_paper_profile_pins_the_papers_patience():
    resolution = resolve_configuration(plan_of("paper", data="hub"), "pabee", "rte")
    assert (resolution.fixed["patience"].value, resolution.post_hoc) == (6, {})


@pytest.mark.parametrize(
    ("changes", "patience"),
    [
        ({"settings": {"patience": 4}}, 4),
        ({"samples": 0}, 3),  # of MINI_GRID: nothing is searched that could choose
        ({"search_only": ("learning_rate",)}, 3),
        ({"settings": {"learning_rate": 1e-3}}, 3),
    ],
)
def test_patience_is_fixed_where_no_search_chooses_it(changes, patience):
    arm = arm_of(**changes)
    assert (arm.fixed["patience"], arm.post_hoc) == (patience, UNSET)


def test_a_hand_made_menu_replaces_the_files():
    assert arm_of(settings={"patience": (2, 4)}).post_hoc == {"patience": (2, 4)}
    assert arm_of(settings={"patience": Interval(low=1, high=3)}).post_hoc == {"patience": (1, 2, 3)}
    assert arm_of(method="palbert", settings={"q": (0.3, 0.5)}).post_hoc == {"q": (0.3, 0.5)}


def test_an_exit_setting_needs_a_list():
    with pytest.raises(ValueError, match=r"^an exit setting: q is 0.1 to 0.9 \(--search q\), which is continuous"):
        arm_of(method="palbert", settings={"q": Interval(low=0.1, high=0.9)})


def test_q_stays_fixed_unless_it_is_searched():
    arm = arm_of(method="palbert")
    assert (arm.fixed["q"], arm.post_hoc) == (0.5, UNSET)


def test_menu_of_settings_is_part_of_a_search_trials_key_alone():
    one, other = (resolve(plan_of(settings={"patience": menu})) for menu in ((3, 4), (3, 5)))
    config = one.arms[0].any_configuration

    def keys(phase):
        return {plan.trial_key(plan.arms[0], phase=phase, config=config, seed=42, start=None) for plan in (one, other)}

    assert (len(keys("search")), len(keys("confirm"))) == (2, 1)


@pytest.mark.parametrize("method", search_spaces.list_methods())
def test_no_search_proposes_a_field_of_an_exit_rule(method):
    space, exits = (
        search_spaces.load_space(method),
        {name for kind in KEPT.values() for name in kind.__dataclass_fields__},
    )
    assert exits & {*space.space} <= {*space.post_hoc}
