"""`e3 wildcards ls` says what `__name__` stands for."""

from __future__ import annotations

import json
from pathlib import Path

from support.workspaces import call_e3, new_workspace


def test_wildcards_are_listed_with_what_they_stand_for(tmp_path: Path) -> None:
    new_workspace(tmp_path)
    empty = call_e3("wildcards", "ls", cwd=tmp_path)
    assert empty.stdout.strip() == "No wildcards: put a text file into wildcards/, a line for each choice."
    folder = tmp_path / "wildcards"
    (folder / "deep").mkdir(parents=True)
    (folder / "animals.txt").write_text("# of the forest\nfox\n\nowl\nhare\nlynx\n", encoding="utf-8")
    (folder / "deep" / "none.txt").write_text("", encoding="utf-8")
    lines = call_e3("wildcards", "ls", cwd=tmp_path).stdout.splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [
        ["__animals__", "4 lines: fox, owl, hare"],
        ["__deep/none__", "wildcards/deep/none.txt is empty: write a line for each choice"],
    ]
    (folder / "loop.txt").write_text("__animals__\na __pool__\n", encoding="utf-8")
    (folder / "pool.txt").write_text("__loop__\n", encoding="utf-8")
    said = call_e3("wildcards", "ls", cwd=tmp_path).stdout
    assert "__loop__       the wildcard __loop__ includes itself: loop → pool → loop" in said
    assert "__pool__       the wildcard __pool__ includes itself: pool → loop → pool" in said
    listed = json.loads(call_e3("wildcards", "ls", "--json", cwd=tmp_path).stdout)
    assert {each["name"]: each["lines"] for each in listed} == {"animals": 4, "deep/none": 0, "loop": 0, "pool": 0}
