"""Who may use the gateway: by the rules of the page, and shown in the ways that ComfyUI's clients have."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from aiohttp import WSMsgType, WSServerHandshakeError, web
from aiohttp.test_utils import TestClient, TestServer

from comfyui_agent.access import gate
from comfyui_agent.access.gate import Gate
from comfyui_agent.access.limits import RequestLimits
from comfyui_agent.config.settings import Ui
from comfyui_agent.domain.tokens import Role
from comfyui_agent.gateway import access as module
from comfyui_agent.gateway.access import ALL_PREFIXES, admission, caller_of
from comfyui_agent.gateway.service import explain
from comfyui_agent.store.errors import DatabaseAway
from comfyui_agent.wire.application import application
from comfyui_agent.wire.backend import Backend
from comfyui_agent.wire.dialect import Dialect
from comfyui_agent.wire.prompts import Json
from comfyui_agent.wire.sockets import Delivery
from support.tokens import TokenMemory

TOKENS = {role: f"e3_{role}" for role in Role}
Client = TestClient[web.Request, web.Application]


def basic(password: str) -> str:
    return f"Basic {base64.b64encode(f'anyone:{password}'.encode()).decode()}"


async def who(request: web.Request) -> web.Response:
    caller = caller_of(request)
    return web.json_response({"token_id": caller.token_id, "role": caller.role})


class Greeter:
    """As much of a backend and a delivery as a socket needs."""

    async def remaining(self) -> int:
        return 0

    async def greeting(self, _: str) -> list[tuple[str, Json]]:
        return []

    def join(self, _: Any) -> None: ...

    def leave(self, _: Any) -> None: ...

    async def reply(self, client: Any, event: str, data: Json) -> None:
        await client.socket.send_json({"type": event, "data": data})


@asynccontextmanager
async def gateway(memory: Any, **ui: Any) -> AsyncIterator[Client]:
    asked = Gate(memory, Ui(**ui), serves_loopback=True)
    routes = [web.get("/who", who), web.post("/who", who)]
    greeter = Greeter()
    app = application(
        Dialect("0.33"),
        lambda _: cast("Backend", greeter),
        cast("Delivery", greeter),
        routes,
        [explain, admission(asked, RequestLimits(Ui(**ui)))],
        ALL_PREFIXES,
    )
    async with TestClient(TestServer(app)) as client:
        yield client
    await asked.close()


@pytest.fixture
def memory() -> TokenMemory:
    made = TokenMemory()
    for role, secret in TOKENS.items():
        made.add(secret, role)
    return made


async def answer(client: Client, path: str = "/who", method: str = "GET", **options: Any) -> tuple[int, Any]:
    async with client.request(method, path, **options) as response:
        return response.status, await (response.json() if response.status == 200 else response.text())


@pytest.mark.parametrize("path", ["/who", "/api/who", "/t/any/who", "/t/any/api/who"])
@pytest.mark.parametrize("authorization", [None, "Bearer ", "Bearer", "Bearer e3_wrong", "Basic ?"])
async def test_without_tokens_everyone_on_this_machine_is_an_admin_whatever_they_send(
    path: str, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    async with gateway(TokenMemory()) as client:
        assert await answer(client, path, "POST", headers=headers) == (200, {"token_id": None, "role": "admin"})


@pytest.mark.parametrize(
    "headers", [{"X-Forwarded-For": "10.0.0.1"}, {"Via": "1.1 x"}, {"Host": "evil.example"}, {"Host": "10.0.0.1:8187"}]
)
async def test_what_comes_by_a_proxy_or_under_a_foreign_name_is_not_this_machine(headers: dict[str, str]) -> None:
    async with gateway(TokenMemory()) as client:
        assert (await answer(client, headers=headers))[0] == 403


@pytest.mark.parametrize(
    ("path", "authorization"),
    [
        ("/who", "Bearer e3_user"),
        ("/who", "bearer  e3_user "),
        ("/api/who", basic("e3_user")),
        ("/t/e3_user/who", ""),
        ("/t/e3_user/api/who", "Bearer of-another-service"),
    ],
)
async def test_a_token_is_shown_in_a_header_as_a_password_or_in_the_path(
    memory: TokenMemory, path: str, authorization: str
) -> None:
    headers = {"Authorization": authorization} if authorization else {}
    async with gateway(memory) as client:
        assert await answer(client, path, "POST", headers=headers) == (200, {"token_id": 3, "role": "user"})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Comfy-User": "admin"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer e3_wrong"},
        {"Authorization": "Basic ?"},
        {"Authorization": "Basic 6Tri"},
        {"Authorization": "e3_admin"},
        {"Cookie": "e3_session_8187=e3_admin"},
    ],
)
async def test_once_there_are_tokens_strangers_are_told_how_to_show_one(
    memory: TokenMemory, headers: dict[str, str]
) -> None:
    async with gateway(memory) as client, client.get("/who", headers=headers) as response:
        assert response.status == 401
        assert response.headers["WWW-Authenticate"].startswith('Basic realm="E3", Bearer realm="E3"')
        text = await response.text()
        assert text.startswith("E3: this ")
        assert "/t/TOKEN/" in text


async def test_access_stays_closed_when_the_last_token_is_gone() -> None:
    async with gateway(TokenMemory(is_closed=True)) as client:
        assert (await answer(client))[0] == 401


@pytest.mark.parametrize(
    ("role", "reading", "changing"),
    [(Role.METRICS, 403, 403), (Role.READ, 200, 403), (Role.USER, 200, 200), (Role.ADMIN, 200, 200)],
)
async def test_readers_only_look(memory: TokenMemory, role: Role, reading: int, changing: int) -> None:
    async with gateway(memory) as client:
        path = f"/t/{TOKENS[role]}/who"
        statuses = [(await answer(client, path, method))[0] for method in ("GET", "POST")]
        assert statuses == [reading, changing]


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("POST", {"Origin": "http://evil.example"}),
        ("POST", {"Origin": "null"}),
        ("POST", {"Sec-Fetch-Site": "same-site"}),
        ("GET", {"Sec-Fetch-Site": "cross-site"}),
    ],
)
async def test_a_page_of_another_site_is_refused_though_the_browser_adds_the_password(
    memory: TokenMemory, method: str, headers: dict[str, str]
) -> None:
    async with gateway(memory) as client:
        for host in ("127.0.0.1:8187", "e3.example:8187"):
            sent = {"Host": host, "Authorization": basic("e3_admin"), **headers}
            assert (await answer(client, method=method, headers=sent))[0] == 403


async def test_a_socket_is_opened_by_its_own_site_and_by_programs(memory: TokenMemory) -> None:
    async with gateway(memory) as client:
        for headers in ({}, {"Host": "e3.example", "Origin": "https://e3.example"}):
            async with client.ws_connect("/t/e3_read/ws?clientId=c", headers=headers) as socket:
                assert (await socket.receive_json())["data"]["sid"] == "c"
        for path, origin in (("/t/e3_read/ws", "https://evil.example"), ("/ws", "https://e3.example")):
            with pytest.raises(WSServerHandshakeError) as refused:
                await client.ws_connect(path, headers={"Host": "e3.example", "Origin": origin})
            assert refused.value.status in (401, 403)


async def test_a_socket_ends_with_its_token(memory: TokenMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(gate, "FRESH_SECONDS", 0.0)
    async with gateway(memory) as client, client.ws_connect("/t/e3_user/ws") as socket:
        await socket.receive_json()
        memory.known.pop(2)
        memory.version += 1
        assert (await socket.receive()).type in (WSMsgType.CLOSED, WSMsgType.ERROR)


async def test_after_ten_wrong_tokens_only_a_right_one_is_admitted(memory: TokenMemory) -> None:
    async with gateway(memory) as client:
        assert [(await answer(client, f"/t/wrong{number}/who"))[0] for number in range(11)] == [401] * 10 + [429]
        assert (await answer(client, "/t/e3_read/who"))[0] == 200


async def test_a_trusted_proxy_says_who_calls(memory: TokenMemory) -> None:
    trust = {"trusted_proxies": ("127.0.0.1",), "proxy_user_header": "X-Remote-User", "proxy_user_role": "read"}
    headers = {"X-Remote-User": "anna", "X-Forwarded-For": "203.0.113.7", "Authorization": "Bearer "}
    async with gateway(memory, **trust) as client:
        assert await answer(client, headers=headers) == (200, {"token_id": 5, "role": "read"})
    async with gateway(memory) as client:
        assert (await answer(client, headers=headers))[0] == 401


async def test_while_tokens_cannot_be_read_nobody_is_admitted(memory: TokenMemory) -> None:
    memory.error = DatabaseAway("the database is locked")
    async with gateway(memory) as client:
        assert (await answer(client, "/t/e3_admin/who"))[0] == 503
