"""PonderNet search space: the PALBERT paper's baseline "ALBERT PonderNet" (arXiv:2204.03276, table 4)."""

from search_spaces import _palbert_paper as paper
from search_spaces import _random_start as random_start
from trainables.schema import Configuration

SPACE = paper.SPACE | paper.PONDER_SPACE
PAPER_GRID = paper.GRID | paper.PONDER_GRID

FIXED = paper.FIXED | paper.PONDER_FIXED | {"sample_draws": 1}  # evaluation draws once (arXiv:2107.05407, section 2)
BACKBONE = paper.BACKBONE

MINI_SPACE = random_start.SPACE | random_start.PONDER_SPACE
MINI_GRID = random_start.GRID | random_start.PONDER_GRID
MINI_FIXED = random_start.FIXED | {"sample_draws": 5}  # on a tiny dev set, the score of a single draw is noisy

# The command in the PALBERT repository's README.
PUBLISHED: dict[str, list[Configuration]] = {
    "rte": [{"learning_rate": 1e-5, "batch_size": 16, "beta": 0.5, "prior_lambda": 0.1}],
}
