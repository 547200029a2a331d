"""ComfyUI's protocol in front of a backend of another kind: files by their digest, and one for each caller."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from comfyui_agent.wire.application import Handler, application
from comfyui_agent.wire.backend import Backend
from comfyui_agent.wire.dialect import IMITATED, Dialect
from comfyui_agent.wire.places import KINDS, FilePlace, Upload, names_to_try
from comfyui_agent.wire.prompts import Accepted, Json, Submission
from comfyui_agent.wire.sockets import Client
from support.pictures import form, opened, png


class Shelf:
    """What one caller has: uploads by path, and the prompts that came."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self.roots = {kind: Path(f"/{kind}").absolute() for kind in KINDS}
        self.contents = contents
        self.digests: dict[str, str] = {}
        self.submissions: list[Submission] = []
        self.skipped = 0

    async def submit(self, submission: Submission) -> Accepted:
        self.submissions.append(submission)
        return Accepted("minted", len(self.submissions), {})

    async def skip_number(self) -> None:
        self.skipped += 1

    async def remaining(self) -> int:
        return 7

    async def features(self) -> Json:
        return {"supports_preview_metadata": False}

    async def greeting(self, client_id: str) -> list[tuple[str, Json]]:
        return [("executed", {"node": "9", "for": client_id})]

    async def find_file(self, place: FilePlace) -> bytes | None:
        return self.contents.get(self.digests.get(f"{place.kind}/{place.path}", ""))

    async def save_upload(self, upload: Upload) -> str:
        content = upload.sent if upload.content is None else await upload.content()
        assert content is not None
        digest = hashlib.sha256(content).hexdigest()
        self.contents[digest] = content
        for name in names_to_try(upload.place.name):
            place = FilePlace(upload.place.kind, upload.place.subfolder, name)
            if self.digests.setdefault(f"{place.kind}/{place.path}", digest) == digest:
                return name
        raise AssertionError


class AtOnce:
    """Sends to each socket by itself."""

    def __init__(self) -> None:
        self.open: list[Client] = []
        self.flags: dict[str, Json] = {}

    def join(self, client: Client) -> None:
        self.open.append(client)

    def leave(self, client: Client) -> None:
        self.open.remove(client)

    def negotiate(self, client: Client, flags: Json) -> None:
        self.flags[client.sid] = flags

    async def reply(self, client: Client, event: str, data: Json) -> None:
        await client.socket.send_json({"type": event, "data": data})


@web.middleware
async def login(request: web.Request, handler: Handler) -> web.StreamResponse:
    return await handler(request) if "Caller" in request.headers else web.Response(status=401)


class Site:
    """A server with the shelves of its callers."""

    def __init__(self) -> None:
        self.delivery = AtOnce()
        self.contents: dict[str, bytes] = {}
        self.shelves: dict[str, Shelf] = {}
        app = application(Dialect(IMITATED), self.backend_for, self.delivery, middlewares=[login])
        self.client = TestClient(TestServer(app))

    def backend_for(self, request: web.Request) -> Backend:
        return cast("Backend", self.shelves.setdefault(request.headers["Caller"], Shelf(self.contents)))

    async def ask(self, method: str, path: str, caller: str = "ann", **options: Any) -> Any:
        async with self.client.request(method, path, headers={"Caller": caller}, **options) as response:
            body = await response.read()
            return response.status, json.loads(body) if response.content_type == "application/json" else body


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    async with site.client:
        yield site


async def test_strangers_are_stopped_behind_the_check_of_origins(site: Site) -> None:
    assert (await site.client.get("/queue")).status == 401
    assert (await site.client.get("/queue", headers={"Sec-Fetch-Site": "cross-site"})).status == 403


async def test_callers_share_bytes_and_no_names(site: Site) -> None:
    for caller in ("ann", "bob"):
        answer = await site.ask("POST", "/upload/image", caller, data=form(png(), "a.png", subfolder="deep"))
        assert answer == (200, {"name": "a.png", "subfolder": "deep", "type": "input"})
    assert len(site.contents) == 1
    assert await site.ask("GET", "/view?filename=a.png&type=input&subfolder=deep", "bob") == (200, png())
    assert (await site.ask("GET", "/view?filename=a.png&type=input&subfolder=deep", "eve"))[0] == 404


async def test_a_picture_that_is_no_file_is_encoded_anew_and_masked(site: Site) -> None:
    await site.ask("POST", "/upload/image", data=form(png((5, 6, 7)), "a.png"))
    _, preview = await site.ask("GET", "/view?filename=a.png&type=input&preview=jpeg")
    assert opened(preview).format == "JPEG"
    reference = json.dumps({"filename": "a.png", "type": "input"})
    _, answer = await site.ask("POST", "/upload/mask", data=form(png((0, 0, 0, 40)), "a.png", original_ref=reference))
    assert answer["name"] == "a (1).png"
    _, masked = await site.ask("GET", "/view?filename=a (1).png&type=input")
    assert opened(masked).getpixel((0, 0)) == (5, 6, 7, 40)


async def test_a_prompt_comes_as_it_was_posted(site: Site) -> None:
    body = {"prompt": {"1": {}}, "front": True, "client_id": "c", "extra_data": {"a": 1}, "number": "2.5"}
    assert await site.ask("POST", "/prompt", json=body) == (
        200,
        {"prompt_id": "minted", "number": 1, "node_errors": {}},
    )
    (submission,) = site.shelves["ann"].submissions
    assert submission == Submission({"1": {}}, None, 2.5, True, {"a": 1, "client_id": "c"}, None)


@pytest.mark.parametrize(
    ("body", "status", "skipped"),
    [
        ({}, 400, 1),
        ([], 400, 1),
        ({"number": 3}, 400, 0),
        ({"prompt": {}, "prompt_id": "mine"}, 400, 1),
        ({"prompt": {}, "extra_data": None, "client_id": "c"}, 500, 1),
        (None, 500, 0),
    ],
)
async def test_a_refused_prompt_uses_its_number_up(site: Site, body: Any, status: int, skipped: int) -> None:
    assert (await site.ask("POST", "/prompt", json=body))[0] == status
    assert site.shelves["ann"].skipped == skipped


async def test_a_socket_is_greeted_and_negotiates_once(site: Site) -> None:
    async with site.client.ws_connect("/ws?clientId=c", headers={"Caller": "ann"}) as socket:
        status = {"status": {"exec_info": {"queue_remaining": 7}}, "sid": "c"}
        assert await socket.receive_json() == {"type": "status", "data": status}
        assert await socket.receive_json() == {"type": "executed", "data": {"node": "9", "for": "c"}}
        for flags in ({"a": 1}, {"a": 2}):
            await socket.send_json({"type": "feature_flags", "data": flags})
        answer = {"type": "feature_flags", "data": {"supports_preview_metadata": False}}
        assert await socket.receive_json() == answer
        assert [client.sid for client in site.delivery.open] == ["c"]
    assert site.delivery.flags == {"c": {"a": 1}}
