"""What is kept from other readers, and whom the server answers at all."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import aiohttp
import pytest

from support.graphs import picture, slow_graph
from support.wire import Wire

SECRETS = {"auth_token_comfy_org": "token-1f5d", "api_key_comfy_org": "key-9c2e"}


async def assert_hidden(wire: Wire, *paths: str) -> None:
    for path in paths:
        shown = json.dumps((await wire.get(path)).body)
        assert "comfy_org" not in shown, path
        assert not any(secret in shown for secret in SECRETS.values()), path


async def test_keys_are_shown_neither_while_a_prompt_waits_nor_while_it_runs(slow_wire: Wire) -> None:
    extra_data = {**SECRETS, "extra_pnginfo": {"workflow": {}}, "note": "kept"}
    running = await slow_wire.submit(await slow_graph(slow_wire), extra_data=extra_data)
    await slow_wire.running(running)
    waiting = await slow_wire.submit(picture(), extra_data=extra_data)
    items = [item for items in await slow_wire.queue() for item in items]
    assert [item[3]["note"] for item in items] == ["kept", "kept"]
    await assert_hidden(slow_wire, "/queue", "/api/jobs", f"/api/jobs/{running}", f"/api/jobs/{waiting}")


async def test_keys_are_not_remembered_when_a_prompt_ended(wire: Wire) -> None:
    prompt_id = await wire.submit(picture(), extra_data={**SECRETS, "note": "kept"})
    entry = await wire.finished(prompt_id)
    assert entry["prompt"][3].keys() == {"note", "client_id", "create_time"}
    assert len(entry["prompt"]) == 5
    await assert_hidden(wire, f"/history/{prompt_id}", "/history", "/api/jobs", f"/api/jobs/{prompt_id}")
    (listed,) = entry["outputs"]["2"]["images"]
    content = (await wire.get("/view", params=listed)).body
    assert not any(secret.encode() in content for secret in SECRETS.values())


def origins(wire: Wire) -> dict[str, str]:
    address = urlsplit(wire.url)
    return {
        "own": f"http://{address.netloc}",
        "own without a port": f"http://{address.hostname}",
        "opaque": "null",
        "foreign": "http://pictures.example",
        "another name of the same machine": f"http://localhost:{address.port}",
        "another port": f"http://{address.hostname}:1",
    }


ALLOWED = ["own", "own without a port", "opaque"]
FORBIDDEN = ["foreign", "another name of the same machine", "another port"]


@pytest.mark.parametrize("name", ALLOWED)
@pytest.mark.not_at_gateway("as on the page, origins must be the own one")
async def test_pages_of_the_server_itself_are_answered(wire: Wire, name: str) -> None:
    headers = {"Origin": origins(wire)[name]}
    assert (await wire.get("/queue", headers=headers)).status == 200
    async with wire.session.ws_connect(f"{wire.url}/ws", headers=headers) as socket:
        assert (await socket.receive_json(timeout=10))["type"] == "status"


@pytest.mark.parametrize("name", FORBIDDEN)
async def test_pages_of_others_are_refused(wire: Wire, name: str) -> None:
    headers = {"Origin": origins(wire)[name]}
    for method, path in [("GET", "/queue"), ("POST", "/prompt"), ("GET", "/no-such-route"), ("OPTIONS", "/prompt")]:
        answer = await wire.request(method, path, headers=headers)
        assert (answer.status, answer.body) == (403, b"")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
        await wire.session.ws_connect(f"{wire.url}/ws", headers=headers)
    assert refusal.value.status == 403


@pytest.mark.parametrize("place", ["cross-site", "same-site", "same-origin", "none"])
@pytest.mark.of_the_wire
async def test_a_browser_that_asks_for_another_site_is_refused_since_0_19(wire: Wire, place: str) -> None:
    answer = await wire.get("/queue", headers={"Sec-Fetch-Site": place})
    assert answer.status == (403 if place == "cross-site" and wire.since("0.19") else 200)


@pytest.mark.not_at_gateway("as on the page, origins must be the own one")
async def test_origins_do_not_matter_to_a_server_addressed_from_outside(wire: Wire) -> None:
    headers = {"Host": "192.0.2.7:8188", "Origin": "http://pictures.example"}
    assert (await wire.get("/queue", headers=headers)).status == 200


async def test_a_request_without_an_origin_is_answered(wire: Wire) -> None:
    assert (await wire.get("/queue")).status == 200
    preflight = await wire.request("OPTIONS", "/prompt")
    assert (preflight.status, preflight.body) == (200, b"")
    assert not any(name.lower().startswith("access-control") for name in preflight.headers)
