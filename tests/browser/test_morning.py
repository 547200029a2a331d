"""The morning: whether the night went well, the pictures of it, in any size, and each of them large."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from support.browser import DESK, PATIENCE, PHONE, Site, Visit, Visitor, new_site, until
from support.servers import simulator

WIDE = {"width": 1920, "height": 1080}
PORTRAIT = "wf_realistic_portrait"
PROMPT = "a lighthouse keeper at dawn"
RATIO = 64 / 96
SIZE = {"width": 64, "height": 96, "steps": 4}
PICTURES = 6
OPENED = re.compile(r"#job-\d+$")


@pytest.fixture(scope="module")
def night(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A workspace in which six pictures came, two jobs failed, and nothing is left to do."""
    folder = tmp_path_factory.mktemp("night")
    server = simulator(folder / "sim", "--render-seconds", "0.1")
    site = new_site(folder / "workspace", server, COMFY_MAX_RETRIES="0")
    server.launch()
    try:
        site.start()
        sweep = site.sweep("lighthouses", PORTRAIT, {"seed": "1..3", "cfg": "4,7"}, prompt=PROMPT, **SIZE)
        site.queue("no_model", PORTRAIT, prompt="a dragon", seed=1, steps=4, checkpoint="none.safetensors")
        site.queue("no_model_either", PORTRAIT, prompt="a dragon", seed=2, steps=4, checkpoint="none.safetensors")
        site.wait_batch(sweep, done=PICTURES)
        until(lambda: len(site.jobs(status="failed")) == 2, "two to have failed")
        until(lambda: site.batch(sweep)["grid"], "the grid")
        yield site
    finally:
        site.stop()


def batch_of(site: Site) -> str:
    return str(site.ask("/api/v1/batches")["batches"][0]["id"])


def frames(place: Page | Locator) -> Locator:
    return place.locator(".frame[data-status=done]")


def shape_of(frame: Locator) -> float:
    box = frame.bounding_box()
    assert box is not None
    return box["width"] / box["height"]


def large(page: Page) -> Locator:
    return page.get_by_role("dialog", name="A picture in large")


def open_first(page: Page) -> Locator:
    """The first picture of a batch in large, when its settings are there."""
    frames(page).first.locator("a").click()
    expect(large(page).get_by_role("heading", name="seed = 1, cfg = 4")).to_be_visible()
    return large(page)


@pytest.mark.parametrize("size", [DESK, WIDE, PHONE], ids=["1280", "1920", "390"])
def test_the_last_work_leads_when_nothing_is_left_to_do(night: Site, visit: Visit, size: dict[str, int]) -> None:
    page = visit(night).page
    page.set_viewport_size({"width": size["width"], "height": size["height"]})
    page.goto(night.url)
    expect(page.locator("#sentence")).to_have_text(
        re.compile(rf"^(The last work|Last night): {PICTURES} pictures in [\d.]+ (s|min), 2 need attention\.$")
    )
    results = page.get_by_role("region", name="What came of it")
    expect(results.get_by_role("link", name="2 Model or node missing")).to_have_attribute(
        "href", "/queue?status=attention&class=missing"
    )
    expect(frames(results)).to_have_count(PICTURES)
    expect(results.get_by_text(PROMPT)).to_have_count(PICTURES)
    expect(page.get_by_role("region", name="Rendering now")).to_be_hidden()
    expect(page.get_by_text("images/min")).to_have_count(0)  # no rate while idle
    expect(page.locator("#pace-plot")).not_to_have_attribute("data-pace", re.compile(r'"target": [^0]'))
    first = frames(results).first.bounding_box()
    assert first is not None
    assert first["y"] < size["height"]
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


@pytest.mark.parametrize(("hour", "words"), [(7, "Last night"), (13, "The last work")])
def test_last_night_is_that_of_whoever_looks(night: Site, browser: Browser, hour: int, words: str) -> None:
    ahead = (hour - datetime.now(timezone.utc).hour + 12) % 24 - 12
    context = browser.new_context(timezone_id=f"Etc/GMT{-ahead:+d}")  # its signs are the other way round
    try:
        page = Visitor(context.new_page(), night.url).go("/")
        expect(page.locator("#sentence")).to_have_text(re.compile(f"^{words}: "))
    finally:
        context.close()


def test_a_frame_has_the_shape_of_its_picture_before_it_is_there(site: Site, visit: Visit) -> None:
    site.pause()
    batch = site.sweep("shapes", PORTRAIT, {"seed": "1..4"}, prompt="a mill", **SIZE)
    page = visit(site, f"/batches/{batch}").page
    cells = page.locator("#grid .frame")
    expect(page.locator("#grid [data-status=pending]")).to_have_count(4)
    before = [cells.nth(number).bounding_box() for number in range(4)]
    assert all(shape_of(cell) == pytest.approx(RATIO, rel=0.02) for cell in cells.all())
    site.resume()
    expect(frames(page.locator("#grid"))).to_have_count(4)
    for picture in page.locator("#grid img").all():
        expect(picture).not_to_have_js_property("naturalWidth", 0)
    assert [cells.nth(number).bounding_box() for number in range(4)] == before


def test_a_chosen_size_is_kept_and_holds_on_every_sheet(night: Site, visit: Visit) -> None:
    page = visit(night, "/").page
    slider = page.get_by_role("slider", name="Size of the pictures")
    slider.fill("400")
    expect(frames(page).first).to_have_js_property("offsetWidth", 416)
    page.goto(f"{night.url}/batches/{batch_of(night)}")
    expect(page.get_by_role("slider", name="Size of the pictures")).to_have_value("400")
    expect(frames(page).first).to_have_js_property("offsetWidth", 400)
    slider.fill("120")
    expect(frames(page).first).to_have_js_property("offsetWidth", 120)
    assert shape_of(frames(page).first) == pytest.approx(RATIO, rel=0.02)
    page.evaluate("localStorage.clear()")


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_a_picture_opens_large_with_its_settings_and_what_can_be_done_next(
    night: Site, visit: Visit, size: dict[str, int]
) -> None:
    page = visit(night, f"/batches/{batch_of(night)}").page
    page.set_viewport_size({"width": size["width"], "height": size["height"]})
    dialog = open_first(page)
    expect(dialog.get_by_role("img", name="seed = 1, cfg = 4")).not_to_have_js_property("naturalWidth", 0)
    for name, value in (("Prompt", PROMPT), ("Seed", "1"), ("Size", "96"), ("Cfg", "4")):
        expect(dialog.locator("dl > div").filter(has=page.get_by_text(name, exact=True))).to_contain_text(value)
    for name in ("Again with a new seed", "More like this", "Copy settings"):
        expect(dialog.get_by_role("button", name=name)).to_be_enabled()
    for name in ("Change and run", "Vary", "Use as input", "Open its page"):
        expect(dialog.get_by_role("link", name=name)).to_be_visible()
    with page.expect_download() as download:
        dialog.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename.endswith(".png")
    dialog.get_by_role("button", name="Copy settings").click()
    expect(dialog.get_by_text("Copied: the settings")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    dialog.get_by_role("button", name="Close", exact=True).first.click()
    expect(dialog).to_be_hidden()


def test_the_large_view_goes_by_keys_and_is_a_link(night: Site, visit: Visit) -> None:
    page = visit(night, f"/batches/{batch_of(night)}").page
    dialog = open_first(page)
    expect(page).to_have_url(OPENED)
    page.keyboard.press("ArrowLeft")  # there is none before
    page.keyboard.press("ArrowRight")
    expect(dialog.get_by_role("heading", name="seed = 1, cfg = 7")).to_be_visible()
    expect(dialog.get_by_text(f"2 of {PICTURES}")).to_be_visible()
    other = visit(night, page.url.removeprefix(night.url)).page
    expect(large(other).get_by_role("heading", name="seed = 1, cfg = 7")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page).not_to_have_url(OPENED)
    expect(frames(page).nth(1).locator("a")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    page.go_back()
    expect(dialog).to_be_hidden()
    expect(page).to_have_url(re.compile("/batches/"))


def test_the_circle_selects_and_the_picture_opens(night: Site, visit: Visit) -> None:
    page = visit(night, f"/batches/{batch_of(night)}").page
    page.get_by_label("Compare seed = 1, cfg = 4", exact=True).click()
    expect(page.get_by_role("region", name="What is selected")).to_contain_text("seed = 1, cfg = 4 is selected")
    expect(large(page)).to_be_hidden()
    open_first(page)


def test_a_dialog_says_what_its_button_does_in_the_colour_of_a_warning(site: Site, visit: Visit) -> None:
    site.pause()
    batch = site.sweep("unwanted", PORTRAIT, {"seed": "1..2"}, prompt="a mill", **SIZE)
    page = visit(site, f"/batches/{batch}").page
    page.get_by_role("button", name="Cancel", exact=True).click()
    yes = page.get_by_role("dialog").get_by_role("button", name="Cancel 2 jobs", exact=True)
    colours = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--warn')")
    assert colours
    expect(yes).to_have_class(re.compile("button-warn"))
    yes.click()
    expect(page.locator("#grid").get_by_text("Cancelled", exact=True)).to_have_count(2)


def test_the_page_beside_a_grid_is_shown_without_the_rights_of_whoever_looks(night: Site, visit: Visit) -> None:
    page = visit(night, f"/batches/{batch_of(night)}").page
    expect(page.get_by_text(PROMPT).first).to_be_visible()
    page.get_by_role("link", name="Grid page").click()
    expect(page.get_by_role("img")).to_have_count(PICTURES, timeout=PATIENCE * 1000)
    expect(page.get_by_text(PROMPT).first).to_be_visible()
    page.get_by_role("button", name="Compare seed").first.click()
    assert page.evaluate("window.origin") == "null"
