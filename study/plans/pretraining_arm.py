"""The arm that makes the backbone of all others: from `--pretrain` to each value, and where it comes from.

Every value is that of the last layer that has the field: FIXED and MINI_FIXED of the objective's recipe, the latter on
a tiny random backbone, then --pretrain-set.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from msgspec import UNSET

import search_spaces
import trainables
from search_spaces import objectives as recipes
from search_spaces.objectives import Recipe
from study.plans.identity import FIRST_SEED, PRETRAINING, arm_name
from study.plans.layers import Layered, in_columns, last_of
from study.plans.plan import Plan, Pretraining
from study.plans.resolved_plan import Arm
from trainables import objectives
from trainables.configuration import EncoderConfig
from trainables.corpora.corpus import check_corpus, check_pairs
from trainables.encoders.backbones import (
    MINI_BACKBONES,
    UNTRAINED,
    check_attention,
    check_convolution,
    check_positions,
    family_of,
)
from trainables.schema import Configuration, Value
from trainables.spelling import nearest_in_words


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
    for name in asked.settings:
        if name not in recipe.fixed:
            menu = ", ".join(sorted(recipe.fixed))
            near = nearest_in_words(name, recipe.fixed)
            raise ValueError(f"--pretrain-set {name}: {asked.objective} has no such field; it has {menu}{near}")
    backbone, own = _begun_with(plan, recipe)
    tokenizer = own if plan.tokenizer is None else Layered[str | None](plan.tokenizer, "--tokenizer")
    mini = recipe.mini_fixed if backbone.value in MINI_BACKBONES else {}
    file = recipe.file
    layers = [(f"{file} FIXED", recipe.fixed), (f"{file} MINI_FIXED", mini), ("--pretrain-set", asked.settings)]
    return PretrainingResolution(last_of(layers), backbone, tokenizer)


def _begun_with(plan: Plan, recipe: Recipe) -> tuple[Layered[str], Layered[str | None]]:
    """The backbone and its tokenizer: --backbone, else the objective's, else that of a method of another family.

    A method whose own backbone is trained already leaves the objective's, which is refused: see `check_family`.
    """
    if plan.backbone is not None:
        return Layered(plan.backbone, "--backbone"), Layered(None, "--backbone")
    kind = kind_of(plan)
    spaces = [search_spaces.load(method) for method in plan.methods]
    others = [space for space in spaces if not fits(space.method, recipe.backbone[kind])]
    own = [space for space in others if space.backbone[kind] in UNTRAINED]
    said = own[0] if own else recipe
    backbone = Layered(said.backbone[kind], f"{said.file} BACKBONE[{kind!r}]")
    return backbone, Layered(said.tokenizer.get(kind), f"{said.file} TOKENIZER[{kind!r}]")


def fits(method: str, backbone: str) -> bool:
    """Whether a backbone may stand under the name of a method, which may have families of its own."""
    families = search_spaces.load(method).families
    return not families or family_of(backbone) in families


def check_family(method: str, backbone: str) -> None:
    """Passes if the backbone may stand under the method's name.

    Raises:
        ValueError: it is of a family that is not the method's.
    """
    if not fits(method, backbone):
        families = search_spaces.load(method).families
        menu = ", ".join(name for name in UNTRAINED if family_of(name) in families)
        raise ValueError(
            f"{method} is for backbones of family {' or '.join(families)}; backbone {backbone!r} is of family "
            f"{family_of(backbone)!r}; allowed: --backbone with {menu}, a folder or a hub name of that family"
        )


def pretraining_arm(plan: Plan, fingerprint_of: Callable[[str, str], str]) -> Arm:
    """The arm, of one trial.

    Raises:
        ValueError: a value that is not allowed; documents that give no pair, where pairs are made.
    """
    asked, resolution = asked_pretraining(plan), resolve_pretraining(plan)
    backbone, tokenizer = resolution.backbone.value, resolution.tokenizer.value
    values = {name: layered.value for name, layered in resolution.fixed.items()}
    config = objectives.configure(asked.objective, values)
    check_positions(backbone, config.max_length, of=asked.objective)
    check_pairs(asked.corpus, config.packing)
    return Arm(
        method=asked.objective,
        task=PRETRAINING,
        space={},
        fixed=as_configured(values, config),
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


def as_configured(fixed: Configuration, config: EncoderConfig) -> Configuration:
    """The fields with values of their kinds: `0`, for a share, is the 0.0 that the same share is elsewhere."""
    return {name: getattr(config, name) for name in fixed}


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
    """Which of a method's or an objective's backbones the plan asks for: on generated data the tiny ones."""
    return "mini" if "mini" in (plan.profile, plan.data) else "paper"


def asked_pretraining(plan: Plan) -> Pretraining:
    """What is asked for; there must be something."""
    assert plan.pretraining is not UNSET
    return plan.pretraining
