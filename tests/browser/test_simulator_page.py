"""ComfyUI's own page at the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from support.browser import until
from support.comfyui_page import ask, frontend, opened, run_button
from support.servers import ServerProcess, simulator


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    started = simulator(tmp_path / "sim", "--frontend", str(frontend()), "--imitate", "0.33.0").start()
    yield started
    started.kill()


@pytest.fixture
def page(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    with opened(browser, server.url) as page:
        yield page


def test_the_workflow_that_the_page_opens_with_is_rendered_and_shown(page: Page, server: ServerProcess) -> None:
    with page.expect_response(lambda answer: "/view?" in answer.url) as shown:
        run_button(page).click()
        page.evaluate("app.extensionManager.command.execute('Comfy.Canvas.FitView')")
    assert (shown.value.status, shown.value.headers["content-type"]) == (200, "image/png")
    (entry,) = ask(server.url, "/history").values()
    assert entry["status"]["status_str"] == "success"
    (output,) = page.evaluate("Object.values(app.nodeOutputs)")
    assert output["images"] == [{"filename": "ComfyUI_00001_.png", "subfolder": "", "type": "output"}]


def test_a_saved_workflow_and_settings_outlive_the_window(page: Page) -> None:
    page.evaluate("app.extensionManager.setting.set('Comfy.Sidebar.Size', 'small')")
    page.keyboard.press("Control+s")
    page.get_by_role("dialog").get_by_role("textbox").fill("a flow")
    with page.expect_response(lambda answer: "/userdata/workflows%2Fa%20flow.json" in answer.url) as written:
        page.keyboard.press("Enter")
    assert written.value.status == 200
    page.reload()
    saved = "app.extensionManager?.workflow?.persistedWorkflows?.map((each) => each.path) ?? []"
    until(lambda: page.evaluate(f"window.app ? {saved} : []") == ["workflows/a flow.json"], "the saved workflow", 60)
    assert page.evaluate("app.extensionManager.setting.get('Comfy.Sidebar.Size')") == "small"
