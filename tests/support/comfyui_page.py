"""ComfyUI's own page in a browser. It needs the package `comfyui-frontend-package`, or its folder `static`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser import new_context, until

PACKAGE = "comfyui_frontend_package"
ELSEWHERE = re.compile(r"^https?://(?!127\.0\.0\.1)")
"""The page asks for news of ComfyUI and looks for models there."""


def frontend() -> Path:
    """The files of the page, or the reason why the test is skipped."""
    given = os.environ.get("E3_COMFYUI_FRONTEND")
    if given:
        return Path(given)
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        pytest.skip("ComfyUI's page is not installed: pip install comfyui-frontend-package, or E3_COMFYUI_FRONTEND=DIR")
    return Path(found.origin).parent / "static"


@contextmanager
def opened(browser: Browser, url: str) -> Iterator[Page]:
    """The page in a browser of its own, with its first workflow."""
    with new_context(browser) as context:
        page = context.new_page()
        page.route(ELSEWHERE, lambda route: route.abort())
        page.goto(url)
        expect(run_button(page)).to_be_visible(timeout=60_000)
        until(lambda: page.evaluate("window.app?.graph?.nodes?.length ?? 0") > 5, "the first workflow")
        yield page


def run_button(page: Page) -> Any:
    return page.get_by_role("button", name="Run", exact=True).first


def ask(url: str, path: str) -> Any:
    with urllib.request.urlopen(f"{url}{path}", timeout=20) as answer:
        return json.load(answer)
