"""Answers of a server as types. Unknown keys are ignored, missing ones are errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from comfyui_agent.comfy.errors import ProtocolError
from comfyui_agent.comfy.shapes import expect, number, optional_list, optional_number, optional_object, optional_text
from comfyui_agent.domain.prompts import Graph


@dataclass(frozen=True)
class QueuedPrompt:
    number: float
    prompt_id: str
    client_id: str


@dataclass(frozen=True)
class QueueView:
    """A server's queue: running prompts, and waiting ones in the order in which they will run."""

    running: tuple[QueuedPrompt, ...]
    pending: tuple[QueuedPrompt, ...]

    @classmethod
    def read(cls, document: Any) -> QueueView:
        queue = expect(dict, document, "the queue")
        running = tuple(_queued(item) for item in expect(list, queue.get("queue_running"), "queue_running"))
        pending = [_queued(item) for item in expect(list, queue.get("queue_pending"), "queue_pending")]
        return cls(running, tuple(sorted(pending, key=lambda item: (item.number, item.prompt_id))))


def _queued(item: Any) -> QueuedPrompt:
    parts = expect(list, item, "a queue item")
    if len(parts) < 4:
        raise ProtocolError(f"a queue item should have five parts, not {len(parts)}")
    return QueuedPrompt(
        number=number(parts[0], "a queue number"),
        prompt_id=expect(str, parts[1], "a prompt id"),
        client_id=optional_text(optional_object(parts[3]).get("client_id")),
    )


@dataclass(frozen=True)
class Message:
    """One milestone of a run: `execution_start`, `execution_cached`, `execution_success`, …"""

    event: str
    data: Mapping[str, Any]

    @property
    def timestamp(self) -> float | None:
        """Seconds since the epoch by the server's clock."""
        milliseconds = optional_number(self.data.get("timestamp"))
        return None if milliseconds is None else milliseconds / 1000


@dataclass(frozen=True)
class HistoryEntry:
    """A server's record of an ended prompt."""

    prompt_id: str
    graph: Graph
    outputs_to_execute: tuple[str, ...]
    outputs: Mapping[str, Any]
    status: str
    completed: bool
    messages: tuple[Message, ...]
    told: Mapping[str, Any] = field(default_factory=dict)
    """Outputs, status and meta, to the letter, and the order of its output nodes."""

    @classmethod
    def read(cls, prompt_id: str, document: Any) -> HistoryEntry | None:
        """The entry of a prompt in the answer to `/history/{id}`. None if there is none."""
        history = expect(dict, document, "the history")
        if prompt_id not in history:
            return None
        entry = expect(dict, history[prompt_id], "a history entry")
        prompt = expect(list, entry.get("prompt"), "the prompt of a history entry")
        status = expect(dict, entry.get("status") or {}, "the status of a history entry")
        messages = expect(list, status.get("messages") or [], "the messages of a history entry")
        listed = optional_list(prompt[4] if len(prompt) > 4 else None)
        targets = [node_id for node_id in listed if isinstance(node_id, str)]
        return cls(
            prompt_id=prompt_id,
            graph=optional_object(prompt[2] if len(prompt) > 2 else None),
            outputs_to_execute=tuple(targets),
            outputs=expect(dict, entry.get("outputs"), "the outputs of a history entry"),
            status=optional_text(status.get("status_str")),
            completed=status.get("completed") is True,
            messages=tuple(Message(*item[:2]) for item in messages if _is_message(item)),
            told={key: entry[key] for key in ("outputs", "status", "meta") if key in entry} | {"targets": targets},
        )


def _is_message(item: Any) -> bool:
    return isinstance(item, list) and len(item) >= 2 and isinstance(item[0], str) and isinstance(item[1], dict)


@dataclass(frozen=True)
class Device:
    name: str
    kind: str
    vram_total: int
    vram_free: int
    reserved: int = 0
    """Bytes that the server's process holds, in use or not."""
    unloadable: int = 0
    """Those in use, which come free when it unloads its models."""


@dataclass(frozen=True)
class SystemStats:
    """A server's version and memory."""

    version: str
    python: str
    pytorch: str
    system: str
    ram_total: int
    ram_free: int
    devices: tuple[Device, ...]

    @property
    def free_memory(self) -> int:
        """Free video memory of all devices, or free main memory if there is no device."""
        return sum(device.vram_free for device in self.devices) if self.devices else self.ram_free

    @property
    def reserved(self) -> int:
        return max((device.reserved for device in self.devices), default=0)

    @property
    def capacity(self) -> int:
        """The memory of the largest device that one prompt could have, if all models were unloaded."""
        return max((device.vram_free + device.unloadable for device in self.devices), default=self.ram_free)

    @classmethod
    def read(cls, document: Any) -> SystemStats:
        stats = expect(dict, document, "the system stats")
        system = expect(dict, stats.get("system"), "system")
        return cls(
            version=optional_text(system.get("comfyui_version")),
            python=optional_text(system.get("python_version")),
            pytorch=optional_text(system.get("pytorch_version")),
            system=optional_text(system.get("os")),
            ram_total=int(number(system.get("ram_total", 0), "ram_total")),
            ram_free=int(number(system.get("ram_free", 0), "ram_free")),
            devices=tuple(_device(item) for item in expect(list, stats.get("devices"), "devices")),
        )


def _device(item: Any) -> Device:
    device = expect(dict, item, "a device")
    reserved = int(number(device.get("torch_vram_total", 0), "torch_vram_total"))
    return Device(
        name=optional_text(device.get("name")),
        kind=optional_text(device.get("type")),
        vram_total=int(number(device.get("vram_total"), "vram_total")),
        vram_free=int(number(device.get("vram_free"), "vram_free")),
        reserved=reserved,
        unloadable=reserved - int(number(device.get("torch_vram_free", 0), "torch_vram_free")),
    )


@dataclass(frozen=True)
class Freed:
    """Free memory before and after it was freed, in bytes."""

    before: int
    after: int
    came_free: bool
