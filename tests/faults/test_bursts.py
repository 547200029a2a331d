"""Bursts that are killed at any moment: nothing is lost, nothing is rendered twice, and the state file never lies."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from comfyui_agent.engine import burst as engine
from support.agents import server_queue
from support.breakage import proxied, small_disk
from support.bursts import (
    BurstFolder,
    Ended,
    Running,
    check_all_done,
    is_there,
    text_of,
    text_picture,
    wait_until,
    watched,
)
from support.children import children_of
from support.servers import REAL_DIR, ServerProcess, real_comfyui, simulator

SEED = 20261115
LEAVING_SECONDS = 4.0
"""Two seconds are promised, on a machine that does nothing else."""

Make = Callable[..., BurstFolder]


@pytest.fixture
def make_folder(tmp_path: Path) -> Iterator[Callable[..., BurstFolder]]:
    """Makes folders, each in front of a simulator of its own with these flags."""
    with contextlib.ExitStack() as leaving:

        def make(*flags: str) -> BurstFolder:
            server = simulator(tmp_path / "server", *flags).start()
            leaving.callback(server.kill)
            return _folder(server, leaving, tmp_path)

        yield make


def _folder(server: ServerProcess, leaving: contextlib.ExitStack, place: Path) -> BurstFolder:
    folder = BurstFolder(place / "project", server.url, server.output_dir, host=server)
    leaving.callback(folder.stop)
    return folder


def server_of(folder: BurstFolder) -> ServerProcess:
    assert folder.host is not None
    return folder.host


def wait_at_work(folder: BurstFolder, count: int = 1) -> tuple[str, ...]:
    """Until so many prompts are at the server; their ids."""
    wait_until(lambda: len(server_queue(folder.server).all) >= count, "prompts at the server")
    return server_queue(folder.server).all


# The killing ground.


@pytest.mark.timing
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("prompts", "kills"),
    [
        pytest.param(30, 2, id="short"),
        pytest.param(261, 30, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
def test_bursts_killed_again_and_again_render_every_prompt_once(make_folder: Make, prompts: int, kills: int) -> None:
    chance = random.Random(SEED)
    folder = make_folder("--render-seconds", "0.03")
    folder.write_many(prompts)
    killers = chance.sample([signal.SIGTERM, signal.SIGKILL] * kills, 2 * kills)
    sizes: list[int] = []
    struck = 0
    with watched(folder):
        for number in killers:
            running = folder.start("--json")
            if chance.random() < 0.5:
                running.wait_said("Burst of")  # half of them while they work, half of them at any moment
            time.sleep(chance.uniform(0, 0.8))
            ended, seconds = running.send(number)
            assert "Traceback" not in ended.err
            if ended.out:
                sizes += sizes_said(ended)
                assert ended.summary["total"] == prompts
            assert_left(ended.code, number, seconds)
            struck += ended.code not in (0, 10)
            if chance.random() < 0.2 and folder.state.exists():
                sizes += _clean(folder, prompts)
        while True:
            ended = folder.run("--json")
            assert ended.code in (0, 10)
            if ended.code == 0:
                break
            sizes += sizes_said(ended)
    assert struck > kills, "most of them had ended before they were killed"
    assert {5, *([1, 15] if kills > 2 else [])} <= set(sizes) <= {15, 5, 1, 0}
    check_all_done(folder)
    assert folder.rows("SELECT count(*) AS lost FROM jobs WHERE retries_attempted <> 0 OR strikes <> 0") == [
        {"lost": 0}
    ]


def assert_left(code: int, number: int, seconds: float) -> None:
    """As promised; one that had not yet begun dies of the signal, and one that was done had ended before."""
    if number == signal.SIGKILL:
        assert code in (-signal.SIGKILL, 0, 10)
    else:
        assert code in (143, -signal.SIGTERM, 0, 10)
        assert seconds < LEAVING_SECONDS, f"it took {seconds:.2f} s"


def sizes_said(ended: Ended) -> list[int]:
    """The size of the next burst, unless too little is left to tell."""
    return [int(ended.summary["next_size"])] if ended.summary["remaining"] >= 15 else []


def _clean(folder: BurstFolder, prompts: int) -> list[int]:
    """A burst that nobody kills; the size of the next one."""
    ended = folder.run("--json")
    assert ended.code in (0, 10)
    left = sum(word == "pending" for word in folder.words().values())
    assert (ended.summary["remaining"], ended.summary["total"]) == (left, prompts)
    return sizes_said(ended)


@pytest.mark.timing
@pytest.mark.slow
def test_a_burst_that_is_killed_makes_the_next_one_smaller(make_folder: Make) -> None:
    """15, 5, 1, and back: SIGTERM and kill -9 alike; what they left at the server is taken over."""
    folder = make_folder("--render-seconds", "0.15")
    folder.write_many(25)
    first = folder.start("--json")
    at_server = wait_at_work(folder, 2)
    ended, seconds = first.send(signal.SIGTERM)
    assert (ended.code, ended.summary["next_size"]) == (143, 5)
    assert seconds < LEAVING_SECONDS
    assert set(server_queue(folder.server).all) <= set(at_server)
    assert json.loads(folder.state.read_text())
    second = folder.start("--json")
    second.wait_said("at most 5 at a time")
    wait_at_work(folder)
    second.kill()
    ends = [folder.run("--json") for _ in range(3)]
    assert ["at most 1 at a time" in ends[0].err, "at most 5 at a time" in ends[1].err] == [True, True]
    left = [end.summary["remaining"] for end in ends]
    assert [end.summary["next_size"] for end in ends] == [5, min(15, left[1]), min(15, left[2])]
    assert [end.code for end in ends] == [10] * 3
    assert ends[1].summary["completed"] == 5
    assert ends[2].summary["completed"] == 15
    # One that was killed before it could send its prompt has left an attempt that rendered nothing.
    ((ends_of,),) = [folder.rows("SELECT count(DISTINCT job_id) AS jobs, sum(outcome = 'done') AS done FROM attempts")]
    assert ends_of["jobs"] == ends_of["done"] == folder.renders()


MOMENTS = ["began", "picked", "claimed", "named", "done", "noted", "writing", "written", "ending"]


@pytest.mark.parametrize(
    "moment", [name if name == "noted" else pytest.param(name, marks=pytest.mark.slow) for name in MOMENTS]
)
def test_what_a_kill_leaves_behind_is_repaired_and_not_rendered_again(make_folder: Make, moment: str) -> None:
    folder = make_folder()
    folder.write_many(2)
    folder.die(moment)
    ended = folder.call("--json")
    assert (ended.code, ended.summary["total_completed"]) == (0, 2)
    check_all_done(folder)
    assert "rendered again" not in ended.err


@pytest.mark.slow
def test_a_kill_after_the_last_item_makes_the_next_burst_smaller(make_folder: Make) -> None:
    """Until the summary is out, a burst has not ended by itself."""
    folder = make_folder()
    folder.write_many(22)
    folder.die("ending")
    ended = folder.call("--json")
    assert "at most 5 at a time" in ended.err
    assert (ended.code, ended.summary["completed"], ended.summary["total_completed"]) == (10, 5, 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment",
    [
        "done",
        pytest.param("noted"),
    ],
)
def test_what_a_kill_left_behind_is_repaired_although_a_hand_changed_something_else(
    make_folder: Make, moment: str
) -> None:
    folder = make_folder()
    keys = folder.write_many(3)
    assert folder.call("--size", "1").code == 10
    folder.die(moment)
    folder.set(keys[0], "failed")
    assert folder.call().code == 1
    assert list(folder.words().values()) == ["failed", "completed", "completed"]
    assert folder.renders() == 3


def test_an_older_file_that_is_put_back_is_the_word_of_its_user(make_folder: Make) -> None:
    """No crash leaves it behind: what was written last is confirmed once it is on disk."""
    folder = make_folder()
    keys = folder.write_many(2)
    assert folder.call("--size", "1").code == 10
    older = folder.state.read_bytes()
    assert folder.call("--size", "1").code == 0
    folder.state.write_bytes(older)
    ended = folder.call("--json")
    assert (ended.code, ended.summary["completed"], ended.summary["total_completed"]) == (0, 1, 2)
    assert [folder.items()[key]["status"] for key in keys] == ["completed"] * 2
    assert folder.renders() == 3


@pytest.mark.slow
def test_killed_bursts_poll_more_slowly(make_folder: Make) -> None:
    folder = make_folder("--render-seconds", "2")
    asked: list[int] = []
    with proxied(server_of(folder)) as proxy:
        folder.server = proxy.it.url
        for level in range(3):
            for _ in range(level):
                folder.die("began")
            folder.write(f"level_{level}.txt")
            before = proxy.do(lambda it: len(it.requests))
            assert folder.call("--poll", "0.1").code == 0
            seen = proxy.do(lambda it: list(it.requests))[before:]
            asked.append(sum(request == "GET /queue" for request in seen))
    assert asked[0] > 1.4 * asked[1] > 1.4 * 1.4 * asked[2], asked


# Signals.


@pytest.mark.timing
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.slow
def test_a_burst_that_is_told_to_leave_saves_everything_in_time(make_folder: Make, number: int, code: int) -> None:
    folder = make_folder("--render-seconds", "1")
    folder.write_many(4)
    running = folder.start("--json")
    wait_until(lambda: folder.renders() == 1, "the first picture")
    wait_until(lambda: "completed" in folder.words().values(), "word of it")
    at_server = wait_at_work(folder)
    ended, seconds = running.send(number)
    assert seconds < LEAVING_SECONDS
    assert ended.code == code
    assert ended.summary["completed"] == list(folder.words().values()).count("completed") >= 1
    assert ended.summary["next_size"] == ended.summary["remaining"] <= 3
    assert set(at_server) & set(server_queue(folder.server).all)
    assert list((folder.root / "database" / "agents").glob("*.lock")) == []
    assert folder.run().code == 0
    check_all_done(folder)


@pytest.mark.timing
def test_burst_after_burst_ends_with_its_parent(make_folder: Make) -> None:
    folder = make_folder("--render-seconds", "8")
    folder.write_many(3)
    parent = folder.start("--until-done", "--size", "2", "--json")
    at_server = wait_at_work(folder, 2)
    (child,) = children_of(parent.process.pid)
    ended, seconds = parent.send(signal.SIGTERM)
    assert ended.code == 143
    assert ended.summary["remaining"] == 3
    assert seconds < LEAVING_SECONDS
    wait_until(lambda: not is_there(child), "the end of the child", LEAVING_SECONDS)
    assert list((folder.root / "database" / "agents").glob("*.lock")) == [], "the child was not asked to leave"
    assert server_queue(folder.server).all == at_server
    assert folder.rows("SELECT count(*) AS waiting FROM jobs WHERE status = 'pending'") == [{"waiting": 3}]


@pytest.mark.slow
def test_burst_after_burst_until_nothing_is_left(make_folder: Make) -> None:
    folder = make_folder("--render-seconds", "0.05")
    folder.write_many(5)
    ended = folder.run("--until-done", "--size", "2", "--json")
    assert ended.code == 0
    assert (ended.summary["completed"], ended.summary["total_completed"], ended.summary["remaining"]) == (5, 5, 0)
    told = [line for line in ended.lines if line.startswith("Burst: ")]
    assert [line.partition("Overall ")[2].partition(";")[0] for line in told] == ["2/5", "4/5", "5/5"]
    check_all_done(folder)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_that_is_killed_is_followed_by_a_smaller_one(make_folder: Make, number: int) -> None:
    folder = make_folder("--render-seconds", "0.3")
    folder.write_many(25)
    parent = folder.start("--until-done", "--json")
    wait_at_work(folder)
    (child,) = children_of(parent.process.pid)
    os.kill(child, number)
    parent.wait_said("the burst was killed")
    parent.wait_said("at most 5 at a time")
    ended = parent.end(120)
    assert (ended.code, ended.summary["total_completed"]) == (0, 25)
    assert "at most 15 at a time" in ended.err.rpartition("at most 5 at a time")[2]
    check_all_done(folder)


@pytest.mark.slow
def test_burst_after_burst_ends_with_1_if_some_failed(make_folder: Make) -> None:
    folder = make_folder()
    folder.write_many(3)
    folder.write("EP09/bad.txt", b"\xff")
    ended = folder.run("--until-done", "--size", "2", "--json")
    assert (ended.code, ended.summary["completed"], ended.summary["failed"]) == (1, 3, 1)


# Company.


@pytest.mark.slow
def test_two_started_at_once_render_nothing_twice(make_folder: Make) -> None:
    folder = make_folder("--render-seconds", "0.05")
    folder.write_many(20)
    with watched(folder):
        while "pending" in (folder.words().values() if folder.state.exists() else ["pending"]):
            pair = [folder.start("--json", "--size", "5") for _ in range(2)]
            assert {each.end().code for each in pair} <= {0, 10}
    check_all_done(folder)


@pytest.mark.timing
@pytest.mark.slow
def test_a_second_burst_leaves_within_seconds(make_folder: Make) -> None:
    folder = make_folder("--render-seconds", "9")
    folder.write_many(1)
    first = folder.start("--json")
    wait_at_work(folder)
    began = time.monotonic()
    second = folder.run("--json")
    assert time.monotonic() - began < 12
    assert (second.code, second.summary["completed"], second.summary["remaining"]) == (10, 0, 1)
    assert sum("another burst works on" in line for line in second.lines) == 1
    assert first.end().code == 0
    check_all_done(folder)


def a_job_of_an_agent(folder: BurstFolder) -> None:
    """A job file, for which an agent needs a workflow."""
    for place in ("workflows", "jobs/processing/image"):
        (folder.root / place).mkdir(parents=True)
    (folder.root / "workflows" / "picture.json").write_text(json.dumps(text_picture()))
    job = folder.root / "jobs" / "processing" / "image" / "mine.yaml"
    job.write_text("job_type: T2I\nworkflow_id: picture\ninputs: {'98:6.text': mine}\n")


@pytest.mark.slow
def test_an_agent_does_not_take_over_what_a_killed_burst_left(make_folder: Make) -> None:
    folder = make_folder("--render-seconds", "1")
    folder.write_many(3)
    running = folder.start()
    at_server = wait_at_work(folder, 2)
    running.kill()
    a_job_of_an_agent(folder)
    assert folder.e3("run", "--until-idle", "--server", folder.server).code == 0
    assert folder.rows("SELECT count(*) AS done FROM jobs WHERE status = 'done'") == [{"done": 1}]
    assert set(folder.words().values()) == {"pending"}
    assert folder.results == []
    assert folder.call().code == 0
    assert {row["prompt_id"] for row in folder.rows("SELECT prompt_id FROM attempts")} >= set(at_server)
    assert set(folder.words().values()) == {"completed"}
    assert folder.renders() == 4


@pytest.mark.slow
def test_an_agent_beside_a_working_burst_takes_none_of_its_items(make_folder: Make, tmp_path: Path) -> None:
    """The agent has a server of its own that is idle all the time."""
    folder = make_folder("--render-seconds", "0.3")
    folder.write_many(5)
    other = simulator(tmp_path / "other").start()
    try:
        agent = subprocess.Popen(
            [sys.executable, "-m", "comfyui_agent", "execute", "-C", str(folder.root), "--server", other.url],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            locks = folder.root / "database" / "agents"
            wait_until(lambda: list(locks.glob("*.lock")), "the agent")
            assert folder.run().code == 0
        finally:
            agent.terminate()
            agent.wait(60)
    finally:
        other.kill()
    assert [row["server"] for row in folder.rows("SELECT server FROM attempts")] == [folder.server] * 5
    check_all_done(folder)


# Second thoughts between bursts.


@pytest.mark.slow
def test_prompts_that_come_later_are_rendered_later(make_folder: Make) -> None:
    folder = make_folder()
    folder.write("EP01/b.txt")
    assert folder.call().code == 0
    early = folder.write("EP01/a.txt")
    folder.write("EP02/c.txt")
    ended = folder.call("--json", "--size", "1")
    assert (ended.code, ended.summary["total"], ended.summary["completed"]) == (10, 3, 1)
    assert folder.items()[early]["status"] == "completed"
    assert folder.call().code == 0
    check_all_done(folder)


@pytest.mark.slow
def test_a_paused_burst_renders_nothing_until_it_is_resumed(make_folder: Make) -> None:
    folder = make_folder()
    keys = folder.write_many(2)
    assert folder.call("--size", "1").code == 10
    batch_id = folder.batch_id
    assert folder.e3("batch", "pause", batch_id).code == 0
    paused = folder.call("--json")
    assert (paused.code, paused.summary["remaining"], paused.summary["next_item"]) == (1, 1, keys[1])
    assert [f"e3 batch resume {batch_id}" in line for line in paused.lines] == [True]
    assert folder.renders() == 1
    assert folder.e3("batch", "resume", batch_id).code == 0
    assert folder.call().code == 0
    check_all_done(folder)


@pytest.mark.slow
def test_what_was_cancelled_has_failed_until_it_is_wanted_again(make_folder: Make) -> None:
    folder = make_folder()
    keys = folder.write_many(3)
    assert folder.call("--size", "1").code == 10
    assert folder.e3("batch", "cancel", folder.batch_id).code == 0
    ended = folder.call("--json")
    assert (ended.code, ended.summary["remaining"], ended.summary["total_completed"]) == (1, 0, 1)
    assert list(folder.words().values()) == ["completed", "failed", "failed"]
    assert folder.renders() == 1
    folder.set(keys[1], "pending")
    assert folder.call().code == 1
    assert list(folder.words().values()) == ["completed", "completed", "failed"]
    assert folder.e3("batch", "retry", folder.batch_id, "--cancelled").code == 0
    assert folder.call().code == 0
    check_all_done(folder)


@pytest.mark.slow
def test_retrying_the_batch_renders_what_failed(make_folder: Make) -> None:
    folder = make_folder()
    good, bad = folder.write("a.txt"), folder.write("b.txt", b"\xff")
    assert folder.call().code == 1
    folder.write("b.txt", "now a text")
    assert folder.e3("batch", "retry", folder.batch_id).code == 0
    ended = folder.call("--json")
    assert (ended.code, ended.summary["completed"], ended.summary["total_completed"]) == (0, 1, 2)
    assert [folder.items()[key]["status"] for key in (good, bad)] == ["completed"] * 2
    assert text_of(folder.result_of(bad)) == "now a text"


@pytest.mark.slow
def test_cancelling_takes_prompts_back_while_another_burst_works(make_folder: Make) -> None:
    folder = make_folder("--render-seconds", "8")
    folder.write_many(1)
    dead = folder.start()
    (prompt_id,) = wait_at_work(folder)
    dead.kill()
    batch_id = folder.batch_id
    folder.start("--state", "other.json", "--output-dir", "other")
    wait_at_work(folder, 2)
    assert folder.e3("batch", "cancel", batch_id).code == 0
    wait_until(lambda: prompt_id not in server_queue(folder.server).all, "the end of the cancelled prompt", 4)


@pytest.mark.slow
def test_what_is_taken_over_may_have_been_meant_for_another_folder(make_folder: Make, tmp_path: Path) -> None:
    folder = make_folder("--render-seconds", "1")
    folder.write_many(1)
    running = folder.start("--output-dir", str(tmp_path / "first"))
    wait_at_work(folder)
    running.kill()
    assert folder.call("--output-dir", str(tmp_path / "second")).code == 0
    assert folder.renders() == 1
    assert len([path for path in tmp_path.glob("*/EP01/prompt_1.png") if "server" not in path.parts]) == 1


# Servers and disks.


@pytest.mark.slow
def test_a_server_that_is_killed_in_the_middle_is_waited_for(make_folder: Make) -> None:
    folder = make_folder("--render-seconds", "0.3")
    folder.write_many(4)
    running = folder.start("--json")
    wait_until(lambda: (folder.renders() or 0) >= 1, "the first picture")
    server_of(folder).kill()
    server_of(folder).start()
    ended = running.end()
    assert (ended.code, ended.summary["completed"]) == (0, 4)
    assert set(folder.words().values()) == {"completed"}
    assert folder.rows("SELECT max(retries_attempted) AS most FROM jobs") == [{"most": 0}]


@pytest.mark.slow
def test_a_server_that_stays_away_ends_the_burst_in_one_line(
    make_folder: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "AWAY_SECONDS", 0.5)
    folder = make_folder("--render-seconds", "0.3", "--crash-after", "1")
    folder.write_many(3)
    ended = folder.call("--json")
    assert ended.code == 1
    assert ended.summary["failed"] == 0
    assert ended.summary["completed"] + ended.summary["remaining"] == 3
    (line,) = [line for line in ended.lines if line.startswith("e3: ")]
    assert folder.server in line
    server = server_of(folder)
    assert server.process is not None
    server.process.wait(60)
    del server.command[-2:]
    server.start()
    assert folder.call().code == 0
    assert set(folder.words().values()) == {"completed"}
    assert folder.rows("SELECT max(retries_attempted) AS most FROM jobs") == [{"most": 0}]


@pytest.mark.slow
def test_a_server_that_was_never_there_is_one_line_soon(make_folder: Make) -> None:
    folder = make_folder()
    server_of(folder).kill()
    folder.write_many(1)
    began = time.monotonic()
    ended = folder.run("--json")
    assert time.monotonic() - began < 30
    assert (ended.code, ended.summary["remaining"]) == (1, 1)
    assert [folder.server in line for line in ended.lines if line.startswith("e3: ")] == [True]


@contextlib.contextmanager
def full_state_disk(folder: BurstFolder) -> Iterator[tuple[Running, Callable[[], None]]]:
    """A burst at work whose state file has no room any more; call the second to make room."""
    with small_disk(folder.root / "kept", "1m") as disk:
        running = folder.start("--json", "--state", "kept/state.json")
        wait_at_work(folder)
        wait_until(lambda: (folder.root / "kept" / "state.json").exists(), "the state file")
        disk.fill()
        running.wait_said("kept/state.json cannot be written: No space left")
        yield running, disk.make_room


@pytest.mark.slow
def test_a_state_file_without_room_is_said_and_written_when_there_is_room(make_folder: Make) -> None:
    folder = make_folder("--render-seconds", "0.5")
    folder.write_many(3)
    with full_state_disk(folder) as (running, make_room):
        path = folder.root / "kept" / "state.json"
        before = path.read_bytes()
        wait_until(lambda: folder.renders() == 3, "all pictures")
        assert running.process.poll() is None
        assert path.read_bytes() == before
        assert "Traceback" not in running.said()
        make_room()
        ended = running.end()
        assert (ended.code, ended.summary["completed"]) == (0, 3)
        assert {item["status"] for item in json.loads(path.read_text()).values()} == {"completed"}
        assert sorted(each.name for each in path.parent.iterdir()) == [".state.json.lock", "state.json"]
    assert folder.renders() == 3


@pytest.mark.timing
@pytest.mark.slow
def test_a_burst_without_room_for_its_state_file_still_leaves_in_time(make_folder: Make) -> None:
    folder = make_folder("--render-seconds", "0.5")
    folder.write_many(3)
    with full_state_disk(folder) as (running, make_room):
        ended, seconds = running.send(signal.SIGTERM, 20)
        assert (ended.code, seconds < LEAVING_SECONDS) == (143, True)
        make_room()
        ended = folder.run("--json", "--state", "kept/state.json")
        assert (ended.code, ended.summary["total_completed"]) == (0, 3)
        assert "rendered again" not in ended.err
    assert folder.renders() == 3


@pytest.mark.slow
def test_a_state_file_that_can_never_be_written_does_not_hold_a_burst_that_is_out_of_time(make_folder: Make) -> None:
    folder = make_folder()
    folder.write_many(1)
    with small_disk(folder.root / "kept", "1m") as disk:
        disk.lock()
        running = folder.start("--json", "--state", "kept/state.json", "--max-seconds", "1")
        try:
            ended = running.end(6)
        finally:
            running.kill()
        assert ended.code in (1, 10)
        assert any("kept/state.json" in line for line in ended.lines)


# On a real server.


@pytest.mark.real_comfyui
@pytest.mark.skipif(not REAL_DIR, reason="needs a checkout to start (E3_COMFYUI_DIR)")
@pytest.mark.timeout(600)
def test_bursts_on_a_real_server_are_killed_and_render_every_prompt_once(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with contextlib.ExitStack() as leaving:
        server = real_comfyui(tmp_path / "server").start()
        leaving.callback(server.kill)
        folder = _folder(server, leaving, tmp_path)
        folder.write_many(40)
        with watched(folder):
            for number in (signal.SIGTERM, signal.SIGKILL) * 3:
                running = folder.start("--json")
                running.wait_said("Burst of")
                time.sleep(chance.uniform(0, 0.8))
                assert_left(running.send(number)[0].code, number, 0)
            assert folder.run("--until-done").code == 0
        check_all_done(folder)
