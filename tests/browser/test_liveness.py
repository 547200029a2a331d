"""Honest liveness: the page says since when it hears nothing, stops pretending, and comes back by itself."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from support.browser import Site, Visit, Visitor, until

SILENCE = ("net::ERR_", "Failed to load resource")


def lost(page: Page) -> None:
    """The page says that the agent is gone, since when, and lets nobody act."""
    banner = page.get_by_role("alert").filter(has_text="Connection to the agent lost since")
    expect(banner).to_contain_text(re.compile(r"since \d\d:\d\d:\d\d"))
    expect(page.locator("#live")).to_have_text("lost")
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_disabled()


def live(page: Page) -> None:
    expect(page.locator("#live")).to_have_text("live")
    expect(page.get_by_text("Connection to the agent lost")).to_be_hidden()


def test_a_killed_agent_is_noticed_and_the_page_comes_back_fresh_by_itself(site: Site, visit: Visit) -> None:
    site.pause()
    job = site.queue("survivor", color=21)
    visitor = visit(site, f"/jobs/{job['id']}", expected=SILENCE)
    page, loads = visitor.page, visitor.loads
    site.kill()
    lost(page)
    site.start()
    site.resume()
    live(page)
    expect(page.get_by_label("Facts")).to_contain_text("Done")
    assert visitor.loads == loads


@pytest.mark.slow
def test_an_agent_that_hangs_is_noticed_although_the_connection_stands(site: Site, visit: Visit) -> None:
    site.pause()
    job = site.queue("hanging", color=22)
    visitor = visit(site, expected=SILENCE)
    page = visitor.page
    page.clock.install()
    visitor.go(f"/jobs/{job['id']}")
    site.freeze()
    try:
        page.clock.fast_forward("00:25")
        lost(page)
    finally:
        site.thaw()
    page.clock.fast_forward("00:10")
    live(page)
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_enabled()


HIDE = """
(hidden) => {
  Object.defineProperty(document, "hidden", {configurable: true, get: () => hidden});
  Object.defineProperty(document, "visibilityState", {configurable: true, get: () => hidden ? "hidden" : "visible"});
  document.dispatchEvent(new Event("visibilitychange"));
}
"""


def test_a_hidden_tab_costs_the_agent_nothing_and_is_fresh_when_it_is_seen_again(site: Site, visit: Visit) -> None:
    site.pause()
    job = site.queue("unseen", color=23)
    visitor = visit(site, expected=SILENCE)
    closed: list[str] = []
    visitor.page.on("requestfailed", lambda request: closed.append(request.url))
    page = visitor.go(f"/jobs/{job['id']}")
    assert streams(visitor) == 1
    assert watches(site)
    page.evaluate(HIDE, True)
    until(lambda: page.evaluate("1") and any("/stream?" in url for url in closed), "the stream to be closed")
    until(lambda: not watches(site), "the agent to stop looking")
    site.resume()
    site.wait_job("unseen", "done")
    expect(page.get_by_label("Facts")).to_contain_text("Pending")
    assert streams(visitor) == 1
    page.evaluate(HIDE, False)
    expect(page.get_by_label("Facts")).to_contain_text("Done")
    assert streams(visitor) == 2


RECORD = """
() => {
  window.told = [];
  window.Notification = class extends window.Notification {
    constructor(title, options) {
      super(title, options);
      window.told.push(`${title}: ${options.body}`);
    }
  };
}
"""


def test_a_hidden_page_tells_once_when_all_work_has_ended_and_asks_for_no_previews(
    site: Site, visit: Visit, context: BrowserContext
) -> None:
    context.grant_permissions(["notifications"], origin=site.url)
    visitor = visit(site, "/")
    page = visitor.page
    page.evaluate(RECORD)
    page.get_by_role("button", name="Tell me when it is done").click()
    expect(page.get_by_role("button", name="You are told when it is done", pressed=True)).to_be_visible()
    assert page.evaluate("window.told") == []
    page.evaluate(HIDE, True)
    followed = "/api/v1/events?previews=false"
    until(lambda: page.evaluate("1") and any(followed in each.url for each in visitor.requests), "it to listen")
    assert not watches(site)
    site.queue("told", color=31)
    site.wait_job("told", "done")
    until(lambda: page.evaluate("window.told.length"), "a notification")
    [told] = page.evaluate("window.told")
    assert told.startswith("All work has ended: ")
    page.evaluate(HIDE, False)
    page.get_by_role("button", name="You are told when it is done").click()
    expect(page.get_by_role("button", name="Tell me when it is done", pressed=False)).to_be_visible()


def streams(visitor: Visitor) -> int:
    """How many streams the page has opened."""
    return sum("/stream?" in request.url for request in visitor.requests)


def watches(site: Site) -> bool:
    """Whether the agent keeps an eye on what renders, which it does for open pages alone."""
    wanted = site.workspace.database.parent / "agents" / "previews.wanted"
    wanted.unlink(missing_ok=True)
    try:
        until(wanted.exists, "a sign", 0.8)
    except AssertionError:
        return False
    return True
