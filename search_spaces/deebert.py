"""DeeBERT search space: the values of castorini/DeeBERT at 563eac1 (scripts/train_highway.sh, eval_entropy.sh).

The scripts use one configuration for both training stages and all tasks. The learning rates are searched in the range
of the PALBERT paper's baselines. The batch sizes are searched from 8 (the scripts' value) to 32.
"""

from search_spaces import _palbert_paper as paper
from search_spaces import berxit
from trainables.configuration.schema import Value

START = "albert"  # method of the first training stage

SPACE = berxit.SPACE
# eval_entropy.sh tries entropies from 0 to 0.7 nats. The values here are divided by ln 2: 0.1 nats become 0.14.
POST_HOC = {"entropy": [0.0014, 0.007, 0.014, 0.072, 0.14, 0.22, 0.29, 0.43, 0.58, 0.72, 0.87]}
PAPER_GRID: dict[str, list[Value]] = {"learning_rate": [2e-5], "batch_size": [8], "entropy": [0.14]}

FIXED = berxit.FIXED  # DeeBERT's scripts also have 3 epochs, a linear schedule and clipping at norm 1
FIXED_BY_FAMILY = {family: berxit.FIXED_BY_FAMILY[family] for family in ("bert", "roberta")}  # as in BERxiT's script
BACKBONE = paper.BACKBONE
FAMILIES = berxit.FAMILIES
