"""NVIDIA's management library. Where it is missing or refuses, nothing is known."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from comfyui_agent.comfy.answers import Device

MEGABYTE = 1024 * 1024


@dataclass(frozen=True)
class Reading:
    """One look at a card: how busy in percent, and memory in use in MB by all processes. None if unknown."""

    util: int | None
    used_mb: int | None


class Nvml:
    """The library, held open: `with Nvml() as nvml: …`. It never raises, but it may be slow."""

    def __init__(self) -> None:
        self._library: Any = None

    def __enter__(self) -> Nvml:
        try:
            library = importlib.import_module("pynvml")
        except ImportError:
            return self
        try:
            library.nvmlInit()
        except library.NVMLError:  # no driver, no card, or no right to look
            return self
        self._library = library
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._library is not None:
            self._call("nvmlShutdown")
            self._library = None

    def driver(self) -> str | None:
        return _text(self._call("nvmlSystemGetDriverVersion")) or None

    def card_of(self, device: Device) -> Any:
        """The card that a ComfyUI on this machine means by a device; None if there is none of that name.

        Among several of one name it is the one with as much memory free as the server says.
        """
        cards = [self._call("nvmlDeviceGetHandleByIndex", index) for index in range(self._count())]
        same = [card for card in cards if card is not None and self._is_named(card, device.name)]
        return min(same, key=lambda card: abs(self._free(card) - device.vram_free), default=None)

    def identity_of(self, card: Any) -> str:
        """An id that is unique among cards of one name."""
        return _text(self._call("nvmlDeviceGetUUID", card))

    def read(self, card: Any) -> Reading:
        rates = self._call("nvmlDeviceGetUtilizationRates", card)
        memory = self._memory(card)
        return Reading(
            None if rates is None else int(rates.gpu), None if memory is None else int(memory.used) // MEGABYTE
        )

    def _count(self) -> int:
        return self._call("nvmlDeviceGetCount") or 0

    def _is_named(self, card: Any, device: str) -> bool:
        """ComfyUI calls a card `cuda:0 NVIDIA GeForce RTX 5060 Ti : native`."""
        name = _text(self._call("nvmlDeviceGetName", card))
        return bool(name) and device.partition(" ")[2].partition(" : ")[0].strip() == name

    def _free(self, card: Any) -> int:
        memory = self._memory(card)
        return 0 if memory is None else int(memory.free)

    def _memory(self, card: Any) -> Any:
        """As nvidia-smi shows it, without what the driver reserves. Drivers before 510 count that as used."""
        version = getattr(self._library, "nvmlMemory_v2", None)
        newer = self._call("nvmlDeviceGetMemoryInfo", card, version) if version else None
        return self._call("nvmlDeviceGetMemoryInfo", card) if newer is None else newer

    def _call(self, name: str, *arguments: Any) -> Any:
        """The result of one call of the library; None if it fails."""
        if self._library is None:
            return None
        try:
            return getattr(self._library, name)(*arguments)
        except self._library.NVMLError:
            return None


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name or "")
