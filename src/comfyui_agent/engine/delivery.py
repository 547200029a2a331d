"""Sending messages with apprise, in a process of its own: what hangs there is killed, and what it logs is not kept."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import repeat
from typing import IO, Any

from pydantic import SecretStr

from comfyui_agent.domain.notifications import Message
from comfyui_agent.domain.processes import module_command
from comfyui_agent.pools import NOTIFYING

MISSING = "notify.urls needs the package apprise: pip install 'e3-comfyui-agent[notify]'"
SERVICE_SECONDS, PROCESS_SECONDS = 20.0, 60.0
VARIABLE = "env:"


def is_installed() -> bool:
    return find_spec("apprise") is not None


def shown(url: SecretStr) -> str:
    """An address for people: its scheme, or the name of its variable. The rest may be secret."""
    return re.sub("://.*", "", url.get_secret_value(), flags=re.DOTALL)


def failures(urls: Sequence[SecretStr], problems: Sequence[str]) -> list[str]:
    """What `deliver` has returned, in words."""
    return [MISSING] if MISSING in problems else [f"{shown(a)}: {b}" for a, b in zip(urls, problems, strict=True) if b]


async def deliver(urls: Sequence[SecretStr], message: Message | None) -> list[str]:
    """Send a message to each address. Returns what went wrong with each: empty where nothing did.

    Without a message, the addresses are checked and nothing is sent.
    """
    if not is_installed():
        return [MISSING] * len(urls)
    texts = [url.get_secret_value() for url in urls]
    found = [os.environ.get(text.removeprefix(VARIABLE), "") if text.startswith(VARIABLE) else text for text in texts]
    given = json.dumps({"urls": found, "message": message and vars(message)}, default=str)
    return await NOTIFYING.run(_in_process, given.encode(), len(urls))


def _in_process(given: bytes, count: int) -> list[str]:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    try:
        ended = subprocess.run(module_command(__name__), input=given, timeout=PROCESS_SECONDS, check=False, **pipes)  # noqa: S603
        found: list[str] = json.loads(ended.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return [f"no answer within {PROCESS_SECONDS:.0f} s"] * count
    except (OSError, ValueError, IndexError):
        return ["the process that sends it has failed"] * count
    return found


def _send(url: str, message: Mapping[str, Any] | None) -> str:
    from apprise import Apprise, AppriseAsset
    from apprise.attachment.file import AttachFile

    if not url:
        return "the variable is not set"
    facts: dict[str, Any] = {"app_id": "E3", "app_desc": "E3, the ComfyUI Agent", "storage_mode": "memory"}
    asset = AppriseAsset(service_timeout=SERVICE_SECONDS, **facts)
    service = Apprise.instantiate(url, asset=asset)  # one service: never a file or an address that names others
    if service is None or message is None:
        return "" if service else "apprise cannot use this address: see its documentation"
    pictures = [AttachFile(path) for path in message["files"]]  # type: ignore[no-untyped-call]
    result = Apprise(service, asset=asset).notify(
        message["body"], message["title"], message["tone"], body_format="text", attach=pictures
    )
    codes = re.findall(r"error=([0-9]{3})\b", " ".join(each.message for each in result.logs()))
    return "" if result else f"it answered HTTP {codes[-1]}" if codes else "it could not be reached, or refused it"


def main(given: IO[bytes], answer: IO[bytes]) -> None:
    order = json.load(given)
    problems = list(ThreadPoolExecutor(len(order["urls"])).map(_send, order["urls"], repeat(order["message"])))
    answer.write(f"\n{json.dumps(problems)}\n".encode())
    answer.flush()
    os._exit(0)  # threads of services that hang are not waited for


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
