"""The scripts that ComfyUI shows people who want to write their own (`script_examples/`)."""

from __future__ import annotations

from support.clients import Client, required
from support.fronts import Front
from support.graphs import node
from support.painted import Painted, colors, painted

CLIENT = required("comfyui-scripts")
SOCKET_NODE = "save_image_websocket_node"


def prompt(**nodes: dict[str, object]) -> Painted:
    """Every script sets a text of node "6" and a seed of node "3"."""
    return painted(seconds=0.5, **{"6": node("EmptyImage", width=16, height=16, batch_size=1, color=0)}, **nodes)


async def test_the_basic_script_queues_a_prompt(front: Front, client: Client) -> None:
    wanted = prompt()
    prompt_id, _ = await front.behind_others(client.drive("basic_api_example.py", graph=wanted.graph))
    output = (await front.finished(prompt_id))["outputs"]["2"]["images"][0]
    assert colors((await front.get("/view", params=output)).body) == [wanted.color]


async def test_the_websocket_script_gets_its_picture(front: Front, client: Client) -> None:
    wanted = prompt()
    found = await client.drive("websockets_api_example.py", graph=wanted.graph)
    assert colors(*found["2"]) == [wanted.color]


async def test_the_websocket_script_waits_behind_others(front: Front, client: Client) -> None:
    wanted = prompt()
    _, found = await front.behind_others(client.drive("websockets_api_example.py", graph=wanted.graph))
    assert colors(found["2"][0]) == [wanted.color]


async def test_pictures_come_over_the_websocket(front: Front, client: Client) -> None:
    wanted = prompt(**{SOCKET_NODE: node("SaveImageWebsocket", images=["3", 0])})
    found = await client.drive("websockets_api_example_ws_images.py", graph=wanted.graph)
    assert colors(*found[SOCKET_NODE]) == [wanted.color]
