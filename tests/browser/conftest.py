"""A browser, and agents whose page it looks at: each started once for all tests that a process runs of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from support.browser import (
    FLAGS,
    PATIENCE,
    Guarded,
    Site,
    Visit,
    Visitor,
    chromium,
    make_token,
    new_context,
    new_site,
)
from support.servers import simulator

RENDER_SECONDS = "0.3"


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = chromium()
    expect.set_options(timeout=PATIENCE * 1000)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="package")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser of someone who has been here before: it keeps files that never change, and nothing else."""
    with new_context(browser) as opened:
        yield opened


@pytest.fixture
def visit(context: BrowserContext) -> Iterator[Visit]:
    """Opens a window at a site. At the end of the test nothing may have gone wrong in any of them."""
    visitors: list[Visitor] = []

    def open_window(site: Site, path: str = "", *, expected: tuple[str, ...] = ()) -> Visitor:
        visitor = Visitor(context.new_page(), site.url, expected=expected)
        visitors.append(visitor)
        if path:
            visitor.go(path)
        return visitor

    yield open_window
    try:
        for visitor in visitors:
            visitor.check()
    finally:
        for visitor in visitors:
            visitor.page.close()
        context.clear_cookies()


@pytest.fixture(scope="package")
def whole_site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server, one agent, no tokens."""
    folder = tmp_path_factory.mktemp("site")
    server = simulator(folder / "sim", "--render-seconds", RENDER_SECONDS)
    site = new_site(folder / "workspace", server)
    server.launch()
    try:
        yield site.start()
    finally:
        site.stop()


@pytest.fixture
def site(whole_site: Site) -> Iterator[Site]:
    """The same, with nothing left to do afterwards."""
    yield whole_site
    whole_site.clear()


FAILURES = ("--failure-rate", "0.35", "--seed", "682")
"""Of the first twelve renders the 2nd, the 3rd, the 8th and the 9th fail: two in a book of four pages, neither of them
when it is rendered again; and the same once more. Tests that want no book render nothing there."""


@pytest.fixture(scope="package")
def guarded(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """An agent with tokens, and a server at which renders fail as told. Nothing is tried again by itself."""
    folder = tmp_path_factory.mktemp("guarded")
    server = simulator(folder / "sim", "--render-seconds", "0.2", *FAILURES)
    site = new_site(folder / "workspace", server, COMFY_MAX_RETRIES="0")
    server.launch()
    try:
        user, site.token = make_token(site, "user"), make_token(site, "admin")
        yield Guarded(site.start(), user, site.token)
    finally:
        site.stop()
