"""Seeds that nobody chose."""

from __future__ import annotations

import pytest

from comfyui_agent.domain import seeds
from comfyui_agent.domain.seeds import SEEDS, draw_seeds


def test_there_are_as_many_as_were_asked_for_and_no_two_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([5, 5, SEEDS - 1, 5, 9])
    monkeypatch.setattr(
        seeds.secrets, "token_bytes", lambda size: b"".join(next(drawn).to_bytes(4, "little") for _ in range(size // 4))
    )
    assert draw_seeds(3) == [5, SEEDS - 1, 9]


def test_they_are_others_each_time_and_fit_every_node() -> None:
    first, second = draw_seeds(8), draw_seeds(8)
    assert first != second
    assert all(0 <= seed < SEEDS for seed in [*first, *second])
    assert draw_seeds(0) == []
