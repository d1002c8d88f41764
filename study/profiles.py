"""Profiles: whole plans that have names. `mini` runs anywhere, `paper` is the PALBERT paper's protocol.

A profile is what runs if nothing else is asked for, and what `--method all` means there:

    python -m study.launch --profile NAME

Every number that is expected stands in analysis/published.csv with its source. `--dry-run` says what will be run, what
it is expected to cost and where this is not what the papers did.
"""

from __future__ import annotations

from msgspec.structs import replace

from study.plans.plan import Plan
from study.plans.ranges import Interval
from trainables.data.tasks import TRAINABLE_TASKS, trainable_tasks
from trainables.spelling import no_such

GLUE_EIGHT = ("sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb")  # WNLI is left out, as in the papers

# Every part of a study in minutes on a laptop: generated tasks, tiny random backbones, no network. The numbers say
# nothing about GLUE. The ranges are those of each search space for such backbones (MINI_SPACE, MINI_GRID, MINI_FIXED).
MINI = Plan(
    profile="mini",
    methods=("palbert",),
    tasks=("sst2", "cola"),
    data="mini",
    samples=4,
    seeds=5,
    sampler="tpe",
    baseline="albert",
)

# PALBERT's protocol (arXiv:2204.03276, section 4 and table 4): the whole grid, five seeds, median on dev.
#
#     ray up cluster.yaml
#     python -m study.launch --profile paper --method all --task all
#
# All methods are the rows of the paper's table 2. Every grid trial runs to its own stop: five epochs without
# improvement, or 25. Per task: 12 grid trials for each of ALBERT with 12 and with 9 layers, PABEE and PonderNet, 36 for
# PALBERT; then 5 confirm trials each. Expect (median of five seeds, ALBERT backbone): RTE 76.5 ALBERT, 76.9 PABEE, 74.0
# PonderNet, 78.3 PALBERT.
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

# PALBERT's ablation (table 1): each row with a grid of its own, mean and deviation of five seeds.
#
# 12 grid trials for ALBERT, PonderNet, the expectation and row a; 36 for rows b to d and PALBERT, which is row e; then
# 5 confirm trials each. The table is `tables/ablation.*`; the numbers printed in the paper stand beneath its rows.
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

# ELECTRA-small on GLUE as lmtuners had it: RTE and STS-B start from the MNLI model; median of five on dev.
#
#     python -m study.launch --profile electra --method all --name electra-and-alectra
#
# Tried are ELECTRA's released default and its re-implementation's value, on RTE lmtuners' too
# (search_spaces/electra_small.py). Expect for google/electra-small-discriminator (ELECTRA's README, dev, median over
# many seeds) MNLI 81.3, on the matched set alone. Its RTE 66.7 and STS-B 87.5 begin from the pretrained checkpoint;
# from an MNLI model no source has them for this checkpoint. lmtuners' own model of 17M parameters gives 67.1 and 86.1
# so. A checkpoint of one's own: `study.pretrain electra-rtd`, or `alectra-rtd` for ALECTRA, then --backbone FOLDER.
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
    test_across="backbones",  # which of them is better is the question
)

# ShareBERT-small fine-tuned as jchenghu/sharebert has it: eight GLUE tasks, one recipe, five seeds.
#
#     python -m study.pretrain mlm --corpus hub:wikimedia/wikipedia:20231101.en --to FOLDER
#     python -m study.launch --profile sharebert --backbone FOLDER
#
# The first pretrains it: 23,000 steps of 4000 examples of 128 tokens (search_spaces/objectives/mlm.py); the original's
# corpus has books beside Wikipedia. `--method all` are exits on the same backbone, each with its paper's grid. Other
# sizes are pretrained by
#
#     --backbone sharebert-base --tokenizer google-bert/bert-base-uncased
#
# Expect of ShareBERT-small, 5M parameters, 95.5 % of BERT-base's scores (the paper's abstract, dev); no source has its
# scores by task.
SHAREBERT = replace(PAPER, profile="sharebert", methods=("sharebert",), baseline="sharebert")

# Four exits on a small pretrained backbone, six to twelve layers of width 256 to 512, with two processor cores.
#
#     python -m study.launch --profile small --backbone FOLDER_OR_HUB_NAME
#
# The papers' ranges are for ALBERT-base. A narrower model takes higher rates, and stands them with a warm-up and
# clipping. The last epoch is kept, and tuning sees a slice of train alone: dev is for the numbers of the tables.
# `--dry-run --probe` says what it costs on this machine. No source has numbers of it.
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
NEED_BACKBONE = ("small",)  # profiles that say nothing of one

_ALL = {  # what `--method all` means
    "ablation": (ABLATION, ABLATION.methods),
    "electra": (ELECTRA, ("electra-small", "alectra-small")),
    "mini": (MINI, ("albert", "pabee", "pondernet", "palbert", "electra-small", "alectra-small")),
    "paper": (PAPER, ("albert", "albert:9-layers", "pabee", "pondernet", "palbert")),
    "small": (SMALL, SMALL.methods),
    "sharebert": (SHAREBERT, ("sharebert", "pabee", "pondernet", "palbert")),
}


def available() -> list[str]:
    """List the names of the profiles."""
    return sorted(_ALL)


def load(name: str) -> Plan:
    """Return the plan of a profile.

    Raises:
        ValueError: no profile has this name.
    """
    return _profile(name)[0]


def methods(name: str) -> tuple[str, ...]:
    """List the methods that `--method all` means in a profile.

    Raises:
        ValueError: no profile has this name.
    """
    return _profile(name)[1]


def tasks() -> tuple[str, ...]:
    """List the tasks that `--task all` means in every profile: the papers', and those of an included folder."""
    return (*GLUE_EIGHT, *(task for task in trainable_tasks() if task not in TRAINABLE_TASKS))


def _profile(name: str) -> tuple[Plan, tuple[str, ...]]:
    if name not in _ALL:
        raise no_such("profile", name, ["auto", *available()])
    return _ALL[name]
