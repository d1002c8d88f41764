"""Define the profiles, which are named plans. `mini` runs anywhere in minutes; `paper` is the PALBERT paper's protocol.

A profile has a value for every field; options override these values. It also lists the methods of `--method all`.
`--dry-run` prints what a profile runs, its expected cost and its differences from the papers. The papers' scores are in
analysis/published.csv.
"""

from __future__ import annotations

from msgspec.structs import replace

from study.plans.plan import Plan
from trainables.configuration.ranges import Interval
from trainables.configuration.spelling import unknown_name_error
from trainables.data.tasks import GLUE_TASKS, trainable_tasks

GLUE_EIGHT = ("sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb")  # without WNLI, as in the papers

# Runs every part of a study in minutes on a laptop, without a network, on generated tasks with tiny random backbones.
# Its scores say nothing about GLUE. Its search spaces are made for these backbones (MINI_SPACE, MINI_GRID, MINI_FIXED).
# It follows no paper's protocol, so epochs and configurations are chosen on a slice of train.
MINI = Plan(
    profile="mini",
    methods=("palbert",),
    tasks=("sst2", "cola"),
    data="mini",
    samples=4,
    seeds=5,
    sampler="tpe",
    selection="holdout",
    baseline="albert",
)

# PALBERT's protocol (arXiv:2204.03276, section 4 and table 4): the whole grid, five seeds, median on dev.
# `--method all` means the rows of the paper's table 2.
PAPER = Plan(
    profile="paper",
    methods=("palbert",),
    tasks=GLUE_EIGHT,
    data="hub",
    samples=None,
    seeds=5,
    sampler="grid",
    early_stopping=None,
    baseline="albert",
)

# PALBERT's ablation (table 1): a grid search for each row, then mean and deviation over five seeds.
ABLATION = replace(
    PAPER,
    profile="ablation",
    methods=(
        "albert",
        "pondernet",
        "palbert:expectation",
        "palbert:a",
        "palbert:b",
        "palbert:c",
        "palbert:d",
        "palbert",
    ),
    tasks=("sst2", "rte", "cola"),
)

# ELECTRA-small on GLUE, trained as in lmtuners: RTE and STS-B start from the MNLI model. Median of five seeds on dev.
# No source has scores of google/electra-small-discriminator on RTE and STS-B from an MNLI model.
ELECTRA = Plan(
    profile="electra",
    methods=("electra-small",),
    tasks=GLUE_EIGHT,
    data="hub",
    samples=3,
    seeds=5,
    sampler="tpe",
    start_from={"rte": "mnli", "stsb": "mnli"},
    baseline="electra-small",
    test_across="backbones",  # the study asks which backbone is better
)

# ShareBERT-small, fine-tuned as in jchenghu/sharebert: eight GLUE tasks, one recipe, five seeds.
# `--method all` adds early-exit methods on the same backbone, each with the grid of its paper. The commands to pretrain
# the backbone are in docs/pretraining.md.
SHAREBERT = replace(PAPER, profile="sharebert", methods=("sharebert",), baseline="sharebert")

# Four methods on a small pretrained backbone (6 to 12 layers of width 256 to 512), for two processor cores.
# The papers' ranges are for ALBERT-base. A narrower model needs higher learning rates, with a warm-up and clipping. A
# trial keeps its last epoch, and the search is scored on a slice of train, so that dev is read only for the tables.
SMALL = Plan(
    profile="small",
    methods=("albert", "pabee", "pondernet", "palbert"),
    tasks=("cola", "sst2"),
    data="hub",
    samples=6,
    seeds=5,
    sampler="tpe",
    selection="holdout",
    early_stopping=None,
    baseline="albert",
    settings={
        "epochs": 4,
        "batch_size": 32,
        "schedule": "linear",
        "warmup_ratio": 0.1,
        "gradient_clip": 1.0,
        "stop_after": 0,
        "select": "last",
        "learning_rate": Interval(low=5e-5, high=2e-4, log=True),
        "prior_lambda": Interval(low=0.15, high=0.3),
        "beta": Interval(low=0.4, high=0.7, log=True),
        "lambda_learning_rate": Interval(low=3e-4, high=2e-3, log=True),
    },
)
NEED_BACKBONE = ("small",)  # profiles without a backbone: the user must name one

_PLANS = {plan.profile: plan for plan in (ABLATION, ELECTRA, MINI, PAPER, SMALL, SHAREBERT)}
_METHODS = {  # profile -> the methods that `--method all` means, if they are not those of its plan
    "electra": ("electra-small", "alectra-small"),
    "mini": ("albert", "pabee", "pondernet", "palbert", "electra-small", "alectra-small"),
    "paper": ("albert", "albert:9-layers", "pabee", "pondernet", "palbert"),
    "sharebert": ("sharebert", "pabee", "pondernet", "palbert"),
}


def list_profiles() -> list[str]:
    """List the names of all profiles, sorted."""
    return sorted(_PLANS)


def load_profile(name: str) -> Plan:
    """Return the plan of a profile.

    Raises:
        ValueError: if no profile has this name.
    """
    if name not in _PLANS:
        raise unknown_name_error("profile", name, ["auto", *list_profiles()])
    return _PLANS[name]


def list_methods(name: str) -> tuple[str, ...]:
    """List the methods that `--method all` stands for in a profile.

    Raises:
        ValueError: if no profile has this name.
    """
    return _METHODS.get(name, load_profile(name).methods)


def list_tasks() -> tuple[str, ...]:
    """List the tasks that `--task all` stands for: the eight GLUE tasks of the papers, and tasks from --include."""
    return (*GLUE_EIGHT, *(task for task in trainable_tasks() if task not in GLUE_TASKS))
