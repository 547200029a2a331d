"""The samples: three sizes of a page, as people name them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comfyui_agent.lab import payloads as samples
from comfyui_agent.lab.payloads import SAMPLES, read_payload, sample_path


def test_all_three_are_there_as_bodies_of_a_prompt_and_differ(tmp_path: Path) -> None:
    payloads = []
    for name in SAMPLES:
        path = sample_path(name, tmp_path)
        assert path is not None
        assert set(json.loads(path.read_text(encoding="utf-8"))) >= {"prompt"}
        payloads.append(read_payload(path))
    assert len({payload.digest for payload in payloads}) == 3
    assert [payload.name for payload in payloads] == list(SAMPLES)
    assert all(payload.seed_places for payload in payloads)


def test_small_medium_and_large_say_the_truth(tmp_path: Path) -> None:
    def work(name: str) -> int:
        path = sample_path(name, tmp_path)
        assert path is not None
        inputs = [each["inputs"] for each in read_payload(path).graph.values()]
        steps = sum(each.get("steps", 0) for each in inputs)
        pixels = max(each.get("width", 0) * each.get("height", 0) for each in inputs)
        return int(steps * pixels)

    small, medium, large = (work(name) for name in SAMPLES)
    assert small < medium < large


def test_the_workspaces_own_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "infra" / "comfyui" / "samples" / "book_small.json"
    own.parent.mkdir(parents=True)
    own.write_text("{}")
    assert sample_path("book_small", tmp_path) == own
    assert sample_path("book_large", tmp_path) not in (None, own)


@pytest.mark.parametrize("name", ["", "book", "book_small.json", "../book_small", "BOOK_SMALL"])
def test_other_names_are_no_samples(tmp_path: Path, name: str) -> None:
    assert sample_path(name, tmp_path) is None


def test_without_any_samples_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "SHIPPED", tmp_path / "a")
    monkeypatch.setattr(samples, "CHECKOUT", tmp_path / "b")
    assert sample_path("book_small", tmp_path) is None
