"""Names of files: which endings results have, and which names lead out of the folders of a server."""

from __future__ import annotations

from itertools import product

import pytest

from comfyui_agent.comfy.content import recognise
from comfyui_agent.domain.kinds import ending_of
from comfyui_agent.domain.node_classes import is_marked, leaves_folder, loads_from_outside, takes_file


def test_an_ending_is_that_of_a_result_or_part_of_the_name() -> None:
    for name, ending in [
        ("a.png", "png"),
        ("a.JPEG", "jpeg"),
        ("a.mp4", "mp4"),
        ("a", ""),
        ("v1.5", ""),
        ("k.v2", ""),
        ("a b.7", ""),
    ]:
        assert ending_of(name) == ending, (name, ending)


def test_an_ending_that_no_result_has_is_refused() -> None:
    for name in ["conftest.py", "run.sh", "a.png.exe", "x.yaml", "a.html", "a.ndjson", "a.db", "a.js"]:
        with pytest.raises(ValueError, match="no result does"):
            ending_of(name)


def test_a_server_does_not_choose_an_ending_that_programs_run() -> None:
    for name in ["conftest.py", "x.sh", "x.pth", "x.html", "x", "x.YAML"]:
        assert recognise(b"import os", name).extension == "bin", name


def test_names_that_lead_out_are_reported_with_and_without_a_mark() -> None:
    names = [
        *("/abs/private.png", "../private.png", "a/../../private.png", "..", "~/x.png", "C:\\x.png", "C:x.png", "\\x"),
        *("a\\..\\..\\x.png", "//host/x.png", " ../x.png", "a/ .. /x", "x\0.png"),
    ]
    for name, mark in product(names, (" [input]", " [output]", " [temp]", "[input]", " [input] ", "")):
        marked, case = name + mark, (name, mark)
        assert leaves_folder(marked), case
        assert is_marked(marked) == bool(mark), case
        assert loads_from_outside("image", marked, is_given=True), case
        assert loads_from_outside("image", marked, is_given=False) == bool(mark), case
        assert loads_from_outside("source", marked, is_given=True) == bool(mark), case


def test_the_letter_that_comfyui_drops_before_the_mark_hides_nothing() -> None:
    assert leaves_folder("a/../..x[input]")


def test_names_in_the_folder_stay() -> None:
    names = ("x.png", "sub/x.png", "ok..png", "a...b/x.png", "ünï.png", ".")
    marked = [name + mark for name, mark in product(names, (" [input]", " [output]", " [temp]", ""))]
    assert [name for name in marked if leaves_folder(name)] == []


def test_names_are_found_however_deep_they_stand() -> None:
    """A server unwraps `__value__`, and Load3D takes an object of names."""
    for value in (
        {"__value__": "/abs/private.png"},
        {"__value__": [{"__value__": "../private.png [output]"}]},
        {"image": "x.png", "mask": "../../private.png"},
        ["x.png", "/abs/private.png [input]"],
    ):
        assert loads_from_outside("image", value, is_given=True), value


def test_prompts_links_and_numbers_are_left_alone() -> None:
    assert not loads_from_outside("text", "/a knight/ [input]", is_given=True)
    assert not loads_from_outside("text_g", "/a knight/ [input]", is_given=True)
    assert not loads_from_outside("image", ["4", 0], is_given=True)
    assert not loads_from_outside("image", {"__value__": ["x.png", 4, None]}, is_given=True)


def test_nodes_that_load_files_are_known_by_their_names() -> None:
    for class_type, name, is_file in [
        *(("LoadImage", "image", True), ("VHS_LoadVideo", "video", True), ("LoadLatent", "latent", True)),
        *(("ImageLoad", "image", False), ("LoadImage", "channel", False), ("CheckpointLoaderSimple", "image", False)),
        ("Load" * 200_000, "image", False),
    ]:
        assert takes_file(class_type, name) is is_file, (class_type, name, is_file)
