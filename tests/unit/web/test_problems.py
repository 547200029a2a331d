"""Problems: what happened and what to do, for programs and for people."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from comfyui_agent.access.problem import KINDS, LONGEST, LONGEST_KEY, MOST_ERRORS, OWN_KINDS, TITLES, Problem
from comfyui_agent.config.validation import Complaint, Complaints
from comfyui_agent.store.errors import DatabaseAway, DatabaseFull, DatabaseUnusable
from comfyui_agent.usecases.errors import Invalid, NotAllowed, NotFound, NotPossible, TooLarge, UseCaseError
from comfyui_agent.web import problems
from comfyui_agent.web.problems import (
    JsonAnswer,
    add_handlers,
    from_use_case,
    in_bytes,
    not_found,
    problem_of,
)


class Said(BaseModel):
    number: int
    inner: dict[str, int] = {}


def app() -> FastAPI:
    made = FastAPI()
    add_handlers(made)

    @made.get("/raises/{what}")
    async def raises(what: str) -> None:
        known: dict[str, Exception] = {
            "problem": Problem(409, "it is so", "do this", headers={"Retry-After": "1"}),
            "away": DatabaseAway("the database is locked"),
            "teapot": HTTPException(418, "short and stout", {"X-Tea": "yes"}),
        }
        raise known[what]

    @made.get("/thing")
    async def look() -> None: ...

    @made.post("/thing")
    async def change(said: Said) -> None: ...

    return made


async def asked(method: str, path: str, **options: Any) -> httpx.Response:
    transport = httpx.ASGITransport(app())
    async with httpx.AsyncClient(transport=transport, base_url="http://e3") as client:
        return await client.request(method, path, **options)


def test_a_problem_says_what_happened_and_what_to_do() -> None:
    problem = Problem(404, "there is no job 'x'", "See /api/v1/jobs.", errors=[("name", "unknown")])
    assert problem.as_json() == {
        "type": "/docs/problems#not-found",
        "title": "Not found",
        "status": 404,
        "detail": "there is no job 'x'",
        "remedy": "See /api/v1/jobs.",
        "errors": [{"key": "name", "message": "unknown"}],
    }
    assert "errors" not in Problem(404, "x").as_json()
    assert Problem(404, "x").remedy
    assert Problem(418, "x").title == "It did not work"


def test_every_status_of_the_documentation_has_a_title() -> None:
    assert {400, 401, 403, 404, 405, 408, 409, 413, 415, 416, 422, 429, 500, 503} <= TITLES.keys()


def test_the_types_of_problems_are_those_that_are_documented() -> None:
    assert KINDS.keys() == TITLES.keys()
    written = (
        (Path(__file__).parents[3] / "docs" / "api.md").read_text().partition("## Problems")[2].partition("\n## ")[0]
    )
    assert set(re.findall(r"^\| `([a-z-]+)` \|", written, re.MULTILINE)) == {*KINDS.values(), *OWN_KINDS}


def test_a_problem_is_no_longer_than_people_read() -> None:
    problem = Problem(422, "x" * 10_000, errors=[("k" * 10_000, "m" * 10_000)] * 1000)
    said = problem.as_json()
    assert len(said["detail"]) == LONGEST
    assert len(said["errors"]) == MOST_ERRORS
    assert len(said["errors"][0]["key"]) == LONGEST_KEY
    assert len(said["errors"][0]["message"]) == LONGEST
    assert len(not_found("job", "n" * 10_000, "/api/v1/jobs").detail) < 300


def test_problems_of_a_request_are_listed_by_key() -> None:
    found = from_use_case(
        Invalid.of(Complaints([Complaint("", "inputs.seed", "is no number"), Complaint("", "", "is odd")]))
    )
    assert (found.status, found.detail) == (409, "inputs.seed: is no number")
    assert list(found.errors) == [("inputs.seed", "is no number"), ("", "is odd")]
    assert from_use_case(Invalid.of(Complaints([Complaint("", "", "is odd")]))).detail == "is odd"


@pytest.mark.parametrize(
    ("error", "passes"), [(DatabaseAway("x"), True), (DatabaseFull("x"), True), (DatabaseUnusable("x"), False)]
)
def test_a_database_that_is_away_for_a_moment_differs_from_one_that_needs_a_person(error: Any, passes: bool) -> None:
    problem = problem_of(error, Request({"type": "http"}))
    assert problem.status == 503
    assert ("Retry-After" in problem.headers) is passes
    assert ("moment" in problem.remedy) is passes


async def test_whatever_is_raised_is_answered_as_a_problem() -> None:
    for path, status in (("/raises/problem", 409), ("/raises/away", 503), ("/raises/teapot", 418), ("/nowhere", 404)):
        answer = await asked("GET", path)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status
    assert (await asked("GET", "/raises/problem")).headers["retry-after"] == "1"
    assert (await asked("GET", "/raises/teapot")).headers["x-tea"] == "yes"


async def test_a_method_that_is_not_offered_is_reported_with_all_that_are() -> None:
    answer = await asked("DELETE", "/thing")
    assert answer.status_code == 405
    assert sorted(answer.headers["allow"].split(", ")) == ["GET", "POST"]


async def test_what_does_not_follow_the_description_is_said_with_the_key_and_without_the_value() -> None:
    answer = await asked("POST", "/thing", json={"number": "secret", "inner": {"a": "secret"}})
    assert answer.status_code == 422
    assert [each["key"] for each in answer.json()["errors"]] == ["number", "inner.a"]
    assert answer.json()["detail"].startswith("number: ")
    assert "secret" not in answer.text


async def test_of_very_many_errors_the_first_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[str] = []
    monkeypatch.setattr(problems, "_key", lambda loc: keys.append(loc[-1]) or keys[-1])
    inner = {f"k{number}": "x" for number in range(1_000)}
    assert (await asked("POST", "/thing", json={"number": 1, "inner": inner})).status_code == 422
    assert keys == list(inner)[:MOST_ERRORS]


async def test_people_get_a_page_and_programs_get_json() -> None:
    people = {"Accept": "text/html,application/xhtml+xml"}
    page = await asked("GET", "/raises/problem", headers=people)
    assert (page.status_code, page.headers["content-type"]) == (409, "text/html; charset=utf-8")
    assert "do this" in page.text
    assert (await asked("GET", "/api/nowhere", headers=people)).headers["content-type"] == "application/problem+json"


async def test_a_path_is_what_was_asked_for_whatever_the_machine_was_called() -> None:
    for host in ("[", "a/b?c#d", "x:y"):
        answer = await asked("GET", "/nowhere", headers={"Host": host})
        assert answer.status_code == 404
        assert "/nowhere" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"a": [1, 2.5, "é", None, True]}, {"a": [1, 2.5, "é", None, True]}),
        ({"a": math.nan, "b": [math.inf, -math.inf, 1.0]}, {"a": None, "b": [None, None, 1.0]}),
        ({"a": "\ud800", "\ud800": 1}, {"a": "\ud800", "\ud800": 1}),
        ({"a": "\ud800", "b": math.nan}, {"a": "\ud800", "b": None}),
        ({"a": b"x\xff", "b": (1, b"")}, {"a": "x\ufffd", "b": [1, ""]}),
        ({"a": 2**70}, {"a": 2**70}),
        ([math.nan], [None]),
        (math.inf, None),
    ],
)
def test_whatever_stands_in_a_row_becomes_json_that_can_be_read(value: Any, read: Any) -> None:
    body = JsonAnswer(value).body

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    assert json.loads(bytes(body).decode("utf-8"), parse_constant=refuse) == read


def test_half_characters_on_a_page_are_made_visible() -> None:
    assert in_bytes("é\ud800") == "é\\ud800".encode()


@pytest.mark.parametrize(
    ("error", "status", "remedy"),
    [
        (NotFound("there is no page 7", "It has 3 pages."), 404, "It has 3 pages."),
        (NotAllowed("it is not yours", "Ask."), 403, "Ask."),
        (NotPossible("it is done", "Choose another."), 409, "Choose another."),
        (NotPossible("a picture is being written"), 409, "Change what is named here, and send it again."),
        (TooLarge("200,000 jobs are too many"), 409, "Queue it with e3 sweep, or in parts."),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_what_a_use_case_refuses_has_a_status_and_a_remedy(error: UseCaseError, status: int, remedy: str) -> None:
    found = from_use_case(error)
    assert (found.status, found.detail, found.remedy) == (status, error.message, remedy)
