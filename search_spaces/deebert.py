"""DeeBERT search space: the values of castorini/DeeBERT at 563eac1 (scripts/train_highway.sh, eval_entropy.sh).

Its scripts train both stages alike, one configuration on every task. The ranges around it are those of the PALBERT
paper's baselines, with its batch size.
"""

from search_spaces import _palbert_paper as paper
from search_spaces import _random_start as random_start
from search_spaces import berxit
from trainables.schema import Configuration, Value

START = "albert"  # the first stage

SPACE = berxit.SPACE
# eval_entropy.sh: 0 to 0.7 nats, here as shares of ln 2, in which 0.1 nats are 0.14.
POST_HOC = {"entropy": [0.0014, 0.007, 0.014, 0.072, 0.14, 0.22, 0.29, 0.43, 0.58, 0.72, 0.87]}
PAPER_GRID: dict[str, list[Value]] = {"learning_rate": [2e-5], "batch_size": [8], "entropy": [0.14]}

FIXED = berxit.FIXED  # the same scripts' values: 3 epochs, a linear schedule, clipping at norm 1
BACKBONE = paper.BACKBONE
FAMILIES = berxit.FAMILIES
PUBLISHED: dict[str, list[Configuration]] = {}

MINI_SPACE = random_start.SPACE
MINI_GRID = random_start.GRID
MINI_FIXED = random_start.FIXED
