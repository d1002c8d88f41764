"""kubernetes/study.yaml is what KubeRay accepts: pytest tests/study/cluster/test_kubernetes.py"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from typing import Any

import jsonschema
import pytest
import yaml
from helpers.kuberay_schema import PART, STUDY, shipped_job, used_part
from helpers.places import ROOT
from jsonschema.exceptions import ValidationError

from study import launch


@pytest.fixture
def job() -> dict[str, Any]:
    return shipped_job()


def cluster_of(job: dict[str, Any]) -> dict[str, Any]:
    return job["spec"]["rayClusterSpec"]


def pods_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = cluster_of(job)
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [job["spec"]["submitterPodTemplate"]["spec"], *(group["template"]["spec"] for group in groups)]


def test_it_keeps_to_the_schema_of_kuberay(job: dict[str, Any]) -> None:
    jsonschema.validate(job, json.loads(PART.read_text()))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "rayClusterSpec", "authOptions", "mode"), "tokens"),
        (("spec", "rayClusterSpec", "headGroupSpec", "rayStartParameters"), {}),
        (("spec", "rayClusterSpec", "workerGroupSpecs", 0, "maxReplicas"), "8"),
        (("spec", "backoffLimit"), 1.5),
    ],
)
def test_a_slip_in_it_would_be_found(job: dict[str, Any], path: tuple, value: Any) -> None:
    changed = copy.deepcopy(job)
    place: Any = changed
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(ValidationError):
        jsonschema.validate(changed, json.loads(PART.read_text()))


def test_schema_part_has_existing_fields() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": "left out"}}}
    assert used_part(schema, {"a": "b"})["properties"] == {"a": {"type": "string"}}
    with pytest.raises(ValueError, match=r"\.c has no fields \['d'\]"):
        used_part({"properties": {"c": schema}}, {"c": {"d": 1}})


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_reads_it() -> None:
    said = subprocess.run(["kubectl", "kustomize", str(STUDY.parent)], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert {document["kind"] for document in yaml.safe_load_all(said.stdout)} == {"RayJob", "Pod"}


def test_trials_avoid_head_and_workers_autoscale(job: dict[str, Any]) -> None:
    cluster = cluster_of(job)
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert cluster["enableInTreeAutoscaling"]
    assert [(group["replicas"], group["minReplicas"]) for group in cluster["workerGroupSpecs"]] == [(0, 0)]


def test_nothing_runs_as_root(job: dict[str, Any]) -> None:
    for pod in pods_of(job):
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 1000
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }


def test_a_stranger_needs_the_token_which_stands_in_no_file(job: dict[str, Any]) -> None:
    assert cluster_of(job)["authOptions"] == {"mode": "token", "secretName": "study-token"}
    assert "auth_token: " not in STUDY.read_text()


def test_head_and_workers_have_one_image_and_one_folder(job: dict[str, Any]) -> None:
    containers = [container for pod in pods_of(job) for container in pod["containers"]]
    assert len({container["image"] for container in containers}) == 1
    claims = [volume["persistentVolumeClaim"] for pod in pods_of(job)[1:] for volume in pod["volumes"][:1]]
    assert len(claims) == 2 and claims[0] == claims[1]


def test_the_pod_for_results_is_one_of_the_study(job: dict[str, Any]) -> None:
    results = yaml.safe_load((STUDY.parent / "results.yaml").read_text())
    head = pods_of(job)[1]
    assert results["spec"]["securityContext"] == head["securityContext"]
    (ours,), (its,) = results["spec"]["containers"], head["containers"]
    assert (ours["image"], ours["securityContext"]) == (its["image"], its["securityContext"])
    assert results["spec"]["volumes"] == head["volumes"][:1]


def test_nobody_is_served_metrics(job: dict[str, Any]) -> None:
    for pod in pods_of(job)[1:]:
        (container,) = pod["containers"]
        set_to = {own["name"]: own["value"] for own in container["env"]}
        assert set_to["RAY_enable_metrics_collection"] == "0"
        assert set_to["AUTOSCALER_METRIC_PORT"] == set_to["DASHBOARD_METRIC_PORT"] == "-1"


def test_its_command_is_one_that_a_launch_takes(job: dict[str, Any]) -> None:
    words = job["spec"]["entrypoint"].split()
    assert words[:3] == ["python", "-m", "study.launch"]
    options = launch.main.parser().options(words[3:])
    assert str(options.out) == "/shared/runs" and options.address == "auto"


def test_the_version_of_ray_is_the_one_that_is_tested(job: dict[str, Any]) -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert cluster_of(job)["rayVersion"] == pinned["ray"]


def test_page_finds_the_head_by_labels_of_its_pod() -> None:
    (labels,) = re.findall(r"kubectl get pod -l (\S+) -o name", (ROOT / "docs" / "cluster.md").read_text())
    of_kuberay = {"ray.io/cluster", "ray.io/group", "ray.io/node-type"}  # labelPod in ray-operator of KubeRay 1.7.0
    assert {label.partition("=")[0] for label in labels.split(",")} <= of_kuberay
