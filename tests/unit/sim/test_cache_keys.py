"""When two nodes count as the same work."""

from __future__ import annotations

import copy

import pytest

from comfyui_agent.sim.engine.graph import OutputCache, cache_keys
from comfyui_agent.sim.engine.values import Result
from support.graphs import node
from support.wire import Graph

PROMPT: Graph = {
    "1": node("EmptyImage", width=16, height=16),
    "2": node("ImageInvert", image=["1", 0]),
    "3": node("SaveImage", images=["2", 0], filename_prefix="x"),
}


def keys(prompt: Graph, fingerprint: object = False) -> dict[str, str]:
    return cache_keys(prompt, lambda _: fingerprint)


def changed(node_id: str, **inputs: object) -> Graph:
    prompt = copy.deepcopy(PROMPT)
    prompt[node_id]["inputs"].update(inputs)
    return prompt


def test_ids_titles_and_the_order_of_inputs_do_not_count() -> None:
    renamed: Graph = {
        "save": node("SaveImage", filename_prefix="x", images=["b", 0]),
        "b": node("ImageInvert", image=["a", 0]),
        "a": {**node("EmptyImage", height=16, width=16), "_meta": {"title": "mine"}},
    }
    first, second = keys(PROMPT), keys(renamed)
    assert (first["1"], first["2"], first["3"]) == (second["a"], second["b"], second["save"])


def test_a_changed_literal_changes_the_node_and_all_after_it() -> None:
    before, after = keys(PROMPT), keys(changed("2", extra="unknown"))
    assert before["1"] == after["1"]
    assert before["2"] != after["2"]
    assert before["3"] != after["3"]


@pytest.mark.parametrize(
    "other",
    [
        changed("1", width=17),
        changed("1", width="16"),
        changed("1", width=True),
        {**PROMPT, "1": node("SolidMask", width=16, height=16)},
    ],
    ids=["value", "type", "truth", "class"],
)
def test_what_counts_upstream(other: Graph) -> None:
    assert keys(PROMPT)["3"] != keys(other)["3"]


def test_another_slot_of_the_same_node_is_other_work() -> None:
    assert keys(PROMPT)["2"] != keys(changed("2", image=["1", 1]))["2"]


def test_a_changed_file_is_other_work() -> None:
    assert keys(PROMPT, "hash of one file")["1"] != keys(PROMPT, "hash of another")["1"]


def test_one_shared_source_is_not_the_same_as_two_equal_ones() -> None:
    shared = {"1": node("A"), "2": node("B", x=["1", 0], y=["1", 0])}
    apart = {"1": node("A"), "9": node("A"), "2": node("B", x=["1", 0], y=["9", 0])}
    assert keys(shared)["2"] != keys(apart)["2"]


def test_not_a_number_is_never_the_same_work() -> None:
    prompt = changed("1", width=float("nan"))
    assert keys(prompt)["3"] != keys(prompt)["3"]


def test_a_circle_and_a_link_to_nowhere_have_keys_too() -> None:
    prompt = {"1": node("A", x=["2", 0]), "2": node("A", x=["1", 0]), "3": node("A", x=["nowhere", 0])}
    assert len(set(keys(prompt).values())) >= 2


def test_a_long_chain_has_short_keys() -> None:
    prompt = {"0": node("A"), **{str(n): node("A", x=[str(n - 1), 0]) for n in range(1, 300)}}
    assert {len(key) for key in keys(prompt).values()} == {64}


def entry(name: str) -> Result:
    return Result((name,))


def test_the_cache_forgets_what_the_last_prompt_did_not_use() -> None:
    cache = OutputCache()
    cache.start_prompt({"1": "a"})
    cache.set("1", entry("a"))
    cache.start_prompt({"5": "a"})
    assert cache.get("5") == entry("a")
    cache.start_prompt({"1": "b"})
    cache.start_prompt({"1": "a"})
    assert cache.get("1") is None


def test_a_dropped_cache_is_empty() -> None:
    cache = OutputCache()
    cache.start_prompt({"1": "a"})
    cache.set("1", entry("a"))
    cache.drop()
    assert cache.get("1") is None
