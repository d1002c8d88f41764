"""The arm that makes the backbone of all others: from `--pretrain` to each value, and where it comes from.

Every value is that of the last layer that has the field: FIXED and MINI_FIXED of the objective's recipe, the latter on
a tiny random backbone, then --pretrain-set.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from msgspec import UNSET

import trainables
from search_spaces import objectives as recipes
from study.plans.identity import FIRST_SEED, PRETRAINING, arm_name
from study.plans.layers import Layered, in_columns, last_of
from study.plans.plan import Plan, Pretraining
from study.plans.resolved_plan import Arm
from trainables import objectives
from trainables.corpora.corpus import check_corpus, check_pairs
from trainables.encoders.backbones import (
    MINI_BACKBONES,
    check_attention,
    check_convolution,
    check_positions,
    family_of,
)
from trainables.schema import Value


@dataclass(frozen=True)
class PretrainingResolution:
    """The configuration of a pretraining, with the origin of everything in it."""

    fixed: Mapping[str, Layered[Value]]
    backbone: Layered[str]  # what it begins with
    tokenizer: Layered[str | None]


def resolve_pretraining(plan: Plan) -> PretrainingResolution:
    """Every field of the objective's configuration, and what the pretraining begins with.

    Raises:
        ValueError: no such objective; --pretrain-set names a field that it does not have.
    """
    asked = asked_pretraining(plan)
    recipe = recipes.load(asked.objective)
    file, kind = f"search_spaces/objectives/{asked.objective.replace('-', '_')}.py", kind_of(plan)
    for name in asked.settings:
        if name not in recipe.fixed:
            menu = ", ".join(sorted(recipe.fixed))
            raise ValueError(f"--pretrain-set {name}: {asked.objective} has no such field; it has {menu}")
    if plan.backbone is not None:
        backbone, own = Layered(plan.backbone, "--backbone"), Layered[str | None](None, "--backbone")
    else:
        backbone = Layered(recipe.backbone[kind], f"{file} BACKBONE[{kind!r}]")
        own = Layered(recipe.tokenizer.get(kind), f"{file} TOKENIZER[{kind!r}]")
    tokenizer = own if plan.tokenizer is None else Layered[str | None](plan.tokenizer, "--tokenizer")
    mini = recipe.mini_fixed if backbone.value in MINI_BACKBONES else {}
    layers = [(f"{file} FIXED", recipe.fixed), (f"{file} MINI_FIXED", mini), ("--pretrain-set", asked.settings)]
    return PretrainingResolution(last_of(layers), backbone, tokenizer)


def pretraining_arm(plan: Plan, fingerprint_of: Callable[[str, str], str]) -> Arm:
    """The arm, of one trial.

    Raises:
        ValueError: a value that is not allowed; documents that give no pair, where pairs are made.
    """
    asked, resolution = asked_pretraining(plan), resolve_pretraining(plan)
    backbone, tokenizer = resolution.backbone.value, resolution.tokenizer.value
    fixed = {name: layered.value for name, layered in resolution.fixed.items()}
    config = objectives.configure(asked.objective, fixed)
    check_positions(backbone, config.max_length, of=asked.objective)
    check_pairs(asked.corpus, config.packing)
    return Arm(
        method=asked.objective,
        task=PRETRAINING,
        space={},
        fixed=fixed,
        first=(),
        samples=0,
        seeds=(FIRST_SEED,),
        backbone=backbone,
        backbone_fingerprint=fingerprint_of(backbone, "backbone"),
        tokenizer=tokenizer,
        tokenizer_fingerprint=tokenizer and fingerprint_of(tokenizer, "tokenizer"),
        data_fingerprint=fingerprint_of(asked.corpus, "corpus"),
        start_from=None,
        corpus=asked.corpus,
    )


def check_pretraining(plan: Plan) -> None:
    """Passes if the objective and the corpus are there, and the corpus can be read.

    Raises:
        ValueError: they are not.
    """
    if plan.pretraining is UNSET:
        return
    objectives.load(plan.pretraining.objective)
    check_corpus(plan.pretraining.corpus)


def check_begun_with(pretraining: Arm) -> None:
    """Passes if the objective has a model of the backbone's family, and that the attention that is asked for.

    Raises:
        ValueError: it is not so.
    """
    backbone, objective = pretraining.pinned_backbone, pretraining.method
    objectives.check_family(objective, family_of(backbone), *objectives.load(objective).FAMILIES)
    check_attention(backbone, objectives.configure(objective, pretraining.fixed))


def check_starts_from_it(arms: Iterable[Arm], pretraining: Arm) -> None:
    """Passes if the pretrained model has a position for every token of the trials that start from it, and their
    attention.

    Raises:
        ValueError: it has fewer positions, a tiny backbone as many as it was pretrained with; or another attention.
    """
    pretrained = objectives.configure(pretraining.method, pretraining.fixed)
    positions = pretrained.max_length if pretraining.backbone in MINI_BACKBONES else None
    for arm in arms:
        config = trainables.configure(arm.method, arm.any_configuration)
        if positions is not None and config.max_length > positions:
            raise ValueError(
                f"max_length of {arm.name} is {config.max_length}; {pretraining.name} gives its backbone {positions} "
                f"positions: --pretrain-set max_length={config.max_length}, or --set max_length={positions}"
            )
        check_positions(pretraining.backbone, config.max_length, of=arm.name)
        check_convolution(pretrained.conv_kernel_size, config, of=f"the backbone of {arm.name}")


def explain_pretraining(plan: Plan) -> str:
    """Every field of the pretraining with its value and where that comes from, a line each."""
    asked, resolution = asked_pretraining(plan), resolve_pretraining(plan)
    rows = [(name, json.dumps(layered.value), layered.origin) for name, layered in resolution.fixed.items()]
    rows.append(("corpus", asked.corpus, "--corpus"))
    rows.append(("backbone", resolution.backbone.value, resolution.backbone.origin))
    if resolution.tokenizer.value is not None:
        rows.append(("tokenizer", resolution.tokenizer.value, resolution.tokenizer.origin))
    return "\n".join([arm_name(asked.objective, PRETRAINING, 0), *in_columns(rows)])


def kind_of(plan: Plan) -> str:
    """Which of a method's or an objective's backbones the profile asks for."""
    return "mini" if plan.profile == "mini" else "paper"


def asked_pretraining(plan: Plan) -> Pretraining:
    """What is asked for; there must be something."""
    assert plan.pretraining is not UNSET
    return plan.pretraining
