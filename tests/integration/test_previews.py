"""While someone looks, an agent shows unfinished pictures of what it renders; otherwise it writes none."""

from __future__ import annotations

import asyncio
import contextlib
import io
import stat
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from PIL import Image

from comfyui_agent.cli.sites import PAGE, served
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.jobs import Job, NewJob, Template
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.engine.agent import Agent
from comfyui_agent.engine.composition import make_agent
from comfyui_agent.engine.live_runs import LiveRun, read_live, read_preview, want_previews
from comfyui_agent.sim.settings import Duration, SimSettings
from comfyui_agent.sim.simulator import Simulator
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.store import Store
from support.graphs import sampled

STEPS = 20
NAME = "lighthouse.yaml"
GRAPH = sampled("auto", "lighthouse", seed=7, steps=STEPS, edge=256)


@dataclass(frozen=True)
class Scene:
    """An agent at work on one job, before a server that takes its time."""

    workspace: Workspace
    store: Store
    server: Simulator
    agent: Agent

    @property
    def folder(self) -> Path:
        return self.workspace.locks

    def previews(self) -> list[Path]:
        return list(self.folder.glob("*.preview"))

    def live(self) -> LiveRun | None:
        return next(iter(read_live(self.folder)), None)

    async def submit(self, name: str = NAME) -> None:
        await self.store.run(ops.submit_jobs, [NewJob(name, "T2I", "wf", Template.of(GRAPH))])

    async def job(self, name: str = NAME) -> Job:
        found = await self.store.run(ops.find_job, name)
        assert found is not None
        return found

    async def is_done(self, name: str = NAME) -> bool:
        return (await self.job(name)).status is JobStatus.DONE

    async def until_done(self, name: str = NAME) -> None:
        deadline = time.monotonic() + 20
        while not await self.is_done(name):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)

    async def sent_with(self, name: str = NAME) -> Any:
        """The extra data that the prompt carried to its server."""
        prompt_id = (await self.job(name)).prompt_id
        async with aiohttp.ClientSession() as session, session.get(f"{self.server.url}/history/{prompt_id}") as answer:
            return (await answer.json())[prompt_id]["prompt"][3]


@contextlib.asynccontextmanager
async def scene(folder: Path, seconds: float, *, jobs: bool = True, **environment: str) -> AsyncIterator[Scene]:
    async with Simulator(SimSettings(render_seconds=Duration.parse(str(seconds)))) as server:
        workspace = load_workspace(folder, {"E3_COMFYUI__SERVERS": server.url, **environment})
        store = open_store(workspace.database)
        agent = make_agent(store, workspace)
        working = asyncio.create_task(agent.run())
        try:
            here = Scene(workspace, store, server, agent)
            if jobs:
                await here.submit()
            yield here
        finally:
            working.cancel()
            await asyncio.wait({working})
            await store.close()


async def until(condition: Callable[[], object], what: str, timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        await asyncio.sleep(0.02)


async def test_a_preview_appears_while_it_is_wanted_changes_and_goes(tmp_path: Path) -> None:
    async with scene(tmp_path, 2.0, jobs=False) as here:
        want_previews(here.folder)
        await until(lambda: here.agent.live.is_watched, "the agent to see it")
        await here.submit()
        seen: dict[str, bytes] = {}
        deadline = time.monotonic() + 30
        while not await here.is_done():
            assert time.monotonic() < deadline
            want_previews(here.folder)
            run = here.live()
            picture = read_preview(here.folder, run.job_id) if run else None
            if run and run.preview and picture:
                assert (run.job_id, run.prompt_id) == ((await here.job()).id, (await here.job()).prompt_id)
                seen[run.preview] = picture
            await asyncio.sleep(0.02)
        assert len(seen) >= 2
        assert len(set(seen.values())) >= 2
        for picture in seen.values():
            with Image.open(io.BytesIO(picture)) as preview:
                preview.load()
                assert max(preview.size) == 512
        await until(lambda: not here.previews() and here.live() is None, "the preview to go")
        assert (await here.sent_with())["preview_method"] == "auto"


async def test_none_is_written_while_nobody_looks_and_a_stop_leaves_none(tmp_path: Path) -> None:
    async with scene(tmp_path, 12.0, E3_UI__PREVIEWS="always") as here:
        await until(lambda: (run := here.live()) and run.step >= 1 and run.nodes_done >= 3, "the first step")
        run = here.live()
        assert run is not None
        assert (run.node_id, run.node_type, run.steps, run.nodes_total, run.preview) == ("5", "KSampler", STEPS, 7, "")
        assert here.previews() == []
        want_previews(here.folder)
        await until(here.previews, "a preview for the first one who looks")
        assert {stat.S_IMODE(path.stat().st_mode) for path in here.previews()} == {0o600}
    assert here.previews() == []
    assert not list(here.folder.glob("*.live*"))


async def test_what_a_dead_agent_left_goes_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "database" / "agents"
    folder.mkdir(parents=True)
    left = [folder / f"ghost-1-1a2b3c4d{end}" for end in (".lock", ".live.json", ".7.preview", ".8.preview.new")]
    for path in left:
        path.write_bytes(b"")
    async with scene(tmp_path, 0.0):
        await until(lambda: not any(path.exists() for path in left), "the files of a dead agent to go")


async def test_servers_are_asked_for_previews_from_the_first_stream_on(tmp_path: Path) -> None:
    """A page that is served and that nobody has open costs the servers nothing."""
    async with scene(tmp_path, 0.0) as here, served(PAGE, here.store, here.workspace, any_port=True) as page:
        await here.until_done()
        async with aiohttp.ClientSession() as session, session.get(f"{page.url}/api/v1/events") as stream:
            assert stream.status == 200
            await until(lambda: here.agent.live.is_watched, "the agent to see it")
            await here.submit("watched.yaml")
            await here.until_done("watched.yaml")
        assert "preview_method" not in await here.sent_with()
        assert (await here.sent_with("watched.yaml"))["preview_method"] == "auto"
