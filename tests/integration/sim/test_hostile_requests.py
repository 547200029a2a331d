"""Requests and sockets that no client should open: refused as ComfyUI refuses them, and nothing leaves its folder."""

from __future__ import annotations

import io
import json
from contextlib import suppress
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


@pytest.mark.parametrize("path", ["/queue", "/history", "/free"])
@pytest.mark.parametrize("body", [b"", b"junk", b"\xff\xfe", b"null", b"3"])
async def test_a_body_that_is_no_object_is_a_server_error(plain: Wire, path: str, body: bytes) -> None:
    assert (await plain.post(path, data=body, headers=JSON)).status == 500


@pytest.mark.parametrize("path", ["/queue", "/history"])
@pytest.mark.parametrize("body", [[], "text", {"delete": []}, {"delete": "abc"}, {"delete": {"a": 1}}, {"other": 1}])
async def test_a_change_of_nothing_is_fine(plain: Wire, path: str, body: Any) -> None:
    assert (await plain.post(path, body)).status == 200


@pytest.mark.parametrize("body", [b"", b"junk", b"{}", b'{"prompt_id": 5}', b'{"prompt_id": null}'])
async def test_an_idle_interrupt_is_taken_whatever_it_says(plain: Wire, body: bytes) -> None:
    assert (await plain.post("/interrupt", data=body, headers=JSON)).status == 200
    await plain.run(picture())


@pytest.mark.parametrize("path", ["/nowhere", "/api/nowhere", "/jobs", "/history/", "/models/nowhere"])
async def test_an_unknown_path_is_404_to_get_and_405_to_post(plain: Wire, path: str) -> None:
    assert (await plain.get(path)).status == 404
    assert (await plain.post(path, {})).status == 405


async def test_an_upload_past_the_limit_is_413(plain: Wire) -> None:
    data = aiohttp.FormData()
    data.add_field("image", io.BytesIO(bytes(TOO_MUCH)), filename="large.png")
    assert (await plain.post("/upload/image", data=data)).status == 413


@pytest.mark.parametrize(
    ("query", "status"),
    [
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
    ],
)
async def test_no_view_leaves_its_folder(plain: Wire, query: str, status: int) -> None:
    async with plain.session.get(URL(f"{plain.url}/view?{query}", encoded=True)) as response:
        assert (response.status, b"root:" in await response.read()) == (status, False)


@pytest.mark.parametrize(
    ("name", "status"),
    [("../mine.png", 400), ("../../mine.png", 400), ("a/../../mine.png", 400), ("/tmp/mine.png", 500)],
)
async def test_no_upload_leaves_its_folder_by_its_name(
    plain: Wire, plain_server: ServerProcess, name: str, status: int
) -> None:
    answer = await plain.post("/upload/image", data=form(png(), name))
    assert answer.status == status
    assert not list(plain_server.folder.rglob("mine.png"))
    assert not Path("/tmp/mine.png").exists()


@pytest.mark.parametrize("subfolder", ["..", "../..", "/tmp", "a/../.."])
async def test_no_upload_leaves_its_folder_by_its_subfolder(plain: Wire, subfolder: str) -> None:
    assert (await plain.post("/upload/image", data=form(png(), "theirs.png", subfolder=subfolder))).status == 400
    assert not Path("/tmp/theirs.png").exists()


async def test_an_upload_that_is_a_text_field_is_a_server_error(plain: Wire) -> None:
    assert (await plain.post("/upload/image", data={"image": "abc"})).status == 500
    assert (await plain.post("/upload/image", data={"other": "abc"})).status == 400


@pytest.mark.parametrize("reference", ["junk", "null", "[]", "{}", '{"filename": 5}'])
async def test_a_mask_for_an_unreadable_reference_is_a_server_error(plain: Wire, reference: str) -> None:
    answer = await plain.post("/upload/mask", data=form(png(), f"{hash(reference)}.png", original_ref=reference))
    assert answer.status == 500


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


@pytest.mark.parametrize(
    ("host", "origin"), [("127.0.0.1:abc", "http://x"), ("[::1", "http://x"), ("localhost", "http://[")]
)
async def test_an_unreadable_host_or_origin_is_a_server_error(plain: Wire, host: str, origin: str) -> None:
    assert (await plain.get("/prompt", headers={"Host": host, "Origin": origin})).status == 500
