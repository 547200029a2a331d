"""The grid as a page: one file that shows everything, and in which hostile texts stay texts."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from PIL import Image

from comfyui_agent.domain.values import parse
from comfyui_agent.pictures import grid_page
from comfyui_agent.pictures.grid import Cell, Grid, Page, lay_out
from comfyui_agent.pictures.grid_drawing import draw
from comfyui_agent.pictures.grid_page import flags, relative, write_page

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"' onload='alert(3) & <!-- ]]> {{cells}}"


class Parsed(HTMLParser):
    """A page as a browser reads it: its elements with their attributes, and the text in each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        self.texts = [text.strip() for text in self.texts]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data

    def named(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [found for name, found in self.elements if name == tag and wanted.items() <= found.items()]

    def text_of(self, tag: str, **wanted: str) -> str:
        pairs = zip(self.elements, self.texts, strict=True)
        return next(text for (name, found), text in pairs if name == tag and wanted.items() <= found.items())

    @property
    def cells(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.text_of("script", id="cells"), parse_constant=pytest.fail)
        return found

    @property
    def policy(self) -> dict[str, list[str]]:
        (meta,) = self.named("meta", **{"http-equiv": "Content-Security-Policy"})
        directives = [part.split() for part in str(meta["content"]).split(";")]
        return {name: values for name, *values in directives}


def page_of(*cells: Cell, pages: int = 1, **options: Any) -> str:
    rows, columns = (tuple(f"{each}" for each in range(6)) for _ in range(2))
    page = Page(options.pop("rows", rows), options.pop("columns", columns), cells, options.pop("heading", ""), "corner")
    layout = lay_out(Grid((page,) * pages, options.pop("title", "knights"), options.pop("subtitle", ""), **options))
    drawn = [draw(layout, number) for number in range(pages)]
    file = io.BytesIO()
    write_page(
        file,
        layout,
        {place: small for each in drawn for place, small in each.thumbnails.items()},
        {place: problem for each in drawn for place, problem in each.problems.items()},
    )
    return file.getvalue().decode("utf-8")


def picture(folder: Path, name: str = "0001_seed-1.png", size: tuple[int, int] = (400, 300)) -> Path:
    path = folder / name
    Image.new("RGB", size, (200, 30, 60)).save(path)
    return path


def done(file: Path, **about: Any) -> Cell:
    return Cell(0, 0, file, about.pop("href", file.name), state="done", **about)


def decoded(address: str | None) -> bytes:
    assert address is not None
    return base64.b64decode(address.partition(";base64,")[2])


@pytest.mark.parametrize("is_sheet", [False, True], ids=["grid", "sheet"])
def test_hostile_texts_stay_texts(tmp_path: Path, is_sheet: bool) -> None:
    cell = done(picture(tmp_path), href=EVIL, label=EVIL, settings={EVIL: EVIL}, reason=EVIL)
    failed = Cell(0, 1, label=EVIL, settings={EVIL: [EVIL]}, state="failed", reason=EVIL)
    evil = {"rows": (EVIL,), "columns": (EVIL, EVIL), "title": EVIL, "subtitle": EVIL, "heading": EVIL}
    tame = {"rows": ("a",), "columns": ("b", "c"), "title": "d", "subtitle": "e", "heading": "f"}
    page = Parsed(page_of(cell, failed, is_sheet=is_sheet, pages=2, **evil))
    calm = Parsed(page_of(done(picture(tmp_path)), Cell(0, 1, state="failed"), is_sheet=is_sheet, pages=2, **tame))
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in calm.elements]
    assert not [found for _, found in page.elements if any(name.startswith("on") for name in found)]
    assert page.text_of("h1") == EVIL
    assert page.cells[0]["settings"] == [[EVIL, EVIL]]
    assert json.loads(page.cells[1]["json"]) == {EVIL: [EVIL]}
    assert page.cells[1]["detail"] == EVIL
    assert {found["title"] for found in page.named("a", **{"class": "open"})} == {EVIL}


def test_texts_that_cannot_be_written_are_shown_all_the_same(tmp_path: Path) -> None:
    odd = "half \ud83d\x00\x1b[2J\u202e" + "x" * 100_000
    page = Parsed(page_of(done(picture(tmp_path), label=odd, settings={"text": odd}), title=odd))
    assert "half \\ud83d\\x00\\x1b[2J\\x202e" in page.text_of("h1")
    assert len(page.text_of("h1")) < 3_000
    assert json.loads(page.cells[0]["json"])["text"] == odd


def test_the_policy_allows_this_script_and_this_style_and_nothing_else(tmp_path: Path) -> None:
    text = page_of(done(picture(tmp_path)))
    policy = Parsed(text).policy

    def digest(tag: str) -> str:
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    assert policy == {
        "default-src": ["'none'"],
        "img-src": ["'self'", "file:", "data:"],
        "media-src": ["'self'", "file:"],
        "script-src": [digest("script")],
        "style-src": [digest("style")],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }


def test_the_page_needs_nothing_from_outside(tmp_path: Path) -> None:
    text = page_of(done(picture(tmp_path)))
    page = Parsed(text)
    addresses = [found[name] for _, found in page.elements for name in ("src", "href") if name in found]
    assert all(str(address).startswith(("data:", "./", "#")) for address in addresses)
    assert not re.search(r"https?://|@import|url\(|innerHTML|eval\(|style=", text)
    assert [link["href"] for link in page.named("link")] == ["data:,"]  # an icon, so that none is asked for


def test_thumbnails_and_files_are_in_the_page(tmp_path: Path) -> None:
    file = picture(tmp_path)
    page = Parsed(page_of(done(file)))
    (image,) = page.named("img")
    with Image.open(io.BytesIO(decoded(image["src"]))) as thumbnail:
        assert (thumbnail.format, thumbnail.size) == ("JPEG", (320, 240))
    assert image["loading"] == "lazy"
    assert base64.b64decode(page.text_of("script", id="file-1.1.1")) == file.read_bytes()
    assert page.cells[0]["embedded"] == "data:image/png;base64,"
    assert "All pictures are in this page: it can be sent as it is." in page.texts


def test_large_files_are_linked_and_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = picture(tmp_path)
    monkeypatch.setattr(grid_page, "MOST_EMBEDDED", file.stat().st_size * 2 - 1)
    cells = [done(file), Cell(0, 1, file, file.name, state="done")]
    page = Parsed(page_of(*cells))
    assert page.named("script", type="text/plain") == []
    assert [cell["embedded"] for cell in page.cells] == ["", ""]
    assert [cell["href"] for cell in page.cells] == ["./0001_seed-1.png"] * 2
    assert "The files in full size lie beside this page: send them along with it." in page.texts
    monkeypatch.setattr(grid_page, "MOST_EMBEDDED", file.stat().st_size * 2)
    assert len(Parsed(page_of(*cells)).named("script", type="text/plain")) == 2


def test_a_link_leads_to_a_file_below_the_page() -> None:
    for path in [
        "0001_seed-1.png",
        "part 2/a#b?c%20.png",
        "猫.png",
        "//evil.example/x.png",
        "javascript:alert(1)",
        "C:\\x.png",
        "half\ud83d.png",
        "bytes\udcff.png",
        "http://evil.example/",
    ]:
        link = relative(path)
        assert link.isascii(), path
        assert re.match(r"\./(?!/)", link), path
        assert not re.search(r"[:#?\\ \"'<>&]", link), path
        if not re.search("[\ud800-\udfff]", path):
            assert unquote(link) == "./" + path.lstrip("/")


def test_the_bytes_of_a_name_that_is_no_text_are_kept() -> None:
    assert relative("bytes\udcff.png") == "./bytes%FF.png"


def test_films_and_sounds_play_from_beside_the_page(tmp_path: Path) -> None:
    film, sound = tmp_path / "a film.webm", tmp_path / "a.flac"
    film.write_bytes(b"film")
    sound.write_bytes(b"sound")
    page = Parsed(page_of(done(film), Cell(0, 1, sound, sound.name, state="done")))
    (video,) = page.named("video")
    assert (video["src"], video["preload"]) == ("./a%20film.webm", "none")
    assert "controls" in video
    assert [found["src"] for found in page.named("audio")] == ["./a.flac"]
    assert [cell["kind"] for cell in page.cells] == ["Video", "Audio"]
    assert page.named("script", type="text/plain") == []


def test_cells_without_a_picture_say_how_it_stands() -> None:
    for state, said in [
        ("failed", "△ Needs attention: oom at node 3"),
        ("pending", "○ Pending: oom at node 3"),
        ("processing", "◐ Rendering: oom at node 3"),
        ("cancelled", " Cancelled: oom at node 3"),
    ]:
        page = Parsed(page_of(Cell(0, 0, state=state, reason="oom at node 3", settings={"seed": 1})))
        (cell,) = page.cells
        assert f"{cell['mark']} {cell['word']}: {cell['detail']}" == said, (state, said)
        shown = page_of(Cell(0, 0, state=state, reason="oom at node 3"))
        assert f"<b>{cell['mark']}</b> {cell['word']}<small>oom at node 3</small>" in shown, (state, said)
        assert page.named("button", **{"class": "open"}), (state, said)
        assert not page.named("button", **{"class": "pick"}), (state, said)


def test_a_file_that_broke_in_drawing_says_so(tmp_path: Path) -> None:
    file = picture(tmp_path)
    file.write_bytes(file.read_bytes()[:200])
    page = Parsed(page_of(done(file)))
    assert page.named("img") == []
    assert (page.cells[0]["word"], page.cells[0]["detail"]) == ("Cannot be shown", "0001_seed-1.png is damaged")


def test_pages_have_tabs_where_there_are_several() -> None:
    page = Parsed(page_of(Cell(0, 0), pages=3, heading="cfg = 7.5"))
    assert [found["href"] for found in page.named("a")] == ["#page=1", "#page=2", "#page=3"]
    assert [found["id"] for found in page.named("section")] == ["page-1", "page-2", "page-3"]
    assert Parsed(page_of(Cell(0, 0))).named("nav") == []


def test_whole_numbers_keep_all_their_digits(tmp_path: Path) -> None:
    seed = 2**64 - 1
    page = Parsed(page_of(done(picture(tmp_path), settings={"3.seed": seed, "3.cfg": 7.5})))
    assert seed != int(float(seed))
    assert page.cells[0]["settings"] == [["3.seed", str(seed)], ["3.cfg", "7.5"]]
    assert json.loads(page.cells[0]["json"]) == {"3.seed": seed, "3.cfg": 7.5}
    assert page.cells[0]["flags"] == f"--set 3.seed={seed} --set 3.cfg=7.5"


def test_a_setting_is_typed_as_one_value() -> None:
    cases = [
        (1, "1"),
        (7.5, "7.5"),
        (True, "true"),
        ("euler", "euler"),
        ("a knight", "a knight"),
        ("it's", "it's"),
        ("a, b", '"a, b"'),
        ("a | b", '"a | b"'),
        ("1..10", '"1..10"'),
        ("12", '"12"'),
        ("1e5", '"1e5"'),
        ("true", '"true"'),
        ("@file.txt", '"@file.txt"'),
        ("random:4", '"random:4"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("two\nlines", "two\nlines"),
        ("back\\slash", "back\\slash"),
        ("a\\, b", '"a\\\\, b"'),
        (" blank", '" blank"'),
        ("", '""'),
        ("猫, 犬", '"猫, 犬"'),
        (None, '"null"'),
    ]
    for value, typed in cases:
        assert shlex.split(flags({"6.text": value})) == ["--set", f"6.text={typed}"], typed
        tokens = parse(typed, read_lines=pytest.fail, draw=pytest.fail)
        assert [token.text for token in tokens] == [value if isinstance(value, str) else json.dumps(value)], typed


def test_settings_that_are_no_numbers_do_not_break_the_page() -> None:
    page = Parsed(page_of(Cell(0, 0, settings={"cfg": float("nan"), "scale": float("inf")})))
    assert page.cells[0]["settings"] == [["cfg", "NaN"], ["scale", "Infinity"]]


def test_frames_have_the_shape_of_the_cells(tmp_path: Path) -> None:
    assert ":root { --across: 1.0000; --down: 0.7500; }" in page_of(done(picture(tmp_path, size=(400, 300))))
    assert ":root { --across: 0.5000; --down: 1.0000; }" in page_of(done(picture(tmp_path, size=(100, 200))))


def luminance(colour: str) -> float:
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("text", ["text", "quiet", "accent", "attention"])
@pytest.mark.parametrize("ground", ["ground", "panel"])
def test_texts_can_be_read_on_every_ground(scheme: int, text: str, ground: str) -> None:
    style = re.search(r"<style>(.*)</style>", page_of(Cell(0, 0)), re.DOTALL)
    assert style is not None
    blocks = re.findall(r":root \{(.*?)\}", style[1], re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", blocks[scheme]))
    lighter, darker = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5
    lighter, darker = sorted((luminance(colours["accent"]), luminance(colours["on-accent"])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def test_every_part_that_the_script_looks_for_is_in_the_page() -> None:
    page = Parsed(page_of(Cell(0, 0)))
    looked_for = set(re.findall(r"element\(\"([\w-]+)\"\)", page.texts[-1])) - {"line"}
    assert len(looked_for) > 20
    assert looked_for <= {found.get("id") for _, found in page.elements}
