"""Every part of a study in minutes on a laptop: generated tasks, tiny random backbones, no network.

    python -m study.launch --profile mini --method palbert

The numbers say nothing about GLUE; they show that the machinery works. The papers' ranges are for fine-tuning
pretrained models of 12 layers; these are for training models of 6 layers from nothing (docs/decisions.md, 2026-11-21).
"""

from optuna.distributions import FloatDistribution, IntDistribution

from study.plan import Overrides, Plan


def plan() -> Plan:
    return Plan(
        profile="mini",
        methods=("palbert",),
        tasks=("sst2", "rte", "cola", "mrpc"),
        data="mini",
        samples=4,
        seeds=5,
        sampler="tpe",
        random_start=Overrides(
            space={
                "learning_rate": FloatDistribution(1e-3, 2e-3, log=True),
                "lambda_learning_rate": FloatDistribution(2e-4, 1e-3, log=True),
                "beta": FloatDistribution(0.1, 0.5, log=True),
                "prior_lambda": FloatDistribution(0.2, 0.35, log=True),
                "patience": IntDistribution(2, 4),
            },
            grid={
                "learning_rate": [1e-3, 1.5e-3, 2e-3],
                "lambda_learning_rate": [3e-4, 1e-3],
                "prior_lambda": [0.25],
                "patience": [3],
            },
            fixed={
                "batch_size": 32,
                "epochs": 6,
                "stop_after": 0,  # trained from nothing, a model may stand still for some epochs
                "warmup_ratio": 0.1,
                "gradient_clip": 1.0,
                "layer_decay": 1.0,
                "layer_decay_convention": None,
            },
        ),
    )
