"""`e3 burst` as people and scripts use it: a folder of prompts becomes pictures, a few at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.cli import burst as command
from comfyui_agent.engine import burst as engine
from support.breakage import proxied
from support.bursts import (
    NODE,
    BurstFolder,
    Ended,
    check_all_done,
    graph_of,
    slow_text_picture,
    text_of,
    text_picture,
    wait_until,
)
from support.servers import simulator
from support.shared_servers import Servers

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def folder(servers: Servers, tmp_path: Path) -> Iterator[BurstFolder]:
    """A folder in front of the simulator."""
    yield from _folder(servers, "sim", tmp_path)


@pytest.fixture
def any_folder(servers: Servers, server_kind: str, tmp_path: Path) -> Iterator[BurstFolder]:
    """A folder in front of the simulator or a real ComfyUI."""
    yield from _folder(servers, server_kind, tmp_path)


def _folder(servers: Servers, kind: str, place: Path) -> Iterator[BurstFolder]:
    url, process = servers.url(kind), servers.started.get(kind)
    made = BurstFolder(place / "project", url, process.output_dir if process else None)
    yield made
    made.stop()


def only_line(ended: Ended) -> str:
    """All that a command said: one line, for people."""
    assert ended.out == ""
    (line,) = ended.lines
    return line


# Burst by burst.


def test_a_folder_is_rendered_burst_by_burst(any_folder: BurstFolder) -> None:
    folder = any_folder
    names = ["cover.txt", "EP01/prompt_2.txt", "EP01/prompt_10.txt", "EP02/part2/prompt_1.txt", "EP10/prompt_1.txt"]
    keys = [folder.write(name) for name in names]

    def summary(completed: int, total: int, next_size: int, next_item: str | None) -> dict[str, Any]:
        facts = {"completed": completed, "failed": 0, "total_completed": total, "total": 5, "remaining": 5 - total}
        return facts | {"next_size": next_size, "next_item": next_item}

    first = folder.call("--size", "2", "--json")
    assert (first.code, first.summary) == (10, summary(2, 2, 2, keys[2]))
    assert list(folder.words()) == names
    assert list(folder.words().values()) == ["completed"] * 2 + ["pending"] * 3
    second = folder.call("--size", "2", "--json")
    assert (second.code, second.summary) == (10, summary(2, 4, 1, keys[4]))
    last = folder.run("--size", "2", "--json")
    assert (last.code, last.summary) == (0, summary(1, 5, 0, None))
    assert folder.items()[keys[3]] == {
        "status": "completed",
        "subfolder": "EP02/part2",
        "filename": "prompt_1.txt",
        "result": "output/EP02/part2/prompt_1.png",
    }
    check_all_done(folder)


def test_people_read_how_it_stands(folder: BurstFolder) -> None:
    keys = folder.write_many(3)
    first = folder.call("--size", "2")
    told, summary = first.out.splitlines()[:-3], first.out.splitlines()[-3:]
    assert len(told) == 2
    assert all(any(key in line and "Done" in line for line in told) for key in keys[:2]), told
    assert summary == ["Completed in this burst: 2 of 2", "Overall: 2/3", f"Next burst: 1 from {keys[2]}"]
    last = folder.call("--size", "2")
    assert last.out.splitlines()[-2:] == ["Overall: 3/3", "Next burst: none, nothing is pending"]


@pytest.mark.timing
def test_a_burst_with_nothing_to_do_asks_no_server(folder: BurstFolder) -> None:
    folder.write_many(2)
    assert folder.call().code == 0
    began = time.monotonic()
    again = folder.call("--server", NOWHERE, "--json")
    assert (again.code, again.summary["completed"], again.summary["total_completed"]) == (0, 0, 2)
    assert time.monotonic() - began < 5
    check_all_done(folder)


def test_a_folder_without_prompts_is_done(folder: BurstFolder) -> None:
    (folder.prompts / "notes.md").write_text("no prompt")
    ended = folder.call("--json")
    assert (ended.code, ended.summary["total"], ended.summary["next_item"]) == (0, 0, None)
    assert folder.items() == {}


def test_names_of_all_kinds_lead_to_results_of_that_name(folder: BurstFolder) -> None:
    names = ["Folge 1/düster & kalt.txt", "狐/🦊.txt", "v1.5/take.2.final.txt", "-rf/--json.txt", "100%/$HOME `x`.txt"]
    for name in names:
        folder.write(name)
    assert folder.call().code == 0
    check_all_done(folder)


def test_results_may_go_anywhere(folder: BurstFolder, tmp_path: Path) -> None:
    key = folder.write("EP01/a.txt")
    place = tmp_path / "far away"
    assert folder.call("--output-dir", str(place), "--state", "kept/in/here.json").code == 0
    assert text_of(place / "EP01" / "a.png") == folder.texts[key]
    said = json.loads((folder.root / "kept" / "in" / "here.json").read_text())
    assert said[key]["result"] == str(place / "EP01" / "a.png")
    assert not folder.output.exists()
    assert not folder.state.exists()


def test_a_file_of_someone_else_in_the_way_is_kept(folder: BurstFolder) -> None:
    key = folder.write("EP01/a.txt")
    (folder.output / "EP01").mkdir(parents=True)
    (folder.output / "EP01" / "a.png").write_bytes(b"mine")
    assert folder.call().code == 0
    assert text_of(folder.output / "EP01" / "a.png") == folder.texts[key]
    assert (folder.output / "EP01" / "a.kept-1.png").read_bytes() == b"mine"


def test_two_prompts_of_one_name_do_not_overwrite_each_other(folder: BurstFolder) -> None:
    keys = [folder.write("EP01/a.txt", "the first"), folder.write("EP01/a.TXT", "the second")]
    ended = folder.call("--json")
    assert (ended.code, ended.summary["completed"], ended.summary["failed"]) == (1, 1, 1)
    items = folder.items()
    (done,) = [key for key in keys if items[key]["status"] == "completed"]
    (failed,) = [key for key in keys if items[key]["status"] == "failed"]
    assert text_of(folder.output / "EP01" / "a.png") == folder.texts[done]
    assert done in items[failed]["error"]
    assert folder.results == ["EP01/a.png"]


def test_a_second_folder_is_refused_before_it_replaces_results_of_the_first(folder: BurstFolder) -> None:
    folder.write("EP01/a.txt", "the first")
    assert folder.call().code == 0
    before = folder.items()
    other = folder.root / "more"
    (other / "EP01").mkdir(parents=True)
    (other / "EP01" / "a.txt").write_text("the second", encoding="utf-8")
    flags = folder.arguments()
    flags[1] = "more"
    for more in ([], ["--state", "more.json"]):
        ended = folder.e3(*flags, *more)
        assert (ended.code, folder.items()) == (1, before)
        assert "a.png is a result already, of another prompt or job: name another --output-dir" in ended.err
    assert folder.e3(*flags, "--output-dir", "elsewhere").code == 0
    assert text_of(folder.root / "elsewhere" / "EP01" / "a.png") == "the second"


# Where the text goes.


@pytest.mark.parametrize("node", ["98:6", "98:6.text"])
def test_the_node_may_be_named_with_its_input_or_without(folder: BurstFolder, node: str) -> None:
    folder.write_many(1)
    assert folder.call(node=node).code == 0
    check_all_done(folder)


def test_another_input_is_named(folder: BurstFolder) -> None:
    folder.use(text_picture() | {"7:1": {"class_type": "PrimitiveString", "inputs": {"value": "nothing yet"}}})
    key = folder.write("a.txt")
    assert folder.call(node="7:1.value").code == 0
    (row,) = folder.rows("SELECT inputs FROM jobs")
    assert json.loads(row["inputs"]) == {"7:1.value": folder.texts[key]}
    assert text_of(folder.result_of(key)) == "nothing yet"


def _no_workflow(folder: BurstFolder) -> None:
    (folder.root / "book.json").unlink()


def _editor_workflow(folder: BurstFolder) -> None:
    folder.use({"nodes": [], "links": []})


def _no_prompts(folder: BurstFolder) -> None:
    folder.prompts.rmdir()


def _prompts_are_a_file(folder: BurstFolder) -> None:
    folder.prompts.rmdir()
    folder.prompts.write_text("x")


def _output_is_a_file(folder: BurstFolder) -> None:
    folder.output.write_text("x")


def _state_is_a_folder(folder: BurstFolder) -> None:
    folder.state.mkdir()


@pytest.mark.parametrize(
    ("node", "prepare", "words"),
    [
        pytest.param("98:6.txet", None, ["98:6", "txet", "did you mean text"], id="input"),
        pytest.param("1", None, ["1.text", "batch_size", "color"], id="no text there"),
        pytest.param("98:6.", None, ["98:6."], id="no name"),
        pytest.param(NODE, _no_workflow, ["book.json", "there is no file"], id="no workflow"),
        pytest.param(NODE, _editor_workflow, ["book.json", "is refused: no node"], id="editor format"),
        pytest.param(NODE, _no_prompts, ["there is no folder prompts"], id="no folder"),
        pytest.param(NODE, _prompts_are_a_file, ["there is no folder prompts"], id="prompts a file"),
        pytest.param(NODE, _output_is_a_file, ["output is a file"], id="output a file"),
        pytest.param(NODE, _state_is_a_folder, ["re_render_state.json is a folder"], id="state a folder"),
        pytest.param("98:7", None, ["98:7", "98:6"], id="node"),
        pytest.param("", None, [""], id="nothing"),
    ],
)
def test_what_is_not_there_is_said_in_one_line_before_anything_is_done(
    folder: BurstFolder, node: str, prepare: Callable[[BurstFolder], None] | None, words: list[str]
) -> None:
    if prepare:
        prepare(folder)
    before = sorted(folder.root.rglob("*"))
    ended = folder.call(node=node)
    assert ended.code == 1
    line = only_line(ended)
    assert line.startswith("e3: ")
    assert all(word in line for word in words), line
    assert sorted(folder.root.rglob("*")) == before


@pytest.mark.parametrize(
    "flags", [["--size", "0"], ["--poll", "0"], ["--max-seconds", "-1"], ["--server", "not a server"]]
)
def test_nonsense_is_a_matter_of_usage(folder: BurstFolder, flags: list[str]) -> None:
    ended = folder.call(*flags)
    assert ended.code == 2
    assert flags[0] in only_line(ended)
    assert not folder.state.exists()


# Prompts that cannot be rendered.


def test_bad_prompt_files_fail_and_the_others_go_on(folder: BurstFolder) -> None:
    good = [folder.write("a.txt"), folder.write("z.txt")]
    bad = {
        folder.write("b_latin.txt", "fine\nd\xfcster".encode("latin-1")): ["b_latin.txt:2", "UTF-8"],
        folder.write("c_empty.txt", b"\n"): ["c_empty.txt", "empty"],
        folder.write("d_huge.txt", b"x" * 1_048_577): ["d_huge.txt", "too large"],
        folder.write("d_long.txt", b"x" * 70_000): ["d_long.txt", "a job may have 64 KB"],
        folder.write("e_binary.txt", b"a\0b"): ["e_binary.txt", "not a text file"],
        str(folder.prompts / "f_missing.txt"): ["f_missing.txt", "not there any more"],
    }
    item = {"status": "pending", "subfolder": "", "filename": "f_missing.txt"}
    folder.state.write_text(json.dumps({str(folder.prompts / "f_missing.txt"): item}))
    ended = folder.call("--json")
    assert ended.code == 1
    assert (ended.summary["completed"], ended.summary["failed"], ended.summary["remaining"]) == (2, 6, 0)
    items = folder.items()
    assert [items[key]["status"] for key in good] == ["completed"] * 2
    for key, words in bad.items():
        assert items[key]["status"] == "failed"
        assert all(word in items[key]["error"] for word in words), items[key]
        assert "\n" not in items[key]["error"]
    assert folder.results == ["a.png", "z.png"]
    assert folder.call().code == 1  # and stays so

    mended = folder.write("b_latin.txt", "düster")
    folder.set(mended, "pending")
    ended = folder.call("--json")
    assert (ended.code, ended.summary["completed"], ended.summary["failed"]) == (1, 1, 0)
    assert text_of(folder.result_of(mended)) == "düster"


def test_a_bad_prompt_file_is_reported_in_a_line(folder: BurstFolder) -> None:
    key = folder.write("a.txt", b"\xff")
    assert any(key in line and "UTF-8" in line for line in folder.call("--json").lines)


def test_a_prompt_that_the_server_rejects_fails_for_that_reason(folder: BurstFolder) -> None:
    folder.use(text_picture() | {"2": {"class_type": "SaveImage", "inputs": {"filename_prefix": "x"}}})
    key = folder.write("a.txt")
    ended = folder.call("--json")
    assert (ended.code, ended.summary["failed"], ended.summary["remaining"]) == (1, 1, 0)
    assert folder.items()[key]["status"] == "failed"
    assert "images" in folder.items()[key]["error"]
    assert folder.rows("SELECT failure_class, run_count FROM jobs") == [{"failure_class": "invalid", "run_count": 2}]


def test_a_prompt_that_fails_is_tried_again_within_limits(folder: BurstFolder, tmp_path: Path) -> None:
    failing = simulator(tmp_path / "failing", "--failure-rate", "1").start()
    try:
        keys = folder.write_many(2)
        ends = [folder.call("--server", failing.url, "--json", E3_RETRY_LIMIT="1")]
        while ends[-1].code == 10:
            ends.append(folder.call("--server", failing.url, "--json", E3_RETRY_LIMIT="1"))
    finally:
        failing.kill()
    assert ends[-1].code == 1
    assert sum(ended.summary["failed"] for ended in ends) == 2
    assert (
        folder.rows("SELECT run_count, retries_attempted FROM jobs") == [{"run_count": 2, "retries_attempted": 1}] * 2
    )
    assert sum("Again" in line for ended in ends for line in ended.lines) == 2
    *named, remedy = ends[-1].lines[-3:]
    for key, line in zip(keys, named, strict=True):
        assert line.startswith(f"Failed: {key}: ")
    assert remedy == f"Mend the cause, then: e3 batch retry {folder.batch_id}, then run the burst again"
    for key in keys:
        folder.set(key, "pending")
    assert folder.call().code == 0
    assert list(folder.words().values()) == ["completed"] * 2
    assert folder.renders() == 2


def test_an_item_that_waits_for_its_retry_is_left_for_the_next_burst(folder: BurstFolder, tmp_path: Path) -> None:
    """The process does not stay for it, and other items come first in the next burst."""
    keys = folder.write_many(3)
    failing = simulator(tmp_path / "failing", "--failure-rate", "1").start()
    try:
        ended = folder.call("--server", failing.url, "--size", "1", "--json", E3_RETRY_BACKOFF_SECONDS="600")
    finally:
        failing.kill()
    assert (ended.code, ended.summary["failed"], ended.summary["remaining"]) == (10, 0, 3)
    assert (ended.summary["next_size"], ended.summary["next_item"]) == (1, keys[1])
    assert folder.call("--size", "2").code == 10
    assert list(folder.words().values()) == ["pending", "completed", "completed"]
    assert folder.call("--size", "2").code == 0
    assert folder.renders() == 3


def test_what_its_user_gave_up_needs_no_attention(folder: BurstFolder) -> None:
    keys = folder.write_many(2)
    assert folder.call("--size", "1").code == 10
    folder.set(keys[1], "failed")
    ended = folder.call()
    assert ended.code == 1
    assert ended.out.splitlines() == [
        "Completed in this burst: none",
        "Overall: 1/2",
        "Next burst: none, nothing is pending",
    ]


def test_a_burst_asks_no_more_often_than_its_polls(folder: BurstFolder, servers: Servers) -> None:
    folder.use(slow_text_picture(1.0))
    folder.write_many(3)
    with proxied(servers.started["sim"]) as proxy:
        folder.server = proxy.it.url
        ended = folder.call("--poll", "0.8")
        asked = proxy.do(lambda it: list(it.requests))
    assert ended.code == 0
    assert "given up" not in ended.err, "what has ended since the last poll is still in what it saw"
    # One look at the start; then every 0.8 s the poll, which is the probe, too; and one more at each end of it.
    assert sum(request == "GET /queue" for request in asked) <= 8, asked
    assert sum(request.startswith("POST ") for request in asked) == 3
    looks = [request for request in asked if request.startswith("GET /history/")]
    assert len(looks) == 3, "one look at each prompt's end"


# Time and company.


@pytest.mark.timing
def test_a_burst_out_of_time_ends_cleanly_and_the_next_takes_its_prompts_over(folder: BurstFolder) -> None:
    folder.use(slow_text_picture(1.0))
    keys = folder.write_many(2)
    began = time.monotonic()
    ended = folder.call("--max-seconds", "0.5", "--size", "1", "--json")
    assert time.monotonic() - began < 5
    assert ended.code == 10
    assert (ended.summary["completed"], ended.summary["next_size"], ended.summary["next_item"]) == (0, 1, keys[0])
    assert folder.rows("SELECT status, run_count FROM jobs WHERE run_count > 0") == [
        {"status": "pending", "run_count": 1}
    ]
    ended = folder.call("--size", "1", "--json")
    assert (ended.code, ended.summary["completed"], ended.summary["next_item"]) == (10, 1, keys[1])
    assert folder.renders() == 1


def test_what_is_cancelled_while_it_renders_is_not_said_to_have_failed(folder: BurstFolder) -> None:
    folder.use(slow_text_picture(30))
    folder.write_many(2)
    running = folder.start()
    running.wait_said("Burst of 2")
    wait_until(lambda: folder.rows("SELECT 1 FROM jobs WHERE status = 'processing'"), "a prompt at work")
    assert folder.e3("batch", "cancel", folder.batch_id).code == 0
    assert running.end().out.splitlines()[0] == "Completed in this burst: 0 of 2, 2 cancelled"


def test_bursts_shorter_than_their_poll_come_to_an_end(folder: BurstFolder) -> None:
    """What a burst left at the server is found by the next one at once, however slow its polling is."""
    folder.use(slow_text_picture(2.0))
    folder.write_many(1)
    first = folder.call("--max-seconds", "1.5", "--poll", "10")
    assert (first.code, "Burst of 1 of 1 prompt, at most" in first.err) == (10, True)
    wait_until(lambda: folder.renders() == 1, "the picture at the server")
    assert folder.call("--max-seconds", "3", "--poll", "10").code == 0
    check_all_done(folder)


def test_a_second_burst_leaves_with_a_line(folder: BurstFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "BUSY_SECONDS", 0.3)
    folder.use(slow_text_picture(1.0))
    keys = folder.write_many(3)
    first = folder.start("--size", "1", "--json")
    first.wait_said("Burst of 1 of 3")
    second = folder.call("--size", "1", "--json")
    assert second.code == 10
    assert (second.summary["completed"], second.summary["total"]) == (0, 3)
    assert ["another burst works on re_render_state.json" in line for line in second.lines] == [True]
    ended = first.end()
    assert (ended.code, ended.summary["completed"], ended.summary["next_item"]) == (10, 1, keys[1])
    assert folder.renders() == 1


def test_a_server_that_is_away_from_the_start_ends_the_burst_soon(
    folder: BurstFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "FIRST_ANSWER_SECONDS", 0.5)
    folder.write_many(2)
    ended = folder.call("--server", NOWHERE, "--json")
    assert ended.code == 1
    assert (ended.summary["remaining"], ended.summary["failed"], ended.summary["next_size"]) == (2, 0, 2)
    (line,) = [line for line in ended.lines if line.startswith("e3: ")]
    assert NOWHERE in line
    assert "does not answer" in line
    assert folder.call().code == 0
    check_all_done(folder)


def test_bursts_and_agents_leave_each_others_jobs_alone(folder: BurstFolder) -> None:
    folder.write("a.txt")
    for place in ("workflows", "jobs/processing/image"):
        (folder.root / place).mkdir(parents=True)
    (folder.root / "workflows" / "picture.json").write_text(json.dumps(text_picture()))
    job = folder.root / "jobs" / "processing" / "image" / "mine.yaml"
    job.write_text("job_type: T2I\nworkflow_id: picture\ninputs: {'98:6.text': mine}\n")
    assert folder.e3("monitor", "--until-idle").code == 0

    def states() -> dict[str, str]:
        return {Path(row["config_name"]).name: row["status"] for row in folder.rows("SELECT * FROM jobs")}

    assert folder.call().code == 0
    assert states() == {"mine.yaml": "pending", "a.txt": "done"}
    folder.write("b.txt")
    assert folder.call("--max-seconds", "0.1", "--server", NOWHERE).code == 10
    assert folder.e3("execute", "--until-idle", "--server", folder.server).code == 0
    assert states() == {"mine.yaml": "done", "a.txt": "done", "b.txt": "pending"}
    assert folder.call().code == 0
    assert set(states().values()) == {"done"}


# A burst is a batch.


def test_a_burst_is_a_batch_like_any_other(folder: BurstFolder) -> None:
    folder.write_many(3)
    assert folder.call("--size", "2").code == 10
    (listed,) = json.loads(folder.e3("batch", "ls", "--json").out)
    counts = {key: listed[key] for key in ("total", "pending", "processing", "done", "failed")}
    assert counts == {"total": 3, "pending": 1, "processing": 0, "done": 2, "failed": 0}
    assert (listed["kind"], listed["status"], listed["completed_at"]) == ("burst", "collecting", None)
    assert folder.call().code == 0
    shown = json.loads(folder.e3("batch", "show", listed["id"], "--json").out)
    assert (shown["status"], shown["done"], shown["total"]) == ("complete", 3, 3)
    assert [Path(job["config_name"]).name for job in shown["jobs"]] == ["prompt_1.txt", "prompt_2.txt", "prompt_3.txt"]


def test_the_batch_completes_once(folder: BurstFolder) -> None:
    folder.write_many(2)
    assert folder.call("--size", "1").code == 10
    assert folder.rows("SELECT count(*) AS told FROM events WHERE event = 'batch.completed'") == [{"told": 0}]
    assert folder.call("--size", "1").code == 0
    assert folder.rows("SELECT count(*) AS told FROM events WHERE event = 'batch.completed'") == [{"told": 1}]
    assert folder.rows("SELECT generation FROM batches") == [{"generation": 1}]


# What is drawn.


def seeds_in(folder: Path) -> list[int]:
    """The seeds of all pictures, as their server wrote them into the files."""
    return [graph_of(path)["7"]["inputs"]["seed"] for path in folder.rglob("*.png")]


def test_every_picture_has_a_seed_of_its_own_or_a_given_one(folder: BurstFolder) -> None:
    folder.use(slow_text_picture(0))
    folder.write_many(3)
    assert folder.call("--seed", "random").code == 0
    assert len(set(seeds_in(folder.output))) == 3
    assert folder.call("--seed", "7", "--state", "again.json", "--output-dir", "again").code == 0
    assert seeds_in(folder.root / "again") == [7, 7, 7]


def test_what_a_prompt_leaves_open_is_drawn(folder: BurstFolder) -> None:
    (folder.root / "wildcards").mkdir()
    (folder.root / "wildcards" / "animals.txt").write_text("owl", encoding="utf-8")
    folder.write("a.txt", "an {old|old} __animals__")
    folder.write("b.txt", "a __dragon__")
    ended = folder.call()
    assert ended.code == 1
    assert text_of(folder.output / "a.png") == "an old owl"
    assert "__dragon__ is no wildcard" in "\n".join(ended.lines)


@pytest.mark.parametrize(("seed", "said"), [("often", "neither random nor a whole number"), ("7", "has no seed")])
def test_a_seed_that_cannot_be_is_refused(folder: BurstFolder, seed: str, said: str) -> None:
    folder.write("a.txt")
    ended = folder.call("--seed", seed)
    assert (ended.code, said in only_line(ended)) == (2, True)
