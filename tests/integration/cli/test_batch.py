"""`e3 batch`: how any batch stands, watching it, and steering it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from comfyui_agent.domain.batches import BatchStatus
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.sim.process import ServerProcess
from support.agents import AgentWorkspace
from support.batches import KEYS, batch_of, document, members, queued_id, refusal
from support.shared_servers import Servers
from support.stores import in_the_shell
from support.terminal import in_terminal
from support.workspaces import call_e3, everything_in, new_workspace, run_e3

BAR = re.compile(r"[━─]{30}  \d of \d done")
RATE = re.compile(r"\d of 5 done, \d+\.\d images/(s|min), about \d+ (s|min) left")
STEP = re.compile(r"◐ +knights_[0-9a-f]{8}_000\d +[━─]+ KSampler, step \d+ of 30 +127\.0\.0\.1:\d+")


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> AgentWorkspace:
    """A workspace in which nobody works."""
    workspace = new_workspace(tmp_path_factory.mktemp("batch") / "night")
    assert call_e3("db", "migrate", cwd=workspace.root).returncode == 0
    return workspace


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> AgentWorkspace:
    """A workspace with one batch that is complete: three colours, two widths and two heights."""
    workspace = new_workspace(tmp_path_factory.mktemp("batch") / "gallery", servers.url("sim"))
    axes = ("--set", "color=1..3", "--set", "width=16,32", "--set", "height=8,24")
    document(run_e3("sweep", "picture", *axes, "--name", "gallery", "--wait", "--json", cwd=workspace.root))
    return workspace


def queue(workspace: AgentWorkspace, axis: str = "color=1..3", name: str = "knights") -> str:
    return queued_id(call_e3("sweep", "picture", "--set", axis, "--name", name, cwd=workspace.root))


def batch(workspace: AgentWorkspace, *arguments: str) -> subprocess.CompletedProcess[str]:
    return call_e3("batch", *arguments, cwd=workspace.root)


def end(workspace: AgentWorkspace, batch_id: str, *states: str) -> None:
    """Let the first members end as if an agent had rendered them."""
    for index, state in enumerate(states):
        in_the_shell(
            workspace.database,
            f"UPDATE jobs SET status = '{state}', error_trace = iif('{state}' = 'failed', 'oom: too large', NULL),"
            f" failure_class = iif('{state}' = 'failed', 'oom', NULL)"
            f" WHERE batch_id = '{batch_id}' AND batch_index = {index}",
        )


# Listing and showing.


def test_a_listing_is_an_array_of_batches_the_newest_first(night: AgentWorkspace) -> None:
    ids = [queue(night, name=name) for name in ("first", "second", "third")]
    found = document(batch(night, "ls", "--limit", "3", "--json"))
    assert [each["id"] for each in found] == ids[::-1]
    assert all(list(each) == KEYS for each in found)
    assert document(batch(night, "ls", "--kind", "book", "--json")) == []
    assert len(document(batch(night, "ls", "--kind", "sweep", "--limit", "2", "--json"))) == 2


def test_a_listing_for_people_has_a_line_for_each(night: AgentWorkspace) -> None:
    ended = queue(night, name="ended")
    end(night, ended, "done", "failed", "done")
    waiting = queue(night, name="waiting")
    lines = batch(night, "ls", "--limit", "2").stdout.splitlines()
    assert lines == [
        f"◐ active      sweep  {waiting}  0 of 3 done",
        f"● complete    sweep  {ended}  2 of 3 done, 1 needs attention, complete, making the grid",
    ]


def test_without_a_batch_or_a_database_it_says_so(tmp_path: Path) -> None:
    workspace = new_workspace(tmp_path / "new")
    assert batch(workspace, "ls").returncode == 1
    assert call_e3("db", "migrate", cwd=workspace.root).returncode == 0
    answer = batch(workspace, "ls")
    assert (answer.returncode, answer.stdout) == (0, "There are no batches. Make one: e3 sweep --help\n")
    assert document(batch(workspace, "ls", "--json")) == []


def test_without_a_batch_of_a_kind_it_says_that(night: AgentWorkspace) -> None:
    queue(night)
    assert batch(night, "ls", "--kind", "book").stdout != "There are no batches. Make one: e3 sweep --help\n"


def test_counts_are_those_of_the_jobs(night: AgentWorkspace) -> None:
    batch_id = queue(night, "color=1..5")
    end(night, batch_id, "done", "failed", "done")
    in_the_shell(
        night.database, f"UPDATE jobs SET status = 'processing' WHERE batch_id = '{batch_id}' AND batch_index = 3"
    )
    found = document(batch(night, "show", batch_id, "--json"))
    counts = {key: found[key] for key in ("total", "pending", "processing", "done", "failed", "status")}
    assert counts == {
        "total": 5,
        "pending": 1,
        "processing": 1,
        "done": 2,
        "failed": 1,
        "status": "collecting",
    }
    in_the_shell(night.database, f"DELETE FROM jobs WHERE batch_id = '{batch_id}' AND batch_index >= 3")
    found = document(batch(night, "show", batch_id, "--json"))
    assert (found["total"], found["status"]) == (3, "complete")


def test_showing_one_adds_its_jobs_as_rows_in_their_order(gallery: AgentWorkspace) -> None:
    found = document(batch(gallery, "show", "gallery", "--json"))
    rows = document(call_e3("queue", "ls", "--batch", found["id"], "--limit", "100", "--json", cwd=gallery.root))
    assert found["jobs"] == sorted(rows, key=lambda row: row["batch_index"])
    assert [row["batch_index"] for row in found["jobs"]] == list(range(12))
    assert found["jobs"][5]["metadata"]["combination"] == {"color": 2, "width": 16, "height": 24}
    assert {key: found[key] for key in KEYS} == document(batch(gallery, "ls", "--json"))[0]


def test_showing_one_has_the_keys_that_scripts_rely_on(gallery: AgentWorkspace) -> None:
    assert list(document(batch(gallery, "show", "gallery", "--json"))) == [*KEYS, "eta_seconds", "jobs"]


def test_showing_one_to_people_tells_its_axes_its_grid_and_what_needs_attention(night: AgentWorkspace) -> None:
    batch_id = queue(night, "color=1..12", name="über")
    end(night, batch_id, "done", "failed")
    lines = batch(night, "show", batch_id).stdout.splitlines()
    assert lines[0] == f"batch        {batch_id} (sweep, über)"
    assert lines[1] == "state        ◐ collecting: 1 of 12 done, 1 needs attention"
    assert "axis         color = 1, 2, 3, 4, 5, 6, 7, 8 … 12 (12)" in lines
    assert f"folder       jobs/finished/image/{batch_id}" in lines
    assert lines[-1] == f"△ Needs attention  {batch_id}_0002: oom: too large"


def test_of_many_failures_the_first_are_shown_and_where_the_others_are(night: AgentWorkspace) -> None:
    batch_id = queue(night, "color=1..25")
    in_the_shell(
        night.database,
        f"UPDATE jobs SET status = 'failed', error_trace = 'bad' || char(27) || '[2J' WHERE batch_id = '{batch_id}'",
    )
    answer = batch(night, "show", batch_id)
    lines = answer.stdout.splitlines()
    assert sum(line.startswith("△ Needs attention") for line in lines) == 20
    assert lines[-1] == f"… and 5 more: e3 queue ls --batch {batch_id} --attention"
    assert "\x1b" not in answer.stdout


# Ids and names.


@pytest.mark.parametrize("command", ["show", "watch", "cancel", "retry", "pause", "resume", "grid"])
def test_a_batch_that_is_not_there_is_one_line(night: AgentWorkspace, command: str) -> None:
    assert refusal(batch(night, command, "nope", "--json"), 1) == "there is no batch 'nope': see e3 batch ls"


def test_a_name_that_one_batch_has_is_enough(night: AgentWorkspace) -> None:
    batch_id = queue(night, name="Only & one")
    assert document(batch(night, "show", "Only & one", "--json"))["id"] == batch_id


@pytest.mark.parametrize("command", ["show", "cancel", "pause"])
def test_a_name_that_several_have_is_refused_with_their_ids(night: AgentWorkspace, command: str) -> None:
    first, second = (queue(night, name=f"twins of {command}") for _ in range(2))
    words = refusal(batch(night, command, f"twins of {command}"), 1)
    assert words.startswith(f"several batches are called 'twins of {command}': name one by its id")
    assert first in words
    assert second in words
    assert {batch_of(night, each).status for each in (first, second)} == {BatchStatus.ACTIVE}


def test_an_id_wins_over_a_name(night: AgentWorkspace) -> None:
    batch_id = queue(night, name="original")
    queue(night, name=batch_id)
    assert document(batch(night, "show", batch_id, "--json"))["id"] == batch_id


def offered(line: str, cwd: Path) -> list[str]:
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    answer = run_e3(cwd=cwd, _E3_COMPLETE="complete_bash", **asked)
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout.split()


def test_ids_are_offered_when_tab_is_pressed(night: AgentWorkspace) -> None:
    wanted = sorted(queue(night, name="offered") for _ in range(2))
    assert sorted(offered("e3 batch show offered_", night.root)) == wanted
    assert sorted(offered("e3 batch cancel offered_", night.root)) == wanted


def test_only_books_are_offered_for_books(night: AgentWorkspace) -> None:
    queue(night, name="offered")
    assert offered("e3 book show offered_", night.root) == []


# Watching.


@pytest.mark.slow
def test_on_a_terminal_there_is_a_bar_the_rate_the_time_left_and_the_step(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    workspace = new_workspace(tmp_path / "night", comfyui_simulator("--render-seconds", "0.5").url)
    axes = ("--set", "seed=1..5", "--input", "prompt=a knight", "--name", "knights")
    batch_id = queued_id(call_e3("sweep", "wf_realistic_portrait", *axes, cwd=workspace.root))
    agent = workspace.start()
    try:
        with in_terminal("batch", "watch", "knights", cwd=workspace.root, columns=200) as terminal:
            for shown in (BAR, STEP, RATE):
                terminal.wait_for(lambda shown=shown: bool(shown.search(terminal.text)))  # type: ignore[misc]
            assert terminal.finish(60) == 0
    finally:
        workspace.kill(agent)
    lines = terminal.screen.text.splitlines()
    assert terminal.screen.has_cursor
    assert terminal.screen.strange == []
    assert not BAR.search(terminal.screen.text)
    assert sum("● Done  knights_" in line for line in lines) >= 3  # what was done before it watched is not told
    assert lines[-2].endswith(f"{batch_id}: 5 of 5 done, complete")
    assert lines[-1] == f"Grid  {workspace.root}/jobs/finished/image/{batch_id}/grid.png"


def start_watching(workspace: AgentWorkspace, batch_id: str) -> subprocess.Popen[str]:
    """`e3 batch watch` in the background, once it has said how a batch of three stands."""
    watching = subprocess.Popen(
        [sys.executable, "-m", "comfyui_agent", "batch", "watch", batch_id],
        cwd=workspace.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    assert watching.stdout.readline() == f"{batch_id}: 0 of 3 done\n"
    return watching


def test_elsewhere_there_are_plain_lines(servers: Servers, tmp_path: Path) -> None:
    workspace = new_workspace(tmp_path / "night", servers.url("sim"))
    batch_id = queue(workspace)
    watching = start_watching(workspace, batch_id)
    assert workspace.finish() == 0
    told, warned = watching.communicate(timeout=30)
    assert (watching.returncode, warned) == (0, "e3: no agent runs here: start one with e3 run\n")
    assert not {"\x1b", "\r"} & set(told)
    *done, last, grid = told.splitlines()
    assert sorted(line.partition(batch_id)[2][:5] for line in done if "● Done  " in line) == ["_0001", "_0002", "_0003"]
    assert last.endswith(f"{batch_id}: 3 of 3 done, complete")
    assert grid == f"Grid  {workspace.root}/jobs/finished/image/{batch_id}/grid.png"


@pytest.mark.slow
def test_leaving_with_ctrl_c_stops_the_watching_and_nothing_else(night: AgentWorkspace) -> None:
    batch_id = queue(night)
    with in_terminal("batch", "watch", batch_id, cwd=night.root) as terminal:
        terminal.wait_for(lambda: bool(BAR.search(terminal.text)))
        terminal.press_ctrl_c()
        assert terminal.finish() == 130
    assert terminal.screen.has_cursor
    assert "Traceback" not in terminal.text
    assert (batch_of(night, batch_id).status, batch_of(night, batch_id).pending) == (BatchStatus.ACTIVE, 3)


def test_a_signal_ends_the_watching_with_143(night: AgentWorkspace) -> None:
    watching = start_watching(night, queue(night))
    watching.send_signal(signal.SIGTERM)
    watching.communicate(timeout=20)
    assert watching.returncode == 143


@pytest.mark.parametrize(
    ("states", "code"), [(("done", "done", "done"), 0), (("done", "failed", "done"), 1), (("failed",) * 3, 1)]
)
def test_what_a_script_wants_to_know_is_the_exit_code(
    night: AgentWorkspace, states: tuple[str, ...], code: int
) -> None:
    batch_id = queue(night)
    end(night, batch_id, *states)
    in_the_shell(night.database, f"UPDATE batches SET grid_generation = generation WHERE id = '{batch_id}'")
    assert batch(night, "watch", batch_id).returncode == code
    found = document(batch(night, "watch", batch_id, "--json"), code)
    assert list(found) == KEYS
    assert found["status"] == "complete"


# Cancelling and trying again.


def test_cancelling_ends_what_has_not_ended(night: AgentWorkspace) -> None:
    other, batch_id = queue(night, name="other"), queue(night)
    end(night, batch_id, "done")
    answer = batch(night, "cancel", batch_id)
    assert (answer.returncode, answer.stdout) == (0, f"◌ {batch_id}: 2 jobs cancelled, 1 done\n")
    states = [(job.status, job.failure_class) for job in members(night, batch_id)]
    assert states == [(JobStatus.DONE, None)] + [(JobStatus.FAILED, "cancelled")] * 2
    assert {job.status for job in members(night, other)} == {JobStatus.PENDING}
    assert batch(night, "watch", batch_id).returncode == 1
    assert refusal(batch(night, "cancel", batch_id), 1) == f"{batch_id} is cancelled already"


def test_cancelling_as_json_is_the_batch(night: AgentWorkspace) -> None:
    found = document(batch(night, "cancel", queue(night), "--json"))
    assert list(found) == KEYS
    assert (found["status"], found["failed"], found["pending"]) == ("cancelled", 3, 0)
    assert found["completed_at"] is not None


def test_a_batch_that_is_complete_is_not_cancelled(gallery: AgentWorkspace) -> None:
    before = everything_in(gallery.root / "jobs")
    found = document(batch(gallery, "show", "gallery", "--json"))
    assert refusal(batch(gallery, "cancel", found["id"]), 1) == f"{found['id']} is complete already"
    assert document(batch(gallery, "show", "gallery", "--json")) == found
    assert everything_in(gallery.root / "jobs") == before


def test_a_retry_takes_what_failed_and_leaves_the_rest(night: AgentWorkspace) -> None:
    batch_id = queue(night, "color=1..4")
    end(night, batch_id, "done", "failed", "done", "failed")
    answer = batch(night, "retry", batch_id)
    assert (answer.returncode, answer.stdout) == (0, f"○ {batch_id}: 2 jobs submitted again\n")
    found = document(batch(night, "show", batch_id, "--json"))
    assert (found["status"], found["generation"], found["completed_at"]) == ("active", 2, None)
    assert [job["status"] for job in found["jobs"]] == ["done", "pending", "done", "pending"]
    again = document(batch(night, "retry", batch_id, "--json"))
    assert list(again) == KEYS
    assert again["generation"] == 2


def test_a_retry_leaves_what_was_cancelled_alone_unless_it_is_asked_for(night: AgentWorkspace) -> None:
    batch_id = queue(night)
    batch(night, "cancel", batch_id)
    answer = batch(night, "retry", batch_id)
    assert answer.stdout == f"◌ {batch_id}: nothing needs attention; what was cancelled or dismissed: --cancelled\n"
    assert document(batch(night, "show", batch_id, "--json"))["status"] == "cancelled"
    found = document(batch(night, "retry", batch_id, "--cancelled", "--json"))
    assert (found["status"], found["generation"], found["pending"]) == ("active", 2, 3)


def test_a_retry_of_nothing_says_so(night: AgentWorkspace) -> None:
    batch_id = queue(night)
    answer = batch(night, "retry", batch_id)
    assert (answer.returncode, answer.stdout) == (0, f"◐ {batch_id}: nothing needs attention\n")


@pytest.mark.slow
def test_what_is_tried_again_completes_as_another_generation_with_its_grid_made_anew(
    servers: Servers, tmp_path: Path
) -> None:
    workspace = new_workspace(tmp_path / "night", servers.url("sim"))
    axes = ("--set", "color=1,2", "--set", "1.width=16,32")
    batch_id = queued_id(call_e3("sweep", "picture", *axes, cwd=workspace.root))
    spoil = "UPDATE jobs SET inputs = json_set(inputs, '$.\"1.color\"', {}) WHERE batch_index = 1"
    in_the_shell(workspace.database, spoil.format(-1))  # which the server refuses
    assert workspace.finish(E3_RETRY_LIMIT="0") == 1
    found = document(batch(workspace, "watch", batch_id, "--json"), 1)
    assert (found["done"], found["failed"], found["generation"]) == (3, 1, 1)
    grid = workspace.root / found["grid"]
    before = grid.read_bytes()
    in_the_shell(workspace.database, spoil.format(1))
    batch(workspace, "retry", batch_id)
    assert workspace.finish() == 0
    found = document(batch(workspace, "watch", batch_id, "--json"))
    assert (found["status"], found["done"], found["failed"], found["generation"]) == ("complete", 4, 0, 2)
    assert grid.read_bytes() != before
    completions = [event for event in workspace.events() if event["event"] == "batch.completed"]
    assert [event["batch_id"] for event in completions] == [batch_id] * 2


def test_when_all_of_it_failed_the_grid_says_why(servers: Servers, tmp_path: Path) -> None:
    workspace = new_workspace(tmp_path / "night", servers.url("sim"))
    batch_id = queue(workspace)
    in_the_shell(workspace.database, "UPDATE jobs SET inputs = json_set(inputs, '$.\"1.color\"', -1)")
    assert workspace.finish(E3_RETRY_LIMIT="0") == 1
    found = document(batch(workspace, "watch", batch_id, "--json"), 1)
    assert (found["failed"], found["status"]) == (3, "complete")
    assert found["grid"] is not None
    page = (workspace.root / found["grid"]).with_suffix(".html").read_text(encoding="utf-8")
    assert "Value -1 smaller than min of 0" in page


# Pausing.


@pytest.mark.slow
def test_a_paused_batch_waits_and_another_goes_on(servers: Servers, tmp_path: Path) -> None:
    workspace = new_workspace(tmp_path / "night", servers.url("sim"))
    paused, other = queue(workspace, name="paused"), queue(workspace, "color=4..6", name="other")
    answer = batch(workspace, "pause", paused)
    assert (answer.returncode, answer.stdout) == (0, f"○ {paused}: 0 of 3 done, paused\n")
    assert batch(workspace, "pause", paused).returncode == 0
    assert workspace.finish() == 0
    assert (batch_of(workspace, paused).pending, batch_of(workspace, other).done) == (3, 3)
    answer = batch(workspace, "resume", paused)
    assert (answer.returncode, answer.stdout) == (0, f"◐ {paused}: 0 of 3 done\n")
    assert {job.hold for job in members(workspace, paused)} == {None}


def test_what_cannot_be_paused_or_resumed_is_one_line(night: AgentWorkspace) -> None:
    batch_id = queue(night)
    assert refusal(batch(night, "resume", batch_id), 1) == f"{batch_id} is not paused"
    batch(night, "cancel", batch_id)
    assert refusal(batch(night, "pause", batch_id), 1) == f"{batch_id} is cancelled: there is nothing to pause"
    assert refusal(batch(night, "resume", batch_id), 1) == f"{batch_id} is not paused"


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_pausing_as_json_is_the_batch(night: AgentWorkspace, command: str) -> None:
    batch_id = queue(night)
    if command == "resume":
        batch(night, "pause", batch_id)
    assert list(document(batch(night, command, batch_id, "--json"))) == KEYS


# Grids.


def folder_of(workspace: AgentWorkspace) -> Path:
    """Where the only batch of a workspace is."""
    (found,) = (workspace.root / "jobs/finished/image").iterdir()
    return found


def made(answer: subprocess.CompletedProcess[str]) -> tuple[list[Path], Path]:
    found = document(answer)
    assert sorted(found) == ["page", "pictures"]
    return [Path(each) for each in found["pictures"]], Path(found["page"])


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ([], 3),
        (["--x", "color", "--y", "width"], 2),
        (["--x", "color", "--y", "width", "--pages", "height"], 2),
        (["--pages", "width"], 2),
    ],
)
def test_a_grid_is_laid_out_as_people_say(gallery: AgentWorkspace, options: list[str], count: int) -> None:
    pictures, page = made(batch(gallery, "grid", "gallery", *options, "--json"))
    folder = folder_of(gallery)
    assert pictures == [folder / "grid.png", *(folder / f"grid_{number}.png" for number in range(2, count + 1))]
    assert page == folder / "grid.html"
    for path in pictures:
        with Image.open(path) as picture:
            assert picture.format == "PNG"
            picture.load()
    assert "<html" in page.read_text(encoding="utf-8")
    assert document(batch(gallery, "show", "gallery", "--json"))["grid"] == str(pictures[0].relative_to(gallery.root))


def test_fewer_pages_than_before_leave_no_old_ones(gallery: AgentWorkspace) -> None:
    made(batch(gallery, "grid", "gallery", "--pages", "color", "--json"))
    made(batch(gallery, "grid", "gallery", "--x", "color", "--y", "width", "--json"))
    assert sorted(path.name for path in folder_of(gallery).glob("grid*.png")) == ["grid.png", "grid_2.png"]


def test_size_format_and_place_are_said(gallery: AgentWorkspace, tmp_path: Path) -> None:
    before = document(batch(gallery, "show", "gallery", "--json"))["grid"]
    sizes = []
    for pixels in ("32", "96"):
        output = tmp_path / f"out_{pixels}.jpg"
        options = ("--cell", pixels, "--format", "jpeg", "--output", str(output), "--x", "color", "--y", "width")
        answer = batch(gallery, "grid", "gallery", *options)
        assert answer.stdout.splitlines() == [
            str(output),
            str(output.with_stem(f"{output.stem}_2")),
            str(output.with_suffix(".html")),
        ]
        with Image.open(output) as picture:
            assert picture.format == "JPEG"
            sizes.append(picture.size)
    assert sizes[0][0] < sizes[1][0]
    assert document(batch(gallery, "show", "gallery", "--json"))["grid"] == before


def test_a_relative_place_is_relative_to_where_one_stands(gallery: AgentWorkspace, tmp_path: Path) -> None:
    answer = call_e3("batch", "grid", "gallery", "-C", str(gallery.root), "--output", "out.png", cwd=tmp_path)
    assert answer.returncode == 0
    assert (tmp_path / "out.png").exists()


def test_the_ending_of_the_place_says_what_the_picture_is(gallery: AgentWorkspace, tmp_path: Path) -> None:
    made(batch(gallery, "grid", "gallery", "--output", str(tmp_path / "out.jpg"), "--json"))
    with Image.open(tmp_path / "out.jpg") as picture:
        assert picture.format == "JPEG"


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--x", "seed"], 1, "--x 'seed' is no axis of gallery_"),
        (["--x", "color", "--y", "color"], 1, "--x, --y and --pages need different axes"),
        (["--pages", ""], 0, ""),
        (["--cell", "3"], 2, "Invalid value for '--cell'"),
        (["--cell", "999999"], 2, "Invalid value for '--cell'"),
        (["--format", "gif"], 2, "'gif' is not one of 'png', 'jpeg'"),
    ],
)
def test_a_grid_that_cannot_be_is_one_line(gallery: AgentWorkspace, options: list[str], code: int, words: str) -> None:
    answer = batch(gallery, "grid", "gallery", *options)
    if code:
        assert words in refusal(answer, code)
    else:
        assert answer.returncode == 0


@pytest.mark.parametrize("place", ["no/such/folder/out.png", "."])
def test_a_place_that_cannot_be_written_is_said_in_words(gallery: AgentWorkspace, tmp_path: Path, place: str) -> None:
    words = refusal(batch(gallery, "grid", "gallery", "--output", str(tmp_path / place)), 1)
    assert "Errno" not in words
    assert ".e3part" not in words


def test_a_result_is_never_overwritten_by_a_grid(gallery: AgentWorkspace) -> None:
    result = next(folder_of(gallery).glob("0001_*.png"))
    before = result.read_bytes()
    words = refusal(batch(gallery, "grid", "gallery", "--output", str(result)), 1)
    assert words.endswith(f"/{result.name} belongs to the job {folder_of(gallery).name}_0001: name another --output")
    assert result.read_bytes() == before


def test_a_grid_of_what_has_no_result_yet_is_a_sentence_or_shows_what_waits(night: AgentWorkspace) -> None:
    answer = batch(night, "grid", queue(night))
    assert "Errno" not in answer.stderr
    assert answer.returncode == 0 or "no results yet" in refusal(answer, 1)


@pytest.mark.slow
def test_a_grid_of_a_batch_that_goes_on_shows_what_is_there(servers: Servers, tmp_path: Path) -> None:
    workspace = new_workspace(tmp_path / "night", servers.url("sim"))
    batch_id = queue(workspace, "color=1..4")
    in_the_shell(workspace.database, "UPDATE jobs SET hold = 'paused' WHERE batch_index > 1")
    assert workspace.finish() == 0
    pictures, page = made(batch(workspace, "grid", batch_id, "--json"))
    assert batch_of(workspace, batch_id).status is BatchStatus.COLLECTING
    with Image.open(pictures[0]) as picture:
        picture.load()
    assert "2 of 4 done" in page.read_text(encoding="utf-8")


def test_every_json_is_one_document_and_nothing_else(gallery: AgentWorkspace) -> None:
    for command in (("ls",), ("show", "gallery"), ("watch", "gallery"), ("grid", "gallery"), ("retry", "gallery")):
        answer = batch(gallery, *command, "--json")
        assert answer.returncode == 0
        json.loads(answer.stdout)
