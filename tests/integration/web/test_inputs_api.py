"""/api/v1/inputs: pictures that are uploaded once and named by jobs."""

from __future__ import annotations

from typing import Any

import pytest

from comfyui_agent.store import operations as ops
from support.pictures import NO_PICTURES, png
from support.web import Served, check_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILE = {"Content-Type": "application/octet-stream"}


async def upload(house: Served, data: bytes, name: str = "cat.png") -> Any:
    return await house.post(f"/api/v1/inputs?name={name}", data=data, headers=FILE)


async def test_an_uploaded_picture_is_shown_listed_and_loaded_by_a_job(house: Served) -> None:
    picture = png()
    made = await upload(house, picture)
    assert made.status == 201, made.text
    assert (await house.get(made.value["url"])).body == picture
    assert (await house.get(made.value["thumbnail"])).headers["Content-Type"] == "image/webp"
    assert (await house.get("/api/v1/inputs")).value["inputs"][0] == made.value
    inputs = {"image": made.value["value"], "prompt": "in oil", "seed": 3}
    said = {"job_type": "I2I", "workflow_id": "wf_image_to_image", "inputs": inputs}
    job = (await house.post("/api/v1/jobs", said)).value
    kept = made.value["value"].removeprefix("input:")
    assert job["pictures"] == {"4.image": kept}
    assert kept in await house.store.run(ops.kept_pictures)
    [told] = [event for event in await house.store.run(ops.events_after, 0) if event.name == "audit.input.upload"]
    assert (told.message or "").startswith("cat.png")


async def test_the_same_bytes_are_kept_once_and_other_bytes_get_another_name(house: Served) -> None:
    first, second = png((1, 1, 1)), png((2, 2, 2))
    names = [(await upload(house, data, "dog.jpg")).value["name"] for data in (first, first, second)]
    assert names == ["dog.png", "dog.png", "dog (1).png"], "the ending follows the bytes"
    values = [each["value"] for each in (await house.get("/api/v1/inputs")).value["inputs"]]
    assert len(values) == len(set(values))


@pytest.mark.parametrize(("data", "words"), NO_PICTURES.values(), ids=NO_PICTURES)
async def test_what_is_no_whole_picture_is_refused_in_a_sentence(house: Served, data: bytes, words: str) -> None:
    before = (await house.get("/api/v1/inputs")).value
    detail = check_problem(await upload(house, data, "x.png"), 409)["detail"]
    assert words in detail
    assert "\n" not in detail
    assert (await house.get("/api/v1/inputs")).value == before


async def test_what_is_a_picture_and_more_is_shown_as_the_picture_and_never_run(house: Served) -> None:
    made = (await upload(house, png() + b"PK\x03\x04<script>alert(1)</script>", "x.html")).value
    shown = await house.get(made["url"])
    assert (made["name"], shown.headers["Content-Type"]) == ("x.png", "image/png")
    assert shown.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in shown.headers["Content-Security-Policy"]


async def test_a_name_cannot_lead_anywhere(house: Served) -> None:
    made = await upload(house, png((3, 3, 3)), "..%2F..%2Fetc%2Fpa%00sswd.png")
    assert made.value["name"] == "pa_sswd.png"
    for kept in ("..%2Fe3.db", "x.png", "0" * 64 + ".png"):
        assert (await house.get(f"/api/v1/inputs/{kept}")).status in (404, 409, 422)


@pytest.mark.parametrize("value", ["input:nothing.png", "input:" + "0" * 64 + ".png", "input:../../etc/passwd"])
async def test_a_job_cannot_name_what_was_never_uploaded(house: Served, value: str) -> None:
    inputs = {"image": value, "prompt": "in oil", "seed": 3}
    said = {"job_type": "I2I", "workflow_id": "wf_image_to_image", "inputs": inputs}
    problem = check_problem(await house.post("/api/v1/jobs", said), 409)
    assert "upload it again" in problem["detail"]


async def test_a_file_that_is_too_large_is_refused_in_one_line(house: Served) -> None:
    headers = f"POST /api/v1/inputs?name=x.png HTTP/1.1\r\nHost: {house.url.partition('//')[2]}\r\n"
    sent = f"{headers}Content-Type: application/octet-stream\r\nContent-Length: 200000000\r\n\r\n".encode()
    said = await house.raw(sent)
    assert (said.status, "more than 64 MB" in said.text) == (413, True)
