"""`e3 profile` finds what is known to be there: the time to load, the time to render, the memory, and what is wrong."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.comfy import client
from comfyui_agent.comfy.answers import Freed
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.lab.files import today
from comfyui_agent.lab.payloads import Payload
from comfyui_agent.lab.profiling import profile
from comfyui_agent.sim.process import ServerProcess, simulator
from support.graphs import empty_image, node, picture
from support.sampled_graphs import text_to_image
from support.shared_servers import HAS_REAL, Servers
from support.terminal import in_terminal
from support.workspaces import NOWHERE, call_e3, new_workspace

LOAD, RENDER = 0.8, 0.5
FIRST_WARM_RUN = re.compile(r"━+─+ portrait  warm run 1 of 90  KSampler, step \d of 10")
DAY = "infra/comfyui/profiling/????-??-??"
REPORT_KEYS = {
    *("workflow", "server", "duration_sec", "cold_duration_sec", "gpu_trace", "gpu_source", "peak_vram_mb"),
    *("idle_vram_mb", "vram_total_mb", "model_load_sec", "sampling_sec", "transfer_sec", "nodes", "runs"),
    *("fits_at_once", "warnings", "partial", "environment", "avg_gpu_util"),
}
RUN_KEYS = {
    *("kind", "prompt_id", "started_at", "seconds", "duration_sec", "queue_sec", "exec_sec", "transfer_sec"),
    *("model_load_sec", "sampling_sec", "other_sec", "peak_vram_mb", "cached", "nodes"),
}


def portrait(folder: Path, name: str = "portrait.json", **changes: Any) -> Path:
    """A workflow whose sampler takes ten steps."""
    graph = text_to_image("a lighthouse", 7, checkpoint="auto", steps=10)
    graph["4"]["inputs"] |= {"width": 64, "height": 64}
    graph["5"]["inputs"] |= changes
    graph["5"]["_meta"] = {"title": "The sampler"}
    (folder / name).write_text(json.dumps(graph), encoding="utf-8")
    return folder / name


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(f"{DAY}/{pattern}")
    return found


def history_of(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/history", timeout=5) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def interrupted_at(url: str) -> set[str]:
    """The prompts that a server was told to leave."""
    return {prompt_id for prompt_id, entry in history_of(url).items() if "interrupted" in json.dumps(entry["status"])}


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulators need not be looked at as slowly as graphics cards."""
    monkeypatch.setattr(profile, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(client, "FREE_POLL_SECONDS", 0.05)


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that takes a known time to load a model, and to render."""
    flags = ("--render-seconds", str(RENDER), "--model-load-seconds", str(LOAD))
    server = simulator(tmp_path_factory.mktemp("paced"), *flags).start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def measured(paced: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A workspace after `e3 profile`, and the report that it printed."""
    folder = tmp_path_factory.mktemp("measured")
    answer = call_e3("profile", str(portrait(folder)), "--runs", "2", "--server", paced.url, "--json", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    (report,) = json.loads(answer.stdout)
    return folder, report


Measured = tuple[Path, dict[str, Any]]


@pytest.mark.slow
@pytest.mark.timing
def test_known_times_are_found_within_a_tenth(measured: Measured) -> None:
    """By the server's own clock, which knows how long its sleeps really took on a busy machine."""
    report = measured[1]
    cold, *warm = [run["exec_sec"] for run in report["runs"]]
    usual = sum(warm) / 2
    assert report["model_load_sec"] == pytest.approx(cold - usual, rel=0.1, abs=0.1)
    assert LOAD * 0.95 < report["model_load_sec"] < LOAD * 2
    assert report["sampling_sec"] == pytest.approx(usual, rel=0.1, abs=0.1)
    assert RENDER * 0.95 < report["sampling_sec"] < RENDER * 2
    assert report["duration_sec"] == pytest.approx(usual, rel=0.1, abs=0.2)
    assert report["cold_duration_sec"] == pytest.approx(cold, rel=0.1, abs=0.2)
    assert max(run["model_load_sec"] for run in report["runs"][1:]) < 0.3 * LOAD


@pytest.mark.slow
@pytest.mark.timing
def test_the_node_that_costs_most_comes_first_with_its_share_and_its_steps(measured: Measured) -> None:
    report = measured[1]
    first, *others = report["nodes"]
    assert (first["node_id"], first["class_type"], first["title"]) == ("5", "KSampler", "The sampler")
    assert first["steps"] == 10
    assert first["share"] > 0.9
    assert first["cold_sec"] == pytest.approx(report["runs"][0]["exec_sec"], rel=0.1)
    assert first["warm_sec"] == pytest.approx(report["runs"][1]["exec_sec"], rel=0.1, abs=0.1)
    assert {each["node_id"] for each in others} == {"1", "2", "3", "4", "6", "7"}
    loader = next(each for each in others if each["node_id"] == "1")
    assert (loader["warm_sec"], loader["share"]) == (0.0, 0.0)  # warm runs take it from the cache
    assert sum(each["share"] for each in report["nodes"]) == pytest.approx(1.0, abs=0.01)


def test_the_parts_of_every_run_are_told_apart(measured: Measured) -> None:
    report = measured[1]
    assert set(report) == REPORT_KEYS
    assert [run["kind"] for run in report["runs"]] == ["cold", "warm", "warm"]
    for run in report["runs"]:
        assert set(run) == RUN_KEYS
        assert run["cached"] is False
        assert 0 <= run["queue_sec"] < RENDER
        assert 0 < run["transfer_sec"] < RENDER
        parts = run["model_load_sec"] + run["sampling_sec"] + run["other_sec"]
        assert parts == pytest.approx(run["exec_sec"], rel=0.1, abs=0.1)
        assert run["exec_sec"] <= run["duration_sec"] + 0.01
    assert [node["node_id"] for node in report["runs"][1]["nodes"]] == ["5", "6", "7"]
    assert report["warnings"] == []
    assert report["partial"] is False


def test_memory_is_that_of_the_simulated_card(measured: Measured) -> None:
    report = measured[1]
    model, peak = 4096, 4096 + 6
    assert (report["idle_vram_mb"], report["peak_vram_mb"], report["vram_total_mb"]) == (0, peak, 24_576)
    assert [run["peak_vram_mb"] for run in report["runs"]] == [peak] * 3
    assert report["fits_at_once"]["count"] == 5
    assert report["gpu_source"] == "system_stats"
    assert {*report["gpu_trace"][0]} == {"ts", "seconds", "gpu_util", "gpu_mem_mb", "server"}
    assert {0, peak} <= {sample["gpu_mem_mb"] for sample in report["gpu_trace"]} <= {0, model, peak}
    last = report["runs"][-1]
    assert report["gpu_trace"][-1]["seconds"] > last["seconds"]


def test_it_says_on_what_it_was_measured(measured: Measured) -> None:
    folder, report = measured
    assert (
        report["workflow"] == Payload.of("portrait", json.loads((folder / "portrait.json").read_text())).facts.as_json()
    )
    environment = report["environment"]
    assert environment["kind"] == "profile"
    assert environment["parameters"]["runs"] == 2
    assert environment["servers"][0]["server"] == report["server"]
    assert environment["machine"]["cores"] >= 1
    assert environment["started_at"] < environment["ended_at"]


def test_the_report_the_raw_samples_and_a_page_lie_in_a_folder_of_the_day(measured: Measured) -> None:
    folder, report = measured
    assert json.loads(only(folder, "portrait.json").read_text(encoding="utf-8")) == report
    assert "portrait" in only(folder, "report.html").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in only(folder, "portrait.samples.ndjson").read_text().splitlines()]
    assert [{**line, "kind": None} for line in lines if line["kind"] == "gpu"] == [
        {"kind": None, **sample} for sample in report["gpu_trace"]
    ]
    heard = [line for line in lines if line["kind"] == "moment" and line["run"] == 1]
    assert [line["moment"] for line in heard] == ["start", "node", *["step"] * 10, "node", "node", "success", "end"]
    assert {line["prompt_id"] for line in heard} == {report["runs"][1]["prompt_id"]}


def test_an_earlier_profile_of_the_day_is_kept_and_people_get_a_few_lines(servers: Servers, tmp_path: Path) -> None:
    url = servers.url("sim")
    new_workspace(tmp_path, url)
    folder = tmp_path / "infra" / "comfyui" / "profiling" / today()
    folder.mkdir(parents=True)
    (folder / "wf_realistic_portrait.json").write_text("earlier")
    (folder / "report.html").write_text("earlier")
    answer = call_e3("profile", "wf_realistic_portrait", "--runs", "1", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert (folder / "wf_realistic_portrait.json").read_text() == (folder / "report.html").read_text() == "earlier"
    assert json.loads((folder / "wf_realistic_portrait_2.json").read_text())["partial"] is False
    assert (folder / "wf_realistic_portrait_2.samples.ndjson").is_file()
    lines = answer.stdout.splitlines()
    assert lines[0].startswith(f"Profiling on {url}")
    assert lines[1] == "◐ Rendering  wf_realistic_portrait  cold run"
    assert lines[2].startswith("● Done  wf_realistic_portrait  cold run  ")
    assert lines[3] == "◐ Rendering  wf_realistic_portrait  warm run 1 of 1"
    assert any(line.startswith("● wf_realistic_portrait: ") for line in lines)
    assert any("6 such servers fit on this card side by side" in line for line in lines)
    assert any(line.split()[:2] == ["5", "KSampler"] for line in lines)
    assert lines[-1] == f"Report: {folder / 'report_2.html'}"


def test_a_picture_that_a_workflow_takes_by_default_is_brought_to_the_server(servers: Servers, tmp_path: Path) -> None:
    new_workspace(tmp_path, servers.url("sim"))
    recipes = tmp_path / "config" / "workflows.yaml"
    entry = "wf_image_to_image:\n  template_path: workflows/wf_image_to_image.json\n"
    entry += "  inputs: {image: '4.image', checkpoint: '1.ckpt_name'}\n"
    recipes.write_text(f"{entry}  defaults: {{image: pictures/castle.png, checkpoint: auto}}\n")
    answer = call_e3("profile", "wf_image_to_image", "--runs", "1", "--json", "-C", str(tmp_path), cwd=tmp_path.parent)
    assert answer.returncode == 0, answer.stderr
    (report,) = json.loads(answer.stdout)
    assert "LoadImage" in {each["class_type"] for each in report["nodes"]}


def test_a_sample_page_is_known_by_its_name(servers: Servers, tmp_path: Path) -> None:
    answer = call_e3("profile", "book_small", "--runs", "1", "--server", servers.url("sim"), "--json", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert [report["workflow"]["name"] for report in json.loads(answer.stdout)] == ["book_small"]


def test_a_workflow_that_is_rejected_is_one_line_and_the_others_are_measured(servers: Servers, tmp_path: Path) -> None:
    rejected = portrait(tmp_path, "rejected.json", sampler_name="no such sampler")
    unknown = tmp_path / "unknown.json"
    unknown.write_text(json.dumps({"1": node("NoSuchNode")}), encoding="utf-8")
    files = [str(each) for each in (rejected, unknown, portrait(tmp_path))]
    answer = call_e3("profile", *files, "--runs", "1", "--server", servers.url("sim"), "--json", cwd=tmp_path)
    assert answer.returncode == 1
    assert [report["workflow"]["name"] for report in json.loads(answer.stdout)] == ["portrait"]
    complaints = [line for line in answer.stderr.splitlines() if line.startswith("e3: ")]
    assert len(complaints) == 2
    assert "unknown: " in complaints[0]
    assert "has no node 'NoSuchNode'" in complaints[0]
    assert "rejected: invalid: " in complaints[1]
    assert "node 5 (KSampler)" in complaints[1]
    assert not list(tmp_path.glob(f"{DAY}/rejected*"))


def test_a_server_that_is_absent_is_one_line(tmp_path: Path) -> None:
    answer = call_e3("profile", str(portrait(tmp_path)), "--server", NOWHERE, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert len(answer.stderr.splitlines()) == 1
    assert "cannot be reached" in answer.stderr
    assert "--server" in answer.stderr


@pytest.mark.parametrize("name", ["nothing.json", "nothing"])
def test_a_workflow_that_is_not_there_is_one_line(tmp_path: Path, name: str) -> None:
    answer = call_e3("profile", name, "--server", NOWHERE, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert len(answer.stderr.splitlines()) == 1
    assert "nothing" in answer.stderr
    assert "reached" not in answer.stderr


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_sent(servers: Servers, tmp_path: Path) -> None:
    url = servers.url("sim")
    before = history_of(url).keys()
    (tmp_path / "file").write_text("")
    workflow = str(portrait(tmp_path))
    answer = call_e3("profile", workflow, "--server", url, "--output", str(tmp_path / "file" / "below"), cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert len(answer.stderr.splitlines()) == 1
    assert "--output" in answer.stderr
    assert history_of(url).keys() == before


def test_a_run_that_fails_ends_that_profile_and_what_was_measured_is_kept(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    url = comfyui_simulator("--failure-rate", "0.5", "--seed", "2").url  # with this seed the first one succeeds
    answer = call_e3("profile", str(portrait(tmp_path)), "--runs", "50", "--server", url, "--json", cwd=tmp_path)
    assert answer.returncode == 1
    (report,) = json.loads(answer.stdout)
    assert 1 <= len(report["runs"]) < 51
    assert report["partial"] is True
    assert "the simulator was told to fail" in report["warnings"][0]
    assert "the simulator was told to fail" in answer.stderr
    assert json.loads(only(tmp_path, "portrait.json").read_text()) == report


def test_a_run_that_takes_too_long_is_given_up_and_taken_back(paced: ServerProcess, tmp_path: Path) -> None:
    before = interrupted_at(paced.url)
    arguments = ("--server", paced.url, "--timeout", "0.2")
    answer = call_e3("profile", str(portrait(tmp_path)), *arguments, cwd=tmp_path)
    assert answer.returncode == 1
    assert "no result after 0.2 s" in answer.stderr
    assert "--timeout" in answer.stderr
    assert "Nothing was measured." in answer.stdout
    assert len(interrupted_at(paced.url) - before) == 1


def test_runs_that_the_cache_answered_are_said_to_have_measured_nothing(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Payload, "varied", lambda self, index, _, prefix: self.same(index, prefix))
    arguments = ("--runs", "2", "--server", servers.url("sim"))
    answer = call_e3("profile", str(portrait(tmp_path)), *arguments, "--json", cwd=tmp_path)
    assert answer.returncode == 0
    (report,) = json.loads(answer.stdout)
    assert [run["cached"] for run in report["runs"]] == [False, True, True]
    assert report["warnings"] == ["2 of 3 runs were answered from the server's cache and measured nothing."]
    assert report["duration_sec"] is None
    assert report["cold_duration_sec"] > 0


def test_a_node_that_leads_nowhere_hides_no_answer_of_the_cache(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers run what outputs need: the rest is neither run nor cached."""
    monkeypatch.setattr(Payload, "varied", lambda self, index, _, prefix: self.same(index, prefix))
    workflow = portrait(tmp_path)
    graph = json.loads(workflow.read_text(encoding="utf-8")) | {"99": empty_image(color=1)}
    workflow.write_text(json.dumps(graph), encoding="utf-8")
    answer = call_e3("profile", str(workflow), "--runs", "1", "--server", servers.url("sim"), "--json", cwd=tmp_path)
    (report,) = json.loads(answer.stdout)
    assert [run["cached"] for run in report["runs"]] == [False, True]


async def _keep_all(self: ComfyClient, **_: Any) -> Freed:
    return Freed(0, 0, came_free=False)


def test_a_server_that_frees_nothing_is_warned_about(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ComfyClient, "free", _keep_all)
    arguments = ("profile", str(portrait(tmp_path)), "--runs", "1", "--server", servers.url("sim"), "--json")
    assert call_e3(*arguments, cwd=tmp_path).returncode == 0
    (report,) = json.loads(call_e3(*arguments, cwd=tmp_path).stdout)
    assert [warning for warning in report["warnings"] if "in spite of /free" in warning]


def test_a_websocket_that_tells_nothing_or_has_gaps_is_warned_about(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("profile", str(portrait(tmp_path)), "--runs", "1", "--server", servers.url("sim"), "--json")
    counts = iter(range(1, 1000))
    monkeypatch.setattr(ComfyClient, "websocket_connections", property(lambda _: next(counts)))
    (gaps,) = json.loads(call_e3(*arguments, cwd=tmp_path).stdout)
    assert [warning for warning in gaps["warnings"] if "have gaps" in warning]
    monkeypatch.setattr(profile, "node_times", lambda *_: [])
    (silent,) = json.loads(call_e3(*arguments, cwd=tmp_path).stdout)
    assert [warning for warning in silent["warnings"] if "told nothing" in warning]
    assert (silent["nodes"], silent["model_load_sec"], silent["sampling_sec"]) == ([], None, None)
    assert silent["duration_sec"] > 0


def test_other_work_at_the_server_is_warned_about(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    url = comfyui_simulator().url
    others = picture()
    others["2"]["inputs"]["images"] = ["3", 0]
    others["3"] = node("Sleep", value=["1", 0], seconds=2.0)
    body = json.dumps({"prompt": others}).encode()
    request = urllib.request.Request(f"{url}/prompt", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=5).close()
    answer = call_e3("profile", str(portrait(tmp_path)), "--runs", "1", "--server", url, "--json", cwd=tmp_path)
    (report,) = json.loads(answer.stdout)
    assert answer.returncode == 0
    assert report["warnings"][0].startswith("The server had other work: the times are not clean.")
    assert report["runs"][0]["queue_sec"] > 0.1  # behind the other prompt, and no part of the execution
    assert report["runs"][0]["exec_sec"] < report["runs"][0]["duration_sec"] - 0.1


def test_on_a_terminal_steps_are_shown_and_ctrl_c_keeps_what_was_measured(paced: ServerProcess, tmp_path: Path) -> None:
    arguments = ("profile", str(portrait(tmp_path)), "--runs", "90", "--server", paced.url)
    before = interrupted_at(paced.url)
    with in_terminal(*arguments, cwd=tmp_path) as terminal:
        terminal.wait_for(lambda: bool(FIRST_WARM_RUN.search(terminal.text)))
        terminal.press_ctrl_c()
        assert terminal.finish() == 130
    screen = terminal.screen
    assert screen.has_cursor
    assert screen.strange == []
    assert "KSampler, step" not in screen.text
    assert "△ portrait: " in screen.text
    assert ", partial." in screen.text
    report = json.loads(only(tmp_path, "portrait.json").read_text())
    assert report["partial"] is True
    assert [run["kind"] for run in report["runs"]] == ["cold"]
    assert report["duration_sec"] is None
    assert report["cold_duration_sec"] > LOAD + RENDER
    assert only(tmp_path, "report.html")
    assert len(interrupted_at(paced.url) - before) == 1  # the prompt under way was taken back


@pytest.mark.real_comfyui
@pytest.mark.skipif(not HAS_REAL, reason="needs a real ComfyUI")
def test_a_real_server_is_profiled_by_the_same_command(servers: Servers, tmp_path: Path) -> None:
    workflow = portrait(tmp_path, steps=2)
    answer = call_e3("profile", str(workflow), "--runs", "2", "--server", servers.url("real"), "--json", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    (report,) = json.loads(answer.stdout)
    cold, *warm = report["runs"]
    assert {each["node_id"] for each in cold["nodes"]} == {"1", "2", "3", "4", "5", "6", "7"}
    assert [[each["node_id"] for each in run["nodes"]] for run in warm] == [["5", "6", "7"]] * 2
    assert report["nodes"][0]["class_type"] in ("KSampler", "VAEDecode")
    assert next(each["steps"] for each in report["nodes"] if each["node_id"] == "5") == 2
    assert report["model_load_sec"] > 0
    assert report["sampling_sec"] > 0
    for run in report["runs"]:
        assert sum(each["seconds"] for each in run["nodes"]) == pytest.approx(run["exec_sec"], rel=0.1, abs=0.05)
    assert report["warnings"] == []
