"""Messages as they arrive, sent with apprise to a receiver on this machine, and what nobody else gets to see."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from comfyui_agent.config.loader import load_workspace
from comfyui_agent.domain.notifications import TEST
from comfyui_agent.engine import delivery
from comfyui_agent.engine.composition import make_agent
from comfyui_agent.sim.process import ServerProcess
from comfyui_agent.store.connect import open_store
from support.agents import AgentWorkspace
from support.batches import queued_id
from support.receivers import SECRET, Receiver, receiving
from support.workspaces import call_e3, new_workspace


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


async def work(workspace: AgentWorkspace, agents: int, environment: dict[str, str]) -> None:
    """So many agents that work until nothing is left."""
    stores = [open_store(workspace.database) for _ in range(agents)]
    loaded = load_workspace(workspace.root, environment)
    try:
        await asyncio.gather(*(make_agent(store, loaded).run(until_idle=True) for store in stores))
    finally:
        for store in stores:
            await store.close()


@pytest.mark.timeout(120)
def test_two_agents_tell_once_of_a_batch_with_its_grid_and_of_the_empty_queue(
    comfyui_simulator: Callable[..., ServerProcess],
    receiver: Receiver,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    workspace = new_workspace(tmp_path, comfyui_simulator().url)
    environment = {"E3_NOTIFY__URLS": receiver.url}
    asyncio.run(work(workspace, 1, environment))
    assert receiver.messages == []
    batch_id = queued_id(call_e3("sweep", "picture", "--set", "color=1,2", "--name", "knights", cwd=tmp_path))
    asyncio.run(work(workspace, 2, environment))
    told = {message["title"]: message for message in receiver.messages}
    assert sorted(told) == ["The batch knights has ended", "The queue is empty"]
    assert len(receiver.messages) == 2
    batch = told["The batch knights has ended"]
    assert (batch["message"], batch["type"]) == ("2 of 2 done", "success")
    [attached] = batch["attachments"]
    grid = tmp_path / "jobs" / "finished" / "image" / batch_id / "grid.png"
    assert base64.b64decode(attached["base64"]) == grid.read_bytes()
    assert SECRET not in caplog.text
    assert all(SECRET.encode() not in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_a_test_message_says_where_it_went_and_what_refused_it_without_a_secret(
    receiver: Receiver, tmp_path: Path
) -> None:
    new_workspace(tmp_path)
    called = call_e3("notify", "test", "--json", cwd=tmp_path, E3_NOTIFY__URLS="env:CHAT", CHAT=receiver.url)
    assert (called.returncode, json.loads(called.stdout)) == (0, {"sent": ["env:CHAT"]})
    assert receiver.messages[0]["title"] == "A test of E3"
    receiver.status = 401
    refused = call_e3("notify", "test", cwd=tmp_path, E3_NOTIFY__URLS=f"{receiver.url},env:NOT_SET")
    assert refused.returncode == 1
    says = "e3: the test was not delivered: json: it answered HTTP 401; env:NOT_SET: the variable is not set\n"
    assert (refused.stdout, refused.stderr) == ("", says)
    nobody = call_e3("notify", "test", cwd=tmp_path)
    assert (nobody.returncode, nobody.stderr) == (1, "e3: nobody is to be told: notify.urls is empty\n")


def test_the_doctor_names_addresses_that_cannot_be_used_by_their_scheme_and_sends_nothing(
    receiver: Receiver, tmp_path: Path
) -> None:
    new_workspace(tmp_path)
    urls = f"{receiver.url},discord://{SECRET},nonsense://{SECRET}"
    shown = call_e3("doctor", cwd=tmp_path, E3_NOTIFY__URLS=urls).stdout
    [line] = [line for line in shown.splitlines() if "notifications" in line]
    reason = "apprise cannot use this address: see its documentation"
    assert line == f"△ notifications: discord: {reason}; nonsense: {reason}"
    assert SECRET not in shown
    fine = call_e3("doctor", cwd=tmp_path, E3_NOTIFY__URLS=receiver.url).stdout
    assert "● notifications: go to json\n" in fine
    assert receiver.messages == []


def test_without_apprise_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "find_spec", lambda _: None)
    new_workspace(tmp_path)
    urls = f"json://{SECRET},ntfys://{SECRET}"
    shown = call_e3("doctor", cwd=tmp_path, E3_NOTIFY__URLS=urls).stdout
    assert f"△ notifications: {delivery.MISSING}\n" in shown
    called = call_e3("notify", "test", cwd=tmp_path, E3_NOTIFY__URLS=urls)
    assert called.stderr == f"e3: the test was not delivered: {delivery.MISSING}\n"


async def test_a_process_that_does_not_end_is_killed(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "PROCESS_SECONDS", 0.01)
    urls = [SecretStr(receiver.url), SecretStr("env:NOT_SET")]
    assert await delivery.deliver(urls, TEST) == ["no answer within 0 s"] * 2
    assert receiver.messages == []
