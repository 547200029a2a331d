"""A ComfyUI directory for tests: `python main.py` with ComfyUI's flags runs the simulator in this process.

E3_SIM_FLAGS, a JSON list, has further flags of `e3 sim`. `{gpu}` in one of them becomes the number of --cuda-device, or
`cpu` with --cpu, so that `["--card", "test-{gpu}"]` gives each device a card of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
IGNORED = ("--disable-auto-launch", "--disable-all-custom-nodes", "--disable-api-nodes", "--dont-print-server")
IGNORED_WITH_A_VALUE = ("--database-url", "--preview-method", "--base-directory", "--input-directory")


def folder(path: str) -> Path:
    """ComfyUI refuses a user directory that is not there."""
    if not Path(path).is_dir():
        raise argparse.ArgumentTypeError(f"The path '{path}' does not exist.")
    return Path(path)


def parser() -> argparse.ArgumentParser:
    """The flags that are known. Another ends the process with status 2, as in ComfyUI."""
    found = argparse.ArgumentParser()
    found.add_argument("--listen", default="127.0.0.1", nargs="?", const="0.0.0.0")
    found.add_argument("--port", type=int, default=8188)
    found.add_argument("--cuda-device", type=int)
    found.add_argument("--cpu", action="store_true")
    found.add_argument("--output-directory", type=Path)
    found.add_argument("--temp-directory", type=Path)
    found.add_argument("--user-directory", type=folder)
    found.add_argument("--reserve-vram", type=float)
    for flag in IGNORED:
        found.add_argument(flag, action="store_true")
    for flag in IGNORED_WITH_A_VALUE:
        found.add_argument(flag)
    return found


def simulator_flags(arguments: argparse.Namespace) -> list[str]:
    gpu = "cpu" if arguments.cpu else str(arguments.cuda_device or 0)
    flags = ["--host", arguments.listen, "--port", str(arguments.port)]
    if arguments.output_directory is not None:
        flags += ["--output-dir", str(arguments.output_directory)]
    return flags + [flag.replace("{gpu}", gpu) for flag in json.loads(os.environ.get("E3_SIM_FLAGS", "[]"))]


if __name__ == "__main__":
    flags = simulator_flags(parser().parse_args())
    sys.path[0] = str(PROJECT / "src")
    sys.argv = ["e3", "sim", *flags]
    runpy.run_module("comfyui_agent", run_name="__main__")
