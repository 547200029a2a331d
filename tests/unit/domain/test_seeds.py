"""Random seeds are different from each other and fit every node."""

from __future__ import annotations

from comfyui_agent.domain.values import SEED_LIMIT, draw_seeds


def test_no_two_seeds_are_the_same() -> None:
    assert len(set(draw_seeds(100_000))) == 100_000


def test_seeds_are_random_and_fit_every_node() -> None:
    first, second = draw_seeds(8), draw_seeds(8)
    assert first != second
    assert all(0 <= seed < SEED_LIMIT for seed in [*first, *second])
    assert draw_seeds(0) == []
