"""All watched prompts of one server: the websocket gives the hint, the queue and the history give the truth."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.answers import HistoryEntry, QueueView
from comfyui_agent.comfy.definitions import NodeDefinitions
from comfyui_agent.comfy.errors import AnswerTooLarge, ClientClosed, ComfyError, ProtocolError, Unreadable
from comfyui_agent.comfy.frames import Event, Preview
from comfyui_agent.comfy.judgement import judge_ended, judge_vanished
from comfyui_agent.comfy.listener import Listener, Tap
from comfyui_agent.comfy.lookup import Running, in_queue, look_at_history, look_at_job, look_at_queue
from comfyui_agent.comfy.outcomes import Failed, Outcome
from comfyui_agent.comfy.tasks import BackgroundTasks
from comfyui_agent.comfy.transport import Transport
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.domain.failures import Failure
from comfyui_agent.domain.texts import printable

log = logging.getLogger(__name__)

UNHEARD_GRACE = 1.0
LOOKS_AT_ONCE = 8


class Watches:
    """Settles each watched prompt once. It polls as long as anything is watched, whatever the websocket says."""

    def __init__(
        self,
        transport: Transport,
        definitions: NodeDefinitions,
        client_id: str,
        clock: Clock,
        tap: Tap | None = None,
    ) -> None:
        self._clock = clock
        self._transport = transport
        self._definitions = definitions
        self._server = str(transport.address)
        self._watches: dict[str, Watch] = {}
        self._any = asyncio.Event()
        self._tasks = BackgroundTasks("watching prompts")
        self._looks = asyncio.Semaphore(LOOKS_AT_ONCE)
        self._running: str = ""
        self._unheard: dict[str, float] = {}
        self._last_submit_at = 0.0
        self._is_closed = False
        self.queue_seen: tuple[float, QueueView] | None = None
        """The newest look at the queue, and when it was."""
        self.listener = Listener(transport, client_id, self._hear, clock, tap)

    def start(self) -> None:
        self._tasks.start(self._poll_forever())

    async def stop(self) -> None:
        self._is_closed = True
        await self._tasks.stop()
        await self.listener.stop()
        for watch in list(self._watches.values()):
            self.drop(watch)
            watch.abandon(self._closed())

    def get(self, prompt_id: str) -> Watch | None:
        return self._watches.get(prompt_id)

    def add(self, watch: Watch) -> Watch:
        """Register a prompt before it is sent, so that no frame about it is missed."""
        if self._is_closed:
            raise self._closed()
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
            self._last_submit_at = self._clock.now()
        if watch.heard.end:
            self._tasks.start(self._settle_by_hint(watch))
        elif not ours:  # it may have ended long ago, without a frame to come
            self._tasks.start(self._poll([watch]))

    def drop(self, watch: Watch) -> None:
        """Forget a prompt that was never accepted, or that nobody waits for any more."""
        if self._watches.get(watch.prompt_id) is watch:
            del self._watches[watch.prompt_id]
        if not self._watches:
            self._any.clear()

    def _closed(self) -> ClientClosed:
        return ClientClosed(f"the client of {self._server} is closed: how the prompt ends is not known here")

    def _settle(self, watch: Watch, outcome: Outcome) -> None:
        self.drop(watch)
        if isinstance(outcome, Failed):  # its texts go to databases, logs and terminals
            without_secrets = self._transport.address.without_secrets
            failure = outcome.failure.cleaned(lambda text: printable(without_secrets(text)))
            failure = replace(failure, server=self._server, prompt_id=watch.prompt_id)
            outcome = replace(outcome, failure=failure)
        watch.settle(outcome)

    def _hear(self, frame: Event | Preview) -> None:
        if isinstance(frame, Preview):
            watch = self._watches.get(frame.prompt_id or self._running)
            if watch is not None:
                watch.update(preview=frame)
            return
        prompt_id = frame.prompt_id or (self._running if frame.kind == "executing" else "")
        self._running = prompt_id or self._running
        self._unheard.pop(prompt_id, None)
        watch = self._watches.get(prompt_id)
        if watch is not None and watch.hear(frame) and watch.judged.may_be_judged:
            self._tasks.start(self._settle_by_hint(watch))

    async def _settle_by_hint(self, watch: Watch) -> None:
        """The websocket says that it ended. If the history does not agree, the next poll looks again."""
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
            self._settle(watch, await judge_ended(self._transport, self._definitions, watch, entry))
            if watch.is_ours and not watch.heard.end and self.listener.is_open:
                self._unheard[watch.prompt_id] = self._clock.now()
        finally:
            watch.judged.is_settling = False

    async def _poll_forever(self) -> None:
        limits = self._transport.limits
        while not self._is_closed:
            await self._any.wait()
            often = not self.listener.is_open and not limits.is_quiet
            pause = min(limits.poll_seconds, limits.deaf_poll_seconds) if often else limits.poll_seconds
            await self._clock.sleep(pause)
            try:
                await self._poll([watch for watch in self._watches.values() if watch.judged.may_be_judged])
                await self._doubt_the_socket()
            except Exception:  # whatever it was, prompts are waited for: look again
                log.exception("polling %s failed", self._server)

    async def _poll(self, watches: list[Watch]) -> None:
        """First the queue, then, for what is not in it, the history."""
        if not watches:
            return
        view: QueueView | None = None
        try:
            view = await look_at_queue(self._transport)
            self.queue_seen = self._clock.now(), view
        except AnswerTooLarge:
            log.debug("%s: the queue is too long to be read, asking for each prompt", self._server)
        except ComfyError as error:
            for watch in watches:
                self._unreachable(watch, error.failure(self._server, watch.prompt_id))
            return
        await asyncio.gather(*(self._look(watch, view) for watch in watches if not watch.is_over))

    async def _look(self, watch: Watch, view: QueueView | None) -> None:
        async with self._looks:
            try:
                if view is not None:
                    sighting = in_queue(view, watch.prompt_id)
                else:
                    sighting = await look_at_job(self._transport, watch.prompt_id)
                if sighting is None:
                    await self._look_at_history(watch)
                else:
                    watch.judged.first_unknown_at = None
                    watch.see_running() if isinstance(sighting, Running) else watch.see_waiting(sighting.ahead)
                watch.judged.unreachable_since = None
            except ComfyError as error:
                self._unreachable(watch, error.failure(self._server, watch.prompt_id))

    async def _look_at_history(self, watch: Watch) -> None:
        try:
            entry = await look_at_history(self._transport, watch.prompt_id)
        except ProtocolError as error:
            raise Unreadable(f"how the prompt ended cannot be read: {error.message}") from None
        now = self._clock.now()
        if entry is not None:
            await self._judge(watch, entry)
        elif watch.judged.first_unknown_at is None:
            watch.judged.first_unknown_at = now
        elif now - watch.judged.first_unknown_at >= self._transport.limits.look_again_seconds:
            self._settle(watch, await judge_vanished(self._transport, watch))

    def _unreachable(self, watch: Watch, failure: Failure) -> None:
        """Nothing is known at the moment; after a while that is the outcome."""
        now = self._clock.now()
        watch.judged.first_unknown_at = None
        watch.judged.trouble = failure
        if watch.judged.unreachable_since is None:
            watch.judged.unreachable_since = now
        elif now - watch.judged.unreachable_since >= self._transport.limits.lost_after_seconds:
            self._settle(watch, Failed(watch.prompt_id, failure))

    async def _doubt_the_socket(self) -> None:
        """Replace an open socket on which frames that must have been sent did not come."""
        now = self._clock.now()
        quiet = self._transport.limits.socket_quiet_seconds
        ended_unheard = any(now - since > UNHEARD_GRACE for since in self._unheard.values())
        submitted_unheard = self.listener.last_frame_at < self._last_submit_at and now - self._last_submit_at > quiet
        if self.listener.is_open and (ended_unheard or submitted_unheard):
            await self.listener.refresh()
        if ended_unheard or not self.listener.is_open:
            self._unheard.clear()
