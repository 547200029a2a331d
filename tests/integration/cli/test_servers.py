"""`e3 servers` shows what servers are and do, for people and for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from comfyui_agent import __version__
from comfyui_agent.cli.servers import line_of, print_table
from comfyui_agent.comfy.answers import Device, SystemStats
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.engine.server_reports import ServerReport
from comfyui_agent.sim.process import ServerProcess, free_port
from support.agents import locked_database
from support.wire import Wire
from support.workspaces import call_e3 as e3
from support.workspaces import job_text, new_workspace

KEYS = {
    "name",
    "url",
    "state",
    "version",
    "devices",
    "queue_running",
    "queue_pending",
    "error",
    "stuck_since",
    "routing",
}


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
    assert "up    ComfyUI 0.33.0" in line
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
    (line,) = answer.stderr.splitlines()
    assert line.startswith("e3: ")
    assert line.endswith("a server's address must look like http://127.0.0.1:8188")


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
    print_table([ServerReport("gpu", "http://gpu", stats, 0, 0), ServerReport("b", "http://b", error="[/y]")], {})
    shown = capsys.readouterr().out
    assert "[bold]card[/x]" in shown
    assert "[/y]" in shown


GPUS = ("http://gpu1:8188", "http://gpu2:8188", "http://someone:s3cr3t@far/comfy?token=t0k3n")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with a database."""
    assert e3("db", "migrate", "-C", str(tmp_path)).returncode == 0
    return tmp_path


@pytest.fixture
def gpus(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose servers nobody can reach, one of them behind a password."""
    monkeypatch.setenv("E3_COMFYUI__SERVERS", ",".join(GPUS))
    return workspace


def shown(workspace: Path, *options: str) -> list[tuple[str, str]]:
    """Name and state of each server."""
    answer = e3("servers", "-C", str(workspace), "--json", *options)
    assert (answer.returncode, answer.stderr) == (0, "")
    return [(server["url"], server["state"]) for server in json.loads(answer.stdout)]


def test_the_servers_of_the_workspace_are_shown_unless_others_are_named(
    comfyui_simulator: Callable[..., ServerProcess], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = comfyui_simulator().url, comfyui_simulator().url
    monkeypatch.setenv("E3_COMFYUI__SERVERS", first)
    assert shown(workspace) == [(first, "up")]
    assert shown(workspace, "--server", second) == [(second, "up")]


def test_a_server_is_shown_as_people_have_left_it(
    comfyui_simulator: Callable[..., ServerProcess], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = comfyui_simulator().url, comfyui_simulator().url
    monkeypatch.setenv("E3_COMFYUI__SERVERS", f"{first},{second}")
    for command, said, state in (
        ("pause", "paused", "paused"),
        ("drain", "drained", "drained"),
        ("resume", "working", "up"),
    ):
        answer = e3("servers", command, first, "-C", str(workspace), "--json")
        assert json.loads(answer.stdout) == {"name": first.removeprefix("http://"), "url": first, "state": said}
        assert shown(workspace) == [(first, state), (second, "up")]


def test_a_server_that_cannot_be_reached_is_down_also_if_it_is_paused(gpus: Path) -> None:
    assert e3("servers", "pause", "gpu1", "-C", str(gpus)).returncode == 0
    assert shown(gpus)[0] == ("http://gpu1:8188", "down")


def test_states_are_read_beside_a_program_that_has_the_database_locked(
    comfyui_simulator: Callable[..., ServerProcess], workspace: Path
) -> None:
    url = comfyui_simulator().url
    e3("servers", "pause", url, "-C", str(workspace), "--server", url)
    with locked_database(workspace / "database" / "comfyui_agent.db"):
        assert shown(workspace, "--server", url) == [(url, "paused")]


def test_servers_are_shown_without_a_database_and_none_is_made(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    url, folder = comfyui_simulator().url, tmp_path / "empty"
    folder.mkdir()
    assert shown(folder, "--server", url) == [(url, "up")]
    assert list(folder.iterdir()) == []


def test_servers_are_shown_beside_a_database_that_is_none(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    url = comfyui_simulator().url
    broken = tmp_path / "broken.db"
    broken.write_text("no database at all, however long one looks at it" * 100)
    assert shown(tmp_path, "--server", url, "--database", str(broken)) == [(url, "up")]


def test_a_server_cannot_be_paused_where_there_is_no_database_and_none_is_made(tmp_path: Path) -> None:
    answer = e3("servers", "pause", "127.0.0.1", "-C", str(tmp_path))
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "there is no database" in answer.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("gpu1:8188", "http://gpu1:8188"),
        ("http://gpu2:8188", "http://gpu2:8188"),
        ("http://gpu2:8188/", "http://gpu2:8188"),
        ("gpu2", "http://gpu2:8188"),
        ("GPU1", "http://gpu1:8188"),
        ("far/comfy", "http://far/comfy"),
        (GPUS[2], "http://far/comfy"),
    ],
    ids=["name", "address", "address-with-slash", "part", "capitals", "path", "address-with-secrets"],
)
def test_a_server_is_named_as_it_is_shown_or_by_a_part_of_that(gpus: Path, name: str, url: str) -> None:
    answer = e3("servers", "pause", name, "-C", str(gpus), "--json")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert json.loads(answer.stdout)["url"] == url
    assert "s3cr3t" not in answer.stdout


@pytest.mark.parametrize("command", ["pause", "resume", "drain"])
def test_an_unknown_name_is_one_line_that_lists_the_servers(gpus: Path, command: str) -> None:
    answer = e3("servers", command, "http://me:s3cr3t@gpu9:8188?token=t0k3n", "-C", str(gpus), "--json")
    assert (answer.returncode, answer.stdout) == (1, "")
    known = "gpu1:8188, gpu2:8188, far/comfy"
    assert answer.stderr == f"e3: there is no server 'http://gpu9:8188': known are {known}\n"


def test_a_part_that_two_servers_have_is_one_line_that_names_them(gpus: Path) -> None:
    answer = e3("servers", "drain", "gpu", "-C", str(gpus))
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == "e3: 'gpu' may be http://gpu1:8188 or http://gpu2:8188: give more of its name\n"


def test_a_server_that_is_no_longer_used_can_be_resumed(gpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    e3("servers", "pause", "gpu1", "-C", str(gpus))
    monkeypatch.setenv("E3_COMFYUI__SERVERS", "http://new:8188")
    answer = e3("servers", "-C", str(gpus), "resume", "gpu1")
    assert (answer.returncode, answer.stdout) == (0, "gpu1:8188 is back at work.\n")
    assert e3("servers", "resume", "gpu1", "-C", str(gpus)).returncode == 1


@pytest.mark.parametrize("arguments", [[], [" "], ["gpu1", "gpu2"], ["gpu1", "-C", "nowhere"]])
def test_a_name_is_needed_and_a_folder_that_is_there(gpus: Path, arguments: list[str]) -> None:
    answer = e3("servers", "pause", *arguments, cwd=gpus)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "words"),
    [("pause", "is paused: it gets nothing new"), ("drain", "is drained: nothing"), ("resume", "is back at work")],
)
def test_people_read_what_it_means(gpus: Path, command: str, words: str) -> None:
    answer = e3("servers", command, "gpu1", "-C", str(gpus))
    assert answer.stdout.startswith(f"gpu1:8188 {words}")


def test_the_table_and_the_lines_show_the_state(capsys: pytest.CaptureFixture[str]) -> None:
    stats = SystemStats("0.7.0", "", "", "", 1, 1, (Device("card", "cuda", 2**30, 2**30),))
    reports = [ServerReport(str(halt), "http://gpu", stats, 1, 0, out_of_work=halt) for halt in ServerState]
    print_table(reports, {})
    table = capsys.readouterr().out.splitlines()[1:]
    for halt, report, row in zip(ServerState, reports, table, strict=True):
        assert f" {halt} " in row.removeprefix(halt)
        assert f"  {halt.value:<8}  ComfyUI 0.7.0" in line_of(report, 10, 8)


def test_why_a_job_waits_is_explained_for_people_and_for_scripts(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    url = comfyui_simulator().url
    root = str(new_workspace(tmp_path / "night", url).root)
    for name in ("knight.yaml", "castle.yaml"):
        (tmp_path / name).write_text(job_text(len(name)), encoding="utf-8")
        assert e3("add", str(tmp_path / name), "-C", root).returncode == 0
    said = e3("servers", "explain", "castle.yaml", "-C", root)
    sentence, line = said.stdout.splitlines()
    assert sentence == "castle.yaml waits behind 1 older job of priority 50."
    assert line.startswith(f"{url.partition('://')[2]}: up; ")
    found = json.loads(e3("servers", "explain", "1", "-C", root, "--json").stdout)
    assert found["sentence"] == f"is next: waits until {url.partition('://')[2]} has room"
    assert found["servers"][0]["state"] == "up"
    assert "waits behind 1 older job" in e3("show", "castle.yaml", "-C", root).stdout
    assert e3("servers", "explain", "nobody", "-C", root).returncode == 1
