"""ELECTRA-small on GLUE as lmtuners had it: RTE and STS-B start from the MNLI model; median of five on dev.

    python -m study.launch --profile electra
    python -m study.launch --profile electra --method all --name electra-and-alectra
    python -m study.launch --profile electra --backbone FOLDER

The third starts from a checkpoint of your own: docs/pretraining.md makes it, in ELECTRA-small's million steps.
Tried are ELECTRA's released default and its re-implementation's value, on RTE lmtuners' too
(search_spaces/electra_small.py). Expect for google/electra-small-discriminator (ELECTRA's README, dev, median over many
seeds) MNLI 81.3, on the matched set alone. Its RTE 66.7 and STS-B 87.5 begin from the pretrained checkpoint; from an
MNLI model no source has them for this checkpoint. lmtuners' own model of 17M parameters gives 67.1 and 86.1 so. WNLI is
left out, as there. All numbers, each with its source's metric: analysis/published.csv.
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
