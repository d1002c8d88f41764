"""Every part of a study in minutes on a laptop: generated tasks, tiny random backbones, no network.

    python -m study.launch --profile mini --method palbert

The numbers say nothing about GLUE; they show that the machinery works. The ranges are those of each search space for
tiny random backbones (MINI_SPACE, MINI_GRID, MINI_FIXED).
"""

from study.plans.plan import Plan

METHODS = ("albert", "pabee", "pondernet", "palbert", "electra-small", "alectra-small")


def plan() -> Plan:
    return Plan(
        profile="mini",
        methods=("palbert",),
        tasks=("sst2", "cola"),
        data="mini",
        samples=4,
        seeds=5,
        sampler="tpe",
        baseline="albert",
    )
