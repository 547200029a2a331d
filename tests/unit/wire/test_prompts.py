"""Posted prompts, and the part of the history that a client asks for."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from comfyui_agent.wire.prompts import Submission, history_slice


@pytest.mark.parametrize(
    ("max_items", "offset", "expected"),
    [
        (None, -1, [0, 1, 2, 3, 4]),
        (2, -1, [3, 4]),
        (9, -1, [0, 1, 2, 3, 4]),
        (2, 1, [1, 2]),
        (None, 3, [3, 4]),
        (0, 1, [1]),
        (-3, 2, [2]),
        (0, -1, []),
        (2, 7, []),
    ],
)
def test_a_part_of_the_history(max_items: int | None, offset: int, expected: list[int]) -> None:
    assert list(range(5))[history_slice(5, max_items, offset)] == expected


def submission(prompt_id: str | None = None, **extra_data: Any) -> Submission:
    return Submission({"1": {}}, prompt_id, None, False, extra_data, None)


def test_secrets_are_kept_apart_from_what_clients_see() -> None:
    item = submission(api_key_comfy_org="secret", client_id="c").queued(3, ["1"], 1700)
    assert (item.extra_data, item.sensitive) == (
        {"client_id": "c", "create_time": 1700},
        {"api_key_comfy_org": "secret"},
    )
    assert "secret" not in str(item.shown())


def test_a_prompt_without_an_id_gets_one() -> None:
    assert submission("mine").queued(0, [], None).prompt_id == "mine"
    minted = submission().queued(0, [], None).prompt_id
    assert str(uuid.UUID(minted)) == minted
