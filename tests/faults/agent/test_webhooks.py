"""Row 30: a receiver of webhooks that is down, and agents that are killed. Each message arrives, in order, verified."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from standardwebhooks import Webhook as Verifier

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.webhooks import Delivery, mint_secret
from comfyui_agent.engine.webhook_receiver import AT_ONCE
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from support.agents import AgentWorkspace, both_databases
from support.workspaces import NOWHERE

SECRET = mint_secret()
SUBJECTS = 40
Make = Callable[..., AgentWorkspace]


class Program(ThreadingHTTPServer):
    """Keeps what it is sent, in its order, and answers 204 or, while it is down, nothing."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.is_down = True
        self.tried = 0
        self.arrived: list[tuple[int, str]] = []
        """Event and subject."""
        self.taking = threading.Lock()


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        program = self.server
        assert isinstance(program, Program)
        message = Verifier(SECRET).verify(self.rfile.read(int(self.headers["Content-Length"])), dict(self.headers))
        is_ours = message["type"] == EventName.SERVER_TUNED
        with program.taking:
            program.tried += is_ours
            if program.is_down:
                self.close_connection = True
                return
            if is_ours:
                program.arrived.append((message["data"]["event_id"], message["data"]["server"]))
        self.send_response(204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def program() -> Iterator[Program]:
    with Program() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def happen(workspace: AgentWorkspace, count: int, chance: random.Random) -> None:
    async def note(store: Store) -> None:
        for _ in range(count):
            await store.run(ops.add_event, Event(EventName.SERVER_TUNED, server=f"gpu{chance.randrange(SUBJECTS)}"))

    workspace.store(note)


def deliveries(workspace: AgentWorkspace) -> list[Delivery]:
    found = workspace.store(lambda store: store.run(ops.list_deliveries, 1, most=100_000))
    return [each for each in found if "server.tuned" in each.body]


def delivered(workspace: AgentWorkspace) -> set[int]:
    return {each.event_id for each in deliveries(workspace) if each.state == "delivered"}


@both_databases
@pytest.mark.parametrize(
    ("kills", "events"), [(2, 100), pytest.param(20, 1_000, marks=[pytest.mark.slow, pytest.mark.timeout(400)])]
)
def test_each_message_arrives_in_order_and_never_again_once_that_was_noted(
    make_workspace: Make, program: Program, kills: int, events: int
) -> None:
    chance = random.Random(30)
    workspace = make_workspace(NOWHERE)
    url = f"http://127.0.0.1:{program.server_port}/"
    hook = {"name": "backend", "url": url, "events": ["server"], "secret": SECRET, "allow": ["127.0.0.1"]}
    workspace.environment["E3_WEBHOOKS"] = json.dumps([hook])
    agent = workspace.start()
    workspace.wait_for(lambda: workspace.store(lambda store: store.run(ops.list_webhooks)), "the webhook")
    noted: list[tuple[int, set[int]]] = []
    """At each kill: how many had arrived, and which of them the database says were delivered."""
    for number in range(kills):
        happen(workspace, events // kills, chance)
        tried = program.tried
        workspace.wait_for(lambda tried=tried: program.tried > tried, "something being sent")
        time.sleep(chance.uniform(0, 0.3))
        workspace.kill(agent)
        noted.append((len(program.arrived), delivered(workspace)))
        program.is_down = number + 1 < kills // 2
        agent = workspace.start()
    workspace.wait_for(lambda: len(delivered(workspace)) == events, "all being delivered", 120)
    times = Counter(event for event, _ in program.arrived)
    assert len(times) == events
    assert sum(times.values()) - events <= AT_ONCE * kills, "again only what a kill left unnoted"
    for count, known in noted:
        assert known <= {event for event, _ in program.arrived[:count]}
        assert not known & {event for event, _ in program.arrived[count:]}, "none after success"
    for subject in {name for _, name in program.arrived}:
        first = list(dict.fromkeys(event for event, name in program.arrived if name == subject))
        assert first == sorted(first)
