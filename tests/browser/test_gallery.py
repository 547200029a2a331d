"""The gallery: pictures as far as one scrolls, keys that rate and select, a slideshow, and files to take along."""

from __future__ import annotations

import io
import json
from zipfile import ZipFile

from playwright.sync_api import Page, expect

from support.browser import Site, Visit, until
from support.stores import in_the_shell

MANY = 400


def names(page: Page) -> list[str]:
    return [each.get_attribute("data-name") or "" for each in page.locator("#gallery [data-row]").all()]


def rendered(site: Site, *wanted: str) -> None:
    for number, name in enumerate(wanted):
        site.queue(name, color=60 + number)
    for name in wanted:
        site.wait_job(name, "done")


def test_keys_star_reject_and_select_and_the_selection_is_exported(site: Site, visit: Visit) -> None:
    rendered(site, "gallery_1", "gallery_2", "gallery_3")
    page = visit(site, "/gallery?show=all").page
    assert names(page)[:3] == ["gallery_3", "gallery_2", "gallery_1"]
    cell = {name: page.locator(f'[data-name="{name}"]') for name in names(page)[:3]}
    page.keyboard.press("j")
    page.keyboard.press("s")
    expect(page.get_by_role("button", name="Star gallery_3")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("0")
    expect(cell["gallery_2"]).to_have_attribute("data-rating", "-1")
    assert [site.job(name)["rating"] for name in cell] == [1, -1, None]
    for name in ("gallery_3", "gallery_1"):
        cell[name].hover()
        page.get_by_role("checkbox", name=f"Select {name}").check()
    selected = page.get_by_role("region", name="What is selected")
    expect(selected).to_contain_text("2 jobs selected")
    with page.expect_download() as download:
        selected.get_by_role("button", name="Export as zip").click()
    with ZipFile(io.BytesIO(download.value.path().read_bytes())) as archive:
        assert len(archive.namelist()) == 3
        assert archive.read("results.csv").decode().splitlines()[1].startswith("gallery_3,")
    page.goto(f"{site.url}/gallery")
    assert "gallery_2" not in names(page)
    page.get_by_role("link", name="★ Starred").click()
    expect(page.locator("#gallery [data-row]")).to_have_count(1)


def test_a_slideshow_goes_on_pauses_and_ends_where_it_is(site: Site, visit: Visit) -> None:
    rendered(site, "slide_1", "slide_2")
    window = visit(site)
    page = window.page
    page.clock.install()
    window.go("/gallery")
    page.keyboard.press("p")
    shown = page.get_by_role("dialog", name="Slideshow")
    picture = shown.get_by_role("img")
    expect(picture).to_have_attribute("alt", "slide_2")
    page.clock.run_for(4_000)
    expect(picture).to_have_attribute("alt", "slide_1")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press(" ")
    expect(shown.get_by_role("button", name="Pause")).to_have_attribute("aria-pressed", "true")
    page.clock.run_for(20_000)
    expect(picture).to_have_attribute("alt", "slide_2")
    page.keyboard.press("Escape")
    expect(shown).to_be_hidden()
    expect(page.locator('[data-name="slide_2"] .frame-link')).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="A picture in large").get_by_role("img", name="slide_2")).to_be_visible()


def test_one_scrolls_through_all_results_while_the_page_stays_small(site: Site, visit: Visit) -> None:
    rendered(site, "far_0")
    job = site.job("far_0")
    in_the_shell(
        site.workspace.database,
        f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {MANY}) "
        "INSERT INTO jobs (config_name, job_type, workflow_id, status, outputs, end_time) "
        f"SELECT 'far_' || n, 'T2I', 'far', 'done', '{json.dumps(job['outputs'])}', "
        "'2025-01-01 00:00:00.' || (1000 - n) FROM numbers",
    )
    page = visit(site, "/gallery?workflow=far").page
    seen: set[str] = set()

    def has_seen_all() -> bool:
        seen.update(names(page))
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        return len(seen) == MANY

    until(has_seen_all, f"{MANY} results")
    expect(page.locator("#gallery .gallery-next")).to_have_count(0)
    until(lambda: len(names(page)) < MANY - 100, "what is far away to be gone")
    page.evaluate("scrollTo(0, 0)")
    expect(page.locator('[data-name="far_1"]')).to_be_visible()
