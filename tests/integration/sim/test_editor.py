"""The simulator shows ComfyUI's page, if it is given its files."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from comfyui_agent.sim.settings import SimSettings
from comfyui_agent.sim.simulator import Simulator
from support.wire import Wire
from support.workspaces import call_e3


@pytest.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Wire]:
    static = tmp_path / "static"
    for name, text in {
        "index.html": "<title>ComfyUI</title>",
        "assets/main.js": "run()",
        "extensions/core/nodes.js": "",
    }.items():
        (static / name).parent.mkdir(parents=True, exist_ok=True)
        (static / name).write_text(text)
    (tmp_path / "secret.txt").write_text("secret")
    (static / "way_out.txt").symlink_to(tmp_path / "secret.txt")
    async with Simulator(SimSettings(frontend=static)) as simulator, aiohttp.ClientSession() as session:
        yield Wire(session, simulator.url)


async def test_the_files_of_the_page_are_served(editor: Wire) -> None:
    page = await editor.get("/")
    assert (page.status, page.headers["Content-Type"], page.body) == (200, "text/html", "<title>ComfyUI</title>")
    assert (await editor.get("/assets/main.js")).status == 200
    assert (await editor.get("/extensions")).body == ["/extensions/core/nodes.js"]
    assert (await editor.get("/extensions/core/nodes.js")).status == 200
    assert (await editor.get("/templates/index.json")).body == []


async def test_what_is_no_file_of_the_page_is_not_served(editor: Wire) -> None:
    for path in ("/nowhere", "/way_out.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt"):
        assert (await editor.get(path)).status in (403, 404), path
    assert (await editor.get("/assets")).status == 403
    assert (await editor.post("/nowhere", {})).status == 405


async def test_the_page_opens_with_a_workflow(editor: Wire) -> None:
    assert (await editor.get("/settings")).body == {"Comfy.TutorialCompleted": True}


async def test_too_many_files_of_the_user_are_refused(editor: Wire) -> None:
    assert (await editor.post("/userdata/big", data=io.BytesIO(bytes(65 * 1024 * 1024)))).status == 507
    assert (await editor.get("/userdata/big")).status == 404


def test_a_folder_without_a_page_is_refused(tmp_path: Path) -> None:
    answer = call_e3("sim", "--port", "0", "--frontend", str(tmp_path))
    assert answer.returncode == 2
    assert f"{tmp_path} has no index.html: give the folder static of a comfyui-frontend-package" in answer.stderr
