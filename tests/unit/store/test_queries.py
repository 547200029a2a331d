"""Queries are found by their names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from comfyui_agent import store
from comfyui_agent.store.port import SHARED_QUERIES, load_queries

ROOM = Path(store.__file__).parent
OF_POSTGRES = {"jobs_of_lost_commit"}
"""Only there can an answer be lost."""
DIALECTS = [folder for folder in ROOM.glob("*/queries") if folder.is_dir()]


def test_each_query_ends_where_the_next_begins(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(
        "-- about this file\n\n-- name: one\n-- why\nSELECT 1;\n\n-- name: two\nSELECT\n 2;\n"
    )
    (tmp_path / "b.sql").write_text("-- name: three\nSELECT 'Käse';\n", encoding="utf-8")
    (tmp_path / "c.txt").write_text("-- name: four\nSELECT 4;")
    assert load_queries(tmp_path) == {
        "one": "-- why\nSELECT 1;",
        "two": "SELECT\n 2;",
        "three": "SELECT 'Käse';",
    }


def test_an_empty_folder_has_no_queries(tmp_path: Path) -> None:
    assert load_queries(tmp_path) == {}


@pytest.mark.parametrize("files", [["a.sql"], ["a.sql", "b.sql"]], ids=["in one file", "in two files"])
def test_a_name_given_twice_is_refused(tmp_path: Path, files: list[str]) -> None:
    for number, file in enumerate(files):
        twice = "-- name: one\nSELECT 1;\n" * (3 - len(files))
        (tmp_path / file).write_text(twice + f"-- name: other{number}\nSELECT 2;\n")
    with pytest.raises(ValueError, match=f"{files[-1]}: the query one is there twice"):
        load_queries(tmp_path)


@pytest.mark.parametrize("folder", DIALECTS, ids=lambda folder: folder.parent.name)
def test_every_query_that_is_asked_for_is_there_and_every_one_there_is_asked_for(folder: Path) -> None:
    code = "\n".join(file.read_text(encoding="utf-8") for file in ROOM.rglob("*.py"))
    asked = set(re.findall(r"""session\.(?:rows|one|run|value)\(\s*"(\w+)\"""", code))
    there = set(load_queries(SHARED_QUERIES, folder))
    assert asked - there <= OF_POSTGRES
    assert not OF_POSTGRES - there or folder.parent.name != "postgres"
    assert {name for name in there - asked if f'"{name}"' not in code and not name.startswith("jobs_")} == set()


def test_a_part_stands_in_every_query_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(
        "-- part: small\na < 3\n\n-- name: one\nSELECT 1 WHERE {small};\n-- name: two\nSELECT '{}' WHERE {small};\n"
    )
    assert load_queries(tmp_path) == {"one": "SELECT 1 WHERE a < 3;", "two": "SELECT '{}' WHERE a < 3;"}
