"""Tuning on purpose: what `per_gpu: auto` does, with jobs of one workflow in a throw-away workspace."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.settings import Launch, Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.jobs import NewJob, Template
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.engine.agent import UNHURRIED_SECONDS
from comfyui_agent.engine.composition import make_agent
from comfyui_agent.engine.intake.input_files import InputFiles
from comfyui_agent.fleet.launch import process
from comfyui_agent.fleet.launch.plan import CPU, slots_here
from comfyui_agent.fleet.launch.state import slot_folders
from comfyui_agent.fleet.launch.supervisor import Supervisor
from comfyui_agent.fleet.launch.tuning import Tuning
from comfyui_agent.lab.payloads import Payload
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import NamedLock, is_attended_here
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.store import Store

LOOK_SECONDS = 0.5
NAME = "tune"


class CannotTune(Exception):
    """Why no number can be found: what is wrong, and what to do."""


def sandbox_in(workspace: Workspace, card: str = "") -> Workspace:
    """A workspace within another, which launches the same processes, on one card if one is named, as many as pay.

    Always the same folder, so that what a killed run left there is found. CannotTune if the processes are in use.
    """
    slots = slots_here(workspace)
    sections = {slot.key: slot.launch for slot in slots if slot.launch and card in ("", slot.card)}
    if not sections:
        cards = ", ".join(dict.fromkeys(slot.card for slot in slots))
        raise CannotTune(f"comfyui.launch has no card {card}: name one of {cards}" if cards else "there is no card")
    for folder in slot_folders(workspace):
        if process.is_running(folder) or (folder.state().is_wanted and is_attended_here(workspace.locks)):
            raise CannotTune(f"{folder.name} is in use: e3 comfyui down first, and e3 comfyui up afterwards")
    launches = tuple(_tuned(launch, workspace.root, card) for launch in sections.values())
    comfyui = workspace.settings.comfyui.model_copy(update={"launch": launches, "servers": ()})
    return Workspace(workspace.processes / NAME, Settings().model_copy(update={"comfyui": comfyui}))


def _tuned(launch: Launch, root: Path, card: str) -> Launch:
    directory = str(root / Path(launch.directory).expanduser())
    python = launch.python and str(root / Path(launch.python).expanduser())
    gpus = (int(card.removeprefix("gpu")),) if card not in ("", CPU) else launch.gpus
    changes = {"directory": directory, "python": python, "gpus": gpus, "per_gpu": "auto", "stop_with_agent": True}
    return launch.model_copy(update=changes)


@dataclass
class TuningRun:
    """Tunes the cards of a sandbox with so many jobs waiting. What was found so far stays when it is cancelled."""

    sandbox: Workspace
    payload: Payload
    jobs: int
    seconds: float
    cards: dict[str, Tuning] = field(default_factory=dict)
    rendered: int = 0
    _submitted: int = 0

    @property
    def is_settled(self) -> bool:
        """Whether no card has a process left to try."""
        return bool(self.cards) and all(each.found.is_settled or each.is_hindered for each in self.cards.values())

    async def until_settled(self, show: Callable[[], None]) -> None:
        """Render until every card is settled, or the time is over; CannotTune if that fails. No process is left."""
        lock = NamedLock(self.sandbox.root.with_suffix(".lock"))
        if not lock.take():
            raise CannotTune("another e3 tune runs here: wait for its end")
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(lock.release)
            stack.push_async_callback(asyncio.to_thread, self._clear)
            await asyncio.to_thread(self._clear)
            self.sandbox.root.mkdir(parents=True)
            store = await asyncio.to_thread(open_store, self.sandbox.database)
            stack.push_async_callback(store.close, timeout=LOOK_SECONDS)
            agent = make_agent(store, self.sandbox)
            agent.leaving_seconds = UNHURRIED_SECONDS
            assert agent.tuner is not None
            assert agent.supervisor is not None
            self.cards = agent.tuner.tunings
            working = asyncio.create_task(agent.run())
            stack.push_async_callback(end_tasks, [working])
            stack.push_async_callback(asyncio.wait, {working}, timeout=UNHURRIED_SECONDS)
            stack.callback(working.cancel)  # once, so that it can leave in peace
            job = await asyncio.to_thread(self._job)
            until = time.monotonic() + self.seconds
            while time.monotonic() < until and not self.is_settled and not working.done():
                await self._look(store, agent.supervisor, job)
                show()
                await asyncio.sleep(LOOK_SECONDS)
            show()
            if working.done():
                working.result()

    async def _look(self, store: Store, supervisor: Supervisor, job: NewJob) -> None:
        """See that work waits, and that it can be done."""
        counts = await store.run(ops.count_jobs)
        self.rendered = counts.done
        if counts.failed and not counts.done:
            (failed,) = await store.run(ops.list_jobs, status=JobStatus.FAILED, limit=1)
            reason = (failed.error_trace or "it failed").partition("\n")[0]
            raise CannotTune(f"{self.payload.name} cannot be rendered: {reason}")
        for card in self.cards:
            if supervisor.processes(card) == 1 and (reason := supervisor.failure(card)):
                raise CannotTune(f"{card}: ComfyUI was given up: {reason}")
        missing = range(self._submitted, self._submitted + self.jobs - counts.pending)
        self._submitted = max(self._submitted, missing.stop)
        await store.run(ops.submit_jobs, [self._varied(job, number) for number in missing])

    def _job(self) -> NewJob:
        template, files = Template.of(self.payload.varied(0, random.Random(), NAME)), InputFiles(self.sandbox)
        pictures = {where: files.keep(path) for where, path in self.payload.pictures.items()}
        return NewJob(NAME, "T2I", NAME, template, retry_limit=0, pictures=pictures)

    def _varied(self, job: NewJob, number: int) -> NewJob:
        values = self.payload.new_values(random.Random())
        inputs = {f"{node}.{name}": value for (node, name), value in values.items()}
        return replace(job, config_name=f"{NAME}_{number}", inputs=inputs)

    def _clear(self) -> None:
        for folder in slot_folders(self.sandbox):
            process.kill(folder)
        shutil.rmtree(self.sandbox.root, ignore_errors=True)

    def as_json(self) -> dict[str, Any]:
        """What has been found so far, in keys that scripts rely on."""
        cards = [_report(each) for each in self.cards.values()]
        return {"workflow": self.payload.name, "rendered": self.rendered, "settled": self.is_settled, "cards": cards}


def _report(tuning: Tuning) -> dict[str, Any]:
    found = tuning.found
    measured = [
        {
            "processes": number,
            "images_per_minute": rate,
            "gain": round(rate / fewer - 1, 4) if (fewer := found.per_minute.get(number - 1)) else None,
            "memory_bytes": found.memory[number] or None,
        }
        for number, rate in sorted(found.per_minute.items())
    ]
    return {"card": tuning.card, "per_gpu": found.kept, "decision": found.decision, "measured": measured}
