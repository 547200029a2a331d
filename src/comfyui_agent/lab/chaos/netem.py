"""Losing packets for real, with `tc netem`, where that is asked for and allowed."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from comfyui_agent.lab.chaos.verdicts import Skipped

DEVICE = re.compile(r"[A-Za-z0-9][\w.@-]{0,14}")


@asynccontextmanager
async def lossy(device: str, share: float) -> AsyncIterator[None]:
    """A network device loses a share of its packets meanwhile. Skipped if this machine does not allow that."""
    if not DEVICE.fullmatch(device):
        raise Skipped(f"{device!r} is no network device: name one, such as eth0")
    await _tc("add", device, "netem", "loss", f"{share * 100:g}%")
    try:
        yield
    finally:
        await _tc("del", device)


async def _tc(verb: str, device: str, *discipline: str) -> None:
    program = shutil.which("tc")
    if program is None:
        raise Skipped("there is no tc on this machine: install iproute2, or leave --netem out to use the proxy")
    process = await asyncio.create_subprocess_exec(
        program,
        *("qdisc", verb, "dev", device, "root", *discipline),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told, _ = await process.communicate()
    if process.returncode != 0:
        reason = told.decode("utf-8", "replace").strip().splitlines()
        words = reason[0] if reason else f"exit {process.returncode}"
        raise Skipped(f"tc refused ({words}): run as root, or leave --netem out to use the proxy")
