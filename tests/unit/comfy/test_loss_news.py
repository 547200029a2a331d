"""The death of a server is told once, not once for each prompt that it had."""

from __future__ import annotations

import pytest

from comfyui_agent.comfy import fleet
from comfyui_agent.comfy.fleet import LOSS_TOLD_SECONDS, FleetServer
from comfyui_agent.comfy.limits import Limits


class Clock:
    def __init__(self) -> None:
        self.now = 5.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A machine that was started five seconds ago."""
    clock = Clock()
    monkeypatch.setattr(fleet, "time", clock)
    return clock


async def test_a_loss_is_news_once_and_again_after_a_while(clock: Clock) -> None:
    server = FleetServer("http://127.0.0.1:1", "e3-test", Limits())
    assert server.is_loss_news()
    assert not server.is_loss_news()
    clock.now += LOSS_TOLD_SECONDS - 0.1
    assert not server.is_loss_news()
    clock.now += 0.2
    assert server.is_loss_news()


async def test_each_server_has_its_own_news(clock: Clock) -> None:
    one, other = (FleetServer(f"http://127.0.0.1:{port}", "e3-test", Limits()) for port in (1, 2))
    assert one.is_loss_news()
    assert other.is_loss_news()
