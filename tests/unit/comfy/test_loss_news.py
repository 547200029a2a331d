"""Each loss of a server is told, and not once more for each prompt that it had."""

from __future__ import annotations

from comfyui_agent.comfy.fleet import FleetServer

from comfyui_agent.comfy.answers import QueueView
from comfyui_agent.comfy.limits import Limits


def server_with(*prompts: str) -> FleetServer:
    server = FleetServer("http://127.0.0.1:1", "e3-test", Limits())
    server.at_work |= set(prompts)
    return server


async def look(server: FleetServer, *prompts: str) -> None:
    """A look that finds these prompts waiting."""

    async def queue() -> QueueView:
        return QueueView.read({"queue_running": [], "queue_pending": [[0, each, {}, {}, []] for each in prompts]})

    server._pulse.queue = queue  # type: ignore[method-assign]
    await server.look()


async def test_every_loss_is_told_however_soon_it_follows() -> None:
    server = server_with("one", "two")
    assert server.tell_loss() == 2
    assert server.tell_loss() == 2, "a second loss within a minute"


async def test_a_loss_that_was_told_is_no_news_for_any_prompt_that_was_there() -> None:
    server = server_with("one", "two")
    server.tell_loss()
    assert server.untold_loss("one") == 0
    assert server.untold_loss("two") == 0
    server.at_work.add("three")
    assert server.untold_loss("three") == 3


async def test_a_prompt_that_was_seen_again_may_be_lost_again() -> None:
    server = server_with("one")
    server.tell_loss()
    await look(server, "one")
    assert server.untold_loss("one") == 1


async def test_prompts_lost_unnoticed_are_told_together() -> None:
    server, other = server_with("one", "two"), server_with("one")
    assert server.untold_loss("one") == 2
    assert server.untold_loss("two") == 0
    assert other.untold_loss("one") == 1, "each server has its own news"
