"""GET /api/v1/models/{folder}/preview: a picture beside a model at a server, small and checked; else nothing."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyui_agent.web import model_previews
from support.hostile import HostileServer, Question, Reply, Writer, answer, endless, hostile_server, never, raw, says
from support.pictures import opened, png
from support.web import Answer, served

NAME = "styles/ink.safetensors"
ENTRY: Mapping[str, Any] = {"name": NAME, "pathIndex": 1, "modified": 1.5, "created": 1.5, "size": 4}
LISTED = says([ENTRY])
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: image/webp\r\n\r\n"


def webp(width: int, height: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (width, height), (90, 20, 40)).save(data, "WEBP")
    return data.getvalue()


def library(listing: Reply, preview: Reply) -> Reply:
    """The model library of a server."""

    async def reply(question: Question, writer: Writer) -> None:
        await (preview if "/preview/" in question.path else listing)(question, writer)

    return reply


async def asked(folder: Path, server: HostileServer, *names: str) -> list[Answer]:
    async with served(folder, server.name) as house:
        return [await house.get(f"/api/v1/models/loras/preview?name={name.replace('/', '%2F')}") for name in names]


async def test_the_picture_beside_a_model_is_made_small_once(tmp_path: Path) -> None:
    async with hostile_server() as server:
        server.replies["GET /experiment"] = library(LISTED, answer(webp(900, 600), kind="image/webp"))
        first, second, other = await asked(tmp_path, server, NAME, NAME, "gone.safetensors")
    assert (first.status, opened(first.body).size, first.headers["Content-Type"]) == (200, (160, 107), "image/webp")
    assert (second.status, second.body, other.status, other.body) == (200, first.body, 204, b"")
    assert [question.path for question in server.questions] == [
        "/experiment/models/loras",
        "/experiment/models/preview/loras/1/styles/ink.safetensors",
    ]


HOSTILE: Mapping[str, Reply] = {
    "a listing that is none": library(says({"models": 1}), never),
    "entries without a name": library(says([{"pathIndex": 0}]), never),
    "a folder before the first": library(says([{**ENTRY, "pathIndex": -1}]), never),
    "a folder between two": library(says([{**ENTRY, "pathIndex": 0.5}]), never),
    "no library": library(answer(status=404), never),
    "a listing elsewhere": library(answer(status=302, headers=("Location: http://192.0.2.1/",)), never),
    "no picture": library(LISTED, answer(status=404)),
    "a page": library(LISTED, answer("<script>", kind="image/webp")),
    "another type": library(LISTED, answer(png(), kind="image/webp")),
    "half a picture": library(LISTED, answer(webp(900, 600)[:90], kind="image/webp")),
    "a large picture": library(LISTED, answer(webp(9000, 9000), kind="image/webp")),
    "no end": library(LISTED, endless(HEAD)),
    "a size that is a lie": library(LISTED, raw(HEAD.replace(b"\r\n\r\n", b"\r\nContent-Length: 9999999999\r\n\r\n"))),
    "silence": library(LISTED, never),
    "a cut": library(LISTED, raw(b"HT")),
}


@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE)
async def test_what_is_no_picture_is_nothing_and_is_not_asked_for_again(
    tmp_path: Path, reply: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_previews, "LIMITS", replace(model_previews.LIMITS, answer_seconds=0.5))
    async with hostile_server() as server:
        server.replies["GET /experiment"] = reply
        answers = await asked(tmp_path, server, NAME, NAME)
    assert [(each.status, each.body) for each in answers] == [(204, b"")] * 2
    assert len({question.path for question in server.questions}) == len(server.questions) or reply is HOSTILE["a cut"]
