"""The simulated engine: everything behind the wire, put together."""

from __future__ import annotations

import hashlib
import random
import shutil
import sys
import threading
from typing import Any

from comfyui_agent.sim.engine.card import Card, VideoMemory
from comfyui_agent.sim.engine.definitions import BUNDLED, Definitions, model_folders
from comfyui_agent.sim.engine.graph import OutputCache
from comfyui_agent.sim.engine.pace import RenderPace
from comfyui_agent.sim.engine.progress import Audience
from comfyui_agent.sim.engine.prompt_run import PromptRun
from comfyui_agent.sim.engine.validation import ValidationResult, Validator
from comfyui_agent.sim.prompt_queue import PromptQueue
from comfyui_agent.sim.settings import Folders, SimSettings
from comfyui_agent.wire.dialect import Dialect
from comfyui_agent.wire.prompts import Json

SINCE = {"comfy_package_versions": "0.22", "deploy_environment": "0.25"}
"""The first versions with some keys of `/system_stats`."""


class SimulatedEngine:
    """An engine without a GPU. `start` empties the temporary folder and runs the queue in a thread."""

    def __init__(self, settings: SimSettings, folders: Folders, audience: Audience) -> None:
        self.dialect = Dialect(settings.imitate)
        self.folders = folders
        self.audience = audience
        self.dice = random.Random(settings.seed)
        self._salt = random.Random(settings.seed).random()
        self.card = Card(settings.card)
        self.pace = RenderPace(settings, self.dice, self.card)
        self.memory = VideoMemory(settings.vram_gb, settings.held_gb, self.card)
        self.cache = OutputCache()
        self.definitions = Definitions(model_folders(settings.models), folders, self.dialect, settings.object_info)
        self.prompts = PromptQueue(self._queue_changed)
        self.client_id: str | None = None
        self.node_id: str | None = None
        """The node that runs, and the client whose prompt it is."""
        self._worker = threading.Thread(target=self._work, name="prompt worker", daemon=True)

    def start(self) -> None:
        shutil.rmtree(self.folders.temp, ignore_errors=True)
        for folder in (self.folders.output, self.folders.input, self.folders.temp):
            folder.mkdir(parents=True, exist_ok=True)
        self._worker.start()

    def stop(self) -> None:
        self.prompts.close()
        self.interrupt()
        self._worker.join(timeout=1)
        self.card.close()

    def _work(self) -> None:
        while not self.prompts.closed:
            item = self.prompts.take()
            if item is not None:
                self.prompts.done(item, PromptRun(self, item).run())
                if self.client_id is not None:
                    data = {"node": None, "prompt_id": item.prompt_id}
                    self.audience.send("executing", data, self.client_id)
            flags = self.prompts.take_flags()
            if flags:
                self.memory.keep_only(())
                self.memory.let_go()
            if "free_memory" in flags:
                self.cache.drop()

    def _queue_changed(self) -> None:
        status = {"exec_info": {"queue_remaining": self.prompts.remaining()}}
        self.audience.send("status", {"status": status}, None)

    def validate(self, prompt: Any, targets: Any) -> ValidationResult:
        return Validator(self.definitions, self.folders, self.dialect, prompt, self._place_of_root).check(targets)

    def _place_of_root(self, node_id: str) -> bytes:
        return hashlib.sha256(f"{self._salt}{node_id}".encode("utf-8", "surrogatepass")).digest()

    def interrupt(self) -> None:
        self.pace.interrupted.set()

    def object_info(self, node_class: str | None = None) -> Json:
        names = self.definitions.names if node_class is None else [node_class]
        found = {name: self.definitions.get(name) for name in names}
        return {name: definition.info for name, definition in found.items() if definition is not None}

    def system_stats(self) -> Json:
        own = {"os": sys.platform, "comfyui_version": self.dialect.version, "python_version": sys.version}
        bundled = {key: value for key, value in BUNDLED["system"].items() if self.dialect.since(SINCE.get(key, "0"))}
        facts = {"loaded": self.memory.loaded, "loads": self.pace.loads, "load_seconds": self.pace.load_seconds}
        card = {"card": self.card.name, "card_processes": 1 + len(self.card.others())}
        return {"system": {**bundled, **own}, "devices": [self._device()], "e3_simulator": {**facts, **card}}

    def _device(self) -> Json:
        total = self.memory.total
        return {
            "name": "cuda:0 E3 simulated GPU",
            "type": "cuda",
            "index": 0,
            "vram_total": total,
            "vram_free": self.memory.free,
            "torch_vram_total": min(total, self.memory.taken),
            "torch_vram_free": 0,
        }
