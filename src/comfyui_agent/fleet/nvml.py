"""NVIDIA's management library. Where it is missing or refuses, nothing is known."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from typing import Any

from comfyui_agent.comfy.answers import Device

MEGABYTE = 1024 * 1024


class Nvml:
    """The library, open until `close`. It never raises, but it may be slow."""

    def __init__(self) -> None:
        self._library: Any = None
        with contextlib.suppress(ImportError):
            library = importlib.import_module("pynvml")
            with contextlib.suppress(library.NVMLError):  # no driver, no card, or no right to look
                library.nvmlInit()
                self._library = library

    def close(self) -> None:
        self._call("nvmlShutdown")

    def driver(self) -> str | None:
        return self._call("nvmlSystemGetDriverVersion") or None

    def count(self) -> int:
        """How many cards this machine has."""
        return int(self._call("nvmlDeviceGetCount") or 0)

    def cards_of(self, devices: Mapping[str, Device]) -> dict[str, Any]:
        """The cards that servers on this machine mean by their devices; servers whose card is not known are left out.

        Among several cards of one name it is the one with as much memory free as the server says.
        """
        handles = [self._call("nvmlDeviceGetHandleByIndex", index) for index in range(self.count())]
        names = [(card, self._call("nvmlDeviceGetName", card)) for card in handles if card is not None]
        found = {}
        for server, device in devices.items():
            # ComfyUI calls a card `cuda:0 NVIDIA GeForce RTX 5060 Ti : native`.
            wanted = device.name.partition(" ")[2].partition(" : ")[0].strip()
            same = [card for card, name in names if name and name == wanted]
            if same:
                found[server] = min(same, key=lambda card: abs(self._free(card) - device.vram_free))
        return found

    def identity_of(self, card: Any) -> str:
        """An id that is unique among cards of one name."""
        return str(self._call("nvmlDeviceGetUUID", card) or "")

    def read(self, card: Any) -> tuple[int | None, int | None]:
        """How busy a card is in percent, and its memory in use in MB by all processes. None if unknown."""
        rates = self._call("nvmlDeviceGetUtilizationRates", card)
        memory = self._memory(card)
        return rates and int(rates.gpu), memory and int(memory.used) // MEGABYTE

    def _free(self, card: Any) -> int:
        memory = self._memory(card)
        return 0 if memory is None else int(memory.free)

    def _memory(self, card: Any) -> Any:
        """As nvidia-smi shows it, without what the driver reserves. Drivers before 510 count that as used."""
        version = getattr(self._library, "nvmlMemory_v2", None)
        newer = self._call("nvmlDeviceGetMemoryInfo", card, version) if version else None
        return self._call("nvmlDeviceGetMemoryInfo", card) if newer is None else newer

    def _call(self, name: str, *arguments: Any) -> Any:
        """The result of one call of the library; None if it fails. Older versions return texts as bytes."""
        if self._library is not None:
            with contextlib.suppress(self._library.NVMLError):
                found = getattr(self._library, name)(*arguments)
                return found.decode("utf-8", "replace") if isinstance(found, bytes) else found
        return None
