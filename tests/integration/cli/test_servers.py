"""`e3 servers` shows what servers are and do, for people and for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from comfyui_agent import __version__
from comfyui_agent.cli.servers import ServerReport, _print_table
from comfyui_agent.comfy.answers import Device, SystemStats
from comfyui_agent.sim.process import ServerProcess, free_port
from support.command import e3
from support.wire import Wire

KEYS = {"name", "url", "state", "version", "devices", "queue_running", "queue_pending", "error"}


@pytest.mark.parametrize("command", [["servers"], ["servers", "ls"]], ids=["servers", "servers-ls"])
def test_a_server_that_is_up_is_shown_with_version_devices_memory_and_queue(wire: Wire, command: list[str]) -> None:
    answer = e3(*command, "--server", wire.url, "--json")
    (server,) = json.loads(answer.stdout)
    assert answer.returncode == 0
    assert server.keys() == KEYS
    assert (server["url"], server["state"]) == (wire.url, "up")
    assert server["version"].count(".") == 2
    assert server["devices"][0].keys() == {"name", "type", "vram_total", "vram_free"}
    assert (server["queue_running"], server["queue_pending"]) == (0, 0)


def test_a_server_that_is_down_is_said_to_be_down_and_the_others_are_shown(
    comfyui_simulator: Callable[..., ServerProcess],
) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    answer = e3("servers", "--server", gone, "--server", comfyui_simulator().url, "--json")
    down, up = json.loads(answer.stdout)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert (down["state"], down["version"], down["queue_running"]) == ("down", None, None)
    assert "is ComfyUI running there?" in down["error"]
    assert up["state"] == "up"


def test_without_a_terminal_it_prints_one_plain_line_a_server(comfyui_simulator: Callable[..., ServerProcess]) -> None:
    server = comfyui_simulator()
    answer = e3("servers", "--server", server.url)
    (line,) = answer.stdout.splitlines()
    assert "up    ComfyUI 0.7.0" in line
    assert "0 running, 0 waiting" in line


def test_a_password_in_an_address_is_never_printed() -> None:
    url = f"http://someone:s3cr3t@127.0.0.1:{free_port()}/?token=t0k3n"
    for arguments in (["--json"], []):
        answer = e3("servers", "--server", url, *arguments)
        assert "s3cr3t" not in answer.stdout + answer.stderr
        assert "t0k3n" not in answer.stdout + answer.stderr


@pytest.mark.parametrize("url", ["gpu1:8188", "ftp://gpu1", "http://", "http://gpu1:port", "http://a:s3cr3t@:8188"])
def test_a_bad_address_is_one_line_that_says_what_would_be_right(url: str) -> None:
    answer = e3("servers", "--server", url)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == "e3: a server's address must look like http://127.0.0.1:8188\n"


def test_the_version_is_shown() -> None:
    answer = e3("--version")
    assert (answer.returncode, answer.stdout) == (0, f"e3 {__version__}\n")


def test_an_unknown_command_is_a_usage_error() -> None:
    assert e3("rendre").returncode == 2


def test_options_may_stand_before_or_after_ls(comfyui_simulator: Callable[..., ServerProcess]) -> None:
    url = comfyui_simulator().url
    before = e3("servers", "--server", url, "--json", "ls")
    after = e3("servers", "ls", "--server", url, "--json")
    assert [server["url"] for server in json.loads(before.stdout)] == [url]
    assert json.loads(before.stdout)[0].keys() == json.loads(after.stdout)[0].keys()


def test_a_name_that_looks_like_markup_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    stats = SystemStats("[/x]", "", "", "", 1, 1, (Device("[bold]card[/x]", "cuda", 2**30, 2**30),))
    _print_table([ServerReport("gpu", "http://gpu", stats, 0, 0), ServerReport("b", "http://b", error="[/y]")])
    shown = capsys.readouterr().out
    assert "[bold]card[/x]" in shown
    assert "[/y]" in shown
