"""What Comfy API v2 answers to what is wrong, to strangers, and to other owners: always in its own words."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from blake3 import blake3
from comfy_low import models

from comfyui_agent.access import gate
from comfyui_agent.domain.jobs import GATEWAY
from comfyui_agent.domain.tokens import Role
from comfyui_agent.sim.simulator import Simulator
from comfyui_agent.store import operations as ops
from comfyui_agent.wire import application
from support.agents import sized_picture
from support.editor_workflows import document, node, slot
from support.painted import png_of
from support.served_gateway import Served, gateway
from support.workspaces import NOWHERE

EDITOR = document(
    [node(1, "EmptyImage", values=[32, 32, 1, 7]), node(2, "SaveImage", slot("images", "IMAGE", 1), values=["x"])],
    (1, 1, 0, 2),
)
HTML = b"<script>alert(1)</script>"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with Simulator() as sim, gateway(tmp_path, sim.url) as found:
        yield found


async def ask(
    served: Served, method: str, path: str, token: str = "", headers: Any = (), **options: Any
) -> tuple[int, Any, Any]:
    """The status, the body, and the headers of an answer. An error is checked to be an envelope."""
    sent = {"Authorization": f"Bearer {token}", **dict(headers)}
    async with served.session.request(method, f"{served.url}/api/v2{path}", headers=sent, **options) as response:
        data = await response.read()
        body = json.loads(data) if response.content_type == "application/json" and data else data
        if response.status >= 400 and method != "HEAD":
            models.ErrorEnvelope.model_validate(body)
        return response.status, body, response.headers


async def refused(served: Served, method: str, path: str, **options: Any) -> tuple[int, str]:
    status, body, _ = await ask(served, method, path, **options)
    return status, body["error"]["code"]


def form(data: bytes = HTML, **fields: Any) -> aiohttp.FormData:
    made = aiohttp.FormData()
    for name, value in {"content_type": "text/html", "file_path": "page.html", **fields}.items():
        if value is not None:
            made.add_field(name, str(value))
    made.add_field("file", data, filename="sent.html")
    return made


def digest_of(data: bytes) -> str:
    return f"blake3:{blake3(data).hexdigest()}"


async def test_a_request_that_is_wrong_is_refused_with_its_code(served: Served) -> None:
    picture = {"workflow": sized_picture()}
    posts: list[tuple[Any, str]] = [
        ({"workflow": {}}, "invalid_workflow"),
        ({"workflow": []}, "invalid_workflow"),
        ({}, "invalid_workflow"),
        ([], "invalid_request"),
        ({"workflow": {"1": None}}, "invalid_workflow"),
        ({"workflow": {"1": {"class_type": "NoSuch", "inputs": {}}}}, "invalid_workflow"),
        ({"workflow": EDITOR}, "workflow_format_ui"),
        ({**picture, "webhook_url": "http://x"}, "invalid_request"),
        ({**picture, "inputs": {}}, "invalid_request"),
        ({**picture, "metadata": {"a": "b"}}, "metadata_not_supported"),
        ({**picture, "extra_data": {"client_id": "me"}}, "invalid_request"),
        ({**picture, "extra_data": {"api_key_comfy_org": 1}}, "invalid_request"),
    ]
    for value in ({"__type": "core/ASSET"}, {"__type": "core/ASSET", "info": {"id": "x"}}, [{"__type": "core/ASSET"}]):
        graph = {"1": {"class_type": "LoadImage", "inputs": {"image": value}}}
        posts.append(({"workflow": graph}, "missing_asset"))
    for body, code in posts:
        assert await refused(served, "POST", "/jobs", json=body) == (422, code), body
    assert await refused(served, "POST", "/jobs", data=b"{nan") == (422, "invalid_request")
    assert await refused(served, "POST", "/jobs", data=b"[" * 100_000) == (422, "invalid_request")
    long = {"Idempotency-Key": "x" * 256}
    assert await refused(served, "POST", "/jobs", json=picture, headers=long) == (422, "invalid_request")
    assert not await served.store.run(ops.list_jobs)


async def test_a_path_or_method_that_is_not_there_is_told_so(served: Served) -> None:
    for method, path, expected in (
        ("GET", "/jobs/none", (404, "not_found")),
        ("GET", "/jobs/none/events", (404, "not_found")),
        ("POST", "/jobs/none/cancel", (404, "not_found")),
        ("GET", "/jobs/none/workflow", (404, "not_found")),
        ("GET", "/jobs/none/else", (404, "not_found")),
        ("GET", "/assets/none", (404, "not_found")),
        ("GET", "/assets/00000000-0001-8000-8004-94e4c0dd7183/content", (404, "not_found")),
        ("DELETE", "/assets/ffffffff-ffff-8fff-bfff-ffffffffffff", (404, "not_found")),
        ("DELETE", "/jobs", (405, "method_not_allowed")),
        ("PUT", "/assets/x/content", (405, "method_not_allowed")),
        ("GET", "/jobs?limit=0", (422, "invalid_request")),
        ("GET", "/jobs?cursor=x", (422, "invalid_cursor")),
        ("POST", "/assets", (422, "invalid_request")),
    ):
        assert await refused(served, method, path) == expected, (method, path)


async def test_of_many_requests_with_one_key_one_makes_a_job_and_the_others_name_it(served: Served) -> None:
    body, key = {"workflow": sized_picture()}, {"Idempotency-Key": "k"}
    answers = await asyncio.gather(*(ask(served, "POST", "/jobs", json=body, headers=key) for _ in range(8)))
    (made,) = [answer["id"] for status, answer, _ in answers if status == 201]
    errors = [answer["error"] for status, answer, _ in answers if status == 422]
    assert [(error["code"], error["details"]) for error in errors] == [("idempotency_key_reuse", {"job_id": made})] * 7
    (job,) = await served.store.run(ops.list_jobs)
    assert job.config_name == made


async def test_comfyui_s_own_routes_below_the_same_prefix_go_to_the_editor(served: Served) -> None:
    assert await served.status("/api/v2/userdata?path=workflows") in (200, 404)
    assert await served.status("/api/v2/health") == 200


async def test_an_upload_is_kept_once_and_known_by_its_hash(served: Served) -> None:
    status, body, _ = await ask(served, "POST", "/assets", data=form(tags="a", expires_in=60))
    asset = models.Asset.model_validate(body)
    assert (status, asset.created_new, asset.hash, asset.size_bytes) == (201, True, digest_of(HTML), len(HTML))
    assert asset.expires_at is not None
    kept = served.workspace / "database" / "inputs" / f"{hashlib.sha256(HTML).hexdigest()}.html"
    assert kept.read_bytes() == HTML
    assert (await ask(served, "HEAD", f"/assets/by-hash/{asset.hash}"))[0] == 200
    assert (await ask(served, "HEAD", f"/assets/by-hash/{digest_of(b'else')}"))[0] == 404
    for path, expected in (("page.html", 200), ("other.html", 201), ("other.html", 200), (None, 200)):
        wanted = {"hash": asset.hash, **({"file_path": path} if path else {})}
        status, body, _ = await ask(served, "POST", "/assets/from-hash", json=wanted)
        assert (status, models.Asset.model_validate(body).created_new) == (expected, False), path
    missing = {"hash": digest_of(b"else")}
    assert await refused(served, "POST", "/assets/from-hash", json=missing) == (404, "blob_not_found")
    mismatch = form(b"else", expected_hash=asset.hash)
    assert await refused(served, "POST", "/assets", data=mismatch) == (409, "hash_mismatch")
    for wrong in ({"expires_in": 59}, {"expires_in": "soon"}, {"content_type": None}, {"file_path": "a\n"}):
        assert await refused(served, "POST", "/assets", data=form(**wrong)) == (422, "invalid_request"), wrong
    assert [path.name for path in kept.parent.iterdir()] == [kept.name], "nothing is left of what was refused"
    key = {"Idempotency-Key": "once"}
    assert (await ask(served, "POST", "/assets", data=form(), headers=key))[0] == 200
    assert await refused(served, "POST", "/assets", data=form(), headers=key) == (422, "idempotency_key_reuse")


async def test_an_upload_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "MAX_UPLOAD_BYTES", 1000)
    async with gateway(tmp_path, NOWHERE) as served:
        assert await refused(served, "POST", "/assets", data=form(bytes(1001))) == (413, "too_large")
        assert not list((tmp_path / "database").glob("inputs/*"))


async def test_content_that_a_browser_could_run_is_only_ever_saved(served: Served) -> None:
    for data, kind, how in ((HTML, "application/octet-stream", "attachment"), (png_of(1), "image/png", "inline")):
        _, body, _ = await ask(served, "POST", "/assets", data=form(data, file_path='a"b/ü.html'))
        path = f"/assets/{body['id']}/content"
        status, content, headers = await ask(served, "GET", path)
        assert (status, content, headers["Content-Type"]) == (200, data, kind)
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Disposition"] == f'{how}; filename="_.html"'
        status, content, headers = await ask(served, "GET", path, headers={"Range": "bytes=2-4"})
        assert (status, content, headers["Content-Range"]) == (206, data[2:5], f"bytes 2-4/{len(data)}")
        assert await served.status(f"/api/v2{path}", headers={"Range": "bytes=9999-"}) == 416


async def test_a_workflow_of_the_editor_is_converted_if_asked_for(served: Served) -> None:
    status, body, _ = await ask(served, "POST", "/jobs?convert=true", json={"workflow": EDITOR})
    assert status == 201, body
    job = models.Job.model_validate(body)
    assert (job.status.value, job.queue_position, job.outputs) == ("queued", 0, [])
    for query, kind, workflow in (("", "save", EDITOR), ("?format=save", "save", EDITOR)):
        _, body, _ = await ask(served, "GET", f"/jobs/{job.id}/workflow{query}")
        assert models.JobWorkflowResponse.model_validate(body).format.value == kind
        assert body["workflow"] == workflow
    _, body, _ = await ask(served, "GET", f"/jobs/{job.id}/workflow?format=api")
    assert all("class_type" in node for node in body["workflow"].values())
    found = await served.store.run(ops.find_job_by_name, job.id)
    assert found is not None
    assert (found.source, found.status) == (GATEWAY, "pending")


async def test_a_token_sees_its_own_jobs_and_assets(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "FRESH_SECONDS", 0.0)
    assert (await ask(served, "GET", "/jobs"))[0] == 200, "a Bearer with nothing behind it is none"
    mine, other, admin, reader = [await served.token(role) for role in (Role.USER, Role.USER, Role.ADMIN, Role.READ)]
    for token, expected in (("", (401, "unauthorized")), ("wrong", (401, "unauthorized"))):
        assert await refused(served, "GET", "/jobs", token=token) == expected
    body = {"workflow": sized_picture()}
    assert await refused(served, "POST", "/jobs", token=reader, json=body) == (403, "forbidden")
    foreign = {"Origin": "http://elsewhere.example"}
    assert await refused(served, "POST", "/jobs", token=mine, json=body, headers=foreign) == (403, "forbidden")
    key = {"Idempotency-Key": "k"}
    made = [(await ask(served, "POST", "/jobs", token=token, json=body, headers=key))[1] for token in (mine, other)]
    assert len({job["id"] for job in made}) == 2, "each token has keys of its own"
    _, asset, _ = await ask(served, "POST", "/assets", token=mine, data=form())
    by_hash = f"/assets/by-hash/{asset['hash']}"
    things = ("GET", f"/jobs/{made[0]['id']}"), ("GET", f"/assets/{asset['id']}"), ("HEAD", by_hash)
    for token, status in ((mine, 200), (admin, 200), (other, 404)):
        assert [(await ask(served, *thing, token=token))[0] for thing in things] == [status] * 3
    listed = [
        len((await ask(served, "GET", "/jobs", token=token))[1]["jobs"]) for token in (mine, other, admin, reader)
    ]
    assert listed == [1, 1, 2, 2]
    assert (await ask(served, "POST", "/assets", token=other, data=form()))[0] == 201, "others' bytes are not told of"
    assert await refused(served, "POST", f"/jobs/{made[0]['id']}/cancel", token=other) == (404, "not_found")


async def test_who_asks_for_too_much_is_told_when_to_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "FRESH_SECONDS", 0.0)
    limits = {"E3_UI__OPEN_JOBS_PER_USER": "1", "E3_UI__CHANGES_PER_MINUTE": "3", "E3_UI__READS_PER_MINUTE": "1"}
    async with Simulator() as sim, gateway(tmp_path, sim.url, **limits) as served:
        token, body = await served.token(Role.USER), {"workflow": sized_picture()}
        key = {"Idempotency-Key": "k"}
        _, job, _ = await ask(served, "POST", "/jobs", token=token, json=body, headers=key)
        found = []
        for headers in ({}, key, {}):
            _, answer, told = await ask(served, "POST", "/jobs", token=token, json=body, headers=headers)
            found.append((answer["error"]["code"], "Retry-After" in told))
        assert found == [("queue_full", True), ("idempotency_key_reuse", False), ("queue_full", True)]
        path = f"/jobs/{job['id']}"
        assert (await ask(served, "GET", path, token=token))[0] == 200
        assert await refused(served, "GET", path, token=token) == (429, "rate_limited")


async def test_while_no_server_answers_jobs_are_refused_for_a_moment(tmp_path: Path) -> None:
    async with gateway(tmp_path, NOWHERE) as served:
        status, body, headers = await ask(served, "POST", "/jobs", json={"workflow": sized_picture()})
        assert (status, body["error"]["code"], "Retry-After" in headers) == (503, "upstream_error", True)
        assert (await ask(served, "GET", "/jobs"))[1] == {"jobs": []}
