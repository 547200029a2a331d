"""A sweep is checked before anything is queued; it makes a job for each combination and never changes its workflow."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.batches.axes import BadSweep, count_axes
from comfyui_agent.batches.sweep_request import GridAxes, SweepRequest
from comfyui_agent.batches.sweeps import MOST_CELLS, Sweep, define
from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.binding import Places, Recipe, Unbindable
from comfyui_agent.domain.combinations import Mode
from comfyui_agent.domain.drawing import is_open
from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.prompts import place
from comfyui_agent.domain.texts import bytes_of

FINISHED = "jobs/finished"
GRAPH: dict[str, Any] = {
    "3": {
        "class_type": "KSampler",
        "inputs": {"seed": 7, "steps": 20, "cfg": 7.5, "sampler_name": "euler", "tiled": False, "model": ["4", 0]},
    },
    "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "auto"}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a knight"}, "_meta": {"title": "Prompt"}},
    "11": {"class_type": "KSampler", "inputs": {"seed": 7, "sampler_name": "euler"}},
    "98:6": {"class_type": "CLIPTextEncode", "inputs": {"text": "blurry"}},
    "9": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "x"}},
}
SAMPLER = {
    "name": "KSampler",
    "input": {
        "required": {
            "seed": ["INT", {"min": 0, "max": 1000}],
            "steps": ["INT", {"min": 1, "max": 100}],
            "cfg": ["FLOAT", {"min": 0.0, "max": 100.0}],
            "sampler_name": [["euler", "dpmpp_2m", "ddim"]],
            "tiled": ["BOOLEAN", {}],
        }
    },
}
LIMITED = {"name": "KSampler", "input": {"required": {"sampler_name": [["heun"]], "seed": ["INT", {"max": 5}]}}}


def workflow_of(graph: Mapping[str, Any] = GRAPH, **recipe: Any) -> Workflow:
    facts = {"workflow_id": "wf_knight", "template_path": "workflows/wf_knight.json", **recipe}
    return Workflow(Recipe(**facts), Template.of(graph), graph, Places(graph))


def lines_of(_: str) -> Sequence[str]:
    raise FileNotFoundError(2, "No such file or directory")


def counting(count: int) -> Sequence[int]:
    return range(1000, 1000 + count)


def defined(
    sets: Mapping[str, Any],
    workflow: Workflow | None = None,
    definitions: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    *,
    read_lines: Callable[[str], Sequence[str]] = lines_of,
    keep: Callable[[Workflow, Mapping[str, Any]], dict[str, str]] = lambda *_: {},
    **wish: Any,
) -> Sweep:
    asked = SweepRequest(workflow or workflow_of(), sets, **wish)
    counted = count_axes(asked, read_lines)
    return define(asked, counted, FINISHED, definitions or {}, draw=counting, keep=keep)


def values_at(sweep: Sweep, where: str) -> list[Any]:
    """What goes to a place, job after job."""
    return [job.inputs[where] for job in sweep.jobs()]


def error_of(sets: Mapping[str, Any], *more: Any, **wish: Any) -> str:
    with pytest.raises(BadSweep) as caught:
        defined(sets, *more, **wish)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Types.


def test_without_a_server_values_have_the_types_of_the_workflow() -> None:
    assert values_at(defined({"3.seed": "1..3"}), "3.seed") == [1, 2, 3]
    assert values_at(defined({"6.text": "007, a fox"}), "6.text") == ["007", "a fox"]
    assert values_at(defined({"3.tiled": "true,false"}), "3.tiled") == [True, False]


def test_decimals_are_exact() -> None:
    found = values_at(defined({"3.cfg": "0.1..0.9:0.1"}), "3.cfg")
    assert [json.dumps(value) for value in found] == [f"0.{digit}" for digit in range(1, 10)]


def test_a_whole_number_in_the_workflow_takes_decimals_until_a_server_says_otherwise() -> None:
    assert values_at(defined({"3.steps": "1.5"}), "3.steps") == [1.5]
    assert error_of({"3.steps": "1.5"}, None, {"KSampler": [SAMPLER]}).endswith("3.steps: 1.5 is not a whole number")


def test_what_the_server_does_not_take_is_an_error_that_says_what_it_takes() -> None:
    for axis, values, words in [
        ("3.steps", "0", "3.steps: 0 is below 1, the least that KSampler takes"),
        ("3.cfg", "1,101", "3.cfg: 101 is above 100.0, the most that KSampler takes"),
        ("3.seed", "many", "3.seed: 'many' is not a whole number"),
        ("3.tiled", "maybe", "3.tiled: 'maybe' is neither true nor false"),
        ("3.sampler_name", "dpmp_2m", "did you mean dpmpp_2m?"),
        ("3.sampler_name", "zzz", "there are ddim, dpmpp_2m, euler"),
    ]:
        assert error_of({axis: values}, None, {"KSampler": [SAMPLER]}).endswith(words), (axis, values, words)


def test_of_several_servers_one_that_takes_it_is_enough() -> None:
    known = {"KSampler": [LIMITED, SAMPLER]}
    sweep = defined({"3.sampler_name": "heun,euler", "3.seed": "4,900"}, None, known)
    assert len(sweep) == 4
    assert "'lms' is not one of the server's choices" in error_of({"3.sampler_name": "lms"}, None, known)


def test_an_axis_fits_every_one_of_its_places() -> None:
    words = error_of({"4.ckpt_name,3.sampler_name": "euler,x.safetensors"}, None, {"KSampler": [SAMPLER]})
    assert "3.sampler_name: 'x.safetensors' is not one of the server's choices" in words


@pytest.mark.parametrize(
    "name",
    [
        "6.text,3.cfg",
        pytest.param("3.cfg,6.text"),
    ],
)
def test_each_place_of_an_axis_gets_the_value_in_its_own_type(name: str) -> None:
    sweep = defined({name: "0.50,1.5"}, None, {"KSampler": [SAMPLER]})
    assert values_at(sweep, "3.cfg") == [0.5, 1.5]
    assert values_at(sweep, "6.text") == ["0.50", "1.5"]


def test_a_model_that_is_chosen_later_can_be_a_value() -> None:
    loader = {"input": {"required": {"ckpt_name": [["a.safetensors", "b.safetensors"]]}}}
    sweep = defined({"4.ckpt_name": "auto,b.safetensors"}, None, {"CheckpointLoaderSimple": [loader]})
    assert values_at(sweep, "4.ckpt_name") == ["auto", "b.safetensors"]


# Places.


def test_an_axis_goes_to_several_places_at_once() -> None:
    sweep = defined({"3.seed, 11.seed": "1..3"})
    assert values_at(sweep, "3.seed") == values_at(sweep, "11.seed") == [1, 2, 3]
    assert next(job.metadata for job in sweep.jobs()) == {"combination": {"3.seed,11.seed": 1}}


def test_a_name_of_the_recipe_goes_wherever_the_recipe_says() -> None:
    workflow = workflow_of(inputs={"noise": ("3.seed", "11.seed"), "prompt": ("98:6.text",)})
    sweep = defined({"noise": "1,2", "prompt": "a | b"}, workflow)
    assert values_at(sweep, "3.seed") == values_at(sweep, "11.seed") == [1, 1, 2, 2]
    assert values_at(sweep, "98:6.text") == ["a", "b", "a", "b"]


def test_a_node_with_a_colon_in_its_id_is_a_place() -> None:
    assert values_at(defined({"98:6.text": "a | b"}), "98:6.text") == ["a", "b"]


FILLED: dict[str, Any] = {
    "3": {"class_type": "KSampler", "inputs": {"seed": "${seed}", "sampler_name": "${family}_2m"}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a ${animal} with a ${hat}"}},
    "9": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "x"}},
}


@pytest.mark.parametrize("definitions", [{}, {"KSampler": [SAMPLER]}], ids=["no server", "server"])
def test_placeholders_are_axes(definitions: dict[str, Any]) -> None:
    """One that is all of a text takes the value with its type."""
    fixed = {"family": "dpmpp", "hat": "top hat"}
    sweep = defined({"seed": "1,2", "animal": "fox"}, workflow_of(FILLED), definitions, inputs=fixed)
    assert values_at(sweep, "3.seed") == [1, 2]
    assert values_at(sweep, "6.text") == ["a fox with a top hat", "a fox with a top hat"]


def test_two_placeholders_within_one_text_are_two_axes() -> None:
    fixed = {"family": "dpmpp", "seed": 1}
    sweep = defined({"animal": "fox,cat", "hat": "cap,crown"}, workflow_of(FILLED), inputs=fixed)
    assert values_at(sweep, "6.text") == [
        f"a {animal} with a {hat}" for animal in ("fox", "cat") for hat in ("cap", "crown")
    ]


def test_a_placeholder_within_a_choice_is_not_taken_for_the_choice() -> None:
    fixed = {"seed": 1, "animal": "fox", "hat": "cap"}
    sweep = defined({"family": "dpmpp"}, workflow_of(FILLED), {"KSampler": [SAMPLER]}, inputs=fixed)
    assert values_at(sweep, "3.sampler_name") == ["dpmpp_2m"]


def test_a_choice_that_is_put_together_is_checked_as_it_will_stand_there() -> None:
    fixed = {"seed": 1, "animal": "fox", "hat": "cap"}
    assert "'dpm_2m'" in error_of({"family": "dpm"}, workflow_of(FILLED), {"KSampler": [SAMPLER]}, inputs=fixed)


def test_a_value_within_a_text_stays_as_it_was_written() -> None:
    for value in ["0.50", "TRUE"]:
        fixed = {"seed": 1, "family": "dpmpp", "hat": "cap"}
        sweep = defined({"animal": value}, workflow_of(FILLED), inputs=fixed)
        assert values_at(sweep, "6.text") == [f"a {value} with a cap"], value


def test_an_axis_and_a_placeholder_of_one_place_are_refused() -> None:
    fixed = {"seed": 1, "family": "dpmpp", "hat": "cap"}
    words = error_of({"animal": "fox,cat", "6.text": "a | b"}, workflow_of(FILLED), inputs=fixed)
    assert "both go to 6.text" in words


def test_a_placeholder_that_nobody_fills_is_an_error() -> None:
    assert "animal: is missing" in error_of({"seed": "1,2"}, workflow_of(FILLED))


# What is said for all, and what the recipe says.


def test_inputs_hold_for_all_and_an_axis_wins_over_a_default() -> None:
    workflow = workflow_of(defaults={"steps": 5, "3.cfg": 2.0}, inputs={"steps": ("3.steps",)})
    sweep = defined({"steps": "1,2"}, workflow, inputs={"6.text": "a fox"})
    assert values_at(sweep, "3.steps") == [1, 2]
    assert values_at(sweep, "3.cfg") == [2.0, 2.0]
    assert values_at(sweep, "6.text") == ["a fox", "a fox"]


def test_a_required_input_may_come_from_an_axis_from_the_inputs_or_stand_in_the_workflow() -> None:
    workflow = workflow_of(required_inputs=("seed", "prompt"), inputs={"seed": ("3.seed",), "prompt": ("6.text",)})
    assert len(defined({"seed": "1,2"}, workflow)) == 2


def test_a_required_input_that_is_nowhere_is_an_error() -> None:
    for empty in ["", None, "${prompt}"]:
        graph = copy.deepcopy(GRAPH)
        graph["6"]["inputs"]["text"] = empty
        workflow = workflow_of(graph, required_inputs=("prompt",), inputs={"prompt": ("6.text",)})
        assert error_of({"3.seed": "1,2"}, workflow).startswith("prompt: is missing: wf_knight needs prompt"), empty
        assert len(defined({"3.seed": "1,2"}, workflow, inputs={"prompt": "a fox"})) == 2, empty
        assert len(defined({"prompt": "a | b"}, workflow)) == 2, empty


def test_a_value_for_all_that_does_not_fit_is_an_error_before_anything_is_queued() -> None:
    assert "3.steps (KSampler) takes a whole number" in error_of({"3.seed": "1"}, inputs={"3.steps": "many"})


def test_a_value_for_all_is_checked_against_the_server_too() -> None:
    for name, value in [("3.sampler_name", "eulr"), ("3.steps", "0"), ("3.cfg", "1000")]:
        assert name in error_of({"3.seed": "1"}, None, {"KSampler": [SAMPLER]}, inputs={name: value}), (name, value)


# Combinations.


def test_matrix_is_the_product_the_last_axis_fastest() -> None:
    sweep = defined({"3.seed": "1,2", "3.cfg": "5,6.5", "6.text": "a | b"})
    found = [tuple(job.metadata["combination"].values()) for job in sweep.jobs() if job.metadata]
    assert found == list(product((1, 2), (5, 6.5), ("a", "b")))
    assert [job.batch_index for job in sweep.jobs()] == list(range(8))


def test_linear_goes_in_step_and_a_single_value_stays() -> None:
    sweep = defined({"3.seed": "1..3", "3.cfg": "7", "6.text": "a | b | c"}, mode=Mode.LINEAR)
    found = [tuple(job.metadata["combination"].values()) for job in sweep.jobs() if job.metadata]
    assert found == [(1, 7, "a"), (2, 7, "b"), (3, 7, "c")]


def test_seeds_are_drawn_once_and_recorded() -> None:
    sweep = defined({"3.seed,11.seed": "random:3"})
    assert values_at(sweep, "3.seed") == values_at(sweep, "3.seed") == values_at(sweep, "11.seed") == [1000, 1001, 1002]
    assert sweep.batch.metadata["axes"][0]["values"] == (1000, 1001, 1002)


@given(
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    mode=st.sampled_from(Mode),
)
def test_each_job_has_its_own_combination_and_its_own_values(lengths: list[int], mode: Mode) -> None:
    places = ["3.seed", "3.steps", "11.seed", "3.cfg"]
    if mode is Mode.LINEAR:
        lengths = [lengths[0] if number % 2 else 1 for number, _ in enumerate(lengths)]
    sweep = defined({name: f"1..{length}" for name, length in zip(places, lengths, strict=False)}, mode=mode)
    jobs = list(sweep.jobs())
    assert len(jobs) == len(sweep)
    assert [job.metadata["combination"] for job in jobs if job.metadata] == [dict(job.inputs) for job in jobs]
    assert len({job.config_name for job in jobs}) == len({job.file_path for job in jobs}) == len(jobs)


# Nothing is shared that could be changed.


def test_the_template_and_the_workflow_of_other_jobs_are_never_changed() -> None:
    workflow = workflow_of()
    before = copy.deepcopy(dict(workflow.graph)), workflow.template.text, workflow.template.hash
    sweep = defined({"3.seed,11.seed": "1..5", "6.text": "a | b"}, workflow, inputs={"3.cfg": 2.5})
    graphs = []
    for job in sweep.jobs():
        assert job.template is workflow.template
        graphs.append(place(workflow.graph, job.inputs))
        graphs[-1]["3"]["inputs"]["seed"] = "spoiled"
        dict.clear(job.inputs)  # type: ignore[arg-type]
    assert (dict(workflow.graph), workflow.template.text, workflow.template.hash) == before
    assert Template.of(workflow.graph) == workflow.template
    assert values_at(sweep, "3.seed") == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert values_at(sweep, "3.cfg") == [2.5] * 10


# Names.


def test_the_id_is_the_name_and_eight_hex_digits() -> None:
    ids = {defined({"3.seed": "1"}, name="Knights & foxes").batch.id for _ in range(50)}
    assert len(ids) == 50
    assert all(re.fullmatch(r"Knights_foxes_[0-9a-f]{8}", each) for each in ids)
    assert re.fullmatch(r"wf_knight_[0-9a-f]{8}", defined({"3.seed": "1"}).batch.id)


@given(st.text())
def test_any_name_makes_an_id_that_is_one_part_of_a_path(name: str) -> None:
    sweep = defined({"3.seed": "1"}, name=name)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}_[0-9a-f]{8}", sweep.batch.id)
    assert sweep.batch.name == (name or "wf_knight")
    assert sweep.batch.metadata["folder"] == f"{FINISHED}/image/{sweep.batch.id}"


HOSTILE = [
    "../../etc/passwd",
    "a/b",
    "a\\b",
    "..",
    ".",
    "",
    "日本語",
    "é",
    "x" * 1000,
    "\x00\x1b[2J\n",
    "CON",
    " ",
    "-rf",
]


def test_a_hostile_value_makes_a_harmless_file_name() -> None:
    for value in HOSTILE:
        sweep = defined({"6.text": [value, "fox"], "3.seed": "1,2"})
        for number, job in enumerate(sweep.jobs(), start=1):
            assert job.file_path is not None
            path = PurePosixPath(job.file_path)
            assert path.parent == PurePosixPath(FINISHED, "image", sweep.batch.id)
            assert re.fullmatch(rf"{number:04}(_[A-Za-z0-9._-]+)?\.png", path.name)
            assert len(path.name) <= 100
        assert values_at(sweep, "6.text") == [value, value, "fox", "fox"], value


@given(st.lists(st.text().filter(lambda text: not is_open(text)), min_size=2, max_size=4, unique=True))
def test_whatever_the_values_are_no_two_results_have_one_name(values: list[str]) -> None:
    jobs = list(defined({"6.text": values}).jobs())
    assert len({(job.file_path or "").lower() for job in jobs}) == len(values)
    assert all(re.fullmatch(r"[0-9]{4}[A-Za-z0-9._-]*\.png", PurePosixPath(job.file_path or "").name) for job in jobs)


def test_a_file_name_says_what_is_different_about_the_result() -> None:
    sweep = defined({"3.seed": "1,2", "3.cfg": "7.5", "6.text": "a red fox"})
    assert [PurePosixPath(job.file_path or "").name for job in sweep.jobs()] == ["0001_seed-1.png", "0002_seed-2.png"]


def test_large_numbers_sort_like_their_names() -> None:
    names = [job.config_name for job, _ in zip(defined({"3.seed": "1..10001"}).jobs(), range(11), strict=False)]
    assert names == sorted(names)


def test_results_go_to_the_folder_of_their_kind() -> None:
    for kind, folder in [("t2v", "video"), ("AUDIO", "audio"), ("3d", "3d"), ("", "image")]:
        sweep = defined({"3.seed": "1"}, job_type=kind)
        assert sweep.batch.metadata["folder"] == f"{FINISHED}/{folder}/{sweep.batch.id}", (kind, folder)


# What is wrong.


def test_a_bad_sweep_is_one_line() -> None:
    for sets, wish, words in [
        ({"99.seed": "1"}, {}, "--set 99.seed: '99.seed' has no place in the workflow"),
        ({"3.sed": "1"}, {}, "node 3 has no input 'sed'; did you mean seed?"),
        ({"seed": "1"}, {}, "'seed' fits several places: 3.seed (KSampler), 11.seed (KSampler)"),
        ({"3.seed": "1..3", "3.cfg": "1,2"}, {"mode": Mode.LINEAR}, "3.seed has 3 values and 3.cfg 2: in linear mode"),
        ({"3.seed": "1..2000", "3.cfg": "1..1000"}, {}, "make 2,000,000 combinations; 1,000,000 is the most"),
        ({"3.seed": "@gone.txt"}, {}, "--set 3.seed: '@gone.txt' cannot be read: No such file or directory"),
        ({"3.seed": "1", "3.seed,11.seed": "1,2"}, {}, "3.seed and 3.seed,11.seed both go to 3.seed"),
        ({"3.seed": ""}, {}, "--set 3.seed: there are no values"),
        ({"3.seed": []}, {}, "--set 3.seed: there are no values"),
        ({"3.seed": [[1]]}, {}, "[1] is no value: write texts, numbers, true or false"),
        ({"3.seed": {"a": 1}}, {}, "{'a': 1} is no value"),
        ({" , ": "1"}, {}, "' , ' names no input"),
        ({"3.seed": "1"}, {"grid": GridAxes(x="cfg")}, "grid.x: 'cfg' is no axis of this sweep; there are 3.seed"),
        ({"3.seed": "1"}, {"grid": GridAxes(x="3.seed", y="3.seed")}, "x, y and pages need different axes"),
        ({"3.seed": "1"}, {"job_type": "film"}, "job_type 'FILM' does not exist"),
        ({"3.seed": "1"}, {"inputs": {"nope": 1}}, "nope: 'nope' has no place in the workflow"),
        ({}, {}, "there is nothing to combine"),
    ]:
        assert words in error_of(sets, **wish), (sets, wish, words)


def unusable(_: Workflow, values: Mapping[str, Any]) -> dict[str, str]:
    """As if the picture that `6.text` names must be a file that is here."""
    if values["6.text"] == "gone.png":
        raise Unbindable({"image": "there is no file 'gone.png'"})
    return {"6.text": values["6.text"]}


@pytest.mark.parametrize(
    "values",
    [
        ["gone.png", "here.png"],
        pytest.param(["here.png", "gone.png"]),
    ],
)
def test_a_picture_that_cannot_be_used_is_an_error_before_anything_is_queued(values: list[str]) -> None:
    assert "gone.png" in error_of({"6.text": values}, keep=unusable)


# Leaving out what is bad.


def test_bad_values_are_left_out_with_a_warning_if_that_is_asked_for() -> None:
    known = {"KSampler": [SAMPLER]}
    sweep = defined({"3.sampler_name": "eulr,euler,ddim", "3.steps": "0,1"}, None, known, skip_bad=True)
    assert values_at(sweep, "3.sampler_name") == ["euler", "ddim"]
    assert values_at(sweep, "3.steps") == [1, 1]
    first, second = sweep.warnings
    assert "3.sampler_name: 'eulr' is not one of the server's choices" in first
    assert "3.steps: 0 is below 1, the least that KSampler takes" in second
    assert all(warning.endswith("left out") for warning in sweep.warnings)


def test_a_bad_axis_is_left_out_as_a_whole() -> None:
    for bad in [{"3.sed": "1,2"}, {"3.cfg": "@gone.txt"}, {"3.cfg": "1..x"}]:
        sweep = defined({"3.seed": "1,2", **bad}, skip_bad=True)
        assert [axis.name for axis in sweep.combinations.axes] == ["3.seed"], bad
        assert len(sweep.warnings) == 1, bad


def test_when_nothing_is_left_the_error_says_what_was_wrong() -> None:
    assert "eulr" in error_of({"3.sampler_name": "eulr"}, None, {"KSampler": [SAMPLER]}, skip_bad=True)


def test_an_axis_without_a_good_value_says_which_ones_were_bad() -> None:
    sweep = defined({"3.seed": "1", "3.sampler_name": "eulr"}, None, {"KSampler": [SAMPLER]}, skip_bad=True)
    assert any("eulr" in warning for warning in sweep.warnings)


# Large ones.


def test_a_million_combinations_are_defined_without_making_a_job() -> None:
    kept: list[Any] = []
    sweep = defined(
        {"3.seed": "1..1000", "11.seed": "1..1000"},
        keep=lambda _, values: kept.append(values) or {},  # type: ignore[func-returns-value]
    )
    assert len(sweep) == 1_000_000
    assert len(kept) <= 1_000 + 1_000 + 1
    assert next(iter(sweep.jobs())).config_name.endswith("_0000001")


def test_too_many_for_a_grid_are_said_to_have_none() -> None:
    few, many = defined({"3.seed": f"1..{MOST_CELLS}"}), defined({"3.seed": f"1..{MOST_CELLS + 1}"})
    assert few.batch.wants_grid
    assert few.warnings == ()
    assert not many.batch.wants_grid
    assert many.warnings == (f"no grid is made of more than {MOST_CELLS:,} results",)


# Sizes.

LONG = "x" * 60_000


def test_what_all_members_share_is_in_their_workflow_and_what_differs_with_each() -> None:
    workflow = workflow_of(inputs={"prompt": ("6.text",), "seed": ("3.seed", "11.seed")}, defaults={"3.steps": 30})
    sweep = defined({"seed": "1..50", "3.cfg": "5"}, workflow, inputs={"prompt": LONG})
    jobs = list(sweep.jobs())
    assert [dict(job.inputs) for job in jobs] == [{"3.seed": seed, "11.seed": seed} for seed in range(1, 51)]
    shared = {"6.text": LONG, "3.steps": 30, "3.cfg": 5}
    for job in jobs[:2]:
        assert job.template is not None
        sent = place(job.template.graph(), job.inputs)
        assert sent == place(GRAPH, {**shared, **job.inputs})
        assert sweep.batch.metadata["shared"] == {job.template.hash: shared}
    assert workflow.graph == GRAPH


def test_a_text_that_an_axis_is_a_part_of_is_not_shared() -> None:
    graph = {**GRAPH, "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "${animal} ${rest}"}}}
    sweep = defined({"animal": "fox,owl"}, workflow_of(graph), inputs={"rest": LONG, "98:6.text": LONG})
    assert [job.inputs["6.text"][:4] for job in sweep.jobs()] == ["fox ", "owl "]
    assert [job.inputs.keys() for job in sweep.jobs()] == [{"6.text"}] * 2


def test_where_little_is_shared_each_member_keeps_all() -> None:
    sweep = defined({"3.seed": "1..50"}, inputs={"6.text": "a fox"})
    assert {job.inputs["6.text"] for job in sweep.jobs()} == {"a fox"}
    assert {job.template for job in sweep.jobs()} == {sweep.request.workflow.template}


@pytest.mark.parametrize(
    ("sets", "mode", "inputs"),
    [
        ({"3.seed": "1..50"}, "matrix", {"98:6.text": LONG}),
        ({"animal": "fox,owl", "3.seed": "1..9"}, "matrix", {"style": LONG}),
        ({"6.text": [LONG, *"abcdefgh"], "3.seed": "1..9"}, "linear", {}),
        ({"6.text": [LONG, *"abcdefgh"], "98:6.text": ["a", LONG]}, "matrix", {}),
        ({"6.text,98:6.text": ["a", *[LONG] * 9], "3.seed": "1..10"}, "linear", {}),
        ({"6.text,98:6.text": ["a", *[LONG[:5000]] * 9], "4.ckpt_name": [LONG[:8000], *["b"] * 9]}, "linear", {}),
    ],
    ids=["shared", "a part of a text", "one is long, in step", "each with each", "two places", "the longest is rare"],
)
def test_what_its_members_take_in_the_database_is_known_before(
    sets: dict[str, Any], mode: str, inputs: dict[str, Any]
) -> None:
    text = "${animal} in ${style}" if "animal" in sets else "a knight"
    graph = {**GRAPH, "6": {"class_type": "CLIPTextEncode", "inputs": {"text": text}}}
    sweep = defined(sets, workflow_of(graph), mode=Mode(mode), inputs=inputs)
    stored = sum(bytes_of(job.inputs) + bytes_of(job.metadata) for job in sweep.jobs())
    assert stored <= sweep.stored_bytes <= stored + 10 * len(sweep)


@pytest.mark.parametrize(
    ("sets", "mode", "is_fine"),
    [
        ({"6.text": [LONG[:20_000], "a"], "98:6.text": ["b", LONG[:20_000]]}, "matrix", False),
        ({"6.text": [LONG[:20_000], "a"], "98:6.text": ["b", LONG[:20_000]]}, "linear", True),
        ({"6.text": [LONG[:20_000], "a"], "98:6.text": [LONG[:20_000], "b"]}, "linear", False),
    ],
)
def test_the_largest_member_counts(sets: dict[str, Any], mode: str, is_fine: bool) -> None:
    wish = SweepRequest(workflow_of(), sets, mode=Mode(mode))
    counted = count_axes(wish, lines_of)
    how: dict[str, Any] = {"draw": counting, "limit_kb": 64}
    if is_fine:
        define(wish, counted, FINISHED, {}, **how)
        return
    with pytest.raises(BadSweep, match=r"^inputs and metadata take 79 KB, and a job may have 64 KB: "):
        define(wish, counted, FINISHED, {}, **how)


# What is drawn.


def test_every_combination_draws_for_itself_and_the_seed_of_it_all_is_recorded() -> None:
    sweep = defined({"3.seed": "1..40", "6.text": ["a {red|blue} fox", "an owl"]})
    texts = values_at(sweep, "6.text")
    assert set(texts) == {"a red fox", "a blue fox", "an owl"}
    assert values_at(sweep, "6.text") == texts, "the same each time that its jobs are made"
    assert sweep.batch.metadata["drawn"]["inputs"] == ["6.text"]
    assert type(sweep.batch.metadata["drawn"]["seed"]) is int


def test_what_is_drawn_for_all_is_not_stored_once_for_all() -> None:
    sweep = defined({"3.cfg": "1..40"}, inputs={"3.seed": "random", "6.text": "a fox"})
    assert len(set(values_at(sweep, "3.seed"))) == 40


def test_a_value_that_cannot_be_drawn_is_refused_before_anything_is_queued() -> None:
    assert "__nowhere__ is no wildcard" in error_of({"6.text": ["a fox", "a __nowhere__"]})
