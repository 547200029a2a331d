"""The ComfyUI directory that tests of the supervisor start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import fake_comfyui
from support.graphs import text_to_image
from support.servers import ServerProcess, free_port

from .conftest import Connect

DIRECTORY = Path(fake_comfyui.__path__[0])


async def test_it_starts_with_the_flags_of_comfyui(
    tmp_path: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("E3_SIM_FLAGS", json.dumps(["--vram-gb", "7", "--models", "from-gpu-{gpu}.safetensors"]))
    port = free_port()
    (tmp_path / "user").mkdir()
    command = [sys.executable, "main.py", "--listen", "127.0.0.1", "--port", str(port), "--cuda-device", "3"]
    for name in ("output", "temp", "user"):
        command += [f"--{name}-directory", str(tmp_path / name)]
    command += ["--database-url", f"sqlite:///{tmp_path}/c.db", "--reserve-vram", "1.5", "--disable-auto-launch"]
    server = ServerProcess(command, f"http://127.0.0.1:{port}", tmp_path, tmp_path / "log", working_dir=DIRECTORY)
    server.start()
    try:
        async with connect(server) as wire:
            assert (await wire.get("/system_stats")).body["devices"][0]["vram_total"] == 7 * 1024**3
            assert (await wire.get("/models/checkpoints")).body == ["from-gpu-3.safetensors"]
            await wire.run(await text_to_image(wire))
        assert list((tmp_path / "output").glob("*.png"))
    finally:
        server.stop()
    assert server.process is not None
    assert server.process.returncode == 143, (tmp_path / "log").read_text()


@pytest.mark.parametrize("flags", [["--no-such-flag"], ["--user-directory", "/no/such/folder"]])
def test_flags_that_comfyui_refuses_end_it(flags: list[str]) -> None:
    ended = subprocess.run([sys.executable, "main.py", *flags], cwd=DIRECTORY, capture_output=True, timeout=30)
    assert ended.returncode == 2
