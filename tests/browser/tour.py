"""A walk through every screen of a scene: what each looks like, and what is wrong with it."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from PIL import Image
from playwright.sync_api import BrowserContext, FloatRect, Page, expect

from browser.scene import Scene
from support.browser import DESK, PHONE, Visitor, until

TALLEST = 1600
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


ALL = ("light", "dark", "phone")
STOPS = (
    Stop("overview", lambda _: "/", ALL),
    Stop("queue", lambda _: "/queue", ALL),
    Stop("gallery", lambda _: "/gallery", ALL),
    Stop("job", lambda scene: f"/jobs/{scene.job}", ALL),
    Stop("job-failed", lambda scene: f"/jobs/{scene.failed}", ("light", "dark")),
    Stop("job-waiting", lambda scene: f"/jobs/{scene.waiting}", ()),
    Stop("batches", lambda _: "/batches"),
    Stop("batch", lambda scene: f"/batches/{scene.sweep}", ALL),
    Stop("batch-list", lambda scene: f"/batches/{scene.sweep}?status=pending", ()),
    Stop("compare", lambda scene: f"/batches/{scene.finished}?compare={scene.cells()[0]},{scene.cells()[1]}", ALL),
    Stop("large", lambda scene: f"/batches/{scene.finished}#job-{scene.cells()[0]}", ALL),
    Stop("books", lambda _: "/books"),
    Stop("book", lambda scene: f"/books/{scene.book}", ALL),
    Stop("servers", lambda _: "/servers", ("light", "phone")),
    Stop("reports", lambda _: "/reports"),
    Stop("new", lambda _: "/new", ("light", "dark", "phone")),
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
    seen.wrong = [*visitor.complaints, *visitor.violations(), *visitor.strangers]
    return seen


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
