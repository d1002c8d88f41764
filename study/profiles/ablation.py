"""PALBERT's ablation (arXiv:2204.03276, table 1): each row with a grid of its own, mean and deviation of five seeds.

    python -m study.launch --profile ablation

12 grid trials for ALBERT, PonderNet, the expectation and row a; 36 for rows b to d and PALBERT, which is row e; then
5 confirm trials each. The table is `tables/ablation.*`; the numbers printed in the paper stand beneath its rows.
"""

from study.plans.plan import Plan

METHODS = ("albert", "pondernet", "palbert:expectation", "palbert:a", "palbert:b", "palbert:c", "palbert:d", "palbert")


def plan() -> Plan:
    return Plan(
        profile="ablation",
        methods=METHODS,
        tasks=("sst2", "rte", "cola"),
        data="hub",
        samples=None,
        seeds=5,
        sampler="grid",
        early_stopping=None,
        baseline="albert",
    )
