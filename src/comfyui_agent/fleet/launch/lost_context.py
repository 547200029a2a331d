"""CUDA errors after which a process can use its card no more: every further call fails, until it is started anew."""

from __future__ import annotations

import re

ERRORS = (
    "an illegal memory access was encountered",
    "an illegal instruction was encountered",
    "device-side assert triggered",
    "hardware stack error",
    "invalid program counter",
    "misaligned address",
    "operation not supported on global/shared address space",
    "the launch timed out and was terminated",
    "uncorrectable ECC error encountered",
    "uncorrectable NVLink error detected during the execution",
    "unspecified launch failure",
)
"""As the CUDA runtime words them. Out of memory is none of them."""
MESSAGE = re.compile(rf"(?:CUDA error|HIP error): (?:{'|'.join(map(re.escape, ERRORS))})")
REPORTED = r"^(?:.{0,80}Exception during processing !!! |[\w.]*(?:Error|Exception): )"
LINE = re.compile(f"{REPORTED}({MESSAGE.pattern}.*)", re.MULTILINE)


def lost_context_in(message: str) -> bool:
    """Whether the message of an exception says so."""
    return MESSAGE.match(message.strip()) is not None


def lost_context_in_log(text: str) -> str:
    """What the log of a process says about it; empty if nothing. Only lines that report an exception count."""
    found = LINE.search(text)
    return found[1][:200] if found else ""
