"""A server is found by what people call it, and what they type is never repeated with its secrets."""

from __future__ import annotations

import pytest

from comfyui_agent.comfy.address import NoServer, Unnamed, address_of, find_server, name_of

KNOWN = ("http://gpu1:8188", "http://gpu11:8188", "https://far/comfy")


def test_a_server_is_found_by_its_name_a_part_or_its_address() -> None:
    for name, address in [
        ("gpu1:8188", "http://gpu1:8188"),
        (" GPU11 ", "http://gpu11:8188"),
        ("https://someone:s3cr3t@far/comfy/?token=t0k3n", "https://far/comfy"),
    ]:
        assert find_server(name, KNOWN) == address, (name, address)


def test_a_whole_name_wins_over_a_part_of_another() -> None:
    assert find_server("gpu1:8188", ("http://old.gpu1:8188", "http://gpu1:8188")) == "http://gpu1:8188"


def test_one_that_nobody_knows_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(NoServer) as caught:
        find_server("http://someone:s3cr3t@gpu2:8188/?token=t0k3n", KNOWN)
    assert str(caught.value) == ("there is no server 'http://gpu2:8188': known are gpu1:8188, gpu11:8188, far/comfy")
    assert not isinstance(caught.value, Unnamed)


def test_a_part_that_several_have_is_refused_with_all_of_them() -> None:
    with pytest.raises(NoServer, match=r"'8188' may be http://gpu1:8188 or http://gpu11:8188: give more of its name"):
        find_server("8188", KNOWN)


def test_nothing_is_no_name() -> None:
    for name in ["", "  ", "/", "http://", "someone@", "?token=t0k3n"]:
        with pytest.raises(Unnamed, match="give the name of a server"):
            find_server(name, KNOWN)


def test_an_address_is_shown_without_secrets_and_a_name_without_its_scheme() -> None:
    assert address_of("https://someone:s3cr3t@far/comfy/?token=t0k3n") == "https://far/comfy"
    assert name_of("https://far/comfy") == "far/comfy"
    with pytest.raises(ValueError, match="must look like"):
        address_of("far/comfy")
