"""PonderNet search space: the PALBERT paper's baseline "ALBERT PonderNet" (arXiv:2204.03276, table 4), 12 points."""

from typing import Any

from search_spaces import _palbert_paper as paper

SPACE = paper.SPACE | paper.PONDER_SPACE
PAPER_GRID = paper.GRID | paper.PONDER_GRID

# One shared bare linear Λ, trained with the rest of the model, and sampled exits (table 1, second row).
FIXED = (
    paper.FIXED
    | paper.PONDER_FIXED
    | {
        "lambda_learning_rate": None,
        "lambda_layer_arch": "linear",
        "num_lambda_layers": 0,
        "exit": "sample",
        "q": None,
        "sample_draws": 5,
    }
)
BACKBONE = paper.BACKBONE

# The command in the PALBERT repository's README.
PUBLISHED: dict[str, list[dict[str, Any]]] = {
    "rte": [{"learning_rate": 1e-5, "batch_size": 16, "beta": 0.5, "prior_lambda": 0.1}],
}
