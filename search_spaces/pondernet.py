"""PonderNet search space: the PALBERT paper's baseline "ALBERT PonderNet" (arXiv:2204.03276, table 4)."""

from optuna.distributions import BaseDistribution, FloatDistribution

from search_spaces import _palbert_paper as paper
from trainables.configuration.schema import Configuration, Value

SPACE = paper.SPACE | paper.PONDER_SPACE
PAPER_GRID = paper.GRID | paper.PONDER_GRID

FIXED = paper.FIXED | paper.PONDER_FIXED | {"sample_draws": 1}  # evaluation draws once (arXiv:2107.05407, section 2)
BACKBONE = paper.BACKBONE

# The prior's λ is higher than the papers', because the tiny backbones have six layers.
MINI_SPACE: dict[str, BaseDistribution] = {
    "beta": FloatDistribution(0.1, 0.5, log=True),
    "prior_lambda": FloatDistribution(0.2, 0.35, log=True),
}
MINI_GRID: dict[str, list[Value]] = {"prior_lambda": [0.25]}
MINI_FIXED = {"sample_draws": 5}  # on a tiny dev set, the score of a single draw is noisy

# The command in the PALBERT repository's README.
PUBLISHED: dict[str, list[Configuration]] = {
    "rte": [{"learning_rate": 1e-5, "batch_size": 16, "beta": 0.5, "prior_lambda": 0.1}],
}
