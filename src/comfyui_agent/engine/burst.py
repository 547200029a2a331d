"""One burst: the next few prompts of a folder, rendered in a process that may be killed at any moment.

The database is the truth. The state file mirrors it; when a burst begins, changes in the file are its user's requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from comfyui_agent.batches.state_file import (
    BadPrompt,
    BadState,
    Entry,
    State,
    nameless,
    read_prompt,
    read_state,
    remove_leftovers,
    with_new,
)
from comfyui_agent.clock import now
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.validation import shown_path
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import Batch, BatchKind, NewBatch, slug
from comfyui_agent.domain.binding import Unbindable
from comfyui_agent.domain.bursts import Item, ItemRequest, ItemStatus, Pick, poll_of, request_for, size_of, sizes
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.jobs import JobId, NewJob, Template, too_large
from comfyui_agent.domain.kinds import job_type_of
from comfyui_agent.engine.agent import Agent
from comfyui_agent.engine.composition import make_agent
from comfyui_agent.engine.state_mirror import StateMirror, Summary, entry_of, summarize
from comfyui_agent.events.bus import Bus
from comfyui_agent.fleet.server import Health
from comfyui_agent.pools import INTAKE
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import NamedLock
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)

TICK = 0.2
AT_ONCE = 500
FIRST_ANSWER_SECONDS = 15.0
AWAY_SECONDS = 60.0
ENDED = frozenset({EventName.JOB_DONE, EventName.JOB_FAILED, EventName.JOB_CANCELLED})


@dataclass(frozen=True)
class BurstPlan:
    prompts: Path
    template: Template
    workflow_id: str
    place: str
    state: Path
    output: Path
    size: int = 15
    poll_seconds: float = 5.0
    max_seconds: float | None = None
    values: Callable[[str], Mapping[str, Any]] | None = None
    """The values by place for an item, from its text; Unbindable if there are none. None: the text alone."""

    def values_of(self, text: str) -> Mapping[str, Any]:
        return {self.place: text} if self.values is None else self.values(text)

    @property
    def batch_id(self) -> str:
        """The same for every burst with one state file."""
        path = os.path.realpath(self.state)
        return f"{slug(self.state.stem) or 'burst'}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


class BurstIsBusy(Exception):
    """Another process works on the same state file."""


class BurstIsPaused(Exception):
    """People have paused it."""


class Burst:
    """Prepares, works and mirrors. Only one process at a time works on a state file."""

    def __init__(self, store: Store, workspace: Workspace, plan: BurstPlan) -> None:
        self._store = store
        self._plan = plan
        self._workspace = replace(workspace, named=(*workspace.named, plan.output))
        self._lock = NamedLock(plan.state.with_name(f".{plan.state.name}.lock"))
        self._mirror = StateMirror(store, plan.batch_id, plan.state)
        self._changed = asyncio.Event()
        self._level = 0
        self._before: dict[str, ItemStatus] = {}
        self.batch_id = plan.batch_id
        self.bus = Bus()
        self.notes: list[str] = []
        """What a person should know before it begins, a line each."""
        self.picked = 0

    @property
    def items(self) -> list[Item]:
        return list(self._mirror.items.values())

    @property
    def size(self) -> int:
        return size_of(self._plan.size, self._level)

    async def run(
        self, began: Callable[[], None] = lambda: None, ended: Callable[[Summary], None] = lambda _: None
    ) -> Summary:
        """One burst, from the state file to the summary. A kill before `ended` was called makes the next one smaller.
        BurstIsBusy, BurstIsPaused, BadState, or OSError if the state file cannot be written."""
        started = now()
        if not self._lock.take():
            raise BurstIsBusy
        try:
            self._check_memory()
            await self._prepare()
            began()
            is_work_left = self.picked > 0 and any(item.word is ItemStatus.PENDING for item in self.items)
            trouble = await self._work(started) if is_work_left else ""
            await self._mirror.write(persists=False)
            summary = self.summary(trouble, step=-1 if self.picked else 0)
            ended(summary)
            await self._store.run(ops.end_burst, self.batch_id, has_worked=self.picked > 0)
            return summary
        finally:
            self._lock.release()

    def _check_memory(self) -> None:
        """A state file belongs to one memory: with another, everything would be rendered again."""
        file, other = self._workspace.database_file, self._lock.note()
        own = self._workspace.database_name if file is None else os.path.realpath(file)
        if other and other != own and ("://" in other or Path(other).is_file()):
            name = shown_path(self._plan.state)
            raise BadState(f"{name} has its memory in {other}: run the burst there, or with --database {other}")
        self._lock.note(own)

    def look(self) -> Summary:
        """How it stands, without a part in it: what the state file and the folder say."""
        entries = with_new(read_state(self._plan.state, keeps_aside=False).entries, self._plan.prompts)
        return summarize(self.batch_id, entries, self._before, 0, self._plan.size)

    def summary(self, trouble: str = "", *, step: int = 1) -> Summary:
        next_size = size_of(self._plan.size, self._level + step)
        summary = summarize(self.batch_id, self._mirror.entries, self._before, self.picked, next_size, trouble)
        attention = {key for key, item in self._mirror.items.items() if item.needs_attention}
        failures = tuple(each for each in summary.failures if each[0] in attention)
        cancelled = summary.failed - sum(self._before.get(key) is not ItemStatus.FAILED for key in attention)
        waiting = self._in_turn()
        next_item = waiting[0][0] if waiting else summary.next_item
        return replace(
            summary, attention=len(attention), cancelled=max(0, cancelled), failures=failures, next_item=next_item
        )

    async def _prepare(self) -> None:
        """Read the file, see what its user wants, and choose what this burst renders."""
        plan = self._plan
        remove_leftovers(plan.state)
        state = read_state(plan.state)
        if state.kept_aside is not None:
            self.notes.append(
                f"the state file {shown_path(plan.state)} could not be read: it is kept as {state.kept_aside.name}, "
                "and a new one is made from the folder and the memory"
            )
        entries = with_new(state.entries, plan.prompts)
        self.notes += [f"{path!r}: its name is not UTF-8: rename it; left out" for path in nameless(plan.prompts)]
        await self._check_results(entries)
        batch = await self._known_batch()
        if batch.is_paused:
            raise BurstIsPaused
        await self._take_in(entries)
        await self._store.run(ops.open_batch, self.batch_id)  # once; a burst may have been killed before it did
        items = {item.key: item for item in await self._store.run(ops.burst_items, self.batch_id)}
        if state.digest:  # gone from the folder, and taken out of the file
            gone = [item for key, item in items.items() if key not in entries and not item.is_at_server]
            await self._store.run(ops.forget_items, [item.job_id for item in gone])
            items = {key: item for key, item in items.items() if item not in gone}
        unsaid = {key: entry_of(item, plan.prompts) for key, item in items.items() if key not in state.entries}
        self._mirror.entries, self._mirror.digest = {**entries, **unsaid}, state.digest
        written = batch.metadata.get("digest"), batch.metadata.get("digest_before")
        is_untouched = state.digest != "" and state.digest in written
        requests = self._requests(state, items, is_untouched, batch.metadata.get("last"))
        lowest = len(sizes(plan.size)) - 1
        self._level = await self._store.run(ops.begin_burst, self.batch_id, str(os.getpid()), requests, lowest)
        await self._mirror.reload()
        await self._mirror.write(persists=False)
        self._before = {key: entry.word for key, entry in self._mirror.entries.items()}
        await self._pick()
        await self._mirror.reload()
        await self._mirror.write(persists=False)

    async def _known_batch(self) -> Batch:
        batch = await self._store.run(ops.find_batch, self.batch_id)
        if batch is None:
            facts = {"state_file": os.path.abspath(self._plan.state), "prompts": os.path.abspath(self._plan.prompts)}
            name = slug(self._plan.prompts.name) or "burst"
            await self._store.run(ops.create_batch, NewBatch(self.batch_id, name, BatchKind.BURST, facts), None)
            batch = await self._store.run(ops.find_batch, self.batch_id)
        assert batch is not None
        return batch

    async def _check_results(self, entries: dict[str, Entry]) -> None:
        """BadState if a new item would be rendered for a name that another job has."""
        known = {item.key for item in await self._store.run(ops.burst_items, self.batch_id)}
        names = {self._workspace.shown(Path(self._target(entries[key]))): key for key in entries if key not in known}
        for name in sorted(await self._store.run(ops.owned_files, list(names))):
            raise BadState(
                f"{names[name]}: {name} is a result already, of another prompt or job: name another --output-dir, "
                "and another --state to keep two folders apart"
            )

    async def _take_in(self, entries: dict[str, Entry]) -> None:
        """Every item is a job from the start, so that counts are those of the whole folder."""
        known = {item.key for item in await self._store.run(ops.burst_items, self.batch_id)}
        graph = self._plan.template.graph()
        fresh = [
            NewJob(
                config_name=f"{self.batch_id}{key}",
                job_type=job_type_of(graph),
                workflow_id=self._plan.workflow_id,
                template=self._plan.template,
                priority=self._workspace.settings.default_priority,
                metadata={"prompt": key, "subfolder": entries[key].subfolder, "filename": entries[key].filename},
                batch_id=self.batch_id,
                batch_index=len(known) + number,
                reserved=True,
            )
            for number, key in enumerate(key for key in entries if key not in known)
        ]
        for start in range(0, len(fresh), AT_ONCE):
            await self._store.run(ops.fill_batch, fresh[start : start + AT_ONCE])

    def _requests(
        self, state: State, items: dict[str, Item], is_untouched: bool, unsure: object
    ) -> list[tuple[JobId, ItemRequest]]:
        """What the file asks for. `unsure`: items whose last write may not have reached the disk. Their status is
        ignored unless the file proves that the write happened."""
        found: list[tuple[JobId, ItemRequest]] = []
        doubtful = set(unsure) if isinstance(unsure, list) else set()
        for key, item in items.items():
            entry = state.entries.get(key)
            status = entry.word if entry else None
            if entry and item.job_id in doubtful and entry.word is ItemStatus.PENDING and not entry.is_told:
                continue
            is_new = item.written is None and item.word is ItemStatus.PENDING and not item.is_at_server
            request = request_for(status, item.written, None if is_new else item.word, is_untouched=is_untouched)
            if request is not ItemRequest.KEEP:
                found.append((item.job_id, request))
            if request is ItemRequest.AGAIN:
                self.notes.append(f"{key} is set to pending in the state file: it is rendered again")
        return found

    async def _pick(self) -> None:
        """The first items that wait, as many as the size allows; those at a server already come first, and all."""
        waiting, template = self._in_turn(), self._plan.template
        there = [
            Pick(item.job_id, template, file_path=self._target(self._mirror.entries[key]), is_at_server=True)
            for key, item in waiting
            if item.is_at_server
        ]
        free = [(key, item) for key, item in waiting if not item.is_at_server]
        chosen = free[: max(0, self.size - len(there))]
        self.picked = len(there) + len(chosen)
        picks = [await INTAKE.run(self._read, key, item) for key, item in chosen]
        self.notes += [each.problem for each in picks if each.problem]
        await self._store.run(ops.pick_items, self.batch_id, [*there, *picks])

    def _in_turn(self) -> list[tuple[str, Item]]:
        """The items that wait: those at a server first, those whose retry is not due yet last."""
        known = ((key, self._mirror.items[key]) for key in self._mirror.entries if key in self._mirror.items)
        waiting = [(key, item) for key, item in known if item.word is ItemStatus.PENDING]
        return sorted(waiting, key=lambda each: (not each[1].is_at_server, each[1].is_backing_off))

    def _read(self, key: str, item: Item) -> Pick:
        try:
            text = read_prompt(key)
        except BadPrompt as error:
            return Pick(item.job_id, self._plan.template, problem=str(error))
        try:
            values = self._plan.values_of(text)
            problem = too_large(values, None, self._workspace.settings.job_limit_kb)
        except Unbindable as error:
            problem = str(error)
        if problem:
            return Pick(item.job_id, self._plan.template, problem=f"{key}: {problem}")
        return Pick(item.job_id, self._plan.template, values, self._target(self._mirror.entries[key]))

    def _target(self, entry: Entry) -> str:
        """Where the result of an item goes; its ending follows the bytes."""
        stem = Path(entry.filename).stem or entry.filename
        return (Path(os.path.abspath(self._plan.output)) / entry.subfolder / f"{stem}.png").as_posix()

    async def _work(self, started: float) -> str:
        """Work until the items of this burst have ended; why it ended before, if it did."""
        seconds = poll_of(self._plan.poll_seconds, self._level)
        settings = self._workspace.settings.model_copy(update={"poll_interval_ms": round(seconds * 1000)})
        workspace = replace(self._workspace, settings=settings)
        agent = make_agent(self._store, workspace, self.bus, only=self.batch_id, is_quiet=True)
        unsubscribe = self.bus.subscribe(self._hear)
        working = asyncio.create_task(agent.run(until_idle=True))
        mirroring = asyncio.create_task(self._keep_mirroring())
        try:
            while not (await asyncio.wait({working, mirroring}, timeout=TICK))[0]:
                trouble = self._reason_to_end(agent, started)
                if trouble is not None:
                    return trouble
            if mirroring.done():
                mirroring.result()
            working.result()
            return agent.blocked
        finally:
            unsubscribe()
            await end_tasks([working, mirroring])
            with contextlib.suppress(StoreError, OSError):
                await self._mirror.reload()
                await self._mirror.write(persists=False)

    def _reason_to_end(self, agent: Agent, started: float) -> str | None:
        """None to go on. An empty text: its time is over."""
        if self._plan.max_seconds is not None and now() - started >= self._plan.max_seconds:
            return ""
        servers = [server for server in agent.fleet.servers.values() if not server.is_retired]
        if any(server.health is not Health.DOWN for server in servers):
            return None
        longest = AWAY_SECONDS if any(server.answered_at for server in servers) else FIRST_ANSWER_SECONDS
        if all(server.seconds_down() > longest for server in servers):
            names = ", ".join(server.name for server in servers)
            return f"{names} does not answer ({servers[0].reason}): start it, then run the burst again"
        return None

    def _hear(self, event: Event) -> None:
        if event.name in ENDED and event.batch_id == self.batch_id:
            self._changed.set()

    async def _keep_mirroring(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._mirror.reload()
            await self._mirror.write()
