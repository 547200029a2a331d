"""Webhooks: who is told of which events over HTTP, in which words, and when they are told again."""

from __future__ import annotations

import base64
import ipaddress
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.texts import TextEnum, bytes_of, json_text, parsed

PREFIX = "whsec_"
MOST_WEBHOOKS, LONGEST_URL, LARGEST_BODY = 100, 2_000, 20_000
GIVE_UP_SECONDS = 24 * 3600.0
"""A message that is older is dead after the next try that fails."""
BACKOFF = (5.0, 30.0, 120.0, 600.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0)
"""Pauses before a message is sent again. The last one is repeated."""
AWAY_BACKOFF = (5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The same for a receiver that is away: then a single message is tried, and the others wait."""
AWAY = frozenset({None, 429, 502, 503, 504})


class WebhookKind(TextEnum):
    JOB = "job"
    BATCH = "batch"
    BOOK = "book"
    SERVER = "server"
    ATTENTION = "attention"


_OF_JOBS = "job.started job.retry job.done job.failed job.cancelled"
_OF_BATCHES = "batch.created batch.completed batch.cancelled batch.expired"
_ALERTS = " ".join(name for name in EventName if name.startswith("alert.") and name is not EventName.ALERT_WEBHOOK)
EVENTS: Mapping[WebhookKind, Sequence[str]] = {
    WebhookKind.JOB: _OF_JOBS.split(),
    WebhookKind.BATCH: _OF_BATCHES.split(),
    WebhookKind.BOOK: [*_OF_BATCHES.split(), "book.page.retry", "book.page.failed"],
    WebhookKind.SERVER: [name for name in EventName if name.startswith(("server.", "alert.server"))],
    WebhookKind.ATTENTION: ["job.failed", *_ALERTS.split()],
}
"""No webhook is told of webhooks: their failures would have no end."""


@dataclass(frozen=True)
class Webhook:
    """Who is told. `sealed` holds the secret and the hosts that are allowed although they are private."""

    id: int
    name: str | None
    url: str
    events: tuple[str, ...]
    sealed: str = field(repr=False)
    last_event: int
    created_at: str
    created_by: int | None = None

    @property
    def label(self) -> str:
        """For logs and the audit trail: nothing of its path, which may hold a password."""
        return f"{self.name or self.id} ({urlsplit(self.url).hostname})"

    def wants(self, event: Event) -> bool:
        unwanted = WebhookKind.BATCH if event.book_id else WebhookKind.BOOK if event.job_id is None else None
        return any(kind in self.events and kind is not unwanted and event.name in EVENTS[kind] for kind in WebhookKind)

    def as_json(self) -> dict[str, Any]:
        """What admins see. The secret is never shown, nor the query of the address."""
        facts = {key: getattr(self, key) for key in ("id", "name", "created_at", "created_by")}
        return facts | {"url": re.sub(r"\?.*", "?…", self.url), "events": list(self.events)}


@dataclass(frozen=True)
class Delivery:
    """One message to one webhook."""

    id: int
    webhook_id: int
    event_id: int
    subject: str
    body: str
    attempts: int
    created_at: str
    next_attempt_at: str | None
    delivered_at: str | None
    dead_at: str | None
    problem: str | None

    @property
    def state(self) -> str:
        return "delivered" if self.delivered_at else "dead" if self.dead_at else "waiting"

    def as_json(self) -> dict[str, Any]:
        return vars(self) | {"state": self.state, "body": parsed(self.body)}


@dataclass(frozen=True)
class ResultDigest:
    path: str
    sha256: str | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Answer:
    """What a receiver answered. Without a status, `problem` says why there was no answer."""

    status: int | None = None
    problem: str = ""

    @property
    def is_success(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def words(self) -> str:
        moved = ": redirects are not followed" if self.status is not None and 300 <= self.status < 400 else ""
        return self.problem or f"it answered HTTP {self.status}{moved}"


def mint_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def checked_secret(value: Any) -> str:
    """A secret of 24 to 64 bytes in base64, as the standard has it. ValueError does not repeat it."""
    text = value if isinstance(value, str) else ""
    try:
        size = len(base64.b64decode(text.removeprefix(PREFIX), validate=True))
    except ValueError:
        size = 0
    if not 24 <= size <= 64:
        raise ValueError(f"this is no secret: write {PREFIX} and 24 to 64 bytes in base64 (openssl rand -base64 32)")
    return text


def checked_url(value: str) -> str:
    """An address that can be told. ValueError does not repeat it."""
    try:
        parts = urlsplit(value)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_right = False
    if not is_right or len(value) > LONGEST_URL or not re.fullmatch(r"[!-~]+", value) or "#" in value:
        raise ValueError("this is no address: write one such as https://example.org/hooks/e3")
    if "@" in parts.netloc:
        raise ValueError("no password belongs there: receivers know E3 by its signature: write https://HOST/PATH")
    return value


def refusal_of(host: str) -> str:
    """Why a host that was not allowed by name is not connected to, if it is an address. Empty otherwise."""
    if not re.fullmatch(r"[0-9.]+|.*:.*", host):
        return ""
    try:
        return "" if is_public(host) else f"{host} is no public address: allow its host by name to send there"
    except ValueError:  # such as 127.1, which some systems take for an address
        return f"{host} is no address"


def is_public(address: str) -> bool:
    """Whether an address is of the Internet, and of no machine or network here. ValueError if it is none."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        nat = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF) if found in ipaddress.ip_network("64:ff9b::/96") else None
        if inner := found.ipv4_mapped or found.sixtofour or nat:
            return is_public(str(inner))
        if found.is_site_local:
            return False
    return found.is_global and not found.is_multicast and not found.is_reserved


def pause_after(pauses: Sequence[float], failures: int, chance: float) -> float:
    """How long to wait after so many failures, more or less by a quarter."""
    return pauses[min(failures, len(pauses)) - 1] * (0.75 + chance / 2)


def subject_of(event: Event) -> str:
    """Messages of one subject arrive in the order of their events."""
    named = {"job": event.job_id, "batch": event.batch_id, "server": event.server}
    return next((f"{kind}:{name}" for kind, name in named.items() if name is not None), "e3")


def body_of(
    event: Event, *, external_id: str | None = None, results: Sequence[ResultDigest] = (), batch: Batch | None = None
) -> str:
    """The message for an event: what happened, where to look, and digests of the results."""
    data = event.as_json()
    stamp = data.pop("timestamp").replace(" ", "T") + "Z"
    data = {"event_id": data.pop("id")} | {key: data[key] for key in data if key not in ("event", "actor", "address")}
    if event.job_id is not None:
        data |= {"external_id": external_id, "url": f"/api/v1/jobs/{event.job_id}", "result_count": len(results)}
        links = [{"url": f"{data['url']}/results/{n}", **vars(each)} for n, each in enumerate(results, start=1)]
        while links and bytes_of(data) + bytes_of(links) > LARGEST_BODY:
            links = links[: len(links) // 2]
        data["results"] = links
    elif batch is not None:
        noun = "books" if event.book_id else "batches"
        data |= batch.as_json() | {"url": f"/api/v1/{noun}/{quote(batch.id, safe='')}", "attention": batch.attention}
        del data["id"]
    return json_text({"type": event.name, "timestamp": stamp, "data": data})
