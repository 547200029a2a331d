"""The manifests in infra/kubernetes: each fits its schema, and they agree with each other and with E3."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml

from comfyui_agent import __version__
from comfyui_agent.cli.app import app
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.sim.settings import Duration
from comfyui_agent.store.agent_lock import AgentLock
from support.kustomize import Manifest, build, containers, find, load, pod_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra" / "kubernetes"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
NAMES = ["base", "comfyui", "keda", "monitoring", "simulator"]
BUILT = {name: build(FOLDER / name) for name in NAMES}
SERVED = "1.37"
OURS = "animapp/e3"

overlays = pytest.mark.parametrize("overlay", NAMES)

TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
REFERENCE = {
    "type": "object",
    "required": ["name", "key"],
    "properties": {name: {"type": "string"} for name in ("name", "key")},
    "additionalProperties": False,
}
WHOLE = {"type": "integer", "minimum": 0}
CUSTOM: dict[tuple[str, str], dict[str, Any]] = {
    ("keda.sh/v1alpha1", "TriggerAuthentication"): {
        "required": ["secretTargetRef"],
        "properties": {
            "secretTargetRef": {
                "type": "array",
                "items": {
                    "required": ["parameter", "name", "key"],
                    "properties": {name: {"type": "string"} for name in ("parameter", "name", "key")},
                    "additionalProperties": False,
                },
            }
        },
        "additionalProperties": False,
    },
    ("keda.sh/v1alpha1", "ScaledObject"): {
        "required": ["scaleTargetRef", "triggers"],
        "properties": {
            "scaleTargetRef": {"required": ["name"], "properties": {"kind": {"enum": ["Deployment", "StatefulSet"]}}},
            "pollingInterval": WHOLE,
            "cooldownPeriod": WHOLE,
            "minReplicaCount": WHOLE,
            "maxReplicaCount": WHOLE,
            "advanced": {
                "properties": {"horizontalPodAutoscalerConfig": {"properties": {"behavior": {"type": "object"}}}},
                "additionalProperties": False,
            },
            "triggers": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "required": ["type", "metadata"],
                    "properties": {
                        "type": {"const": "postgresql"},
                        "metricType": {"enum": ["AverageValue", "Value"]},
                        "authenticationRef": {"required": ["name"]},
                        "metadata": {**TEXTS, "required": ["query", "targetQueryValue"]},
                    },
                    "additionalProperties": False,
                },
            },
        },
        "additionalProperties": False,
    },
    ("monitoring.coreos.com/v1", "ServiceMonitor"): {
        "required": ["selector", "endpoints"],
        "properties": {
            "jobLabel": {"type": "string"},
            "selector": {"properties": {"matchLabels": TEXTS}, "additionalProperties": False},
            "endpoints": {
                "type": "array",
                "items": {
                    "properties": {
                        "port": {"type": "string"},
                        "path": {"type": "string"},
                        "interval": {"type": "string", "pattern": r"^\d+[smh]$"},
                        "authorization": {"properties": {"credentials": REFERENCE}},
                    },
                    "additionalProperties": False,
                },
            },
        },
        "additionalProperties": False,
    },
}
"""The part of these kinds that is used here, after their definitions; Kubernetes itself does not know them."""


def name_of(document: Manifest) -> str:
    return f"{document['kind']} {document['metadata']['name']}"


def unique(documents: list[Manifest]) -> dict[str, Manifest]:
    return {json.dumps(each, sort_keys=True): each for each in documents}


EACH = list(unique([each for name in NAMES for each in BUILT[name]]).values())


def workloads(documents: list[Manifest]) -> list[Manifest]:
    return [each for each in documents if pod_of(each)]


def own(documents: list[Manifest]) -> list[tuple[Manifest, dict[str, Any]]]:
    """Containers of E3, each with its workload."""
    pairs = [(each, container) for each in workloads(documents) for container in containers(each)]
    return [(each, container) for each, container in pairs if container["image"].startswith(f"{OURS}:")]


@pytest.mark.skipif(importlib.util.find_spec("kubernetes_validate") is None, reason="pip install kubernetes-validate")
def test_every_document_fits_the_schema_of_its_kind() -> None:
    import kubernetes_validate

    for document in EACH:
        custom = CUSTOM.get((document["apiVersion"], document["kind"]))
        if custom is None:
            kubernetes_validate.validate(document, SERVED, strict=True)
        else:
            assert document.keys() == {"apiVersion", "kind", "metadata", "spec"}
            jsonschema.validate(document["spec"], custom)


def hidden(text: str) -> str:
    """A text without the hash that kubectl puts behind generated names."""
    return re.sub(r"\b(e3-config|e3-workflows|e3-database|e3-objects)-[0-9a-z]{10}\b", r"\1", text)


@overlays
def test_kubectl_builds_the_same_documents(overlay: str) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl here")
    told = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER / overlay)], capture_output=True, text=True, check=True
    ).stdout
    theirs = [each for each in yaml.safe_load_all(hidden(told)) if each is not None]
    assert unique(theirs).keys() == unique(BUILT[overlay]).keys()


@overlays
def test_names_are_unique_and_in_one_namespace(overlay: str) -> None:
    names = [name_of(each) for each in BUILT[overlay]]
    assert sorted(names) == sorted(set(names))
    assert {each["metadata"].get("namespace") for each in BUILT[overlay] if each["kind"] != "Namespace"} == {"e3"}


@pytest.mark.parametrize("document", workloads(EACH), ids=name_of)
def test_a_workload_selects_its_own_pods(document: Manifest) -> None:
    selector = document["spec"]["selector"]["matchLabels"]
    assert selector.items() <= document["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("overlay", ["base", "keda", "simulator"])
def test_services_budgets_and_policies_find_pods_and_ports(overlay: str) -> None:
    documents = BUILT[overlay]
    pods = [each["spec"]["template"] for each in workloads(documents)]
    for document in documents:
        spec = document.get("spec", {})
        if document["kind"] == "Service":
            selector, ports = spec["selector"], {port["targetPort"] for port in spec["ports"]}
        elif document["kind"] == "NetworkPolicy":
            rules = [port["port"] for rule in spec["ingress"] for port in rule.get("ports", [])]
            selector, ports = spec["podSelector"]["matchLabels"], set(rules)
        elif document["kind"] == "PodDisruptionBudget":
            selector, ports = spec["selector"]["matchLabels"], set()
        else:
            continue
        found = [pod for pod in pods if selector.items() <= pod["metadata"]["labels"].items()]
        assert found, name_of(document)
        for pod in found:
            offered = {port["name"] for each in pod["spec"]["containers"] for port in each.get("ports", [])}
            assert ports <= offered, name_of(document)


def test_the_monitor_finds_the_page() -> None:
    (monitor,) = BUILT["monitoring"]
    service = find(BUILT["base"], "Service", "e3-page")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert {each["port"] for each in monitor["spec"]["endpoints"]} <= {
        each["name"] for each in service["spec"]["ports"]
    }


def secret_keys(document: Any) -> set[tuple[str, str]]:
    """All names and keys of secrets in a document. A whole secret has the key `*`."""
    found: set[tuple[str, str]] = set()
    if isinstance(document, list):
        for each in document:
            found |= secret_keys(each)
    elif isinstance(document, dict):
        for key, value in document.items():
            if key in ("secretKeyRef", "credentials"):
                found.add((value["name"], value["key"]))
            elif key == "secretRef":
                found.add((value["name"], "*"))
            elif key == "secretTargetRef":
                found |= {(each["name"], each["key"]) for each in value}
            else:
                found |= secret_keys(value)
    return found


def test_every_secret_is_made_for_the_trial_and_described_for_real() -> None:
    made = {each["metadata"]["name"]: each["data"].keys() for each in BUILT["simulator"] if each["kind"] == "Secret"}
    described = README.replace("\\\n", " ")
    for name, key in secret_keys(EACH):
        (command,) = re.findall(rf"create secret generic {name} (.*)", described)
        assert key == "*" or re.search(rf"--from-(literal|file)={key}=", command), (name, key)
        assert key == "*" or name == "e3-metrics" or key in made[name], (name, key)
    assert {name for name, _ in secret_keys(EACH)} == {*made, "e3-metrics"}


@pytest.mark.parametrize("overlay", ["base", "keda", "comfyui"])
def test_no_secret_is_in_what_is_meant_for_real(overlay: str) -> None:
    assert [name_of(each) for each in BUILT[overlay] if each["kind"] == "Secret"] == []


@pytest.mark.parametrize("document", workloads(EACH), ids=name_of)
def test_whatever_is_mounted_exists(document: Manifest) -> None:
    pod = pod_of(document)
    assert pod is not None
    volumes = {each["name"]: each for each in pod.get("volumes", [])}
    for container in containers(document):
        assert {each["name"] for each in container.get("volumeMounts", [])} <= volumes.keys()
    wanted = {each["configMap"]["name"] for each in volumes.values() if "configMap" in each}
    assert wanted <= {each["metadata"]["name"] for each in BUILT["base"] if each["kind"] == "ConfigMap"}


@pytest.mark.parametrize("document", workloads(EACH), ids=name_of)
def test_nothing_runs_as_root_or_asks_the_cluster(document: Manifest) -> None:
    pod = pod_of(document)
    assert pod is not None
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(document):
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security.get("readOnlyRootFilesystem", False) or container["name"] == "comfyui"
        assert "memory" in container["resources"]["limits"]
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def commands_of(container: dict[str, Any]) -> list[list[str]]:
    """The calls of `e3` in a container: its arguments, or those in its script."""
    if "command" not in container:
        return [container["args"]]
    return [call.split() for call in re.findall(r"(?<!-n )\be3 ([a-z][^|;&'\n]*)", container["command"][-1])]


@pytest.mark.parametrize(("document", "container"), own(EACH), ids=lambda each: each.get("kind") or each["name"])
def test_containers_of_e3_run_commands_that_it_has(document: Manifest, container: dict[str, Any]) -> None:
    assert container["image"] == f"{OURS}:{__version__}"
    assert commands_of(container)
    for words in commands_of(container):
        command: Any = typer.main.get_command(app)
        options = words
        while listed := getattr(command, "commands", {}):
            assert options[0] in listed, words
            command, options = getattr(command, "load", listed.get)(options[0]), options[1:]
        known = {option for each in command.params for option in each.opts}
        assert {word for word in options if word.startswith("--")} <= known
        if "--render-seconds" in options:
            Duration.parse(options[options.index("--render-seconds") + 1])


@pytest.mark.parametrize(("document", "container"), own(EACH), ids=lambda each: each.get("kind") or each["name"])
def test_variables_of_services_are_not_taken_for_settings(document: Manifest, container: dict[str, Any]) -> None:
    pod = pod_of(document)
    assert pod is not None
    assert pod["enableServiceLinks"] is False


def environment_of(container: dict[str, Any], secrets: dict[str, dict[str, str]]) -> dict[str, str]:
    """The variables of a container, with what Kubernetes puts in."""
    found: dict[str, str] = {}
    for each in container.get("envFrom", []):
        found |= secrets[each["secretRef"]["name"]]
    for each in container["env"]:
        if "value" in each:
            found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], each["value"])
        else:
            reference = each["valueFrom"]["secretKeyRef"]
            found[each["name"]] = secrets[reference["name"]][reference["key"]]
    return found


def simulated_secrets() -> dict[str, dict[str, str]]:
    made = [each for each in BUILT["simulator"] if each["kind"] == "Secret"]
    return {
        each["metadata"]["name"]: {key: base64.b64decode(value).decode() for key, value in each["data"].items()}
        for each in made
    }


def config_of(overlay: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(find(BUILT[overlay], "ConfigMap", "e3-config")["data"]["global_config.yaml"])
    return found


def workspace_in(folder: Path, overlay: str) -> Path:
    """The workspace that a pod sees."""
    for name, place in (("e3-config", "config"), ("e3-workflows", "workflows")):
        (folder / place).mkdir()
        for file, text in find(BUILT[overlay], "ConfigMap", name)["data"].items():
            (folder / place / file).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("overlay", ["base", "keda"])
@pytest.mark.parametrize("workload", ["e3-agent", "e3-page"])
def test_e3_accepts_its_configuration(overlay: str, workload: str, tmp_path: Path) -> None:
    container = pod_of(find(BUILT[overlay], "Deployment", workload))["containers"][0]  # type: ignore[index]
    given = environment_of(container, simulated_secrets())
    workspace = load_workspace(workspace_in(tmp_path, overlay), given)
    assert workspace.database == "postgresql://e3@database.e3.svc.cluster.local:5432/e3"
    assert "only-to-try" not in workspace.database_name
    assert workspace.settings.ui.port == find(BUILT[overlay], "Service", "e3-page")["spec"]["ports"][0]["port"]


def test_the_two_configurations_differ_in_their_servers_only() -> None:
    base, keda = (config_of(name) for name in ("base", "keda"))
    for each in (base, keda):
        each["comfyui"].pop("servers")
    assert base == keda


def test_workflows_are_those_that_e3_brings_along(tmp_path: Path) -> None:
    samples = ROOT / "src" / "comfyui_agent" / "config" / "samples"
    folder = workspace_in(tmp_path, "base")
    for file in (folder / "workflows").iterdir():
        assert file.read_text() == (samples / "workflows" / file.name).read_text()
    ours, theirs = ({**load(each / "workflows.yaml")[0]} for each in (folder / "config", samples))
    assert ours == {name: theirs[name] for name in ours}


def addresses(count: int) -> list[str]:
    return [f"http://comfyui-{number}.comfyui:8188" for number in range(count)]


def servers_of(overlay: str) -> list[str]:
    servers: list[str] = config_of(overlay)["comfyui"]["servers"]
    return servers


def test_agents_know_every_server_that_may_be_started() -> None:
    assert servers_of("simulator") == addresses(find(BUILT["simulator"], "StatefulSet", "comfyui")["spec"]["replicas"])
    assert servers_of("base") == addresses(find(BUILT["comfyui"], "StatefulSet", "comfyui")["spec"]["replicas"])
    assert servers_of("keda") == addresses(find(BUILT["keda"], "ScaledObject", "comfyui")["spec"]["maxReplicaCount"])
    for overlay in ("comfyui", "simulator"):
        service = find(BUILT[overlay], "Service", "comfyui")
        assert find(BUILT[overlay], "StatefulSet", "comfyui")["spec"]["serviceName"] == service["metadata"]["name"]
        assert (service["spec"]["clusterIP"], service["spec"]["ports"][0]["port"]) == ("None", 8188)


def test_keda_alone_says_how_many_there_are_and_never_sends_the_last_agent_away() -> None:
    scaled = [each["spec"] for each in BUILT["keda"] if each["kind"] == "ScaledObject"]
    assert len(scaled) == 2
    for spec in scaled:
        target = find(BUILT["keda"], spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"])
        assert "replicas" not in target["spec"]
        assert spec["minReplicaCount"] <= spec["maxReplicaCount"]
    assert find(BUILT["keda"], "ScaledObject", "e3-agent")["spec"]["minReplicaCount"] >= 1


def test_both_rules_ask_for_the_age_of_the_queue_by_columns_and_the_index_that_exist() -> None:
    scaled = [each["spec"]["triggers"][0] for each in BUILT["keda"] if each["kind"] == "ScaledObject"]
    (query,) = {each["metadata"]["query"] for each in scaled}
    assert {each["authenticationRef"]["name"] for each in scaled} == {"e3-database"}
    assert query.count("status = 'pending' AND hold IS NULL AND reserved IS NULL") == 3
    schema = "".join(
        file.read_text(encoding="utf-8")
        for file in sorted((ROOT / "src/comfyui_agent/store/sqlite/migrations").glob("*.sql"))
    )
    condition = r"ON jobs\(priority, id\) WHERE status = 'pending' AND hold IS NULL AND reserved IS NULL"
    assert re.search(condition, schema)
    for column in ("hold", "reserved", "created_at", "start_time", "priority", "status"):
        assert re.search(rf"\b{column}\b", query)
        assert re.search(rf"\b{column}\b", schema)


def test_an_agent_has_time_to_leave_and_is_watched_by_its_lock_file() -> None:
    pod = pod_of(find(BUILT["base"], "Deployment", "e3-agent"))
    assert pod is not None
    (agent,) = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] >= 5
    assert agent["args"] == ["execute"]
    assert agent["startupProbe"]["exec"] == agent["livenessProbe"]["exec"]
    assert "readinessProbe" not in agent


@pytest.mark.skipif(sys.platform != "linux", reason="the probe is for the container")
def test_the_probe_tells_a_loop_that_runs_from_one_that_hangs(tmp_path: Path) -> None:
    (agent,) = pod_of(find(BUILT["base"], "Deployment", "e3-agent"))["containers"]  # type: ignore[index]
    probe = [word.replace("/workspace", str(tmp_path)) for word in agent["livenessProbe"]["exec"]["command"]]
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    in_compose = compose["services"]["agent-scale"]["healthcheck"]["test"][-1]
    assert in_compose == agent["livenessProbe"]["exec"]["command"][-1]

    def is_alive() -> bool:
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0

    assert not is_alive()
    lock = AgentLock(load_workspace(tmp_path, {}).locks)
    assert is_alive()
    os.utime(lock.path, times=(time.time() - 90,) * 2)
    assert not is_alive()
    lock.beat()
    assert is_alive()
    lock.release()
    assert not is_alive()


@overlays
def test_the_readme_names_every_folder(overlay: str) -> None:
    assert f"`{overlay}/`" in README
