"""Everything a prompt left behind is found, wherever a node lists it; nonsense is not."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.comfy.results import ResultFile, Results, nodes_with_results
from support.any_json import ANY_JSON, TEXT


def listed(filename: str, folder_type: str = "output", subfolder: str = "") -> dict[str, str]:
    return {"filename": filename, "subfolder": subfolder, "type": folder_type}


def test_files_of_every_kind_are_found() -> None:
    for key, name in (("images", "a.png"), ("gifs", "a.gif"), ("3d", "a.glb"), ("whatever_comes_next", "a.xyz")):
        results = Results.read({"9": {key: [listed(name, subfolder="sub")]}})
        assert results.files == (ResultFile("9", name, "sub", "output"),)
        assert results.files[0].query == {"filename": name, "subfolder": "sub", "type": "output"}


def test_a_file_that_is_not_in_a_list_is_found() -> None:
    assert len(Results.read({"9": {"video": listed("a.mp4")}}).files) == 1


def test_a_file_without_folder_or_type_is_an_output() -> None:
    assert Results.read({"9": {"images": [{"filename": "a.png"}]}}).files[0].query == listed("a.png")


def test_texts_are_found() -> None:
    results = Results.read({"9": {"text": ["one", "two"]}, "10": {"string": "three"}})
    assert results.texts == ("one", "two", "three")


def test_a_text_with_half_a_character_can_be_written_down() -> None:
    text = Results.read({"9": {"text": ["a\ud800b\0c"]}}).texts[0]
    assert text.encode()
    assert "\0" not in text


NO_FILES: list[Any] = [
    *(None, 7, "a.png", [], {"filename": ""}, {"filename": None}, {"filename": 5}, {"filename": ["a.png"]}),
    *({"filename": "a.png", "subfolder": 3}, {"filename": "a.png", "type": None}),
    *({"filename": "\ud800.png"}, {"filename": "a.png", "subfolder": "\udfff"}),
]


def test_items_that_name_no_file_are_ignored() -> None:
    results = Results.read({"9": {"images": [*NO_FILES, listed("good.png")]}})
    assert [file.filename for file in results.files] == ["good.png"]


def test_a_node_that_lists_nothing_has_no_results() -> None:
    for shown in (None, 1, "text", [], [listed("a.png")], {"animated": [True]}, {"images": None}):
        assert Results.read({"9": shown}).is_empty
        assert nodes_with_results({"9": shown}) == set()


def test_files_come_in_the_order_in_which_people_count_nodes() -> None:
    outputs = {"10": {"images": [listed("c.png")]}, "9": {"images": [listed("b.png"), listed("a.png")]}}
    assert [file.filename for file in Results.read(outputs).files] == ["b.png", "a.png", "c.png"]


def test_a_file_listed_twice_is_one_file_and_a_result_of_both_nodes() -> None:
    outputs = {"9": {"images": [listed("a.png")], "gifs": [listed("a.png")]}, "10": {"images": [listed("a.png")]}}
    assert len(Results.read(outputs).files) == 1
    assert nodes_with_results(outputs) == {"9", "10"}


def test_the_same_name_in_another_folder_is_another_file() -> None:
    outputs = {"9": {"images": [listed("a.png"), listed("a.png", subfolder="x"), listed("a.png", "temp")]}}
    assert len(Results.read(outputs).files) == 3


def test_outputs_count_before_temporary_files() -> None:
    both = Results.read({"9": {"images": [listed("t.png", "temp"), listed("o.png")]}})
    assert [file.filename for file in both.kept] == ["o.png"]
    only_temp = Results.read({"9": {"images": [listed("t.png", "temp")]}})
    assert [file.filename for file in only_temp.kept] == ["t.png"]


@given(st.dictionaries(TEXT, ANY_JSON, max_size=3))
def test_outputs_of_any_shape_can_be_read(outputs: dict[str, Any]) -> None:
    for file in Results.read(outputs).files:
        assert file.filename.encode()
