"""A folder of prompts: what is found in it and in which order, and what is no prompt."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.batches.state_file import LARGEST_PROMPT, BadPrompt, Entry, find_prompts, read_prompt, with_new
from comfyui_agent.domain.bursts import ItemStatus


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")


def names_in(folder: Path) -> list[str]:
    return [os.path.relpath(key, folder) for key, _ in find_prompts(folder)]


def test_prompts_come_as_people_count(tmp_path: Path) -> None:
    write(tmp_path, "EP10/a.txt", "EP2/prompt_10.txt", "EP2/prompt_9.txt", "EP2/prompt_1.txt", "z.txt", "EP2/in/b.txt")
    assert names_in(tmp_path) == [
        "z.txt",
        "EP2/prompt_1.txt",
        "EP2/prompt_9.txt",
        "EP2/prompt_10.txt",
        "EP2/in/b.txt",
        "EP10/a.txt",
    ]


def test_an_item_says_where_its_file_is_and_that_it_waits(tmp_path: Path) -> None:
    write(tmp_path, "EP01/part2/prompt_1.txt", "root.txt")
    assert dict(find_prompts(tmp_path)) == {
        str(tmp_path / "root.txt"): Entry(ItemStatus.PENDING, "", "root.txt"),
        str(tmp_path / "EP01" / "part2" / "prompt_1.txt"): Entry(ItemStatus.PENDING, "EP01/part2", "prompt_1.txt"),
    }


def test_keys_are_absolute_however_the_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "prompts/a.txt")
    monkeypatch.chdir(tmp_path)
    for name in ("prompts", "./prompts/", "prompts/../prompts"):
        assert [key for key, _ in find_prompts(Path(name))] == [str(tmp_path / "prompts" / "a.txt")]


def test_only_text_files_that_are_not_hidden_are_prompts(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "B.TXT", "notes.md", "a.txt.bak", ".hidden.txt", ".git/c.txt", "EP01/.d.txt", "txt")
    (tmp_path / "folder.txt").mkdir()
    assert sorted(names_in(tmp_path)) == ["B.TXT", "a.txt"]


def test_links_to_folders_are_not_followed_round_in_circles(tmp_path: Path) -> None:
    write(tmp_path, "EP01/a.txt")
    (tmp_path / "EP01" / "again").symlink_to(tmp_path)
    assert names_in(tmp_path) == ["EP01/a.txt"]


def test_an_empty_folder_has_no_prompts(tmp_path: Path) -> None:
    assert names_in(tmp_path) == []


NAMES = st.text(st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="/\\."), min_size=1, max_size=20)


@given(st.sets(st.lists(NAMES, min_size=1, max_size=3).map(tuple), max_size=8))
def test_every_prompt_is_found_once(tmp_path_factory: pytest.TempPathFactory, places: set[tuple[str, ...]]) -> None:
    folder = tmp_path_factory.mktemp("prompts")
    wanted = set()
    for place in places:
        path = folder.joinpath(*place[:-1], f"{place[-1]}.txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        wanted.add(str(path))
    found = [key for key, _ in find_prompts(folder)]
    assert set(found) == wanted
    assert len(found) == len(wanted)
    for key, entry in find_prompts(folder):
        assert Path(key) == folder / entry.subfolder / entry.filename


def test_what_a_state_file_says_comes_first_and_is_left_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "b.txt", "c.txt")
    said = {str(tmp_path / "b.txt"): Entry(ItemStatus.FAILED, "EP07", "other.txt", {"mine": 1})}
    found = with_new(said, tmp_path)
    assert list(found) == [str(tmp_path / name) for name in ("b.txt", "a.txt", "c.txt")]
    assert found[str(tmp_path / "b.txt")] == said[str(tmp_path / "b.txt")]


@pytest.mark.parametrize("spelling", ["{folder}/EP01/../a.txt", "{folder}/./a.txt", "{link}/a.txt"])
def test_a_prompt_in_another_spelling_is_the_same(tmp_path: Path, spelling: str) -> None:
    folder, link = tmp_path / "prompts", tmp_path / "link"
    write(folder, "a.txt", "EP01/b.txt")
    link.symlink_to(folder)
    said = {spelling.format(folder=folder, link=link): Entry(ItemStatus.COMPLETED, "", "a.txt")}
    assert [entry.filename for entry in with_new(said, folder).values()] == ["a.txt", "b.txt"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param(b"a fox\n", "a fox", id="newline"),
        pytest.param(b"\xef\xbb\xbfa fox", "a fox", id="byte order mark"),
        pytest.param(b"\r\n a fox\r\nin snow \r\n\r\n", "a fox\r\nin snow", id="Windows"),
        pytest.param("ein Fuchs, düster, 狐 🦊".encode(), "ein Fuchs, düster, 狐 🦊", id="unicode"),
        pytest.param(b"x" * LARGEST_PROMPT, "x" * LARGEST_PROMPT, id="as large as may be"),
    ],
)
def test_the_text_of_a_prompt(tmp_path: Path, data: bytes, text: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    assert read_prompt(str(path)) == text


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"fine\nso far\nd\xfcster\n", ["a.txt:3", "UTF-8"], id="Latin-1"),
        pytest.param("a fox".encode("utf-16"), ["a.txt:1", "UTF-8"], id="UTF-16"),
        pytest.param(b"", ["a.txt", "empty"], id="empty"),
        pytest.param(b" \n\t\r\n", ["a.txt", "empty"], id="white"),
        pytest.param(b"\xef\xbb\xbf", ["a.txt", "empty"], id="only a mark"),
        pytest.param(b"a\0b", ["a.txt", "not a text file"], id="binary"),
        pytest.param(b"x" * (LARGEST_PROMPT + 1), ["a.txt", "too large", "1024 KB"], id="huge"),
    ],
)
def test_a_file_without_a_prompt_is_refused_in_one_line(tmp_path: Path, data: bytes, words: list[str]) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with pytest.raises(BadPrompt) as raised:
        read_prompt(str(path))
    assert all(word in str(raised.value) for word in words)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["gone.txt", "folder", "a\0b.txt", "x" * 5000, "", "loop"])
def test_what_cannot_be_read_is_reported_in_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(BadPrompt) as raised:
        read_prompt(f"{tmp_path}/{name}")
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_pipe_is_no_prompt_and_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "a.txt"
    os.mkfifo(pipe)
    said: list[Exception] = []

    def read() -> None:
        try:
            read_prompt(str(pipe))
        except BadPrompt as error:
            said.append(error)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(1)
    is_stuck = reading.is_alive()
    if is_stuck:
        pipe.open("wb").close()  # let it go
        reading.join(5)
    assert not is_stuck
    assert len(said) == 1
