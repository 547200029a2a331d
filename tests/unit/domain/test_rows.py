"""Rows as scripts read them: what a column says in JSON is given as such, whatever someone wrote there by hand."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from comfyui_agent.domain.jobs import Attempt, Job
from comfyui_agent.domain.states import JobStatus

DEEP = "[" * 100_000 + "]" * 100_000


def job(**facts: Any) -> Job:
    empty: dict[str, Any] = {field.name: None for field in fields(Job)}
    return Job(**{**empty, "config_name": "knight.yaml", "status": JobStatus.DONE, "outputs": ("a.png",), **facts})


def attempt(error: str | None) -> Attempt:
    empty: dict[str, Any] = {field.name: None for field in fields(Attempt)}
    return Attempt(**{**empty, "number": 1, "error": error})


def test_a_job_has_a_key_for_every_column_with_lists_and_objects_as_such() -> None:
    row = job(metadata='{"user": "ana"}', inputs='{"6.text": "a knight"}', pictures='{"4.image": "x.png"}').as_json()
    assert list(row) == [field.name for field in fields(Job) if field.name != "is_shortened"]
    assert row["metadata"] == {"user": "ana"}
    assert row["inputs"] == {"6.text": "a knight"}
    assert row["pictures"] == {"4.image": "x.png"}
    assert type(row["status"]) is str
    assert json.loads(json.dumps(row))["outputs"] == ["a.png"]


def test_an_attempt_has_its_error_as_an_object() -> None:
    row = attempt('{"message": "boom"}').as_json()
    assert list(row) == [field.name for field in fields(Attempt)]
    assert row["error"] == {"message": "boom"}


def test_what_is_no_json_is_given_as_it_is() -> None:
    for text in [None, "by hand", "{", DEEP]:
        assert job(metadata=text).as_json()["metadata"] == text, text
        assert attempt(text).as_json()["error"] == text, text
