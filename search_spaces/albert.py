"""ALBERT search space: the 12 configurations of the PALBERT paper's baselines (arXiv:2204.03276, table 4)."""

from search_spaces import _palbert_paper as paper
from trainables.configuration.schema import Configuration

SPACE = paper.SPACE
PAPER_GRID = paper.GRID
FIXED = paper.FIXED
BACKBONE = paper.BACKBONE

# Nine of twelve layers are "ALBERT (9 L.)" in the paper's table 2; "3-layers" is for a backbone with six.
VARIANTS: dict[str, Configuration] = {"9-layers": {"num_hidden_layers": 9}, "3-layers": {"num_hidden_layers": 3}}

# RTE's first configuration is from the command in the PALBERT repository's README; the other configurations
# are from the ALBERT paper (arXiv:1909.11942, table 14).
PUBLISHED: dict[str, list[Configuration]] = {
    "cola": [{"learning_rate": 1e-5, "batch_size": 16}],
    "stsb": [{"learning_rate": 2e-5, "batch_size": 16}],
    "sst2": [{"learning_rate": 1e-5, "batch_size": 32}],
    "mnli": [{"learning_rate": 3e-5, "batch_size": 128}],
    "qnli": [{"learning_rate": 1e-5, "batch_size": 32}],
    "qqp": [{"learning_rate": 5e-5, "batch_size": 128}],
    "rte": [{"learning_rate": 1e-5, "batch_size": 128}, {"learning_rate": 3e-5, "batch_size": 32}],
    "mrpc": [{"learning_rate": 2e-5, "batch_size": 32}],
    "wnli": [{"learning_rate": 2e-5, "batch_size": 16}],
}
