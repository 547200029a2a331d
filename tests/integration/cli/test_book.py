"""`e3 book`: from a file to pages, and single pages made anew."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.domain.states import JobStatus
from support.agents import AgentWorkspace, colour_of, sized_picture
from support.batches import (
    KEYS,
    batch_of,
    batches,
    document,
    members,
    queued_id,
    refusal,
    sent,
    write_graph,
    write_yaml,
)
from support.shared_servers import Servers
from support.stores import in_the_shell
from support.workspaces import call_e3, everything_in, new_workspace, run_e3
from support.yaml_workspaces import write_picture

PAGES = [{"inputs": {"color": 1}}, {"inputs": {"color": 2, "width": 16}}, {"inputs": {"color": 3}}]
BOOK: dict[str, Any] = {
    "book_id": "winter",
    "title": "Winter tales",
    "workflow": "picture",
    "inputs": {"width": 48},
    "pages": PAGES,
}
COLUMNS = [
    *("book_id", "page", "status", "retry_count", "last_attempted_at", "needs_regeneration"),
    *("image_error", "job_metadata"),
]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> AgentWorkspace:
    """A workspace in which nobody works."""
    workspace = new_workspace(tmp_path_factory.mktemp("book") / "night")
    assert call_e3("db", "migrate", cwd=workspace.root).returncode == 0
    return workspace


@pytest.fixture
def shelf(tmp_path: Path, servers: Servers) -> AgentWorkspace:
    """A workspace in front of a simulator."""
    return new_workspace(tmp_path / "shelf", servers.url("sim"))


def book(workspace: AgentWorkspace, *arguments: str) -> subprocess.CompletedProcess[str]:
    return call_e3("book", *arguments, cwd=workspace.root)


def create(workspace: AgentWorkspace, **changes: Any) -> str:
    """Queue a book; its id."""
    path = write_yaml(workspace.root / "books" / "book.yaml", BOOK | changes)
    return queued_id(book(workspace, "create", str(path)))


def render(workspace: AgentWorkspace, code: int = 0, **environment: str) -> None:
    assert workspace.finish(**environment) == code, workspace.tail()


def end(workspace: AgentWorkspace, book_id: str, *states: str) -> None:
    """Let pages end as if an agent had rendered them."""
    for index, state in enumerate(states):
        kind = {"failed": "'execution'", "cancelled": "'cancelled'"}.get(state, "NULL")
        state = "failed" if state == "cancelled" else state
        in_the_shell(
            workspace.database,
            f"UPDATE jobs SET status = '{state}', failure_class = {kind}, error_trace = {kind}"
            f" WHERE batch_id = '{book_id}' AND batch_index = {index}",
        )


# Making one.


def test_a_book_is_queued_page_by_page_and_its_id_is_all_of_stdout(night: AgentWorkspace) -> None:
    path = write_yaml(night.root / "winter.yaml", BOOK)
    answer = book(night, "create", str(path))
    assert (answer.returncode, answer.stdout) == (0, "winter\n")
    assert answer.stderr == "3 pages queued. Follow: e3 batch watch winter\n"
    jobs = members(night, "winter")
    assert [json.loads(job.inputs or "") for job in jobs] == [
        {"1.width": 48, "1.color": 1},
        {"1.width": 16, "1.color": 2},
        {"1.width": 48, "1.color": 3},
    ]
    assert [job.file_path for job in jobs] == [f"jobs/finished/image/winter/page_00{page}.png" for page in (1, 2, 3)]
    assert [job.retry_limit for job in jobs] == [3, 3, 3]


def test_the_book_of_the_guide_works(night: AgentWorkspace) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "books.md").read_text(encoding="utf-8")
    write_picture(night.root / "pictures" / "river.png")
    path = write_yaml(night.root / "winter.yaml", guide.partition("```yaml\n")[2].partition("```")[0])
    assert queued_id(book(night, "create", str(path))) == "winter_tales"
    jobs = members(night, "winter_tales")
    assert [(job.workflow_id, job.job_type) for job in jobs] == [
        ("wf_realistic_portrait", "T2I"),
        ("wf_realistic_portrait", "T2I"),
        ("wf_image_to_image", "I2I"),
    ]
    assert [json.loads(job.inputs or "").get("5.seed") for job in jobs[:2]] == [12, 40]


def test_as_json_it_is_the_batch(night: AgentWorkspace) -> None:
    path = write_yaml(night.root / "json.yaml", BOOK | {"book_id": "as_json"})
    found = document(book(night, "create", str(path), "--json"))
    assert list(found) == KEYS
    assert (found["id"], found["name"], found["kind"], found["total"]) == ("as_json", "Winter tales", "book", 3)


def test_without_an_id_two_books_of_one_title_are_two_books(night: AgentWorkspace) -> None:
    ids = [create(night, book_id=None, title="Füchse") for _ in range(2)]
    assert ids[0] != ids[1]
    assert all(re.fullmatch(r"Fuchse_[0-9a-f]{8}", each) for each in ids)
    words = refusal(book(night, "show", "Füchse"), 1)
    assert words.startswith("several batches are called 'Füchse': name one by its id")


def test_an_id_that_is_taken_is_refused_and_the_book_stays_as_it_is(night: AgentWorkspace) -> None:
    create(night, book_id="taken")
    end(night, "taken", "done")
    before = members(night, "taken")
    path = write_yaml(night.root / "again.yaml", BOOK | {"book_id": "taken", "pages": [{"inputs": {"color": 9}}]})
    words = refusal(book(night, "create", str(path)), 1)
    assert words == "there is a book taken already: give another book_id, or e3 book regenerate"
    assert members(night, "taken") == before


def test_an_id_whose_pages_would_be_jobs_that_are_there_leaves_nothing_behind(night: AgentWorkspace) -> None:
    in_the_shell(
        night.database,
        "INSERT INTO jobs (config_name, job_type, workflow_id, status)"
        " VALUES ('crowded_page_002', 'T2I', 'picture', 'done')",
    )
    path = write_yaml(night.root / "crowded.yaml", BOOK | {"book_id": "crowded"})
    assert "crowded_page_002" in refusal(book(night, "create", str(path)), 1)
    assert "crowded" not in [each.id for each in batches(night)]
    assert in_the_shell(night.database, "SELECT id FROM jobs WHERE batch_id = 'crowded'") == []


@pytest.mark.parametrize("book_id", ["..", "../../etc", "a/b", ".hidden", "a b", "ü", "x" * 101, ""])
def test_a_hostile_id_is_refused_with_its_line(night: AgentWorkspace, book_id: str) -> None:
    path = write_yaml(night.root / "hostile.yaml", BOOK | {"book_id": book_id})
    before = len(batches(night))
    words = refusal(book(night, "create", str(path)), 2)
    assert words.startswith("hostile.yaml:1: book_id: ")
    assert len(batches(night)) == before


def test_a_book_that_is_wrong_is_refused_before_anything_is_queued(night: AgentWorkspace) -> None:
    path = write_yaml(night.root / "wrong.yaml", BOOK | {"book_id": "wrong", "pages": [*PAGES, {"inputs": {"hat": 1}}]})
    words = refusal(book(night, "create", str(path)), 2)
    assert "page 4: inputs.hat: 'hat' has no place in the workflow" in words
    assert "wrong" not in [each.id for each in batches(night)]


def test_of_several_mistakes_the_first_line_on_stderr_is_the_error(night: AgentWorkspace) -> None:
    pages = [{"inputs": {"color": "red"}}, {"inputs": {"hat": 1}}]
    path = write_yaml(night.root / "wrong.yaml", BOOK | {"book_id": "wrong", "pages": pages})
    answer = book(night, "create", str(path))
    assert (answer.returncode, answer.stdout) == (2, "")
    first, *others = answer.stderr.splitlines()
    assert first.startswith("e3: ")
    assert "page 1: inputs.color" in first
    assert len(others) == 1
    assert "page 2: inputs.hat" in others[0]


def test_a_file_that_is_not_there_is_one_line(night: AgentWorkspace) -> None:
    assert refusal(book(night, "create", "gone.yaml"), 2) == ("gone.yaml: it cannot be read: No such file or directory")


def test_a_picture_that_is_not_there_is_said_with_its_page(night: AgentWorkspace) -> None:
    page = {"inputs": {"image": "pictures/gone.png", "prompt": "a", "seed": 1}, "workflow": "wf_image_to_image"}
    pages = [{"inputs": {"color": 1}}, page]
    path = write_yaml(night.root / "gone.yaml", {"workflow": "picture", "pages": pages})
    words = refusal(book(night, "create", str(path)), 2)
    assert "page 2: inputs.image: there is no file 'pictures/gone.png'" in words


def test_a_workflow_beside_the_file_is_found(night: AgentWorkspace, tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(json.dumps(sized_picture()), encoding="utf-8")
    path = write_yaml(tmp_path / "book.yaml", {"book_id": "own", "workflow": "own.json", "pages": PAGES})
    assert queued_id(book(night, "create", str(path))) == "own"
    assert json.loads(members(night, "own")[0].metadata or "")["workflow"] == str(tmp_path / "own.json")


def test_the_limits_of_pages_are_said_in_the_environment(night: AgentWorkspace) -> None:
    path = write_yaml(night.root / "limits.yaml", BOOK | {"book_id": "limits"})
    answer = run_e3("book", "create", str(path), cwd=night.root, COMFY_MAX_RETRIES="7", E3_RETRY_LIMIT="1")
    assert queued_id(answer) == "limits"
    rows = in_the_shell(night.database, "SELECT DISTINCT retry_limit FROM jobs WHERE batch_id = 'limits'")
    assert rows == [{"retry_limit": 7}]


@pytest.mark.parametrize(
    ("name", "value"),
    [("COMFY_MAX_RETRIES", "many"), ("COMFY_ALLOW_PARALLEL_PAGES", "perhaps"), ("COMFY_RETRY_BACKOFF_SEC", "1,x")],
)
def test_a_variable_that_makes_no_sense_is_one_line(
    night: AgentWorkspace, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    path = write_yaml(night.root / "limits.yaml", BOOK | {"book_id": "senseless"})
    assert name in refusal(book(night, "create", str(path)), 2)


# Rendering.


def test_pages_are_rendered_pictures_and_films_with_a_page_that_fails(shelf: AgentWorkspace) -> None:
    """The whole way: own workflows, a film from a picture, a page that the server refuses, and how it is told."""
    film = {
        "1": {"class_type": "LoadImage", "inputs": {"image": "example.png"}},
        "2": {"class_type": "SaveWEBM", "inputs": {"images": ["1", 0], "filename_prefix": "x", "codec": "vp9"}},
    }
    film["2"]["inputs"] |= {"fps": 8.0, "crf": 32.0}
    write_graph(shelf, "film", film)
    template = (shelf.root / "workflows" / "picture.json").read_bytes()
    write_picture(shelf.root / "pictures" / "fox.png")
    moving = {"inputs": {"image": "pictures/fox.png"}, "workflow": "film"}
    pages = [*PAGES, {"inputs": {"color": -1}}, moving]
    path = write_yaml(shelf.root / "winter.yaml", {**BOOK, "inputs": {}, "pages": pages})
    answer = run_e3("book", "create", str(path), "--wait", cwd=shelf.root)
    assert answer.returncode == 1, answer
    assert answer.stdout.splitlines()[0] == "winter"
    assert (shelf.root / "workflows" / "picture.json").read_bytes() == template

    jobs = members(shelf, "winter")
    assert [job.status for job in jobs] == [JobStatus.DONE] * 3 + [JobStatus.FAILED, JobStatus.DONE]
    assert [colour_of(shelf.root / job.outputs[0]) for job in jobs[:3]] == [1, 2, 3]
    assert jobs[4].job_type == "I2V"
    assert jobs[4].outputs == ("jobs/finished/video/winter/page_005.webm",)
    assert (shelf.root / jobs[4].outputs[0]).stat().st_size > 0
    assert [sent(job)["1"]["inputs"]["color"] for job in jobs[:3]] == [1, 2, 3]
    assert [sent(job)["1"]["inputs"]["width"] for job in jobs[:3]] == [32, 16, 32]
    assert (jobs[3].failure_class, jobs[3].needs_regeneration, jobs[3].run_count) == ("invalid", True, 2)

    shown = book(shelf, "show", "winter").stdout.splitlines()
    assert shown[0] == "● winter  Winter tales: 4 of 5 done, 1 needs attention, complete"
    assert [" ".join(line.split()[:3]) for line in shown[1:6]] == [
        *(f"{page} ● Done" for page in (1, 2, 3)),
        "4 △ Needs",
        "5 ● Done",
    ]
    assert "1 retry" in shown[4]
    assert shown[-1] == "Again: e3 book regenerate winter"

    rows = in_the_shell(shelf.database, "SELECT * FROM book_pages WHERE book_id = 'winter' ORDER BY page")
    assert [list(row) for row in rows] == [COLUMNS] * 5
    assert [row["page"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["status"] for row in rows] == ["Done"] * 3 + ["Needs attention", "Done"]
    assert [row["needs_regeneration"] for row in rows] == [0, 0, 0, 1, 0]
    assert [row["retry_count"] for row in rows] == [0, 0, 0, 1, 0]
    errors = json.loads(rows[3]["image_error"])
    assert [error["kind"] for error in errors] == ["invalid", "invalid"]
    assert json.loads(rows[0]["image_error"]) == []
    told = json.loads(rows[3]["job_metadata"])
    assert told["overrides"] == {"color": -1}
    assert len(told["prompt_ids"]) == 2

    events = [event for event in shelf.events() if event["event"].startswith("book.page.")]
    assert [(event["event"], event["book_id"], event["page"]) for event in events] == [
        ("book.page.retry", "winter", 4),
        ("book.page.failed", "winter", 4),
    ]
    assert [event["failure_class"] for event in events] == ["invalid", "invalid"]
    assert [event["prompt_id"] for event in events] == told["prompt_ids"]

    listed = document(book(shelf, "show", "winter", "--json"))
    assert [page["status"] for page in listed["pages"]] == [row["status"] for row in rows]
    assert [list(page) for page in listed["pages"]] == [COLUMNS] * 5
    assert listed["pages"][3]["image_error"] == errors

    # One that failed, with another colour; nothing else is touched.
    before = {job.outputs[0]: (shelf.root / job.outputs[0]).stat().st_mtime_ns for job in jobs if job.outputs}
    again = document(book(shelf, "regenerate", "winter", "--page", "4", "--set", "color=4", "--json"))
    assert again == {"book_id": "winter", "pages": [4]}
    assert batch_of(shelf, "winter").generation == 2
    render(shelf)
    jobs = members(shelf, "winter")
    assert (jobs[3].status, jobs[3].needs_regeneration) == (JobStatus.DONE, False)
    assert colour_of(shelf.root / jobs[3].outputs[0]) == 4
    assert jobs[3].outputs == ("jobs/finished/image/winter/page_004.png",)
    assert {path: (shelf.root / path).stat().st_mtime_ns for path in before} == before
    (row,) = in_the_shell(shelf.database, "SELECT * FROM book_pages WHERE book_id = 'winter' AND page = 4")
    assert (row["status"], row["needs_regeneration"]) == ("Done", 0)
    assert int(json.loads(row["job_metadata"])["overrides"]["color"]) == 4
    assert document(book(shelf, "ls", "--json"))[0]["generation"] == 2


@pytest.mark.slow
def test_a_page_that_is_done_keeps_its_picture_until_the_new_one_is_there(shelf: AgentWorkspace) -> None:
    """With new inputs, and as it was: then it is really rendered again, which the server's cache would spare itself."""
    create(shelf)
    render(shelf)
    folder = shelf.root / "jobs/finished/image/winter"
    before, jobs = everything_in(folder), members(shelf, "winter")
    answer = book(shelf, "regenerate", "winter", "--page", "2", "--set", "color=7")
    assert (answer.returncode, answer.stdout) == (0, "○ winter: page 2 submitted again\n")
    assert book(shelf, "regenerate", "winter", "--page", "1").returncode == 0
    assert everything_in(folder) == before
    assert [job.outputs for job in members(shelf, "winter")] == [job.outputs for job in jobs]
    render(shelf)
    after = everything_in(folder)
    assert {name: after[name] for name in before} == before
    assert sorted(after.keys() - before.keys()) == ["page_001_2.png", "page_002_2.png"]
    again = members(shelf, "winter")
    assert [colour_of(shelf.root / job.outputs[0]) for job in again] == [1, 7, 3]
    assert [job.take for job in again] == [2, 2, None]
    assert [job.run_count - earlier.run_count for job, earlier in zip(again, jobs, strict=True)] == [1, 1, 0]
    assert [job.retries_attempted for job in again] == [0, 0, 0]
    found = batch_of(shelf, "winter")
    assert (found.status.value, found.generation, found.done) == ("complete", 2, 3)


# Listing and showing.


def test_a_listing_has_books_only_and_the_keys_of_batches(night: AgentWorkspace) -> None:
    create(night, book_id="listed")
    call_e3("sweep", "picture", "--set", "color=1", cwd=night.root)
    found = document(book(night, "ls", "--json"))
    assert found[0]["id"] == "listed"
    assert {each["kind"] for each in found} == {"book"}
    assert all(list(each) == KEYS for each in found)
    assert book(night, "ls", "--limit", "1").stdout == "◐ listed  Winter tales  0 of 3 done\n"


def test_a_sweep_is_no_book(night: AgentWorkspace) -> None:
    batch_id = queued_id(call_e3("sweep", "picture", "--set", "color=1", cwd=night.root))
    for command in ("show", "regenerate"):
        assert refusal(book(night, command, batch_id), 1) == f"there is no book {batch_id!r}: see e3 book ls"
    assert refusal(book(night, "show", "nope", "--json"), 1) == "there is no book 'nope': see e3 book ls"


def test_showing_one_as_json_adds_its_pages(night: AgentWorkspace) -> None:
    create(night, book_id="shown")
    found = document(book(night, "show", "shown", "--json"))
    assert list(found)[: len(KEYS)] == KEYS
    assert [page["page"] for page in found["pages"]] == [1, 2, 3]
    assert [page["status"] for page in found["pages"]] == ["Pending"] * 3
    assert found["pages"][1]["job_metadata"]["overrides"] == {"color": 2, "width": 16}


def test_words_of_a_server_do_not_reach_the_terminal_raw(night: AgentWorkspace) -> None:
    create(night, book_id="raw", title="clear\x1b[2J")
    end(night, "raw", "failed")
    in_the_shell(night.database, "UPDATE jobs SET error_trace = 'bad' || char(27) || '[2J' WHERE batch_id = 'raw'")
    for arguments in (("show", "raw"), ("ls",)):
        assert "\x1b" not in book(night, *arguments).stdout


# Making pages anew.


def test_every_failed_page_is_made_anew_but_not_what_was_cancelled_or_is_done(night: AgentWorkspace) -> None:
    create(night, book_id="failed", pages=[*PAGES, {"inputs": {"color": 4}}])
    end(night, "failed", "failed", "done", "failed", "cancelled")
    assert document(book(night, "regenerate", "failed", "--json")) == {"book_id": "failed", "pages": [1, 3]}
    assert [job.status.value for job in members(night, "failed")] == ["pending", "done", "pending", "failed"]
    assert (batch_of(night, "failed").generation, batch_of(night, "failed").status.value) == (2, "active")


def test_all_failed_pages_can_have_new_inputs_at_once(night: AgentWorkspace) -> None:
    create(night, book_id="anew")
    end(night, "anew", "failed", "done", "failed")
    answer = book(night, "regenerate", "anew", "--set", "width=64", "--set", "1.height=8")
    assert answer.stdout == "○ anew: pages 1, 3 submitted again\n"
    inputs = [json.loads(job.inputs or "") for job in members(night, "anew")]
    assert inputs == [
        {"1.width": 64, "1.color": 1, "1.height": 8},
        {"1.width": 16, "1.color": 2},
        {"1.width": 64, "1.color": 3, "1.height": 8},
    ]


def test_when_nothing_needs_attention_it_says_so(night: AgentWorkspace) -> None:
    create(night, book_id="fine")
    end(night, "fine", "done", "done", "done")
    for flags in ([], ["--json"]):
        answer = book(night, "regenerate", "fine", *flags)
        words = "e3: no page of fine needs attention: name a page with --page N to render it all the same\n"
        assert (answer.returncode, answer.stdout, answer.stderr) == (1, "", words)
    assert batch_of(night, "fine").generation == 1


@pytest.mark.parametrize(
    ("state", "words"),
    [("pending", "page 1 of busy_pending waits"), ("processing", "page 1 of busy_processing is rend")],
)
def test_a_page_that_is_under_way_is_not_touched(night: AgentWorkspace, state: str, words: str) -> None:
    book_id = f"busy_{state}"
    create(night, book_id=book_id)
    in_the_shell(night.database, f"UPDATE jobs SET status = '{state}' WHERE batch_id = '{book_id}' AND batch_index = 0")
    before = members(night, book_id)
    for more in ([], ["--set", "color=9"], ["--new-seed"]):
        assert refusal(book(night, "regenerate", book_id, "--page", "1", *more), 1).startswith(words)
    assert members(night, book_id) == before


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--page", "4"], 1, "wrongly has no page 4: it has 3"),
        (["--page", "0"], 2, "Invalid value for '--page'"),
        (["--page", "-1"], 2, "Invalid value for '--page'"),
        (["--page", "one"], 2, "Invalid value for '--page'"),
        (["--page", "1", "--set", "hat=red"], 1, "'hat' has no place in the workflow"),
        (["--page", "1", "--set", "color=red"], 1, "1.color (EmptyImage) takes a whole number"),
        (["--page", "1", "--set", "color"], 2, "--set 'color': write NAME=VALUE"),
        (["--page", "1", "--new-seed"], 1, "its workflow has no seed to change: give new inputs with --set"),
    ],
)
def test_what_cannot_be_made_anew_is_one_line(
    night: AgentWorkspace, arguments: list[str], code: int, words: str
) -> None:
    if "wrongly" not in [each.id for each in batches(night)]:
        create(night, book_id="wrongly")
        end(night, "wrongly", "done", "done", "done")
    before = members(night, "wrongly")
    assert words in refusal(book(night, "regenerate", "wrongly", *arguments), code)
    assert members(night, "wrongly") == before


def test_an_input_that_is_given_twice_is_refused(night: AgentWorkspace) -> None:
    create(night, book_id="twice")
    end(night, "twice", "done")
    answer = book(night, "regenerate", "twice", "--page", "1", "--set", "color=1", "--set", "color=2")
    assert "--set color is there twice" in refusal(answer, 2)


def test_another_seed_makes_another_picture_and_keeps_the_rest(night: AgentWorkspace) -> None:
    pages = [{"inputs": {"prompt": "a fox", "seed": 5, "steps": 3}}]
    create(night, book_id="seeds", workflow="wf_realistic_portrait", inputs={}, pages=pages)
    seeds = set()
    for _ in range(3):
        end(night, "seeds", "done")
        assert book(night, "regenerate", "seeds", "--page", "1", "--new-seed").returncode == 0
        (job,) = members(night, "seeds")
        inputs = json.loads(job.inputs or "")
        seeds.add(inputs["5.seed"])
        assert (inputs["2.text"], inputs["5.steps"]) == ("a fox", 3)
        assert json.loads(job.metadata or "")["overrides"]["seed"] == inputs["5.seed"]
    assert len(seeds - {5}) == 3


def test_a_page_that_waits_to_be_made_anew_has_no_reason_to_worry(night: AgentWorkspace) -> None:
    create(night, book_id="calm")
    end(night, "calm", "done", "done", "done")
    book(night, "regenerate", "calm", "--page", "2")
    assert book(night, "show", "calm").stdout.splitlines()[2].rstrip() == "   2  ○ Pending"
