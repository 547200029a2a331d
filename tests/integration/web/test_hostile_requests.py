"""Whatever is sent to whichever route: it is answered, never obeyed, and never breaks anything.

Every route of the application stands in the list below; a new one that does not is a failed test.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import logging
import os
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import pytest_asyncio

from comfyui_agent.access import limits
from comfyui_agent.config.sealing import SecretBox
from comfyui_agent.domain.webhooks import mint_secret
from comfyui_agent.store import operations as ops
from comfyui_agent.web import request_body
from comfyui_agent.web.guard import LARGEST_BODY, LARGEST_FORM, LARGEST_UPLOAD, UNSAFE
from comfyui_agent.web.html import ASSETS
from comfyui_agent.web.page_server import create_app
from comfyui_agent.web.request_body import MOST_DEPTH
from support.sampling import some
from support.store_batches import queue
from support.web import PROBLEM, Answer, Keys, Served, bearer, check_problem, routes_of, served

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPEN, USER, ADMIN = "everyone", "users", "admins"
JSON = {"Content-Type": "application/json"}
NOT_READY = {"status": "not ready", "database": "ok", "servers": {"127.0.0.1:9": "down"}}
SECRET = "what stands outside of the workspace"
KEPT = "what stands in the settings"

RECIPE = "picture: {template_path: workflows/picture.json, required_inputs: []}\n"
JOB = {"job_type": "T2I", "workflow_id": "picture", "inputs": {"color": 1}}
SWEEP = {"workflow": "picture", "set": {"color": "1..2"}}
BOOK = {"workflow": "picture", "pages": [{"inputs": {"color": 1}}]}


@dataclass(frozen=True)
class Route:
    """A route: for whom it is, and what it takes."""

    method: str
    path: str
    role: str = USER
    body: Any = None
    """A body that follows the description; None where it takes none."""
    is_form: bool = False
    is_file: bool = False
    is_endless: bool = False
    question: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def is_unsafe(self) -> bool:
        return self.method in UNSAFE

    @property
    def largest(self) -> int:
        return LARGEST_FORM if self.is_form else LARGEST_UPLOAD if self.is_file else LARGEST_BODY

    def address(self, **names: str) -> str:
        """With names of things that are there, and some of others."""
        filled = self.path.replace("{name:path}", "{name}").replace("{path:path}", "{path}")
        return filled.format(**{**_things(self.path), **names}) + self.question

    @property
    def names(self) -> list[str]:
        return [part.split(":")[0] for part in _parts(self.path)]


def _parts(path: str) -> Iterator[str]:
    for piece in path.split("{")[1:]:
        yield piece.split("}")[0]


def _things(path: str) -> dict[str, str]:
    name = "e3.css" if path.startswith("/assets/") else "127.0.0.1:9" if "/servers/" in path else "painted"
    if "/webhooks/" in path:
        name = "backend"
    return {
        "name": "removed" if path.endswith("/remove") else name,
        "delivery": "1",
        "folder": "checkpoints",
        "batch_id": "sweep_1",
        "book_id": "winter",
        "workflow_id": "picture",
        "kept": f"{'0' * 64}.png",
        "path": "infra/observability/load_1.html",
        "number": "1",
        "page": "1",
    }


ROUTES = [
    Route("GET", "/openapi.json", OPEN),
    Route("GET", "/api/v1/jobs"),
    Route("POST", "/api/v1/jobs", body=JOB),
    Route("POST", "/api/v1/jobs/retry", body={"names": ["painted"]}),
    Route("POST", "/api/v1/jobs/cancel", body={"names": ["painted"]}),
    Route("POST", "/api/v1/jobs/dismiss", body={"names": ["painted"]}),
    Route("POST", "/api/v1/jobs/rate", body={"names": ["painted"], "rating": "star"}),
    Route("GET", "/api/v1/jobs/{name}"),
    Route("GET", "/api/v1/jobs/{name}/wait", question="?seconds=0"),
    Route("PUT", "/api/v1/jobs/{name}/rating", body={"rating": "star"}),
    Route("POST", "/api/v1/results/export", body={"names": ["painted"]}),
    Route("PUT", "/api/v1/jobs/{name}/priority", body={"priority": 60}),
    Route("PUT", "/api/v1/jobs/{name}/take", body={"number": 1}),
    Route("GET", "/api/v1/jobs/{name}/takes"),
    Route("POST", "/api/v1/jobs/{name}/again", body={"inputs": {"color": 2}}),
    Route("POST", "/api/v1/jobs/{name}/vary", body={"set": {"color": "2..3"}}),
    Route("POST", "/api/v1/jobs/{name}/use", body={"workflow_id": "wf_image_to_image"}),
    Route("POST", "/api/v1/jobs/{name}/retry"),
    Route("POST", "/api/v1/jobs/{name}/cancel"),
    Route("POST", "/api/v1/jobs/{name}/dismiss"),
    Route("POST", "/api/v1/jobs/{name}/remove", ADMIN),
    Route("GET", "/api/v1/jobs/{name}/workflow"),
    Route("GET", "/api/v1/jobs/{name}/results/{number}"),
    Route("GET", "/api/v1/jobs/{name}/results/{number}/thumbnail"),
    Route("GET", "/api/v1/jobs/{name}/explain"),
    Route("GET", "/api/v1/jobs/{name}/preview"),
    Route("GET", "/api/v1/batches"),
    Route("POST", "/api/v1/batches", body=SWEEP),
    Route("GET", "/api/v1/batches/{batch_id}"),
    Route("GET", "/api/v1/batches/{batch_id}/wait", question="?seconds=0"),
    Route("GET", "/api/v1/batches/{batch_id}/results"),
    Route("GET", "/api/v1/batches/{batch_id}/grid"),
    Route("GET", "/api/v1/batches/{batch_id}/grid/page"),
    Route("POST", "/api/v1/batches/{batch_id}/grid", body={"x": "color"}),
    Route("POST", "/api/v1/batches/{batch_id}/cancel"),
    Route("POST", "/api/v1/batches/{batch_id}/retry", body={"cancelled": False}),
    Route("POST", "/api/v1/batches/{batch_id}/dismiss"),
    Route("POST", "/api/v1/batches/{batch_id}/pause", ADMIN),
    Route("POST", "/api/v1/batches/{batch_id}/resume", ADMIN),
    Route("GET", "/api/v1/books"),
    Route("POST", "/api/v1/books", body=BOOK),
    Route("GET", "/api/v1/books/{book_id}"),
    Route("GET", "/api/v1/books/{book_id}/wait", question="?seconds=0"),
    Route("POST", "/books/{book_id}/regenerate", body={"pages": [1]}),
    Route("POST", "/api/v1/books/{book_id}/regenerate", body={"pages": [1]}),
    Route("POST", "/admin/books/{book_id}/regenerate-page/{page}", ADMIN, body={"inputs": {"color": 2}}),
    Route("POST", "/api/v1/admin/books/{book_id}/regenerate-page/{page}", ADMIN, body={"inputs": {"color": 2}}),
    Route("GET", "/api/v1/servers"),
    Route("POST", "/api/v1/servers/{name}/pause", ADMIN),
    Route("POST", "/api/v1/servers/{name}/drain", ADMIN),
    Route("POST", "/api/v1/servers/{name}/restart", ADMIN),
    Route("POST", "/api/v1/servers/{name}/resume", ADMIN),
    Route("GET", "/api/v1/workflows"),
    Route("GET", "/api/v1/workflows/{workflow_id}"),
    Route("POST", "/api/v1/workflows", ADMIN, is_file=True),
    Route("GET", "/api/v1/inputs"),
    Route("POST", "/api/v1/inputs", is_file=True),
    Route("POST", "/api/v1/jobs/bulk", is_file=True),
    Route("GET", "/api/v1/inputs/{kept}"),
    Route("GET", "/api/v1/inputs/{kept}/thumbnail"),
    Route("GET", "/api/v1/reports"),
    Route("GET", "/api/v1/reports/{path:path}"),
    Route("POST", "/api/v1/notify/test", ADMIN),
    Route("GET", "/api/v1/webhooks", ADMIN),
    Route("POST", "/api/v1/webhooks", ADMIN, body={"url": "https://example.org/e3", "events": ["job"]}),
    Route("POST", "/api/v1/webhooks/{name}/test", ADMIN),
    Route("GET", "/api/v1/webhooks/{name}/deliveries", ADMIN),
    Route("POST", "/api/v1/webhooks/{name}/repeat", ADMIN),
    Route("POST", "/api/v1/webhooks/{name}/deliveries/{delivery}/repeat", ADMIN),
    Route("POST", "/api/v1/webhooks/{name}/remove", ADMIN),
    Route("GET", "/api/v1/events", is_endless=True),
    Route("GET", "/api/v1/audit", ADMIN),
    Route("GET", "/api/v1/status"),
    Route("GET", "/api/v1/me"),
    Route("GET", "/api/v1/find"),
    Route("GET", "/api/v1/models/{folder}/preview", question="?name=x.safetensors"),
    Route("GET", "/healthz", OPEN),
    Route("GET", "/readyz", OPEN),
    Route("GET", "/metrics"),
    Route("GET", "/docs", OPEN),
    Route("GET", "/docs/problems", OPEN),
    Route("GET", "/"),
    Route("GET", "/queue"),
    Route("GET", "/gallery"),
    Route("GET", "/jobs/{name}"),
    Route("GET", "/jobs/{name}/large"),
    Route("GET", "/batches"),
    Route("GET", "/batches/{batch_id}"),
    Route("GET", "/books"),
    Route("GET", "/books/{book_id}"),
    Route("GET", "/servers"),
    Route("GET", "/reports"),
    Route("GET", "/new"),
    Route("GET", "/admin", ADMIN),
    Route("GET", "/admin/books/{book_id}", ADMIN),
    Route("GET", "/stream", is_endless=True, question="?page=/queue"),
    Route("GET", "/login", OPEN),
    Route("POST", "/login", OPEN, is_form=True),
    Route("POST", "/logout", OPEN, is_form=True),
    Route("GET", "/assets/{name:path}", OPEN),
    Route("POST", "/mcp"),
]
UNSAFE_ROUTES = [route for route in ROUTES if route.is_unsafe]
JSON_ROUTES = [route for route in UNSAFE_ROUTES if not (route.is_form or route.is_file)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def estate(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A house in which there is one of everything, and secrets beside and inside it. Everyone is an admin."""
    folder = tmp_path_factory.mktemp("grounds")
    (folder / "secret.txt").write_text(SECRET)
    async with served(folder / "estate") as house:
        config = house.workspace.root / "config"
        for name, text in (("global_config.yaml", f"# {KEPT}\n"), ("workflows.yaml", RECIPE)):
            (config / name).write_text((config / name).read_text() + text)
        await house.job("painted")
        [leased] = await house.lease()
        await house.finish(leased)
        said = {"book_id": "winter", "workflow": "picture", "pages": [{"inputs": {"color": 1}}]}
        assert (await house.post("/api/v1/books", said)).status == 201
        await queue(house.store, 2, "sweep_1")
        sealed = SecretBox(house.workspace.secrets_key).seal({"secret": mint_secret()})
        await house.store.run(ops.put_webhook, "http://127.0.0.1:9/", ["job"], sealed, name="backend")
        report = house.workspace.root / "infra" / "observability" / "load_1.html"
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text("<title>load</title>")
        yield house


def head(route: Route, address: str, **headers: str) -> bytes:
    """The first part of a request, as it goes over the wire."""
    lines = {"Host": "127.0.0.1", "Connection": "close", **{k.replace("_", "-"): v for k, v in headers.items()}}
    said = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{route.method} {address} HTTP/1.1\r\n{said}\r\n".encode("latin-1")


@contextmanager
def named(case: object) -> Iterator[None]:
    """A failure in here says which case it was."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{case}: {error}") from error


def check_harmless(answer: Answer, house: Served) -> None:
    """It was answered by E3, which told nothing of what is nobody's business."""
    is_not_ready = answer.status == 503 and answer.value == NOT_READY
    assert is_not_ready or 200 <= answer.status < 500, f"{answer.status}: {answer.body[:500]!r}"
    body = answer.body.decode("utf-8", "replace")
    assert SECRET not in body
    assert KEPT not in body
    assert "Traceback" not in body
    # On this machine alone, a page may offer where a result lies.
    assert str(house.workspace.root) not in re.sub("<button[^>]*>Copy path</button>", "", body)
    if answer.status >= 400 and answer.headers.get("Content-Type", "").startswith(PROBLEM):
        assert answer.value["remedy"]


@pytest.fixture(autouse=True)
def nothing_breaks(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test of this module makes E3 log that it failed. Wrong tokens may be shown without end."""
    monkeypatch.setattr(limits, "MOST_WRONG_TOKENS", 10**9)
    monkeypatch.setattr(request_body, "LINGER_SECONDS", 0.01)
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []


async def test_every_route_of_the_application_is_in_this_list(estate: Served) -> None:
    listed = [(route.method, route.path) for route in ROUTES]
    assert sorted(listed) == sorted(routes_of(create_app(estate.context)))


ELSEWHERE = [
    "..",
    "../",
    "../../../../../../etc/passwd",
    "../../secret.txt",
    "%2e%2e%2f%2e%2e%2fsecret.txt",
    "..%2f..%2fsecret.txt",
    "%2e%2e",
    "..%5c..%5csecret.txt",
    "..\\..\\secret.txt",
    "%2fetc%2fpasswd",
    "/etc/passwd",
    "//etc/passwd",
    "file:%2f%2f%2fetc%2fpasswd",
    "C:%5cWindows%5cwin.ini",
    "%00",
    "painted%00",
    "painted%00.png",
    "config%2fglobal_config.yaml",
    "config/global_config.yaml",
    "%252e%252e%252fsecret.txt",
    "a" * 10_000,
    "%C3%A9" * 300,
    "%F0%9F%A6%8A",
    "%ED%A0%80",
    "%FF%FE",
    "%",
    "%zz",
    "%0d%0aSet-Cookie:%20x=1",
    "%3Cscript%3E",
    "{name}",
    "%20",
    "0",
    "-1",
    "99999999999999999999999999",
    "1e9",
    "NaN",
    "*",
    "'%20OR%201=1--",
    "painted;x=1",
    "painted%3Fx=1",
    "painted%23x",
]


@pytest.mark.parametrize("one_in", some([5, 1], 2))
async def test_a_name_that_leads_elsewhere_leads_nowhere(estate: Served, one_in: int) -> None:
    for route, hostile in itertools.islice(itertools.product(ROUTES, ELSEWHERE), 0, None, one_in):
        if "/servers/" in route.path and hostile in "127.0.0.1:9":  # a part of its name is enough to name a server
            continue
        body = json.dumps(route.body).encode() if route.body is not None else b""
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))} if body else {}
        for name in route.names:
            with named(f"{route}, {name}={hostile[:60]}"):
                answer = await estate.raw(head(route, route.address(**{name: hostile}), **headers) + body)
                check_harmless(answer, estate)
                assert answer.status in (400, 404, 405, 409, 422) or (name == "folder" and answer.status == 204)
                assert "Set-Cookie" not in answer.headers


async def test_a_file_that_does_not_come_with_e3_is_no_asset_even_if_it_is_of_such_a_kind(estate: Served) -> None:
    place = estate.workspace.root / "workflows" / "picture.json"
    beside = os.path.relpath(place, ASSETS)
    for name in (str(place), f"/{place}", beside, f"vendor/../{beside}"):
        check_problem(await estate.get(f"/assets/{quote(name, safe='')}"), 404)


QUESTIONS = [
    "%00",
    "a=%00",
    "a=%FF%FE",
    "a=%ED%A0%80",
    "q=%00%22*%27)",
    "q=%FF",
    "q=" + "%F0%9F%A6%8A" * 200,
    "cursor=" + "A" * 500,
    "cursor=%00&limit=1",
    "limit=99999999999999999999999999",
    "limit=NaN",
    "status=%00",
    "page=/" + "a" * 1900,
    "page=//evil.example/",
    "page=/jobs/%2500",
    "page=%00",
    "page=/nowhere",
    "page=/books/..%252f..",
    "width=1e9",
    "next=//evil.example",
    "v=" + "a" * 2000,
    "x=[",
    "&".join("a=1" for _ in range(2000)),
    "<script>",
    "sort=%27;drop%20table%20jobs;--",
    "cells=1,2,3&left=%00&right=x&page=999999999999999999999",
    "after=-1",
    "after=99999999999999999999999",
    "batch=%00",
]


@pytest.mark.parametrize("one_in", some([5, 1], 2))
async def test_nothing_that_stands_behind_the_question_mark_breaks_a_route(estate: Served, one_in: int) -> None:
    for route, question in itertools.islice(itertools.product(ROUTES, QUESTIONS), 0, None, one_in):
        is_endless = route.is_endless and question.startswith("page=/" if route.path == "/stream" else "")
        if route.is_unsafe or is_endless:
            continue
        with named(f"{route}?{question[:60]}"):
            asked = f"{question}&seconds=0" if route.path.endswith("/wait") else question
            check_harmless(await estate.raw(head(route, f"{route.address().partition('?')[0]}?{asked}")), estate)


@pytest.mark.parametrize("question", ["after=-1", "after=x", "after=99999999999999999999999", "batch=" + "x" * 301])
async def test_the_stream_of_events_refuses_what_does_not_follow_the_description(estate: Served, question: str) -> None:
    check_problem(await estate.get(f"/api/v1/events?{question}"), 422)


@pytest.mark.parametrize(
    "page", ["/nowhere", "//evil.example/", "http://evil.example/", "/jobs/nobody", "/api/v1/me", ""]
)
async def test_the_stream_of_a_page_that_is_none_is_not_found(estate: Served, page: str) -> None:
    check_problem(await estate.get(f"/stream?page={page}"), 404)


async def test_a_body_that_says_it_is_too_large_is_not_read(estate: Served) -> None:
    for route in UNSAFE_ROUTES:
        kind = "application/x-www-form-urlencoded" if route.is_form else "application/json"
        for size in (route.largest + 1, 10**18):
            with named(f"{route}, {size} bytes"):
                answer = await estate.raw(head(route, route.address(), Content_Type=kind, Content_Length=str(size)))
                assert check_problem(answer, 413)["detail"].startswith(
                    f"the request has more than {'64' if route.is_file else '4'} "
                )


async def test_a_body_that_does_not_say_its_size_is_read_up_to_the_limit(estate: Served) -> None:
    part = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
    for route in UNSAFE_ROUTES:
        said = head(route, route.address(), Content_Type="application/json", Transfer_Encoding="chunked")
        with named(route):
            check_problem(await estate.raw(said + part * (route.largest // 0x1000) + b"1\r\n \r\n"), 413)


async def test_a_sender_of_too_much_gets_an_answer_and_is_not_cut_off(
    estate: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_body, "LINGER_SECONDS", 5.0)

    def send() -> int:
        said = urllib.request.Request(f"{estate.url}/api/v1/jobs", b" " * (3 * LARGEST_BODY), JSON)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(said, timeout=10)
        with refused.value as problem:
            return problem.code

    assert await asyncio.to_thread(send) == 413


async def test_a_body_of_just_the_largest_size_is_read(estate: Served) -> None:
    body = json.dumps(JOB).encode()
    whole = io.BytesIO(body + b" " * (LARGEST_BODY - len(body)))
    answer = await estate.post("/api/v1/jobs", data=whole, headers=JSON)
    assert answer.status == 201


NO_JSON = {
    "words": b"job",
    "nothing but space": b" ",
    "half": b'{"job_type": ',
    "two": b"{} {}",
    "trailing comma": b'{"a": 1,}',
    "NaN": b'{"priority": NaN}',
    "Infinity": b'{"priority": -Infinity}',
    "more than there is": b'{"inputs": {"color": 1e999}}',
    "a number of 5000 digits": b'{"priority": ' + b"9" * 5000 + b"}",
    "nested": b'{"inputs": {"a": ' + b"[" * (MOST_DEPTH + 5) + b"]" * (MOST_DEPTH + 5) + b"}}",
    "nested without end": b"[" * 10_000,
    "nested objects without end": b'{"a":' * 15_000,
    "half a character": rb'{"name": "\ud800"}',
    "half a character in a key": rb'{"\udfff": 1}',
    "not UTF-8": b'{"name": "\xff"}',
    "UTF-16": '{"name": "a"}'.encode("utf-16"),
    "a mark in front": b"\xef\xbb\xbf{}",
    "a null": b'{"name": "a\x00"}',
    "yaml": b"job_type: T2I",
}


async def test_what_is_no_json_is_said_to_be_none(estate: Served) -> None:
    for route, (name, body) in itertools.product(JSON_ROUTES, NO_JSON.items()):
        with named(f"{route}, {name}"):
            answer = await estate.ask(route.method, route.address(), data=body, headers=JSON)
            assert "no JSON" in check_problem(answer, 400)["detail"]


OTHER_KINDS = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/json",
    "application/jsonp",
    "application/json, text/plain",
    "",
    "\u00e9",
]


async def test_a_body_of_another_kind_is_not_taken(estate: Served) -> None:
    for route, kind in itertools.product(JSON_ROUTES, [*OTHER_KINDS, None]):
        body = json.dumps(route.body or {}).encode()
        headers = {} if kind is None else {"Content-Type": kind}
        with named(f"{route}, {kind!r}"):
            said = head(route, route.address(), **headers, Content_Length=str(len(body)))
            assert "application/json" in check_problem(await estate.raw(said + body), 415)["remedy"]


WRONG = [
    None,
    True,
    False,
    0,
    -1,
    2**63,
    1.5,
    "",
    "x",
    "1",
    "\x00",
    "a" * 5000,
    [],
    [None],
    [[]],
    {},
    {"": {}},
    {"a": 1},
]


@pytest.mark.slow
@pytest.mark.parametrize("route", [route for route in JSON_ROUTES if route.body is not None], ids=str)
async def test_a_body_of_wrong_types_is_refused_or_taken_as_described(estate: Served, route: Route) -> None:
    async def sent(body: Any) -> Answer:
        answer = await estate.ask(route.method, route.address(), data=json.dumps(body), headers=JSON)
        check_harmless(answer, estate)
        return answer

    for body in ([], [route.body], "x", 1, True, {"surprise": 1}, {**route.body, "surprise": 1}):
        assert (await sent(body)).status == 422, body
    document = (await estate.get("/openapi.json")).value
    for key in _described(document, route):
        for value in WRONG:
            await sent({**route.body, key: value})
            for inner in _inside(route.body.get(key)):
                await sent({**route.body, key: _with(route.body[key], inner, value)})
        assert (
            await sent({**route.body, key: {"a": [{}]} if key not in ("inputs", "set", "metadata") else []})
        ).status == 422


@pytest.mark.parametrize("route", [route for route in JSON_ROUTES if route.body is None], ids=str)
async def test_a_body_that_nobody_asked_for_does_nothing(estate: Served, route: Route) -> None:
    for value in WRONG:
        answer = await estate.ask(route.method, route.address(), data=json.dumps(value), headers=JSON)
        check_harmless(answer, estate)


def _described(document: dict[str, Any], route: Route) -> list[str]:
    path = route.path.removeprefix("/api/v1") if "/admin/" in route.path else route.path
    schema = document["paths"][path][route.method.lower()]["requestBody"]["content"]["application/json"]["schema"]
    named = schema.get("$ref") or next(each["$ref"] for each in schema["anyOf"] if "$ref" in each)
    return list(document["components"]["schemas"][named.rpartition("/")[2]]["properties"])


def _inside(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []


def _with(value: Any, key: Any, inner: Any) -> Any:
    changed = value.copy()
    changed[key] = inner
    return changed


ELSEWHERE_SITES: list[dict[str, str]] = [
    {"Origin": "http://evil.example"},
    {"Origin": "https://127.0.0.1.evil.example"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "file://"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "nonsense"},
]


async def state_of(house: Served) -> Any:
    """All that a route can change."""
    jobs = await house.store.run(ops.list_jobs, limit=10_000)
    return (
        await house.store.run(ops.newest_event),
        jobs,
        await house.store.run(ops.servers_out_of_work),
        await house.store.run(ops.newest_batches),
    )


async def test_a_page_of_another_site_changes_nothing(estate: Served) -> None:
    before = await state_of(estate)
    for route, headers in itertools.product(UNSAFE_ROUTES, ELSEWHERE_SITES):
        with named(f"{route}, {headers}"):
            answer = await estate.ask(route.method, route.address(), route.body, headers=headers)
            assert "another site" in check_problem(answer, 403)["detail"]
            assert await state_of(estate) == before


async def test_the_page_itself_may_ask_for_changes(estate: Served) -> None:
    own: list[dict[str, str]] = [
        {"Origin": estate.url, "Sec-Fetch-Site": "same-origin"},
        {"Origin": estate.url.upper().replace("HTTP", "http")},
        {"Sec-Fetch-Site": "none"},
    ]
    for route, headers in itertools.product(UNSAFE_ROUTES, own):
        with named(f"{route}, {headers}"):
            answer = await estate.ask(route.method, route.address(), route.body, headers=headers)
            check_harmless(answer, estate)
            assert answer.status != 403


async def test_without_tokens_only_the_names_of_this_machine_are_answered(estate: Served) -> None:
    names = ("evil.example", "evil.example:8190", "127.0.0.1.evil.example", "10.0.0.1", "[2001:db8::1]", "", "[")
    for route, name in itertools.product(ROUTES, names):
        with named(f"{route}, {name!r}"):
            answer = await estate.raw(head(route, route.address(), Host=name))
            if route.path in ("/healthz", "/readyz"):  # they say nothing that matters
                assert answer.status in (200, 503)
                assert answer.value.keys() == {"status"}
            else:
                assert "own address" in check_problem(answer, 403)["detail"]


async def test_without_a_token_or_with_a_wrong_one_only_open_routes_answer(locked_house: tuple[Served, Keys]) -> None:
    house, keys = locked_house
    session = f"e3_session_{urlsplit(house.url).port}"
    wrong: list[dict[str, str]] = [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Basic {keys.admin}"},
        {"Authorization": keys.admin},
        bearer("e3_" + "A" * 43),
        bearer(keys.admin[:-1]),
        bearer(keys.admin + "A"),
        bearer(keys.admin.upper()),
        {"Cookie": f"{session}={keys.user}"},
        {"Cookie": f"__Host-{session}={keys.user}"},
        {"Cookie": f"e3_token={keys.user}"},
    ]
    for route, headers in itertools.product(ROUTES, wrong):
        with named(f"{route}, {headers}"):
            answer = await house.ask(route.method, route.address(), route.body, headers=headers)
            if route.role == OPEN:
                assert answer.status in (200, 303, 401 if route.path == "/login" else 200, 503)
            else:
                check_problem(answer, 401)
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_user_gets_what_is_for_users_and_is_refused_what_is_for_admins(
    locked_house: tuple[Served, Keys],
) -> None:
    house, keys = locked_house
    for route in ROUTES:
        refused = (401, 403) if route.path != "/login" else (403,)
        with named(route):
            if route.is_endless:
                question, status = ("page=/admin", 403) if route.path == "/stream" else ("after=x", 422)
                check_problem(await house.get(f"{route.path}?{question}", headers=bearer(keys.user)), status)
                continue
            for headers in (bearer(keys.user), await house.log_in(keys.user)):
                answer = await house.ask(route.method, route.address(), route.body, headers=headers)
                if route.role == ADMIN:
                    assert "admin" in check_problem(answer, 403)["detail"]
                else:
                    assert answer.status not in refused, answer.text
                    check_harmless(answer, house)
            admitted = await house.ask(route.method, route.address(), route.body, headers=bearer(keys.admin))
            assert admitted.status not in refused


async def test_a_reader_sees_everything_and_changes_nothing(
    locked_house: tuple[Served, Keys],
) -> None:
    house, keys = locked_house
    readers = bearer(keys.read), await house.log_in(keys.read)
    before = await state_of(house)
    for route, headers in itertools.product(ROUTES, readers):
        if route.is_endless or route.is_form:  # logging in and out is noted
            continue
        with named(f"{route}, by {', '.join(headers)}"):
            answer = await house.ask(route.method, route.address(), route.body, headers=headers)
            changes = route.is_unsafe and route.path != "/mcp"  # there, each tool says who may use it
            is_refused = route.role == ADMIN or changes or route.path == "/new"
            if route.role != OPEN and is_refused:
                check_problem(answer, 403)
            elif route.role != OPEN:
                assert answer.status not in (401, 403), answer.text
            assert await state_of(house) == before


async def test_a_token_for_metrics_opens_nothing_else(locked_house: tuple[Served, Keys]) -> None:
    house, keys = locked_house
    for route in ROUTES:
        with named(route):
            answer = await house.ask(route.method, route.address(), route.body, headers=bearer(keys.metrics))
            if route.path == "/metrics":
                assert answer.status == 200
            elif route.role != OPEN:
                check_problem(answer, 403)


async def test_without_tokens_what_came_by_a_proxy_is_refused(estate: Served) -> None:
    before = await state_of(estate)
    names = ("Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "x-forwarded-anything")
    every_route = zip(ROUTES, itertools.cycle(names))
    every_name = itertools.product(ROUTES[:3], names)
    for route, name in itertools.chain(every_route, every_name):
        with named(f"{route}, {name}"):
            answer = await estate.raw(head(route, route.address(), **{name: "203.0.113.7"}))
            if route.path == "/healthz":
                assert answer.status == 200
            elif route.path == "/readyz":
                assert answer.value == {"status": "not ready"}
            else:
                assert "e3 token create" in check_problem(answer, 403)["remedy"]
    assert await state_of(estate) == before


HOSTS = ["[", "[::1", "[::1]evil", "[]", "a b", "a/b?c#d", "host:port", "host:99999999", "é", "x" * 5000, "", "@", "%"]


@pytest.mark.parametrize("one_in", some([5, 1], 2))
async def test_no_name_that_is_given_to_this_machine_breaks_a_route(
    locked_house: tuple[Served, Keys], one_in: int
) -> None:
    house, keys = locked_house
    for route, name in itertools.islice(itertools.product(ROUTES, HOSTS), 0, None, one_in):
        said = {"Host": name, "Authorization": f"Bearer {keys.admin}", "Accept": "text/html,*/*"}
        address = f"{route.path}?after=x" if route.is_endless else route.address()
        with named(f"{route}, {name[:60]!r}"):
            answer = await house.raw(head(route, address, **said))
            assert answer.status < 500 or route.path == "/readyz", answer.body[:300]


async def test_a_method_that_is_not_offered_is_said_to_be_none_and_which_are(estate: Served) -> None:
    document = (await estate.get("/openapi.json")).value
    for route, method in itertools.product(ROUTES, ("DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECTION")):
        with named(f"{method} {route.path}"):
            answer = await estate.raw(head(Route(method, route.path), route.address()))
            check_problem(answer, 405)
            offered = {each.strip() for each in answer.headers["Allow"].split(",")}
            described = document["paths"].get(route.path.replace(":path", ""))
            assert offered == {each.upper() for each in described} if described else offered


FILES = [
    route for route in ROUTES if route.path.endswith(("results/{number}", "/thumbnail", "{path:path}", "{name:path}"))
]
RANGES = [
    "bytes=0-3",
    "bytes=-1",
    "bytes=99999999-",
    "bytes=5-2",
    "bytes=x-y",
    "bytes=",
    "lines=1-2",
    "bytes=" + "0-1," * 2000,
]


@pytest.mark.parametrize("route", FILES, ids=str)
async def test_any_part_of_a_file_can_be_asked_for_and_nonsense_is_refused(estate: Served, route: Route) -> None:
    for part in RANGES:
        answer = await estate.get(route.address(), headers={"Range": part})
        check_harmless(answer, estate)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        if answer.status >= 400:
            check_problem(answer, answer.status)


async def test_requests_that_are_no_http_do_not_stop_the_others(estate: Served) -> None:
    for said in (b"\x16\x03\x01\x02\x00\x01\n", b"GET\r\n\r\n", b"GET / HTTP/x\r\n\r\n", b"A" * 70_000):
        assert (await estate.raw(said)).status == 400
    assert (await estate.get("/healthz")).status == 200


async def test_a_body_that_is_never_sent_is_not_waited_for_without_end(
    estate: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comfyui_agent.web.request_body.BODY_SECONDS", 0.05)
    answer = await estate.raw(
        head(UNSAFE_ROUTES[0], "/api/v1/jobs", Content_Type="application/json", Content_Length="9")
    )
    check_problem(answer, 408)


async def test_many_hostile_requests_at_once_are_all_answered(estate: Served) -> None:
    async def one(number: int) -> int:
        return (await estate.get(f"/api/v1/jobs/{'..%2f' * number}")).status

    assert set(await asyncio.gather(*(one(number) for number in range(1, 100)))) == {404}
