"""The routes of the web page: screens and who may see them, their streams, login, and assets."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, unquote

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import compile_path

from comfyui_agent.access.gate import Caller, check_role, cookie_of, while_admitted
from comfyui_agent.access.problem import Problem
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.tokens import ALL, SESSION_SECONDS, Role
from comfyui_agent.pools import RENDERING
from comfyui_agent.web.access import caller
from comfyui_agent.web.api.parameters import Here, User
from comfyui_agent.web.api.responses import FileAnswer
from comfyui_agent.web.context import Context
from comfyui_agent.web.html import ASSETS, environment, render_fragment, render_page
from comfyui_agent.web.pages import admin, batch, batches, book, gallery, job, new, overview, queue, reports, servers
from comfyui_agent.web.problems import in_bytes, wants_page
from comfyui_agent.web.screens import Build, NoScreen, View

router = APIRouter(include_in_schema=False)
LONGEST = 2_000
MOST_PARAMETERS = 40
COOKIE: dict[str, Any] = {"httponly": True, "samesite": "strict"}
FOR_EVER = "public, max-age=31536000, immutable"
ASSET_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
ASSET_NAMES = frozenset(path.relative_to(ASSETS).as_posix() for path in ASSETS.rglob("*") if path.suffix in ASSET_TYPES)


@dataclass(frozen=True)
class Address:
    """A path and the function that builds its screen."""

    path: str
    build: Build
    role: Role = Role.READ
    parameters: frozenset[str] = frozenset()
    """The query parameters that the screen depends on. Others are dropped, so that they make no other view."""
    is_owned: bool = False
    """Whether the screen shows one thing that someone made, and so depends on the viewer's rights."""


BATCH = frozenset({"page", "row", "column", "from", "x", "y", "pages", "status", "cursor", "compare"})
ADDRESSES = (
    Address("/", overview.build),
    Address("/queue", queue.build, parameters=frozenset({*queue.FILTERS, "cursor"})),
    Address("/gallery", gallery.build, parameters=frozenset({*gallery.FILTERS, "cursor"})),
    Address("/jobs/{name}", job.build, is_owned=True),
    Address("/batches", batches.build, parameters=frozenset({"kind", "cursor"})),
    Address("/batches/{batch_id}", batch.build, parameters=BATCH, is_owned=True),
    Address("/books", batches.build, parameters=frozenset({"cursor"})),
    Address("/books/{book_id}", book.build, parameters=frozenset({"from"}), is_owned=True),
    Address("/servers", servers.build),
    Address("/reports", reports.build, parameters=frozenset({"kind"})),
    Address("/new", new.build, Role.USER, frozenset({"kind", "workflow", "from", "use", "picture"})),
    Address("/admin", admin.build, Role.ADMIN, frozenset({"class", "cursor"})),
    Address("/admin/books/{book_id}", book.build_for_admins, Role.ADMIN, frozenset({"from"})),
)
PATTERNS = [(compile_path(address.path)[0], address) for address in ADDRESSES]


def find(path: str) -> tuple[Address, dict[str, str]]:
    """Return the address of a path and its path parameters. NoScreen if there is none."""
    for pattern, address in PATTERNS:
        match = pattern.match(path)
        if match is not None:
            return address, match.groupdict()
    raise NoScreen(f"there is no page {path[:200]}")


def view_of(context: Context, who: Caller, page: str) -> tuple[Address, View]:
    """The view of an address as a browser shows it, with its query. NoScreen, or Problem 403 if it is not for them."""
    path, _, query = page[:LONGEST].partition("?")
    path = unquote(path)
    address, names = find(path)
    try:
        parameters = parse_qsl(query, max_num_fields=MOST_PARAMETERS)
    except ValueError:
        raise NoScreen("too much stands behind the question mark") from None
    known = tuple(each for each in parameters if each[0] in address.parameters)
    check_role(who, address.role)
    return address, View(context, who.role, path, names, known, who.rights if address.is_owned else ALL)


async def screen(request: Request) -> Response:
    """Answer with a whole page. A browser that has not logged in is sent to the login."""
    page = _address(request)
    try:
        who = await caller(request)
    except Problem as problem:
        if problem.status == 401 and wants_page(request):
            return RedirectResponse(f"/login?next={quote(page, safe='')}", 303)
        raise
    address, view = view_of(request.app.state.context, who, page)
    built = await address.build(view)
    return HTMLResponse(in_bytes(await RENDERING.run(render_page, built, view)))


def _address(request: Request) -> str:
    path, query = request.scope["raw_path"].decode("ascii"), request.scope["query_string"].decode("ascii", "replace")
    return f"{path}?{query}" if query else path


for each in ADDRESSES:
    router.add_api_route(each.path, screen, methods=["GET"], response_class=HTMLResponse)


@router.get("/jobs/{name}/large", response_class=HTMLResponse)
async def large(context: Here, who: User, name: str) -> Response:
    """The large view of a job, for the dialog of a page."""
    _, view = view_of(context, who, f"/jobs/{quote(name, safe='')}")
    fragment = await job.large(view)
    return HTMLResponse(in_bytes(await RENDERING.run(render_fragment, fragment, view)))


@router.get("/stream")
async def stream(context: Here, who: User, page: Annotated[str, Query(max_length=2000)]) -> Response:
    """Stream the changes of a page as server-sent events."""
    address, view = view_of(context, who, page)
    await address.build(view)
    parts = context.live_pages.watch(view, address.build, who.scope)
    return StreamingResponse(while_admitted(context.gate, who, parts), media_type="text/event-stream")


@router.get("/login", response_class=HTMLResponse)
async def login_page(next: Annotated[str, Query(max_length=2000)] = "/") -> Response:
    return HTMLResponse(_login(next, ""))


@router.post("/login")
async def login(request: Request, context: Here) -> Response:
    try:
        form = dict(parse_qsl((await request.body()).decode("utf-8", "replace"), max_num_fields=10))
    except ValueError:
        raise Problem(400, "this is not the form of the login", "Log in at /login.") from None
    target = _local(form.get("next", "/"))
    try:
        who, secret = await context.gate.log_in(form.get("token", "").strip(), request)
        context.limits.count("changes", who)
    except Problem as problem:
        message = f"{problem.detail[:1].upper()}{problem.detail[1:]}. {problem.remedy}"
        return HTMLResponse(_login(target, message), problem.status, headers=problem.headers)
    await context.actor(who).audit(context.store, EventName.AUDIT_LOGIN)
    response = RedirectResponse(target, 303)
    is_secure = context.gate.proxies.is_https(request) or request.headers.get("origin", "").lower().startswith("https:")
    response.set_cookie(cookie_of(request, is_secure=is_secure), secret, SESSION_SECONDS, secure=is_secure, **COOKIE)
    return response


@router.post("/logout")
async def logout(request: Request, context: Here) -> Response:
    with contextlib.suppress(Problem):  # nobody is logged in
        who = await context.gate.admit(request)
        context.limits.count("changes", who)
        if who.session:
            await context.actor(who).audit(context.store, EventName.AUDIT_LOGOUT)
    await context.gate.log_out(request)
    response = RedirectResponse("/login", 303)
    for is_secure in (False, True):
        response.delete_cookie(cookie_of(request, is_secure=is_secure), secure=is_secure, **COOKIE)
    return response


@router.get("/assets/{name:path}")
async def asset(name: str) -> Response:
    """A file of the page. Browsers cache it for ever, because its address has a hash."""
    if name not in ASSET_NAMES:
        raise Problem(404, f"there is no file {name[:200]}", "Load the page again.")
    path = ASSETS / name
    return FileAnswer(path, media_type=ASSET_TYPES[path.suffix], headers={"Cache-Control": FOR_EVER})


def _login(target: str, problem: str) -> str:
    values = {"next": _local(target), "problem": problem, "title": "Log in"}
    return environment().get_template("login.html").render(values)


def _local(target: str) -> str:
    """The address if it is one of this site, else `/`."""
    is_ours = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if is_ours and "\n" not in target and "\r" not in target else "/"
