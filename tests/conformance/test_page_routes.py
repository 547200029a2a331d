"""What ComfyUI's own page asks a server for besides prompts: settings, files of the user, models, logs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from support.graphs import fresh_prefix
from support.pictures import form, png
from support.wire import Answer, Wire


class Drawer:
    """A folder of the user's files that is this test's own."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.name = fresh_prefix("drawer")

    def at(self, name: str) -> str:
        return f"/userdata/{quote(f'{self.name}/{name}', safe='')}"

    async def put(self, name: str, content: bytes = b"content", query: str = "") -> Answer:
        return await self.wire.post(f"{self.at(name)}?{query}", data=content)

    async def move(self, name: str, target: str, query: str = "") -> Answer:
        return await self.wire.post(f"{self.at(name)}/move/{quote(f'{self.name}/{target}', safe='')}?{query}")

    async def names(self, query: str = "recurse=true") -> Any:
        return (await self.wire.get(f"/userdata?dir={self.name}&{query}")).body


@pytest.fixture
async def drawer(wire: Wire) -> AsyncIterator[Drawer]:
    drawer = Drawer(wire)
    yield drawer
    answer = await wire.get(f"/userdata?dir={drawer.name}&recurse=true")
    for name in answer.body if answer.status == 200 else ():
        assert (await wire.request("DELETE", drawer.at(name))).status == 204


async def test_the_user_is_kept_at_the_server(wire: Wire) -> None:
    answer = await wire.get("/users")
    assert (answer.status, answer.body.keys()) == (200, {"storage", "migrated"})
    assert answer.body["storage"] == "server"
    assert isinstance(answer.body["migrated"], bool)


async def test_settings_are_kept_by_their_ids(wire: Wire) -> None:
    one, other = f"E3.{fresh_prefix()}", f"E3.{fresh_prefix()}"
    assert (await wire.get(f"/settings/{one}")).body is None
    written = await wire.post(f"/settings/{one}", {"deep": [1]})
    assert (written.status, written.body) == (200, b"")
    assert (await wire.post("/settings", {other: 2, one: "new"})).status == 200
    assert (await wire.get(f"/settings/{one}")).body == "new"
    settings = (await wire.get("/settings")).body
    assert (settings[one], settings[other]) == ("new", 2)
    assert (await wire.get("/api/userdata/comfy.settings.json")).body == settings


@pytest.mark.parametrize("body", [b"junk", b"[1]", b"3", b"null"])
async def test_settings_that_are_no_object_fail_the_request(wire: Wire, body: bytes) -> None:
    assert (await wire.post("/settings", data=body)).status == 500


async def test_a_file_of_the_user_is_written_read_and_deleted(drawer: Drawer) -> None:
    written = await drawer.put("flows/a b.json", b'{"n": 1}')
    assert (written.status, written.body) == (200, f"{drawer.name}/flows/a b.json")
    read = await drawer.wire.get(drawer.at("flows/a b.json"))
    assert (read.status, read.body) == (200, {"n": 1})
    deleted = await drawer.wire.request("DELETE", drawer.at("flows/a b.json"))
    assert (deleted.status, deleted.body) == (204, b"")
    for method in ("GET", "DELETE"):
        assert (await drawer.wire.request(method, drawer.at("flows/a b.json"))).status == 404


async def test_a_file_is_described_on_request(drawer: Drawer) -> None:
    before = time.time()
    info = (await drawer.put("x.json", b"12345", "full_info=true")).body
    unit = 1000 if drawer.wire.since("0.21") else 1
    assert (info.keys(), info["path"], info["size"]) == (
        {"path", "size", "modified", "created"},
        f"{drawer.name}/x.json",
        5,
    )
    assert abs(info["modified"] / unit - before) < 60
    assert abs(info["created"] / unit - before) < 60
    assert isinstance(info["modified"], int if unit == 1000 else float)
    assert await drawer.names("full_info=true") == [{**info, "path": "x.json"}]


async def test_a_file_is_replaced_unless_that_is_ruled_out(drawer: Drawer) -> None:
    await drawer.put("x.txt", b"old")
    refused = await drawer.put("x.txt", b"new", "overwrite=false")
    assert (refused.status, refused.body) == (409, "File already exists")
    assert (await drawer.put("x.txt", b"newer")).status == 200
    assert (await drawer.wire.get(drawer.at("x.txt"))).body == "newer"


@pytest.mark.parametrize("name", ["a", "a/b.txt/c.txt"])
async def test_a_file_can_be_neither_a_folder_nor_in_a_file(drawer: Drawer, name: str) -> None:
    await drawer.put("a/b.txt")
    assert (await drawer.put(name)).status == 400
    tree = (await drawer.wire.get(f"/v2/userdata?path={quote(drawer.name)}")).body
    assert [(entry["type"], entry["name"]) for entry in tree] == [("directory", "a"), ("file", "b.txt")]


async def test_a_folder_is_no_file(drawer: Drawer) -> None:
    await drawer.put("a/b.txt")
    assert (await drawer.wire.get(drawer.at("a"))).status == 403
    assert (await drawer.wire.request("DELETE", drawer.at("a"))).status == 500


async def test_a_file_is_moved(drawer: Drawer) -> None:
    await drawer.put("a.txt", b"a")
    await drawer.put("b.txt", b"b")
    assert (await drawer.move("a.txt", "b.txt", "overwrite=false")).status == 409
    moved = await drawer.move("a.txt", "deep/c.txt", "full_info=true")
    assert (moved.status, moved.body["path"], moved.body["size"]) == (200, f"{drawer.name}/deep/c.txt", 1)
    assert (await drawer.move("b.txt", "deep")).body == f"{drawer.name}/deep"
    assert sorted(await drawer.names()) == ["deep/b.txt", "deep/c.txt"]
    assert (await drawer.move("a.txt", "b.txt")).status == 404
    assert (await drawer.move("deep/b.txt", "deep/c.txt/d.txt")).status == 500


async def test_files_are_listed_in_several_forms(drawer: Drawer) -> None:
    for name in ("a.txt", "deep/b.txt", ".hidden/c.txt", "deep/.d.txt"):
        await drawer.put(name)
    assert await drawer.names("") == ["a.txt"]
    assert sorted(await drawer.names("recurse=true")) == ["a.txt", "deep/b.txt"]
    assert sorted(await drawer.names("recurse=true&split=true")) == [
        ["a.txt", "a.txt"],
        ["deep/b.txt", "deep", "b.txt"],
    ]
    assert (await drawer.wire.get(f"/userdata?dir={drawer.name}/a.txt")).body == []
    for name in (".hidden/c.txt", "deep/.d.txt"):
        await drawer.wire.request("DELETE", drawer.at(name))


async def test_files_and_folders_are_listed_together(drawer: Drawer) -> None:
    for name in ("B.txt", "deep/a.txt"):
        await drawer.put(name)
    answer = await drawer.wire.get(f"/v2/userdata?path={quote(drawer.name)}")
    found = [(entry["type"], entry["name"], entry["path"].removeprefix(f"{drawer.name}/")) for entry in answer.body]
    assert found == [("directory", "deep", "deep"), ("file", "a.txt", "deep/a.txt"), ("file", "B.txt", "B.txt")]
    assert answer.body[0].keys() == {"name", "path", "type"}
    assert answer.body[1].keys() == {"name", "path", "type", "size", "modified"}
    assert isinstance(answer.body[1]["modified"], float)
    everything = (await drawer.wire.get("/v2/userdata")).body
    assert {"name": drawer.name, "path": drawer.name, "type": "directory"} in everything


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/userdata", 400, "Directory not provided"),
        ("/userdata?dir=..", 403, "Invalid directory"),
        ("/userdata?dir=/etc", 403, "Invalid directory"),
        ("/userdata?dir=no-such-folder", 404, "Directory not found"),
        ("/v2/userdata?path=..", 400, "Invalid path requested"),
        ("/v2/userdata?path=no-such-folder", 404, "Requested path not found"),
        ("/userdata/..%2F..%2Fsecret", 403, b""),
        ("/userdata/no-such-file", 404, b""),
    ],
)
async def test_what_cannot_be_listed_or_read_says_why(wire: Wire, path: str, status: int, text: Any) -> None:
    answer = await wire.get(path)
    assert (answer.status, answer.body) == (status, text)


async def test_a_file_is_no_folder_to_list(drawer: Drawer) -> None:
    await drawer.put("a.txt")
    answer = await drawer.wire.get(f"/v2/userdata?path={quote(drawer.name)}/a.txt")
    assert (answer.status, answer.body) == (400, "Requested path is not a directory")


async def test_no_file_of_the_user_leaves_the_folder(wire: Wire) -> None:
    assert (await wire.post("/userdata/..%2Fx.txt", data=b"x")).status == 403
    assert (await wire.request("DELETE", "/userdata/..%2Fx.txt")).status == 403


async def test_pages_of_the_user_are_not_shown_since_0_28(drawer: Drawer) -> None:
    await drawer.put("page.html", b"<b>")
    headers = (await drawer.wire.get(drawer.at("page.html"))).headers
    found = tuple(headers.get(name) for name in ("Content-Type", "Content-Disposition", "X-Content-Type-Options"))
    downloaded = ("application/octet-stream", "attachment", "nosniff")
    assert found == (downloaded if drawer.wire.since("0.28") else ("text/html", None, None))


@pytest.mark.parametrize("path", ["/i18n", "/global_subgraphs", "/workflow_templates"])
async def test_additions_of_custom_nodes_are_listed_by_name(wire: Wire, path: str) -> None:
    for prefix in ("", "/api"):
        answer = await wire.get(prefix + path)
        assert (answer.status, type(answer.body)) == (200, dict)


async def test_a_subgraph_that_is_not_there_is_null(wire: Wire) -> None:
    answer = await wire.get("/global_subgraphs/no-such-subgraph")
    assert (answer.status, answer.body) == (200, None)


async def test_replacements_of_nodes_are_listed_since_0_14(wire: Wire) -> None:
    answer = await wire.get("/node_replacements")
    assert answer.status == (200 if wire.since("0.14") else 404)
    assert not wire.since("0.14") or isinstance(answer.body, dict)


async def test_extensions_are_scripts(wire: Wire) -> None:
    answer = await wire.get("/extensions")
    assert answer.status == 200
    assert all(path.startswith("/extensions/") and path.endswith(".js") for path in answer.body)


async def test_model_folders_are_described(wire: Wire) -> None:
    found = {entry["name"]: entry for entry in (await wire.get("/experiment/models")).body}
    assert {"checkpoints", "loras", "vae", "embeddings"} <= found.keys()
    assert not found.keys() & {"configs", "custom_nodes"}
    more = {"extensions"} if wire.since("0.28") else set()
    assert found["loras"].keys() == {"name", "folders"} | more
    assert all(isinstance(folder, str) for folder in found["loras"]["folders"])
    assert not more or ".safetensors" in found["loras"]["extensions"]


async def test_models_are_described(wire: Wire) -> None:
    names = (await wire.get("/models/checkpoints")).body
    described = (await wire.get("/experiment/models/checkpoints")).body
    assert sorted(entry["name"] for entry in described) == sorted(names)
    for entry in described:
        assert entry.keys() == {"name", "pathIndex", "modified", "created", "size"}
        assert isinstance(entry["size"], int)
    assert (await wire.get("/experiment/models/no-such-folder")).status == 404
    assert (await wire.get("/experiment/models/preview/checkpoints/0/no-such-model.webp")).status == 404
    assert (await wire.get("/experiment/models/preview/no-such-folder/0/x.safetensors")).status == 404
    answers = [
        (await wire.get(f"/experiment/models/preview/checkpoints/{rest}")).status for rest in ("0/", "x/a", "9/a")
    ]
    assert answers == ([400, 400, 404] if wire.since("0.28") else [404, 500, 500])


async def test_logs_can_be_read_and_followed(wire: Wire) -> None:
    assert isinstance((await wire.get("/internal/logs")).body, str)
    raw = (await wire.get("/internal/logs/raw")).body
    assert (raw.keys(), raw["size"].keys()) == ({"entries", "size"}, {"cols", "rows"})
    assert all(entry.keys() == {"t", "m"} for entry in raw["entries"])
    for enabled in (True, False):
        body = {"clientId": wire.client_id, "enabled": enabled}
        answer = await wire.request("PATCH", "/internal/logs/subscribe", json=body)
        assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("body", [b"junk", b'{"clientId": "x"}', b'{"enabled": true}'])
async def test_a_reader_of_logs_says_who_it_is(wire: Wire, body: bytes) -> None:
    assert (await wire.request("PATCH", "/internal/logs/subscribe", data=body)).status == 500


async def test_the_folders_of_models_are_named(wire: Wire) -> None:
    folders = (await wire.get("/internal/folder_paths")).body
    assert {"checkpoints", "loras", "configs", "custom_nodes"} <= folders.keys()
    assert all(isinstance(path, str) for paths in folders.values() for path in paths)


@pytest.mark.of_the_wire
async def test_uploaded_files_are_listed_from_the_newest(wire: Wire) -> None:
    names = [f"{fresh_prefix('listed')}.png" for _ in range(2)]
    for name in names:
        await wire.post("/upload/image", data=form(png(), name))
    await wire.post("/upload/image", data=form(png(), f".{names[0]}"))
    ending = " [input]" if wire.since("0.20") else ""
    listed = (await wire.get("/internal/files/input")).body
    assert listed[:2] == [f"{name}{ending}" for name in reversed(names)]
    assert not any(name.startswith(".") for name in listed)
    refused = await wire.get("/internal/files/elsewhere")
    assert (refused.status, refused.body) == (400, {"error": "Invalid directory type"})


async def test_internal_routes_exist_only_once(wire: Wire) -> None:
    for path in ("logs", "logs/raw", "folder_paths", "files/input"):
        assert (await wire.get(f"/api/internal/{path}")).status == 404
