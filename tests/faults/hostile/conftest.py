"""A scripted server that answers as an idle ComfyUI until a test makes it hostile, and a client with small limits."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.limits import Limits
from support.hostile import PASSWORD, TOKEN, HostileServer, answer, hostile_server, says

SMALL = Limits(
    connect_seconds=2.0,
    answer_seconds=0.25,
    silent_download_seconds=0.15,
    download_seconds=0.3,
    poll_seconds=0.02,
    look_again_seconds=0.05,
    lost_after_seconds=0.1,
    socket_quiet_seconds=0.2,
    retries=1,
    retry_pause_seconds=0.01,
    small_answer_bytes=100_000,
    history_bytes=400_000,
    queue_bytes=400_000,
    definitions_bytes=400_000,
    socket_frame_bytes=400_000,
    file_bytes=2_000_000,
)
PATIENT = replace(SMALL, answer_seconds=0.75, silent_download_seconds=0.75, download_seconds=1.5)
"""For servers that do answer: a busy machine is no silent server."""
STATS = {
    "system": {"comfyui_version": "0.7.0", "ram_total": 100, "ram_free": 50, "os": "posix"},
    "devices": [{"name": "card", "type": "cuda", "index": 0, "vram_total": 100, "vram_free": 50}],
}


@asynccontextmanager
async def idle_server() -> AsyncIterator[HostileServer]:
    async with hostile_server() as server:
        server.replies |= {
            "GET /queue": says({"queue_running": [], "queue_pending": []}),
            "POST /queue": answer(),
            "GET /history": says({}),
            "POST /interrupt": answer(),
            "GET /system_stats": says(STATS),
            "GET /object_info": says({"SaveImage": {"output_node": True}, "EmptyImage": {"output_node": False}}),
            "GET /models": says(["sdxl.safetensors"]),
            "POST /free": answer(),
            "POST /upload": says({"name": "picture.png", "subfolder": "", "type": "input"}),
        }
        yield server


@pytest.fixture
async def server() -> AsyncIterator[HostileServer]:
    async with idle_server() as server:
        yield server


@pytest.fixture
def fresh() -> Callable[..., AbstractAsyncContextManager[tuple[HostileServer, ComfyClient]]]:
    """Makes a server and a client for one case of a table; a failure with them says which case it was."""

    @asynccontextmanager
    async def fresh(case: str, *, listen: bool = False) -> AsyncIterator[tuple[HostileServer, ComfyClient]]:
        try:
            async with idle_server() as server, ComfyClient(server.url, limits=SMALL, listen=listen) as comfy:
                yield server, comfy
        except (Exception, pytest.fail.Exception) as error:
            raise AssertionError(f"{case}: {error}") from error

    return fresh


@pytest.fixture
async def comfy(server: HostileServer) -> AsyncIterator[ComfyClient]:
    async with ComfyClient(server.url, limits=PATIENT, listen=False) as client:
        yield client


@pytest.fixture
async def listening(server: HostileServer) -> AsyncIterator[ComfyClient]:
    async with ComfyClient(server.url, limits=PATIENT) as client:
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where results go; whatever was tried, nothing lies around it and nothing temporary is left in it."""
    folder = tmp_path / "outer" / "results"
    folder.mkdir(parents=True)
    yield folder
    everything = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert everything - {"outer", "outer/results"} == {f"outer/results/{path.name}" for path in folder.iterdir()}
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


@pytest.fixture(autouse=True)
def _nothing_logged_holds_a_secret(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    for record in caplog.get_records("call"):
        text = logging.Formatter().format(record)
        assert PASSWORD not in text
        assert TOKEN not in text
        assert record.levelno < logging.ERROR, text


@pytest.fixture
def small_client(server: HostileServer) -> Callable[[], ComfyClient]:
    """Makes a listening client whose leaving is part of the test."""
    return lambda: ComfyClient(server.url, limits=SMALL)
