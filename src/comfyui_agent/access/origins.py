"""Where a request comes from: by a proxy, under a foreign name, from a page of another site."""

from __future__ import annotations

from starlette.datastructures import Headers

from comfyui_agent.access.listen_address import is_loopback
from comfyui_agent.access.problem import Problem

FORWARDING = frozenset({"forwarded", "via", "x-real-ip"})
FORWARDING_PREFIX = "x-forwarded-"
SAME = frozenset({"same-origin", "none"})


def check_direct(headers: Headers) -> None:
    """While no token is needed, refuse foreign host names and requests that came through a proxy."""
    name = host_of(headers.get("host", ""))
    if not is_loopback(name):
        raise Problem(
            403,
            f"this page answers at its own address only, not at {name[:100]!r}",
            "Open it at http://127.0.0.1 and its port, or make a token with e3 token create.",
        )
    found = next((key for key in headers if key in FORWARDING or key.startswith(FORWARDING_PREFIX)), "")
    if found:
        raise Problem(
            403,
            f"this request came by a proxy (it has the header {found[:60]}), and without tokens everybody behind it "
            "would be an admin",
            "Make a token with e3 token create; or, where the proxy asks people for a login, set ui.trusted_proxies "
            "and ui.proxy_user_header.",
        )


def check_origin(headers: Headers) -> None:
    """403 for a change that a page of another site asks for. Programs that are no browsers send no Origin."""
    origin = headers.get("origin")
    site = headers.get("sec-fetch-site")
    authority = None if origin is None else origin.partition("://")[2].lower()
    is_ours = origin is None or (authority and authority == headers.get("host", "").lower())
    if not is_ours or (site is not None and site not in SAME):
        raise Problem(403, "a page of another site asked for this change", "Do it in E3's own page, or by the API.")


def host_of(authority: str) -> str:
    if authority.startswith("["):
        return authority.partition("]")[0] + "]"
    return authority.partition(":")[0]
