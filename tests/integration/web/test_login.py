"""Logging in with a browser: a cookie for whoever has a token, and never a way to another site."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

import pytest

from comfyui_agent.access import limits
from support.web import FORM, Keys, Served, bearer, check_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong tokens may be shown without end."""
    monkeypatch.setattr(limits, "MOST_WRONG_TOKENS", 10**9)


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
async def test_login_sets_a_cookie_that_scripts_cannot_read_and_other_sites_cannot_send(
    locked_house: tuple[Served, Keys], origin: str | None, is_secure: bool
) -> None:
    house, keys = locked_house
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if origin:
        headers["Origin"] = house.url.replace("http:", f"{origin}:")
    answer = await house.post("/login", data=f"token=%20{keys.user}%20&next=/books", headers=headers)
    assert (answer.status, answer.headers["Location"]) == (303, "/books")
    value, *flags = answer.headers["Set-Cookie"].split("; ")
    name, _, secret = value.partition("=")
    assert name == f"{'__Host-' if is_secure else ''}e3_session_{urlsplit(house.url).port}"
    assert keys.user not in str(answer.headers)
    lowered = {flag.lower() for flag in flags}
    assert {"httponly", "samesite=strict", "path=/"} <= lowered
    assert ("secure" in lowered) is is_secure
    assert "domain" not in str(lowered)
    assert (await house.get("/books", headers={"Cookie": value})).status == 200
    assert (await house.get("/api/v1/me", headers={"Cookie": value})).value["role"] == "user"
    check_problem(await house.get("/api/v1/me", headers=bearer(secret)), 401)
    check_problem(await house.get("/api/v1/me", headers={"Cookie": f"{name}={keys.user}"}), 401)


async def test_logout_removes_the_cookie_and_the_session(locked_house: tuple[Served, Keys]) -> None:
    house, keys = locked_house
    cookie, other = await house.log_in(keys.user), await house.log_in(keys.user)
    answer = await house.post("/logout", headers={**cookie, "Content-Type": FORM})
    assert (answer.status, answer.headers["Location"]) == (303, "/login")
    dropped = answer.headers.getall("Set-Cookie")  # type: ignore[attr-defined]
    port = urlsplit(house.url).port
    assert {each.partition("=")[0] for each in dropped} == {f"e3_session_{port}", f"__Host-e3_session_{port}"}
    assert all("Max-Age=0" in each for each in dropped)
    said = check_problem(await house.get("/api/v1/me", headers=cookie), 401)
    assert "Log in again" in said["remedy"]
    assert (await house.get("/api/v1/me", headers=other)).status == 200, "another browser stays"


async def test_a_token_for_metrics_is_no_login(locked_house: tuple[Served, Keys]) -> None:
    house, keys = locked_house
    answer = await house.form(token=keys.metrics)
    assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)
    assert "/metrics only" in answer.text


async def test_a_wrong_token_is_told_to_be_wrong_on_the_login_page_and_no_cookie_is_set(
    locked_house: tuple[Served, Keys],
) -> None:
    house, _ = locked_house
    for said in ({"token": "e3_wrong"}, {"token": ""}, {}, {"next": "/books"}):
        answer = await house.form(**said)
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
    answer = await house.form(token=keys.user, next=target)
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
