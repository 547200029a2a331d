"""The simulated engine: everything behind the wire, put together."""

from __future__ import annotations

import random
import shutil
import sys
import threading

from comfyui_agent.sim.dialect import Dialect
from comfyui_agent.sim.engine.definitions import Definitions, model_folders
from comfyui_agent.sim.engine.executor import Executor
from comfyui_agent.sim.engine.memory import VideoMemory
from comfyui_agent.sim.engine.pace import RenderRules
from comfyui_agent.sim.engine.progress import Audience
from comfyui_agent.sim.engine.validation import Validator
from comfyui_agent.sim.prompt_queue import Json, PromptQueue
from comfyui_agent.sim.settings import Folders, SimSettings

RAM_BYTES = 64 * 1024**3


class SimulatedEngine:
    """An engine without a GPU. `start` empties the temporary folder and runs the queue in a thread."""

    def __init__(self, settings: SimSettings, folders: Folders, audience: Audience) -> None:
        dice = random.Random(settings.seed)
        self.dialect = Dialect(settings.imitate)
        self.folders = folders
        self._definitions = Definitions(model_folders(settings.models), folders, settings.object_info)
        self._memory = VideoMemory(settings.vram_gb, settings.held_gb)
        self._rules = RenderRules(settings, dice)
        self.validator = Validator(self._definitions, folders, self.dialect)
        self._audience = audience
        self.prompts = PromptQueue(self._queue_changed)
        self._executor = Executor(self._definitions, folders, self.dialect, self._memory, audience, self._rules, dice)
        self._worker: threading.Thread | None = None

    def start(self) -> None:
        shutil.rmtree(self.folders.temp, ignore_errors=True)
        for folder in (self.folders.output, self.folders.input, self.folders.temp):
            folder.mkdir(parents=True, exist_ok=True)
        self._worker = threading.Thread(target=self._work, name="prompt worker", daemon=True)
        self._worker.start()

    def stop(self) -> None:
        self.prompts.close()
        self.interrupt()
        if self._worker is not None:
            self._worker.join(timeout=1)

    def _work(self) -> None:
        while not self.prompts.closed:
            taken = self.prompts.take()
            if taken is not None:
                item, task = taken
                self.prompts.done(task, self._executor.run(item))
                if self._executor.client_id is not None:
                    data = {"node": None, "prompt_id": item.prompt_id}
                    self._audience.send("executing", data, self._executor.client_id)
            flags = self.prompts.take_flags()
            if flags:
                self._memory.unload_all()
                self._memory.let_go()
            if "free_memory" in flags:
                self._executor.cache.drop()

    def _queue_changed(self) -> None:
        status = {"exec_info": {"queue_remaining": self.prompts.remaining()}}
        self._audience.send("status", {"status": status}, None)

    def interrupt(self) -> None:
        self._rules.interrupted.set()

    def object_info(self, node_class: str | None = None) -> Json:
        names = self._definitions.names if node_class is None else [node_class]
        found = {name: self._definitions.get(name) for name in names}
        more = {"has_intermediate_output": False} if self.dialect.more_keys_in_definitions else {}
        return {name: {**definition.info, **more} for name, definition in found.items() if definition is not None}

    def models(self) -> dict[str, list[str]]:
        return self._definitions.offered_models()

    def executing_now(self) -> tuple[str | None, str | None]:
        return self._executor.client_id, self._executor.node_id

    def system_stats(self) -> Json:
        return {
            "system": {
                "os": sys.platform,
                "ram_total": RAM_BYTES,
                "ram_free": RAM_BYTES // 2,
                "comfyui_version": self.dialect.version,
                "required_frontend_version": "0.0.0",
                "installed_templates_version": "0.0.0",
                "required_templates_version": "0.0.0",
                "python_version": sys.version,
                "pytorch_version": "simulated",
                "embedded_python": False,
                "argv": ["main.py"],
            },
            "devices": [self._device(index) for index in range(2 if self.dialect.all_devices_listed else 1)],
        }

    def _device(self, index: int) -> Json:
        """The first device renders. Newer versions list idle ones too."""
        total = self._memory.total
        free = self._memory.free if index == 0 else total
        return {
            "name": f"cuda:{index} E3 simulated GPU",
            "type": "cuda",
            "index": index,
            "vram_total": total,
            "vram_free": free,
            "torch_vram_total": total - free,
            "torch_vram_free": 0,
        }
