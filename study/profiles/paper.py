"""PALBERT's protocol (arXiv:2204.03276, section 4 and table 4): the whole grid, five seeds, median on dev.

    ray up cluster.yaml
    python -m study.launch --profile paper --method all --task all

All methods are the rows of the paper's table 2. Every grid trial runs to its own stop: five epochs without improvement,
or 25. Per task: 12 grid trials for each of ALBERT with 12 and with 9 layers, PABEE and PonderNet, 36 for PALBERT; then
5 confirm trials each. Expect (median of five seeds, ALBERT backbone): RTE 76.5 ALBERT, 76.9 PABEE, 74.0 PonderNet,
78.3 PALBERT; the rest stands in analysis/published.csv. Where this is not what the papers did: `--dry-run` says it.
"""

from study.plans.plan import Plan

METHODS = ("albert", "albert:9-layers", "pabee", "pondernet", "palbert")


def plan() -> Plan:
    return Plan(
        profile="paper",
        methods=("palbert",),
        tasks=("sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb"),
        data="hub",
        samples=None,
        seeds=5,
        sampler="grid",
        early_stopping=None,
        baseline="albert",
    )
