"""The part of KubeRay's schema that `kubernetes/study.yaml` uses, made from a release's own definition:

    PYTHONPATH=.:tests python -m helpers.kuberay_schema helm-chart/kuberay-operator/crds/ray.io_rayjobs.yaml

writes `tests/study/cluster/kuberay_rayjob.json`, last from KubeRay 1.7.0, whose definition has more than a megabyte.
Fails where the file has a field that the definition does not know.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from helpers.places import ROOT

STUDY = ROOT / "kubernetes" / "study.yaml"
PART = ROOT / "tests" / "study" / "cluster" / "kuberay_rayjob.json"
KEPT = ("type", "enum", "minimum", "maximum", "pattern", "required")


def shipped_job() -> dict[str, Any]:
    """What kubernetes/study.yaml describes."""
    return yaml.safe_load(STUDY.read_text())


def schema_of(definition: dict[str, Any], version: str) -> dict[str, Any]:
    """The schema of one version of a custom resource."""
    (schema,) = [own["schema"]["openAPIV3Schema"] for own in definition["spec"]["versions"] if own["name"] == version]
    return schema


def used_part(schema: dict[str, Any], value: Any, where: str = "") -> dict[str, Any]:
    """As much of the schema as says what `value` may be; ValueError where it has a field that is not in there."""
    part = {name: schema[name] for name in KEPT if name in schema}
    if schema.get("x-kubernetes-int-or-string"):
        part["type"] = ["integer", "string"]
    if isinstance(value, dict) and "properties" in schema:
        if unknown := value.keys() - schema["properties"].keys():
            raise ValueError(f"{where or 'the document'} has no fields {sorted(unknown)}")
        owns = {name: used_part(schema["properties"][name], own, f"{where}.{name}") for name, own in value.items()}
        part |= {"properties": owns, "additionalProperties": False}
    elif isinstance(value, dict) and isinstance(each := schema.get("additionalProperties"), dict):
        part["additionalProperties"] = united([used_part(each, own, f"{where}.{name}") for name, own in value.items()])
    elif isinstance(value, list):
        part["items"] = united([used_part(schema["items"], own, f"{where}[{i}]") for i, own in enumerate(value)])
    return part


def united(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The parts of one schema that several values use, as one."""
    whole: dict[str, Any] = {}
    for part in parts:
        for name, own in part.items():
            if name == "properties":
                known = whole.setdefault("properties", {})
                for field, schema in own.items():
                    known[field] = united([known[field], schema]) if field in known else schema
            elif isinstance(own, dict) and name in whole:
                whole[name] = united([whole[name], own])
            else:
                whole[name] = own
    return whole


if __name__ == "__main__":
    definition = yaml.safe_load(Path(sys.argv[1]).read_text())
    part = used_part(schema_of(definition, "v1"), shipped_job())
    PART.write_text(json.dumps(part, indent=1, sort_keys=True) + "\n")
