"""What is believed of what proxies say: nothing, unless they are trusted."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request

from comfyui_agent.access.origins import check_direct, host_of
from comfyui_agent.access.problem import Problem
from comfyui_agent.access.proxies import Proxies
from comfyui_agent.config.settings import Ui

PROXY, INNER, CLIENT, OTHER = "10.0.0.1", "10.0.0.2", "203.0.113.7", "198.51.100.9"


def proxies(**said: Any) -> Proxies:
    return Proxies(Ui(trusted_proxies=("10.0.0.0/24", "::1", "127.0.0.1"), proxy_user_header="X-Remote-User", **said))


def request(peer: str, *headers: tuple[str, str], scheme: str = "http") -> Request:
    lines = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    return Request({"type": "http", "scheme": scheme, "headers": lines, "client": (peer, 1)})


@pytest.mark.parametrize(
    ("peer", "said", "client"),
    [
        (PROXY, [], PROXY),
        (PROXY, [CLIENT], CLIENT),
        (PROXY, [f"{OTHER}, {CLIENT}"], CLIENT),  # what the client itself wrote stands in front
        (PROXY, [OTHER, CLIENT], CLIENT),  # as two headers
        (PROXY, [f"{OTHER}, {CLIENT}, {INNER}"], CLIENT),
        (PROXY, [f"{INNER}"], INNER),
        (PROXY, ["unknown"], PROXY),
        (PROXY, [f"{CLIENT}, evil"], PROXY),
        (PROXY, [""], PROXY),
        (f"::ffff:{PROXY}", [CLIENT], CLIENT),
        ("::1", [CLIENT], CLIENT),
        (OTHER, [CLIENT], OTHER),
        ("", [CLIENT], ""),
    ],
)
def test_a_client_is_the_last_on_the_way_that_is_no_trusted_proxy(peer: str, said: list[str], client: str) -> None:
    assert proxies().client_of(request(peer, *(("X-Forwarded-For", each) for each in said))) == client


def test_without_trusted_proxies_only_the_connection_counts() -> None:
    assert Proxies(Ui()).client_of(request(PROXY, ("X-Forwarded-For", CLIENT))) == PROXY
    assert Proxies(Ui(proxy_user_header="X-Remote-User")).user_of(request(PROXY, ("X-Remote-User", "anna"))) is None
    assert not Proxies(Ui()).is_https(request(PROXY, ("X-Forwarded-Proto", "https")))


def test_a_trusted_proxy_says_who_logged_in_and_nobody_else_does() -> None:
    assert proxies().user_of(request(PROXY, ("X-Remote-User", " anna "))) == "anna"
    assert proxies().user_of(request(PROXY, ("X-Remote-User", "j\u00fcrgen".encode().decode("latin-1")))) == "jürgen"
    assert proxies().user_of(request(PROXY)) is None
    assert proxies().user_of(request(OTHER, ("X-Remote-User", "anna"))) is None
    forged = request(OTHER, ("X-Remote-User", "anna"), ("X-Forwarded-For", PROXY))
    assert proxies().user_of(forged) is None


@pytest.mark.parametrize("said", [[""], [" "], ["anna", "admin"], ["x" * 101], ["a\tb"], ["a\x7fb"]])
def test_a_header_that_is_no_single_name_is_refused(said: list[str]) -> None:
    with pytest.raises(Problem) as refused:
        proxies().user_of(request(PROXY, *(("X-Remote-User", each) for each in said)))
    assert refused.value.status == 403


def test_a_foreign_name_that_leads_to_this_machine_is_no_proxy() -> None:
    said = ("X-Remote-User", "admin")
    with pytest.raises(Problem) as refused:
        proxies().user_of(request("127.0.0.1", said, ("Host", "evil.example:8190")))
    assert "ui.proxy_hosts" in refused.value.remedy
    for host in ("127.0.0.1:8190", "localhost", "E3.example.org"):
        asked = request("127.0.0.1", said, ("Host", host))
        assert proxies(proxy_hosts=("e3.example.org",)).user_of(asked) == "admin"
    assert proxies().user_of(request(PROXY, said, ("Host", "e3.example.org"))) == "admin", "no browser is there"


def test_tls_is_spoken_here_or_at_a_trusted_proxy() -> None:
    assert Proxies(Ui()).is_https(request(OTHER, scheme="https"))
    assert proxies().is_https(request(PROXY, ("X-Forwarded-Proto", "https")))
    assert not proxies().is_https(request(PROXY, ("X-Forwarded-Proto", "http")))
    assert not proxies().is_https(request(OTHER, ("X-Forwarded-Proto", "https")))


@pytest.mark.parametrize(
    "header",
    ["Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "x-forwarded-else"],
)
def test_what_came_by_a_proxy_is_not_taken_for_this_machine(header: str) -> None:
    check_direct(Headers({"host": "127.0.0.1:8190"}))
    with pytest.raises(Problem) as refused:
        check_direct(Headers({"host": "127.0.0.1:8190", header: ""}))
    assert refused.value.status == 403
    assert header.lower() in refused.value.detail
    assert "e3 token create" in refused.value.remedy
    assert "ui.trusted_proxies" in refused.value.remedy


@pytest.mark.parametrize("said", ["0.0.0.0/0", "::/0", "proxy.example", "10.0.0.0/33", ""])
def test_everybody_and_nobody_are_no_proxies(said: str) -> None:
    with pytest.raises(ValidationError):
        Ui(trusted_proxies=(said,))


@pytest.mark.parametrize(
    ("authority", "name"),
    [
        ("a", "a"),
        ("a:1", "a"),
        ("[::1]:1", "[::1]"),
        ("[::1]", "[::1]"),
        ("", ""),
        (":1", ""),
        ("[", "[]"),
        ("a:b:c", "a"),
    ],
)
def test_a_host_is_split_from_its_port(authority: str, name: str) -> None:
    assert host_of(authority) == name
