"""The audit trail: every change is one row that says who asked for it, and from where; only admins see it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from comfyui_agent.access import limits
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.tokens import Role
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import DatabaseFull
from comfyui_agent.web.guard import UNSAFE
from comfyui_agent.web.page_server import create_app
from support.batches import document
from support.stores import intercept
from support.web import Answer, Served, bearer, check_problem, routes_of, served, watching
from support.workspaces import call_e3, run_e3

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUDIT = "/api/v1/audit"
SECRET_INPUT = 4711
JOB = {"job_type": "T2I", "workflow_id": "picture", "inputs": {"color": SECRET_INPUT}}
SWEEP = {"name": "knights", "workflow": "picture", "set": {"color": "1"}}
BOOK = {"book_id": "winter", "workflow": "picture", "pages": [{"inputs": {"color": 1}}, {"inputs": {"color": 2}}]}
SERVER = "127.0.0.1:9"
WEBHOOK = {"url": "https://example.org/secret", "events": ["job", "batch"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def locked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Served, str, str]]:
    """With a user, who has queued a job, and an admin."""
    async with served(tmp_path_factory.mktemp("locked")) as asking:
        user, admin = await asking.token(Role.USER, "ann"), await asking.token(Role.ADMIN, "studio")
        assert (await asking.post("/api/v1/jobs", {**JOB, "name": "first"}, headers=bearer(user))).status == 201
        yield asking, user, admin


async def rows(house: Served, after: int = 0) -> list[Event]:
    """The audit trail behind an event, in its order."""
    return [event for event in await house.store.run(ops.events_after, after) if event.is_audit]


async def form(house: Served, path: str, token: str = "", **headers: str) -> Answer:
    kind = {"Content-Type": "application/x-www-form-urlencoded", "Origin": house.url}
    return await house.post(path, data=f"token={quote(token)}", headers={**kind, **headers})


CHANGES: list[tuple[str, str, dict[str, Any] | None, str, str]] = [
    ("POST", "/api/v1/jobs", {**JOB, "name": "fox"}, "audit.job.submit", "fox"),
    ("PUT", "/api/v1/jobs/{name}/priority", {"priority": 7}, "audit.job.priority", "from 50 to 7"),
    ("POST", "/api/v1/jobs/{name}/cancel", None, "audit.job.cancel", "fox"),
    ("POST", "/api/v1/jobs/{name}/dismiss", None, "audit.job.dismiss", "fox"),
    ("POST", "/api/v1/jobs/dismiss", {"names": ["fox"]}, "audit.job.dismiss", "1 job: fox"),
    ("POST", "/api/v1/jobs/{name}/retry", None, "audit.job.retry", "fox"),
    ("POST", "/api/v1/jobs/cancel", {"names": ["fox"]}, "audit.job.cancel", "1 job: fox"),
    ("POST", "/api/v1/jobs/retry", {"names": ["fox"]}, "audit.job.retry", "1 job: fox"),
    ("PUT", "/api/v1/jobs/{name}/rating", {"rating": "star"}, "audit.job.rate", "fox"),
    ("POST", "/api/v1/jobs/rate", {"names": ["fox"], "rating": None}, "audit.job.rate", "1 job: fox"),
    ("POST", "/api/v1/jobs/{name}/remove", None, "audit.job.delete", "fox"),
    ("POST", "/api/v1/batches", SWEEP, "audit.batch.create", "1 job"),
    ("POST", "/api/v1/batches/{batch_id}/pause", None, "audit.batch.pause", "knights"),
    ("POST", "/api/v1/batches/{batch_id}/resume", None, "audit.batch.resume", "knights"),
    ("POST", "/api/v1/batches/{batch_id}/cancel", None, "audit.batch.cancel", "1 job"),
    ("POST", "/api/v1/batches/{batch_id}/grid", {}, "audit.batch.grid", "knights"),
    ("POST", "/api/v1/batches/{batch_id}/retry", {"cancelled": True}, "audit.batch.retry", "1 job"),
    ("POST", "/api/v1/batches/{batch_id}/dismiss", None, "audit.job.dismiss", "1 job"),
    ("POST", "/api/v1/books", BOOK, "audit.book.create", "2 pages"),
    ("POST", "/api/v1/books/{book_id}/regenerate", {"pages": [1]}, "audit.book.regenerate", "page 1"),
    ("POST", "/books/{book_id}/regenerate", {"pages": [2]}, "audit.book.regenerate", "page 2"),
    ("POST", "/admin/books/{book_id}/regenerate-page/{page}", {}, "audit.book.regenerate", "page 1"),
    ("POST", "/api/v1/admin/books/{book_id}/regenerate-page/{page}", {}, "audit.book.regenerate", "page 1"),
    ("POST", "/api/v1/workflows", {"1": {"class_type": "A", "inputs": {}}}, "audit.workflow.import", "workflow"),
    ("POST", "/api/v1/servers/{name}/pause", None, "audit.server.pause", SERVER),
    ("POST", "/api/v1/servers/{name}/drain", None, "audit.server.drain", SERVER),
    ("POST", "/api/v1/servers/{name}/resume", None, "audit.server.resume", SERVER),
    ("POST", "/api/v1/webhooks", WEBHOOK, "audit.webhook.create", "1 (example.org): job, batch"),
    ("POST", "/api/v1/webhooks/{name}/remove", None, "audit.webhook.remove", "1 (example.org)"),
    ("POST", "/login", None, "audit.login", ""),
    ("POST", "/logout", None, "audit.logout", ""),
]


async def test_every_route_that_changes_something_is_in_this_list(locked: tuple[Served, str, str]) -> None:
    known = {(method, path) for method, path in routes_of(create_app(locked[0].context)) if method in UNSAFE}
    in_test_processes = ("POST", "/api/v1/servers/{name}/restart")
    with_a_receiver = ("POST", "/api/v1/notify/test")
    in_test_variations = {("POST", f"/api/v1/jobs/{{name}}/{what}") for what in ("again", "vary", "use")}
    in_test_variations |= {
        ("PUT", "/api/v1/jobs/{name}/take"),
        ("POST", "/api/v1/inputs"),
        ("POST", "/api/v1/jobs/bulk"),
    }
    looks = ("POST", "/api/v1/results/export")
    in_test_webhooks = {("POST", f"/api/v1/webhooks/{{name}}/{what}") for what in ("test", "repeat")}
    in_test_webhooks |= {("POST", "/api/v1/webhooks/{name}/deliveries/{delivery}/repeat")}
    in_test_access_of_mcp = ("POST", "/mcp")
    others = {looks, in_test_access_of_mcp, in_test_processes, with_a_receiver, *in_test_variations, *in_test_webhooks}
    assert known == {*others, *((method, path) for method, path, *_ in CHANGES)}


async def test_every_change_over_http_is_one_row_with_who_what_and_from_where(locked: tuple[Served, str, str]) -> None:
    house, _, admin = locked
    names = {"batch_id": "", "book_id": "winter", "page": "1"}
    cookie = ""
    for method, path, body, event, subject in CHANGES:
        before = await house.store.run(ops.newest_event)
        if "book" in path and "regenerate" in path:  # only what has ended is made anew
            await house.store.run(ops.cancel_jobs, [job.id async for job in ops.batch_members(house.store, "winter")])
        if path.endswith("/rating"):  # only results can be
            [leased] = await house.lease(1)
            await house.finish(leased)
            before = await house.store.run(ops.newest_event)
        if path.endswith("/remove"):
            await house.store.run(
                ops.cancel_jobs, [job.id for job in await house.store.run(ops.list_jobs) if job.config_name == "fox"]
            )
            before = await house.store.run(ops.newest_event)
        if path == "/api/v1/batches/{batch_id}/dismiss":  # only what failed can be
            [leased] = await house.lease(1, names["batch_id"])
            await house.fail(leased)
            before = await house.store.run(ops.newest_event)
        name = SERVER if "/servers/" in path else "1" if "/webhooks/" in path else "fox"
        address = path.format(**names, name=name)
        if path in ("/login", "/logout"):
            answer = await form(house, path, admin, **({"Cookie": cookie} if cookie else {}))
            cookie = answer.headers.get("Set-Cookie", "").partition(";")[0]
        else:
            answer = await house.ask(method, address, body, headers=bearer(admin))
        assert answer.status in (200, 201, 202, 204, 303), (path, answer.text)
        if path == "/api/v1/batches":
            names["batch_id"] = answer.value["id"]
        [row] = await rows(house, before)
        assert (row.name, row.actor, row.address) == (event, "token 2 (studio)", "127.0.0.1"), path
        facts = (row.config_name, row.batch_id, row.server, row.message)
        assert any(re.search(rf"{re.escape(subject)}(?![a-z])", str(fact)) for fact in facts), (path, row)
        assert str(SECRET_INPUT) not in str(row)
        assert admin not in str(row)


async def test_what_was_refused_or_only_looked_at_is_no_row(locked: tuple[Served, str, str]) -> None:
    house, user, admin = locked
    await house.store.run(ops.submit_jobs, [])
    before = await house.store.run(ops.newest_event)
    await house.post("/api/v1/jobs/nobody/cancel", headers=bearer(admin))
    await house.post("/api/v1/servers/x/pause", headers=bearer(user))
    await house.post("/api/v1/batches", {**SWEEP, "dry_run": True}, headers=bearer(user))
    await house.post("/api/v1/jobs", {**JOB, "job_type": "?"}, headers=bearer(user))
    await house.get("/api/v1/jobs", headers=bearer(user))
    assert await rows(house, before) == []


async def test_a_request_that_is_repeated_with_its_key_is_one_row(locked: tuple[Served, str, str]) -> None:
    house, user, _ = locked
    before = await house.store.run(ops.newest_event)
    for _ in range(3):
        await house.post("/api/v1/jobs", JOB, headers={**bearer(user), "Idempotency-Key": "once"})
    assert [row.name for row in await rows(house, before)] == ["audit.job.submit"]


async def test_many_jobs_are_one_row_with_their_count(locked: tuple[Served, str, str]) -> None:
    house, user, _ = locked
    names = [f"many-{number}" for number in range(12)]
    for name in names:
        await house.post("/api/v1/jobs", {**JOB, "name": name}, headers=bearer(user))
    before = await house.store.run(ops.newest_event)
    await house.post("/api/v1/jobs/cancel", {"names": names}, headers=bearer(user))
    [row] = await rows(house, before)
    assert row.message == "12 jobs: many-0, many-1, many-2, many-3, many-4 and 7 more"


async def test_without_tokens_it_was_this_machine(house: Served) -> None:
    await house.post("/api/v1/jobs", {**JOB, "name": "open"})
    found = (await house.get(f"{AUDIT}?actor=THIS")).value["audit"]
    assert [(row["event"], row["actor"], row["address"]) for row in found] == [
        ("audit.job.submit", "this machine", "127.0.0.1")
    ]


async def test_a_job_is_made_even_if_the_audit_trail_cannot_be_written(
    locked: tuple[Served, str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    house, user, _ = locked

    async def fails(really: Any, event: Event) -> None:
        if event.is_audit:
            raise DatabaseFull("there is no room")
        await really(event)

    intercept(monkeypatch, house.store, ops.add_event, fails)
    answer = await house.post("/api/v1/jobs", {**JOB, "name": "unwritten"}, headers=bearer(user))
    assert answer.status == 201
    assert "audit.job.submit by token 1 (ann) is missing in the audit trail" in caplog.text


async def test_wrong_tokens_of_a_minute_are_one_row_for_each_address(
    locked: tuple[Served, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    house, _, _ = locked
    before = await house.store.run(ops.newest_event)
    for _ in range(3):
        check_problem(await house.get("/api/v1/me", headers=bearer("e3_wrong")), 401)
    assert (await form(house, "/login", "e3_wrong_too")).status == 401
    assert await rows(house, before) == []
    monkeypatch.setattr(limits, "MOST_AUDITED", 2)
    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        house.context.gate.wrong_tokens.count(address)
    await house.context.gate.wrong_tokens.audit()
    found = [(row.name, row.address, row.message) for row in await rows(house, before)]
    assert found == [
        ("audit.login.failed", "127.0.0.1", "4 wrong tokens within a minute"),
        ("audit.login.failed", "10.0.0.1", "1 wrong token within a minute"),
        ("audit.login.failed", "other addresses", "2 wrong tokens within a minute"),
    ]
    await house.context.gate.wrong_tokens.audit()
    assert len(await rows(house, before)) == 3, "they are told once"


async def test_only_admins_see_the_trail(locked: tuple[Served, str, str]) -> None:
    house, user, admin = locked
    check_problem(await house.get(AUDIT, headers=bearer(user)), 403)
    found = (await house.get(AUDIT, headers=bearer(admin))).value
    assert found["audit"][0].keys() >= {"id", "timestamp", "event", "actor", "address", "config_name", "message"}
    shown = (await house.get("/admin", headers=bearer(admin))).text
    assert "Who did what" in shown
    assert "token 1 (ann)" in shown
    assert "127.0.0.1" in shown


async def test_the_trail_comes_in_pages_of_what_is_asked_for(locked: tuple[Served, str, str]) -> None:
    house, _, admin = locked
    everything = (await house.get(f"{AUDIT}?limit=1000", headers=bearer(admin))).value
    assert everything["next"] is None
    ids = [row["id"] for row in everything["audit"]]
    assert ids == sorted(ids, reverse=True)
    read: list[int] = []
    question = "?limit=7"
    while question:
        page = (await house.get(AUDIT + question, headers=bearer(admin))).value
        read += [row["id"] for row in page["audit"]]
        question = f"?limit=7&before={page['next']}" if page["next"] else ""
    assert read == ids
    anns = (await house.get(f"{AUDIT}?actor=ann&since=1h", headers=bearer(admin))).value["audit"]
    assert {row["actor"] for row in anns} == {"token 1 (ann)"}
    for wrong in ("since=1", "since=-1d", "since=0d", "since=", "limit=0", "before=x"):
        check_problem(await house.get(f"{AUDIT}?{wrong}", headers=bearer(admin)), 422)


async def test_a_users_stream_is_not_told_who_asked_and_from_where(locked: tuple[Served, str, str]) -> None:
    house, user, admin = locked
    before = await house.store.run(ops.newest_event)
    for name in ("heard-1", "heard-2"):
        await house.post("/api/v1/jobs", {**JOB, "name": name}, headers=bearer(user))
    for question in ("", f"?after={before}"):
        async with (
            watching(house, f"/api/v1/events{question}", Authorization=f"Bearer {user}") as told,
            watching(house, f"/api/v1/events{question}", Authorization=f"Bearer {admin}") as everything,
        ):
            await house.post("/api/v1/jobs", {**JOB, "name": f"last{len(question)}"}, headers=bearer(user))
            heard = await everything.until(lambda frame: frame.event == "audit.job.submit" and "last" in frame.data)
            assert heard[-1].value["address"] == "127.0.0.1"
            await house.job(f"end{len(question)}")
            await told.until(lambda frame: "end" in frame.data)
            assert b"job.submitted" in told.heard
            assert b"audit" not in told.heard
            assert b"127.0.0.1" not in told.heard


async def test_commands_that_steer_are_in_the_trail_with_the_user_of_the_machine(house: Served) -> None:
    async def e3(*arguments: str) -> Any:
        return await asyncio.to_thread(call_e3, *arguments, "-C", str(house.workspace.root))

    await house.job("page-fox")
    assert (await house.post("/api/v1/jobs/page-fox/cancel")).status == 202
    before = await house.store.run(ops.newest_event)
    fox, _ = [await house.job(name) for name in ("cli-fox", "cli-hare")]
    sweep = ("sweep", "picture", "--set", "color=1")
    batch = (await asyncio.to_thread(run_e3, *sweep, "-C", str(house.workspace.root))).stdout.strip()
    for arguments in (
        ("queue", "set-priority", "cli-fox", "3"),
        ("cancel", "cli-fox", "cli-hare"),
        ("retry", "cli-fox"),
        *[("batch", what, batch) for what in ("pause", "resume", "cancel")],
        ("batch", "retry", batch, "--cancelled"),
        *[("servers", what, SERVER) for what in ("pause", "drain", "resume")],
        ("db", "recover"),
    ):
        answer = await e3(*arguments)
        assert answer.returncode == 0, answer.stderr
    assert (await e3("cancel", "nobody")).returncode == 1
    found = [row for row in await rows(house, before) if row.actor != "this machine"]
    assert [(row.name.removeprefix("audit."), row.job_id, row.batch_id, row.message) for row in found] == [
        ("batch.create", None, batch, "1 job"),
        ("job.priority", fox.id, None, "from 50 to 3"),
        ("job.cancel", None, None, "2 jobs: cli-fox, cli-hare"),
        ("job.retry", fox.id, None, None),
        ("batch.pause", None, batch, None),
        ("batch.resume", None, batch, None),
        ("batch.cancel", None, batch, "1 job"),
        ("batch.retry", None, batch, "1 job"),
        *[(f"server.{what}", None, None, None) for what in ("pause", "drain", "resume")],
        ("db.recover", None, None, "0 jobs"),
    ]
    assert {row.actor.partition(" ")[0] for row in found if row.actor} == {"cli"}

    listed = document(await e3("audit", "--actor", "cli", "--limit", "2", "--json"))
    assert [row["event"] for row in listed] == ["audit.server.resume", "audit.db.recover"], "the newest, in their order"
    told = (await e3("audit", "--since", "1h")).stdout
    assert "job.cancel  2 jobs: cli-fox, cli-hare" in told
    assert "from 127.0.0.1" in told
    assert (await e3("audit", "--actor", "nobody")).stdout == "Nobody asked for a change in that time.\n"
    refused = await e3("audit", "--since", "yesterday")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "write it as 30d" in refused.stderr


async def test_tokens_that_are_made_and_taken_back_are_in_the_trail_and_never_what_they_are(house: Served) -> None:
    place = ["-C", str(house.workspace.root)]
    before = await house.store.run(ops.newest_event)
    made = document(
        await asyncio.to_thread(
            call_e3, "token", "create", "--role", "user", "--shared", "--name", "shift", "--json", *place
        )
    )
    assert made["is_shared"] is True
    await asyncio.to_thread(call_e3, "token", "revoke", str(made["id"]), *place)
    await asyncio.to_thread(call_e3, "token", "open", *place)
    found = await rows(house, before)
    assert [(row.name, row.message) for row in found] == [
        ("audit.token.create", f"{made['id']} (shift, user, shared)"),
        ("audit.token.revoke", f"{made['id']} (shift, user, shared)"),
        ("audit.token.open", "0 tokens revoked"),
    ]
    assert made["token"] not in str(found)


async def test_a_row_is_reported_in_the_metrics_log_like_any_event() -> None:
    event = Event(EventName.AUDIT_JOB_CANCEL, job_id=JobId(1), actor="token 3 (studio)", address="10.0.0.7")
    said = event.as_json()
    assert (said["event"], said["actor"], said["address"]) == ("audit.job.cancel", "token 3 (studio)", "10.0.0.7")
