"""What is no prompt, result or fact of the fleet goes to the editor as it came, and its answer comes back so."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from aiohttp import ClientConnectionError, ClientPayloadError, web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from comfyui_agent.comfy.address import NoServer, ServerAddress
from comfyui_agent.gateway import editor as module
from comfyui_agent.gateway.access import ALL_PREFIXES
from comfyui_agent.gateway.editor import Editor, find_editor
from comfyui_agent.wire.application import application
from comfyui_agent.wire.backend import Backend
from comfyui_agent.wire.dialect import Dialect
from comfyui_agent.wire.sockets import Delivery

ZIPPED = gzip.compress(b"page" * 100)


class ComfyPage:
    """A ComfyUI that says what it was asked."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        app = web.Application(client_max_size=2**30)
        app.router.add_get("/moved", self.move)
        app.router.add_get("/broken", self.break_off)
        app.router.add_get("/slow", self.speak_slowly)
        app.router.add_get("/zipped", self.zip)
        app.router.add_get("/unchanged", self.say_unchanged)
        app.router.add_route("*", "/{path:.*}", self.echo)
        self.server = TestServer(app)

    @property
    def url(self) -> str:
        return str(self.server.make_url("")).rstrip("/")

    async def echo(self, request: web.Request) -> web.Response:
        body = await request.read()
        said = {
            "method": request.method,
            "path": request.raw_path,
            "headers": {name.lower(): value for name, value in request.headers.items()},
            "size": len(body),
            "body": body[:100].decode(),
        }
        return web.json_response(said, status=418, headers={"X-Kept": "é", "Keep-Alive": "timeout=9"})

    async def move(self, request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": request.query["to"]})

    async def break_off(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "100"} if request.query_string else {})
        await answer.prepare(request)
        await answer.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return answer

    async def speak_slowly(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"first")
        await self.go_on.wait()
        await answer.write(b"second")
        return answer

    async def zip(self, _: web.Request) -> web.Response:
        answer = web.Response(body=ZIPPED, headers={"Content-Encoding": "gzip"})
        answer.set_cookie("a", "1")
        answer.set_cookie("b", "2")
        return answer

    async def say_unchanged(self, _: web.Request) -> web.Response:
        return web.Response(status=304, headers={"ETag": '"x"'})


class Site:
    def __init__(self, page: ComfyPage) -> None:
        self.page = page
        self.address = ServerAddress.parse(page.url)
        self.editor = Editor(lambda: self.address)
        nobody = cast("Any", None)
        app = application(
            Dialect("0.33"),
            lambda _: cast("Backend", Facts()),
            cast("Delivery", nobody),
            self.editor.routes,
            (),
            ALL_PREFIXES,
        )
        self.client = TestClient(TestServer(app), auto_decompress=False)

    def ask(self, path: str, method: str = "GET", **options: Any) -> Any:
        url = self.client.make_url("/").join(URL(path, encoded=True))
        return self.client.session.request(method, url, allow_redirects=False, **options)

    async def echoed(self, path: str, method: str = "GET", **options: Any) -> dict[str, Any]:
        async with self.ask(path, method, **options) as response:
            assert response.status == 418, await response.text()
            assert response.headers["X-Kept"] == "é"
            assert "Keep-Alive" not in response.headers
            said: dict[str, Any] = await response.json()
            return said


class Facts:
    async def features(self) -> dict[str, bool]:
        return {"gateway": True}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    page = ComfyPage()
    await page.server.start_server()
    site = Site(page)
    async with site.client:
        yield site
    await site.editor.close()
    await page.server.close()


@pytest.mark.parametrize("prefix", ["", "/api"])
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/settings",
        "/userdata/workflows%2Fa%20b.json?overwrite=true&full_info=%2F",
        "/v2/userdata?path=workflows",
        "/userdata/a%2Fb/move/c%2Fd",
        "/extensions/x/%C3%A9+~.js",
        "/a//b/?",
        "/ws/custom",
    ],
)
async def test_a_path_arrives_as_it_was_sent(site: Site, prefix: str, path: str) -> None:
    sent = f"{prefix}{path}"
    assert (await site.echoed(sent))["path"] == sent.rstrip("?")
    assert (await site.echoed(f"/t/e3_secret{sent}"))["path"] == sent.rstrip("?")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "PROPFIND"])
async def test_every_method_is_passed_on_with_its_body(site: Site, method: str) -> None:
    said = await site.echoed("/userdata/x", method, data=b"{}", headers={"Content-Type": "a/b"})
    assert (said["method"], said["body"], said["headers"]["content-length"]) == (method, "{}", "2")
    assert said["headers"]["content-type"] == "a/b"
    assert (await site.echoed("/userdata/x", method))["size"] == 0


async def test_the_routes_of_the_gateway_are_its_own(site: Site) -> None:
    for path in ("/features", "/api/features", "/t/x/features"):
        async with site.ask(path) as response:
            assert await response.json() == {"gateway": True}
    assert (await site.echoed("/features/more"))["path"] == "/features/more"


async def test_the_editor_learns_nothing_of_credentials_and_of_where_people_are(site: Site) -> None:
    site.address = ServerAddress.parse(site.page.url.replace("//", "//anna:secret@") + "?key=k")
    own = str(site.client.make_url("")).rstrip("/")
    headers = {
        "Authorization": "Bearer e3_secret",
        "Cookie": "e3_session_8187=s1; a=b; __Host-e3_session_8190=s2;; c=d",
        "Origin": own,
        "Referer": f"{own}/t/e3_secret/",
        "Connection": "keep-alive, X-Mine",
        "X-Mine": "1",
        "TE": "trailers",
        "Comfy-User": "anna",
        "User-Agent": "browser",
    }
    said = await site.echoed("/t/e3_secret/settings?x=1", headers=headers)
    assert said["path"] == "/settings?x=1&key=k"
    got = said["headers"]
    assert got.pop("host") == site.page.url.partition("://")[2]
    assert got.pop("authorization") == "Basic YW5uYTpzZWNyZXQ=", "the editor's own login"
    assert got.pop("cookie") == "a=b; c=d"
    assert got == {"comfy-user": "anna", "user-agent": "browser", "accept": "*/*", "accept-encoding": "gzip, deflate"}
    own_only = await site.echoed(
        "/", headers={"Cookie": "e3_session_8187=s1"}, skip_auto_headers=["User-Agent", "Accept"]
    )
    assert not {"cookie", "user-agent", "accept", "content-type"} & set(own_only["headers"])


async def test_an_answer_comes_as_it_is_packed_and_with_all_its_cookies(site: Site) -> None:
    async with site.ask("/zipped") as response:
        assert (response.headers["Content-Encoding"], await response.read()) == ("gzip", ZIPPED)
        assert response.headers.getall("Set-Cookie") == ["a=1; Path=/", "b=2; Path=/"]
    async with site.ask("/zipped", "HEAD") as response:
        assert (response.status, response.headers["Content-Length"]) == (200, str(len(ZIPPED)))
    async with site.ask("/unchanged") as response:
        assert (response.status, response.headers["ETag"], await response.read()) == (304, '"x"', b"")


async def test_an_answer_is_not_held_back(site: Site) -> None:
    async with site.ask("/slow") as response:
        assert await response.content.readany() == b"first"
        site.page.go_on.set()
        assert await response.content.readany() == b"second"


@pytest.mark.parametrize("path", ["/broken", "/broken?declared"])
async def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(
    site: Site, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises((ClientPayloadError, ClientConnectionError)):
        async with site.ask(path) as response:
            await response.read()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    ("place", "prefix", "seen"),
    [
        ("/there", "", "/there"),
        ("/there", "/t/x", "/t/x/there"),
        ("{editor}/there?a=1", "/t/x", "/t/x/there?a=1"),
        ("there", "/t/x", "there"),
        ("https://elsewhere/x", "/t/x", "https://elsewhere/x"),
        ("//elsewhere/x", "/t/x", "//elsewhere/x"),
    ],
)
async def test_a_redirect_is_passed_on_and_stays_here(site: Site, place: str, prefix: str, seen: str) -> None:
    url = URL(f"{prefix}/moved").with_query(to=place.format(editor=site.page.url))
    async with site.ask(str(url)) as response:
        assert (response.status, response.headers["Location"]) == (302, seen)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UPLOAD_BYTES", 1000)


def parts(count: int) -> Any:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b"x" * 100

    return body()


@pytest.mark.usefixtures("_small")
async def test_a_body_is_passed_on_in_parts_up_to_what_comfyui_takes(site: Site) -> None:
    assert (await site.echoed("/upload", "POST", data=parts(10)))["size"] == 1000
    for data in (b"x" * 1001, parts(11)):
        async with site.ask("/upload", "POST", data=data) as response:
            assert response.status == 413
            assert "ComfyUI takes" in await response.text()


@pytest.mark.parametrize("path", ["/a/..%2f..%2fb", "/%2e%2e/b", "/userdata/..%2F..%2Fb"])
async def test_no_path_leads_out_of_the_editors_address(site: Site, path: str) -> None:
    async with site.ask(path) as response:
        assert response.status == 403


async def test_an_editor_that_is_away_is_said_to_be_in_one_sentence(site: Site) -> None:
    await site.page.server.close()
    for method, data in (("GET", None), ("POST", parts(3))):
        async with site.ask("/settings", method, data=data) as response:
            assert response.status == 502
            text = await response.text()
            assert f"the editor at {site.address} does not answer" in text
            assert "\n" not in text


async def test_without_a_server_there_is_no_editor(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.editor, "_find", lambda: find_editor(None, []))
    async with site.ask("/settings") as response:
        assert (response.status, "no ComfyUI server yet" in await response.text()) == (502, True)


FLEET = ["http://gpu1:8188", "http://anna:pw@gpu2:8188/comfy/"]


@pytest.mark.parametrize(
    ("named", "found"),
    [
        (None, "http://gpu1:8188"),
        ("gpu2", "http://gpu2:8188/comfy"),
        ("gpu1:8188", "http://gpu1:8188"),
        ("http://gpu2:8188/comfy", "http://gpu2:8188/comfy"),
        ("http://laptop:8188", "http://laptop:8188"),
    ],
)
def test_the_editor_is_the_first_server_or_the_one_that_is_named(named: str | None, found: str) -> None:
    address = find_editor(named, FLEET)
    assert str(address) == found
    assert bool(address.authorization) == ("gpu2" in found), "with the login that the fleet has for it"


@pytest.mark.parametrize(("named", "urls"), [("gpu3", FLEET), ("gpu", FLEET), (None, []), ("gpu1", [])])
def test_a_name_that_no_server_has_is_said_to_be_none(named: str | None, urls: list[str]) -> None:
    with pytest.raises(NoServer):
        find_editor(named, urls)
