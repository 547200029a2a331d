"""The page and the API of a workspace, served in this process, and someone who asks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
from fastapi import FastAPI
from starlette.routing import BaseRoute
from yarl import URL

from comfyui_agent.access.listen_address import listen, tls_of
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.domain.retry_policy import GiveUp
from comfyui_agent.domain.tokens import Role, hash_of, mint_token
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.records import Leased, Window
from comfyui_agent.store.store import Store
from comfyui_agent.web.context import Context
from comfyui_agent.web.page_server import serving
from support.pictures import png
from support.stores import broken
from support.workspaces import NOWHERE, new_workspace

SERVER = "http://gpu:8188"
PATIENCE = 60.0
LONGEST_LINE = 4 * 1024 * 1024
PROBLEM = "application/problem+json"
TLS = {
    name: str(Path(__file__).parent / "tls" / f"e3.{end}") for name, end in (("tls_cert", "pem"), ("tls_key", "key"))
}
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Answer:
    """What came back, read to the end."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    value: Any

    @property
    def text(self) -> str:
        return self.body.decode("utf-8")


@dataclass(frozen=True)
class Served:
    """A page that is being served."""

    url: str
    store: Store
    workspace: Workspace
    context: Context
    session: aiohttp.ClientSession

    async def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        """One request; `body` is sent as JSON."""
        sent = {} if body is None else {"json": body}
        address = URL(self.url + path, encoded=True)
        async with self.session.request(method, address, allow_redirects=False, **sent, **options) as response:
            data = await response.read()
            kind = response.headers.get("Content-Type", "")
            if "ndjson" in kind:
                return Answer(response.status, response.headers, data, [json.loads(line) for line in data.splitlines()])
            value = await response.json(content_type=None) if "json" in kind and data else None
            return Answer(response.status, response.headers, data, value)

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.ask("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return await self.ask("POST", path, body, **options)

    async def put(self, path: str, body: Any = None, **options: Any) -> Answer:
        return await self.ask("PUT", path, body, **options)

    async def raw(self, request: bytes) -> Answer:
        """One request, byte for byte; whatever it is, the connection is read to its end."""
        address = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write(request)
            said = await asyncio.wait_for(reader.read(), PATIENCE)
        finally:
            writer.close()
        return parsed(said)

    async def job(self, name: str, **said: Any) -> Job:
        """A job that waits, as the API queues it, without a row in the audit trail."""
        tree = {"job_type": "T2I", "workflow_id": "picture", "inputs": {"color": 1}, **said}
        async with self.context.submissions.intake.reading() as admission:
            new = await asyncio.to_thread(admission.job_of, tree, name)
        assert await self.store.run(ops.submit_jobs, [new]) != [None]
        job = await self.store.run(ops.find_job_by_name, name)
        assert job is not None
        return job

    async def lease(self, most: int = 1, batch_id: str | None = None) -> list[Leased]:
        """The next jobs, as an agent takes them."""
        window = Window(SERVER, 64, batch_id=batch_id)
        return await self.store.run(ops.lease_jobs, "an-agent", window, [mint_prompt_id() for _ in range(most)], 600.0)

    async def finish(self, leased: Leased, *pictures: bytes) -> list[str]:
        """`done`, with so many pictures; where they lie."""
        folder = self.workspace.root / "jobs" / "finished" / "image"
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for number, picture in enumerate(pictures or (png(),), start=1):
            path = folder / f"result_{leased.lease.job_id}_{number}.png"
            path.write_bytes(picture)
            paths.append(path.relative_to(self.workspace.root).as_posix())
        await self.store.run(ops.complete_job, leased.lease, paths, 1.5)
        return paths

    async def fail(self, leased: Leased, message: str = "the sampler broke") -> None:
        await self.store.run(ops.fail_job, leased.lease, broken(message=message), GiveUp(FailureClass.EXECUTION))

    async def token(self, role: Role, name: str = "", **said: Any) -> str:
        """A new token, which the page knows of from now on."""
        secret = mint_token()
        await self.store.run(ops.create_token, name or role.value, role, hash_of(secret), **said)
        return secret

    async def log_in(self, token: str) -> dict[str, str]:
        """Log in as a browser does; the cookie that it sends from then on."""
        answer = await self.form("/login", token=token)
        assert answer.status == 303, answer.text
        return {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}

    async def form(self, path: str = "/login", **said: str) -> Answer:
        """Send a form of the page."""
        body = "&".join(f"{key}={quote(value, safe='')}" for key, value in said.items())
        return await self.post(path, data=body, headers={"Content-Type": FORM, "Origin": self.url})


@dataclass(frozen=True)
class Keys:
    """The tokens of a page that asks for them."""

    user: str
    admin: str
    read: str
    metrics: str


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def parsed(said: bytes) -> Answer:
    """An answer as it came over the wire."""
    head, _, body = said.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.title(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("Transfer-Encoding") == "chunked":
        body = _unchunked(body)
    value = json.loads(body) if "json" in headers.get("Content-Type", "") and body else None
    return Answer(int(first.split(" ")[1]) if first else 0, headers, body, value)


def _unchunked(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return whole


def check_problem(answer: Answer, status: int) -> dict[str, Any]:
    """A problem as it is promised: what happened, and what to do about it."""
    assert answer.status == status, answer.text[:1000]
    assert answer.headers["Content-Type"].startswith(PROBLEM), answer.headers
    said: dict[str, Any] = answer.value
    assert said["status"] == status
    assert all(isinstance(said[key], str) and said[key] for key in ("type", "title", "detail", "remedy")), said
    return said


def routes_of(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Every route of the application: its method and its path."""

    def walk(routes: Sequence[BaseRoute]) -> Iterator[tuple[str, str]]:
        for route in routes:
            inner = getattr(route, "original_router", None)
            if inner is not None:
                yield from walk(inner.routes)
            else:
                for method in sorted(getattr(route, "methods", None) or ()):
                    yield method, getattr(route, "path", "")

    yield from walk(app.routes)


@dataclass(frozen=True)
class Frame:
    """A server-sent event, or a comment."""

    event: str = ""
    data: str = ""
    id: str = ""
    retry: str = ""
    comment: str = ""

    @property
    def value(self) -> Any:
        return json.loads(self.data)


class Stream:
    """Server-sent events as they come."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.heard = b""

    async def next(self, timeout: float = PATIENCE) -> Frame | None:
        """The next event or comment; None at the end."""
        return await asyncio.wait_for(self._next(), timeout)

    async def _next(self) -> Frame | None:
        facts = {"event": "", "data": "", "id": "", "comment": ""}
        is_something = False
        while True:
            line = await self.response.content.readline()
            self.heard += line
            if not line:
                return None
            if line == b"\n":
                if is_something:
                    return Frame(**facts)
                continue
            is_something = True
            name, _, value = line.decode("utf-8").rstrip("\n").partition(":")
            facts[name or "comment"] = value.removeprefix(" ")

    async def until(self, found: Callable[[Frame], bool], timeout: float = PATIENCE) -> list[Frame]:
        """Everything up to the frame that is waited for, which is the last."""
        frames: list[Frame] = []
        deadline = time.monotonic() + timeout
        while not frames or not found(frames[-1]):
            frame = await self.next(deadline - time.monotonic())
            assert frame is not None, f"the stream ended after {frames}"
            frames.append(frame)
        return frames

    async def events(self, count: int, timeout: float = PATIENCE) -> list[Frame]:
        """So many events; comments do not count."""
        found: list[Frame] = []
        deadline = time.monotonic() + timeout
        while len(found) < count:
            frame = await self.next(deadline - time.monotonic())
            assert frame is not None, f"the stream ended after {found}"
            if frame.event:
                found.append(frame)
        return found

    async def rest(self, timeout: float = PATIENCE) -> list[Frame]:
        """Everything up to the end."""
        frames: list[Frame] = []
        deadline = time.monotonic() + timeout
        while (frame := await self.next(deadline - time.monotonic())) is not None:
            frames.append(frame)
        return frames


@asynccontextmanager
async def watching(served: Served, path: str, **headers: str) -> AsyncIterator[Stream]:
    """Someone who listens to a stream; its first line has been heard."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    timeout = aiohttp.ClientTimeout(total=60)
    address = URL(served.url + path, encoded=True)
    async with (
        aiohttp.ClientSession(timeout=timeout, read_bufsize=LONGEST_LINE) as session,
        session.get(address, headers=sent) as response,
    ):
        assert response.status == 200, await response.text()
        stream = Stream(response)
        first = await stream.next()
        assert first is not None
        assert first.comment
        yield stream


async def eventually(found: Callable[[], Any], what: str, timeout: float = PATIENCE) -> Any:
    """Ask until there is an answer; the answer."""
    deadline = time.monotonic() + timeout
    while not (answer := found()):
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        await asyncio.sleep(0.01)
    return answer


@asynccontextmanager
async def served(
    folder: Path, server: str = NOWHERE, environment: Mapping[str, str] | None = None, **ui: Any
) -> AsyncIterator[Served]:
    """A new workspace with its page, at a port that is free. `picture` is a workflow of two small nodes."""
    if not (folder / "config").is_dir():
        new_workspace(folder, server)
    workspace = load_workspace(folder, {"E3_COMFYUI__API_BASE_URL": server, **(environment or {})})
    chosen = workspace.settings.ui.model_copy(update=ui)
    workspace = replace(workspace, settings=workspace.settings.model_copy(update={"ui": chosen}))
    store = open_store(workspace.database)
    try:
        listening = await listen(store, chosen.host, 0, tls_of(workspace))
        try:
            async with serving(store, workspace, listening) as context, aiohttp.ClientSession() as session:
                yield Served(listening.url, store, workspace, context, session)
        finally:
            listening.close()
    finally:
        await store.close()
