"""Checks of resolved arms: their backbones, their families, where they start, and the rule that selects."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from msgspec import UNSET

import search_spaces
import trainables
from study.plans.plan import Plan
from study.plans.resolved_plan import Arm, ResolvedPlan
from trainables.configuration import compute_segment_length
from trainables.encoders.backbone_names import UNTRAINED, hub_revision, is_hub_name
from trainables.encoders.backbones import (
    check_attention,
    check_backbone,
    check_depth,
    check_pooling,
    check_positions,
    count_layers,
    find_family,
    pretrained_segment_length,
)
from trainables.files.sources import checked
from trainables.runs.trial import AT_LAYERS, read_most_layers


def check_backbones(plan: ResolvedPlan, unchecked: list[str] | None) -> None:
    """Check that the backbones and tokenizers exist and fit the arms' configurations."""
    for backbone, tokenizer in dict.fromkeys((arm.pinned_backbone, arm.pinned_tokenizer) for arm in plan.arms):
        name = backbone if tokenizer is None or is_hub_name(backbone) else tokenizer  # the hub name, if there is one
        checked(partial(check_backbone, backbone, tokenizer), hub_revision(name)[0], unchecked)
    for arm in plan.arms:
        config, depth = trainables.configure(arm.method, arm.any_configuration), arm.find_most("num_hidden_layers")
        checked(partial(check_depth, arm.pinned_backbone, depth, of=arm.method), arm.backbone, unchecked)
        checked(partial(check_attention, arm.pinned_backbone, config), arm.backbone, unchecked)
        for pooling in arm.list_values("pooling"):
            of_arm = trainables.configure(arm.method, {**arm.any_configuration, "pooling": pooling})
            checked(partial(check_pooling, arm.pinned_backbone, of_arm), arm.backbone, unchecked)
        check_positions(arm.backbone, arm.find_most("max_length"), of=arm.name)
        checked(partial(check_family, arm.method, arm.pinned_backbone), arm.backbone, unchecked)


def describe_segments(plan: ResolvedPlan) -> list[str]:
    """Describe in one line each backbone whose Nystrom attention was pretrained with segments of another length."""
    return list(dict.fromkeys(line for arm in plan.arms if (line := _describe_segments(arm))))


def _describe_segments(arm: Arm) -> str:
    if "nystrom" not in arm.list_values("attention"):
        return ""
    pretrained = checked(partial(pretrained_segment_length, arm.pinned_backbone), arm.backbone, [])
    if not isinstance(pretrained, int):
        return ""
    tokens, landmarks = arm.find_most("max_length"), arm.find_most("num_landmarks")
    nearest = compute_segment_length(tokens, pretrained)
    if landmarks == nearest or compute_segment_length(tokens, landmarks) == pretrained:
        return ""
    return (
        f"backbone {arm.backbone} was pretrained with one Nystrom landmark per {pretrained} tokens, but max_length "
        f"{tokens} and num_landmarks {landmarks} give one per {compute_segment_length(tokens, landmarks)}; --set "
        f"num_landmarks={nearest} gives one per {compute_segment_length(tokens, nearest)}"
    )


def check_select_by(plan: ResolvedPlan, unchecked: list[str] | None) -> None:
    """Raise ValueError if the layer limit of --select-by is above the number of layers of every model."""
    select_by = plan.protocol.select_by
    if (most := read_most_layers(select_by)) is None:
        return
    depths = [
        arm.find_most("num_hidden_layers")
        if 0 not in arm.list_values("num_hidden_layers")  # 0 keeps all layers
        else checked(partial(count_layers, arm.pinned_backbone), arm.backbone, unchecked)
        for arm in plan.arms
    ]
    known = [depth for depth in depths if isinstance(depth, int)]
    if len(known) == len(depths) and most > max(known):
        raise ValueError(
            f"--select-by is {select_by}, but the models of this study have at most {max(known)} layers, so it would "
            f"select as the default, score, does; allowed: {AT_LAYERS}1 to {AT_LAYERS}{max(known)}"
        )


def fits(method: str, backbone: str) -> bool:
    """Check if a method supports the family of a backbone."""
    families = search_spaces.load_space(method).families
    return not families or find_family(backbone) in families


def check_family(method: str, backbone: str) -> None:
    """Raise ValueError if the method does not support the family of the backbone."""
    if not fits(method, backbone):
        families = search_spaces.load_space(method).families
        menu = ", ".join(name for name in UNTRAINED if find_family(name) in families)
        raise ValueError(
            f"{method} is for backbones of family {' or '.join(families)}; backbone {backbone!r} is of family "
            f"{find_family(backbone)!r}; allowed: --backbone with {menu}, or a folder or hub name of such a backbone"
        )


def check_search_precision(plan: Plan, arms: Collection[Arm]) -> None:
    """Raise ValueError if no arm would use the search precision, or if an arm tunes its precision."""
    if plan.search_precision is UNSET:
        return
    if tuning := next((arm.name for arm in arms if "precision" in arm.space), None):
        raise ValueError(
            f"search_precision is {plan.search_precision}, but {tuning} tunes precision; leave out search_precision"
        )
    if all(arm.search_precision is UNSET for arm in arms):
        raise ValueError(
            f"search_precision is {plan.search_precision}, but this has no effect: all trials already use that "
            "precision, or no arm is searched; leave out search_precision"
        )


def check_starts(arms: Mapping[str, Arm]) -> None:
    """Raise ValueError if an arm starts from an arm outside the study, or if arms start from each other."""
    for arm in arms.values():
        source, chain = arm.start_from, [arm.name]
        while source is not None:
            if source not in arms:
                method, _, task = source.partition("/")
                missing = [f"--method {method}"] * (method != arm.method) + [f"--task {task}"]
                raise ValueError(
                    f"{chain[-1]} starts from {source}, which is not part of this study; add {' '.join(missing)}"
                )
            if source in chain:
                raise ValueError(f"arms start from each other: {', which starts from '.join([*chain, source])}")
            chain.append(source)
            source = arms[source].start_from
        _check_pooling_of_start(arm, arms)


def check_start_models(plan: ResolvedPlan, unchecked: list[str] | None) -> None:
    """Raise ValueError if an arm starts from a model of another family, or if it needs the start's depth and differs.

    A two-stage method needs it: its first stage trains the classifier of the last layer.
    """
    for arm in plan.arms:
        source = arm.start_from and plan.arm(arm.start_from)
        if not source:
            continue
        families = [
            checked(partial(find_family, each.pinned_backbone), each.backbone, unchecked) for each in (arm, source)
        ]
        if "unknown" not in families and families[0] != families[1]:
            raise ValueError(
                f"{arm.name} has a backbone of family {families[0]}, but starts from {source.name}, whose backbone is "
                f"of family {families[1]}; allowed: a start of the same family"
            )
        ours, theirs = (_list_depths(each, unchecked) for each in (arm, source))
        are_known = "unknown" not in (*ours, *theirs)
        if search_spaces.load_space(arm.method).start and are_known and (ours != theirs or len(ours) > 1):
            raise ValueError(
                f"{arm.name} has {' | '.join(map(str, ours))} layers, but it starts from {source.name}, which has "
                f"{' | '.join(map(str, theirs))}; allowed: the same for both, --set num_hidden_layers={theirs[0]}"
            )


def _list_depths(arm: Arm, unchecked: list[str] | None) -> list[object]:
    """List the numbers of layers that the arm's models may have; "unknown" for those of a hub that did not answer."""
    depths = arm.list_values("num_hidden_layers")
    return [depth or checked(partial(count_layers, arm.pinned_backbone), arm.backbone, unchecked) for depth in depths]


def _check_pooling_of_start(arm: Arm, arms: Mapping[str, Arm]) -> None:
    """Raise ValueError if an arm's heads read its start model in another way than the heads that trained it."""
    if arm.start_from is None:
        return
    ours, theirs = (each.list_values("pooling") for each in (arm, arms[arm.start_from]))
    if ours != theirs or len(ours) > 1:
        raise ValueError(
            f"pooling of {arm.name} is {' | '.join(map(str, ours))}, but it starts from {arm.start_from}, whose "
            f"pooling is {' | '.join(map(str, theirs))}; allowed: the same for both, --set pooling={theirs[0]}"
        )
