"""What every method must do on every backbone family. Run: pytest tests/trainables/test_methods.py

No method is named here: a new one is tested by existing. The rules are those of `study.check_method`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

import trainables
from study.contract.model_rules import RULES, Subject
from study.plans.resolution import fits
from trainables.encoders.backbones import MINI_BACKBONES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("method", trainables.list_methods())
@pytest.mark.parametrize("backbone", MINI_BACKBONES)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_model(rule: Callable[[Subject], None], method: str, backbone: str) -> None:
    if method in ("berxit", "deebert") and not fits(method, backbone):
        pytest.skip("ShareBERT's pooler cannot be copied")
    rule(subject(method, backbone))


@functools.cache
def subject(method: str, backbone: str) -> Subject:
    return Subject(method, backbone)
