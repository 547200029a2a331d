"""Losing packets for real, with `tc netem`, where that is asked for and allowed."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from comfyui_agent.lab.chaos.findings import Skipped

DEVICE = re.compile(r"[A-Za-z0-9][\w.@-]{0,14}")
DROPPED = re.compile(r"netem.*?dropped (\d+)", re.DOTALL)


@asynccontextmanager
async def lossy(device: str, share: float) -> AsyncIterator[None]:
    """Within the block a network device loses a share of its packets. Skipped if that is not allowed or none was lost,
    RuntimeError if it cannot be undone."""
    if not DEVICE.fullmatch(device):
        raise Skipped(f"{device!r} is no network device: name one, such as eth0")
    adding = asyncio.ensure_future(_tc("qdisc", "add", "dev", device, "root", "netem", "loss", f"{share * 100:g}%"))
    try:
        message, code = await asyncio.shield(adding)
        if code != 0:
            raise Skipped(f"tc refused ({message}): run as root, or leave --netem out to use the proxy")
        yield
        found = DROPPED.search((await _tc("-s", "qdisc", "show", "dev", device))[0])
        if found is None or found.group(1) == "0":
            raise Skipped(f"no packet was lost at {device}: name the device by which the server is reached")
    finally:
        if (await adding)[1] == 0:  # also if this was cancelled while it was added
            await _take_off(device)


async def _take_off(device: str) -> None:
    removing = asyncio.ensure_future(_tc("qdisc", "del", "dev", device, "root"))
    try:
        await asyncio.shield(removing)
    finally:
        message, code = await removing
    if code != 0:
        raise RuntimeError(f"{device} still loses packets, tc refused ({message}): run tc qdisc del dev {device} root")


async def _tc(*arguments: str) -> tuple[str, int]:
    """The output of tc in one line, and its exit code."""
    program = shutil.which("tc")
    if program is None:
        raise Skipped("there is no tc on this machine: install iproute2, or leave --netem out to use the proxy")
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True
    )
    output, _ = await process.communicate()
    code = process.returncode or 0
    return " ".join(output.decode("utf-8", "replace").split()) or f"exit {code}", code
