"""Admins have programs told of events, see what did not arrive and send it again. Secrets are shown once."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from standardwebhooks import Webhook as Verifier

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.tokens import Role
from comfyui_agent.domain.webhooks import mint_secret
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import this_host
from support.batches import document
from support.stores import in_the_shell
from support.web import Served, bearer, check_problem, served
from support.workspaces import call_e3

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOOKS = "/api/v1/webhooks"
URL = "https://example.org/e3?token=hunter2"
AGENT = "an-agent"
LONG_AGO = "2025-08-09 12:30:01.250"


async def dead_messages(house: Served, hook: int, count: int) -> None:
    """So many messages that did not arrive for a day."""
    [webhook] = [each for each in await house.store.run(ops.list_webhooks) if each.id == hook]
    await house.store.run(ops.register_agent, AGENT, this_host(), "/lock")
    await house.store.run(ops.hold_webhooks, AGENT, this_host(), [hook], 60.0)
    for number in range(count):
        await house.store.run(ops.add_event, Event(EventName.SERVER_UP, server=f"http://gpu{number}"))
    events = (await house.store.run(ops.events_after, webhook.last_event))[-count:]
    messages = [(event.id, f"server:{event.server}", "{}") for event in events]
    assert await house.store.run(ops.add_deliveries, webhook, AGENT, events[-1].id, messages)
    in_the_shell(house.workspace.database_file or Path(), f"UPDATE deliveries SET created_at = '{LONG_AGO}'")
    for delivery in await house.store.run(ops.list_deliveries, hook):
        await house.store.run(ops.note_undelivered, delivery, AGENT, "it answered HTTP 500", 1.0)


async def test_a_secret_is_shown_once_and_stands_nowhere_in_the_clear(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    own = mint_secret()
    async with served(tmp_path) as house:
        made = await house.post(HOOKS, {"url": URL, "events": ["job", "batch", "job"]})
        assert made.status == 201
        secret = made.value["secret"]
        Verifier(secret)
        facts = {key: made.value[key] for key in ("id", "name", "url", "events", "waiting", "dead")}
        shown = {"id": 1, "name": None, "url": "https://example.org/e3?…", "events": ["job", "batch"]}
        assert facts == {**shown, "waiting": 0, "dead": 0}
        given = await house.post(HOOKS, {"url": URL, "events": ["server"], "secret": own})
        assert given.value["secret"] == own
        shown_later = [
            (await house.get(path)).text for path in (HOOKS, "/admin", "/api/v1/audit", f"{HOOKS}/1/deliveries")
        ]
        for text in (*shown_later, caplog.text):
            assert not any(each in text for each in (secret, own, "hunter2"))
        root = house.workspace.root
    kept = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    for each in (secret, own):
        assert each.encode() not in kept
        assert each.removeprefix("whsec_").encode() not in kept


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ({"url": "http://127.0.0.1:9000/"}, "url"),
        ({"url": "http://[fd00::1]/"}, "url"),
        ({"url": "http://169.254.169.254/latest"}, "url"),
        ({"url": "https://admin:hunter2@example.org/"}, "url"),
        ({"url": "file:///etc/passwd"}, "url"),
        ({"secret": "hunter2"}, "secret"),
    ],
)
async def test_what_cannot_be_told_is_refused_with_its_key_and_not_repeated(
    house: Served, said: dict[str, str], key: str
) -> None:
    refused = await house.post(HOOKS, {"url": URL, "events": ["job"], **said})
    assert [each["key"] for each in check_problem(refused, 409)["errors"]] == [key]
    assert "hunter2" not in refused.text
    for wrong in ({"events": []}, {"events": ["night"]}, {"allow": ["127.0.0.1"]}):
        check_problem(await house.post(HOOKS, {"url": URL, "events": ["job"], **wrong}), 422)
    assert (await house.get(HOOKS)).value == []


async def test_webhooks_are_for_admins(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        user, admin = [bearer(await house.token(role)) for role in (Role.USER, Role.ADMIN)]
        for who, status in ((user, 403), (admin, 201)):
            assert (await house.post(HOOKS, {"url": URL, "events": ["job"]}, headers=who)).status == status
        for path in (HOOKS, f"{HOOKS}/1/deliveries"):
            assert [(await house.get(path, headers=who)).status for who in (user, admin)] == [403, 200]


async def test_dead_messages_are_shown_and_sent_again_one_or_all(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        made = (await house.post(HOOKS, {"url": URL, "events": ["server"]})).value["id"]
        await dead_messages(house, made, 3)
        [hook] = (await house.get(HOOKS)).value
        assert (hook["waiting"], hook["dead"]) == (0, 3)
        page = (await house.get(f"{HOOKS}/{made}/deliveries?state=dead&limit=2")).value
        rest = (await house.get(f"{HOOKS}/{made}/deliveries?state=dead&limit=2&before={page['next']}")).value
        dead = [*page["deliveries"], *rest["deliveries"]]
        assert [each["subject"] for each in dead] == [f"server:http://gpu{number}" for number in (2, 1, 0)]
        assert rest["next"] is None
        screen = (await house.get("/admin")).text
        assert "3 messages to webhooks dead" in screen
        assert all(f"{HOOKS}/{made}/deliveries/{each['id']}/repeat" in screen for each in dead)
        assert screen.count("it answered HTTP 500") >= 3
        once = await house.post(f"{HOOKS}/{made}/deliveries/{dead[0]['id']}/repeat")
        assert (once.status, once.value) == (202, {"repeated": 1})
        check_problem(await house.post(f"{HOOKS}/{made}/deliveries/{dead[0]['id']}/repeat"), 409)
        assert (await house.post(f"{HOOKS}/{made}/repeat")).value == {"repeated": 2}
        check_problem(await house.post(f"{HOOKS}/{made}/repeat"), 409)
        [hook] = (await house.get(HOOKS)).value
        assert (hook["waiting"], hook["dead"]) == (3, 0)
        told = [each for each in await house.store.run(ops.audit_trail) if each.name == EventName.AUDIT_WEBHOOK_REPEAT]
        assert [each.message for each in told] == ["1 (example.org): 2 messages", "1 (example.org): 1 message"]
        assert (await house.post(f"{HOOKS}/{made}/remove")).status == 204
        check_problem(await house.get(f"{HOOKS}/{made}/deliveries"), 404)


async def test_the_command_line_does_the_same(tmp_path: Path) -> None:
    async with served(tmp_path) as house:

        async def e3(*arguments: str, json: bool = True) -> object:
            ended = await asyncio.to_thread(
                call_e3, "webhooks", *arguments, *(["--json"] if json else []), "-C", str(house.workspace.root)
            )
            assert ended.returncode in (0, 1, 2), ended.stderr
            return document(ended) if json and ended.returncode == 0 else ended.stdout + ended.stderr

        made = await e3("add", "http://127.0.0.1:9/hook", "--event", "job", "--allow", "127.0.0.1")
        assert isinstance(made, dict)
        Verifier(made["secret"])
        refused = await e3("add", "http://127.0.0.1:9/hook", "--event", "job", json=False)
        assert refused == "e3: url: 127.0.0.1 is no public address: allow its host by name to send there\n"
        words = "the test did not arrive at webhook 1 (127.0.0.1): it cannot be reached: Connection refused"
        assert await e3("test", "1", json=False) == f"e3: {words}\n"
        tried = await house.post(f"{HOOKS}/1/test")
        assert check_problem(tried, 409)["detail"] == words
        await dead_messages(house, 1, 2)
        [listed] = await e3("ls")  # type: ignore[misc]
        assert (listed["dead"], "secret" in listed) == (2, False)
        dead = await e3("deliveries", "1", "--dead")
        assert [each["state"] for each in dead] == ["dead", "dead"]  # type: ignore[attr-defined]
        assert await e3("repeat", "1", "1") == {"repeated": 1}
        assert "1 message to webhook 1 (127.0.0.1) will be sent again" in str(await e3("repeat", "1", json=False))
        assert await e3("rm", "1", json=False) == "Webhook 1 (127.0.0.1) is removed.\n"
        assert await e3("rm", "1", json=False) == "e3: there is no webhook '1'\n"
