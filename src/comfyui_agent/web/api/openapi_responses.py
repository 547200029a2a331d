"""Descriptions of answers for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BeforeValidator

from comfyui_agent.web.problems import MEDIA_TYPE, TITLES

PROBLEM = {"schema": {"$ref": "#/components/schemas/ProblemShown"}}
ALWAYS = (401, 403, 422, 429, 503)
SENDING = (400, 408, 413, 415)


def problems(*statuses: int, sends: bool = False) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer with, with those that every route may."""
    found = sorted({*ALWAYS, *statuses, *(SENDING if sends else ())})
    return {status: {"description": TITLES[status], "content": {MEDIA_TYPE: PROBLEM}} for status in found}


def file_answer(*kinds: str) -> dict[str, Any]:
    """An answer that is a file."""
    schema = {"schema": {"type": "string", "format": "binary"}}
    return {"description": "The file", "content": dict.fromkeys(kinds, schema)}


def file_answers(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """The answers of a route that serves a file, whole or in ranges."""
    whole = file_answer(*kinds)
    return {200: whole, 206: whole | {"description": "A part of the file"}, **problems(400, 404, 416)}


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


AsInteger = BeforeValidator(_whole)
"""For strict models: a whole number in JSON is 3 or 3.0, but not "3" or true."""
