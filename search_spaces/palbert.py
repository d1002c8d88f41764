"""PALBERT search space: the paper's grid (arXiv:2204.03276, table 4) and further options of the released code."""

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from search_spaces import _palbert_paper as paper
from search_spaces import pondernet
from trainables.configuration.schema import Configuration, Value

# Fields of the Λ network: learning rates within the paper's {1, 2, 3}e-5, the architectures of the released code, and
# from 0 hidden layers (rows a, b and d of table 1) to 3 (PALBERT).
SPACE = (
    paper.SPACE
    | paper.PONDER_SPACE
    | {
        "lambda_learning_rate": FloatDistribution(1e-5, 3e-5, log=True),
        "lambda_layer_arch": CategoricalDistribution(["linear", "linear_cat", "linear_diff", "rnn"]),
        "num_lambda_layers": IntDistribution(0, 3),
    }
)
PAPER_GRID = (
    paper.GRID
    | paper.PONDER_GRID
    | {"lambda_learning_rate": [1e-5, 2e-5, 3e-5], "lambda_layer_arch": ["linear_cat"], "num_lambda_layers": [3]}
)

# Q-exit with q = 0.5 (section 4.1); --search q=0.3,0.5,0.7 chooses q on each trained model.
POST_HOC = {"q": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]}
FIXED = paper.FIXED | paper.PONDER_FIXED | {"exit": "threshold", "q": 0.5, "sample_draws": None}
BACKBONE = paper.BACKBONE

# Rows a to d of the paper's table 1, between PonderNet and PALBERT (row e). `expectation` is the table's row with the
# closed-form expectation: PonderNet's training, with the expected answer as the released code computes it.
_BARE: dict[str, Value] = {"lambda_layer_arch": "linear", "num_lambda_layers": 0, "lambda_learning_rate": None}
VARIANTS: dict[str, Configuration] = {
    "expectation": _BARE | {"exit": "expectation_legacy", "q": None},
    "a": _BARE,
    "b": {"lambda_layer_arch": "linear", "num_lambda_layers": 0},
    "c": {"lambda_layer_arch": "linear", "num_lambda_layers": 3},
    "d": {"lambda_layer_arch": "linear_cat", "num_lambda_layers": 0},
}

MINI_SPACE = pondernet.MINI_SPACE | {
    "lambda_learning_rate": FloatDistribution(2e-4, 1e-3, log=True),
    "num_lambda_layers": IntDistribution(1, 3),
}
MINI_GRID = pondernet.MINI_GRID | {"lambda_learning_rate": [3e-4, 1e-3]}

# The command in the PALBERT repository's README.
PUBLISHED: dict[str, list[Configuration]] = {
    "rte": [
        {
            "learning_rate": 1e-5,
            "batch_size": 32,
            "lambda_learning_rate": 1e-5,
            "lambda_layer_arch": "linear_cat",
            "num_lambda_layers": 3,
            "beta": 0.5,
            "prior_lambda": 0.1,
        }
    ],
}
