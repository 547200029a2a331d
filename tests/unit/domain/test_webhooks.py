"""Who is told of what, in which words, and where nothing is ever sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.webhooks import (
    AWAY_BACKOFF,
    BACKOFF,
    EVENTS,
    GIVE_UP_SECONDS,
    LARGEST_BODY,
    Answer,
    ResultDigest,
    Webhook,
    WebhookKind,
    body_of,
    checked_secret,
    checked_url,
    is_public,
    mint_secret,
    pause_after,
    refusal_of,
    subject_of,
)

WHEN = "2026-11-15 12:11:40.739"


def hook(*events: str, url: str = "https://example.org/e3") -> Webhook:
    return Webhook(1, None, url, events, "sealed", 0, WHEN)


@pytest.mark.parametrize(
    ("event", "kinds"),
    [
        (Event(EventName.JOB_DONE, job_id=1), {"job"}),
        (Event(EventName.JOB_FAILED, job_id=1, book_id="b"), {"job", "attention"}),
        (Event(EventName.JOB_SUBMITTED, job_id=1), set()),
        (Event(EventName.BATCH_COMPLETED, batch_id="s"), {"batch"}),
        (Event(EventName.BATCH_COMPLETED, batch_id="b", book_id="b"), {"book"}),
        (Event(EventName.BOOK_PAGE_FAILED, job_id=1, book_id="b"), {"book"}),
        (Event(EventName.SERVER_DOWN, server="http://gpu"), {"server"}),
        (Event(EventName.ALERT_SERVER, server="http://gpu"), {"server", "attention"}),
        (Event(EventName.ALERT_DISK), {"attention"}),
        (Event(EventName.ALERT_WEBHOOK), set()),
        (Event(EventName.AUDIT_LOGIN), set()),
    ],
    ids=lambda value: value.name if isinstance(value, Event) else "",
)
def test_which_webhooks_are_told_of_an_event(event: Event, kinds: set[str]) -> None:
    assert {str(kind) for kind in WebhookKind if hook(kind.value).wants(event)} == kinds


def test_no_webhook_is_told_of_what_people_did_and_every_alert_but_one_needs_attention() -> None:
    told = set().union(*EVENTS.values())
    assert not [name for name in told if name.startswith("audit.")]
    assert {name for name in EventName if name.startswith("alert.")} - told == {EventName.ALERT_WEBHOOK}


def test_a_message_says_what_happened_and_where_to_look() -> None:
    event = Event(EventName.JOB_DONE, WHEN, 9, job_id=7, config_name="fox", duration_sec=1.5, actor="x", address="y")
    made = json.loads(body_of(event, external_id="order-7", results=[ResultDigest("jobs/fox.png", "ab", 3)]))
    assert made == {
        "type": "job.done",
        "timestamp": "2026-11-15T12:11:40.739Z",
        "data": {
            "event_id": 9,
            "job_id": 7,
            "config_name": "fox",
            "duration_sec": 1.5,
            "external_id": "order-7",
            "url": "/api/v1/jobs/7",
            "result_count": 1,
            "results": [
                {"url": "/api/v1/jobs/7/results/1", "path": "jobs/fox.png", "sha256": "ab", "bytes": 3},
            ],
        },
    }


def test_a_message_stays_small() -> None:
    event = Event(EventName.JOB_DONE, WHEN, 9, job_id=7, message="x" * 2_000)
    made = body_of(event, results=[ResultDigest(f"{'é' * 200}{number}", "a" * 64, 1) for number in range(5_000)])
    assert len(made.encode()) <= LARGEST_BODY + 100
    assert json.loads(made)["data"]["result_count"] == 5_000
    assert len(json.loads(made)["data"]["results"]) > 10


@pytest.mark.parametrize(
    ("event", "subject"),
    [
        (Event(EventName.JOB_DONE, job_id=7, batch_id="s", server="http://gpu"), "job:7"),
        (Event(EventName.BATCH_COMPLETED, batch_id="s"), "batch:s"),
        (Event(EventName.SERVER_UP, server="http://gpu"), "server:http://gpu"),
        (Event(EventName.ALERT_DISK), "e3"),
    ],
)
def test_what_stays_in_order(event: Event, subject: str) -> None:
    assert subject_of(event) == subject


NOT_PUBLIC = (  # noqa: SIM905 - a list of words
    "127.0.0.1 127.8.8.8 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 224.0.0.1 240.0.0.1 "
    "255.255.255.255 192.0.2.1 198.18.0.1 ::1 :: fe80::1 fe80::1%eth0 fec0::1 fc00::1 ff02::1 ::127.0.0.1 "
    "::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: 2001:db8::1"
).split()


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_what_is_no_public_address(address: str) -> None:
    assert not is_public(address)
    assert "public" in refusal_of(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "64:ff9b::101:101"])
def test_what_is_one(address: str) -> None:
    assert is_public(address)
    assert refusal_of(address) == ""


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0177.0.0.1", "1:2"])
def test_a_host_that_only_some_systems_take_for_an_address_is_refused(host: str) -> None:
    assert refusal_of(host) == f"{host} is no address"


@pytest.mark.parametrize("host", ["example.org", "localhost", "0x7f000001"])
def test_names_are_judged_by_the_addresses_that_they_have(host: str) -> None:
    assert refusal_of(host) == ""


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "ftp://example.org",
        "http://",
        "https://u:hunter2@example.org/",
        "https://a b",
        "https://x:99999",
        "https://example.org/#hunter2",
        f"https://example.org/{'x' * 2_000}",
        "https://exämple.org",
        "https://[::1",
    ],
)
def test_an_address_that_cannot_be_told_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"no address|no password") as refused:
        checked_url(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("secret", ["", "hunter2", "whsec_aHVudGVyMg==", "whsec_!!!", 1234567890, None, "x" * 200])
def test_a_secret_of_another_form_is_refused_and_not_repeated(secret: Any) -> None:
    with pytest.raises(ValueError, match="this is no secret") as refused:
        checked_secret(secret)
    assert str(secret) not in str(refused.value) or not secret


def test_a_secret_that_was_made_is_one_and_no_other() -> None:
    assert checked_secret(mint_secret()) != mint_secret()
    assert checked_secret(mint_secret().removeprefix("whsec_"))


def test_what_an_answer_means() -> None:
    assert [Answer(status).is_success for status in (199, 200, 204, 299, 300, 410, None)] == [
        *(False, True, True, True, False, False, False)
    ]
    assert Answer(302).words == "it answered HTTP 302: redirects are not followed"
    assert Answer(problem="no answer").words == "no answer"


def test_pauses_grow_and_reach_over_a_day() -> None:
    assert [pause_after(BACKOFF, failures, 0.5) for failures in (1, 2, 8, 9, 100)] == [5, 30, 14_400, 14_400, 14_400]
    assert (pause_after(AWAY_BACKOFF, 1, 0.0), pause_after(AWAY_BACKOFF, 99, 1.0)) == (3.75, 375)
    tries, seconds = 1, 0.0
    while seconds < GIVE_UP_SECONDS:
        seconds += pause_after(BACKOFF, tries, 0.5)
        tries += 1
    assert (tries, seconds < GIVE_UP_SECONDS + 4 * 3600) == (14, True)


def test_what_is_shown_of_an_address() -> None:
    found = hook("job", url="https://example.org/e3?token=hunter2")
    assert found.as_json()["url"] == "https://example.org/e3?…"
    assert found.label == "1 (example.org)"
    assert "sealed" not in repr(found)
