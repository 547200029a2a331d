"""Tokens: nobody guesses one, nobody reads one back, and a wrong one tells nothing about the right ones."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import replace

import pytest

from comfyui_agent.domain import tokens
from comfyui_agent.domain.tokens import Role, Token, hash_of, matching, mint_token, proxy_hash, seconds_in


def kept(secret: str, number: int = 1, role: Role = Role.USER) -> Token:
    return Token(number, f"token {number}", role, hash_of(secret), "2025-08-09 12:30:01.000")


def test_a_token_is_long_random_and_recognised_by_its_beginning() -> None:
    minted = {mint_token() for _ in range(200)}
    assert len(minted) == 200
    assert all(re.fullmatch(r"e3_[A-Za-z0-9_-]{43}", token) for token in minted)


def test_only_a_hash_is_kept() -> None:
    assert hash_of("e3_secret") == hashlib.sha256(b"e3_secret").hexdigest()
    assert "e3_secret" not in repr(kept("e3_secret"))


def test_the_one_that_was_given_is_found() -> None:
    secrets = [mint_token() for _ in range(5)]
    known = [kept(secret, number) for number, secret in enumerate(secrets)]
    assert [matching(secret, known) for secret in secrets] == known


def test_anything_else_is_nobody() -> None:
    for given in ["", "e3_", "E3_SECRET", "e3_secret ", "e3_secre", "é", "\ud800", "\0", "e3_secret\0"]:
        assert matching(given, [kept("e3_secret")]) is None, given
        assert matching(given, []) is None, given


def test_a_hash_that_was_read_is_no_token() -> None:
    known = kept("e3_secret")
    assert matching(known.hash, [known]) is None


def test_a_hash_that_someone_wrote_wrongly_matches_nothing() -> None:
    assert matching("e3_secret", [Token(1, "", Role.ADMIN, "ünhashed", "")]) is None
    assert matching("", [Token(1, "", Role.ADMIN, "", "")]) is None


@pytest.mark.parametrize("place", [0, 2, 4, None])
def test_every_token_is_compared_in_constant_time_wherever_the_right_one_is(
    monkeypatch: pytest.MonkeyPatch, place: int | None
) -> None:
    known = [kept(f"e3_{number}", number) for number in range(5)]
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(tokens, "hmac", type("Watched", (), {"compare_digest": staticmethod(compare)}))
    found = matching(f"e3_{place}", known)
    assert found == (None if place is None else known[place])
    assert compared == [token.hash.encode() for token in known]


def test_each_role_may_do_what_those_below_it_may_and_not_the_other_way_round() -> None:
    for has, needs, may in [
        (Role.METRICS, Role.METRICS, True),
        (Role.METRICS, Role.READ, False),
        (Role.READ, Role.METRICS, True),
        (Role.READ, Role.USER, False),
        (Role.USER, Role.READ, True),
        (Role.USER, Role.USER, True),
        (Role.USER, Role.ADMIN, False),
        (Role.ADMIN, Role.METRICS, True),
        (Role.ADMIN, Role.USER, True),
        (Role.ADMIN, Role.ADMIN, True),
    ]:
        assert has.includes(needs) is may, (has, needs, may)
        assert f"{has}" == has.value, (has, needs, may)


def test_a_time_is_written_with_its_unit() -> None:
    for text, seconds in [("30d", 2_592_000), ("12h", 43_200), ("90m", 5_400), ("2w", 1_209_600), (" 1m ", 60)]:
        assert seconds_in(text) == seconds, (text, seconds)


def test_anything_else_is_no_time() -> None:
    for text in ["", "30", "d", "0d", "-1d", "1.5d", "30 days", "1y", "9999999d", "4000d", "\u0663d"]:
        with pytest.raises(ValueError, match="30d"):
            seconds_in(text)


def test_a_name_that_a_proxy_says_matches_no_token() -> None:
    known = Token(1, "anna", Role.ADMIN, proxy_hash("anna"), "")
    for given in ("anna", "proxy:anna", proxy_hash("anna")):
        assert matching(given, [known]) is None


def test_a_token_is_valid_until_it_ends_or_is_revoked() -> None:
    token = Token(1, "", Role.USER, "", "", expires_at="2025-08-09 12:30:01.000")
    assert token.is_valid("2025-08-09 12:30:00.999")
    assert not token.is_valid("2025-08-09 12:30:01.000")
    assert not replace(token, expires_at=None, revoked_at="2025-08-09 12:30:01.000").is_valid("2025-08-09 12:00:00.000")
