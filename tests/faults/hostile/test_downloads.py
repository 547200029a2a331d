"""Faults 16 and 22: what a server passes off as a result is kept out, and nothing is written but the file asked for."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from comfyui_agent.comfy import downloads
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import AnswerTooLarge, ComfyError, ConnectionCut, OutputProblem
from comfyui_agent.comfy.results import ResultFile
from support.hostile import HostileServer, Reply, answer, assert_clear, endless, in_turn
from support.pictures import png

NAMES = [
    "../../escape.png",
    "/etc/passwd",
    "C:\\Windows\\system32\\x.png",
    "..\\..\\x.png",
    "a\0b.png",
    "line\nbreak.png",
    "..",
    ".",
    "x" * 3_000 + ".png",
    "\u202egnp.exe.png",
]


def file(name: str = "a.png", subfolder: str = "") -> ResultFile:
    return ResultFile("2", name, subfolder, "output")


def image(content: bytes, *, length: int | None = None) -> Reply:
    return answer(content, length=length, kind="image/png")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
async def test_a_file_is_published_where_it_was_asked_for_whatever_its_name(
    server: HostileServer, comfy: ComfyClient, folder: Path, name: str
) -> None:
    server.replies["GET /view"] = image(png())
    staged = await comfy.download(file(name, "../../.."), folder)
    assert staged.path.parent == folder
    published = staged.publish(folder / "result.png")
    assert published.parent == folder
    assert published.read_bytes() == png()


@pytest.mark.parametrize("name", NAMES, ids=ascii)
async def test_a_bad_file_is_named_in_one_line_whatever_its_name(
    server: HostileServer, comfy: ComfyClient, folder: Path, name: str
) -> None:
    server.replies["GET /view"] = image(b"")
    with pytest.raises(OutputProblem) as caught:
        await comfy.download(file(name), folder)
    assert_clear(caught.value, server)


BAD: dict[str, Reply] = {
    "empty": image(b""),
    "cut": image(png()[:40]),
    "cut_at_the_end": image(png(size=(64, 64))[:-20]),
    "html_named_png": answer("<html>404 not found</html>", kind="text/html"),
    "text": image(b"not a picture at all"),
    "zeros": image(bytes(5_000)),
    "gone": answer("", status=404),
    "forbidden": answer("", status=403),
    "error": answer("oops", status=500),
    "partial": answer(png(), status=206),
}


@pytest.mark.parametrize("reply", [pytest.param(reply, id=name) for name, reply in BAD.items()])
async def test_what_is_no_whole_picture_is_an_output_problem(
    server: HostileServer, comfy: ComfyClient, folder: Path, reply: Reply
) -> None:
    server.replies["GET /view"] = reply
    with pytest.raises(OutputProblem) as caught:
        await comfy.download(file(), folder)
    assert_clear(caught.value, server)
    assert not list(folder.iterdir())


async def test_fewer_bytes_than_promised_are_not_a_file(
    server: HostileServer, comfy: ComfyClient, folder: Path
) -> None:
    server.replies["GET /view"] = image(png(), length=len(png()) + 10)
    with pytest.raises(ConnectionCut) as caught:
        await comfy.download(file(), folder)
    assert_clear(caught.value, server)


async def test_a_file_cut_once_comes_whole_the_next_time(
    server: HostileServer, comfy: ComfyClient, folder: Path
) -> None:
    server.replies["GET /view"] = in_turn(image(png(), length=len(png()) + 10), image(png()))
    staged = await comfy.download(file(), folder)
    assert staged.publish(folder / "a.png").read_bytes() == png()


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(endless(b"HTTP/1.1 200 OK\r\n\r\n"), id="endless"),
        pytest.param(image(png(), length=10**13), id="declared"),
    ],
)
async def test_a_file_beyond_the_limit_is_not_kept(
    server: HostileServer, comfy: ComfyClient, folder: Path, reply: Reply
) -> None:
    server.replies["GET /view"] = reply
    with pytest.raises(AnswerTooLarge) as caught:
        await comfy.download(file(), folder)
    assert_clear(caught.value, server)


async def test_a_name_that_cannot_be_sent_is_refused_without_a_crash(
    server: HostileServer, comfy: ComfyClient, folder: Path
) -> None:
    with pytest.raises(ComfyError):
        await comfy.download(file("\ud800.png"), folder)


async def test_a_full_disk_is_not_blamed_on_the_server(
    server: HostileServer, comfy: ComfyClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def receive(transport: downloads.Transport, result: ResultFile, *_: object) -> tuple[bytes, int]:
        async with transport.download("view", result.query):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(downloads, "_receive", receive)
    server.replies["GET /view"] = image(png())
    with pytest.raises(OSError, match="No space left") as caught:
        await comfy.download(file(), folder)
    assert caught.value.errno == errno.ENOSPC
