"""An agent that runs, and people who try to be someone else: by a proxy, by a cookie, by a token that has ended."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from comfyui_agent.domain.tokens import Role, hash_of, mint_token
from comfyui_agent.store import operations as ops
from support.agents import AgentWorkspace, wait_until
from support.batches import refusal
from support.servers import free_port
from support.workspaces import call_e3, new_workspace, run_e3, start_e3

TLS = Path(__file__).parents[2] / "support" / "tls"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def value(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Run:
    """`e3 run` with its page behind TLS, without tokens at first."""

    workspace: AgentWorkspace
    port: int

    def ask(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
        trusting = ssl.create_default_context(cafile=TLS / "e3.pem")
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=trusting)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
        finally:
            connection.close()

    def me(self, **headers: str) -> int:
        return self.ask("/api/v1/me", **headers).status

    def token(self, role: Role) -> str:
        secret = mint_token()
        self.workspace.store(lambda store: store.run(ops.create_token, role.value, role, hash_of(secret)))
        return secret

    def log_in(self, token: str) -> str:
        """The cookie of a new session."""
        answer = self.ask("/login", "POST", f"token={quote(token)}", **FORM)
        assert answer.status == 303, answer.text
        return answer.headers["set-cookie"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    workspace = new_workspace(tmp_path / "house")
    port = free_port()
    ui = {"E3_UI__ENABLED": "true", "E3_UI__PORT": str(port)}
    tls = {"E3_UI__TLS_CERT": str(TLS / "e3.pem"), "E3_UI__TLS_KEY": str(TLS / "e3.key")}
    before = os.umask(0o022)
    start_e3(workspace, "run", **ui, **tls)
    found = Run(workspace, port)
    try:
        wait_until(lambda: answers(found), "the page to answer", 40)
        yield found
    finally:
        os.umask(before)
        workspace.stop_all()


def answers(run: Run) -> bool:
    try:
        return run.ask("/healthz").status == 200
    except OSError:
        return False


def soon(found: Callable[[], int], status: int) -> None:
    wait_until(lambda: found() == status, f"a {status}", 10)


@pytest.mark.slow
def test_nobody_becomes_someone_else_at_an_agent_that_runs(run: Run) -> None:
    refuse_whoever_comes_by_a_proxy(run)
    refuse_to_take_a_cookie_for_a_token(run)
    stay_closed_until_someone_opens(run)
    keep_files_to_their_owner(run.workspace)
    end_with_streams_open(run)


def refuse_whoever_comes_by_a_proxy(run: Run) -> None:
    """Point by point what a reverse proxy does that rewrites Host to an address of this machine."""
    assert run.me() == 200
    job = json.dumps({"job_type": "T2I", "workflow_id": "picture", "inputs": {"color": 1}})
    for header in ("Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"):
        answer = run.ask("/api/v1/me", **{header: "203.0.113.7"})
        assert (answer.status, "ui.trusted_proxies" in answer.value["remedy"]) == (403, True), header
        sent = {header: "203.0.113.7", "Content-Type": "application/json"}
        assert run.ask("/api/v1/jobs", "POST", job, **sent).status == 403
        assert run.ask("/admin", **{header: "203.0.113.7"}).status == 403
        assert run.ask("/readyz", **{header: "203.0.113.7"}).value == {"status": "not ready"}
    assert run.me(X_Remote_User="admin", Host="evil.example") == 403
    assert run.workspace.store(lambda store: store.run(ops.list_jobs)) == []
    assert set(run.ask("/readyz").value) == {"status", "database", "servers"}


def refuse_to_take_a_cookie_for_a_token(run: Run) -> None:
    user = run.token(Role.USER)
    soon(run.me, 401)
    assert run.ask("/readyz").value == {"status": "not ready"}
    said = run.log_in(user)
    value, *flags = said.split("; ")
    name, _, secret = value.partition("=")
    assert name == f"__Host-e3_session_{run.port}"
    assert {flag.lower() for flag in flags} >= {"httponly", "samesite=strict", "secure", "path=/"}
    assert user not in said
    answer = run.ask("/", Cookie=value)
    assert (answer.status, answer.headers["strict-transport-security"]) == (200, "max-age=31536000")
    assert run.me(Cookie=value) == run.me(Authorization=f"Bearer {user}") == 200
    for forged in (
        {"Authorization": f"Bearer {secret}"},
        {"Authorization": f"Bearer {hash_of(secret)}"},
        {"Cookie": f"{name}={user}"},
        {"Cookie": f"{name}={hash_of(secret)}"},
        {"Cookie": f"e3_session_{run.port}={secret}"},  # as another site under the same domain could set it
        {"Cookie": f"e3_token={user}"},
    ):
        assert run.me(**forged) == 401, forged
    assert run.ask("/logout", "POST", "", Cookie=value, **FORM).status == 303
    assert run.me(Cookie=value) == 401
    again = run.log_in(user).partition(";")[0]
    assert (run.me(Cookie=again), again == value) == (200, False)
    [known] = run.workspace.store(lambda store: store.run(ops.list_tokens))
    assert known.last_used_at is not None
    run.workspace.store(lambda store: store.run(ops.revoke_token, known.id))
    soon(lambda: run.me(Cookie=again), 401)
    assert run.me(Authorization=f"Bearer {user}") == 401


def stay_closed_until_someone_opens(run: Run) -> None:
    assert run.me() == 401, "the last token is gone, and this machine is no admin again"
    answer = call_e3("token", "open", "-C", str(run.workspace.root))
    assert answer.returncode == 0, answer.stderr
    soon(run.me, 200)


def keep_files_to_their_owner(workspace: AgentWorkspace) -> None:
    private = [workspace.root / "config" / "global_config.yaml", workspace.root / ".env.example"]
    private += [path for path in (workspace.root / "database").rglob("*") if path.is_file()]
    assert {path.name for path in private} >= {"comfyui_agent.db", "comfyui_agent.db-wal", "comfyui_agent.db-shm"}
    assert any(path.suffix == ".lock" for path in private)
    private += [workspace.root / "infra" / "observability" / "comfyui_metrics.ndjson.lock"]
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in private} == {
        path.name: "0o600" for path in private
    }
    for folder in ("database", "database/agents", "config"):
        assert stat.S_IMODE((workspace.root / folder).stat().st_mode) == 0o700
    assert stat.S_IMODE((workspace.root / "workflows" / "picture.json").stat().st_mode) == 0o644


def end_with_streams_open(run: Run) -> None:
    trusting = ssl.create_default_context(cafile=TLS / "e3.pem")
    streams = [http.client.HTTPSConnection("127.0.0.1", run.port, timeout=10, context=trusting) for _ in range(3)]
    for stream in streams:
        stream.request("GET", "/api/v1/events")
        assert stream.getresponse().status == 200
    [process] = run.workspace.processes
    process.send_signal(signal.SIGTERM)
    try:
        assert process.wait(60) == 143, "nobody is waited for who does not end TLS"
    finally:
        for stream in streams:
            stream.close()
    assert "Traceback" not in run.workspace.tail()


@pytest.mark.parametrize(
    ("cert", "key", "words"),
    [
        ("e3.pem", "", "ui.tls_key is not set"),
        ("", "e3.key", "ui.tls_cert is not set"),
        ("none.pem", "e3.key", "ui.tls_cert: {tls}/none.pem cannot be read: No such file or directory"),
        ("e3.pem", "other.key", "do not work together"),
        ("e3.key", "e3.key", "do not work together"),
        ("e3.pem", "locked.key", "has no password"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_one_line_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cert: str, key: str, words: str
) -> None:
    workspace = new_workspace(tmp_path / "house")
    for name, file in (("CERT", cert), ("KEY", key)):
        monkeypatch.setenv(f"E3_UI__TLS_{name}", str(TLS / file) if file else "")
    assert words.format(tls=TLS) in refusal(call_e3("serve", "-C", str(workspace.root)), 2)


@pytest.mark.slow
def test_a_run_does_not_go_on_without_the_certificate_that_it_was_told_to_use(tmp_path: Path) -> None:
    workspace = new_workspace(tmp_path / "house")
    said = {"E3_UI__ENABLED": "true", "E3_UI__TLS_CERT": "tls/none.pem", "E3_UI__TLS_KEY": "tls/none.key"}
    answer = run_e3("run", "--until-idle", "-C", str(workspace.root), **said)
    last = answer.stderr.splitlines()[-1]
    assert (answer.returncode, last) == (2, "e3: ui.tls_cert: tls/none.pem cannot be read: No such file or directory")
