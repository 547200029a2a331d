"""An agent that is killed at one exact moment of its work with pictures or files: `dying_agent.py MOMENT run …`."""

from __future__ import annotations

import signal
import sys

from changed_agent import meet_call, meet_operation

from comfyui_agent.cli.app import main
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.store import operations as ops

MOMENTS = {
    "before_upload": lambda: meet_call(signal.SIGKILL, ComfyClient, "upload", "before"),
    "uploaded": lambda: meet_call(signal.SIGKILL, ComfyClient, "upload", "after"),
    "filed": lambda: meet_operation(signal.SIGKILL, ops.file_jobs, "after"),
    "done": lambda: meet_operation(signal.SIGKILL, ops.complete_job, "after"),
}

if __name__ == "__main__":
    MOMENTS[sys.argv.pop(1)]()
    main()
