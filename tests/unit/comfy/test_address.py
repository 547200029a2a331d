"""An address is used with its secrets and shown without them."""

from __future__ import annotations

import base64
import traceback

import pytest

from comfyui_agent.comfy.address import ServerAddress

SECRET = "http://artist:p%40ss-word@gpu.example:8188/comfy/?token=tok%2Fen&other=thing"


def test_an_address_is_shown_without_secrets() -> None:
    for text, shown in [
        ("http://127.0.0.1:8188", "http://127.0.0.1:8188"),
        (" http://127.0.0.1:8188/ ", "http://127.0.0.1:8188"),
        ("https://gpu.example", "https://gpu.example"),
        ("https://gpu.example/proxy/comfy/", "https://gpu.example/proxy/comfy"),
        ("http://[::1]:8188", "http://[::1]:8188"),
        ("HTTP://LocalHost:8188", "http://localhost:8188"),
        (SECRET, "http://gpu.example:8188/comfy"),
    ]:
        assert str(ServerAddress.parse(text)) == shown, (text, shown)


def test_a_bad_address_is_refused_in_words_without_secrets() -> None:
    for text in [
        "",
        "127.0.0.1:8188",
        "localhost",
        "ftp://user:hidden@host",
        "http://",
        "http://user:hidden@",
        "http://user:hidden@host:99999",
        "http://user:hidden@host:port",
        "http://user:hidden@[::1",
        "http://host/#fragment",
        "ws://host:8188",
        "file:///etc/passwd",
        "javascript:alert(1)",
    ]:
        with pytest.raises(ValueError, match=r"must look like http://127\.0\.0\.1:8188") as caught:
            ServerAddress.parse(text)
        assert "hidden" not in "".join(traceback.format_exception(caught.value)), text


def test_no_representation_holds_a_secret() -> None:
    address = ServerAddress.parse(SECRET)
    login = base64.b64encode(b"artist:p@ss-word").decode()
    for shown in (str(address), repr(address), f"{address}", repr([address])):
        for secret in ("p@ss", "p%40ss", "tok", "thing", login):
            assert secret not in shown


def test_routes_lie_below_the_path_and_keep_the_query() -> None:
    address = ServerAddress.parse(SECRET)
    url = address.at("history/abc", {"max_items": "1"})
    assert url.path == "/comfy/history/abc"
    assert list(url.query.items()) == [("token", "tok/en"), ("other", "thing"), ("max_items", "1")]
    assert url.user is None
    assert url.password is None


def test_names_in_routes_stay_one_part_of_the_path() -> None:
    assert ServerAddress.parse("http://host").at("models/a%2Fb").raw_path == "/models/a%2Fb"


def test_the_websocket_is_on_the_same_host_path_and_query() -> None:
    url = ServerAddress.parse("https://gpu.example/x?token=t").socket("me")
    assert (url.scheme, url.path, url.query["token"], url.query["clientId"]) == ("wss", "/x/ws", "t", "me")
    assert ServerAddress.parse("http://gpu.example").socket("me").scheme == "ws"


def test_a_login_becomes_a_header_and_no_login_none() -> None:
    headers = ServerAddress.parse(SECRET).headers
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"artist:p@ss-word"
    assert ServerAddress.parse("http://host").headers == {}


def test_a_password_without_a_user_is_sent() -> None:
    headers = ServerAddress.parse("http://:pass@host").headers
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b":pass"


def test_secrets_are_taken_out_of_texts_from_outside() -> None:
    address = ServerAddress.parse(SECRET)
    login = base64.b64encode(b"artist:p@ss-word").decode()
    text = f"p@ss-word p%40ss-word tok/en tok%2Fen {login} at gpu.example"
    assert address.without_secrets(text) == "… … … … … at gpu.example"
    assert ServerAddress.parse("http://host").without_secrets("as it was") == "as it was"
