"""Making something in the page, and watching it become a picture."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from support.browser import Site, Visit
from support.pictures import png

PORTRAIT = "wf_realistic_portrait"
SCRIPT = "<script>window.ran = 1</script><img src=x onerror='window.ran = 2'>"

STATES = """
() => {
  const seen = {};
  const note = () => {
    for (const frame of document.querySelectorAll("#grid [data-status]")) {
      const id = frame.closest("[id]").id;
      const states = (seen[id] ??= []);
      if (states.at(-1) !== frame.dataset.status) states.push(frame.dataset.status);
    }
  };
  note();
  const everything = {subtree: true, childList: true, attributes: true};
  new MutationObserver(note).observe(document.getElementById("grid"), everything);
  window.states = seen;
}
"""
BOXES = """
() => Object.fromEntries([...document.querySelectorAll("#grid [data-status]")].map((frame) => {
  const {x, y, width, height} = frame.getBoundingClientRect();
  return [frame.closest("[id]").id, [x, y, width, height]];
}))
"""


def test_a_job_made_in_the_page_becomes_a_picture_without_a_reload(site: Site, visit: Visit) -> None:
    visitor = visit(site, "/")
    page = visitor.page
    page.get_by_role("link", name="New", exact=True).click()
    page.wait_for_url("**/new")
    visitor.wait_live()
    page.get_by_label("Workflow", exact=True).select_option(PORTRAIT)
    expect(page).to_have_url(re.compile("workflow="))  # its fields are there
    page.get_by_label("prompt", exact=True).fill("a fox in the first snow")
    page.get_by_label("seed", exact=True).fill("7")
    page.get_by_label("steps", exact=True).fill("4")
    expect(page.get_by_text(re.compile(r"^1 picture"))).to_be_visible()
    page.get_by_role("button", name="Queue it").click()
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    loads = visitor.loads
    picture = page.get_by_role("region", name="Result").get_by_role("img")
    expect(picture).to_have_js_property("naturalWidth", 384)
    expect(page.get_by_label("Facts")).to_contain_text("Done")
    expect(page.get_by_role("row", name="prompt a fox in the first snow")).to_be_visible()
    assert visitor.loads == loads
    job = site.job(int(page.url.rpartition("/")[2]))
    assert (job["status"], job["inputs"]["5.seed"], job["inputs"]["5.steps"]) == ("done", 7, 4)


def test_problems_of_a_form_are_shown_at_their_fields(site: Site, visit: Visit) -> None:
    page = visit(site, f"/new?workflow={PORTRAIT}").page
    page.get_by_label("prompt", exact=True).fill("")
    page.get_by_label("seed", exact=True).fill("seven")
    page.get_by_role("button", name="Queue it").click()
    expect(page.get_by_label("prompt", exact=True)).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("seed", exact=True)).to_have_attribute("aria-invalid", "true")
    assert page.url.endswith(f"/new?workflow={PORTRAIT}")


def test_models_are_searched_in_a_list_with_the_pictures_that_their_server_has(site: Site, visit: Visit) -> None:
    [server] = site.servers
    models = server.folder / "output" / ".e3sim" / "models" / "checkpoints"
    models.mkdir(parents=True, exist_ok=True)
    (models / "e3_inkwash_v1.preview.png").write_bytes(png(size=(300, 200)))
    page = visit(site, f"/new?workflow={PORTRAIT}").page
    field = page.get_by_role("combobox", name="checkpoint")
    if not field.is_visible():
        page.get_by_text("More inputs").click()
    field.click()
    offered = page.get_by_role("listbox", name="checkpoint").get_by_role("option")
    expect(offered).to_have_count(3)
    field.fill("e3 INK")
    expect(offered).to_have_count(1)
    expect(offered.get_by_role("presentation")).to_have_js_property("naturalWidth", 160)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(field).to_have_value("e3_inkwash_v1.safetensors")
    expect(offered).to_have_count(0)
    field.press("ArrowDown")
    expect(offered).to_have_count(3)
    expect(offered.get_by_role("presentation")).to_have_count(1)  # the others have no picture
    page.keyboard.press("Escape")
    expect(field).to_have_attribute("aria-expanded", "false")


def test_a_sweep_says_how_many_pictures_it_will_be_before_it_is_queued(site: Site, visit: Visit) -> None:
    site.pause()
    page = visit(site, f"/new?kind=sweep&workflow={PORTRAIT}").page
    page.get_by_label("Input 1").fill("seed")
    page.get_by_label("Values 1").fill("1..3")
    page.get_by_label("Input 2").fill("cfg")
    page.get_by_label("Values 2").fill("4, 7.5")
    expect(page.get_by_text("= 6 pictures")).to_be_visible()
    page.get_by_label("prompt", exact=True).fill("a lighthouse")
    page.get_by_label("Name of the batch").fill("lights")
    page.get_by_role("button", name="Queue the sweep").click()
    page.wait_for_url(re.compile(r"/batches/lights_[0-9a-f]{8}$"))
    expect(page.get_by_role("columnheader")).to_have_count(2)
    assert site.batch(page.url.rpartition("/")[2])["total"] == 6


def test_a_batch_fills_its_grid_by_itself_and_nothing_moves(site: Site, visit: Visit) -> None:
    site.pause()
    batch = site.sweep("fill", PORTRAIT, {"seed": "1..3", "cfg": "4,7.5"}, prompt="a lighthouse", steps=4, width=256)
    visitor = visit(site, f"/batches/{batch}")
    page = visitor.page
    expect(page.locator("#grid").get_by_text("Pending", exact=True)).to_have_count(6)
    before, loads = page.evaluate(BOXES), visitor.loads
    page.evaluate(STATES)
    site.resume()
    pictures = page.locator("#grid").get_by_role("img")
    expect(pictures).to_have_count(6)
    expect(page.locator("#sentence")).to_contain_text("6 of 6 done")
    for number in range(6):
        pictures.nth(number).scroll_into_view_if_needed()
        expect(pictures.nth(number)).not_to_have_js_property("naturalWidth", 0)
    page.evaluate("scrollTo(0, 0)")
    seen = set(states(page).values())  # the page looks four times a second: a quick render may fall in between
    assert ("pending", "processing", "done") in seen
    assert seen <= {("pending", "processing", "done"), ("pending", "done")}
    assert page.evaluate(BOXES) == before
    assert visitor.loads == loads
    assert page.evaluate("window.seen.shifted") < 0.05


def states(page: Page) -> dict[str, tuple[str, ...]]:
    """What each cell has been, in order."""
    found: dict[str, list[str]] = page.evaluate("window.states")
    return {cell: tuple(seen) for cell, seen in found.items()}


def test_what_a_prompt_says_is_shown_and_never_run(site: Site, visit: Visit) -> None:
    site.pause()
    named = site.queue(f"{SCRIPT}.yaml".replace("/", ""), PORTRAIT, prompt=SCRIPT, seed=1, steps=1)
    batch = site.sweep(SCRIPT[:20], PORTRAIT, {"prompt": f'"{SCRIPT}", "b"'}, seed=1, steps=1)
    book = site.book(SCRIPT, PORTRAIT, [{"prompt": SCRIPT}], seed=1, steps=1)
    visitor = visit(site)
    shown: dict[str, Any] = {
        f"/jobs/{named['id']}": visitor.page.get_by_role("cell", name=SCRIPT),
        "/queue?status=pending": visitor.page.get_by_role("link", name=SCRIPT).first,
        f"/batches/{batch}": visitor.page.get_by_role("link", name=SCRIPT).last,
        f"/books/{book}": visitor.page.get_by_role("heading", name=SCRIPT),
        f"/admin/books/{book}": visitor.page.locator("textarea").first,
    }
    for path, words in shown.items():
        page = visitor.go(path)
        expect(words).to_be_attached()
        assert SCRIPT.replace("/", "")[:30] in (words.text_content() or "").replace("/", ""), path
        assert page.evaluate("window.ran") is None, path


IMPORT = "Import a workflow"
EDITOR = {"version": 0.4, "links": [], "nodes": [{"id": 1, "type": "EmptyImage", "widgets_values": [8, 8, 1, 3]}]}


def test_a_file_of_the_editor_becomes_a_workflow_whose_form_opens(site: Site, visit: Visit, tmp_path: Path) -> None:
    file = tmp_path / "My picture (1).json"
    file.write_text(json.dumps(EDITOR))
    page = visit(site, "/new").page
    with page.expect_file_chooser() as chosen:
        page.get_by_role("button", name=IMPORT).click()
    chosen.value.set_files(file)
    page.wait_for_url(re.compile(r"/new\?workflow=My(%20|\+)picture"))
    said = page.get_by_role("region", name="What happened")
    expect(said).to_contain_text("UI format, 1 node. Inputs: ")
    expect(page.get_by_label("color", exact=True)).to_have_value("3")


def test_a_file_that_is_refused_is_said_where_it_was_chosen(site: Site, visit: Visit, tmp_path: Path) -> None:
    file = tmp_path / "gone.json"
    file.write_text(json.dumps({**EDITOR, "nodes": [{"id": 4, "type": "Gone", "title": "My node"}]}))
    visitor = visit(site, "/new")
    visitor.expected = ("409 (Conflict)",)
    visitor.page.locator("#import-file").set_input_files(file)
    said = visitor.page.get_by_role("alert")
    expect(said).to_contain_text("node 4 (My node): the server has no node Gone")
    expect(visitor.page).to_have_url(re.compile(r"/new$"))
