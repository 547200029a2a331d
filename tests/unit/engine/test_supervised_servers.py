"""An agent that supervises its own servers: real processes, scripted answers, and a clock that the test moves."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.fleet.launch.lifecycle import LaunchLimits
from comfyui_agent.fleet.launch.state import SlotFolder, SlotState, Status
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases.servers import ProcessChange
from support.agents import wait_until
from support.engine import FakeComfy, Room
from support.launching import comfyui_folder, end_all, launch_section, related, signal_slot, slots_in, starts_of

CUDA = "CUDA error: an illegal memory access was encountered"


class Launched:
    """A room whose only server is launched by the agent. It answers when the test says so."""

    def __init__(self, room: Room, port: int, folder: Path) -> None:
        self.room = room
        self.url = f"http://127.0.0.1:{port}"
        room.servers = {self.url: FakeComfy(self.url, room.clock)}
        self.slot = SlotFolder(folder)

    @property
    def comfy(self) -> FakeComfy:
        return self.room.servers[self.url]

    @property
    def state(self) -> SlotState:
        return self.slot.state()

    async def up(self, **limits: Any) -> None:
        """An agent at work, and its server up."""
        await self.room.start(launch_limits=LaunchLimits(silent_seconds=20, **limits))
        await self.room.clock.advance(3)
        assert self.state.status is Status.UP

    async def until(self, status: Status, seconds: float = 90) -> None:
        """Let time pass until the slot is in a state. What real processes do meanwhile is waited for."""
        for _ in range(int(seconds * 2)):
            if self.state.status is status:
                return
            await self.room.clock.advance(0.5)
        raise AssertionError(f"not {status}: {self.state}")

    def die(self) -> None:
        """kill -9, and until it is gone."""
        pid = self.slot.pid
        signal_slot(self.slot, signal.SIGKILL)
        wait_until(lambda: pid not in related(self.slot), "its end")
        self.comfy.die()

    def ask(self, change: ProcessChange, **more: Any) -> None:
        self.slot.change(lambda state: replace(change.on(state), **more))


Launch = Callable[..., Launched]


@pytest.fixture
def launch(make_room: Callable[..., Room], tmp_path: Path) -> Iterator[Launch]:
    def make(main: str | None = None, directory: Path | None = None, **settings: Any) -> Launched:
        folder = directory or comfyui_folder(tmp_path / "ComfyUI", *([main] if main else []))
        section = launch_section(folder, **settings)
        room = make_room(comfyui={"servers": [], "launch": [section], "failover_seconds": 20})
        return Launched(room, section["port_from"], tmp_path / "comfyui" / "cpu-1")

    yield make
    end_all(tmp_path)


async def test_the_agent_starts_its_server_and_works_with_it(launch: Launch) -> None:
    launched = launch()
    launched.comfy.is_up = False
    await launched.room.submit("a")
    await launched.room.start()
    await launched.room.clock.advance(5)
    assert (launched.state.status, launched.comfy.posts) == (Status.STARTING, [])
    launched.comfy.is_up = True
    await launched.until(Status.UP)
    await launched.room.clock.advance(2)
    launched.comfy.render()
    await launched.room.clock.advance(1)
    assert (await launched.room.job()).status == "done"
    assert await launched.room.events("server.started") == [""]
    assert starts_of(launched.slot) == 1


async def test_a_process_that_was_killed_is_started_again_and_its_jobs_are_not_charged(launch: Launch) -> None:
    launched = launch()
    await launched.room.submit("a")
    await launched.up()
    launched.comfy.begin()
    launched.die()
    await launched.until(Status.STARTING)
    launched.comfy.start()
    await launched.until(Status.UP)
    await launched.room.clock.advance(5)
    launched.comfy.render()
    await launched.room.clock.advance(1)
    job = await launched.room.job()
    assert (job.status, job.retries_attempted) == ("done", 0)
    (reason,) = await launched.room.events("server.restarted")
    assert reason.startswith("it ended after ")
    assert reason.endswith(" s: signal 9")
    assert (launched.state.restarts, starts_of(launched.slot)) == (1, 2)


async def test_a_process_that_hangs_is_killed_even_if_it_was_stopped(launch: Launch) -> None:
    launched = launch()
    await launched.up()
    before = launched.slot.pid
    signal_slot(launched.slot, signal.SIGSTOP)
    launched.comfy.is_up = False
    await launched.room.clock.advance(15)
    assert (launched.state.status, launched.slot.pid) == (Status.UP, before)
    await launched.until(Status.STARTING)
    assert before not in related(launched.slot)
    assert "has not answered for 2" in launched.state.reason
    launched.comfy.start()
    await launched.until(Status.UP)
    assert launched.slot.pid != before


async def test_a_prompt_that_does_not_end_and_cannot_be_interrupted_ends_with_its_process(launch: Launch) -> None:
    launched = launch()
    await launched.room.submit("a", timeout_seconds=30)
    await launched.up()
    launched.comfy.obeys = False
    launched.comfy.begin()
    await launched.until(Status.STOPPING, 150)
    assert launched.state.reason == "a prompt there did not end and could not be interrupted"


@pytest.mark.parametrize("how", ["told by the prompt", "read in the log"])
async def test_a_lost_context_is_a_restart_and_no_fault_of_the_job(launch: Launch, how: str) -> None:
    launched = launch()
    await launched.room.submit("a")
    await launched.up()
    before = launched.slot.pid
    launched.comfy.begin()
    if how == "told by the prompt":
        launched.comfy.fail(FailureClass.EXECUTION, CUDA)
    else:
        with (launched.slot.path / "log.txt").open("a") as log:
            log.write(f"!!! Exception during processing !!! {CUDA}\n")
    await launched.until(Status.WAITING)
    assert launched.state.reason == f"it has lost its card: {CUDA}"
    launched.comfy.die()
    launched.comfy.start()
    await launched.until(Status.UP)
    assert launched.slot.pid != before
    await launched.room.clock.advance(5)
    launched.comfy.render()
    await launched.room.clock.advance(1)
    job = await launched.room.job()
    assert (job.status, job.retries_attempted) == ("done", 0)
    assert [each.outcome for each in await launched.room.attempts()] == ["server_lost", "done"]


async def test_a_lost_context_of_somebody_elses_server_is_an_execution_failure(room: Room) -> None:
    await room.submit("a", retry_limit=0)
    await room.start()
    room.comfy.begin()
    room.comfy.fail(FailureClass.EXECUTION, CUDA)
    await room.clock.advance(1)
    assert (await room.job()).failure_class == "execution"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"directory": Path("/no/such")},
            "no main.py in /no/such: write ComfyUI's folder as comfyui.launch.0.directory",
        ),
        ({"python": "/no/such"}, "no Python at /no/such: write the one that runs ComfyUI as comfyui.launch.0.python"),
        ({"python": ""}, "no Python of its own in venv: write the one that runs ComfyUI as comfyui.launch.0.python"),
        ({"main": "import no_such_module\n"}, "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
async def test_what_cannot_be_started_is_tried_a_few_times_and_says_why(
    launch: Launch, settings: dict[str, Any], says: str
) -> None:
    launched = launch(**settings)
    launched.comfy.is_up = False
    await launched.room.submit("a")
    await launched.room.start()
    for _ in range(7):
        wait_until(lambda: not related(launched.slot), "its end")
        await launched.room.clock.advance(10)
    await launched.until(Status.FAILED)
    assert says in launched.state.reason
    (alert,) = await launched.room.events("alert.server")
    assert says in alert
    assert alert.endswith("e3 comfyui up")
    await launched.room.clock.advance(70)
    assert starts_of(launched.slot) in (0, 5)
    assert len(await launched.room.events("alert.server")) == 1
    assert (await launched.room.job()).status == "pending"


async def test_a_port_that_somebody_else_has_is_named(launch: Launch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        launched = launch(port_from=port)
        await launched.room.start()
        await launched.until(Status.FAILED)
    assert launched.state.reason.startswith(f"port {port} is taken by another program: end that, or write another")
    launched.ask(ProcessChange.UP)
    await launched.until(Status.UP)


async def test_two_agents_start_a_process_once_and_the_next_one_adopts_it(launch: Launch) -> None:
    launched = launch()
    for _ in range(3):
        await launched.room.start()
    await launched.until(Status.UP)
    pid = launched.slot.pid
    await launched.room.stop()
    assert related(launched.slot) == [pid]
    await launched.room.start()
    await launched.room.clock.advance(30)
    assert (launched.state.status, launched.slot.pid, starts_of(launched.slot)) == (Status.UP, pid, 1)


async def test_a_process_whose_start_was_not_noted_is_adopted(launch: Launch) -> None:
    launched = launch()
    await launched.up()
    await launched.room.stop()
    (launched.slot.path / "state.json").unlink()
    await launched.room.start()
    await launched.until(Status.UP)
    assert starts_of(launched.slot) == 1


async def test_down_ends_everything_that_a_process_has_started_and_agents_respect_it(launch: Launch) -> None:
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
    launched = launch(
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
        "time.sleep(1000)\n"
    )
    await launched.up()
    wait_until(lambda: len(related(launched.slot)) == 2, "a child")
    launched.ask(ProcessChange.STOP)
    await launched.until(Status.STOPPED)
    wait_until(lambda: not related(launched.slot), "the end of both")
    await launched.room.clock.advance(200)
    assert starts_of(launched.slot) == 1
    assert await launched.room.store.run(ops.servers_out_of_work) == []
    launched.ask(ProcessChange.UP)
    await launched.until(Status.UP)


async def test_a_restart_that_was_asked_for_lets_what_runs_there_end(launch: Launch) -> None:
    launched = launch()
    await launched.room.submit("a", "b")
    await launched.up()
    launched.comfy.begin()
    before = launched.slot.pid
    launched.ask(ProcessChange.RESTART)
    await launched.until(Status.DRAINING)
    await launched.room.clock.advance(30)
    assert (launched.state.status, launched.slot.pid) == (Status.DRAINING, before)
    assert launched.comfy.waiting == []
    launched.comfy.finish()
    await launched.until(Status.UP)
    assert launched.slot.pid != before
    await launched.room.clock.advance(3)
    launched.comfy.render()
    await launched.room.clock.advance(1)
    assert [(await launched.room.job(name)).status for name in "ab"] == ["done", "done"]
    assert [(await launched.room.job(name)).retries_attempted for name in "ab"] == [0, 0]


async def test_a_server_that_people_paused_is_still_paused_after_its_restart(launch: Launch) -> None:
    launched = launch()
    await launched.up()
    await launched.room.store.run(ops.pause_server, launched.url)
    await launched.room.clock.advance(3)
    launched.ask(ProcessChange.RESTART)
    await launched.until(Status.WAITING)
    await launched.until(Status.UP)
    await launched.room.clock.advance(3)
    (state,) = await launched.room.store.run(ops.servers_out_of_work)
    assert state.state is not ServerState.DRAINING


async def test_a_flood_of_output_is_kept_within_bounds(launch: Launch, tmp_path: Path) -> None:
    flood = "print('x' * 2_000_000, flush=True)\nopen('written', 'w').close()\n"
    launched = launch(f"{flood}import time\ntime.sleep(1000)\n")
    await launched.up(log_bytes=100_000)
    wait_until((tmp_path / "ComfyUI" / "written").exists, "its last word")
    await launched.room.clock.advance(3)
    sizes = [path.stat().st_size for path in launched.slot.path.glob("log*.txt")]
    assert max(sizes) <= 100_000
    assert 2 <= len(sizes) <= 3
    assert launched.state.status is Status.UP


async def test_a_process_ends_with_the_last_agent_if_that_is_asked_for(launch: Launch) -> None:
    launched = launch(stop_with_agent=True)
    await launched.up()
    await launched.room.stop()
    wait_until(lambda: not related(launched.slot), "its end")
    assert (launched.state.status, launched.state.wanted) == (Status.STOPPED, True)


async def test_a_card_is_given_more_processes_and_fewer(launch: Launch, tmp_path: Path) -> None:
    launched = launch(gpus=[0], per_gpu="auto")
    launched.slot = SlotFolder(tmp_path / "comfyui" / "gpu0-1")
    port = int(launched.url.rpartition(":")[2])
    second = f"http://127.0.0.1:{port + 1}"
    launched.room.servers[second] = FakeComfy(second, launched.room.clock)
    agent = await launched.room.start()
    await launched.until(Status.UP)
    supervisor = agent.supervisor
    assert supervisor is not None
    assert (supervisor.processes("gpu0"), await supervisor.shrink("gpu0")) == (1, None)
    assert await supervisor.grow("gpu0") == "gpu0-2"
    added = SlotFolder(tmp_path / "comfyui" / "gpu0-2")
    await launched.room.clock.advance(5)
    assert (added.state().status, supervisor.processes("gpu0")) == (Status.UP, 2)
    await launched.room.submit("a", "b", "c", "d")
    await launched.room.clock.advance(1)
    launched.room.servers[second].begin()
    assert await supervisor.shrink("gpu0") == "gpu0-2"
    await launched.room.clock.advance(20)
    assert (added.state().status, supervisor.processes("gpu0")) == (Status.DRAINING, 1)
    launched.room.servers[second].finish()
    await launched.room.clock.advance(5)
    assert (added.state().status, added.state().wanted) == (Status.STOPPED, True)
    assert [folder.name for folder in slots_in(tmp_path) if related(folder)] == ["gpu0-1"]
    assert os.getpgid(launched.slot.pid) == launched.slot.pid
