"""What can be asked of E3: each call yields requests, is sent their answers, and returns what they say.

Nothing here sends anything, so both clients share it.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter

from comfyui_agent.remote.errors import NotReady
from comfyui_agent.web.api.job_models import Changed, JobPageShown, JobRow, JobShown
from comfyui_agent.web.api.models import (
    BatchMade,
    BatchShown,
    BatchWhole,
    BookShown,
    InputUploaded,
    Made,
    Regenerated,
    ResultPage,
    ServerShown,
    StatusShown,
    WorkflowList,
    WorkflowWhole,
)

T = TypeVar("T")
PREFIX = "/api/v1"
LONGEST_WAIT = 50
"""Seconds of one request; longer waits are several."""


@dataclass(frozen=True)
class Request:
    """One request. Sent again after a lost answer, it does nothing twice: it only reads, or has a key."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    content: bytes | None = None
    key: str | None = None
    seconds: float = 0.0
    """How much longer than usual the answer may take."""


Call: TypeAlias = Generator[Request, Any, T]
"""Is sent the JSON of each answer."""


_adapter = lru_cache(64)(TypeAdapter)


def read(kind: type[T], document: Any) -> T:
    found: T = _adapter(kind).validate_python(document)  # type: ignore[arg-type]
    return found


def _get(kind: type[T], path: str, **params: Any) -> Call[T]:
    return read(kind, (yield Request("GET", PREFIX + path, {k: v for k, v in params.items() if v is not None})))


def _post(kind: type[T], path: str, body: Mapping[str, Any], key: str | None = None) -> Call[T]:
    said = {name: value for name, value in body.items() if value is not None}
    return read(kind, (yield Request("POST", PREFIX + path, body=said, key=key or uuid.uuid4().hex)))


def _named(kind: str, name: str | int) -> str:
    return f"/{kind}/{quote(str(name), safe='')}"


def submit(
    workflow_id: str,
    inputs: Mapping[str, Any] | None = None,
    *,
    job_type: str = "T2I",
    name: str | None = None,
    external_id: str | None = None,
    key: str | None = None,
    **more: Any,
) -> Call[JobRow]:
    """Queue one job. `more`: other keys of a job file, such as priority, metadata and reuse.

    With `key` it is made once, however often it is sent; with `external_id` it can be found by it ever after.
    """
    said = {"job_type": job_type, "workflow_id": workflow_id, "inputs": dict(inputs or {}), "name": name}
    return (yield from _post(JobRow, "/jobs", {**said, "external_id": external_id, **more}, key))


def sweep(
    workflow: str,
    set: Mapping[str, Any],
    *,
    external_id: str | None = None,
    key: str | None = None,
    **more: Any,
) -> Call[BatchMade]:
    """Queue a sweep. `set` and `more` are those of a sweep.yaml."""
    said = {"workflow": workflow, "set": dict(set), "external_id": external_id, **more}
    return (yield from _post(BatchMade, "/batches", said, key))


def book(
    workflow: str,
    pages: Sequence[Mapping[str, Any]],
    *,
    external_id: str | None = None,
    key: str | None = None,
    **more: Any,
) -> Call[BookShown]:
    """Queue a book. Each page is a mapping with `inputs`; `more` is that of a book.yaml."""
    said = {"workflow": workflow, "pages": list(map(dict, pages)), "external_id": external_id, **more}
    return (yield from _post(BookShown, "/books", said, key))


def job(name: str | int) -> Call[JobShown]:
    return (yield from _get(JobShown, _named("jobs", name)))


def batch(batch_id: str) -> Call[BatchWhole]:
    """A batch or a book."""
    return (yield from _get(BatchWhole, _named("batches", batch_id)))


def results(batch_id: str, cursor: str | None = None) -> Call[ResultPage]:
    """The members of a batch in order, with their settings and results; `cursor=page.next` goes on."""
    return (yield from _get(ResultPage, f"{_named('batches', batch_id)}/results", cursor=cursor))


def find(external_id: str) -> Call[Made]:
    """What was made with a key of yours. Refused with status 404 if nothing was."""
    return (yield from _get(Made, "/find", external_id=external_id))


def jobs(**filters: Any) -> Call[JobPageShown]:
    """A page of jobs. The filters are those of GET /api/v1/jobs; `cursor=page.next` goes on."""
    return (yield from _get(JobPageShown, "/jobs", **filters))


def wait_job(name: str | int, timeout: float | None = None) -> Call[JobShown]:
    """The job when it has ended, done or failed. NotReady when the time is up."""
    return (yield from _waited(JobShown, _named("jobs", name), timeout))


def wait_batch(batch_id: str, timeout: float | None = None) -> Call[BatchWhole]:
    """The batch or book when all its jobs have ended. NotReady when the time is up."""
    return (yield from _waited(BatchWhole, _named("batches", batch_id), timeout))


def _waited(kind: type[T], path: str, timeout: float | None) -> Call[T]:
    for seconds in _parts(timeout):
        said = yield Request("GET", f"{PREFIX}{path}/wait", {"seconds": seconds}, seconds=seconds)
        if said["is_ended"]:
            return read(kind, said)
    raise NotReady(f"{path[1:]} has not ended within {timeout:g} s")


def _parts(timeout: float | None) -> Iterator[int]:
    """Whole seconds of several requests. One may be 0: whoever waits for no time at all still looks."""
    left = math.inf if timeout is None else math.ceil(timeout)
    while True:
        yield int(min(LONGEST_WAIT, left))
        left -= LONGEST_WAIT
        if left <= 0:
            return


def retry(*names: str) -> Call[Changed]:
    """Submit failed jobs again."""
    return (yield from _post(Changed, "/jobs/retry", {"names": list(names)}))


def cancel(*names: str) -> Call[Changed]:
    """Cancel jobs that wait or render."""
    return (yield from _post(Changed, "/jobs/cancel", {"names": list(names)}))


def cancel_batch(batch_id: str) -> Call[BatchShown]:
    return (yield from _post(BatchShown, f"{_named('batches', batch_id)}/cancel", {}))


def regenerate(book_id: str, pages: Sequence[int] | None = None) -> Call[Regenerated]:
    """Render failed pages again: all, or those that are named."""
    said = {"pages": None if pages is None else list(pages)}
    return (yield from _post(Regenerated, f"{_named('books', book_id)}/regenerate", said))


def upload(data: bytes, name: str = "") -> Call[InputUploaded]:
    """Keep a picture, film or sound for jobs, which name it by `value`. The same bytes are kept once."""
    return read(InputUploaded, (yield Request("POST", f"{PREFIX}/inputs", {"name": name}, content=data, key="")))


def workflows() -> Call[WorkflowList]:
    return (yield from _get(WorkflowList, "/workflows"))


def workflow(workflow_id: str) -> Call[WorkflowWhole]:
    """What a workflow can be given."""
    return (yield from _get(WorkflowWhole, _named("workflows", workflow_id)))


def servers() -> Call[list[ServerShown]]:
    return (yield from _get(list[ServerShown], "/servers"))


def status() -> Call[StatusShown]:
    """How it stands."""
    return (yield from _get(StatusShown, "/status"))
