"""The gateway of a workspace, served in this process in front of the simulator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from cryptography.fernet import Fernet

from comfyui_agent.access import gate
from comfyui_agent.config.sealing import CannotOpen, SecretBox
from comfyui_agent.domain.tokens import Role
from comfyui_agent.sim.simulator import Simulator
from comfyui_agent.store import operations as ops
from support.agents import sized_picture
from support.served_gateway import gateway
from support.wire import Wire
from support.workspaces import NOWHERE


@pytest.fixture
async def sim() -> AsyncIterator[Simulator]:
    async with Simulator() as made:
        yield made


async def test_a_client_finds_a_comfyui_whose_prompts_are_jobs(tmp_path: Path, sim: Simulator) -> None:
    async with gateway(tmp_path, sim.url) as served, Wire(served.session, served.url).socket("me") as socket:
        wire = Wire(served.session, served.url)
        assert socket.events("status")[0]["sid"] == "me"
        assert "KSampler" in (await wire.get("/object_info")).body
        assert (await wire.get("/api/system_stats")).body["devices"]
        prompt_id = await wire.submit(sized_picture())
        job = await served.store.run(ops.find_job_by_name, prompt_id)
        assert job is not None
        assert (job.source, job.status) == ("gateway", "pending")
        assert [item[1] for item in (await wire.queue())[1]] == [prompt_id]
        async with served.session.get(f"{sim.url}/queue") as response:
            assert await response.json() == {"queue_running": [], "queue_pending": []}


async def test_what_is_no_prompt_goes_to_the_editor(tmp_path: Path, sim: Simulator) -> None:
    async with Simulator() as editor, gateway(tmp_path, sim.url, E3_GATEWAY__EDITOR=editor.url) as served:
        path = "/api/userdata/workflows%2Fmine.json"
        async with served.session.post(f"{served.url}{path}", data=b"{}") as response:
            assert response.status == 200, await response.text()
        for url, status in ((served.url, 200), (editor.url, 200), (sim.url, 404)):
            async with served.session.get(f"{url}{path}") as response:
                assert response.status == status
        assert await served.status("/") == 200


async def test_callers_see_and_change_what_their_tokens_allow(
    tmp_path: Path, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "FRESH_SECONDS", 0.0)
    async with gateway(tmp_path, sim.url) as served:
        assert await served.status("/queue") == 200
        user, other, reader = [await served.token(role) for role in (Role.USER, Role.USER, Role.READ)]
        assert await served.status("/queue") == 401
        assert await served.status("/prompt", "POST", json={}, headers={"Authorization": f"Bearer {reader}"}) == 403
        prompt_id = await Wire(served.session, f"{served.url}/t/{user}").submit(sized_picture())
        job = await served.store.run(ops.find_job_by_name, prompt_id)
        assert job is not None
        assert job.created_by == 1
        seen = {
            secret: [item[1] for item in (await Wire(served.session, f"{served.url}/t/{secret}").queue())[1]]
            for secret in (user, other, reader)
        }
        assert seen == {user: [prompt_id], other: [], reader: [prompt_id]}


async def test_users_have_the_quota_and_the_priorities_of_the_page(
    tmp_path: Path, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "FRESH_SECONDS", 0.0)
    limits = {"E3_UI__OPEN_JOBS_PER_USER": "1", "E3_UI__USER_PRIORITY_FLOOR": "20", "E3_UI__CHANGES_PER_MINUTE": "3"}
    async with gateway(tmp_path, sim.url, **limits) as served:
        headers = {"Authorization": f"Bearer {await served.token(Role.USER)}"}
        body = {"prompt": sized_picture(), "front": True}
        assert await served.status("/prompt", "POST", json=body, headers=headers) == 200
        (job,) = await served.store.run(ops.list_jobs)
        assert job.priority == 20
        async with served.session.post(f"{served.url}/prompt", json=body, headers=headers) as response:
            assert (response.status, "ui.open_jobs_per_user" in await response.text()) == (429, True)
        assert await served.status("/free", "POST", json={}, headers=headers) == 200
        async with served.session.post(f"{served.url}/free", json={}, headers=headers) as response:
            assert (response.status, "ui.changes_per_minute" in await response.text()) == (429, True)
        trail = await served.store.run(ops.audit_trail, most=5)
        assert [(event.name, event.actor, event.job_id) for event in trail] == [
            ("audit.job.submit", "token 1 (user)", job.id)
        ]


async def test_keys_for_services_reach_the_server_and_are_nowhere_in_plain_text(tmp_path: Path, sim: Simulator) -> None:
    async with gateway(tmp_path, sim.url) as served:
        wire = Wire(served.session, served.url)
        prompt_id = await wire.submit(sized_picture(), extra_data={"api_key_comfy_org": "sesame-42", "note": "mine"})
        found = await served.store.run(ops.find_prompt, prompt_id)
        assert found is not None
        assert found.extra_data["note"] == "mine"
        assert "sesame-42" not in str((await wire.get("/queue")).body)
        key = tmp_path / "database" / "secrets.key"
        assert key.stat().st_mode & 0o777 == 0o600
        kept = [path for path in (tmp_path / "database").rglob("*") if path.is_file()]
        assert not [path for path in kept if b"sesame-42" in path.read_bytes()]
        client = await served.store.run(ops.prompt_of_job, found.job_id)
        assert client is not None
        assert client.secrets is not None
        assert SecretBox(key).open(client.secrets) == {"api_key_comfy_org": "sesame-42"}
        await served.store.run(ops.cancel_jobs, [found.job_id])
        ended = await served.store.run(ops.prompt_of_job, found.job_id)
        assert ended is not None
        assert ended.secrets is None
        key.write_bytes(Fernet.generate_key())
        with pytest.raises(CannotOpen, match=r"secrets\.key is not the key"):
            SecretBox(key).open(client.secrets)


async def test_while_no_server_answers_that_is_said(tmp_path: Path) -> None:
    async with gateway(tmp_path, NOWHERE) as served:
        for path, status, words in (("/object_info", 503, "no ComfyUI answers"), ("/settings", 502, "the editor at")):
            async with served.session.get(served.url + path) as response:
                assert (response.status, words in await response.text()) == (status, True)
        assert await served.status("/prompt", "POST", json={"prompt": sized_picture()}) == 503
        assert await served.status("/history") == 200


async def test_it_ends_while_sockets_are_open(tmp_path: Path, sim: Simulator) -> None:
    async with aiohttp.ClientSession() as session:
        async with gateway(tmp_path, sim.url) as served:
            socket = await session.ws_connect(f"{served.url}/ws?clientId=me")
            await socket.receive_json()
        assert all([message.type is aiohttp.WSMsgType.TEXT async for message in socket]), "and then the end"
