"""A thumbnail is made once, for all who ask; two at a time; and the folder stays within its bounds."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from comfyui_agent.pictures.thumbnails import NoThumbnail
from comfyui_agent.web import thumbnail_cache
from comfyui_agent.web.thumbnail_cache import PRUNED_EVERY, ThumbnailCache


def painted(path: Path, colour: int = 0x3050A0) -> Path:
    Image.new("RGB", (300, 300), ((colour >> 16) & 255, (colour >> 8) & 255, colour & 255)).save(path)
    return path


async def until(condition: Callable[[], bool], what: str, timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        await asyncio.sleep(0.005)


class Maker:
    """In place of `make_thumbnail`: counts, and makes nothing until it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[Path] = []
        self.may = threading.Event()
        self.really_make = thumbnail_cache.make_thumbnail
        monkeypatch.setattr(thumbnail_cache, "make_thumbnail", self)

    def __call__(self, source: Path, target: Path, width: int) -> None:
        self.begun.append(source)
        assert self.may.wait(60)
        self.really_make(source, target, width)


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> Maker:
    return Maker(monkeypatch)


@pytest.fixture
def cache(tmp_path: Path) -> ThumbnailCache:
    return ThumbnailCache(tmp_path / "thumbnails")


async def test_all_who_ask_at_once_share_the_work(cache: ThumbnailCache, maker: Maker, tmp_path: Path) -> None:
    source = painted(tmp_path / "a.png")
    asking = [asyncio.create_task(cache.get(source, "1", 160)) for _ in range(20)]
    await until(lambda: bool(maker.begun), "the work")
    maker.may.set()
    assert len(set(await asyncio.gather(*asking))) == 1
    assert len(maker.begun) == 1


async def test_what_is_there_is_not_made_again_by_anyone(cache: ThumbnailCache, maker: Maker, tmp_path: Path) -> None:
    maker.may.set()
    source = painted(tmp_path / "a.png")
    first = await cache.get(source, "1", 160)
    assert await cache.get(source, "1", 160) == first
    assert await ThumbnailCache(cache.folder).get(source, "1", 160) == first
    assert len(maker.begun) == 1


async def test_each_version_and_width_has_its_own(cache: ThumbnailCache, tmp_path: Path) -> None:
    source = painted(tmp_path / "a.png")
    asked = [(source, "1", 160), (source, "2", 160), (source, "1", 320), (painted(tmp_path / "b.png"), "1", 160)]
    assert len({await cache.get(*each) for each in asked}) == 4


async def test_two_are_made_at_a_time(cache: ThumbnailCache, maker: Maker, tmp_path: Path) -> None:
    asking = [asyncio.create_task(cache.get(painted(tmp_path / f"{n}.png"), "1", 160)) for n in range(6)]
    await until(lambda: len(cache._turns._semaphores) == 6 and len(maker.begun) >= 2, "all of them")
    await asyncio.sleep(0.05)
    assert len(maker.begun) == 2
    maker.may.set()
    await asyncio.gather(*asking)
    assert len(maker.begun) == 6


async def test_what_another_process_made_meanwhile_is_not_made_again(
    cache: ThumbnailCache, maker: Maker, tmp_path: Path
) -> None:
    busy = [asyncio.create_task(cache.get(painted(tmp_path / f"{n}.png"), "1", 160)) for n in range(2)]
    await until(lambda: len(maker.begun) == 2, "both slots taken")
    source = painted(tmp_path / "wanted.png")
    asking = asyncio.create_task(cache.get(source, "1", 160))
    await until(lambda: len(cache._turns._semaphores) == 3, "one that waits")
    await asyncio.sleep(0.05)
    maker.really_make(source, cache._target(source, "1", 160), 160)
    maker.may.set()
    await asyncio.gather(asking, *busy)
    assert source not in maker.begun


async def test_a_broken_picture_is_tried_once(cache: ThumbnailCache, maker: Maker, tmp_path: Path) -> None:
    maker.may.set()
    (tmp_path / "broken.png").write_bytes(b"nothing")
    for _ in range(3):
        with pytest.raises(NoThumbnail, match=r"broken\.png is no picture"):
            await cache.get(tmp_path / "broken.png", "1", 160)
    assert len(maker.begun) == 1
    painted(tmp_path / "broken.png")
    assert (await cache.get(tmp_path / "broken.png", "2", 160)).is_file(), "another version is tried"


async def test_what_is_remembered_of_broken_pictures_is_bounded(
    cache: ThumbnailCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thumbnail_cache, "MOST_HOPELESS", 3)
    (tmp_path / "broken.png").write_bytes(b"nothing")
    for version in range(10):
        with pytest.raises(NoThumbnail):
            await cache.get(tmp_path / "broken.png", str(version), 160)
    assert len(cache._hopeless) <= 3


async def test_a_full_disk_is_no_verdict_on_the_picture(
    cache: ThumbnailCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = painted(tmp_path / "a.png")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(thumbnail_cache, "make_thumbnail", fail)
        with pytest.raises(OSError, match="No space left"):
            await cache.get(source, "1", 160)
    assert (await cache.get(source, "1", 160)).is_file()


@pytest.mark.parametrize("left", [0, 5, 100])
async def test_one_that_a_power_loss_cut_short_is_made_anew(cache: ThumbnailCache, tmp_path: Path, left: int) -> None:
    source = painted(tmp_path / "a.png")
    path = await cache.get(source, "1", 160)
    whole = path.read_bytes()
    path.write_bytes(whole[:left])
    assert (await cache.get(source, "1", 160)).read_bytes() == whole


def kept(cache: ThumbnailCache, name: str, size: int, seconds_ago: float) -> Path:
    path = cache.folder / name[:2] / f"{name}.webp"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    now = time.time()
    os.utime(path, (now - seconds_ago, now - 1_000_000 + seconds_ago))
    return path


def test_what_was_not_asked_for_the_longest_goes_when_there_are_too_many(tmp_path: Path) -> None:
    cache = ThumbnailCache(tmp_path, most_files=10)
    paths = [kept(cache, f"{n:02}", 10, seconds_ago=100.0 + n) for n in range(12)]
    cache.prune()
    assert [path for path in paths if path.exists()] == paths[:9]
    cache.prune()
    assert len([path for path in paths if path.exists()]) == 9


def test_and_when_they_are_too_large_together(tmp_path: Path) -> None:
    cache = ThumbnailCache(tmp_path, most_bytes=1000)
    paths = [kept(cache, f"{n:02}", 300, seconds_ago=100.0 + n) for n in range(4)]
    cache.prune()
    assert [path for path in paths if path.exists()] == paths[:3]


def test_within_the_bounds_all_stay_and_what_a_killed_process_left_goes(tmp_path: Path) -> None:
    cache = ThumbnailCache(tmp_path, most_files=10)
    paths = [kept(cache, f"{n:02}", 10, seconds_ago=100.0) for n in range(10)]
    left, fresh = tmp_path / "00" / ".a.webp.1.new", tmp_path / "00" / ".b.webp.1.new"
    left.write_bytes(b"x")
    fresh.write_bytes(b"x")
    os.utime(left, (time.time() - 7200, time.time() - 7200))
    (tmp_path / "a file.txt").write_text("of someone")
    cache.prune()
    assert all(path.exists() for path in paths)
    assert not left.exists()
    assert fresh.exists()


def test_a_folder_that_is_not_there_is_nothing_to_prune(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ThumbnailCache(tmp_path / "none").prune()
    assert not caplog.records


async def test_asking_is_noted_once_an_hour(
    cache: ThumbnailCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the file system notes of its own."""
    source = painted(tmp_path / "a.png")
    path = await cache.get(source, "1", 160)
    os.utime(path, (time.time() - 7200, time.time() - 10_000))
    noted = []
    monkeypatch.setattr(os, "utime", lambda path, times: noted.append((path, *times)))
    await cache.get(source, "1", 160)
    [(noted_path, accessed, made)] = noted
    assert noted_path == path
    assert accessed == pytest.approx(time.time(), abs=60)
    assert made == pytest.approx(time.time() - 10_000, abs=60)
    monkeypatch.undo()
    os.utime(path, (time.time() - 60, time.time() - 10_000))
    monkeypatch.setattr(os, "utime", lambda *_: pytest.fail("noted again"))
    await cache.get(source, "1", 160)


async def test_the_folder_is_pruned_now_and_then(
    cache: ThumbnailCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned = []
    monkeypatch.setattr(cache, "prune", lambda: pruned.append(cache._made))
    monkeypatch.setattr(thumbnail_cache, "make_thumbnail", lambda *_: None)
    for version in range(PRUNED_EVERY + 2):
        await cache.get(tmp_path / "a.png", str(version), 160)
    await until(lambda: len(pruned) == 2, "a second pruning")


def test_a_process_ends_at_once_though_a_large_picture_is_being_made() -> None:
    code = (
        "import asyncio, time\n"
        "from pathlib import Path\n"
        "from comfyui_agent.web import thumbnail_cache\n"
        "thumbnail_cache.make_thumbnail = lambda *_: time.sleep(60)\n"
        "async def main():\n"
        "    asking = asyncio.create_task(thumbnail_cache.ThumbnailCache(Path('/nowhere')).get(Path('a'), '1', 160))\n"
        "    await asyncio.sleep(0.1)\n"
        "    assert not asking.done()\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20)
