"""Admins see where messages go, by their schemes, and send a test there."""

from __future__ import annotations

from pathlib import Path

from comfyui_agent.store import operations as ops
from support.receivers import SECRET, receiving
from support.web import check_problem, served


async def test_a_test_arrives_or_the_answer_says_who_did_not_take_it(tmp_path: Path) -> None:
    with receiving() as receiver:
        async with served(tmp_path, environment={"E3_NOTIFY__URLS": receiver.url}) as house:
            admin = (await house.get("/admin")).text
            assert "Messages go to json." in admin
            assert SECRET not in admin
            answer = await house.post("/api/v1/notify/test")
            assert (answer.status, answer.value) == (200, {"sent": ["json"]})
            assert [message["title"] for message in receiver.messages] == ["A test of E3"]
            receiver.status = 500
            problem = await house.post("/api/v1/notify/test")
            check_problem(problem, 409)
            assert problem.value["detail"] == "the test was not delivered: json: it answered HTTP 500"
            events = [event for event in await house.store.run(ops.events_after, 0) if event.is_audit]
            assert [(event.name, event.message) for event in events] == [("audit.notify.test", "json")] * 2


async def test_where_nobody_is_to_be_told_it_says_what_to_write(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        assert "docs/notifications.md" in (await house.get("/admin")).text
        check_problem(await house.post("/api/v1/notify/test"), 409)
