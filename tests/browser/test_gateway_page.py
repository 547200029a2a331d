"""ComfyUI's own page at the gateway: two people, two servers, one history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from comfyui_agent.sim.process import answers, free_port
from support.agents import AgentWorkspace
from support.browser import until
from support.comfyui_page import ask, frontend, opened, run_button
from support.servers import simulator

SLOW = "4"
"""Seconds of a render: long enough to look at, and to stop."""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[str]:
    flags = ("--imitate", "0.33.0", "--render-seconds", SLOW, "--frontend", str(frontend()))
    servers = [simulator(tmp_path / name, *flags).start() for name in ("a", "b")]
    workspace = AgentWorkspace(tmp_path / "workspace", [server.url for server in servers])
    port = free_port()
    workspace.start_gateway(port)
    workspace.start()
    url = f"http://127.0.0.1:{port}"
    until(lambda: answers(url), "the gateway", 30)
    yield url
    workspace.stop_all()
    for server in servers:
        server.kill()


def outputs(page: Page) -> list[str]:
    """The names of the pictures that the page shows."""
    shown = page.evaluate("Object.values(app.nodeOutputs ?? {}).flatMap((each) => each.images ?? [])")
    return [image["filename"] for image in shown]


def test_two_people_render_on_two_servers_and_each_sees_their_own(browser: Browser, gateway: str) -> None:
    with opened(browser, gateway) as mine, opened(browser, gateway) as theirs:
        run_button(mine).click()
        run_button(theirs).click()
        until(lambda: len(ask(gateway, "/queue")["queue_running"]) == 2, "both at a server", 20)
        until(lambda: outputs(mine) != [] and outputs(theirs) != [], "the pictures", 30)
        assert sorted(outputs(mine) + outputs(theirs)) == ["ComfyUI_00001_.png", "ComfyUI_00002_.png"]
    until(lambda: len(ask(gateway, "/history")) == 2, "the ends")  # pictures are shown before
    entries = ask(gateway, "/history").values()
    assert [entry["status"]["status_str"] for entry in entries] == ["success", "success"]
    clients = {entry["prompt"][3]["client_id"] for entry in entries}
    assert len(clients) == 2


def test_what_runs_is_stopped_from_the_page(browser: Browser, gateway: str) -> None:
    with opened(browser, gateway) as page:
        run_button(page).click()
        until(lambda: ask(gateway, "/queue")["queue_running"], "a prompt at a server", 20)
        page.evaluate("app.extensionManager.command.execute('Comfy.Interrupt')")
        until(lambda: not ask(gateway, "/queue")["queue_running"], "its end", 20)
    (entry,) = ask(gateway, "/history").values()
    assert entry["status"]["messages"][-1][0] == "execution_interrupted"
