"""A real ComfyUI with E3's nodes in it, and a few nodes that only tests need."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from comfyui_agent.nodes.installer import install
from support.servers import ServerProcess, real_comfyui

TEST_NODES = """
import time
import comfy.model_management


class TestSlow:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"image": ("IMAGE",), "seconds": ("FLOAT", {"default": 0.0, "max": 600.0})}}

    def run(self, image, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            comfy.model_management.throw_exception_if_processing_interrupted()
            time.sleep(0.01)
        return (image,)


class TestDeaf(TestSlow):
    def run(self, image, seconds):
        time.sleep(seconds)
        return (image,)


class TestFails:
    CATEGORY, FUNCTION, RETURN_TYPES = "test", "run", ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"image": ("IMAGE",), "number": ("INT", {"max": 1000}), "fails_at": ("STRING", {})}}

    def run(self, image, number, fails_at):
        if str(number) in fails_at.split():
            raise RuntimeError(f"number {number} cannot be rendered")
        return (image,)


NODE_CLASS_MAPPINGS = {"TestSlow": TestSlow, "TestDeaf": TestDeaf, "TestFails": TestFails}
"""

Graph = dict[str, Any]


class Inside:
    """Talks to ComfyUI as its page does."""

    def __init__(self, process: ServerProcess, folder: Path) -> None:
        self.process = process
        self.folder = folder
        self._client = httpx.Client(base_url=process.url, timeout=60)

    def close(self) -> None:
        self._client.close()
        self.process.stop()

    def get(self, path: str) -> Any:
        return self._client.get(path).json()

    def post(self, path: str, body: Any = None) -> httpx.Response:
        return self._client.post(path, json=body)

    def queue(self, prompt: Graph, **more: Any) -> str:
        """Queue a prompt; its id."""
        answer = self.post("/prompt", {"prompt": prompt, **more})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["prompt_id"])

    def batches(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/wi/batches")["batches"]
        return found

    def batch_of(self, prompt_id: str) -> dict[str, Any]:
        """The batch whose first member this is."""
        for summary in self.batches():
            batch: dict[str, Any] = self.get(f"/wi/batch/{summary['batch_id']}")
            if batch["prompt_ids"][0] == prompt_id:
                return batch
        raise AssertionError(f"no batch begins with {prompt_id}")

    def until(self, batch_id: str, is_so: Callable[[dict[str, Any]], bool], seconds: float = 60) -> dict[str, Any]:
        """The batch as soon as it is so."""
        deadline = time.monotonic() + seconds
        while True:
            batch: dict[str, Any] = self.get(f"/wi/batch/{batch_id}")
            if is_so(batch):
                return batch
            assert time.monotonic() < deadline, {key: batch[key] for key in batch if key not in ("members", "results")}
            time.sleep(0.05)

    def ended(self, batch_id: str, seconds: float = 60) -> dict[str, Any]:
        return self.until(batch_id, lambda batch: batch["state"] in ("complete", "cancelled", "expired"), seconds)

    def history(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("/history?max_items=1000")
        return found

    def file(self, image: dict[str, str]) -> Path:
        folder = {"output": "output", "temp": "t/temp"}[image["type"]]
        return self.folder / folder / image["subfolder"] / image["filename"]


def comfyui_with_nodes(folder: Path) -> Inside:
    """Installed as people do it, and started."""
    process = real_comfyui(folder)
    (folder / "custom_nodes" / "test_nodes.py").write_text(TEST_NODES, encoding="utf-8")
    install(folder)
    process.start()
    return Inside(process, folder)


def parameter(values: str, place: str, name: str = "", type_: str = "AUTO") -> Graph:
    node_id, _, input_name = place.partition(".")
    inputs = {"name": name, "type": type_, "values": values, "node_id": node_id, "input_name": input_name}
    return {"class_type": "WIParameter", "inputs": inputs}


def iterating(*parameters: Graph, mode: str = "matrix", name: str = "test", grid: bool = True, **nodes: Graph) -> Graph:
    """A picture of one colour, driven by parameters: node 1 is EmptyImage, others come between it and the saving."""
    graph: Graph = {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 32, "height": 32, "batch_size": 1, "color": 0}},
        **{key.lstrip("n"): node for key, node in nodes.items()},
    }
    last = list(graph)[-1]
    links = {f"param_{number}": [f"{100 + number}", 0] for number in range(1, len(parameters) + 1)}
    graph |= {f"{100 + number}": node for number, node in enumerate(parameters, start=1)}
    graph["20"] = {"class_type": "WIIterator", "inputs": {"enabled": True, "mode": mode, "batch_name": name, **links}}
    saved = {"images": [last, 0], "filename_prefix": "E3/test", "iterator": ["20", 0]}
    graph["30"] = {"class_type": "WISaveImage", "inputs": saved}
    if grid:
        graph["40"] = {"class_type": "WIGridCompositor", "inputs": {"images": [last, 0], "iterator": ["20", 0]}}
    return graph
