"""The routes of the web page: screens, their streams, login, and assets."""

from __future__ import annotations

import contextlib
from typing import Annotated
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.tokens import SESSION_SECONDS
from comfyui_agent.web.access import caller, check_role, cookie_of, while_admitted
from comfyui_agent.web.actor import actor_for
from comfyui_agent.web.addresses import ADDRESSES, view_of
from comfyui_agent.web.api.responses import FileAnswer, Here, User
from comfyui_agent.web.html import ASSETS, environment, render_page
from comfyui_agent.web.live_pages import TooManyWatchers
from comfyui_agent.web.problems import Problem, in_bytes, short_of, wants_page
from comfyui_agent.web.screens import NoScreen
from comfyui_agent.web.threads import RENDERING

router = APIRouter(include_in_schema=False)
LONGEST_FORM = 4_000
FOR_EVER = "public, max-age=31536000, immutable"
ASSET_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
ASSET_NAMES = frozenset(path.relative_to(ASSETS).as_posix() for path in ASSETS.rglob("*") if path.suffix in ASSET_TYPES)


async def screen(request: Request) -> Response:
    """Answer with a whole page. A browser that has not logged in is sent to the login."""
    page = _address(request)
    try:
        who = await caller(request)
    except Problem as problem:
        if problem.status == 401 and wants_page(request):
            return RedirectResponse(f"/login?next={quote(page, safe='')}", 303)
        raise
    try:
        address, view = view_of(request.app.state.context, who.role, page, who.rights)
        check_role(who, address.role)
        built = await address.build(view)
    except NoScreen as error:
        raise Problem(404, str(error), "Begin at the overview.") from None
    return HTMLResponse(in_bytes(await RENDERING.run(render_page, built, view)))


def _address(request: Request) -> str:
    """The address as the browser shows it."""
    path, query = request.scope["raw_path"].decode("ascii"), request.scope["query_string"].decode("ascii", "replace")
    return f"{path}?{query}" if query else path


for each in ADDRESSES:
    router.add_api_route(each.path, screen, methods=["GET"], response_class=HTMLResponse)


@router.get("/stream")
async def stream(context: Here, who: User, page: Annotated[str, Query(max_length=2000)]) -> Response:
    """Stream the changes of a page as server-sent events."""
    try:
        address, view = view_of(context, who.role, page, who.rights)
        check_role(who, address.role)
        await address.build(view)
    except NoScreen as error:
        raise Problem(404, str(error), "Begin at the overview.") from None
    try:
        parts = context.live_pages.watch(view, address.build, who.scope)
    except TooManyWatchers as error:
        raise short_of(str(error), "Close some, or try again in 10 s.", seconds=10) from None
    return StreamingResponse(while_admitted(context.gate, who, parts), media_type="text/event-stream")


@router.get("/login", response_class=HTMLResponse)
async def login_page(next: Annotated[str, Query(max_length=2000)] = "/") -> Response:
    return HTMLResponse(_login(next, ""))


@router.post("/login")
async def login(request: Request, context: Here) -> Response:
    form = await _form(request)
    target = _local(form.get("next", "/"))
    try:
        who, secret = await context.gate.log_in(form.get("token", "").strip(), request)
        context.limits.count_change(who)
    except Problem as problem:
        message = f"{problem.detail[:1].upper()}{problem.detail[1:]}. {problem.remedy}"
        return HTMLResponse(_login(target, message), problem.status, headers=problem.headers)
    await actor_for(context, who).audit(context.store, EventName.AUDIT_LOGIN)
    response = RedirectResponse(target, 303)
    is_secure = context.gate.proxies.is_https(request) or request.headers.get("origin", "").lower().startswith("https:")
    response.set_cookie(
        cookie_of(request, is_secure=is_secure),
        secret,
        SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=is_secure,
    )
    return response


@router.post("/logout")
async def logout(request: Request, context: Here) -> Response:
    with contextlib.suppress(Problem):  # nobody is logged in
        who = await context.gate.admit(request)
        context.limits.count_change(who)
        if who.session:
            await actor_for(context, who).audit(context.store, EventName.AUDIT_LOGOUT)
    await context.gate.log_out(request)
    response = RedirectResponse("/login", 303)
    for is_secure in (False, True):
        response.delete_cookie(
            cookie_of(request, is_secure=is_secure), httponly=True, samesite="strict", secure=is_secure
        )
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


async def _form(request: Request) -> dict[str, str]:
    body = (await request.body())[:LONGEST_FORM].decode("utf-8", "replace")
    try:
        found = parse_qs(body, max_num_fields=10)
    except ValueError:
        raise Problem(400, "this is not the form of the login", "Log in at /login.") from None
    return {key: values[-1] for key, values in found.items()}


def _local(target: str) -> str:
    """The address if it is one of this site, else `/`."""
    is_ours = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if is_ours and "\n" not in target and "\r" not in target else "/"
