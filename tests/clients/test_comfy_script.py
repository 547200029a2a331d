"""ComfyScript: workflows written as Python. Its nodes have ids such as `SaveImage.0`."""

from __future__ import annotations

from support.clients import Client, required
from support.fronts import Front
from support.graphs import checkpoint_name, fresh_color, fresh_prefix
from support.painted import colors, was_interrupted

CLIENT = required("comfy-script")


async def test_a_script_gets_its_pictures(front: Front, client: Client) -> None:
    """It takes prompts for lost that are not done when nothing remains in the queue."""
    wanted = [fresh_color(), fresh_color()]
    found = await client.drive("render", colors=wanted, prefix=fresh_prefix())
    assert colors(*found["images"]) == wanted
    assert (await front.finished(found["prompt_id"]))["outputs"].keys() == {"SaveImage.0"}


async def test_a_script_hears_of_steps(front: Front, client: Client, front_kind: str) -> None:
    """A gateway leaves out steps that are over at once."""
    checkpoint = await checkpoint_name(front)
    found = await client.drive("progress", color=fresh_color(), prefix=fresh_prefix(), checkpoint=checkpoint)
    steps = [[1, 4], [2, 4], [3, 4], [4, 4]]
    assert found["outputs"] == 1
    assert found["steps"] == ([step for step in steps if step in found["steps"]] if "-" in front_kind else steps)
    assert found["steps"][-1] == [4, 4]


async def test_cancelling_stops_what_runs_and_the_script_goes_on(front: Front, client: Client) -> None:
    found = await client.drive("cancel_running", color=fresh_color(), prefix=fresh_prefix())
    assert found["outputs"] == []
    assert was_interrupted(await front.finished(found["prompt_id"]))


async def test_cancelling_the_rest_takes_back_what_waits_and_nothing_that_runs(front: Front, client: Client) -> None:
    async with front.busy():
        found = await client.drive("cancel_waiting", color=fresh_color(), prefix=fresh_prefix())
        assert (await front.queue())[1] == []
    assert (await front.get(f"/history/{found['prompt_id']}")).body == {}
