"""`e3 token`: made once and shown once, listed without what they are, taken back for good."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from comfyui_agent.domain.tokens import Role, hash_of
from support.agents import AgentWorkspace
from support.batches import document, refusal
from support.workspaces import call_e3, new_workspace, run_e3

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
    [kept] = workspace.store(lambda store: store.tokens())
    assert (kept.name, kept.role, kept.hash) == ("studio", Role.ADMIN, hash_of(secret))
    everything = b"".join(path.read_bytes() for path in workspace.root.rglob("*") if path.is_file())
    assert hash_of(secret).encode() in everything
    assert secret.encode() not in everything
    assert secret.removeprefix("e3_").encode() not in everything


def test_for_scripts_a_token_is_one_document(workspace: AgentWorkspace) -> None:
    made = document(call_e3("token", "create", "--role", "user", "--json", "-C", str(workspace.root)))
    assert made.keys() == {"id", "name", "role", "created_at", "token"}
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
    listed = call_e3("token", "ls", *place)
    first, second = listed.stdout.splitlines()
    assert first.split()[:2] == ["1", "user"]
    assert second.split()[:2] == ["2", "admin"]
    assert second.endswith("for-admin")
    facts = document(call_e3("token", "ls", "--json", *place))
    assert [each.keys() for each in facts] == [{"id", "name", "role", "created_at"}] * 2
    for secret in secrets:
        assert secret.strip() not in listed.stdout + str(facts)
        assert hash_of(secret.strip()) not in listed.stdout + str(facts)


def test_a_token_that_is_taken_back_is_gone_and_its_number_is_never_used_again(workspace: AgentWorkspace) -> None:
    place = ["-C", str(workspace.root)]
    for name in ("first", "second"):
        call_e3("token", "create", "--role", "user", "--name", name, *place)
    answer = call_e3("token", "revoke", "2", *place)
    assert (answer.returncode, answer.stdout) == (0, "Token 2 (second, user) is worth nothing now.\n")
    assert [each["name"] for each in document(call_e3("token", "ls", "--json", *place))] == ["first"]
    assert refusal(call_e3("token", "revoke", "2", *place), 1) == "there is no token 2: see e3 token ls"
    made = document(call_e3("token", "create", "--role", "user", "--json", *place))
    assert made["id"] == 3
    assert document(call_e3("token", "revoke", "1", "--json", *place))["name"] == "first"


def test_whoever_takes_the_last_one_back_is_told_who_can_reach_the_page_then(workspace: AgentWorkspace) -> None:
    place = ["-C", str(workspace.root)]
    call_e3("token", "create", "--role", "admin", *place)
    assert "everyone here is an admin" in call_e3("token", "revoke", "1", *place).stderr
    assert "There are no tokens" in call_e3("token", "ls", *place).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["create"],
        ["create", "--role", "king"],
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
