"""What was sent for a job, or would be: model, values, the whole workflow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from comfyui_agent.domain.jobs import Attempt, Job
from comfyui_agent.domain.prompts import place
from comfyui_agent.domain.sent_prompt import Sending, describe, filled_in
from comfyui_agent.domain.states import JobStatus

GRAPH = {
    "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "auto"}},
    "2": {"class_type": "CLIPTextEncode", "inputs": {"text": "a template", "clip": ["1", 1]}},
    "5": {"class_type": "KSampler", "inputs": {"seed": 3, "steps": 20, "model": ["1", 0], "positive": ["2", 0]}},
    "9": {"class_type": "SaveImage", "inputs": {"filename_prefix": "x", "images": ["5", 0]}},
}
NAMES = {"5.steps": "steps", "5.seed": "seed", "2.text": "prompt"}


def told(inputs: Any, attempts: Sequence[Attempt], names: Mapping[str, str] = NAMES, **facts: Any) -> Sending:
    return describe(job(**facts), inputs, attempts, GRAPH, names)


def job(**facts: Any) -> Job:
    empty: dict[str, Any] = {each.name: None for each in fields(Job)}
    known = {"id": 1, "config_name": "fox.yaml", "status": JobStatus.DONE, "template_hash": "t", "run_count": 1}
    return Job(**empty | known | facts)


def run(number: int, sent: Any) -> Attempt:
    return Attempt(number, number, None, None, None, None, None, None, "done", None, sent)  # type: ignore[arg-type]


def test_what_is_filled_in_is_what_differs() -> None:
    sent = {**GRAPH, "1": {**GRAPH["1"], "inputs": {"ckpt_name": "dream.safetensors", "e3_attempt": "p"}}}
    found = filled_in(GRAPH, sent)
    assert len(found.pop("graph")) == 16
    assert found == {"1.ckpt_name": "dream.safetensors", "1.e3_attempt": "p"}
    assert filled_in(GRAPH, dict(GRAPH)).keys() == {"graph"}


def test_a_job_that_was_changed_since_shows_what_would_be_sent() -> None:
    before, now = {"2.text": "a fox"}, {"2.text": "a hen"}
    plain = place(GRAPH, before)
    sent = place(plain, {"1.ckpt_name": "dream.safetensors"})
    runs = [run(1, json.dumps(filled_in(plain, sent)))]
    found = told(before, runs)
    assert (found.attempt, found.graph) == (runs[0], sent)
    found = told(now, runs)
    assert (found.attempt, found.graph, list(found.models)) == (None, place(GRAPH, now), [])


def test_inputs_without_names_of_their_own_are_called_as_people_call_them() -> None:
    found = told({"5.seed": 7, "2.text": "a fox", "5.steps": 9, "9.filename_prefix": "y"}, [], {"5.steps": "rounds"})
    assert [each.name for each in found.given] == ["prompt", "seed", "rounds", "9.filename_prefix"]


def test_the_last_run_that_has_it_on_record_tells_what_was_sent() -> None:
    runs = [run(1, '{"1.ckpt_name": "old.ckpt"}'), run(2, '{"1.ckpt_name": "dream.safetensors"}'), run(3, None)]
    found = told({"2.text": "a fox", "5.seed": 7}, runs)
    assert found.attempt == runs[1]
    assert found.models == ["dream.safetensors"]
    assert found.graph["1"]["inputs"]["ckpt_name"] == "dream.safetensors"
    assert found.graph["2"]["inputs"]["text"] == "a fox"


def test_without_a_run_it_is_what_would_be_sent_and_no_model_is_made_up() -> None:
    found = told({"5.seed": 7}, [], status=JobStatus.PENDING)
    assert (found.attempt, list(found.models)) == (None, [])
    assert found.graph["5"]["inputs"]["seed"] == 7


def test_the_prompt_and_the_seed_come_first_also_where_the_template_has_them() -> None:
    found = told({"5.steps": 4, "5.seed": 7}, [])
    assert [(each.name, each.value) for each in found.given] == [("prompt", "a template"), ("seed", 7), ("steps", 4)]
    assert found.given[0].node == "text of node 2, CLIPTextEncode"
    found = told({"5.steps": 4, "2.text": "a fox"}, [], {})
    assert [each.name for each in found.given] == ["prompt", "seed", "steps"]


def test_what_never_became_a_prompt_is_not_described_by_a_template_it_did_not_use() -> None:
    found = told({}, [], status=JobStatus.FAILED, template_hash=None)
    assert (found.graph, list(found.given), list(found.models)) == ({}, [], [])


def test_rows_that_someone_wrote_by_hand_break_nothing() -> None:
    for sent in ("nonsense", "[1]", '"x"', '{"99.x": 1, "y": 2}'):
        assert told({"77.text": 1, "x": 2}, [run(1, sent)]).graph == GRAPH
