"""Every part of a study in minutes on a laptop: generated tasks, tiny random backbones, no network.

    python -m study.launch --profile mini --method palbert

The numbers say nothing about GLUE; they show that the machinery works. Learning rates are those of tiny models
trained from scratch: the searched ranges of the papers are for pretrained backbones.
"""

from optuna.distributions import CategoricalDistribution, FloatDistribution

from study.plan import Overrides, Plan


def plan() -> Plan:
    return Plan(
        profile="mini",
        methods=("palbert",),
        tasks=("sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb"),
        data="mini",
        samples=4,
        seeds=5,
        sampler="tpe",
        random_start=Overrides(
            space={
                "learning_rate": FloatDistribution(5e-4, 3e-3, log=True),
                "lambda_learning_rate": FloatDistribution(5e-4, 3e-3, log=True),
                "batch_size": CategoricalDistribution([16, 32]),
            },
            grid={
                "learning_rate": [5e-4, 1e-3, 2e-3],
                "lambda_learning_rate": [5e-4, 1e-3],
                "batch_size": [16, 32],
            },
            fixed={"epochs": 9, "stop_after": 4, "layer_decay": 1.0},
        ),
    )
