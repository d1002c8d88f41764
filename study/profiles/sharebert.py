"""ShareBERT-small fine-tuned as jchenghu/sharebert has it: eight GLUE tasks, one recipe, five seeds.

    python -m study.pretrain mlm --corpus hub:wikimedia/wikipedia:20231101.en --to FOLDER
    python -m study.launch --profile sharebert --backbone FOLDER

The first pretrains it: 23,000 steps of 4000 examples of 128 tokens (search_spaces/objectives/mlm.py); the original's
corpus has books beside Wikipedia. `--method all` are exits on the same backbone, each with its paper's grid. Another
size is pretrained by

    --backbone sharebert-base --tokenizer google-bert/bert-base-uncased

Expect of ShareBERT-small, 5M parameters, 95.5 % of BERT-base's scores (the paper's abstract, dev); no source has its
scores by task (analysis/published.csv).
"""

from msgspec.structs import replace

from study.plans.plan import Plan
from study.profiles import paper

METHODS = ("sharebert", "pabee", "pondernet", "palbert")


def plan() -> Plan:
    return replace(
        paper.plan(),
        profile="sharebert",
        methods=("sharebert",),
        baseline="sharebert",
    )
