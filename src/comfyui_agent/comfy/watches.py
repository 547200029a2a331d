"""All watched prompts of one server: the websocket gives the hint, the queue and the history give the truth."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from typing import Any

from comfyui_agent.comfy.answers import HistoryEntry
from comfyui_agent.comfy.definitions import NodeDefinitions
from comfyui_agent.comfy.errors import ClientClosed, ComfyError
from comfyui_agent.comfy.frames import Event, Preview
from comfyui_agent.comfy.listener import Listener
from comfyui_agent.comfy.lookup import Running, Waiting, in_queue, look_at_history, look_at_queue
from comfyui_agent.comfy.outcomes import Failed, Known, Outcome, Succeeded, read_outcome
from comfyui_agent.comfy.transport import Transport
from comfyui_agent.comfy.vanished import all_exist, judge_vanished
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.domain.failures import Failure, FailureClass

log = logging.getLogger(__name__)

UNHEARD_GRACE = 1.0


class Watches:
    """Settles each watched prompt once. It polls as long as anything is watched, whatever the websocket says."""

    def __init__(self, transport: Transport, definitions: NodeDefinitions, client_id: str) -> None:
        self._transport = transport
        self._definitions = definitions
        self._server = str(transport.address)
        self._watches: dict[str, Watch] = {}
        self._any = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: str = ""
        self._unheard: dict[str, float] = {}
        self._last_submit_at = 0.0
        self.listener = Listener(transport, client_id, self._hear)

    def start(self) -> None:
        self._spawn(self._poll_forever())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in list(self._tasks):
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.listener.stop()
        for watch in list(self._watches.values()):
            self.drop(watch)
            watch.abandon(ClientClosed(f"the client of {self._server} was closed before the prompt ended"))

    def __len__(self) -> int:
        return len(self._watches)

    def get(self, prompt_id: str) -> Watch | None:
        return self._watches.get(prompt_id)

    def add(self, watch: Watch) -> Watch:
        """Register a prompt before it is sent, so that no frame about it is missed."""
        if watch.prompt_id in self._watches:
            raise ValueError(f"prompt {watch.prompt_id} is watched already: a prompt id is used once")
        self._watches[watch.prompt_id] = watch
        self._any.set()
        return watch

    def accepted(self, watch: Watch, ours: bool) -> None:
        """The server has the prompt: from now on its absence means something."""
        watch.judged.may_be_judged = True
        watch.is_ours = ours
        if ours:
            self._last_submit_at = time.monotonic()
        if watch.heard.end:
            self._spawn(self._settle_by_hint(watch))

    def drop(self, watch: Watch) -> None:
        """Forget a prompt that was never accepted, or that nobody waits for any more."""
        self._watches.pop(watch.prompt_id, None)
        if not self._watches:
            self._any.clear()

    def _settle(self, watch: Watch, outcome: Outcome) -> None:
        self.drop(watch)
        if isinstance(outcome, Failed):
            outcome = replace(outcome, failure=outcome.failure.cleaned(self._transport.address.without_secrets))
        watch.settle(outcome)
        if watch.is_ours and not watch.heard.end and self.listener.is_open:
            self._unheard[watch.prompt_id] = time.monotonic()

    def _hear(self, frame: Event | Preview) -> None:
        if isinstance(frame, Preview):
            watch = self._watches.get(frame.prompt_id or self._running)
            if watch is not None:
                watch.hear_preview(frame)
            return
        prompt_id = frame.prompt_id or (self._running if frame.kind == "executing" else "")
        self._running = prompt_id or self._running
        self._unheard.pop(prompt_id, None)
        watch = self._watches.get(prompt_id)
        if watch is not None and watch.hear(frame) and watch.judged.may_be_judged:
            self._spawn(self._settle_by_hint(watch))

    async def _settle_by_hint(self, watch: Watch) -> None:
        """The websocket says that it ended. If the history does not agree, the next poll goes on looking."""
        if watch.judged.is_asked:
            return
        watch.judged.is_asked = True
        try:
            with contextlib.suppress(ComfyError):
                entry = await look_at_history(self._transport, watch.prompt_id)
                if entry is not None:
                    await self._judge(watch, entry)
        finally:
            watch.judged.is_asked = False

    async def _judge(self, watch: Watch, entry: HistoryEntry) -> None:
        if watch.judged.is_settling or watch.is_over:
            return
        watch.judged.is_settling = True
        try:
            known = Known(
                server=self._server,
                node_errors=watch.node_errors or (),
                dropped=await self._dropped(watch, entry),
                expected=watch.expected,
                cancel_requested=watch.cancel_requested,
                heard_errors=tuple(watch.heard.errors),
            )
            self._settle(watch, await self._with_files(read_outcome(entry, known)))
        finally:
            watch.judged.is_settling = False

    async def _dropped(self, watch: Watch, entry: HistoryEntry) -> frozenset[str]:
        """Outputs that the server left out, found without the answer to the post: it was lost, or never ours."""
        if watch.node_errors is not None or watch.expected is not None:
            return frozenset()
        outputs = await self._definitions.output_nodes(entry.graph)
        return outputs - frozenset(entry.outputs_to_execute)

    async def _with_files(self, outcome: Outcome) -> Outcome:
        """Files named from the cache may be long gone: see that they exist."""
        if not isinstance(outcome, Succeeded):
            return outcome
        old = tuple(file for file in outcome.results.files if file.node_id in outcome.cached_nodes)
        if not old or await all_exist(self._transport, old):
            return outcome
        failure = Failure(
            FailureClass.OUTPUT,
            f"the server answered from its cache, and {old[0].filename} is no longer there",
            server=self._server,
            prompt_id=outcome.prompt_id,
            node_id=old[0].node_id,
        )
        return Failed(outcome.prompt_id, failure, outcome.results, outcome.cached_nodes)

    async def _poll_forever(self) -> None:
        while True:
            await self._any.wait()
            await asyncio.sleep(self._transport.limits.poll_seconds)
            try:
                await self._poll([watch for watch in self._watches.values() if watch.judged.may_be_judged])
                await self._doubt_the_socket()
            except Exception:  # whatever it was, prompts are waited for: look again
                log.exception("looking at %s failed", self._server)

    async def _poll(self, watches: Iterable[Watch]) -> None:
        """First the queue, then, for what is not in it, the history."""
        watches = list(watches)
        if not watches:
            return
        try:
            view = await look_at_queue(self._transport)
        except ComfyError as error:
            for watch in watches:
                self._unreachable(watch, error)
            return
        for watch in watches:
            if watch.is_over:
                continue
            sighting = in_queue(view, watch.prompt_id)
            if isinstance(sighting, Running | Waiting):
                watch.judged.first_unknown_at = None
                watch.judged.unreachable_since = None
                watch.see_running() if isinstance(sighting, Running) else watch.see_waiting(sighting.ahead)
            else:
                await self._poll_history(watch)

    async def _poll_history(self, watch: Watch) -> None:
        try:
            entry = await look_at_history(self._transport, watch.prompt_id)
            if entry is not None:
                await self._judge(watch, entry)
            else:
                await self._unknown(watch)
            watch.judged.unreachable_since = None
        except ComfyError as error:
            self._unreachable(watch, error)

    async def _unknown(self, watch: Watch) -> None:
        now = time.monotonic()
        if watch.judged.first_unknown_at is None:
            watch.judged.first_unknown_at = now
        elif now - watch.judged.first_unknown_at >= self._transport.limits.look_again_seconds:
            self._settle(watch, await judge_vanished(self._transport, watch))

    def _unreachable(self, watch: Watch, error: ComfyError) -> None:
        now = time.monotonic()
        watch.judged.first_unknown_at = None
        if watch.judged.unreachable_since is None:
            watch.judged.unreachable_since = now
        elif now - watch.judged.unreachable_since >= self._transport.limits.lost_after_seconds:
            failure = error.failure(self._server, watch.prompt_id)
            self._settle(watch, Failed(watch.prompt_id, failure))

    async def _doubt_the_socket(self) -> None:
        """An open socket that did not tell what it must have told is replaced."""
        now = time.monotonic()
        quiet = self._transport.limits.socket_quiet_seconds
        ended_unheard = any(now - since > UNHEARD_GRACE for since in self._unheard.values())
        submitted_unheard = self.listener.last_frame_at < self._last_submit_at and now - self._last_submit_at > quiet
        if self.listener.is_open and (ended_unheard or submitted_unheard):
            await self.listener.refresh("the old one is silent")
        if ended_unheard or not self.listener.is_open:
            self._unheard.clear()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("watching prompts failed", exc_info=task.exception())
