"""A walk through every screen of a scene: what each looks like, and what is wrong with it."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from PIL import Image
from playwright.sync_api import BrowserContext, FloatRect, Page, expect

from browser.scene import Scene
from support.browser import DESK, PHONE, Visitor, until

TALLEST = 1600
SIZES = ((1280, 800), (1920, 1080), (390, 844))
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PICTURES = os.environ.pop("E3_SIZES", "")
"""A folder: each screen in each size and scheme is kept there."""
HEAVIEST = 170_000
"""Of a picture, in pixels and in bytes."""

FAINT = """
() => {
  const canvas = Object.assign(document.createElement("canvas"), {width: 1, height: 1});
  const pixel = canvas.getContext("2d", {willReadFrequently: true});
  const rgba = (colour) => {
    pixel.clearRect(0, 0, 1, 1);
    pixel.fillStyle = colour;
    pixel.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = pixel.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (top, below) => top.slice(0, 3).map((value, at) => value * top[3] + below[at] * (1 - top[3]));
  const ancestors = (element) => (element ? [element, ...ancestors(element.parentElement)] : []);
  const behind = (element) => ancestors(element).reverse()
    .reduce((below, each) => over(rgba(getComputedStyle(each).backgroundColor), below), [255, 255, 255]);
  const opacity = (element) => ancestors(element).reduce((all, each) => all * getComputedStyle(each).opacity, 1);
  const light = (colour) => {
    const [red, green, blue] = colour.map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const faint = new Map();
  const judge = (element, words, colour) => {
    const style = getComputedStyle(element);
    const below = behind(element);
    const ink = rgba(colour);
    ink[3] *= opacity(element);
    const [dim, bright] = [light(over(ink, below)), light(below)].sort((a, b) => a - b);
    const contrast = (bright + 0.05) / (dim + 0.05);
    const size = parseFloat(style.fontSize);
    const enough = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    if (contrast < enough) {
      const where = element.className || element.tagName.toLowerCase();
      const said = `${contrast.toFixed(2)} of ${enough}: "${words.slice(0, 40)}" (${where})`;
      if (!faint.has(where)) faint.set(where, said);
    }
  };
  const isSeen = (element) => {
    const {width, height} = element.getBoundingClientRect();
    return width > 1 && height > 1 && element.checkVisibility({opacityProperty: true, visibilityProperty: true});
  };
  const isJudged = (element) => isSeen(element) && !element.closest(":disabled")
    && !element.closest("figure")?.querySelector("img, video");
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const words = texts.currentNode.data.trim();
    const element = texts.currentNode.parentElement;
    const isDrawn = !element.matches("option, script, progress, meter");
    if (words && isDrawn && isJudged(element)) judge(element, words, getComputedStyle(element).color);
  }
  for (const field of document.querySelectorAll("input, textarea, select")) {
    if (!isJudged(field) || field.matches("[type=checkbox], [type=radio], [type=hidden]")) continue;
    if (field.value) judge(field, field.value, getComputedStyle(field).color);
    else if (field.placeholder) judge(field, field.placeholder, getComputedStyle(field, "::placeholder").color);
  }
  return [...faint.values()];
}
"""
MISPLACED = """
() => {
  const found = [];
  const say = (what, element) => {
    const words = (element.innerText || element.getAttribute("aria-label") || element.id || element.className).trim();
    found.push(`${what}: ${words.slice(0, 40)} (${element.className || element.tagName.toLowerCase()})`);
  };
  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 0) found.push(`${wide} px too wide`);
  const place = document.querySelector("dialog[open]") ?? document.body;
  const isSeen = (element) => element.checkVisibility({opacityProperty: true, visibilityProperty: true});
  const ancestors = (element) => (element ? [element, ...ancestors(element.parentElement)] : []);
  const scrolls = (element) => ancestors(element.parentElement)
    .some((each) => ["auto", "scroll"].includes(getComputedStyle(each).overflowX));
  const isInFront = (element) => ancestors(element)
    .some((each) => each !== document.body && ["sticky", "fixed"].includes(getComputedStyle(each).position));
  for (const element of place.querySelectorAll("a, button, input, select, textarea, summary")) {
    const box = element.getBoundingClientRect();
    const isThere = isSeen(element) && box.width > 1 && box.height > 1 && !element.closest(".unseen, [inert]");
    if (!isThere) continue;
    if (!scrolls(element) && (box.left < -1 || box.right > innerWidth + 1)) say("out of sight", element);
    const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
    if (x < 0 || y < 0 || x >= innerWidth || y >= innerHeight) continue;
    const top = document.elementFromPoint(x, y);
    const isLabel = top?.closest("label")?.control === element || top?.closest("label")?.contains(element);
    const isBar = top && isInFront(top) && !isInFront(element);
    if (top && !element.contains(top) && !top.contains(element) && !isLabel && !isBar) say("covered", element);
  }
  for (const element of place.querySelectorAll("h1, h2, h3, p, button, .button, dd, dt, label, th, td, summary")) {
    const style = getComputedStyle(element);
    const isShort = style.textOverflow === "ellipsis" || style.webkitLineClamp !== "none" || element.matches(".unseen");
    const isCut = style.overflowX !== "visible" ? element.scrollWidth > element.clientWidth + 1 : false;
    if (isSeen(element) && isCut && !isShort && !["auto", "scroll"].includes(style.overflowX)) say("cut", element);
  }
  return found;
}
"""
SETTLED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
LOADED = """
(height) => [...document.images].every((image) =>
  image.complete || image.getBoundingClientRect().top > height || !image.checkVisibility())
"""


@dataclass(frozen=True)
class Stop:
    """A place to look at. `shots` are kept: light, dark, phone."""

    name: str
    path: Callable[[Scene], str]
    shots: tuple[str, ...] = ("light",)
    is_live: bool = True
    main: str = ""
    """The button or link that most people want there. Such a stop is looked at in every size and scheme."""


ALL = ("light", "dark", "phone")
STOPS = (
    Stop("overview", lambda _: "/", ALL, main="New"),
    Stop("queue", lambda _: "/queue", ALL),
    Stop("gallery", lambda _: "/gallery", ALL, main="Slideshow"),
    Stop("job", lambda scene: f"/jobs/{scene.job}", ALL, main="Again with a new seed"),
    Stop("job-failed", lambda scene: f"/jobs/{scene.failed}", ("light", "dark")),
    Stop("job-waiting", lambda scene: f"/jobs/{scene.waiting}", ()),
    Stop("batches", lambda _: "/batches"),
    Stop("batch", lambda scene: f"/batches/{scene.sweep}", ALL, main="Pause"),
    Stop("batch-list", lambda scene: f"/batches/{scene.sweep}?status=pending", ()),
    Stop("compare", lambda scene: f"/batches/{scene.finished}?compare={scene.cells()[0]},{scene.cells()[1]}", ALL),
    Stop("large", lambda scene: f"/batches/{scene.finished}#job-{scene.cells()[0]}", ALL, main="Change and run"),
    Stop("books", lambda _: "/books"),
    Stop("book", lambda scene: f"/books/{scene.book}", ALL, main="Retry all failed pages"),
    Stop("servers", lambda _: "/servers", ("light", "phone")),
    Stop("reports", lambda _: "/reports"),
    Stop("new", lambda _: "/new", ALL, main="Queue it"),
    Stop("new-sweep", lambda _: "/new?kind=sweep"),
    Stop("new-again", lambda scene: f"/new?from={scene.job}", ("light",)),
    Stop("new-picture", lambda _: "/new?workflow=wf_image_to_image", ()),
    Stop("new-book", lambda _: "/new?kind=book"),
    Stop("admin", lambda _: "/admin"),
    Stop("admin-book", lambda scene: f"/admin/books/{scene.book}"),
    Stop("login", lambda _: "/login", ("light", "dark"), is_live=False),
)


@dataclass
class Seen:
    """What was found at a stop."""

    wrong: list[str] = field(default_factory=list)
    """Errors, refusals of the content security policy, requests that went elsewhere."""
    faint: list[str] = field(default_factory=list)
    """Text with too little contrast, by scheme."""
    too_wide: int = 0
    """Pixels by which it is wider than a phone."""
    shots: dict[str, bytes] = field(default_factory=dict)
    flaws: list[str] = field(default_factory=list)
    """What is covered, cut or out of sight in some size and scheme."""


def walk(context: BrowserContext, scene: Scene, *, is_whole: bool) -> dict[str, Seen]:
    """Look at every stop. Unless `is_whole`, only the light scheme is photographed, and only what is in the window."""
    with closing(context.new_page()) as page:
        visitor = Visitor(page, scene.site.url)
        previews = visitor.go("/").get_by_role("region", name="Rendering now").get_by_role("img")
        expect(previews).to_have_count(2)  # they come once someone looks
        return {stop.name: _look(visitor, scene, stop, is_whole=is_whole) for stop in STOPS}


def rest(context: BrowserContext, scene: Scene) -> dict[str, Seen]:
    """The overview when nothing is left to do. What was under way in the scene is cancelled."""
    with closing(context.new_page()) as page:
        visitor = Visitor(page, scene.site.url)
        scene.site.clear()
        expect(visitor.go("/").get_by_role("region", name="What came of it")).to_be_visible()
        return {"morning": _look(visitor, scene, Stop("morning", lambda _: "/", ALL), is_whole=True)}


def _look(visitor: Visitor, scene: Scene, stop: Stop, *, is_whole: bool) -> Seen:
    page, seen = visitor.page, Seen()
    page.set_viewport_size({"width": DESK["width"], "height": DESK["height"]})
    page.emulate_media(color_scheme="light")
    visitor.requests.clear()
    visitor.complaints.clear()
    if stop.is_live:
        visitor.go(stop.path(scene))
    else:
        page.goto(f"{visitor.url}{stop.path(scene)}")
    is_large = "#" in stop.path(scene)
    if is_large:
        expect(page.locator("#large-title")).to_be_visible()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        if scheme in stop.shots and (is_whole or scheme == "light"):
            seen.shots[scheme] = _shot(page, is_whole=is_whole and not is_large)
        seen.faint += [f"{scheme}: {words}" for words in page.evaluate(FAINT)]
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    for _ in range(20):
        seen.too_wide = page.evaluate("document.documentElement.scrollWidth") - PHONE["width"]
        if seen.too_wide <= 0:
            break
        page.wait_for_timeout(100)  # what draws itself to the width of the page is told of it after a moment
    if "phone" in stop.shots and is_whole:
        seen.shots["phone"] = _shot(page, is_whole=False)
    if stop.main:
        seen.flaws = list(_flaws(page, stop))
    seen.wrong = [*visitor.complaints, *visitor.violations(), *visitor.strangers]
    return seen


def _flaws(page: Page, stop: Stop) -> Iterator[str]:
    """What is wrong with a screen in each size and scheme."""
    main = re.compile(rf"^{stop.main}")
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            page.evaluate(SETTLED)
            found = [*page.evaluate(MISPLACED), *page.evaluate(FAINT)]
            there = page.get_by_role("button", name=main).or_(page.get_by_role("link", name=main))
            found += [] if any(each.is_visible() for each in there.all()) else [f"no {stop.main}"]
            if PICTURES:
                shot = page.screenshot(animations="disabled")
                Path(PICTURES, f"{stop.name}-{width}-{scheme}.png").write_bytes(shot)
            yield from (f"{width} {scheme}: {words}" for words in found)


def _shot(page: Page, *, is_whole: bool) -> bytes:
    until(lambda: page.evaluate(LOADED, TALLEST), "the pictures to be loaded")
    if not is_whole:
        return page.screenshot(animations="disabled")
    height = min(TALLEST, page.evaluate("document.documentElement.scrollHeight"))
    clip: FloatRect = {"x": 0, "y": 0, "width": DESK["width"], "height": height}
    return page.screenshot(full_page=True, clip=clip, animations="disabled")


def small(shot: bytes) -> bytes:
    """The same picture, light enough to be kept beside the documents: with fewer colours where it must be."""
    with Image.open(io.BytesIO(shot)) as picture:
        whole = picture.convert("RGB")
    for colours in (0, 256, 160):
        drawn = _with_colours(whole, colours) if colours else whole
        written = io.BytesIO()
        drawn.save(written, "PNG", optimize=True)
        if written.tell() <= HEAVIEST:
            break
    return written.getvalue()


def _with_colours(whole: Image.Image, colours: int) -> Image.Image:
    """The colours that are seen most, those of the page itself, stay exactly as they are; the others share the rest."""
    counted: list[tuple[int, Any]] = whole.getcolors(whole.width * whole.height) or []
    ordered = [colour for _, colour in sorted(counted, reverse=True)]
    kept, others = ordered[: colours * 3 // 8], ordered[colours * 3 // 8 :]
    strip = Image.new("RGB", (len(others), 1))
    strip.putdata(others)
    left = colours - len(kept)
    palette = Image.new("P", (1, 1))
    palette.putpalette(
        [part for colour in kept for part in colour] + (strip.quantize(left).getpalette() or [])[: 3 * left]
    )
    return whole.quantize(palette=palette, dither=Image.Dither.NONE)


def is_blank(shot: bytes) -> bool:
    """Whether there is hardly anything to see."""
    with Image.open(io.BytesIO(shot)) as picture:
        greys = picture.convert("L").histogram()
        return sum(map(bool, greys)) < 16 or max(greys) > 0.995 * sum(greys)
