"""An agent that is killed at one exact moment of its work with pictures or files: `dying_agent.py MOMENT run …`."""

from __future__ import annotations

import signal
import sys

from changed_agent import meet

from comfyui_agent.cli.app import main
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store

MOMENTS = {
    "before_upload": (ComfyClient, "upload", "before"),
    "uploaded": (ComfyClient, "upload", "after"),
    "filed": (Store, ops.file_jobs, "after"),
    "done": (Store, ops.complete_job, "after"),
}

if __name__ == "__main__":
    meet(signal.SIGKILL, *MOMENTS[sys.argv.pop(1)])
    main()
