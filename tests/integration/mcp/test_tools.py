"""The tools for AI agents, called by the SDK's own client at a page that is served."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import pytest
import pytest_asyncio
from PIL import Image

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.retry_policy import GiveUp
from comfyui_agent.mcp.tools import LONGEST_WAIT
from comfyui_agent.store import operations as ops
from support.mcp_clients import agent_at
from support.pictures import png
from support.stores import broken
from support.web import Served, served

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAKE = {"submit_job", "submit_sweep", "submit_book", "retry", "cancel", "regenerate"}
LOOK = {"list_workflows", "describe_workflow", "wait", "status", "get_result", "list_servers", "doctor"}
TOOLS = MAKE | LOOK
PICTURE = {"workflow": "picture", "inputs": {"color": 1}}
SWEEP = {"workflow": "picture", "set": {"color": "1..3"}}
BOOK = {"workflow": "picture", "pages": [{"inputs": {"color": 1}}, {"inputs": {"color": 2}}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with served(tmp_path_factory.mktemp("house")) as open_to_all:
        yield open_to_all


async def render(house: Served, batch_id: str | None = None, *pictures: bytes) -> None:
    """One more job is done, of a batch if one is named."""
    [leased] = await house.lease(1, batch_id)
    await house.finish(leased, *pictures)


async def fail(house: Served, batch_id: str | None = None, kind: FailureClass = FailureClass.EXECUTION) -> None:
    [leased] = await house.lease(1, batch_id)
    await house.store.run(ops.fail_job, leased.lease, broken(message="no such sampler"), GiveUp(kind))


async def clear(house: Served) -> None:
    """Nothing of an earlier test waits."""
    jobs = await house.store.run(ops.list_jobs, limit=100_000)
    await house.store.run(ops.cancel_jobs, [job.id for job in jobs])


async def jobs_of(house: Served) -> list[Job]:
    return await house.store.run(ops.list_jobs, limit=100_000)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_inspector_finds_nothing_to_complain_of(house: Served, mode: str) -> None:
    async with agent_at(house.url, mode=mode) as agent:
        tools = (await agent.client.list_tools()).tools
        assert sorted(tool.name for tool in tools) == sorted(TOOLS)
        for tool in tools:
            assert tool.description
            assert 20 < len(tool.description) < 200, tool.name
            for schema in (tool.input_schema, tool.output_schema):
                assert schema is not None
                jsonschema.Draft202012Validator.check_schema(schema)
                assert schema["type"] == "object"
            assert tool.input_schema["additionalProperties"] is False
            assert all(each["description"] for each in tool.input_schema["properties"].values()), tool.name
            assert {"summary", "next"} <= set((tool.output_schema or {})["required"])
            hints = tool.annotations
            assert hints is not None
            assert hints.read_only_hint is (tool.name in LOOK), tool.name
            assert hints.destructive_hint is (tool.name == "cancel"), tool.name
            assert hints.open_world_hint is False
        assert len(json.dumps([tool.input_schema for tool in tools])) < 12_000, "a model reads all of this"
        assert (agent.client.instructions or "").startswith("E3 renders")


async def test_resources_and_prompts_are_there_to_be_read(house: Served) -> None:
    async with agent_at(house.url) as agent:
        await agent.ask("submit_sweep", **SWEEP, key="to-be-read")
        uris = {str(each.uri) for each in (await agent.client.list_resources()).resources}
        assert uris == {"e3://workspace", "e3://workflows", "e3://batches"}
        for uri in uris:
            [content] = (await agent.client.read_resource(uri)).contents
            assert content.mime_type == "application/json"
            assert json.loads(content.text)["summary"]  # type: ignore[union-attr]
        prompts = (await agent.client.list_prompts()).prompts
        assert [each.name for each in prompts] == ["render_one", "best_settings", "make_book", "what_went_wrong"]
        for prompt in prompts:
            [message] = (await agent.client.get_prompt(prompt.name, {"what": "a fox"})).messages
            named = set(re.findall(r"\b(?:submit|get|list|describe)_\w+|regenerate|doctor", message.content.text))  # type: ignore[union-attr]
            assert named <= TOOLS
            assert "a fox" in message.content.text  # type: ignore[union-attr]


async def test_a_model_learns_what_it_can_make_and_what_that_takes(house: Served) -> None:
    async with agent_at(house.url) as agent:
        found = {each["workflow"]: each for each in (await agent.ask("list_workflows"))["workflows"]}
        assert found["wf_realistic_portrait"]["required_inputs"] == ["prompt", "seed", "steps"]
        told = await agent.ask("describe_workflow", workflow="wf_realistic_portrait")
        inputs = {each["name"]: each for each in told["inputs"]}
        assert inputs["prompt"]["is_required"]
        assert not inputs["cfg"]["is_required"]
        assert told["makes"] == "T2I"
        assert "did you mean picture?" in await agent.refused("describe_workflow", workflow="pictur")


async def test_a_key_makes_one_thing_however_often_it_is_sent(house: Served) -> None:
    await clear(house)
    before = len(await jobs_of(house))
    async with agent_at(house.url) as agent:
        answers = await asyncio.gather(*(agent.ask("submit_job", **PICTURE, key="fox") for _ in range(5)))
        assert sorted(each["is_new"] for each in answers) == [False] * 4 + [True]
        assert len({each["id"] for each in answers}) == 1
        sweeps = [await agent.ask("submit_sweep", **SWEEP, key="foxes") for _ in range(2)]
        books = [await agent.ask("submit_book", **BOOK, key="den", title="Winter") for _ in range(2)]
        assert sweeps[0]["batch"]["id"] == sweeps[1]["batch"]["id"]
        assert [each["is_new"] for each in books] == [True, False]
        assert books[0]["id"].startswith("Winter_")
        assert len(await jobs_of(house)) == before + 1 + 3 + 2
        for tool, said in (
            ("submit_job", {**PICTURE, "inputs": {"color": 2}}),
            ("submit_sweep", SWEEP),
            ("submit_book", {**BOOK, "title": "Summer"}),
        ):
            assert "was used for another request" in await agent.refused(tool, **said, key="fox"), tool
        assert "made the book Winter" in await agent.refused("submit_book", **BOOK, key="den", title="Summer")
        for key, kind in (("fox", "job"), ("foxes", "batch"), ("den", "book")):
            found = await agent.ask("status", id=key)
            assert (found["kind"], found["key"]) == (kind, key)


async def test_a_dry_run_says_what_would_be_and_queues_nothing(house: Served) -> None:
    before = len(await jobs_of(house))
    async with agent_at(house.url) as agent:
        said = {"workflow": "picture", "set": {"color": "1..4", "1.width": [32, 64]}, "dry_run": True}
        plan = await agent.ask("submit_sweep", **said, key="dry")
        assert (plan["jobs"], plan["first"][0]) == (8, {"color": 1, "1.width": 32})
        assert "batch" not in plan
        assert len(await jobs_of(house)) == before
        assert "dry" in await agent.refused("status", id="dry")


async def test_only_what_has_every_result_reads_as_done(house: Served) -> None:
    await clear(house)
    async with agent_at(house.url) as agent:
        job = await agent.ask("submit_job", **PICTURE, key="truth-1")
        assert (job["state"], job["ended"]) == ("Pending", False)
        assert job["next"].startswith("No agent of E3 works this queue off")
        [leased] = await house.lease()
        assert (await agent.ask("status", id="truth-1"))["state"] == "Rendering"
        shown, image = await agent.see(id="truth-1")
        assert (shown["state"], image) == ("Rendering", None)
        await house.fail(leased)
        failed = await agent.ask("status", id="truth-1")
        assert (failed["state"], failed["ended"], failed["done"], failed["attention"]) == (
            "Needs attention",
            True,
            0,
            1,
        )
        assert "the sampler broke" in failed["failed"][0]["reason"]
        await house.store.run(ops.dismiss_jobs, [leased.lease.job_id])
        assert (await agent.ask("status", id="truth-1"))["state"] == "Dismissed"
        batch = (await agent.ask("submit_sweep", **SWEEP, key="truth-2"))["batch"]
        await render(house, batch["id"])
        assert (await agent.ask("status", id="truth-2"))["state"] == "Pending"
        await fail(house, batch["id"])
        await render(house, batch["id"])
        ended = await agent.ask("status", id="truth-2")
        assert (ended["state"], ended["ended"], ended["done"], ended["total"]) == ("Needs attention", True, 2, 3)
        assert [each["number"] for each in ended["failed"]] == [2]
        await house.store.run(ops.dismiss_batch, batch["id"])
        assert (await agent.ask("status", id="truth-2"))["state"] == "Dismissed"
        await agent.ask("submit_sweep", **SWEEP, key="truth-3")
        await agent.ask("cancel", id="truth-3", confirm=True)
        assert (await agent.ask("status", id="truth-3"))["state"] == "Cancelled"
        assert "it was not made" in await agent.refused("wait", id="truth-4")
        whole = await agent.ask("status")
        assert (whole["kind"], whole["ended"]) == ("workspace", True)


async def test_waiting_ends_with_what_is_waited_for(house: Served) -> None:
    await clear(house)
    async with agent_at(house.url) as agent:
        await agent.ask("submit_job", **PICTURE, key="waited")
        early = await agent.ask("wait", id="waited", seconds=0)
        assert not early["ended"]
        waiting = asyncio.ensure_future(agent.ask("wait", id="waited", seconds=1e9))
        await asyncio.sleep(0)
        await render(house)
        assert (await asyncio.wait_for(waiting, LONGEST_WAIT))["state"] == "Done"


async def test_nothing_is_changed_before_it_is_confirmed(house: Served) -> None:
    await clear(house)
    async with agent_at(house.url) as agent:
        batch = (await agent.ask("submit_sweep", **SWEEP, key="kept"))["batch"]["id"]
        would = await agent.ask("cancel", id="kept")
        assert (would["confirmed"], would["jobs"]) == (False, 3)
        assert not (await agent.ask("status", id="kept"))["ended"]
        await fail(house, batch)
        assert (await agent.ask("cancel", id="kept", confirm=True))["jobs"] == 2
        assert "has ended already" in await agent.refused("cancel", id="kept", confirm=True)
        assert (await agent.ask("retry", id="kept"))["jobs"] == 1
        assert (await agent.ask("retry", id="kept", cancelled=True))["jobs"] == 3
        retried = await agent.ask("retry", id="kept", confirm=True)
        assert (retried["jobs"], retried["now"]["state"]) == (1, "Pending")
        await render(house, batch)
        await agent.ask("submit_job", **PICTURE, key="kept-job")
        assert "There is nothing to retry" in await agent.refused("retry", id="kept-job")
        await agent.ask("cancel", id="kept-job", confirm=True)
        assert (await agent.ask("retry", id="kept-job", confirm=True))["now"]["state"] == "Pending"


async def test_pages_are_made_anew_and_what_they_were_is_kept(house: Served) -> None:
    await clear(house)
    async with agent_at(house.url) as agent:
        book = (await agent.ask("submit_book", **BOOK, key="pages"))["id"]
        assert "no page of" in await agent.refused("regenerate", id="pages")
        for _ in range(2):
            await render(house, book)
        assert "has no page 3" in await agent.refused("regenerate", id="pages", pages=[3])
        would = await agent.ask("regenerate", id="pages", pages=[2], inputs={"color": 9})
        assert (would["confirmed"], "page 2" in would["summary"]) == (False, True)
        made = await agent.ask("regenerate", id="pages", pages=[2], inputs={"color": 9}, confirm=True)
        assert (made["jobs"], made["now"]["done"]) == (1, 1)
        await render(house, book)
        shown, image = await agent.see(id="pages", number=2, take=1)
        assert (shown["takes"], shown["settings"], image is None) == ([1, 2], {}, False)
        shown, _ = await agent.see(id="pages", number=2)
        assert shown["settings"] == {"color": 9}
        assert "has no take 3" in await agent.refused("get_result", id="pages", number=2, take=3)
        assert "is no book" in await agent.refused("regenerate", id=shown["id"])


async def test_results_are_images_that_fit_into_an_answer(house: Served) -> None:
    await clear(house)
    large = io.BytesIO()
    Image.effect_noise((1300, 1200), 100).convert("RGB").save(large, "PNG", compress_level=0)
    async with agent_at(house.url) as agent:
        await agent.ask("submit_job", **PICTURE, key="large")
        await render(house, None, large.getvalue(), png(), b"\x1aE\xdf\xa3 a film")
        for size in (256, 1280):
            shown, image = await agent.see(id="large", size=size)
            assert image is not None
            assert len(image.data) <= 1_000_000
            with Image.open(io.BytesIO(base64.b64decode(image.data))) as picture:
                assert (picture.format, max(picture.size)) == ("WEBP", size)
        assert shown["results"] == 3
        answer = await house.session.get(shown["address"])
        assert await answer.read() == large.getvalue()
        shown, image = await agent.see(id="large", number=3)
        assert image is None
        assert "cannot be shown as an image" in shown["summary"]
        assert "has no result 4" in await agent.refused("get_result", id="large", number=4)
        batch = (await agent.ask("submit_sweep", **SWEEP, key="gridless"))["batch"]["id"]
        shown, image = await agent.see(id="gridless")
        assert ("There is no grid" in shown["summary"], image) == (True, None)
        for _ in range(3):
            await render(house, batch)
        assert (await house.post(f"/api/v1/batches/{batch}/grid", {})).status == 201
        shown, image = await agent.see(id="gridless")
        assert image is not None
        assert (await house.session.get(shown["address"])).status == 200
        shown, image = await agent.see(id="gridless", number=2)
        assert (shown["settings"], image is None) == ({"color": 2}, False)


async def test_servers_and_doctor_say_what_is_wrong_and_what_to_do(house: Served) -> None:
    async with agent_at(house.url) as agent:
        servers = await agent.ask("list_servers")
        assert [each["state"] for each in servers["servers"]] == ["down"]
        assert not servers["is_attended"]
        found = (await agent.ask("doctor"))["findings"]
        assert not found[0]["fine"]
        assert any(each["name"].startswith("server") for each in found)
        assert str(house.workspace.root) not in json.dumps(found)


HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("nothing_like_it" * 1000, {}),
    ("status", {"id": ["a"]}),
    ("status", {"id": "x" * 301}),
    ("status", {"i" * 5000: "fox"}),
    ("status", {"id": "' OR 1=1 --"}),
    ("status", {"id": "../../etc/passwd\0"}),
    ("wait", {"id": "fox", "seconds": "soon"}),
    ("wait", {"id": ""}),
    ("describe_workflow", {"workflow": "../../config/global_config"}),
    ("submit_job", {"workflow": "/etc/passwd"}),
    ("submit_job", {**PICTURE, "key": "two words"}),
    ("submit_job", {**PICTURE, "key": ""}),
    ("submit_job", {**PICTURE, "key": "k" * 201}),
    ("submit_job", {**PICTURE, "priority": 2**31}),
    ("submit_job", {**PICTURE, "priority": "urgent"}),
    ("submit_job", {**PICTURE, "inputs": [1]}),
    ("submit_job", {**PICTURE, "inputs": {"colour": 1}}),
    ("submit_job", {**PICTURE, "inputs": {"color": "x" * 100_000}}),
    ("submit_job", {"workflow": "wf_image_to_image", "inputs": {"image": "/etc/passwd", "prompt": "x", "seed": 1}}),
    ("submit_sweep", {**SWEEP, "set": {}}),
    ("submit_sweep", {**SWEEP, "set": {"color": "1..10001"}}),
    ("submit_sweep", {**SWEEP, "set": {"color": "1..1000000000000"}}),
    ("submit_sweep", {**SWEEP, "set": {"color": "@/etc/passwd"}}),
    ("submit_sweep", {**SWEEP, "mode": "sideways"}),
    ("submit_book", {"pages": []}),
    ("submit_book", {**BOOK, "pages": [{"inputs": {}, "file": "/etc/passwd"}]}),
    ("submit_book", {**BOOK, "pages": [{"inputs": {}}] * 1001}),
    ("get_result", {"id": "fox", "number": 0}),
    ("get_result", {"id": "fox", "size": 100_000}),
    ("regenerate", {"id": "den", "pages": [-1]}),
]


async def test_hostile_arguments_are_refused_in_a_few_words(house: Served, caplog: pytest.LogCaptureFixture) -> None:
    before = len(await jobs_of(house))
    async with agent_at(house.url) as agent:
        for tool, arguments in HOSTILE:
            said = await agent.refused(tool, **arguments)
            for secret in ("root:", "Traceback", str(house.workspace.root)):
                assert secret not in said, (tool, said)
    assert len(await jobs_of(house)) == before
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_nothing_is_kept_between_requests(house: Served) -> None:
    """Whoever was connected before a restart goes on: a call needs no handshake, and no answer names a session."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "status", "arguments": {}}}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    answer = await house.post("/mcp", call, headers=headers)
    assert answer.value["result"]["structuredContent"]["kind"] == "workspace"
    assert not [name for name in answer.headers if "session" in name.lower()]
