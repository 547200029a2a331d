"""Why a request is refused: what happened, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

LONGEST = 2_000
MOST_ERRORS = 50
LONGEST_KEY = 200
TITLES = {
    400: "The request cannot be read",
    401: "A token is needed",
    403: "Not allowed",
    404: "Not found",
    405: "Not possible here",
    408: "The request took too long",
    409: "It cannot be done as things are",
    413: "The request is too large",
    415: "The request is not JSON",
    416: "There is no such part",
    422: "The request does not say what is needed",
    429: "Too many requests, jobs or failed logins",
    500: "E3 itself failed",
    503: "Not possible at the moment",
}
TYPE = "/docs/problems#"
KINDS = {
    400: "unreadable",
    401: "token-needed",
    403: "not-allowed",
    404: "not-found",
    405: "no-such-method",
    408: "too-slow",
    409: "not-possible",
    413: "too-large",
    415: "wrong-content-type",
    416: "no-such-part",
    422: "invalid",
    429: "too-many",
    500: "failed",
    503: "unavailable",
}
"""What a problem is to a program, by its status. Some have a kind of their own:"""
NAME_TAKEN, EXTERNAL_ID_TAKEN, KEY_REUSED, UNDER_WAY = "name-taken", "external-id-taken", "key-reused", "under-way"
BAD_VALUES, TOO_MUCH, QUOTA, BAD_CURSOR = "bad-values", "too-much", "quota", "bad-cursor"
OWN_KINDS = {
    NAME_TAKEN: "Another job, batch or book has this name",
    EXTERNAL_ID_TAKEN: "Something of your token has this external_id",
    KEY_REUSED: "The Idempotency-Key was sent with another request",
    UNDER_WAY: "The same request is being answered now",
    BAD_VALUES: "The workflow does not take these values",
    TOO_MUCH: "It is more than may be asked for at once",
    QUOTA: "Your token has too many jobs that have not ended",
    BAD_CURSOR: "No page of this list ended with this cursor",
}
REMEDIES = {
    404: "See /docs for what there is.",
    405: "See /docs for what there is.",
    500: "The log of e3 says more. Try again; report it if it stays.",
}


@dataclass(eq=False)
class Problem(Exception):
    """An error that is answered with what happened and what to do about it."""

    status: int
    detail: str
    remedy: str = ""
    _: KW_ONLY
    errors: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""
    """One of OWN_KINDS; else its status says it."""
    made: Mapping[str, str] | None = None
    """What was made with the same key before."""

    def __post_init__(self) -> None:
        super().__init__(self.detail)
        self.remedy = self.remedy or REMEDIES.get(self.status, "")

    @property
    def title(self) -> str:
        return TITLES.get(self.status, "It did not work")

    def as_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "type": TYPE + (self.kind or KINDS.get(self.status, "failed")),
            "title": self.title,
            "status": self.status,
            "detail": self.detail[:LONGEST],
            "remedy": self.remedy,
        }
        if self.errors:
            facts["errors"] = [
                {"key": key[:LONGEST_KEY], "message": message[:LONGEST]} for key, message in self.errors[:MOST_ERRORS]
            ]
        return facts | ({"made": dict(self.made)} if self.made else {})


def ended_early() -> Problem:
    """400 for a client that disconnected before it was answered."""
    return Problem(400, "the request ended early", "Send it again.")


def too_many(detail: str, remedy: str, seconds: int, kind: str = "") -> Problem:
    """429 with Retry-After."""
    return Problem(429, detail, remedy, kind=kind, headers={"Retry-After": str(seconds)})


def short_of(detail: str, remedy: str = "", *, seconds: int = 5) -> Problem:
    """503 for something that is short at the moment, with Retry-After."""
    return Problem(503, detail, remedy or f"Try again in {seconds} s.", headers={"Retry-After": str(seconds)})
