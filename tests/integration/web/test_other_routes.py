"""Servers, workflows, reports, how it stands, who asks: what is known is told, and what is unknown is not found."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from html import escape
from urllib.parse import quote

import pytest
import pytest_asyncio

from comfyui_agent import __version__
from comfyui_agent.comfy.frames import Preview
from comfyui_agent.engine.live_files import LiveFile
from comfyui_agent.engine.live_runs import LiveRun, want_previews
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.errors import DatabaseAway
from support.pictures import png
from support.shared_servers import Servers
from support.web import Keys, Served, bearer, check_problem, served, watching

pytestmark = pytest.mark.asyncio(loop_scope="module")

REPORT = "infra/observability/load_2025-11-16T020800Z"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rendering(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> AsyncIterator[Served]:
    """A workspace with a server that answers."""
    async with served(tmp_path_factory.mktemp("rendering"), servers.url("sim")) as house:
        yield house


async def test_a_server_that_answers_is_reported_with_its_devices_and_its_queue(rendering: Served) -> None:
    [server] = (await rendering.get("/api/v1/servers")).value
    assert server["url"] == rendering.workspace.settings.comfyui.urls[0]
    assert (server["state"], server["queue_running"], server["queue_pending"]) == ("up", 0, 0)
    assert server["devices"][0].keys() == {"name", "type", "vram_total", "vram_free"}
    assert (server["runs"], server["error"]) == ([], None)


async def test_running_jobs_show_step_and_picture_while_their_agent_lives(
    rendering: Served,
) -> None:
    job = await rendering.job("under-way", priority=-9)
    [leased] = await rendering.lease()
    folder, server = rendering.workspace.locks, rendering.workspace.settings.comfyui.urls[0]
    agent = AgentLock(folder)
    file = LiveFile(folder, agent.worker)
    now = LiveRun(job.id, "under-way", None, server, "rendering", "KSampler", 3, 20, leased.prompt_id)
    try:
        want_previews(folder)
        file.write([(now, Preview(png(), "image/png", "5", leased.prompt_id))])
        await eventually_live(rendering, is_live=True)
        live = (await rendering.get("/api/v1/jobs/under-way")).value["live"]
        assert (live["stage"], live["node_type"], live["step"], live["steps"]) == ("rendering", "KSampler", 3, 20)
        picture = await rendering.get(live["preview"])
        assert (picture.headers["Content-Type"], picture.body) == ("image/png", png())
        [shown] = (await rendering.get("/api/v1/servers")).value
        assert [run["config_name"] for run in shown["runs"]] == ["under-way"]
    finally:
        file.remove()
        agent.release()
    await eventually_live(rendering, is_live=False)
    check_problem(await rendering.get("/api/v1/jobs/under-way/preview"), 409)
    await rendering.finish(leased)


async def eventually_live(house: Served, *, is_live: bool) -> None:
    """What is at work is looked at now and then."""
    deadline = time.monotonic() + 5
    while ((await house.get("/api/v1/jobs/under-way")).value["live"] is not None) is not is_live:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_a_server_that_is_gone_is_reported_as_down(house: Served) -> None:
    [server] = (await house.get("/api/v1/servers")).value
    assert (server["state"], server["version"], server["devices"]) == ("down", None, [])
    assert server["error"]


async def test_a_server_is_paused_drained_and_resumed_by_its_name(rendering: Served) -> None:
    [server] = (await rendering.get("/api/v1/servers")).value
    address = f"/api/v1/servers/{server['name']}"
    for action, state, seen in (
        ("pause", "paused", "paused"),
        ("drain", "drained", "drained"),
        ("resume", "working", "up"),
    ):
        answer = await rendering.post(f"{address}/{action}")
        assert answer.status == 202
        assert answer.value == {"name": server["name"], "url": server["url"], "state": state}
        assert (await rendering.get("/api/v1/servers")).value[0]["state"] == seen


@pytest.mark.parametrize("action", ["pause", "drain", "resume"])
async def test_an_unknown_server_is_not_found(house: Served, action: str) -> None:
    for name in ("gpu77", "http:%2F%2Fexample.com:8188", "%00", "..", "[::1"):
        check_problem(await house.post(f"/api/v1/servers/{name}/{action}"), 404)
    assert not await house.store.run(ops.servers_out_of_work)


async def test_workflows_are_listed_and_shown_with_every_place(house: Served) -> None:
    listed = {each["workflow_id"]: each for each in (await house.get("/api/v1/workflows")).value["workflows"]}
    assert {"picture", "wf_realistic_portrait"} <= listed.keys()
    assert "prompt" in listed["wf_realistic_portrait"]["required_inputs"]
    assert all(each["problem"] is None for each in listed.values())
    shown = (await house.get("/api/v1/workflows/picture")).value
    assert shown["workflow_id"] == "picture"
    assert "1.color" in json.dumps(shown["places"])
    assert str(house.workspace.root) not in json.dumps(shown)


async def test_a_workflow_that_cannot_be_used_is_listed_with_the_reason(house: Served) -> None:
    path = house.workspace.root / "workflows" / "torn.json"
    path.write_text('{"1": ', encoding="utf-8")
    try:
        listed = {each["workflow_id"]: each for each in (await house.get("/api/v1/workflows")).value["workflows"]}
        assert listed["torn"]["problem"]
        said = check_problem(await house.get("/api/v1/workflows/torn"), 404)
        assert str(house.workspace.root) not in str([said, listed])
    finally:
        path.unlink()


async def test_recipes_that_cannot_be_read_are_a_conflict_that_says_what_to_mend(house: Served) -> None:
    recipes = house.workspace.recipes
    before = recipes.read_text(encoding="utf-8")
    recipes.write_text("wf_realistic_portrait: [", encoding="utf-8")
    try:
        for path in ("/api/v1/workflows", "/api/v1/workflows/picture"):
            assert "workflows.yaml" in check_problem(await house.get(path), 409)["remedy"]
        wish = {"job_type": "T2I", "workflow_id": "picture"}
        check_problem(await house.post("/api/v1/jobs", wish), 409)
        check_problem(await house.post("/api/v1/jobs/retry", {"failed": True}), 409)
    finally:
        recipes.write_text(before, encoding="utf-8")
    assert (await house.get("/api/v1/workflows/picture")).status == 200


@pytest.mark.parametrize("name", ["nowhere", "picture.json", "..%2Fpicture", "..", "%00", "%2Fetc%2Fpasswd", "x" * 200])
async def test_an_unknown_workflow_is_not_found(house: Served, name: str) -> None:
    check_problem(await house.get(f"/api/v1/workflows/{name}"), 404)


async def test_reports_of_the_lab_are_listed_and_shown_where_scripts_cannot_run(house: Served) -> None:
    folder = house.workspace.root / "infra" / "observability"
    folder.mkdir(parents=True, exist_ok=True)
    (house.workspace.root / f"{REPORT}.json").write_text('{"summary": {"total_jobs": 3, "completed": 3}}')
    (house.workspace.root / f"{REPORT}.html").write_text("<title>Load</title><script>alert(1)</script>")
    [report] = (await house.get("/api/v1/reports")).value["reports"]
    assert report["path"] == f"{REPORT}.html"
    assert (report["kind"], report["written_at"][:10]) == ("Load test", "2025-11-16")
    page = await house.get(report["url"])
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Content-Security-Policy"].startswith("sandbox;")
    assert "script-src" not in page.headers["Content-Security-Policy"]
    document = await house.get(f"/api/v1/reports/{REPORT}.json")
    assert document.value["summary"]["completed"] == 3


@pytest.mark.parametrize(
    "path",
    [
        "config/global_config.yaml",
        "database/comfyui_agent.db",
        "infra/observability/comfyui_metrics.ndjson",
        "infra/observability/load_x.json",
        "../../etc/passwd",
        "..%2F..%2Fetc%2Fpasswd",
        "infra/observability/..%2F..%2Fconfig%2Fglobal_config.yaml",
        "%2Fetc%2Fpasswd",
        "infra%5Cobservability%5Cload_x.json",
        "%00",
        "x" * 1000,
    ],
)
async def test_what_is_no_report_is_not_found(house: Served, path: str) -> None:
    said = check_problem(await house.get(f"/api/v1/reports/{path}"), 404)
    assert str(house.workspace.root) not in str(said)


async def test_how_it_stands_is_reported_with_counts_and_a_sentence(rendering: Served) -> None:
    await rendering.job("one")
    status = (await rendering.get("/api/v1/status")).value
    assert (status["counts"]["pending"], status["counts"]["processing"]) == (1, 0)
    assert "1 wait" in status["sentence"]
    assert (status["agents"], status["version"]) == (0, __version__)
    assert status["queue_age_seconds"] >= 0
    assert status["images_per_minute"] is not None
    await rendering.post("/api/v1/jobs/one/cancel")
    assert (await rendering.get("/api/v1/status")).value["images_per_minute"] is None, "there is none when idle"
    await rendering.job("two")
    [leased] = await rendering.lease()
    await rendering.store.run(ops.complete_job, leased.lease, [], 1.0)
    assert (await rendering.get("/api/v1/status")).value["sentence"].startswith("The last work: ")


async def test_callers_learn_who_they_are(house: Served, locked_house: tuple[Served, Keys]) -> None:
    assert (await house.get("/api/v1/me")).value == {"role": "admin", "token": None}
    locked, keys = locked_house
    assert (await locked.get("/api/v1/me", headers=bearer(keys.user))).value == {"role": "user", "token": "user"}
    assert (await locked.get("/api/v1/me", headers=bearer(keys.admin))).value == {"role": "admin", "token": "admin"}


async def test_the_document_is_complete_and_needs_nothing_from_elsewhere(house: Served) -> None:
    document = (await house.get("/openapi.json")).value
    assert document["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation.get("description"), f"{method} {path} says nothing"
            problems = [code for code in operation["responses"] if code >= "400"]
            if not path.startswith(("/healthz", "/readyz", "/metrics")):
                assert {"401", "403", "422", "429", "503"} <= set(problems), f"{method} {path}"
                kinds = {kind for code in problems for kind in operation["responses"][code]["content"]}
                assert kinds == {"application/problem+json"}, f"{method} {path}"
    page = await house.get("/docs")
    assert "http://" not in page.text.replace("http://www.w3.org", "")
    assert "https://" not in page.text


async def test_bounds_of_numbers_stand_in_the_document_as_its_readers_expect_them(house: Served) -> None:
    schemas = (await house.get("/openapi.json")).value["components"]["schemas"]
    assert schemas["PrioritySaid"]["properties"]["priority"]["minimum"] == -(2**31)
    [number, _] = schemas["NewJobSaid"]["properties"]["timeout_seconds"]["anyOf"]
    assert (number["exclusiveMinimum"], number["maximum"]) == (0, 604800)


@pytest.mark.parametrize("name", ["what? & #1", "100%41", "100%2541", "a+b c", "\u96ea", "..yaml", "x;y=1", "~", "%"])
async def test_a_job_is_found_at_its_address_whatever_letters_are_in_its_name(house: Served, name: str) -> None:
    job = await house.job(f"page of {name}")
    address = f"jobs/{quote(job.config_name, safe='')}"
    assert (await house.get(f"/api/v1/{address}")).value["id"] == job.id
    page = await house.get(f"/{address}")
    assert page.status == 200, page.text
    assert escape(job.config_name) in page.text
    async with watching(house, f"/stream?page={quote('/' + address, safe='')}"):
        pass


async def test_while_the_database_is_away_that_is_said_and_nothing_breaks(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise DatabaseAway("the database is locked by another process")

    monkeypatch.setattr(house.store, "run", away)
    wish = {"job_type": "T2I", "workflow_id": "picture"}
    for method, path, body in (
        ("GET", "/api/v1/jobs", None),
        ("POST", "/api/v1/jobs", wish),
        ("GET", "/api/v1/jobs/x", None),
        ("GET", "/api/v1/batches", None),
        ("GET", "/api/v1/books/x", None),
        ("POST", "/books/x/regenerate", None),
        ("GET", "/api/v1/status", None),
        ("GET", "/api/v1/servers", None),
        ("GET", "/queue", None),
    ):
        answer = await house.ask(method, path, body)
        assert "locked" in check_problem(answer, 503)["detail"], path
        assert answer.headers["Retry-After"] == "2"
    assert (await house.get("/healthz")).status == 200
