"""open-webui: a chat that draws. It reads the history the moment that its websocket says the prompt is done."""

from __future__ import annotations

from base64 import b64decode

from support.clients import Client, required
from support.fronts import Front
from support.graphs import failing, node
from support.painted import colors, painted, png_of
from support.pictures import opened

CLIENT = required("open-webui")
SIZES = [("width", "1", "width"), ("height", "1", "height"), ("n", "1", "batch_size")]


async def test_a_chat_gets_its_pictures(front: Front, client: Client) -> None:
    wanted = painted()
    found = await client.drive("create", graph=wanted.graph, nodes=SIZES)
    assert colors(*found["images"]) == [wanted.color] * 2
    assert opened(b64decode(found["images"][0])).size == (48, 32)


async def test_a_prompt_that_waits_behind_another_is_waited_for(front: Front, client: Client) -> None:
    wanted = painted(seconds=0.5)
    _, found = await front.behind_others(client.drive("create", graph=wanted.graph, nodes=SIZES))
    assert colors(found["images"][0]) == [wanted.color]


async def test_a_picture_is_uploaded_and_edited(front: Front, client: Client) -> None:
    wanted = painted(**{"1": node("LoadImage", image="")})
    upload = client.home / "mine.png"
    upload.write_bytes(png_of(wanted.color))
    found = await client.drive("edit", graph=wanted.graph, nodes=[("image", "1", "image")], upload=str(upload))
    assert colors(*found["images"]) == [wanted.color]


async def test_a_rejected_prompt_is_an_error_and_a_failed_one_has_no_pictures(front: Front, client: Client) -> None:
    rejected = await client.drive("create", graph=painted(**{"1": node("NoSuchNode")}).graph, nodes=[])
    failed = await client.drive("create", graph=failing(), nodes=[])
    assert (rejected["images"], failed["images"]) == (None, [])
