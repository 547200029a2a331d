"""SillyTavern: its router posts without an id or a websocket, and asks for the history until the prompt is there."""

from __future__ import annotations

from support.clients import Client, required
from support.fronts import Front
from support.graphs import failing, node
from support.painted import colors, painted, was_interrupted

CLIENT = required("sillytavern")


async def test_its_lists_are_those_of_the_server(front: Front, client: Client) -> None:
    found = await client.drive("lists")
    nodes = (await front.get("/object_info")).body
    sampler = nodes["KSampler"]["input"]["required"]
    checkpoints = nodes["CheckpointLoaderSimple"]["input"]["required"]["ckpt_name"][0]
    assert found["ping"] == 200
    assert (found["samplers"], found["schedulers"]) == (sampler["sampler_name"][0], sampler["scheduler"][0])
    assert [model["value"] for model in found["models"]][: len(checkpoints)] == checkpoints
    assert found["vaes"] == nodes["VAELoader"]["input"]["required"]["vae_name"][0]


async def test_a_chat_gets_its_picture(front: Front, client: Client) -> None:
    wanted = painted()
    found = await client.drive("render", graph=wanted.graph)
    assert found["format"] == "png"
    assert colors(found["data"]) == [wanted.color]


async def test_a_prompt_that_waits_behind_another_is_waited_for(front: Front, client: Client) -> None:
    wanted = painted()
    _, found = await front.behind_others(client.drive("render", graph=wanted.graph))
    assert colors(found["data"]) == [wanted.color]


async def test_who_leaves_the_page_stops_the_prompt(front: Front, client: Client) -> None:
    found = await client.drive("leave", graph=painted(seconds=600).graph)
    assert found["left"] == "AbortError"
    assert was_interrupted(await front.finished(found["prompt_id"]))


async def test_a_failure_is_told_in_the_words_of_the_node(front: Front, client: Client) -> None:
    rejected = await client.drive("render", graph=painted(**{"1": node("NoSuchNode")}).graph)
    failed = await client.drive("render", graph=failing())
    assert rejected["error"] == "ComfyUI returned an error."
    assert "SaveImage [2] Exception: **** ERROR: Saving image outside the output folder" in failed["error"]
