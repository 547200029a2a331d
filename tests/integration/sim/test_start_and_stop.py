"""How `e3 sim` starts and how it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from comfyui_agent.cli.app import app
from support.graphs import picture, slow_graph
from support.sampling import some
from support.servers import ServerProcess, free_port, simulator

from .conftest import Connect, Start

SIM = [sys.executable, "-m", "comfyui_agent", "sim"]


def ended(*switches: str) -> Result:
    """A simulator that is expected to end by itself, in this process."""
    return CliRunner().invoke(app, ["sim", *switches])


def stopped(server: ServerProcess, number: signal.Signals) -> tuple[int, float]:
    """The exit code after a signal, and the seconds it took."""
    assert server.process is not None
    began = time.monotonic()
    server.process.send_signal(number)
    return server.process.wait(timeout=10), time.monotonic() - began


def catches(process_id: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal by now."""
    status = Path(f"/proc/{process_id}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> number - 1 & 1)


def test_it_says_where_it_is_when_the_start_delay_is_over(start: Start) -> None:
    began = time.monotonic()
    server = start("--start-delay", "0.3")
    assert time.monotonic() - began >= 0.3
    expected = f"ComfyUI simulator (0.33.0) at {server.url}, files in {server.output_dir}\n"
    assert server.log.read_text() == expected
    assert stopped(server, signal.SIGTERM)[0] == 143
    assert server.log.read_text() == expected, "it ends without a word"


@pytest.mark.timing
@pytest.mark.parametrize(("number", "code"), some([(signal.SIGTERM, 143), (signal.SIGINT, 130)], 2))
async def test_a_signal_in_the_middle_of_a_render_ends_it_within_two_seconds(
    start: Start, connect: Connect, number: signal.Signals, code: int
) -> None:
    server = start("--render-seconds", "60")
    async with connect(server) as wire, wire.socket() as socket:
        prompt_id = await wire.submit(await slow_graph(wire))
        await socket.event("progress", prompt_id)
        exit_code, seconds = stopped(server, number)
        assert (exit_code, seconds < 2) == (code, True)
        assert await socket.lost() == 1006
        assert "execution_interrupted" not in socket.types()


@pytest.mark.timing
async def test_a_signal_ends_one_that_hangs(start: Start, connect: Connect) -> None:
    server = start("--hang-after", "0")
    async with connect(server) as wire:
        await wire.running(await wire.submit(picture()))
    exit_code, seconds = stopped(server, signal.SIGTERM)
    assert (exit_code, seconds < 2) == (143, True)


def test_a_signal_before_the_port_opens_ends_it(tmp_path: Path) -> None:
    server = simulator(tmp_path, "--start-delay", "1000")
    with subprocess.Popen(server.command) as process:
        while not catches(process.pid, signal.SIGTERM):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5) == 143


def test_its_own_temporary_folder_goes_with_it() -> None:
    command = [*SIM, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().rpartition("files in ")[2].strip())
        assert folder.is_dir()
        process.terminate()
        assert process.wait(timeout=5) == 143
    assert not folder.exists()


def test_a_taken_port_is_reported_in_one_line(plain_server: ServerProcess) -> None:
    port = plain_server.url.rpartition(":")[2]
    result = ended("--port", port)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"e3: port {port} at 127.0.0.1 is taken: stop what runs there, or give another with --port\n"
    )


def test_a_host_that_is_not_this_machine_is_reported_in_one_line() -> None:
    result = ended("--host", "no-such-host.invalid", "--port", "0")
    assert result.exit_code == 1
    assert result.stderr.startswith("e3: cannot start a simulator at no-such-host.invalid:0: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        (["--render-seconds", "fast"], "e3: 'fast' is not a duration: give a number of seconds such as 0.5"),
        (["--model-load-seconds", "-1"], "e3: '-1' is not a duration"),
        (["--model-load-seconds", "ink.safetensors=long"], "e3: 'long' is not a duration"),
        (["--card", "../h200"], "e3: '../h200' is not the name of a card"),
        (["--imitate", "latest"], "e3: 'latest' is not a ComfyUI version: give one such as 0.33 or 0.7"),
        (["--object-info", "nowhere.json"], "e3: cannot read node definitions from nowhere.json: No such file"),
        (["--models", "loras/"], "e3: 'loras/' names no model: give NAME or FOLDER/NAME"),
        (["--output-dir", __file__], f"e3: cannot keep files in {__file__}: File exists; give a folder"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_bad_value_ends_with_2_and_one_line(switches: list[str], message: str) -> None:
    result = ended("--port", str(free_port()), *switches)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


def test_a_value_out_of_range_ends_with_2_and_names_the_switch() -> None:
    numbers = [
        "--port=70000",
        "--vram-gb=0",
        "--vram-gb=nan",
        "--vram-gb=inf",
        "--failure-rate=1.1",
        "--crash-after=-1",
    ]
    for switch in [*numbers, "--hang-after=x", "--start-delay=-1", "--start-delay=inf", "--seed=x", "--no-such-switch"]:
        result = ended(switch)
        assert (result.exit_code, result.stdout) == (2, ""), switch
        assert switch.partition("=")[0] in result.stderr
        assert "Traceback" not in result.stderr


async def test_files_survive_a_restart_and_temporary_ones_do_not(start: Start, connect: Connect) -> None:
    server = start()
    async with connect(server) as wire:
        await wire.run(picture("kept"))
        shown: Any = await wire.run({**picture(), "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}})
    preview = shown["outputs"]["2"]["images"][0]
    server.stop()
    server.start()
    async with connect(server) as wire:
        assert (await wire.get("/view?filename=kept_00001_.png")).status == 200
        assert (await wire.get(f"/view?filename={preview['filename']}&type=temp")).status == 404
        entry = await wire.run(picture("kept"))
    assert entry["outputs"]["2"]["images"][0]["filename"] == "kept_00002_.png"
    assert sorted(file.name for file in server.output_dir.glob("*.png")) == ["kept_00001_.png", "kept_00002_.png"]
