"""Methods whose training depends on more than their key: on generators, attributes, globals, files or patches."""

from __future__ import annotations

from pathlib import Path

_FILE = """
{top}
from trainables.configuration import AtLeastOne, TrainingConfig

DEPARTURES = ()


class Config(TrainingConfig, frozen=True, kw_only=True):
    patience: AtLeastOne


def build(config, encoder, task):
    import torch

    from trainables.models.classifiers import ClassifierPerLayer
    from trainables.models.exit_rules import Patience, every_patience

    close = 0.2 if task.is_regression else None
    {build}

    class Model(ClassifierPerLayer):
        steps = 0

        def loss(self, batch):
            loss = super().loss(batch)["loss"]
            {loss}
            return {{"loss": loss}}

    swept = every_patience(encoder.num_layers, close)
    return Model(encoder, Patience(config.patience, close), task.num_labels, config, swept=swept)
"""
_SPACE = """
from search_spaces import pabee as base

SPACE = base.SPACE
FIXED = {name: value for name, value in base.FIXED.items() if name != "regression_threshold"} | {"patience": 3}
PAPER_GRID = {name: values for name, values in base.PAPER_GRID.items() if name != "patience"}
BACKBONE = base.BACKBONE
"""


def write_method(folder: Path, name: str, *, top: str = "", build: str = "", loss: str = "") -> Path:
    """Write a method like PABEE's, with a line of its own at the top, in `build` and in `loss`; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(_FILE.format(top=top, build=build, loss=loss))
    (folder / f"{name}_space.py").write_text(_SPACE)
    return folder


def write_drawing(folder: Path) -> Path:
    """Write a method that draws from the global generators of Python and NumPy."""
    draw = "loss = loss * (random.uniform(0, 2) + numpy.random.uniform(0, 2))"
    return write_method(folder, "drawing", top="import random\nimport numpy", loss=draw)


def write_counting(folder: Path) -> Path:
    """Write a method that counts its steps in a Python attribute, which is not part of the saved state."""
    count = "self.steps += self.training; loss = loss * (0.3 + self.steps / 128)"
    return write_method(folder, "counting", loss=count)


def write_counting_in_buffer(folder: Path) -> Path:
    """Write a method that counts its steps in a registered buffer, as docs/own_method.md advises."""
    count = "self.steps += self.training; loss = loss * (0.3 + self.steps / 128)"
    file = write_method(folder, "buffered", loss=count) / "buffered.py"
    register = (
        "def __init__(self, *args, **kwargs):\n"
        "            super().__init__(*args, **kwargs)\n"
        '            self.register_buffer("steps", torch.tensor(0))'
    )
    file.write_text(file.read_text().replace("steps = 0", register))
    return folder


def write_remembering(folder: Path) -> Path:
    """Write a method that remembers in a global how many models its process has built."""
    return write_method(
        folder, "remembering", top="SEEN = []", build="SEEN.append(1)", loss="loss = loss / (2 + len(SEEN))"
    )


def write_leaky(folder: Path) -> Path:
    """Write a method that replaces a function of PyTorch."""
    keep = "PLAIN = []"
    patch = (
        "PLAIN or PLAIN.append(torch.nn.LayerNorm.forward)\n"
        "    torch.nn.LayerNorm.forward = lambda self, input: PLAIN[0](self, input) * 1.05"
    )
    return write_method(folder, "leaky", top=keep, build=patch)


def write_reading(folder: Path, *, factor: float = 1.0) -> Path:
    """Write a method that reads a file beside it."""
    read = "FACTOR = json.loads(Path(__file__).with_name('factor.json').read_text())"
    top = f"import json\nfrom pathlib import Path\n{read}"
    write_method(folder, "reading", top=top, loss="loss = loss * FACTOR")
    (folder / "factor.json").write_text(f"{factor}\n")
    return folder


def write_dying(folder: Path) -> Path:
    """Write a method that ends its process in its first training step."""
    return write_method(folder, "dying", top="import os", loss="os._exit(3)")
