"""Every screen of a lively workspace: nothing goes wrong, all can be read, on a phone too; and the screenshots."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from browser.scene import DONE, OF, Scene, build_scene
from browser.tour import HEAVIEST, STOPS, Seen, is_blank, rest, small, walk
from comfyui_agent.web.site import ADDRESSES, find
from support.agents import AgentWorkspace
from support.browser import Site, Visit

FOLDER = os.environ.pop("E3_SCREENSHOTS", "")
"""Where they are kept. E3 itself would take it for a setting."""
PORTS = (8188, 8189) if FOLDER else (None, None)
"""Pictures that are kept show the addresses that people know."""

Tour = dict[str, Seen]


@pytest.fixture(scope="module")
def scene(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    built = build_scene(tmp_path_factory.mktemp("scene"), PORTS)
    yield built
    built.site.stop()


@pytest.fixture(scope="module")
def tour(context: BrowserContext, scene: Scene) -> Tour:
    seen = walk(context, scene, is_whole=bool(FOLDER))
    return {**seen, **rest(context, scene)} if FOLDER else seen


def test_screenshots_show_every_page(tour: Tour, tmp_path: Path) -> None:
    folder = Path(FOLDER) if FOLDER else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    for name, seen in tour.items():
        for kind, shot in seen.shots.items():
            assert not is_blank(shot), (name, kind)
            if FOLDER:
                picture = small(shot)
                assert len(picture) <= HEAVIEST, (name, kind)
                (folder / f"{name}{'' if kind == 'light' else f'-{kind}'}.png").write_bytes(picture)


def test_nothing_goes_wrong_on_any_page_and_nothing_leaves_it(tour: Tour) -> None:
    assert {name: seen.wrong for name, seen in tour.items() if seen.wrong} == {}


def test_text_has_enough_contrast_in_light_and_dark(tour: Tour) -> None:
    assert {name: seen.faint for name, seen in tour.items() if seen.faint} == {}


def test_no_page_scrolls_sideways_on_a_phone(tour: Tour) -> None:
    assert {name: seen.too_wide for name, seen in tour.items() if seen.too_wide > 0} == {}


def test_nothing_is_covered_cut_or_faint_in_any_size_light_and_dark(tour: Tour) -> None:
    assert {name: seen.flaws for name, seen in tour.items() if seen.flaws} == {}


def test_every_screen_is_on_the_tour() -> None:
    scene = Scene(Site(AgentWorkspace(Path(), []), ()), "sweep", "finished", "book", 1, 2, 3)
    walked = {
        find(stop.path(scene).partition("?")[0])[0]
        for stop in STOPS
        if stop.is_live and stop.name not in ("compare", "large")
    }
    assert walked == set(ADDRESSES)


def test_the_description_of_the_api_needs_nothing_from_elsewhere(scene: Scene, visit: Visit) -> None:
    page = visit(scene.site).page
    page.goto(f"{scene.site.url}/docs")
    expect(page.get_by_role("link", name="/api/v1/status", exact=True)).to_be_visible()


def test_what_renders_shows_its_preview_and_its_steps(scene: Scene, visit: Visit) -> None:
    page = visit(scene.site, "/").page
    running = page.get_by_role("region", name="Rendering now")
    expect(running.get_by_role("progressbar")).to_have_count(2)
    expect(running.get_by_text(re.compile(r"Step \d+ of 20")).first).to_be_visible()
    previews = running.get_by_role("img")
    expect(previews).to_have_count(2)
    for preview in previews.all():
        expect(preview).not_to_have_js_property("naturalWidth", 0)
    expect(page.get_by_role("region", name="Batches under way")).to_contain_text(f"{DONE} of {OF} done")


def test_two_cells_that_are_compared_are_a_link(scene: Scene, visit: Visit) -> None:
    first, second = scene.cells()
    visitor = visit(scene.site, f"/batches/{scene.finished}")
    page = visitor.page
    page.get_by_label("Compare seed = 1, cfg = 4", exact=True).check()
    expect(page.get_by_role("region", name="What is selected")).to_contain_text("seed = 1, cfg = 4 is selected")
    page.get_by_label("Compare seed = 2, cfg = 7.5", exact=True).check()
    page.wait_for_url(f"**/batches/{scene.finished}?compare={first},{second}")
    other = visit(scene.site, page.url.removeprefix(scene.site.url)).page
    for each in (page, other):
        sides = each.get_by_role("region", name="Side by side")
        expect(sides.get_by_role("article")).to_have_count(2)
        expect(sides.get_by_role("article").last).to_contain_text("cfg = 7.5")


def test_the_page_beside_the_grid_works_from_a_file(scene: Scene, visit: Visit) -> None:
    """`grid.html`, as it may be sent to someone who has no E3."""
    grid = scene.site.workspace.root / scene.site.batch(scene.finished)["grid"]
    visitor = visit(scene.site)
    visitor.url = "file://"
    page = visitor.page
    page.goto(grid.with_suffix(".html").as_uri())
    expect(page.get_by_role("img")).to_have_count(9)
    cells = page.get_by_role("button", name="Compare seed")
    cells.nth(0).click()
    cells.nth(4).click()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.get_by_role("dialog")).to_contain_text("7.5")
    assert "#" in page.url
