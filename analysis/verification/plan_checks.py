"""Whether a plan follows from what was asked for, as far as no search space and no data are needed."""

from __future__ import annotations

from itertools import product

from msgspec import UNSET
from msgspec.structs import replace

from analysis.verification.differences import differences
from study.plans.identity import FIRST_SEED, PRETRAINING, arm_name, confirm_seeds
from study.plans.plan_file import FILE, PlanFile
from study.plans.resolved_plan import Arm
from trainables.schema import to_plain


def plan_drift(file: PlanFile) -> list[str]:
    """What in `plan.json` does not follow from the rest of it. Its digest is checked where it is read."""
    plan, asked = file.plan, file.plan.asked
    lines = differences(f"{FILE}: protocol_hash", file.protocol_hash, plan.protocol_hash)
    for rule in ("selection", "sampler", "early_stopping", "search_precision"):
        found, wanted = (to_plain(getattr(source, rule) or None) for source in (plan.protocol, asked))
        lines += differences(f"{FILE}: protocol {rule}", found, wanted)
    names = [arm_name(method, task, 0) for method, task in product(asked.methods, asked.tasks)]
    searched = [arm for arm in plan.first_arms if arm.space]
    names += [arm_name(arm.method, arm.task, n) for n in range(1, asked.search_repeats) for arm in searched]
    lines += differences(f"{FILE}: arms", [arm.name for arm in plan.arms], names)
    return lines + _pretraining_drift(file) + [line for arm in plan.arms for line in _arm_drift(file, arm)]


def _pretraining_drift(file: PlanFile) -> list[str]:
    """Whether the pretraining is what was asked for, and every arm begins with what it leaves."""
    plan, asked = file.plan, file.plan.asked.pretraining
    arm, where = plan.pretraining, f"{FILE}: pretraining"
    if arm is UNSET or asked is UNSET:
        return [f"{where} is {'there' if asked is UNSET else 'missing'}; asked for something else"] * (arm != asked)
    expected = replace(
        arm,
        method=asked.objective,
        task=PRETRAINING,
        corpus=asked.corpus,
        fixed={**arm.fixed, **asked.settings},
        space={},
        first=(),
        samples=0,
        seeds=(FIRST_SEED,),
        repeat=0,
        start_from=None,
        pretrained_by=UNSET,
    )
    lines = differences(where, to_plain(arm), to_plain(expected))
    for other in plan.arms:
        begun = {"pretrained_by": arm.name, "backbone_fingerprint": plan.pretraining_key, "backbone": arm.backbone}
        wanted = replace(other, **begun, tokenizer=None, tokenizer_fingerprint=None)
        lines += differences(f"{FILE}: {other.name}", to_plain(other), to_plain(wanted))
    return lines


def _arm_drift(file: PlanFile, arm: Arm) -> list[str]:
    asked, where = file.plan.asked, f"{FILE}: {arm.name}"
    settings = {name: arm.fixed.get(name) for name in asked.settings}
    found = {"start_from": arm.start_from, "seeds": list(arm.seeds), "settings": settings}
    found |= {"search_precision": arm.search_precision or None}
    precision = asked.search_precision_of(arm.fixed, is_searched=bool(arm.space))
    expected = {
        "search_precision": precision or None,  # UNSET, as `found`, where the file leaves it out
        "start_from": _start_of(file, arm),
        "seeds": list(confirm_seeds(len(arm.seeds), repeat=arm.repeat)),
        "settings": dict(asked.settings),
    }
    return differences(where, found, expected)


def _start_of(file: PlanFile, arm: Arm) -> str | None:
    """The arm that it should start from: of its own repeat, where there is one."""
    source = file.plan.asked.start_of(arm.method, arm.task)
    if source is None or not arm.repeat:
        return source
    method, _, task = source.partition("/")
    repeated = arm_name(method, task, arm.repeat)
    return repeated if any(other.name == repeated for other in file.plan.arms) else source
