"""cluster.yaml is what Ray's cluster launcher accepts: pytest tests/study/cluster/test_cluster.py"""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.places import ROOT
from ray.autoscaler._private.util import prepare_config, validate_config

from study.cluster.ray_cluster import RayNodes
from study.cluster.resources import Autoscaler, Resources

AUTOSCALER = Autoscaler.from_configuration(yaml.safe_load((ROOT / "cluster.yaml").read_text()))


@pytest.fixture
def cluster() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "cluster.yaml").read_text())


def test_ray_accepts_it(cluster: dict[str, Any]) -> None:
    validate_config(prepare_config(cluster))


def test_ray_would_refuse_a_field_it_does_not_know(cluster: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="'head_nodes' was unexpected"):
        validate_config(prepare_config(cluster | {"head_nodes": {}}))


def test_gpu_workers_grow_from_none_to_the_limit(cluster: dict[str, Any]) -> None:
    workers = {
        name: node for name, node in cluster["available_node_types"].items() if name != cluster["head_node_type"]
    }
    assert all(node["min_workers"] == 0 and node["resources"]["GPU"] > 0 for node in workers.values())
    assert sum(node["max_workers"] for node in workers.values()) == cluster["max_workers"]


@pytest.mark.parametrize(("cpus", "gpus", "slots"), [(1, 1.0, 8), (1, 0.5, 16), (2, 0.25, 16), (8, 1.0, 0)])
def test_trials_wait_for_all_the_nodes_that_may_come(cpus: float, gpus: float, slots: int) -> None:
    resources = Resources(nodes=RayNodes(), cpus=cpus, gpus=gpus, autoscaler=AUTOSCALER)
    assert resources.count_slots_to_come() == slots


def test_a_worker_starts_ray_once(cluster: dict[str, Any], tmp_path: Path) -> None:
    """A shell script stands in the place of Ray's program."""
    (tmp_path / "ray").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "ray").chmod(0o700)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "RAY_HEAD_IP": "10.0.0.1"}
    command = ["bash", "-c", cluster["worker_start_ray_commands"][-1]]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert said == "start --address=10.0.0.1:6379 --disable-usage-stats\n"


@pytest.mark.parametrize(
    ("commands", "place", "package"),
    [("initialization_commands", 1, "nfs-common"), ("setup_commands", 0, "python3-venv")],
)
def test_packages_are_installed_after_another_apt_ends(
    cluster: dict[str, Any], tmp_path: Path, commands: str, place: int, package: str
) -> None:
    """A new Ubuntu upgrades its packages for some minutes, in which apt-get fails: here, twice."""
    log = tmp_path / "log"
    programs = {
        "sudo": f'echo "$@" >> {log}; test $(wc -l < {log}) -gt 2',
        "python3": f"grep -q install {log}",
        "mountpoint": "false",
        "sleep": "true",
    }
    for name, line in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o700)
    (tmp_path / "glue-exit-study").mkdir()
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run(["bash", "-c", cluster[commands][place]], env=environment, capture_output=True, check=False)
    assert log.read_text().splitlines() == 3 * ["apt-get update"] + [f"apt-get install -y {package}"]


def test_trials_stay_off_the_head(cluster: dict[str, Any]) -> None:
    assert cluster["available_node_types"][cluster["head_node_type"]]["resources"] == {"CPU": 0}


def test_every_package_and_file_of_the_install_travels(cluster: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    mounted = set(cluster["file_mounts"].values()) - {"~/.ray/auth_token"}
    assert mounted == packages | {"LICENSE", "README.md", "constraints.txt", "pyproject.toml"}
    assert all((ROOT / path).exists() for path in mounted)


def test_the_cluster_asks_for_a_token_that_every_node_has(cluster: dict[str, Any]) -> None:
    assert "~/.ray/auth_token" in cluster["file_mounts"]
    assert "RAY_AUTH_MODE=token" in cluster["setup_commands"][1]


def test_the_dashboard_listens_on_loopback_only(cluster: dict[str, Any]) -> None:
    assert "--dashboard-host=127.0.0.1" in cluster["head_start_ray_commands"][-1]
