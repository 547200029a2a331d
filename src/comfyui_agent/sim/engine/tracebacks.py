"""Tracebacks as clients of a ComfyUI see them: its files and functions, and none of the simulator's."""

from __future__ import annotations

import zlib

FOLDER = "/ComfyUI"
EXECUTION = {
    "execute": 545,
    "get_output_data": 344,
    "_async_map_node_over_list": 318,
    "process_inputs": 306,
    "validate_prompt": 1184,
    "validate_inputs": 933,
}
"""Functions of `execution.py` that call others, and in which line."""
LONGEST_FILE = 2000


def execution_traceback(node_class: str, python_module: str) -> list[str]:
    """What an exception of a node left."""
    calls = ("execute", "get_output_data", "_async_map_node_over_list", "process_inputs")
    line = 1 + zlib.crc32(node_class.encode("utf-8", "surrogatepass")) % LONGEST_FILE
    return [*map(_call, calls), _frame(f"{python_module.replace('.', '/')}.py", line, "execute")]


def validation_traceback(*calls: str) -> list[str]:
    """What an exception left before anything ran."""
    return [_call(name) for name in calls]


def _call(name: str) -> str:
    return _frame("execution.py", EXECUTION[name], name)


def _frame(file: str, line: int, function: str) -> str:
    return f'  File "{FOLDER}/{file}", line {line}, in {function}\n'
