"""Logging in with a browser: a cookie for whoever has a token, and never a way to another site."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

import pytest

from comfyui_agent.web import access
from support.web import Answer, Keys, Served, check_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong tokens may be shown without end."""
    monkeypatch.setattr(access, "MOST_FAILURES", 10**9)


async def form(house: Served, path: str = "/login", **said: str) -> Answer:
    body = "&".join(f"{key}={quote(value, safe='')}" for key, value in said.items())
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": house.url}
    return await house.post(path, data=body, headers=headers)


async def test_a_page_asks_people_to_log_in_and_programs_for_a_token(locked_house: tuple[Served, Keys]) -> None:
    house, _ = locked_house
    people = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    asked = await house.get("/queue?status=failed&q=a%26b", headers=people)
    assert asked.status == 303
    assert asked.headers["Location"] == f"/login?next={quote('/queue?status=failed&q=a%26b', safe='')}"
    page = await house.get(asked.headers["Location"])
    assert page.status == 200
    assert "/queue?status=failed&amp;q=a%26b" in page.text
    check_problem(await house.get("/queue"), 401)
    check_problem(await house.get("/api/v1/jobs", headers=people), 401)


@pytest.mark.parametrize(("origin", "is_secure"), [(None, False), ("https", True)])
async def test_whoever_logs_in_gets_a_cookie_that_scripts_cannot_read_and_other_sites_cannot_send(
    locked_house: tuple[Served, Keys], origin: str | None, is_secure: bool
) -> None:
    house, keys = locked_house
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if origin:
        headers["Origin"] = house.url.replace("http:", f"{origin}:")
    answer = await house.post("/login", data=f"token=%20{keys.user}%20&next=/books", headers=headers)
    assert (answer.status, answer.headers["Location"]) == (303, "/books")
    value, *flags = answer.headers["Set-Cookie"].split("; ")
    assert value == f"e3_token={keys.user}"
    lowered = {flag.lower() for flag in flags}
    assert {"httponly", "samesite=strict", "path=/"} <= lowered
    assert ("secure" in lowered) is is_secure
    assert "domain" not in str(lowered)
    assert (await house.get("/books", headers={"Cookie": value})).status == 200
    assert (await house.get("/api/v1/me", headers={"Cookie": value})).value["role"] == "user"


async def test_whoever_logs_out_loses_the_cookie(locked_house: tuple[Served, Keys]) -> None:
    house, _ = locked_house
    answer = await form(house, "/logout")
    assert (answer.status, answer.headers["Location"]) == (303, "/login")
    name, *flags = answer.headers["Set-Cookie"].split("; ")
    assert name in ('e3_token=""', "e3_token=")
    assert "Max-Age=0" in flags


async def test_a_wrong_token_is_told_to_be_wrong_on_the_login_page_and_no_cookie_is_set(
    locked_house: tuple[Served, Keys],
) -> None:
    house, _ = locked_house
    for said in ({"token": "e3_wrong"}, {"token": ""}, {}, {"next": "/books"}):
        answer = await form(house, **said)
        assert (answer.status, "Set-Cookie" in answer.headers) == (401, False)
        assert answer.headers["Content-Type"].startswith("text/html")
        assert "not known" in answer.text


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "\t//evil.example",
        "https://evil.example/",
        "https:evil.example",
        "javascript:alert(1)",
        "data:text/html,x",
        " //evil.example",
        "evil.example",
        "/%0d%0aSet-Cookie:x=1",
        "/\r\nSet-Cookie: x=1",
        "",
    ],
)
async def test_logging_in_never_leads_to_another_site(locked_house: tuple[Served, Keys], target: str) -> None:
    house, keys = locked_house
    answer = await form(house, token=keys.user, next=target)
    assert answer.status == 303
    place = answer.headers["Location"]
    assert place.startswith("/")
    seen = "".join(letter for letter in place if letter not in "\t\r\n").replace("\\", "/")
    assert not seen.startswith("//")
    assert (urlsplit(seen).scheme, urlsplit(seen).netloc) == ("", "")
    assert len(answer.headers.getall("Set-Cookie")) == 1  # type: ignore[attr-defined]
    page = await house.get(f"/login?next={quote(target, safe='')}")
    assert page.status == 200
    assert "evil.example" not in page.text or 'value="/' in page.text


@pytest.mark.parametrize(
    "body", [b"&".join([b"token=x"] * 50), b"\xff\xfe", b"token=%ff%00", b"=" * 4000, b"{}", b"token", b"x" * 100_000]
)
async def test_a_form_that_is_none_is_refused(locked_house: tuple[Served, Keys], body: bytes) -> None:
    house, _ = locked_house
    answer = await house.post("/login", data=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert answer.status in (400, 401, 413)
    assert "Set-Cookie" not in answer.headers
