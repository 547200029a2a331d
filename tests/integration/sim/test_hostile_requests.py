"""Requests and sockets that no client should open: refused as ComfyUI refuses them, and nothing leaves its folder."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType
from yarl import URL

from support.graphs import picture, text_to_image
from support.pictures import form, png
from support.servers import ServerProcess
from support.wire import Wire

JSON = {"Content-Type": "application/json"}
TOO_MUCH = 101 * 1024 * 1024


async def test_bodies_that_make_no_sense(plain: Wire) -> None:
    for path, body in product(("/queue", "/history", "/free"), (b"", b"junk", b"\xff\xfe", b"null", b"3")):
        assert (await plain.post(path, data=body, headers=JSON)).status == 500, (path, body)
    for path in ("/queue", "/history"):
        assert (await plain.post(path, {"delete": None})).status == 500, path
    nothing: tuple[Any, ...] = ([], "text", {"delete": []}, {"delete": "abc"}, {"delete": {"a": 1}}, {"other": 1})
    for path, document in product(("/queue", "/history"), nothing):
        assert (await plain.post(path, document)).status == 200, (path, document)
    for body in (b"", b"junk", b"{}", b'{"prompt_id": 5}', b'{"prompt_id": null}'):
        assert (await plain.post("/interrupt", data=body, headers=JSON)).status == 200, body
    await plain.run(picture())


async def test_an_unknown_path_is_404_to_get_and_405_to_post(plain: Wire) -> None:
    for path in ("/nowhere", "/api/nowhere", "/jobs", "/history/", "/models/nowhere"):
        assert (await plain.get(path)).status == 404, path
        assert (await plain.post(path, {})).status == 405, path


async def test_an_unreadable_host_or_origin_is_a_server_error(plain: Wire) -> None:
    for host, origin in (("127.0.0.1:abc", "http://x"), ("[::1", "http://x"), ("localhost", "http://[")):
        assert (await plain.get("/prompt", headers={"Host": host, "Origin": origin})).status == 500, host


async def test_no_view_leaves_its_folder(plain: Wire) -> None:
    cases = [
        ("filename=..", 400),
        ("filename=../../etc/passwd", 400),
        ("filename=/etc/passwd", 400),
        ("filename=passwd&subfolder=/etc", 403),
        ("filename=passwd&subfolder=../../../../../../../etc", 403),
        ("filename=passwd&subfolder=a/../../../../etc", 403),
        ("filename=passwd&type=/etc", 400),
        ("filename=.", 404),
        ("filename=", 400),
        ("subfolder=x", 404),
        ("filename=" + "x" * 5000, 404),
        ("filename=%2e%2e%2fserver.log", 400),
        ("filename=server.log&subfolder=%2e%2e", 403),
    ]
    for query, status in cases:
        async with plain.session.get(URL(f"{plain.url}/view?{query}", encoded=True)) as response:
            assert (response.status, b"root:" in await response.read()) == (status, False), query[:60]


async def test_no_upload_leaves_its_folder(plain: Wire, plain_server: ServerProcess) -> None:
    names = [("../mine.png", 400), ("../../mine.png", 400), ("a/../../mine.png", 400), ("/tmp/mine.png", 500)]
    for name, status in names:
        assert (await plain.post("/upload/image", data=form(png(), name))).status == status, name
    for subfolder in ("..", "../..", "/tmp", "a/../.."):
        answer = await plain.post("/upload/image", data=form(png(), "mine.png", subfolder=subfolder))
        assert answer.status == 400, subfolder
    assert not list(plain_server.folder.rglob("mine.png"))
    assert not Path("/tmp/mine.png").exists()


async def test_a_mask_for_an_unreadable_reference_is_a_server_error(plain: Wire) -> None:
    for number, reference in enumerate(("junk", "null", "[]", "{}", '{"filename": 5}')):
        answer = await plain.post("/upload/mask", data=form(png(), f"mask{number}.png", original_ref=reference))
        assert answer.status == 500, reference


async def test_an_upload_past_the_limit_is_413(plain: Wire) -> None:
    data = aiohttp.FormData()
    data.add_field("image", io.BytesIO(bytes(TOO_MUCH)), filename="large.png")
    assert (await plain.post("/upload/image", data=data)).status == 413


async def test_an_upload_that_is_a_text_field_is_a_server_error(plain: Wire) -> None:
    assert (await plain.post("/upload/image", data={"image": "abc"})).status == 500
    assert (await plain.post("/upload/image", data={"other": "abc"})).status == 400


async def test_a_mask_for_a_file_outside_writes_nothing(plain: Wire, plain_server: ServerProcess) -> None:
    reference = json.dumps({"filename": "server.log", "subfolder": "../..", "type": "output"})
    answer = await plain.post("/upload/mask", data=form(png(), "outside.png", original_ref=reference))
    assert answer.status == 200
    assert not list(plain_server.folder.rglob("outside.png"))


@pytest.mark.parametrize("message", ["", "[]", "null", "{" * 5000, "[" * 100_000, '{"type": 5}', "\ud7ff"])
async def test_a_socket_survives_messages_that_make_no_sense(plain: Wire, message: str) -> None:
    async with plain.socket() as socket:
        await socket.socket.send_str(message)
        await socket.socket.send_bytes(b"\x00\xff" * 100)
        await socket.last_frame_of(await plain.submit(picture()))


@pytest.mark.parametrize("flags", [None, [], "x", 5])
async def test_feature_flags_of_another_type_fail_that_clients_sampling_only(plain: Wire, flags: Any) -> None:
    async with plain.socket() as socket:
        await socket.socket.send_json({"type": "feature_flags", "data": flags})
        await socket.event("feature_flags")
        entry = await plain.finished(await plain.submit(await text_to_image(plain)))
        assert entry["status"]["messages"][-1][1]["exception_type"] == "AttributeError"
    await plain.run(await text_to_image(plain))


async def test_a_message_past_the_limit_closes_its_socket_only(plain: Wire) -> None:
    async with plain.socket("other") as other:
        async with plain.session.ws_connect(f"{plain.url}/ws") as loud:
            await loud.receive()
            with suppress(ConnectionError):
                await loud.send_bytes(bytes(5 * 1024 * 1024))
            assert (await loud.receive()).type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.ERROR)
        await other.last_frame_of(await plain.submit(picture(), client_id="other"))
