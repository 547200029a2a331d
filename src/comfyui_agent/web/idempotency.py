"""`Idempotency-Key`: a request that is sent again, because its answer was lost, is done once."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Header
from fastapi.responses import Response
from pydantic import BaseModel

from comfyui_agent.access.gate import Caller
from comfyui_agent.access.problem import KEY_REUSED, UNDER_WAY, Problem
from comfyui_agent.pools import RENDERING
from comfyui_agent.store import operations as ops
from comfyui_agent.store.idempotency import Begun, Busy, Different, Repeated, TakenOver
from comfyui_agent.store.liveness import bury_dead
from comfyui_agent.usecases.errors import UseCaseError
from comfyui_agent.web.context import Context
from comfyui_agent.web.problems import JsonAnswer

REPLAYED = "Idempotency-Replayed"
CREATED = 201

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[!-~]+$",
        description="Any text of yours. Sent again with the same request, it gets the same answer: nothing twice.",
    ),
]
Answer = dict[str, Any]


class IdempotentRequest(BaseModel):
    """What is asked for, where, and under which key."""

    key: str | None
    route: str
    body: Any

    @property
    def digest(self) -> str:
        text = json.dumps(self.body, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(f"{self.route} {text}".encode()).hexdigest()

    def headers(self, answer: Answer) -> dict[str, str]:
        return {"Location": f"/api/v1/{self.route}/{quote(str(answer['id']), safe='')}"}


async def once(
    context: Context,
    caller: Caller,
    request: IdempotentRequest,
    made: str,
    make: Callable[[str], Awaitable[Answer]],
    find: Callable[[str], Awaitable[Answer | None]],
) -> Response:
    """Make something under a name that is known before; or answer as the first time, if the key was there before.

    `find` looks for what was made by a process that died before it could note its answer.
    """
    if request.key is None:
        answer = await make(made)
        return await RENDERING.run(JsonAnswer, answer, CREATED, headers=request.headers(answer))
    keys = request.key, f"{caller.scope} {request.route}"
    with _answering(context, keys) as is_alone:
        worker, host = context.lock.worker, context.lock.host
        await bury_dead(context.store, host)
        begun = await context.store.run(ops.begin_request, *keys, request.digest, worker, made, host, is_alone=is_alone)
        found: Answer | None = None
        match begun:
            case Repeated():
                answer = json.loads(begun.answer)
                return JsonAnswer(answer, begun.status, headers={REPLAYED: "true", **request.headers(answer)})
            case Busy():
                detail = "a request with this Idempotency-Key is being answered now"
                remedy = "Send it again in a moment: it gets the same answer."
                raise Problem(409, detail, remedy, kind=UNDER_WAY, headers={"Retry-After": "1"})
            case Different():
                detail = "this Idempotency-Key was sent before with another request"
                raise Problem(409, detail, "Use a new key for a new request.", kind=KEY_REUSED)
            case TakenOver():
                made = begun.made
                found = await find(made)
            case Begun():
                pass
        try:
            answer = await make(made) if found is None else found
        except (Problem, UseCaseError):  # nothing was made; after any other error, the next request finds out
            await context.store.run(ops.drop_request, *keys)
            raise
        await context.store.run(ops.finish_request, *keys, CREATED, await RENDERING.run(json.dumps, answer))
        return await RENDERING.run(JsonAnswer, answer, CREATED, headers=request.headers(answer))


@contextlib.contextmanager
def _answering(context: Context, keys: tuple[str, str]) -> Iterator[bool]:
    """Count a request of this process under way. Yields whether it is the only one with its key."""
    under_way = context.under_way
    is_alone = not under_way[keys]
    under_way[keys] += 1
    try:
        yield is_alone
    finally:
        under_way[keys] -= 1
        if not under_way[keys]:
            del under_way[keys]
