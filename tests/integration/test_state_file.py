"""The state file of a burst: a mirror while it works, the user's word when it begins."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.batches import state_file
from comfyui_agent.batches.state_file import BadState, Entry, read_state, remove_leftovers, state_bytes, write_state
from comfyui_agent.cli import burst as command
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.domain.bursts import ItemStatus
from comfyui_agent.domain.jobs import Template
from comfyui_agent.engine import state_mirror
from comfyui_agent.engine.burst import Burst, BurstPlan
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.store import Store
from support.bursts import BurstFolder, check_all_done, slow_text_picture, text_of, wait_until
from support.shared_servers import Servers
from support.workspaces import everything_in

NOWHERE = "http://127.0.0.1:9"
ITEM = {"status": "pending", "subfolder": "EP01", "filename": "prompt_1.txt"}


def project_in(place: Path, servers: Servers) -> BurstFolder:
    """A folder in front of the simulator."""
    url = servers.url("sim")
    return BurstFolder(place / "project", url, servers.started["sim"].output_dir)


@pytest.fixture
def folder(servers: Servers, tmp_path: Path) -> Iterator[BurstFolder]:
    made = project_in(tmp_path, servers)
    yield made
    made.stop()


def a_done_folder(folder: BurstFolder, count: int = 2) -> list[str]:
    keys = folder.write_many(count)
    assert folder.call().code == 0
    return keys


# The file that people bring.


def test_the_file_of_the_protocol_works_as_it_is_printed(folder: BurstFolder) -> None:
    """All prompts lie in one folder; the file alone says where each result belongs."""
    keys = [folder.write(f"prompt_{n}.txt") for n in (1, 2)]
    printed = {
        keys[0]: {"status": "pending", "subfolder": "EP01", "filename": "prompt_1.txt"},
        keys[1]: {"status": "pending", "subfolder": "EP02/part2", "filename": "prompt_2.txt"},
    }
    folder.state.write_text(json.dumps(printed))
    ended = folder.call("--json")
    assert (ended.code, ended.summary["completed"], ended.summary["total"]) == (0, 2, 2)
    assert folder.results == ["EP01/prompt_1.png", "EP02/part2/prompt_2.png"]
    items = folder.items()
    assert list(items) == keys
    for key in keys:
        assert list(items[key])[:3] == ["status", "subfolder", "filename"]
        assert {**printed[key], "status": "completed"}.items() <= items[key].items()
        assert text_of(folder.root / items[key]["result"]) == folder.texts[key]


def test_what_the_file_says_of_prompts_anywhere_counts(folder: BurstFolder, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.txt"
    elsewhere.write_text("from elsewhere")
    item = {"status": "pending", "subfolder": "", "filename": "named_otherwise.txt", "note": ["mine", 1.5, None]}
    folder.state.write_text("\ufeff" + json.dumps({str(elsewhere): item}))
    assert folder.call().code == 0
    assert text_of(folder.output / "named_otherwise.png") == "from elsewhere"
    assert folder.items()[str(elsewhere)]["note"] == ["mine", 1.5, None]


def test_completed_and_failed_are_believed(folder: BurstFolder) -> None:
    keys = folder.write_many(4)
    said = {
        key: {"status": word, "subfolder": "EP01", "filename": Path(key).name}
        for key, word in zip(keys, ["completed", "failed", "pending"], strict=False)
    }
    folder.state.write_text(json.dumps(said))
    ended = folder.call("--json")
    assert ended.code == 1
    assert (ended.summary["completed"], ended.summary["failed"], ended.summary["total_completed"]) == (2, 0, 3)
    assert list(folder.words().values()) == ["completed", "failed", "completed", "completed"]
    assert folder.results == ["EP01/prompt_3.png", "EP01/prompt_4.png"]
    assert folder.renders() == 2


def test_what_is_completed_or_failed_by_hand_between_bursts_is_believed(folder: BurstFolder) -> None:
    keys = folder.write_many(3)
    assert folder.call("--size", "1").code == 10
    folder.set(keys[0], "failed")
    folder.set(keys[1], "completed")
    ended = folder.call("--json")
    assert (ended.code, ended.summary["completed"], ended.summary["total_completed"]) == (1, 1, 2)
    assert list(folder.words().values()) == ["failed", "completed", "completed"]
    assert folder.renders() == 2
    folder.set(keys[0], "completed")
    assert folder.call().code == 0
    assert folder.renders() == 2


# Once more, please.


def _strip(items: dict[str, dict[str, Any]]) -> None:
    for key, item in items.items():
        items[key] = {name: item[name] for name in ("status", "subfolder", "filename")}


@pytest.mark.parametrize("is_stripped", [False, True], ids=["as it is", "further keys stripped"])
def test_what_is_set_to_pending_by_hand_is_rendered_again(folder: BurstFolder, is_stripped: bool) -> None:
    keys = a_done_folder(folder, 3)
    before = everything_in(folder.output)
    folder.edit(lambda items: _strip(items) if is_stripped else None)
    folder.set(keys[1], "pending")
    ended = folder.call("--json")
    assert (ended.code, ended.summary["completed"], ended.summary["total_completed"]) == (0, 1, 3)
    assert [keys[1] in line for line in ended.lines if line.startswith("e3: ")] == [True]
    assert folder.renders() == 4
    after = everything_in(folder.output)
    assert sorted(after) == sorted(before)
    assert [name for name in after if after[name] != before[name]] == ["EP01/prompt_2.png"]
    assert folder.call().code == 0
    assert folder.renders() == 4


def test_the_last_one_is_rendered_again_when_its_line_is_as_it_was(folder: BurstFolder) -> None:
    """A tool that writes JSON as E3 does, such as jq, or a copy that was kept."""
    (key,) = a_done_folder(folder, 1)
    folder.edit(_strip)
    items = folder.items()
    items[key]["status"] = "pending"
    folder.state.write_text(json.dumps(items, indent=2) + "\n")
    assert folder.call("--json").summary["completed"] == 1
    assert folder.renders() == 2


def test_a_prompt_that_was_changed_is_rendered_again_with_its_new_text(folder: BurstFolder) -> None:
    (key,) = a_done_folder(folder, 1)
    folder.write("EP01/prompt_1.txt", "something else")
    assert folder.call("--json").summary["completed"] == 0
    folder.set(key, "pending")
    assert folder.call("--json").summary["completed"] == 1
    assert text_of(folder.result_of(key)) == "something else"


def test_a_file_that_was_only_written_anew_changes_nothing(folder: BurstFolder) -> None:
    a_done_folder(folder)
    folder.state.write_text(json.dumps(dict(reversed(folder.items().items())), separators=(",", ":")))
    assert folder.call("--json").summary["completed"] == 0
    check_all_done(folder)


# Files that are gone or damaged.


def test_a_file_that_is_gone_is_made_from_the_folder_and_the_memory(folder: BurstFolder) -> None:
    keys = folder.write_many(3)
    assert folder.call("--size", "2").code == 10
    before = folder.items()
    folder.state.unlink()
    Path(keys[0]).unlink()  # its result is there: it needs the prompt no more
    ended = folder.call("--json", "--max-seconds", "0.1", "--server", NOWHERE)
    assert (ended.code, ended.summary["total_completed"], ended.summary["remaining"]) == (10, 2, 1)
    assert folder.items() == before
    assert folder.renders() == 2


def test_a_file_that_is_gone_comes_back_with_what_it_said(folder: BurstFolder) -> None:
    key = folder.write("prompt_1.txt")
    folder.state.write_text(json.dumps({key: ITEM}))
    assert folder.call("--max-seconds", "0.1", "--server", NOWHERE).code == 10
    folder.state.unlink()
    assert folder.call().code == 0
    assert folder.results == ["EP01/prompt_1.png"]
    assert folder.items()[key]["subfolder"] == "EP01"


def test_a_file_cut_in_half_is_kept_aside_and_made_anew(folder: BurstFolder) -> None:
    a_done_folder(folder, 1)
    whole = folder.state.read_bytes()
    damaged = whole[: len(whole) // 2]
    for name in ("re_render_state.json.bak", "re_render_state.json.bak-2"):
        folder.state.write_bytes(damaged)
        ended = folder.call("--json")
        assert (ended.code, ended.summary["completed"], ended.summary["total_completed"]) == (0, 0, 1)
        (line,) = [line for line in ended.lines if line.startswith("e3: ")]
        assert "re_render_state.json" in line
        assert name in line
        assert (folder.root / name).read_bytes() == damaged
        assert folder.state.read_bytes() == whole
    assert folder.renders() == 1


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\0" * 100, id="zeros"),
        pytest.param(b'{"/a/\xff.txt": {"status": "pending"}}', id="not text"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'"pending"', id="a word"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b'{"a": ' + b"1" * 10_000 + b"}", id="a number without end"),
    ],
)
def test_what_is_no_state_is_kept_aside_byte_for_byte(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(data)
    found = read_state(path)
    assert found.entries == {}
    assert found.kept_aside == tmp_path / "state.json.bak"
    assert found.kept_aside.read_bytes() == data
    assert not path.exists()


def _items(**changes: Any) -> dict[str, Any]:
    item = {**ITEM, **changes}
    return {"/p/prompt_1.txt": {key: value for key, value in item.items() if value is not None}}


IMPOSSIBLE: dict[str, tuple[Any, list[str]]] = {
    "word": (_items(status="done"), ["'done'", "pending, completed or failed"]),
    "case": (_items(status="Completed"), ["'Completed'"]),
    "no word": (_items(status=None), ["None"]),
    "list of words": (_items(status=["pending"]), ["pending"]),
    "object for a word": (_items(status={}), ["{}"]),
    "up": (_items(subfolder="../out"), ["'../out'", "leads out"]),
    "in and up": (_items(subfolder="EP01/../../out"), ["leads out"]),
    "above": (_items(subfolder=".."), ["leads out"]),
    "absolute": (_items(subfolder="/tmp/out"), ["leads out"]),
    "backslash": (_items(subfolder="..\\out"), ["leads out"]),
    "zero byte": (_items(subfolder="a\0b"), ["subfolder"]),
    "number": (_items(subfolder=7), ["subfolder"]),
    "name up": (_items(filename="../../out.txt"), ["filename"]),
    "name with a slash": (_items(filename="a/b.txt"), ["filename"]),
    "name above": (_items(filename=".."), ["filename"]),
    "list for a name": (_items(filename=["a"]), ["filename"]),
    "no item": ({"/p/prompt_1.txt": "pending"}, ["prompt_1.txt", "status, subfolder and filename"]),
    "nothing": ({"/p/prompt_1.txt": None}, ["prompt_1.txt"]),
    "no path": ({"": {"status": "pending"}}, ["is no path"]),
    "half a character": ({"/p/\ud800.txt": {"status": "pending"}}, ["is no path"]),
    "path with a zero byte": ({"/p/a\0.txt": {"status": "pending"}}, ["is no path"]),
    "a folder": ({"/p/../": {"status": "pending"}}, ["filename"]),
}


def test_a_file_that_says_what_cannot_be_is_left_as_it_is(servers: Servers, tmp_path: Path) -> None:
    for case, (document, words) in IMPOSSIBLE.items():
        folder = project_in(tmp_path / case, servers)
        folder.write_many(1)
        folder.state.write_text(json.dumps(document))
        before = everything_in(folder.root.parent)
        ended = folder.call("--json")
        assert (ended.code, ended.out, len(ended.lines)) == (1, "", 1), f"{case}: {ended}"
        assert ended.err.startswith("e3: re_render_state.json"), f"{case}: {ended}"
        assert all(word in ended.err for word in words), f"{case}: {ended}"
        after = everything_in(folder.root.parent)
        new = {name for name in after if name not in before and not name.startswith("project/database")}
        assert new <= {"project/.re_render_state.json.lock"}, case
        assert {name: after[name] for name in before} == before, case


def test_a_bad_file_beside_a_working_burst_is_one_line(folder: BurstFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "BUSY_SECONDS", 0.2)
    folder.use(slow_text_picture(1.5))
    folder.write_many(1)
    first = folder.start()
    first.wait_said("Burst of")
    wait_until(folder.state.exists, "the state file")
    folder.state.write_text(json.dumps(_items(status="done")))
    ended = folder.call()
    assert (ended.code, "'done'" in ended.lines[-1]) == (1, True)
    assert first.end().code == 0
    assert folder.renders() == 1


# Texts that are hard to write down.


def _bytes_name(folder: BurstFolder) -> None:
    Path(os.fsdecode(os.fsencode(folder.prompts) + b"/caf\xe9.txt")).write_text("a café")


def _surrogate_in_further_keys(folder: BurstFolder) -> None:
    folder.state.write_text(json.dumps({folder.write("a.txt"): {**ITEM, "note": "\udc80\ud800"}}))


def _long_name(folder: BurstFolder) -> None:
    folder.state.write_text(json.dumps({"/p/" + "x" * 9000: {**ITEM, "filename": "y" * 9000}}))


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(_bytes_name),
        pytest.param(_surrogate_in_further_keys),
        _long_name,
    ],
)
def test_whatever_names_are_like_the_file_stays_valid_and_the_others_go_on(
    folder: BurstFolder, prepare: Callable[[BurstFolder], None]
) -> None:
    prepare(folder)
    key = folder.write("z.txt")
    ended = folder.call()
    assert ended.code in (0, 1)
    assert "Traceback" not in ended.err
    assert folder.items()[key]["status"] == "completed"
    assert folder.call("--json").summary["completed"] == 0
    assert not list(folder.root.glob("*.bak"))


def test_a_state_file_behind_a_link_stays_there(folder: BurstFolder, tmp_path: Path) -> None:
    target = tmp_path / "real.json"
    target.write_text("{}")
    folder.state.symlink_to(target)
    folder.write_many(2)
    assert folder.call("--size", "1").code == 10
    assert folder.state.is_symlink()
    assert folder.call("--size", "1").code == 0
    assert folder.rows("SELECT count(*) AS batches FROM batches") == [{"batches": 1}]
    assert {item["status"] for item in json.loads(target.read_text()).values()} == {"completed"}


def test_one_state_file_is_one_burst_whatever_folder_is_named(folder: BurstFolder) -> None:
    keys = folder.write_many(2)
    assert folder.call("--size", "1").code == 10
    (folder.root / "prompts").rename(folder.root / "texts")
    (folder.root / "prompts").symlink_to(folder.root / "texts")
    arguments = folder.arguments("--size", "1")
    arguments[1] = "texts"
    ended = folder.e3(*arguments)
    assert ended.code == 0
    assert list(folder.items()) == keys
    assert folder.rows("SELECT count(*) AS batches FROM batches") == [{"batches": 1}]


# Written while it works.


def burst_on(folder: BurstFolder, store: Store, seconds: float) -> Burst:
    workspace = load_workspace(folder.root, {"E3_COMFYUI__API_BASE_URL": folder.server}, None)
    plan = BurstPlan(
        prompts=folder.prompts,
        template=Template.of(slow_text_picture(seconds)),
        workflow_id="book",
        place="98:6.text",
        state=folder.state,
        output=folder.output,
        poll_seconds=0.1,
    )
    return Burst(store, workspace, plan)


async def test_the_file_is_written_after_each_item(folder: BurstFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file that was ever written is true, and says one thing more than the one before."""
    folder.write_many(3)
    told: list[int] = []

    def write(path: Path, data: bytes) -> None:
        items = json.loads(data)
        told.append(sum(item["status"] == "completed" for item in items.values()))
        assert len(items) == 3
        assert len(folder.results) >= told[-1]
        write_state(path, data)

    monkeypatch.setattr(state_mirror, "write_state", write)
    store = await asyncio.to_thread(open_store, folder.root / "database" / "comfyui_agent.db", create=True)
    try:
        summary = await burst_on(folder, store, 0.4).run()
    finally:
        await store.close()
    assert summary.total_completed == 3
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0, 3)
    assert {1, 2} & set(told), "only told at the end"


@pytest.mark.slow
async def test_a_burst_that_leaves_while_it_writes_leaves_a_true_file(
    folder: BurstFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow disk: the file of the first result is under way when SIGTERM comes; others have landed meanwhile."""
    folder.write_many(4)
    writing = asyncio.Event()
    loop = asyncio.get_running_loop()
    slow: list[bytes] = []
    is_overtaken = threading.Event()

    def write(path: Path, data: bytes) -> None:
        if b'"completed"' in data and not slow:
            slow.append(data)
            loop.call_soon_threadsafe(writing.set)
            is_overtaken.wait(1.5)
            write_state(path, data)
        else:
            write_state(path, data)
            if slow:
                is_overtaken.set()

    monkeypatch.setattr(state_mirror, "write_state", write)
    store = await asyncio.to_thread(open_store, folder.root / "database" / "comfyui_agent.db", create=True)
    try:
        working = asyncio.create_task(burst_on(folder, store, 0.15).run())
        await asyncio.wait_for(writing.wait(), 20)
        while (await store.run(ops.count_jobs)).done < 4:  # noqa: ASYNC110 - another thread
            await asyncio.sleep(0.01)
        working.cancel()
        await asyncio.wait({working})
    finally:
        await store.close()
    monkeypatch.undo()
    await loop.shutdown_default_executor()  # as at the end of a process
    assert list(folder.words().values()) == ["completed"] * 4
    assert folder.run("--json").summary["completed"] == 0
    assert folder.renders() == 4


# The file itself.


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "state.json"
    entries = {
        "/p/狐.txt": Entry(ItemStatus.COMPLETED, "EP01", "狐.txt", {"note": "ü"}),
        "/q": Entry(ItemStatus.FAILED, "", "q"),
    }
    write_state(path, state_bytes(entries))
    assert read_state(path).entries == entries
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [each.name for each in path.parent.iterdir()] == ["state.json"]


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    write_state(path, b"{}")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state_file.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_state(path, b'{"more": 1}')
    assert path.read_bytes() == b"{}"
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]


def test_only_leftovers_of_this_file_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for name in (".state.json.abc.e3part", ".other.json.abc.e3part", "state.json", ".state.json.keep"):
        (tmp_path / name).write_text("x")
    remove_leftovers(path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        ".other.json.abc.e3part",
        ".state.json.keep",
        "state.json",
    ]


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    path.write_text("{}  ")
    monkeypatch.setattr(state_file, "LARGEST", 3)
    with pytest.raises(BadState, match="too large"):
        read_state(path)
    assert path.exists()
