"""Payloads: each prompt differs from all others just so much that no cache answers it."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.config.workflows import NoWorkflow
from comfyui_agent.lab.payloads import (
    FOLDER_SIZE,
    MODEL,
    OWN_INPUT,
    Payload,
    PayloadError,
    fitted,
    new_run_prefix,
    read_payload,
)
from support.graphs import node, picture
from support.sampled_graphs import text_to_image

CANNOT_BE_A_FILE_NAME_EVERYWHERE = re.compile(r'[<>:"|?*\\\x00-\x1f]')


def sampled(**changes: Any) -> dict[str, Any]:
    graph = text_to_image("a fox", 7)
    graph["5"]["inputs"] |= changes
    return graph


def without_seed() -> dict[str, Any]:
    return picture("kept", color=3)


class FakeDefinitions:
    def __init__(self, known: dict[str, Any]) -> None:
        self._known = known

    async def of(self, name: str) -> Any:
        return self._known.get(name)


class FakeClient:
    """A server as far as `fitted` asks it: which nodes it has."""

    address = "http://fake:8188"

    def __init__(self, **known: Any) -> None:
        self.definitions = FakeDefinitions(known)


def offering(*models: str) -> dict[str, Any]:
    return {"input": {"required": {"ckpt_name": [list(models)]}}}


def loader(ckpt_name: Any = "auto") -> Payload:
    return Payload.of("loader", {"1": node("CheckpointLoaderSimple", ckpt_name=ckpt_name)})


async def fit(payload: Payload, **known: Any) -> Payload:
    return await fitted(payload, FakeClient(**known))  # type: ignore[arg-type]


def test_a_thousand_prompts_have_a_thousand_seeds_and_nothing_else_is_changed() -> None:
    payload = Payload.of("page", sampled())
    chance = random.Random(1)
    prompts = [payload.varied(number, chance, "e3_lab/run") for number in range(1000)]
    assert len({prompt["5"]["inputs"]["seed"] for prompt in prompts}) == 1000
    for prompt in prompts:
        prompt["5"]["inputs"]["seed"] = 7
        prompt["7"]["inputs"]["filename_prefix"] = "e3_demo/picture"
        assert prompt == sampled()


def test_the_workflow_itself_is_never_changed() -> None:
    graph = sampled()
    payload = Payload.of("page", graph)
    payload.varied(0, random.Random(1), "run")
    payload.same(0, "run")
    assert graph == sampled()
    assert payload.graph == sampled()


def test_seeds_of_both_names_are_varied_wherever_they_are_numbers() -> None:
    graph = {
        "1": node("KSampler", seed=1),
        "2": node("KSamplerAdvanced", noise_seed=2),
        "3": node("Linked", seed=["9", 0]),
        "4": node("Switch", seed=True),
        "5": node("Words", seed="7"),
    }
    payload = Payload.of("many", graph)
    assert payload.seed_places == (("1", "seed"), ("2", "noise_seed"))
    sent = payload.varied(0, random.Random(1), "run")
    assert sent["1"]["inputs"]["seed"] != 1
    assert sent["2"]["inputs"]["noise_seed"] != 2
    assert sent["3"] == graph["3"]
    assert sent["4"] == graph["4"]
    assert sent["5"] == graph["5"]


def test_seeds_fit_the_narrowest_seed_input_that_is_common() -> None:
    chance = random.Random(3)
    payload = Payload.of("page", sampled())
    seeds = [payload.varied(number, chance, "run")["5"]["inputs"]["seed"] for number in range(200)]
    assert min(seeds) >= 0
    assert max(seeds) < 2**31  # many node packs take no more: half of the prompts would be rejected


def test_the_same_run_seed_gives_the_same_prompts_and_another_others() -> None:
    payload = Payload.of("page", sampled())

    def prompts(seed: int) -> list[Any]:
        chance = random.Random(seed)
        return [payload.varied(number, chance, "run") for number in range(5)]

    assert prompts(1) == prompts(1)
    assert prompts(1) != prompts(2)


def test_a_workflow_without_a_seed_is_varied_by_an_input_that_no_node_declares_but_where_a_model_is_loaded() -> None:
    graph = {"0": node("CheckpointLoaderSimple", ckpt_name="a.SAFETENSORS"), **without_seed()}
    payload = Payload.of("plain", graph)
    assert not payload.seed_places
    chance = random.Random(1)
    first, second = payload.varied(0, chance, "run"), payload.varied(1, chance, "run")
    assert first["0"] == graph["0"]
    for node_id in ("1", "2"):
        assert first[node_id]["inputs"][OWN_INPUT] != second[node_id]["inputs"][OWN_INPUT]
    assert first["1"]["inputs"]["color"] == 3


def test_unvaried_prompts_differ_by_where_they_save_alone() -> None:
    payload = Payload.of("page", sampled())
    first, second = payload.same(0, "run"), payload.same(1, "run")
    assert first["7"]["inputs"].pop("filename_prefix") != second["7"]["inputs"].pop("filename_prefix")
    assert first == second


def test_results_go_to_folders_of_the_runs_own_that_never_grow_full() -> None:
    payload = Payload.of("page", sampled())
    prefixes = [payload.same(number, "e3_lab/run")["7"]["inputs"]["filename_prefix"] for number in range(1000)]
    assert len(set(prefixes)) == 1000
    assert all(prefix.startswith("e3_lab/run/") for prefix in prefixes)
    folders = [prefix.rpartition("/")[0] for prefix in prefixes]
    assert max(folders.count(folder) for folder in set(folders)) == FOLDER_SIZE
    assert new_run_prefix() != new_run_prefix()


def test_two_nodes_that_save_do_not_write_over_each_other() -> None:
    graph = picture("a") | {"3": node("SaveImage", images=["1", 0], filename_prefix="a")}
    sent = Payload.of("two", graph).same(0, "run")
    assert sent["2"]["inputs"]["filename_prefix"] != sent["3"]["inputs"]["filename_prefix"]


@pytest.mark.parametrize("node_id", ["98:6", "../../x", "ä ö", "a|b"])
def test_a_result_has_a_name_that_every_server_can_write(node_id: str) -> None:
    graph = {"1": node("EmptyImage", width=8), node_id: node("SaveImage", images=["1", 0], filename_prefix="x")}
    prefix = Payload.of("odd", graph).same(0, "e3_lab/run")[node_id]["inputs"]["filename_prefix"]
    assert not CANNOT_BE_A_FILE_NAME_EVERYWHERE.search(prefix)
    assert ".." not in prefix
    assert prefix.count("/") == 3


def test_a_prefix_that_another_node_makes_stays_linked() -> None:
    graph = {"1": node("Text", value="x"), "2": node("SaveImage", filename_prefix=["1", 0])}
    assert Payload.of("linked", graph).same(0, "run") == graph


def test_the_digest_tells_workflows_apart_and_not_their_spelling(tmp_path: Path) -> None:
    graph = sampled()
    (tmp_path / "a.json").write_text(json.dumps(graph, indent=4), encoding="utf-8")
    (tmp_path / "b.json").write_text(json.dumps({"prompt": dict(reversed(graph.items()))}), encoding="utf-8")
    (tmp_path / "c.json").write_text(json.dumps(sampled(steps=21)), encoding="utf-8")
    first, second, other = (read_payload(tmp_path / f"{name}.json") for name in "abc")
    assert (first.name, second.name) == ("a", "b")
    assert first.digest == second.digest != other.digest
    assert re.fullmatch(r"[0-9a-f]{64}", first.digest)
    assert first.facts.as_json() == {"name": "a", "sha256": first.digest, "nodes": 7}


def test_words_in_any_script_and_broken_ones_have_a_digest() -> None:
    for words in ("Füchse 狐狸 🦊", "\ud800"):
        assert len(Payload.of("x", {"1": node("CLIPTextEncode", text=words)}).digest) == 64


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"nodes": [], "links": []}', "Export"),
        ("{", "cannot be read"),
        ("[1, 2]", ""),
        ('"text"', ""),
        ("", ""),
        ("{}", ""),
        ('{"1": 5}', ""),
        ('{"1": {"inputs": {}}}', ""),
        ("[" * 100_000, ""),
        ("\xff\xfe", ""),
    ],
)
def test_a_file_that_is_no_workflow_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(NoWorkflow, match=r"odd\.json") as caught:
        read_payload(path)
    assert "\n" not in str(caught.value)
    assert words in str(caught.value)


def test_a_name_that_can_be_no_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(NoWorkflow):
        read_payload(tmp_path / ("x" * 5000))


async def test_auto_becomes_the_first_model_that_the_server_offers_and_the_digest_stays() -> None:
    payload = loader()
    fit_one = await fit(payload, CheckpointLoaderSimple=offering("b.safetensors", "a.safetensors"))
    assert fit_one.graph["1"]["inputs"]["ckpt_name"] == "b.safetensors"
    assert fit_one.digest == payload.digest
    assert payload.graph["1"]["inputs"]["ckpt_name"] == "auto"


async def test_a_model_that_is_named_is_left_alone() -> None:
    payload = loader("mine.safetensors")
    assert await fit(payload, CheckpointLoaderSimple=offering("other.safetensors")) == payload


async def test_where_the_model_of_the_samples_is_absent_another_is_measured_and_that_is_said() -> None:
    payload = loader(MODEL)
    assert await fit(payload, CheckpointLoaderSimple=offering("a.safetensors", MODEL)) == payload
    other = await fit(payload, CheckpointLoaderSimple=offering("a.safetensors", "b.safetensors"))
    assert other.graph["1"]["inputs"]["ckpt_name"] == "a.safetensors"
    (note,) = other.notes
    assert note == f"http://fake:8188 has no model {MODEL}, which loader names: it was measured with a.safetensors"
    with pytest.raises(PayloadError, match=r"no model for 1\.ckpt_name of loader"):
        await fit(payload, CheckpointLoaderSimple=offering())


async def test_auto_that_is_itself_a_choice_is_left_alone() -> None:
    assert (await fit(loader(), CheckpointLoaderSimple=offering("auto", "x"))).graph["1"]["inputs"] == {
        "ckpt_name": "auto"
    }


async def test_a_server_without_a_model_or_a_node_is_said_in_one_line() -> None:
    with pytest.raises(PayloadError, match=r"no model for 1\.ckpt_name of loader"):
        await fit(loader(), CheckpointLoaderSimple=offering())
    with pytest.raises(PayloadError, match=r"no node 'CheckpointLoaderSimple' \(node 1 of loader\)"):
        await fit(loader())
