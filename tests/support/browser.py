"""The page as people use it: an agent that serves it as a process of its own, and a Chromium to look at it with."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect

from comfyui_agent.domain.tokens import Role, hash_of, mint_token
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from support.agents import AgentWorkspace
from support.batches import write_graph
from support.children import keep
from support.servers import ServerProcess, free_port
from support.sweeps import sleepy_picture
from support.workspaces import call_e3, new_workspace, start_e3

T = TypeVar("T")

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESK = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
PATIENCE = 60.0
HARMLESS = ("htmx:afterRequest", "htmx:sendAbort")
"""What htmx says when a search is overtaken by the next letter. Requests that fail have names of their own."""


def chromium() -> str:
    """Where the browser is. Without one a test is skipped; in CI, where there must be one, it fails."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is not None:
        return found
    words = f"there is no browser: install one of {', '.join(NAMES)}"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(words)
    pytest.skip(words)


def until(found: Callable[[], T], what: str, timeout: float = PATIENCE) -> T:
    """Ask until there is an answer; the answer."""
    deadline = time.monotonic() + timeout
    while not (answer := found()):
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.03)
    return answer


# The agent that serves the page.


@dataclass
class Site:
    """A workspace with its servers and an agent, `e3 run`, that serves its page. Asked and changed by the API."""

    workspace: AgentWorkspace
    servers: Sequence[ServerProcess]
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    token: str = ""
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Site:
        """Start the agent, and wait until its page answers."""
        flags = [part for server in self.servers for part in ("--server", server.url)]
        ui = {"E3_UI__ENABLED": "true", "E3_UI__PORT": str(self.port)}
        self.process = start_e3(self.workspace, "run", *flags, **ui, **self.environment)
        keep(self.process)
        until(self._answers, f"the page at {self.url}: {self.workspace.tail()}", 30)
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.workspace.tail()
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=10):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """kill -9 of the agent: its page is gone, its servers are not."""
        assert self.process is not None
        self.workspace.kill(self.process)

    def freeze(self) -> None:
        """The agent neither answers nor goes away."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.workspace.stop_all()
        for server in self.servers:
            server.kill()

    # What is asked of it.

    def ask(self, path: str, body: Any = None, method: str = "") -> Any:
        """A call of the API; what it answers."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.token}"} if self.token else {})},
            method=method or ("GET" if body is None else "POST"),
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{request.method} {path}: {error.code} {error.read().decode()}") from None

    def job(self, name: str | int) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(f"/api/v1/jobs/{quote(str(name), safe='')}")
        return found

    def jobs(self, **filters: str) -> list[dict[str, Any]]:
        query = "&".join(f"{key}={quote(value)}" for key, value in filters.items())
        found: list[dict[str, Any]] = self.ask(f"/api/v1/jobs?limit=200&{query}")["jobs"]
        return found

    def batch(self, batch_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(f"/api/v1/batches/{batch_id}")
        return found

    def queue(self, name: str, workflow: str = "picture", priority: int = 50, **inputs: Any) -> dict[str, Any]:
        """Queue one job; its row."""
        said = {"name": name, "workflow_id": workflow, "job_type": "T2I", "priority": priority, "inputs": inputs}
        made: dict[str, Any] = self.ask("/api/v1/jobs", said)
        return made

    def sweep(self, name: str, workflow: str, axes: Mapping[str, str], **inputs: Any) -> str:
        """Queue a sweep; its id."""
        made = self.ask("/api/v1/batches", {"name": name, "workflow": workflow, "set": axes, "inputs": inputs})
        return str(made["id"])

    def book(self, title: str, workflow: str, pages: Sequence[Mapping[str, Any]], **inputs: Any) -> str:
        """Queue a book; its id."""
        said = [{"inputs": dict(page)} for page in pages]
        made = self.ask("/api/v1/books", {"title": title, "workflow": workflow, "inputs": inputs, "pages": said})
        return str(made["id"])

    def wait_job(self, name: str | int, status: str) -> dict[str, Any]:
        until(lambda: self.job(name)["status"] == status, f"{name} to be {status}")
        return self.job(name)

    def wait_batch(self, batch_id: str, **counts: int) -> dict[str, Any]:
        """Wait until so many of a batch are done, failed, …; the batch."""

        def is_reached() -> bool:
            batch = self.batch(batch_id)
            return all(batch[key] == count for key, count in counts.items())

        until(is_reached, f"{batch_id} to have {counts}")
        return self.batch(batch_id)

    def pause(self) -> None:
        """The servers get nothing new: what is queued now waits."""
        self._steer("pause")

    def resume(self) -> None:
        self._steer("resume")

    def _steer(self, what: str) -> None:
        for server in self.servers:
            self.ask(f"/api/v1/servers/{server.url.removeprefix('http://')}/{what}", {})

    def clear(self) -> None:
        """Nothing waits, nothing renders, and nothing is held back: as the next test wants it."""
        left = [job["config_name"] for status in ("pending", "processing") for job in self.jobs(status=status)]
        if left:
            self.ask("/api/v1/jobs/cancel", {"names": left})
        self.resume()


def new_site(folder: Path, *servers: ServerProcess, **environment: str) -> Site:
    """A workspace with an agent that is not started yet. Besides the samples there are two workflows that need no
    model: `picture`, and `sleepy`, which takes as long as its input `seconds` says."""
    workspace = new_workspace(folder, servers[0].url)
    write_graph(workspace, "sleepy", sleepy_picture())
    return Site(workspace, servers, environment)


@dataclass(frozen=True)
class Guarded:
    """A site that asks who is there, and the tokens that it knows."""

    site: Site
    user: str
    admin: str

    def asked_by(self, token: str) -> Site:
        """The same site, asked with another token than the admin's."""
        return replace(self.site, token=token)


def e3(site: Site, *arguments: str) -> str:
    """A command on the workspace of a site; what it printed. In a thread: a browser that is open has the event loop."""
    with ThreadPoolExecutor(1) as beside:
        answer = beside.submit(call_e3, *arguments, "-C", str(site.workspace.root)).result()
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def make_token(site: Site, role: str) -> str:
    """A new token. A page that runs already knows it a moment later."""
    secret = mint_token()

    async def create() -> None:
        store = open_store(site.workspace.database)
        try:
            await store.run(ops.create_token, f"a {role}", Role(role), hash_of(secret))
        finally:
            await store.close()

    with ThreadPoolExecutor(1) as beside:
        beside.submit(asyncio.run, create()).result()
    if site.process is not None:
        until(lambda: knows(replace(site, token=secret)), "the page to know the new token")
    return secret


def knows(site: Site) -> bool:
    """Whether the page takes the token that this site is asked by."""
    try:
        return bool(site.ask("/api/v1/me"))
    except AssertionError:
        return False


# Someone who looks at it.


WATCHING = """
window.seen = {violations: [], shifted: 0, streams: {opened: 0, closed: 0}};
document.addEventListener("securitypolicyviolation", (event) =>
  window.seen.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.seen.shifted += entry.value;
}).observe({type: "layout-shift", buffered: true});
"""


@dataclass
class Visitor:
    """A window with the page in it. What must never happen is noted: errors, refusals, requests that go elsewhere."""

    page: Page
    url: str
    requests: list[Request] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    loads: int = 0
    expected: tuple[str, ...] = ()
    """What the console may say besides, because a test brings it about."""

    def __post_init__(self) -> None:
        self.page.add_init_script(WATCHING)
        self.page.set_default_timeout(PATIENCE * 1000)
        self.page.on("request", lambda request: self.requests.append(request))
        self.page.on("domcontentloaded", lambda _: self._count())
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("console", lambda said: self._hear(said.type, f"{said.text} {said.location.get('url', '')}"))

    def _count(self) -> None:
        self.loads += 1

    def _hear(self, kind: str, words: str) -> None:
        if kind in ("error", "warning") and not any(each in words for each in (*HARMLESS, *self.expected)):
            self.complaints.append(f"{kind}: {words}")

    def go(self, path: str) -> Page:
        """Open an address of the page, and wait until it lives."""
        self.page.goto(f"{self.url}{path}")
        self.wait_live()
        return self.page

    def wait_live(self) -> None:
        """Wait until the scripts of the page listen: what is done before is lost. Wait for its address first."""
        expect(self.page.locator("#live")).to_have_attribute("data-state", "live")

    def log_in(self, token: str) -> None:
        """As the form of the page does it."""
        answer = self.page.request.post(f"{self.url}/login", form={"token": token}, max_redirects=0)
        assert answer.status == 303, answer.text()

    @property
    def strangers(self) -> list[str]:
        """Requests to anywhere but the page's own address."""
        own = (f"{self.url}/", "data:", "blob:")
        return [request.url for request in self.requests if not request.url.startswith(own)]

    def violations(self) -> list[str]:
        """What the content security policy refused on the page that is open."""
        found: list[str] = self.page.evaluate("window.seen?.violations ?? []")
        return found

    def check(self) -> None:
        """Nothing went wrong."""
        assert not self.complaints, self.complaints
        assert not self.strangers, self.strangers
        violations = [] if self.page.is_closed() else self.violations()
        assert not violations, violations


Visit = Callable[..., Visitor]
"""Opens a window at a site: `visit(site, path)`."""


def new_context(browser: Browser, *, size: Mapping[str, int] = DESK, scheme: str = "light") -> BrowserContext:
    """A browser's window of its own: nothing is remembered from another."""
    return browser.new_context(
        viewport={"width": size["width"], "height": size["height"]},
        color_scheme="dark" if scheme == "dark" else "light",
        locale="en-GB",
        reduced_motion="reduce",
        device_scale_factor=1,
    )
