"""A file that is sent to the page becomes a workflow, or one clear line says why it does not."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from comfyui_agent.domain.tokens import Role
from comfyui_agent.web.guard import LARGEST_UPLOAD
from support.editor_workflows import CYCLE, LARGE, document, node, slot
from support.pictures import chunk
from support.shared_servers import Servers
from support.web import Answer, Served, bearer, check_problem, served

GRAPH = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 3}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
}
EDITOR = document(
    [node(1, "EmptyImage", values=[8, 8, 1, 3]), node(2, "SaveImage", slot("images", "IMAGE", 1), values=["x"])],
    (1, 1, 0, 2),
)
PNG = b"\x89PNG\r\n\x1a\n"
URL = "/api/v1/workflows"


def picture(**texts: Any) -> bytes:
    return PNG + b"".join(
        chunk(b"tEXt", name.encode() + b"\0" + json.dumps(each).encode()) for name, each in texts.items()
    )


@pytest_asyncio.fixture
async def house(tmp_path: Path, servers: Servers) -> AsyncIterator[Served]:
    async with served(tmp_path / "house", servers.url("sim")) as house:
        yield house


async def sent(house: Served, data: bytes, question: str = "name=mine", **headers: str) -> Answer:
    return await house.post(f"{URL}?{question}", data=io.BytesIO(data), headers=headers)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (json.dumps(GRAPH).encode(), "API format"),
        (json.dumps(EDITOR).encode(), "UI format"),
        (picture(prompt=GRAPH, workflow=EDITOR), "API format (PNG picture)"),
        (picture(workflow=EDITOR), "UI format (PNG picture)"),
    ],
)
async def test_a_file_becomes_a_workflow(house: Served, data: bytes, found: str) -> None:
    answer = await sent(house, data)
    assert answer.status == 201, answer.text
    assert answer.value == {
        "workflow_id": "mine",
        "format": found,
        "nodes": 2,
        "path": "workflows/mine.json",
        "recipes": "config/workflows.yaml",
        "inputs": {},
    }
    job = {"job_type": "T2I", "workflow_id": "mine", "inputs": {"color": 5}}
    assert (await house.post("/api/v1/jobs", job)).status == 201


async def test_without_a_name_it_is_called_as_its_file_and_numbered_if_that_is_taken(house: Served) -> None:
    made = [(await sent(house, picture(prompt=GRAPH), f"file={name}")).value for name in ("My%20(1)/knight!.png",) * 3]
    assert [each["workflow_id"] for each in made] == ["knight_", "knight__2", "knight__3"]
    problem = check_problem(await sent(house, picture(prompt=GRAPH), "name=knight_"), 409)
    assert problem["detail"] == "knight_ is in workflows.yaml already"


async def test_it_says_what_people_give_it_with_value_and_choices(house: Served) -> None:
    shown = (await house.get(f"{URL}/wf_realistic_portrait")).value["inputs"]
    inputs = {each["name"]: each for each in shown}
    assert list(inputs)[:2] == ["prompt", "negative_prompt"]
    assert isinstance(inputs["seed"]["value"], int)
    assert inputs["seed"]["choices"] is None
    assert "euler" in inputs["sampler"]["choices"]


async def test_only_admins_may(house: Served) -> None:
    user, admin = await house.token(Role.USER, "ann"), await house.token(Role.ADMIN, "studio")
    data = json.dumps(GRAPH).encode()
    assert check_problem(await sent(house, data, **bearer(user)), 403)["detail"] == "this is for admins"
    assert (await sent(house, data, **bearer(admin))).status == 201


BOMB = zlib.compress(bytes(40 * 1024**2))
HOSTILE = {
    "nothing": (b"", "it is no JSON"),
    "a bomb in a picture": (PNG + chunk(b"zTXt", b"prompt\0\0" + BOMB), "more than 33,554,432 bytes"),
    "a bomb in an international text": (PNG + chunk(b"iTXt", b"prompt\0\1\0\0\0" + BOMB), "more than 33,554,432 bytes"),
    "a picture that calls itself JSON": (picture(comment={}), "it is a PNG picture without a workflow"),
    "a polyglot of a picture and JSON": (PNG + json.dumps(GRAPH).encode(), "it is a PNG picture without a workflow"),
    "a page": (b"<html><script>alert(1)</script></html>", "it is no JSON"),
    "an archive": (b"PK\x03\x04" + bytes(1000), "it is no JSON"),
    "YAML": (b"a: &a [*a]", "it is no JSON"),
    "deep": (b'{"a":' * 200_000, "it is no JSON"),
    "lists without end": (b"[" + b"[]," * 2_500_000, "it has more than 2,000,000 lists and objects"),
    "a list": (b"[1, 2]", "it is not a workflow in API format or UI format"),
    "a node that is none": (b'{"1": {"inputs": {}}}', "'1' is not a node"),
    "a class that no server has": (json.dumps(document([node(7, "Gone", title="A\nB")])).encode(), "node 7 (A B): "),
    "subgraphs in a circle": (json.dumps(CYCLE).encode(), "contains itself"),
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_what_cannot_be_taken_is_one_clear_line_and_nothing_is_written(house: Served, case: str) -> None:
    before = sorted((house.workspace.root / "workflows").iterdir())
    data, words = HOSTILE[case]
    problem = check_problem(await sent(house, data, "name=mine&file=knight.png"), 409)
    assert words in problem["detail"]
    assert "\n" not in problem["detail"]
    assert len(problem["detail"]) < 400
    assert sorted((house.workspace.root / "workflows").iterdir()) == before


@pytest.mark.parametrize("case", LARGE)
async def test_what_is_only_large_is_taken(house: Served, case: str) -> None:
    answer = await sent(house, json.dumps(LARGE[case]).encode())
    assert (answer.status, answer.value["nodes"]) == (201, len(LARGE[case].get("nodes", LARGE[case])))


async def test_a_file_of_200_mb_is_refused_before_it_is_read(house: Served) -> None:
    head = f"POST {URL}?name=x HTTP/1.1\r\nHost: {house.url.partition('//')[2]}\r\n"
    said = await house.raw(
        f"{head}Content-Type: application/octet-stream\r\nContent-Length: 200000000\r\n\r\n".encode()
    )
    assert check_problem(said, 413)["detail"] == "the request has more than 64 MB"


@pytest.mark.parametrize("name", ["..%2Fx", "a%2Fb", "%00", ".hidden", "%0a"])
async def test_a_name_that_is_no_id_is_refused(house: Served, name: str) -> None:
    problem = check_problem(await sent(house, json.dumps(GRAPH).encode(), f"name={name}"), 409)
    assert "cannot be the id of a workflow" in problem["detail"]


async def test_two_hundred_megabytes_are_refused_before_they_are_read(house: Served) -> None:
    head = ("Host: 127.0.0.1", "Connection: close", f"Content-Length: {200 * 1024**2}")
    said = "\r\n".join([f"POST {URL}?name=mine HTTP/1.1", *head, "", ""])
    problem = check_problem(await house.raw(said.encode()), 413)
    assert problem["detail"] == f"the request has more than {LARGEST_UPLOAD // 1024**2} MB"
