"""`e3 token`: made once and shown once, listed without what they are, taken back for good."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from comfyui_agent.domain.tokens import Role, hash_of
from comfyui_agent.store import operations as ops
from support.agents import AgentWorkspace
from support.batches import document, refusal
from support.workspaces import call_e3, new_workspace, run_e3

FACTS = {"id", "name", "role", "is_shared", "created_at", "expires_at", "last_used_at", "revoked_at"}
SECRET = re.compile(r"^e3_[A-Za-z0-9_-]{43}$")


@pytest.fixture
def workspace(tmp_path: Path) -> AgentWorkspace:
    return new_workspace(tmp_path / "house")


def test_a_token_is_printed_alone_and_once_and_only_its_hash_is_kept(workspace: AgentWorkspace) -> None:
    answer = run_e3("token", "create", "--role", "admin", "--name", "studio", "-C", str(workspace.root))
    secret = answer.stdout.rstrip("\n")
    assert (answer.returncode, answer.stdout) == (0, f"{secret}\n")
    assert SECRET.match(secret)
    assert secret not in answer.stderr
    assert "e3 token revoke 1" in answer.stderr
    [kept] = workspace.store(lambda store: store.run(ops.list_tokens))
    assert (kept.name, kept.role, kept.hash) == ("studio", Role.ADMIN, hash_of(secret))
    everything = b"".join(path.read_bytes() for path in workspace.root.rglob("*") if path.is_file())
    assert hash_of(secret).encode() in everything
    assert secret.encode() not in everything
    assert secret.removeprefix("e3_").encode() not in everything


def test_for_scripts_a_token_is_one_document(workspace: AgentWorkspace) -> None:
    made = document(call_e3("token", "create", "--role", "user", "--json", "-C", str(workspace.root)))
    assert made.keys() == FACTS | {"token"}
    assert (made["id"], made["name"], made["role"]) == (1, "user", "user")
    assert SECRET.match(made["token"])


def test_two_tokens_are_never_the_same(workspace: AgentWorkspace) -> None:
    made = [
        document(call_e3("token", "create", "--role", "user", "--json", "-C", str(workspace.root))) for _ in range(3)
    ]
    assert len({each["token"] for each in made}) == len({each["id"] for each in made}) == 3


def test_tokens_are_listed_without_what_they_are(workspace: AgentWorkspace) -> None:
    place = ["-C", str(workspace.root)]
    secrets = [call_e3("token", "create", "--role", role, "--name", f"for-{role}", *place).stdout for role in Role]
    workspace.store(lambda store: store.run(ops.note_uses, [(2, "")]))
    listed = call_e3("token", "ls", *place)
    heading, *lines = listed.stdout.splitlines()
    facts = document(call_e3("token", "ls", "--json", *place))
    used = heading.index("LAST USED")
    for line, role, fact in zip(lines, Role, facts, strict=True):
        assert line.split()[1] == role
        assert line.endswith(f"for-{role}")
        assert line[used : used + 16].rstrip() == (fact["last_used_at"][:16] if fact["id"] == 2 else "never")
    assert [each.keys() for each in facts] == [FACTS] * len(Role)
    for secret in secrets:
        assert secret.strip() not in listed.stdout + str(facts)
        assert hash_of(secret.strip()) not in listed.stdout + str(facts)


def test_a_token_that_is_taken_back_stays_known_and_its_number_is_never_used_again(workspace: AgentWorkspace) -> None:
    place = ["-C", str(workspace.root)]
    for name in ("first", "second"):
        call_e3("token", "create", "--role", "user", "--name", name, *place)
    answer = call_e3("token", "revoke", "2", *place)
    assert (answer.returncode, answer.stdout) == (0, "Token 2 (second, user) is worth nothing now.\n")
    kept = document(call_e3("token", "ls", "--json", *place))
    assert [(each["name"], each["revoked_at"] is None) for each in kept] == [("first", True), ("second", False)]
    _, first, heading, second = call_e3("token", "ls", *place).stdout.splitlines()
    assert (first.split()[-1], heading, second.split()[-1]) == ("first", "Revoked:", "second")
    assert refusal(call_e3("token", "revoke", "2", *place), 1) == "token 2 was revoked already: see e3 token ls"
    made = document(call_e3("token", "create", "--role", "user", "--json", *place))
    assert made["id"] == 3
    assert document(call_e3("token", "revoke", "1", "--json", *place))["name"] == "first"


def test_revoking_the_last_token_says_who_can_reach_the_page_then(workspace: AgentWorkspace) -> None:
    place = ["-C", str(workspace.root)]
    call_e3("token", "create", "--role", "admin", *place)
    told = call_e3("token", "revoke", "1", *place).stderr
    assert "nobody reaches the page" in told
    assert "e3 token open" in told
    assert "e3 token open" in call_e3("token", "ls", *place).stdout
    assert "everyone" not in call_e3("token", "ls", *place).stdout


def test_access_is_opened_again_only_on_explicit_request(workspace: AgentWorkspace) -> None:
    place = ["-C", str(workspace.root)]
    call_e3("token", "create", "--role", "admin", *place)
    words = refusal(call_e3("token", "open", *place), 1)
    assert words == "1 token would be revoked: say so with e3 token open --yes, or leave access closed"
    assert workspace.store(lambda store: store.run(ops.read_access)).is_closed
    answer = call_e3("token", "open", "--yes", *place)
    assert (answer.returncode, answer.stdout.count("\n")) == (0, 1)
    assert "whoever reaches the page on this machine is an admin" in answer.stdout
    assert not workspace.store(lambda store: store.run(ops.read_access)).is_closed
    assert "There are no tokens" in call_e3("token", "ls", *place).stdout
    again = document(call_e3("token", "open", "--json", *place))
    assert again == {"access": "open", "revoked": []}, "nothing to ask about"


@pytest.mark.parametrize(("setting", "value"), [("trusted_proxies", "10.0.0.0/24"), ("host", "0.0.0.0")])
def test_where_this_machine_needs_a_token_in_any_case_open_is_refused(
    workspace: AgentWorkspace, monkeypatch: pytest.MonkeyPatch, setting: str, value: str
) -> None:
    place = ["-C", str(workspace.root)]
    for who in ("--name", "--proxy-user"):
        call_e3("token", "create", who, "anna", *place)
    monkeypatch.setenv(f"E3_UI__{setting.upper()}", value)
    words = refusal(call_e3("token", "open", "--yes", *place), 1)
    assert "would let nobody in" in words
    assert f"ui.{setting}" in words
    assert [token.revoked_at for token in workspace.store(lambda store: store.run(ops.list_tokens))] == [None, None]
    call_e3("token", "revoke", "1", *place)
    told = [call_e3("token", "revoke", "2", *place).stderr, call_e3("token", "ls", *place).stdout]
    workspace.store(lambda store: store.run(ops.open_access, revoke=True))
    for words in (*told, call_e3("token", "ls", *place).stdout):
        assert f"ui.{setting}" in words
        assert "e3 token open" not in words
        assert "everyone" not in words


def test_a_token_may_expire_be_shared_and_have_no_secret(workspace: AgentWorkspace) -> None:
    place = ["-C", str(workspace.root)]
    said = ["--expires", "30d", "--shared", "--name", "studio"]
    made = document(call_e3("token", "create", *said, "--json", *place))
    assert (made["role"], made["is_shared"]) == ("user", True)
    assert made["expires_at"] > made["created_at"]
    anna = document(call_e3("token", "create", "--role", "admin", "--proxy-user", "anna", "--json", *place))
    assert anna.keys() == FACTS
    assert document(call_e3("token", "create", "--proxy-user", "anna", "--json", *place))["id"] == anna["id"]
    told = call_e3("token", "create", "--proxy-user", "bert", *place)
    assert (told.stdout, "no secret" in told.stderr) == ("", True)
    listed = call_e3("token", "ls", *place).stdout
    assert "studio (shared)" in listed
    assert made["expires_at"][:16] in listed


@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "--role", "king"],
        ["create", "--expires", "tomorrow"],
        ["create", "--expires", "0d"],
        ["create", "--proxy-user", "x" * 101],
        ["create", "--role", "user", "--name", "x" * 101],
        ["revoke"],
        ["revoke", "0"],
        ["revoke", "-1"],
        ["revoke", "first"],
    ],
)
def test_usage_that_is_wrong_is_said_so(workspace: AgentWorkspace, arguments: list[str]) -> None:
    answer = call_e3("token", *arguments, "-C", str(workspace.root))
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr


def test_a_number_beyond_all_numbers_is_no_token(workspace: AgentWorkspace) -> None:
    call_e3("token", "create", "--role", "user", "-C", str(workspace.root))
    assert "there is no token" in refusal(call_e3("token", "revoke", "9" * 30, "-C", str(workspace.root)), 1)


def test_a_name_that_would_do_something_to_a_terminal_is_shown_and_not_obeyed(workspace: AgentWorkspace) -> None:
    place = ["-C", str(workspace.root)]
    made = call_e3("token", "create", "--role", "user", "--name", "a\x1b[31mred\u202e", *place)
    listed = call_e3("token", "ls", *place)
    for text in (made.stderr, listed.stdout):
        assert "\x1b" not in text
        assert "\u202e" not in text
