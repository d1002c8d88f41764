"""ELECTRA-small on GLUE by lmtuners' protocol: RTE and STS-B start from the MNLI model; median of five on dev.

    python -m study.launch --profile electra

Tried are ELECTRA's released default, its re-implementation's value and lmtuners' (search_spaces/electra_small.py).
Expect (dev, median): MNLI 81.3, RTE 66.7, STS-B 87.5; the rest, and each source's own metrics, stand in
analysis/published.csv. WNLI is left out, as there.
"""

from study.plans.plan import Plan

METHODS = ("electra-small", "alectra-small")


def plan() -> Plan:
    return Plan(
        profile="electra",
        methods=("electra-small",),
        tasks=("sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb"),
        data="hub",
        samples=3,
        seeds=5,
        sampler="tpe",
        start_from={"rte": "mnli", "stsb": "mnli"},
    )
