"""E3's nodes in ComfyUI's real page: an example is opened and run as people do it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import comfyui_agent.nodes
from comfyui_agent.nodes import NODE_DISPLAY_NAME_MAPPINGS
from support.browser import new_context, until
from support.node_pack import Inside, comfyui_with_nodes, iterating, parameter
from support.servers import REAL_DIR

pytestmark = [
    pytest.mark.real_comfyui,
    pytest.mark.skipif(not REAL_DIR, reason="set E3_COMFYUI_DIR to a ComfyUI checkout to start"),
    pytest.mark.timeout(300),
]

EXAMPLES = Path(comfyui_agent.nodes.__file__).parent / "example_workflows"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.json"))
OURS = ("e3_iterator", "E3", "/wi/")
LONG_MILLISECONDS = 120_000
IS_READY = "window.app?.extensionManager && window.app.graph && document.querySelector('#e3-batches')"
OPEN = "([workflow, name]) => app.loadGraphData(workflow, true, true, name)"
PROMPT = "async () => JSON.stringify((await app.graphToPrompt()).output)"
IMAGES = "type => (app.graph.nodes.find((node) => node.type === type).imgs ?? []).map((image) => image.src)"


@pytest.fixture(scope="module")
def comfyui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    inside = comfyui_with_nodes(tmp_path_factory.mktemp("inside"))
    yield inside
    inside.close()


@pytest.fixture
def page(browser: Browser, comfyui: Inside) -> Iterator[Page]:
    """ComfyUI's page with the panel in it. It may not complain of E3's part; ComfyUI's own troubles are not ours."""
    complaints: list[str] = []
    with new_context(browser, size={"width": 1440, "height": 900}) as context:
        opened = context.new_page()
        opened.set_default_timeout(LONG_MILLISECONDS)
        opened.on("pageerror", lambda error: complaints.append(f"{error} {error.stack}"))
        opened.on("console", lambda said: _hear(complaints, said.type, f"{said.text} {said.location.get('url', '')}"))
        opened.goto(comfyui.process.url)
        opened.wait_for_function(IS_READY)
        opened.evaluate("app.extensionManager.setting.set('Comfy.TutorialCompleted', true)")
        yield opened
    for batch in comfyui.batches():
        comfyui.post(f"/wi/cancel_batch/{batch['batch_id']}")
    ours = [words for words in complaints if any(each in words for each in OURS)]
    assert not ours, ours


def _hear(complaints: list[str], kind: str, words: str) -> None:
    if kind in ("error", "warning"):
        complaints.append(words)


def example(name: str, folder: str = "") -> Any:
    return json.loads((EXAMPLES / folder / f"{name}.json").read_text(encoding="utf-8"))


def show(page: Page, name: str) -> None:
    """Open an example, and wait until it is drawn with all its links."""
    workflow = example(name)
    page.evaluate(OPEN, [workflow, name])
    ids = sorted(node["id"] for node in workflow["nodes"])
    page.wait_for_function(
        "ids => String(app.graph.nodes.map((node) => node.id).sort((a, b) => a - b)) === String(ids)", arg=ids
    )


def row(page: Page, name: str) -> Locator:
    panel = page.get_by_role("region", name="E3 batches")
    return panel.get_by_role("listitem").filter(has=page.locator(".e3-name").get_by_text(name, exact=True))


def without_titles(prompt: dict[str, Any]) -> dict[str, Any]:
    return {node_id: {key: value for key, value in node.items() if key != "_meta"} for node_id, node in prompt.items()}


def test_one_press_makes_ninety_pictures_and_the_grid_stands_in_its_node(page: Page, comfyui: Inside) -> None:
    show(page, "matrix_of_colours")
    page.keyboard.press("Control+Enter")
    found = row(page, "colours")
    bar = found.get_by_role("progressbar")
    expect(bar).to_have_attribute("aria-valuemax", "90")
    expect(bar).to_have_attribute("aria-valuenow", "90", timeout=LONG_MILLISECONDS)
    expect(found).to_contain_text("90 of 90")
    expect(found).to_contain_text("Done")
    (batch,) = (each for each in comfyui.batches() if each["batch_name"] == "colours")
    assert (batch["state"], batch["completed_count"], batch["failed"]) == ("complete", 90, 0)
    thumbnail = found.get_by_role("img", name="Open the grid of batch colours")
    expect(thumbnail).not_to_have_js_property("naturalWidth", 0)
    until(lambda: page.evaluate(IMAGES, "WIGridCompositor"), "the grid in its node")
    (shown,) = page.evaluate(IMAGES, "WIGridCompositor")
    assert f"filename={batch['grid']['filename']}" in shown
    size = "type => { const [image] = app.graph.nodes.find((node) => node.type === type).imgs;"
    width, height = page.evaluate(f"{size} return [image.naturalWidth, image.naturalHeight]; }}", "WIGridCompositor")
    assert width > 10 * 96 * 0.9
    assert height > 9 * 40


def test_a_slow_batch_is_cancelled_from_the_panel(page: Page, comfyui: Inside) -> None:
    slow = {"class_type": "TestSlow", "inputs": {"image": ["1", 0], "seconds": 0.5}}
    comfyui.queue(iterating(parameter("0..199", "1.color"), name="slow", grid=False, n2=slow))
    found = row(page, "slow")
    expect(found.get_by_role("progressbar")).to_have_attribute("aria-valuenow", re.compile(r"[2-9]|\d\d"))
    found.get_by_role("button", name="Cancel batch slow").click()
    found.locator(".e3-stop").click()
    expect(found).to_contain_text("Cancelled")
    expect(found.locator(".e3-note")).to_be_visible()
    (batch,) = (each for each in comfyui.batches() if each["batch_name"] == "slow")
    assert batch["cancelled"]
    assert 2 <= batch["completed_count"] < 200
    queue = comfyui.get("/queue")
    assert not queue["queue_pending"]
    until(lambda: not comfyui.get("/queue")["queue_running"], "the running one to be stopped")
    found.get_by_role("button", name="Dismiss batch slow").click()
    expect(found).to_have_count(0)


def test_the_pages_own_prompt_of_each_example_is_its_api_file(page: Page) -> None:
    for name in NAMES:
        show(page, name)
        assert without_titles(json.loads(page.evaluate(PROMPT))) == without_titles(example(name, "api")), name
        free = "input => input.name.startsWith('param_') && input.link == null"
        iterators = "app.graph.nodes.filter(({ type }) => type === 'WIIterator')"
        assert page.evaluate(f"{iterators}.map(({{ inputs }}) => inputs.filter({free}).length)") == [1], name


def test_examples_are_offered_by_the_page(page: Page, comfyui: Inside) -> None:
    assert sorted(comfyui.get("/workflow_templates")["e3_iterator"]) == NAMES


def test_nodes_have_their_names_and_every_input_says_what_it_is_for(page: Page, comfyui: Inside) -> None:
    known = comfyui.get("/object_info")
    for class_type, shown_as in NODE_DISPLAY_NAME_MAPPINGS.items():
        made = page.evaluate("type => { const node = LiteGraph.createNode(type); return node.title; }", class_type)
        assert made == shown_as
        told = known[class_type]
        assert (told["display_name"], told["category"]) == (shown_as, "E3")
        assert told["description"]
        assert len(told.get("output_tooltips") or ()) == len(told["output"])
        for group in ("required", "optional"):
            for name, (_, *options) in told["input"].get(group, {}).items():
                assert options, f"{class_type}.{name}"
                assert options[0]["tooltip"], f"{class_type}.{name}"


def test_a_parameter_is_made_from_a_nodes_menu(page: Page) -> None:
    show(page, "save_each")
    page.evaluate(
        """() => {
          const node = app.graph.getNodeById(1);
          const item = app.collectNodeMenuItems(node).find((each) => each?.content?.startsWith("E3"));
          item.submenu.options.find(({ content }) => content.startsWith("height")).callback();
        }"""
    )
    prompt = json.loads(page.evaluate(PROMPT))
    (iterator,) = (node["inputs"] for node in prompt.values() if node["class_type"] == "WIIterator")
    made = prompt[iterator["param_2"][0]]["inputs"]
    said = {"name": "height", "type": "AUTO", "values": "256", "node_id": "1", "input_name": "height"}
    assert made == said
