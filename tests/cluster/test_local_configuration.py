"""The configuration for one's own machines is the shipped one, but for what is named: pytest tests/cluster"""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from cluster.local_configuration import FOR_MACHINES_TO_RENT, local_configuration
from helpers.places import ROOT
from ray.autoscaler._private.util import prepare_config, validate_config
from syrupy.assertion import SnapshotAssertion


@pytest.fixture
def shipped() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "cluster.yaml").read_text())


def local(configuration: dict[str, Any]) -> dict[str, Any]:
    return local_configuration(configuration, head="10.0.0.1", workers=["10.0.0.2"])


def test_ray_accepts_it(shipped: dict[str, Any]) -> None:
    validate_config(prepare_config(local(shipped)))


def test_all_else_is_as_shipped(shipped: dict[str, Any]) -> None:
    differing = {name for name in shipped if shipped[name] != local(shipped).get(name)}
    replaced = {"provider", "auth", "max_workers", "head_start_ray_commands", "setup_commands"}
    assert differing == {*FOR_MACHINES_TO_RENT, *replaced}


@pytest.mark.parametrize("field", ["provider", "auth", "available_node_types"])
def test_a_field_that_is_not_there_is_refused(shipped: dict[str, Any], field: str) -> None:
    del shipped[field]
    with pytest.raises(ValueError, match=f"cluster.yaml has no {field}; it has cluster_name, "):
        local(shipped)


def test_a_command_that_is_not_there_is_refused(shipped: dict[str, Any], snapshot: SnapshotAssertion) -> None:
    shipped["head_start_ray_commands"] = ["ray stop"]
    with pytest.raises(ValueError) as raised:
        local(shipped)
    assert str(raised.value) == snapshot
