"""What every method must do on every backbone family. Run: pytest tests/trainables/test_methods.py

No method is named here: a new one is tested by existing. The rules are those of `study.check_method`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import torch

import trainables
from study.contract import training_rules
from study.contract.model_rules import RULES, Subject
from study.contract.training_rules import ShortTrials
from study.plans.arm_checks import fits
from trainables.encoders.backbone_names import MINI_BACKBONES

pytestmark = pytest.mark.slow

FIRST, *OTHERS = trainables.list_methods()
BACKBONE, *_ = MINI_BACKBONES
PAIRS = [  # the short tests have each method on one backbone, and one method on each backbone
    pytest.param(method, backbone, marks=() if method == FIRST or backbone == BACKBONE else pytest.mark.long)
    for method in trainables.list_methods()
    for backbone in MINI_BACKBONES
]


@pytest.mark.parametrize(("method", "backbone"), PAIRS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_model(rule: Callable[[Subject], None], method: str, backbone: str) -> None:
    if method in ("berxit", "deebert") and not fits(method, backbone):
        pytest.skip("ShareBERT's pooler cannot be copied")
    rule(subject(method, backbone))


@functools.cache
def subject(method: str, backbone: str) -> Subject:
    return Subject(method, backbone)


@pytest.fixture(scope="module", params=[FIRST, *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)])
def short_trials(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShortTrials]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the new process
    with closing(ShortTrials(Subject(request.param, "mini-albert"), tmp_path_factory.mktemp("state"))) as trials:
        yield trials
    torch.set_num_threads(threads)


@pytest.mark.parametrize("rule", training_rules.RULES, ids=lambda rule: rule.__name__)
def test_every_training(rule: Callable[[ShortTrials], None], short_trials: ShortTrials) -> None:
    rule(short_trials)
