"""What is known about a slot: its state, shared by all agents and commands through a file in its folder."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.texts import TextEnum, whole
from comfyui_agent.store.agent_lock import NamedLock

CHANGE_SECONDS = 30.0
LONGEST_REASON = 1000


class Status(TextEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    """It runs and has not answered yet."""
    UP = "up"
    DRAINING = "draining"
    """It is to be stopped once nothing of ours is there."""
    STOPPING = "stopping"
    WAITING = "waiting"
    """It ended, and is started again after a backoff."""
    FAILED = "failed"
    """It ended too often. Nothing more is tried until a person asks for it."""


@dataclass(frozen=True)
class SlotState:
    """The state of a slot. Times are seconds since the machine was started, the same in every process."""

    url: str = ""
    card: str = ""
    status: Status = Status.STOPPED
    since: float = 0.0
    at: str = ""
    """The same moment in UTC, for people."""
    until: float = 0.0
    """The end of its backoff."""
    reason: str = ""
    wanted: bool = True
    """What people say."""
    spare: bool = False
    """What the tuner says."""
    restart: bool = False
    hurry: bool = False
    """Whether nobody waits for what runs there before it is stopped."""
    resume: bool = False
    """Whether it was drained for this, and gets work again afterwards."""
    restarts: int = 0
    bad_starts: tuple[float, ...] = ()

    @property
    def is_wanted(self) -> bool:
        return self.wanted and not self.spare

    def now(self, status: Status, now: float, reason: str | None = None) -> SlotState:
        """The same slot in another state from now on."""
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        reason = self.reason if reason is None else whole(reason, LONGEST_REASON)
        return replace(self, status=status, since=now, at=at, reason=reason)


STATE = TypeAdapter(SlotState)


def write_note(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: others read it at any moment."""
    unnamed = path.with_name(f"{path.stem}.{os.getpid()}.new")
    unnamed.write_bytes(data)
    unnamed.replace(path)


class SlotFolder:
    """The folder of one slot, with its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    def prepare(self) -> None:
        for name in ("output", "temp", "user"):
            (self.path / name).mkdir(0o700, parents=True, exist_ok=True)

    @contextlib.contextmanager
    def held(self, seconds: float = 0.0) -> Iterator[bool]:
        """Whether the slot is ours to act on meanwhile. Another process that acts on it is waited for so long."""
        lock, until = NamedLock(self.path / "slot.lock"), time.monotonic() + seconds
        while not (is_ours := lock.take()) and time.monotonic() < until:
            time.sleep(0.02)
        try:
            yield is_ours
        finally:
            lock.release()

    def state(self) -> SlotState:
        """What is known, or the state of a slot that was never used."""
        try:
            return STATE.validate_json((self.path / "state.json").read_bytes())
        except (OSError, ValueError):  # there is none, or it was written by hand
            return SlotState()

    def write(self, state: SlotState) -> None:
        write_note(self.path / "state.json", STATE.dump_json(state, indent=1))

    def change(self, change: Callable[[SlotState], SlotState]) -> SlotState:
        """Change the state, after whoever acts on the slot. TimeoutError if that one does not come to an end."""
        with self.held(CHANGE_SECONDS) as is_ours:
            if not is_ours:
                raise TimeoutError(f"{self.name}: another process has been acting on it for {CHANGE_SECONDS:.0f} s")
            state = change(self.state())
            self.write(state)
            return state

    def note(self) -> dict[str, Any]:
        """What the launcher wrote about the process; empty if that cannot be read."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            return dict(json.loads((self.path / "process.json").read_bytes()))
        return {}

    @property
    def pid(self) -> int:
        """The process that was started last; 0 if none was."""
        pid = self.note().get("pid", 0)
        return pid if isinstance(pid, int) and pid > 1 else 0


def slot_folders(workspace: Workspace) -> list[SlotFolder]:
    """The slots that were ever used, by name."""
    found = sorted(workspace.processes.glob("*/state.json"), key=lambda path: (len(path.parent.name), path))
    return [SlotFolder(path.parent) for path in found]


def server_urls(workspace: Workspace) -> tuple[str, ...]:
    """The configured servers, and those that E3 launches."""
    comfyui = workspace.settings.comfyui
    states = [folder.state() for folder in slot_folders(workspace)] if comfyui.launch else []
    launched = [state.url for state in states if state.is_wanted and state.url]
    return tuple(dict.fromkeys([*comfyui.urls, *launched]))
