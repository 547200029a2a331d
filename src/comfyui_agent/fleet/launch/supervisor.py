"""Keeps ComfyUI processes running: starts, adopts, restarts, drains and stops them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from comfyui_agent.clock import Clock
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.fleet.fleet import Fleet
from comfyui_agent.fleet.launch import lifecycle, process
from comfyui_agent.fleet.launch.lifecycle import Action, LaunchLimits, Seen
from comfyui_agent.fleet.launch.plan import Slot
from comfyui_agent.fleet.launch.state import SlotFolder, SlotState, Status
from comfyui_agent.fleet.server import Health
from comfyui_agent.pools import PROCESSES
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import working
from comfyui_agent.store.operation import OperationRunner

log = logging.getLogger(__name__)

LEAVING_SECONDS = 0.3


@dataclass
class Supervisor:
    """Looks at every slot again and again. Several may look at the same slots: one acts at a time."""

    slots: Sequence[Slot]
    workspace: Workspace
    fleet: Fleet
    store: OperationRunner
    clock: Clock
    note: Callable[[Event], Awaitable[None]]
    limits: LaunchLimits
    _reported: dict[str, str] = field(default_factory=dict, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def pause(self) -> None:
        """Wait until it is time for another look."""
        await self.clock.wait_for(self._wake, self.limits.look_seconds)
        self._wake.clear()

    async def look(self) -> dict[str, SlotState]:
        """Look at every slot once, and do what is to be done. Returns their states."""
        out_of_work = {each.server: each.state for each in await self.store.run(ops.servers_out_of_work)}
        states = await asyncio.gather(*(self._look_at(slot, out_of_work.get(slot.url)) for slot in self.slots))
        return {slot.name: state for slot, state in zip(self.slots, states, strict=True)}

    async def _look_at(self, slot: Slot, out_of_work: ServerState | None) -> SlotState:
        before, state = await PROCESSES.run(self._act, slot, self._seen_by_fleet(slot, out_of_work))
        if state.is_wanted:
            await self.fleet.employ(slot.url)
        else:
            self.fleet.retire(slot.url)
        await self._report(before, state)
        if state.status is Status.DRAINING and out_of_work not in (ServerState.DRAINING, ServerState.DRAINED):
            await self.store.run(ops.drain_server, slot.url)
        if state.resume and state.status in (Status.UP, Status.STOPPED) and not state.restart:
            await self.store.run(ops.resume_server, slot.url)
            state = await self._change(slot, lambda now: replace(now, resume=False))
        return state

    def _seen_by_fleet(self, slot: Slot, out_of_work: ServerState | None) -> Seen:
        is_drained, is_out_of_work = out_of_work is ServerState.DRAINED, out_of_work is not None
        seen = Seen(is_running=False, is_drained=is_drained, is_out_of_work=is_out_of_work)
        server = self.fleet.servers.get(slot.url)
        if server is None:
            return seen
        return replace(
            seen,
            answered_at=server.answered_at if server.answers else 0.0,
            rendered_at=server.rendered_at,
            silent_seconds=server.seconds_down(),
            stuck_seconds=self.clock.now() - server.since if server.health is Health.ASIDE else 0.0,
        )

    def _act(self, slot: Slot, seen: Seen) -> tuple[SlotState, SlotState]:
        """The state of a slot before and after, called in a thread. A slot that somebody else acts on is left alone."""
        folder = slot.folder(self.workspace)
        with folder.held() as is_ours:
            before = self._known(slot)
            if not is_ours:
                return before, before
            state = self._step(slot, folder, before, seen)
            process.rotate_log(folder, self.limits.log_bytes)
            if state != before or not (folder.path / "state.json").exists():
                try:
                    folder.write(state)
                except OSError as error:  # the process goes on, and is adopted when there is room again
                    log.error("%s: its state cannot be written: %s", slot.name, error)
        return before, state

    def _known(self, slot: Slot) -> SlotState:
        state = slot.folder(self.workspace).state()
        spare = state.spare and slot.is_tuned if state.url else slot.is_spare
        return replace(state, url=slot.url, card=slot.card, spare=spare)

    def _step(self, slot: Slot, folder: SlotFolder, state: SlotState, seen: Seen) -> SlotState:
        now = self.clock.now()
        is_running = process.is_running(folder)
        trouble = self._reported.pop(slot.name, "") or (self._trouble(slot, folder) if is_running else "")
        words = "" if is_running and state.status is not Status.STARTING else process.last_words(folder)
        is_drained = seen.is_drained or not working(self.workspace.locks)  # without an agent, no drain ends
        seen = replace(seen, is_running=is_running, is_drained=is_drained, trouble=trouble, last_words=words)
        restarts, (state, action) = state.restarts, lifecycle.decide(state, seen, now, self.limits)
        if action is Action.TERMINATE:
            process.terminate(folder)
        elif action is Action.KILL:
            process.kill(folder)
        elif action is Action.START:
            try:
                process.start(slot, folder, self.workspace.root)
            except process.CannotStart as error:
                state = lifecycle.after_fault(replace(state, restarts=restarts), now, self.limits, str(error))
        return state

    def _trouble(self, slot: Slot, folder: SlotFolder) -> str:
        if folder.note().get("url") != slot.url:
            return f"it runs at another port than {slot.port}"
        words = lifecycle.lost_context_in_log(process.log_tail(folder))
        return f"it has lost its card: {words}" if words else ""

    async def _report(self, before: SlotState, state: SlotState) -> None:
        if state.status is before.status:
            return
        log.info("%s: %s%s", state.url, state.status, f" ({state.reason})" if state.reason else "")
        if state.status is Status.STARTING:
            name = EventName.SERVER_RESTARTED if before.reason else EventName.SERVER_STARTED
            await self.note(Event(name, server=state.url, message=before.reason or None))
        if state.status is Status.FAILED:
            message = f"not started again: {state.reason}. Mend that, then: e3 comfyui up"
            await self.note(Event(EventName.ALERT_SERVER, server=state.url, message=message))

    def report_lost_context(self, server: str, message: str) -> bool:
        """Whether the message of a failed prompt means that a supervised server is restarted."""
        slot = next((slot for slot in self.slots if slot.url == server), None)
        if slot is None or not lifecycle.lost_context_in(message):
            return False
        self._reported[slot.name] = f"it has lost its card: {message[:200]}"
        known = self.fleet.servers[server]
        known.rest(self.limits.look_seconds + LEAVING_SECONDS)
        self.fleet.mark_down(known, "it has lost its card")
        self._wake.set()
        return True

    def processes(self, card: str) -> int:
        """How many processes of a card are wanted."""
        return len(self._wanted(card))

    def failure(self, card: str) -> str:
        """Why a wanted process of a card was given up; empty if none was."""
        return next((state.reason for state in self._wanted(card) if state.status is Status.FAILED), "")

    def _wanted(self, card: str) -> list[SlotState]:
        states = [self._known(slot) for slot in self.slots if slot.card == card]
        return [state for state in states if state.is_wanted]

    async def grow(self, card: str) -> str | None:
        """Want one more process on a card whose number is found by measuring. Its name; None if there is no room."""
        return await self._tune(self.slots, card, spare=False)

    async def shrink(self, card: str) -> str | None:
        """Want one process less there: one that was given up, else the last. Its name; None if only one is left."""
        if self.processes(card) <= 1:
            return None
        failed = [slot for slot in self.slots if self._known(slot).status is Status.FAILED]
        return await self._tune([*failed, *self.slots[::-1]], card, spare=True)

    async def _tune(self, slots: Sequence[Slot], card: str, *, spare: bool) -> str | None:
        for slot in slots:
            known = self._known(slot)
            if slot.card == card and slot.is_tuned and known.wanted and known.spare is not spare:
                await self._change(slot, lambda now: replace(now, spare=spare))
                self._wake.set()
                return slot.name
        return None

    async def _change(self, slot: Slot, change: Callable[[SlotState], SlotState]) -> SlotState:
        return await PROCESSES.run(slot.folder(self.workspace).change, lambda _: change(self._known(slot)))

    async def leave(self) -> None:
        """End what is not to outlive the agent."""
        leaving = [slot for slot in self.slots if slot.launch and slot.launch.stop_with_agent]
        folders = [slot.folder(self.workspace) for slot in leaving]
        for folder in folders:
            await PROCESSES.run(process.terminate, folder)
        await self.clock.wait_while(lambda: any(map(process.is_running, folders)), LEAVING_SECONDS)
        for folder in folders:
            await PROCESSES.run(process.kill, folder)
            await PROCESSES.run(folder.change, lambda state: state.now(Status.STOPPED, self.clock.now(), ""))
