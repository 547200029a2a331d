"""Whether ComfyUI answers and can still ask its device: exit 0 or 1, and one line that says why.

ComfyUI asks the card how much memory is free before it answers `/system_stats`, so a card that has gone is noticed.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request

TIMEOUT_SECONDS = 8.0


def what_it_says(port: str) -> str:
    """The device and the free memory that ComfyUI reports; OSError or ValueError if it is not well."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"http://127.0.0.1:{port}/system_stats", timeout=TIMEOUT_SECONDS) as answer:
        devices = json.load(answer)["devices"]
    return ", ".join(f"{device['name']}: {device['vram_free'] // 2**20} MB free" for device in devices)


def main() -> int:
    port = os.environ.get("COMFYUI_PORT", "8188")
    try:
        sys.stdout.write(f"{what_it_says(port)}\n")
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stdout.write(f"ComfyUI at port {port} is not well: {error!r}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
