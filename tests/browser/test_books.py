"""A book whose pages failed, mended in the page by someone who is no admin."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from support.browser import Guarded, Visit

PAGES = ["a fox leaves its den", "an owl watches", "two hares under the moon", "the thaw"]


def broken_book(guarded: Guarded, visit: Visit, title: str) -> Page:
    """A book of four pages, all ended, of which the second and the third failed; open, as a user sees it."""
    pages = [{"prompt": prompt} for prompt in PAGES]
    book = guarded.asked_by(guarded.user).book(
        title, "wf_realistic_portrait", pages, seed=4, steps=4, width=128, height=192
    )
    guarded.site.wait_batch(book, done=2, failed=2)
    visitor = visit(guarded.site)
    visitor.log_in(guarded.user)
    return visitor.go(f"/books/{book}")


def card(page: Page, number: int) -> Locator:
    return page.get_by_role("article", name=f"Page {number}", exact=True)


def test_a_failed_page_is_rendered_again_from_its_card(guarded: Guarded, visit: Visit) -> None:
    page = broken_book(guarded, visit, "One by one")
    for number, words in enumerate(["● Done", "△ Needs attention", "△ Needs attention", "● Done"], start=1):
        expect(card(page, number).get_by_text(words, exact=True)).to_be_visible()
    expect(card(page, 2)).to_contain_text("the simulator was told to fail")
    expect(card(page, 1).get_by_role("button", name="Regenerate page")).to_have_count(0)
    before = page.evaluate("performance.timeOrigin")
    for number in (2, 3):
        card(page, number).get_by_role("button", name="Regenerate page").click()
        expect(page.get_by_text(f"Page {number} waits again")).to_be_visible()
        expect(card(page, number).get_by_text("● Done", exact=True)).to_be_visible()
        expect(card(page, number).get_by_role("img", name=f"Page {number}")).not_to_have_js_property("naturalWidth", 0)
    expect(page.locator("#sentence")).to_contain_text("4 of 4 done")
    expect(page.get_by_role("button", name="Retry all failed pages")).to_have_count(0)
    assert page.evaluate("performance.timeOrigin") == before


def test_all_failed_pages_are_rendered_again_at_once(guarded: Guarded, visit: Visit) -> None:
    page = broken_book(guarded, visit, "All at once")
    page.get_by_role("button", name="Retry all failed pages").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Render 2 pages of All at once again?")
    dialog.get_by_role("button", name="Retry 2 pages", exact=True).click()
    expect(page.locator("#sentence")).to_contain_text("4 of 4 done")
    for number in range(1, 5):
        expect(card(page, number).get_by_text("● Done", exact=True)).to_be_visible()
