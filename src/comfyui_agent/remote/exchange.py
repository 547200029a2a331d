"""Requests and answers as both clients send and read them: what is sent again, and after how long."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import httpx2
from pydantic import BaseModel, ValidationError

from comfyui_agent.remote.calls import PREFIX, Request
from comfyui_agent.remote.errors import IdTaken, Refused, Unreachable
from comfyui_agent.web.api.models import ProblemShown

TRIES = 6
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 20.0
SECONDS = 30.0
BUSY = frozenset({429, 502, 503, 504})
UNDER_WAY = "/docs/problems#under-way"


class RemoteEvent(BaseModel):
    """Something that happened, as the metrics log says it. `id` is where to go on."""

    id: int
    name: str
    data: dict[str, Any]


def settings(address: str, token: str | None) -> dict[str, Any]:
    """How a client of httpx2 talks to E3."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return {"base_url": address, "headers": headers, "timeout": httpx2.Timeout(SECONDS, connect=10.0)}


def options_of(request: Request) -> dict[str, Any]:
    """The arguments of `httpx2.Client.request`."""
    options: dict[str, Any] = {"params": request.params, "timeout": SECONDS + request.seconds}
    if request.content is not None:
        options["content"] = request.content
    elif request.body is not None:
        options["json"] = request.body
    if request.key:
        options["headers"] = {"Idempotency-Key": request.key}
    return options


def event_options(after: int | None, batch: str | None) -> dict[str, Any]:
    params: Mapping[str, Any] = {"batch": batch} if batch else {}
    headers = {"Last-Event-ID": str(after)} if after is not None else {}
    return {"url": f"{PREFIX}/events", "params": {**params, "previews": "false"}, "headers": headers}


def read_event(event: httpx2.ServerSentEvent) -> RemoteEvent | None:
    """An event of the stream; None for one that is not numbered."""
    if not event.id:
        return None
    return RemoteEvent(id=int(event.id), name=event.event or "", data=json.loads(event.data))


def pause(tries: int, response: httpx2.Response | None = None) -> float:
    """Seconds until the next try: what E3 asks for, else longer each time."""
    said = response.headers.get("retry-after", "") if response is not None else ""
    if said.isdigit():
        return float(min(int(said), LONGEST_PAUSE))
    return float(min(FIRST_PAUSE * 2**tries, LONGEST_PAUSE)) * random.uniform(0.5, 1.0)


def is_to_be_repeated(response: httpx2.Response) -> bool:
    """Whether E3 was busy, or is still answering the same request."""
    return response.status_code in BUSY or (response.status_code == 409 and _problem(response).type == UNDER_WAY)


def check_passing(response: httpx2.Response, tries: int) -> None:
    """Refused for an answer that another try will not change."""
    if tries == TRIES or not is_to_be_repeated(response):
        answer_of(response)


def check_tries(error: httpx2.TransportError, tries: int) -> None:
    """Unreachable if it was tried often enough."""
    if tries == TRIES:
        raise Unreachable(f"E3 does not answer: {error}") from None


def answer_of(response: httpx2.Response) -> Any:
    """The JSON of an answer. Refused for a problem."""
    if response.is_success:
        try:
            return response.json()
        except ValueError:
            raise Unreachable(f"{response.request.url.host} answered no JSON: is it E3?") from None
    problem = _problem(response)
    raise (IdTaken if problem.made is not None else Refused)(problem)


def _problem(response: httpx2.Response) -> ProblemShown:
    try:
        return ProblemShown.model_validate_json(response.content)
    except ValidationError:
        words = f"{response.request.url.host} answered {response.status_code}"
        return ProblemShown(type="", title=words, status=response.status_code, detail=words, remedy="Is it E3?")
