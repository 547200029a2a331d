"""A kustomization as the documents that `kubectl kustomize` would print, for the few features that are used here.

Generated names get no hash. `tests/unit/test_kubernetes.py` compares the two where kubectl is installed.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]
KNOWN = frozenset(
    "apiVersion kind namespace resources configMapGenerator secretGenerator patches images labels".split()  # noqa: SIM905
)
CLUSTER_WIDE = frozenset({"Namespace"})


def load(file: Path) -> list[Manifest]:
    with file.open(encoding="utf-8") as text:
        return [each for each in yaml.safe_load_all(text) if each is not None]


def build(folder: Path) -> list[Manifest]:
    """All documents of a kustomization, its bases included. An error for a feature that is not known here."""
    (told,) = load(folder / "kustomization.yaml")
    assert not told.keys() - KNOWN, f"{folder.name}: {sorted(told.keys() - KNOWN)}"
    found: list[Manifest] = []
    for name in told.get("resources", []):
        place = folder / name
        found += build(place) if place.is_dir() else load(place)
    for kind, generators in (("ConfigMap", "configMapGenerator"), ("Secret", "secretGenerator")):
        for generator in told.get(generators, []):
            _generate(found, kind, generator, folder)
    for patch in told.get("patches", []):
        _patch(found, patch)
    for each in found:
        _transform(each, told)
    return found


def find(documents: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = [each for each in documents if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def _generate(found: list[Manifest], kind: str, generator: dict[str, Any], folder: Path) -> None:
    data = {Path(name).name: (folder / name).read_text(encoding="utf-8") for name in generator.get("files", [])}
    for literal in generator.get("literals", []):
        key, _, data[key] = literal.partition("=")
    if kind == "Secret":
        data = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    if generator.get("behavior") == "merge":
        find(found, kind, generator["name"])["data"] |= data
        return
    made: Manifest = {"apiVersion": "v1", "kind": kind, "metadata": {"name": generator["name"]}, "data": data}
    found.append(made | ({"type": "Opaque"} if kind == "Secret" else {}))


def _patch(found: list[Manifest], patch: dict[str, Any]) -> None:
    """JSON patches that remove something."""
    target = find(found, patch["target"]["kind"], patch["target"]["name"])
    for step in yaml.safe_load(patch["patch"]):
        assert step["op"] == "remove", step
        *way, last = step["path"].strip("/").split("/")
        branch = target
        for key in way:
            branch = branch[key]
        del branch[last]


def _transform(document: Manifest, told: dict[str, Any]) -> None:
    metadata = document["metadata"]
    if "namespace" in told and document["kind"] not in CLUSTER_WIDE:
        metadata["namespace"] = told["namespace"]
    for label in told.get("labels", []):
        metadata["labels"] = metadata.get("labels", {}) | label["pairs"]
    for container in containers(document):
        for image in told.get("images", []):
            if container["image"].partition(":")[0] == image["name"]:
                container["image"] = f"{image['name']}:{image['newTag']}"


def pod_of(document: Manifest) -> dict[str, Any] | None:
    """The pod of a Deployment or StatefulSet."""
    found: dict[str, Any] | None = document.get("spec", {}).get("template", {}).get("spec")
    return found


def containers(document: Manifest) -> list[dict[str, Any]]:
    pod = pod_of(document) or {}
    return [*pod.get("initContainers", []), *pod.get("containers", [])]
