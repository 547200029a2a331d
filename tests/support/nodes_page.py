"""ComfyUI's page without ComfyUI: as much of it as the page part of E3's nodes touches, and a server that serves it."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page

import comfyui_agent.nodes
from support.browser import PATIENCE, Visitor

WEB = Path(comfyui_agent.nodes.__file__).parent / "web"
EXTENSION = "/extensions/e3_iterator/"
API = "/api"
"""ComfyUI's page puts this before each of its calls; one that goes round `api` gets no answer here."""

Json = dict[str, Any]

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>ComfyUI</title>
<link rel="icon" href="data:,"></head><body><div class="graph-canvas-panel" style="height: 90vh"></div>
<script type="module">
import { api } from "/scripts/api.js";
import { app } from "/scripts/app.js";
Object.assign(window, { api, app });
await import("/extensions/e3_iterator/e3_iterator.js");
window.isSettingUp = true;
await app.extension.setup();
window.isSetUp = true;
</script></body></html>
"""

API_SCRIPT = """
class Api extends EventTarget {
  apiURL(route) { return `/api${route}`; }
  fetchApi(route, options) { return fetch(this.apiURL(route), { cache: "no-cache", ...options }); }
}
export const api = new Api();
"""

APP_SCRIPT = """
const graph = { nodes: [] };
export const app = {
  toasts: [],
  configuringGraph: false,
  graph,
  rootGraph: graph,
  canvas: { selected_nodes: {}, setDirty() {} },
  extensionManager: { toast: { add: (toast) => app.toasts.push(toast) } },
  collectNodeMenuItems() {},
  registerExtension(extension) { app.extension = extension; },
};

/** A node with the inputs that ComfyUI's canvas keeps; a link is a number. */
export class StandInNode {
  constructor(inputs) {
    this.graph = graph;
    this.size = [200, 60];
    this.inputs = inputs.map(([name, link]) => ({ name, link: link ?? null }));
    graph.nodes.push(this);
  }
  addInput(name, type, more) { this.inputs.push({ name, type, link: null, ...more }); }
  removeInput(index) { this.inputs.splice(index, 1); }
  computeSize() { return [120, 20 * this.inputs.length]; }
  setSize(size) { this.size = size; }
  link(name, link) {
    const index = this.inputs.findIndex((input) => input.name === name);
    this.inputs[index].link = link;
    this.onConnectionsChange(1, index, link !== null);
  }
}
"""


def summary(batch_id: str = "cats_0123abcd", **changed: Any) -> Json:
    """A batch under way as ComfyUI tells of it: 42 of 90 are done, and none failed."""
    name = batch_id.rpartition("_")[0] or batch_id
    found: Json = {"batch_id": batch_id, "batch_name": name, "mode": "matrix", "state": "active", "total": 90}
    found |= {"completed_count": 42, "failed": 0, "cancelled": False, "created_at": 1000.0, "reason": ""}
    return found | {"grid": None, "compositor": None, "running": 42} | changed


def member(index: int, state: str = "failed", reason: str = "", **values: Any) -> Json:
    return {"index": index, "prompt_id": f"prompt-{index}", "state": state, "values": values, "reason": reason}


@dataclass
class Answer:
    """Something as JSON; bytes as they are."""

    body: Any
    status: int = 200


@dataclass
class StandIn:
    """What the server answers, and what it was asked. Everything that it serves is on one address of this machine."""

    url: str = ""
    batches: list[Json] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    """By the path as it is on the wire, below /api."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of each call below /api/wi, in order."""
    holding: dict[str, threading.Event] = field(default_factory=dict)
    releases: list[threading.Event] = field(default_factory=list)

    def hold(self, path: str) -> threading.Event:
        """The next call of this path gets the answer of its time, but only when the event is set."""
        release = self.holding[path] = threading.Event()
        self.releases.append(release)
        return release

    def forget(self) -> None:
        """As it was at the start: nothing to tell, and nothing was asked."""
        for kept in (self.batches, self.answers, self.asked, self.holding):
            kept.clear()
        for release in self.releases:
            release.set()

    def times(self, method: str, path: str) -> int:
        return self.asked.count((method, path))

    def answer(self, method: str, path: str) -> Answer:
        self.asked.append((method, path))
        if (method, path) == ("GET", "/wi/batches") and path not in self.answers:
            ready = Answer({"batches": list(self.batches)})
        else:
            ready = self.answers.get(path, Answer({"error": f"there is no {path}"}, 404))
        release = self.holding.pop(path, None)
        if release is not None:
            release.wait(PATIENCE)
        return ready


class Requests(BaseHTTPRequestHandler):
    """Serves the page, E3's files, a picture for every /view, and what the stand-in answers."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    stand_in: StandIn

    def do_GET(self) -> None:
        path, _, _ = self.path.partition("?")
        texts = {"/": PAGE, "/scripts/api.js": API_SCRIPT, "/scripts/app.js": APP_SCRIPT}
        if path in texts:
            self._send(texts[path].encode(), "text/html" if path == "/" else "text/javascript")
        elif path.startswith(EXTENSION) and (file := WEB / path.removeprefix(EXTENSION)).is_file():
            self._send(file.read_bytes(), "text/javascript")
        elif path == f"{API}/view":
            self._send(PICTURE, "image/png")
        elif path.startswith(f"{API}/wi/"):
            self._answer("GET")
        else:
            self._send(b"", "text/plain", 404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer("POST")

    def _answer(self, method: str) -> None:
        answer = self.stand_in.answer(method, self.path.removeprefix(API))
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        self._send(body, "application/json", answer.status)

    def _send(self, body: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """A test that fails says what it misses."""


def _picture() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (40, 20), "teal").save(buffer, "PNG")
    return buffer.getvalue()


PICTURE = _picture()


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """Such a server, on a port of its own."""
    found = StandIn()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OneStandIn", (Requests,), {"stand_in": found}))
    server.daemon_threads = True
    server.block_on_close = False
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield found
    finally:
        found.forget()
        server.shutdown()
        serving.join()
        server.server_close()


@dataclass
class NodesPage:
    """The page, open in a browser."""

    visitor: Visitor
    comfyui: StandIn

    @property
    def page(self) -> Page:
        return self.visitor.page

    def open(self, *, until: str = "isSetUp") -> NodesPage:
        """Load the page, and wait until the extension is set up; or only until it is about to be."""
        self.page.goto(self.comfyui.url)
        self.page.wait_for_function(f"window.{until}")
        return self

    def leave(self) -> None:
        """Nothing may have gone wrong. What the page and the server remember is forgotten."""
        try:
            self.visitor.check()
        finally:
            self.page.evaluate("localStorage.clear()")
            self.visitor.requests.clear()
            self.visitor.complaints.clear()
            self.visitor.expected = ()
            self.comfyui.forget()

    def hear(self, event: str, detail: Mapping[str, Any] | None = None) -> None:
        """Something comes over the websocket."""
        self.page.evaluate(
            "([name, detail]) => api.dispatchEvent(new CustomEvent(name, { detail }))",
            [event, None if detail is None else dict(detail)],
        )

    def toasts(self) -> list[Json]:
        found: list[Json] = self.page.evaluate("app.toasts")
        return found

    def settle(self) -> None:
        """Whatever the page does next after an answer has been done."""
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
