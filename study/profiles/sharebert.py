"""ShareBERT-small pretrained and fine-tuned as jchenghu/sharebert has it: eight GLUE tasks, one recipe, five seeds.

    python -m study.launch --profile sharebert
    python -m study.launch --profile sharebert --data mini --corpus mini --backbone mini-sharebert --task rte

The second is the whole way in minutes, tiny and without a network. Pretraining is 23,000 steps of 4000 examples of 128
tokens (search_spaces/objectives/mlm.py); the original's corpus has books beside Wikipedia. `--method all` are exits on
the same backbone, each with its paper's grid. Other sizes:

    --backbone sharebert-base --tokenizer google-bert/bert-base-uncased

Expect of ShareBERT-small, 5M parameters, 95.5 % of BERT-base's scores (the paper's abstract, dev); no source has its
scores by task (analysis/published.csv).
"""

from study.plans.plan import Plan, Pretraining

METHODS = ("sharebert", "pabee", "pondernet", "palbert")


def plan() -> Plan:
    return Plan(
        profile="sharebert",
        methods=("sharebert",),
        tasks=("sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb"),
        data="hub",
        samples=None,
        seeds=5,
        sampler="grid",
        early_stopping=None,
        baseline="sharebert",
        pretraining=Pretraining(objective="mlm", corpus="hub:wikimedia/wikipedia:20231101.en"),
    )
